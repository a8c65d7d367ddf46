//! The steps of `cargo xtask test`, cheap ones first, and how each is run.
//!
//! Steps share builds. The tests, and what runs beside them on the host, use the dev profile (with overflow checks and
//! debug assertions). The README's commands, the package, the laboratory and what the real driver judges in a guest use
//! the release profile, as users do. Simulations use the swarm profile, which is optimized and keeps the assertions.
//! Nothing is built twice in one profile. Builds in different profiles run beside each other, as the end of a build
//! occupies only one processor.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::fetched::PROMTOOL;
use crate::guest::{Guest, Outcome};
use crate::kernels::Kernel;
use crate::steps::{Log, Stage, Step, Verdict};
use crate::{
    cases, cross, dist, figures, fuzz, lab, matrix, mutants, package, policies, programs, release, root, rot, setup,
    sim, systems, tidy,
};

pub(crate) const fn step(
    name: &'static str,
    about: &'static str,
    needs: &'static [&'static str],
    run: fn(&mut Log) -> Result<Verdict>,
) -> Step {
    Step { name, about, needs, run, stage: Stage::Alone }
}

/// A step that builds what it needs, beside other builds.
pub(crate) const fn builds(step: Step) -> Step {
    Step { stage: Stage::Builds, ..step }
}

/// A step that may run beside others, once everything is built.
pub(crate) const fn beside(step: Step) -> Step {
    Step { stage: Stage::Uses, ..step }
}

/// What a guest needs on the host, and tests/kernel/hand.py.
pub(crate) const GUEST: &[&str] = &["linux.uml", "mdadm", "modprobe", "cc", "python3"];

/// All steps, in the order in which they run.
pub(crate) const STEPS: &[Step] = &[
    step("setup", "the programs that the other steps need are installed", &[], setup::run),
    step("fmt", "rustfmt would change nothing", &["rustfmt"], fmt),
    step("tidy", "the project's own rules hold", &["git"], house_rules),
    step("dependencies", "dependencies have permitted licences and no advisories", &[], release::dependencies),
    step("crates", "the crates for others could be published", &[], release::crates),
    builds(step("readme", "the README's first command works in an empty directory", &["nbdcopy", "nbdinfo"], readme)),
    builds(step("clippy", "clippy and the compiler have no warning", &["cargo-clippy"], clippy)),
    builds(step("rust-version", "everything compiles with the oldest supported Rust", &[], release::rust_version)),
    builds(step("docs", "the documentation of the code builds without broken links", &[], docs)),
    builds(step("tests", "unit, property and black-box tests pass", &[], tests)),
    builds(step("package", "the Debian package is small, and what it installs works", package::NEEDS, debian_package)),
    builds(step(
        "cross",
        "tests pass on an emulated aarch64, where the command works; FreeBSD's library compiles",
        cross::NEEDS,
        cross::run,
    )),
    builds(step("simulator", "the tests of the laboratory and the simulator pass, optimized", &[], simulator)),
    beside(step(
        "sim",
        "simulated histories of arrays, some fixed and some fresh in each run, keep all promises",
        &[],
        sim::step,
    )),
    beside(step("mutants", "histories and tests of the simulator catch engines broken on purpose", &[], mutants::step)),
    beside(step("lab", "the laboratory's figures are those of docs/lab.md", &[], laboratory)),
    beside(step("matrix", "the real md driver and mdspace use each other's arrays", GUEST, interop)),
    beside(step("cases", "reported situations end right, beside their outcome under md", CASES, reported_cases)),
    beside(step("geometry", "each level and layout places bytes as the real driver does", GUEST, geometry)),
    beside(step(
        "superblocks",
        "the real driver accepts superblocks that mdspace changed or created",
        GUEST,
        superblocks,
    )),
    beside(step(
        "bitmap",
        "write-intent bitmaps go back and forth between mdspace and md, also as files",
        CLIENTS,
        bitmap,
    )),
    beside(step(
        "checksums",
        "the real driver uses arrays with checksums, and no checksum is wrong afterwards",
        CLIENTS,
        checksums,
    )),
    beside(step(
        "grow",
        "arrays grown by one side are resynced by the other, and keep their data",
        &["linux.uml", "mdadm", "modprobe", "nbd-client", "nbdsh", "python3"],
        grow,
    )),
    beside(step("fuzz", "no decoder panics on foreign bytes, for a bounded time", &["c++"], fuzz::run)),
    beside(step(
        "end-to-end",
        "files are written over NBD, a member fails, and the kernel's md takes over the array",
        CLIENTS,
        end_to_end,
    )),
    beside(step(
        "rescue",
        "files are recovered from members that mdadm created, as docs/rescue.md says",
        RESCUE,
        rescue,
    )),
    beside(step(
        "static",
        "the static command works where nothing else is, also without newer system calls",
        dist::NEEDS,
        dist::static_command,
    )),
    beside(step("layers", "volumes of firmware RAID and of LVM hold the real drivers' bytes", LAYERS, layers)),
    beside(step("fuse", "file systems on a loop device over the array as a file, also without root", FUSE, fuse)),
    beside(step(
        "unprivileged",
        "an unprivileged user can do all that needs no root; the rest is refused with advice",
        UNPRIVILEGED,
        unprivileged,
    )),
    beside(step("page", "the page in a browser, and its metrics by a strict parser", BROWSER, page)),
    beside(step(
        "monitoring",
        "promtool takes the metrics and lets each alert fire; systemd takes the units",
        MONITORING,
        monitoring,
    )),
    beside(step(
        "programs",
        "the C library's header is current, and the programs in C and Python on docs/programs.md work",
        programs::NEEDS,
        programs::step,
    )),
    beside(step("machine", "a virtual machine's disk by vhost-user, its server killed meanwhile", MACHINE, machine)),
    beside(step(
        "ublk",
        "a block device of a real kernel by ublk, its server stopped, killed and replaced",
        UBLK,
        ublk,
    )),
    beside(step(
        "filesystem",
        "file systems on /dev/nbd0 of a real kernel, then taken over by its md",
        GUEST,
        filesystem,
    )),
    beside(step(
        "mdadm",
        "mdadm's words show a running array in the lines of mdadm and of the real driver",
        GUEST,
        mdadm_words,
    )),
    beside(step(
        "recovery",
        "one side begins a recovery or a replacement and the other ends it; members that come back; spares",
        &["linux.uml", "mdadm", "modprobe", "nbdsh", "python3"],
        recovery,
    )),
    beside(step(
        "halves",
        "halves that the real driver used apart are never overwritten; absent members return",
        KILLED,
        halves,
    )),
    beside(step(
        "forced",
        "arrays that start only by --force hold the driver's data, and then start under it without force",
        &["linux.uml", "mdadm", "modprobe", "nbdsh", "python3"],
        forced,
    )),
    beside(step(
        "unfinished",
        "what the real driver left unfinished is read as the driver reads it",
        GUEST,
        unfinished,
    )),
    beside(step(
        "in-place",
        "reshapes in place are read with mdadm's backup as mdadm and the driver restore and end them",
        &["linux.uml", "mdadm", "modprobe", "python3"],
        in_place,
    )),
    beside(step(
        "more-slots",
        "reshapes to more members: the driver ends mdspace's, also after power cuts, and mdspace the driver's",
        &["linux.uml", "mdadm", "modprobe", "python3"],
        more_slots,
    )),
    beside(step(
        "bad-blocks",
        "read errors are repaired, and bad blocks recorded and honoured, as by the real driver",
        &["linux.uml", "mdadm", "modprobe", "dmsetup", "nbdsh", "python3"],
        bad_blocks,
    )),
    beside(step(
        "faults",
        "members fail while in use: the outcome under the real driver and under mdspace",
        &["linux.uml", "mdadm", "modprobe", "dmsetup", "nbdsh", "python3"],
        faults,
    )),
    beside(step(
        "scrub",
        "checks and repairs of the same corrupted members, by mdspace and by the driver",
        GUEST,
        scrub,
    )),
    beside(step(
        "killed",
        "a server killed at random moments loses nothing it promised, and the kernel's md uses what is left",
        KILLED,
        killed,
    )),
    beside(step(
        "soak",
        "many clients verify what they wrote while members fail and return, and scrubs run",
        &["fio", "python3"],
        soak,
    )),
    beside(step(
        "refused",
        "a server to which the kernel refuses io_uring does the same, by threads",
        REFUSED,
        refused,
    )),
    beside(step(
        "attack",
        "attacks on servers and commands fail as they must",
        &["/usr/bin/python3", "nbdsh", "nbdinfo", "openssl", "losetup", "fusermount3"],
        attack,
    )),
    beside(step(
        "crashes",
        "a kernel panics amid writes to degraded arrays, and logs keep what was not being written",
        CLIENTS,
        policies::crashes::few,
    )),
    beside(step(
        "interrupted",
        "one side is interrupted and the other continues: crashes, stale members, recovery",
        CLIENTS,
        interrupted,
    )),
];

/// Programs that create the situations of tests/cases and try them.
const CASES: &[&str] = &["linux.uml", "mdadm", "modprobe", "dmsetup", "openssl", "sfdisk", "nbdsh", "/usr/bin/python3"];

/// Programs for the end-to-end test.
pub(crate) const CLIENTS: &[&str] =
    &["linux.uml", "mdadm", "modprobe", "nbdcopy", "nbdinfo", "qemu-io", "mke2fs", "jq", "python3"];

/// A client that records each request, and the guest that judges.
const KILLED: &[&str] = &["linux.uml", "mdadm", "modprobe", "nbdsh", "python3"];

/// The clients of a server without io_uring.
const REFUSED: &[&str] = &["python3", "nbdsh", "nbdcopy", "nbdinfo", "qemu-io", "mke2fs", "jq", "fio"];

/// Programs that create the members of a NAS, and those in the commands of the page.
const RESCUE: &[&str] = &["linux.uml", "mdadm", "modprobe", "mke2fs", "debugfs", "nbdcopy", "jq", "ddrescuelog"];

/// Programs that create containers and volume groups.
const LAYERS: &[&str] =
    &["linux.uml", "mdadm", "mdmon", "modprobe", "vgcreate", "cc", "sfdisk", "mke2fs", "debugfs", "setpriv"];

/// Programs that test an array as a file.
const FUSE: &[&str] =
    &["fusermount3", "losetup", "fio", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "nbdcopy", "nbdinfo", "setpriv"];

/// The clients of an unprivileged user, and the program that gives up root's rights.
const UNPRIVILEGED: &[&str] =
    &["setpriv", "fusermount3", "nbdcopy", "nbdinfo", "qemu-io", "fio", "curl", "openssl", "/usr/bin/python3"];

/// Programs that watch arrays; promtool is fetched.
const MONITORING: &[&str] = &["nbdcopy", "curl", "systemd-analyze"];

/// Programs that test the web page of an array.
const BROWSER: &[&str] = &["chromium", setup::OPENMETRICS_PARSER, "curl", "nbdcopy"];

/// What a virtual machine needs on the host; its kernel is downloaded.
const MACHINE: &[&str] = &["qemu-system-x86_64", "busybox", "apt-get", "fio", "blkdiscard", "mke2fs", "nbdcopy", "jq"];

/// As [`MACHINE`], for a guest that serves the array itself.
const UBLK: &[&str] = &[
    "qemu-system-x86_64",
    "busybox",
    "apt-get",
    "strip",
    "fio",
    "jq",
    "mdadm",
    "blkdiscard",
    "blockdev",
    "mke2fs",
    "e2fsck",
];

pub(crate) fn cargo<A: AsRef<OsStr>>(arguments: &[A]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments);
    command
}

pub(crate) fn fmt(log: &mut Log) -> Result<Verdict> {
    log.run(&mut cargo(&["fmt", "--all", "--check"]))?;
    Ok(Verdict::Passed(String::new()))
}

pub(crate) fn house_rules(_: &mut Log) -> Result<Verdict> {
    tidy::check().map(Verdict::Passed)
}

fn clippy(log: &mut Log) -> Result<Verdict> {
    log.run(&mut cargo(release::CLIPPY))?;
    // Of the whole workspace, so that third parties have the same features and are not checked again.
    let least = ["clippy", "--locked", "--workspace", "--no-default-features"];
    for features in [&["--features", "mdspace/command"] as &[&str], &[]] {
        log.run(cargo(&least).args(features).args(["--", "-D", "warnings"]))?;
    }
    Ok(Verdict::Passed(String::new()))
}

fn docs(log: &mut Log) -> Result<Verdict> {
    let mut command = cargo(&["doc", "--locked", "--workspace", "--no-deps", "--document-private-items"]);
    log.run(command.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(Verdict::Passed(String::new()))
}

/// The seed of property tests, so that a failure is about the change at hand. Other values of this variable and of
/// `PROPTEST_CASES` try other cases.
pub(crate) const PROPERTY_SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "1");

/// Runs tests with these arguments of cargo; returns the number that passed. Logs the summary of each binary.
fn run_tests(log: &mut Log, which: &[&str]) -> Result<u64> {
    let mut command = cargo(&["test", "--locked", "--no-fail-fast"]);
    command.args(which);
    run_tests_by(log, command)
}

/// The same by a whole command.
pub(crate) fn run_tests_by(log: &mut Log, mut command: Command) -> Result<u64> {
    if std::env::var_os(PROPERTY_SEED.0).is_none() {
        command.env(PROPERTY_SEED.0, PROPERTY_SEED.1);
    }
    let printed_before = log.text()?.len();
    let result = log.run(&mut command);
    let mut passed = 0;
    for line in log.text()?[printed_before..].lines() {
        if line.starts_with("test result:") {
            println!("{line}");
            passed += count_before(line, " passed");
        } else if line.starts_with("test ") && line.ends_with(" FAILED") {
            println!("{line}");
        }
    }
    result.map(|()| passed)
}

/// Builds the command without optional features. All else is as in [`TESTED`], so that third parties have the same
/// features and are not built twice.
const LEAST: &[&str] = &[
    "--no-default-features",
    "--features",
    "mdspace/command,mdspace-export/default,mdspace-control/default",
    "--test",
    "command",
    "cannot_be_had",
];

/// All tests but those of simulations.
fn tests(log: &mut Log) -> Result<Verdict> {
    // First the build without features, as its command would otherwise replace the one that the other steps use.
    let least = run_tests(log, &[TESTED, LEAST].concat());
    let without_warning = !log.text()?.lines().any(|line| line.starts_with("warning: "));
    let most = run_tests(log, TESTED);
    let least = least?;
    ensure!(least > 0, "no test of the command without features ran: is it called otherwise now?");
    let passed = least + most?;
    ensure!(without_warning, "warnings without the features; see the log");
    Ok(Verdict::Passed(format!("{passed} tests")))
}

/// The tests of the laboratory and the simulator, which are too slow without optimization. Those of mutants are in the same
/// build.
fn simulator(log: &mut Log) -> Result<Verdict> {
    let tests = |words: &[&str]| {
        let mut cargo = cargo(&["test", "--locked", "--no-fail-fast"]);
        mutants::with_hooks(cargo.args(words));
        cargo
    };
    let libraries = ["--package", "mdspace-lab", "--package", "mdspace-sim", "--profile", "swarm", "--lib"];
    let passed = run_tests_by(log, tests(&libraries))?;
    let passed = passed + run_tests_by(log, tests(&[&sim::HISTORIES[..], &["--test", "sim"]].concat()))?;
    log.run(mutants::with_hooks(cargo(&["build", "--locked"]).args(sim::HISTORIES).arg("--examples")))?;
    Ok(Verdict::Passed(format!("{passed} tests")))
}

fn geometry(log: &mut Log) -> Result<Verdict> {
    geometry_by(log, &Guest::default().limit(Duration::from_secs(900)))
}

/// Holds the geometry against arrays that the kernel of `guest` makes.
pub(crate) fn geometry_by(log: &mut Log, guest: &Guest) -> Result<Verdict> {
    let images = Scratch::create("geometry")?;
    build(log)?;
    run_guest(log, guest, "geometry.sh", &[images.path.as_os_str()])?;
    log.run(Command::new(example("verify_kernel_images")).arg(&images.path))?;
    Ok(Verdict::Passed(log.last_line()?))
}

fn superblocks(log: &mut Log) -> Result<Verdict> {
    build(log)?;
    let guest = Guest::default().memory("1G").limit(Duration::from_secs(600));
    run_guest(log, &guest, "superblocks.sh", &[example("change_superblocks").as_os_str()])?;
    let changed = log.last_line()?;
    let (place, mdspace) = (Scratch::create("superblocks")?, root().join(MDSPACE));
    run_guest(log, &guest, "byte_order.sh", &[mdspace.as_os_str()])?;
    run_guest(log, &guest, "conversion.sh", &[mdspace.as_os_str()])?;
    systems::record_a_block(log, &mdspace, &place.path)?;
    systems::goes_to_an_older_kernel(log, &mdspace, &place.path)?;
    Ok(Verdict::Passed(format!("{changed}; without the record of its logical block: {}", log.last_line()?)))
}

/// Runs a script of tests/kernel in `guest`; its output goes to the log.
pub(crate) fn run_guest(log: &mut Log, guest: &Guest, script: &str, arguments: &[&OsStr]) -> Result<()> {
    let output = guest.run(&root().join("tests/kernel").join(script), arguments)?.success()?;
    log.write(&output)
}

/// A guest with the newer kernel, which judges most of what both can, in two thirds of the time. The older kernel judges
/// all formats, bad blocks, and cases that steps name.
fn newer_guest() -> Guest {
    Guest::default().kernel(Kernel::Newer).memory("1G").limit(Duration::from_secs(900))
}

/// A directory for images, which is removed at the end.
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
}

impl Scratch {
    pub(crate) fn create(name: &str) -> Result<Scratch> {
        let path = root().join("target/xtask").join(name);
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(&path)?;
        Ok(Scratch { path: fs::canonicalize(path)? })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path); // the next run removes what stays
    }
}

/// The command, as [`build`] leaves it.
pub(crate) const MDSPACE: &str = "target/debug/mdspace";

/// The packages with tests that run unoptimized.
pub(crate) const TESTED: &[&str] = &["--workspace", "--exclude", "mdspace-lab", "--exclude", "mdspace-sim"];

/// One of the examples that [`build`] leaves.
fn example(name: &str) -> PathBuf {
    root().join("target/debug/examples").join(name)
}

/// Builds the command together with the tests. A test may need features of a library that the command uses too; a
/// separate build of the command would build that library again.
pub(crate) fn build(log: &mut Log) -> Result<()> {
    log.run(cargo(&["test", "--locked", "--no-run"]).args(TESTED))
}

/// The command of the release profile, as [`build_released`] leaves it. In User Mode Linux it starts in a third of the
/// time of the dev profile's, and guests mostly start this command.
pub(crate) const RELEASED: &str = "target/release/mdspace";

pub(crate) fn build_released(log: &mut Log) -> Result<()> {
    log.run(&mut cargo(&["build", "--locked", "--release"]))
}

fn interop(log: &mut Log) -> Result<Verdict> {
    build_released(log)?;
    let mdspace = Some(root().join(RELEASED));
    let summary = matrix::run(&matrix::Arguments { mdspace, ..matrix::Arguments::fixed() })?;
    log.write(&summary)?;
    print!("{summary}");
    Ok(Verdict::Passed(String::new()))
}

fn laboratory(log: &mut Log) -> Result<Verdict> {
    build_released(log)?;
    let page = fs::read_to_string(lab::page())?;
    let (renewed, count) = lab::renewed(&page, &root().join(RELEASED))?;
    match lab::difference(&page, &renewed) {
        None => Ok(Verdict::Passed(format!("{count} tables"))),
        Some(difference) => bail!(
            "{difference}
to rewrite it: cargo xtask lab"
        ),
    }
}

fn reported_cases(log: &mut Log) -> Result<Verdict> {
    if !setup::is_root()? {
        return Ok(Verdict::Skipped("needs root, for a file system that fills up".into()));
    }
    build_released(log)?;
    let place = Scratch::create("cases")?;
    let count = cases::check(&root().join(RELEASED), &place.path)?;
    Ok(Verdict::Passed(format!("{count} situations")))
}

fn end_to_end(log: &mut Log) -> Result<Verdict> {
    build(log)?;
    let place = Scratch::create("end-to-end")?;
    log.run(Command::new("tests/end_to_end.sh").arg(root().join(MDSPACE)).arg(&place.path))?;
    run_guest(log, &newer_guest(), "end_to_end.sh", &[place.path.as_os_str()])?;
    Ok(Verdict::Passed(log.last_line()?))
}

fn rescue(log: &mut Log) -> Result<Verdict> {
    build_released(log)?;
    let place = Scratch::create("rescue")?;
    let mdspace = root().join(RELEASED);
    run_guest(log, &Guest::default(), "overwritten.sh", &[mdspace.as_os_str(), place.path.as_os_str()])?;
    run_guest(log, &Guest::default(), "nas.sh", &[place.path.as_os_str()])?;
    let mut page = cargo(&["test", "--locked"]);
    page.args(TESTED).args(["--test", "command", "--", "--exact", "docs::files_are_rescued_from_what_a_nas_left"]);
    log.run(page.env("MDSPACE_TEST_NAS", &place.path))?;
    Ok(Verdict::Passed("the page's commands, on mdadm's members".to_owned()))
}

fn layers(log: &mut Log) -> Result<Verdict> {
    build_released(log)?;
    let place = Scratch::create("layers")?;
    for script in ["containers.sh", "lvm.sh", "disks.sh"] {
        let guest = Guest::default().memory("768M").limit(Duration::from_secs(600));
        run_guest(log, &guest, script, &[place.path.as_os_str()])?;
    }
    log.run(Command::new("tests/layers.sh").arg(root().join(RELEASED)).arg(&place.path))?;
    Ok(Verdict::Passed(log.last_line()?))
}

fn fuse(log: &mut Log) -> Result<Verdict> {
    build(log)?;
    if !setup::is_root()? || !Path::new("/dev/fuse").exists() || !Path::new("/dev/loop-control").exists() {
        return Ok(Verdict::Skipped("needs root, /dev/fuse and loop devices".into()));
    }
    let place = Scratch::create("fuse")?;
    log.run(Command::new("tests/fuse.sh").arg(root().join(MDSPACE)).arg(&place.path))?;
    Ok(Verdict::Passed(log.last_line()?))
}

/// As an unprivileged user: root becomes the user `nobody`.
fn unprivileged(log: &mut Log) -> Result<Verdict> {
    build(log)?;
    if !Path::new("/dev/fuse").exists() {
        return Ok(Verdict::Skipped("needs /dev/fuse".into()));
    }
    log.run(Command::new("tests/unprivileged.py").arg(root().join(MDSPACE)))?;
    Ok(Verdict::Passed(log.last_line()?))
}

fn page(log: &mut Log) -> Result<Verdict> {
    build(log)?;
    let place = Scratch::create("page")?;
    log.run(Command::new("tests/page.py").arg(root().join(MDSPACE)).arg(&place.path))?;
    Ok(Verdict::Passed(log.last_line()?))
}

fn monitoring(log: &mut Log) -> Result<Verdict> {
    let Some(promtool) = PROMTOOL.find() else {
        return Ok(Verdict::Skipped("promtool is not there; see the step setup".into()));
    };
    build(log)?;
    let place = Scratch::create("monitoring")?;
    log.run(Command::new("tests/monitoring.sh").arg(root().join(MDSPACE)).arg(promtool).arg(&place.path))?;
    Ok(Verdict::Passed(log.last_line()?))
}

fn machine(log: &mut Log) -> Result<Verdict> {
    build(log)?;
    let place = Scratch::create("machine")?;
    log.run(Command::new("tests/vm/vhost_user.sh").arg(root().join(MDSPACE)).arg(&place.path))?;
    Ok(Verdict::Passed(log.last_line()?))
}

fn ublk(log: &mut Log) -> Result<Verdict> {
    build(log)?;
    let place = Scratch::create("ublk")?;
    log.run(Command::new("tests/vm/ublk.sh").arg(root().join(MDSPACE)).arg(&place.path))?;
    Ok(Verdict::Passed(log.last_line()?))
}

fn readme(log: &mut Log) -> Result<Verdict> {
    let place = Scratch::create("readme")?;
    log.run(Command::new("tests/readme.sh").arg(&place.path))?;
    Ok(Verdict::Passed(log.last_line()?))
}

/// Uses the release binary, which the step `readme` has built if it was requested too.
fn debian_package(log: &mut Log) -> Result<Verdict> {
    build_released(log)?;
    let made = package::make_of_release()?;
    let place = Scratch::create("package")?;
    log.run(Command::new("tests/package.sh").arg(&made.path).arg(&place.path))?;
    Ok(Verdict::Passed(format!("{:.1} MB stripped; {}", made.binary_bytes as f64 / 1e6, log.last_line()?)))
}

fn filesystem(log: &mut Log) -> Result<Verdict> {
    build_released(log)?;
    run_guest(log, &newer_guest(), "filesystem.sh", &[root().join(RELEASED).as_os_str()])?;
    Ok(Verdict::Passed(log.last_line()?))
}

fn recovery(log: &mut Log) -> Result<Verdict> {
    build_released(log)?;
    let command = root().join(RELEASED);
    let on = |levels: &'static [&'static str]| {
        std::iter::once(command.as_os_str()).chain(levels.iter().map(AsRef::as_ref)).collect::<Vec<&OsStr>>()
    };
    run_guest(log, &newer_guest(), "recovery.sh", &on(&["1", "4", "5", "6"]))?;
    let most = log.last_line()?;
    run_guest(log, &newer_guest(), "old.sh", &on(&["1", "5", "6"]))?;
    // When the raid10 of Linux 6.12 resyncs, it fails a replacement (docs/decisions/1010); 6.1 does not.
    let older = Guest::default().memory("1G").limit(Duration::from_secs(900));
    run_guest(log, &older, "recovery.sh", &on(&["10"]))?;
    run_guest(log, &older, "old.sh", &on(&["10"]))?;
    Ok(Verdict::Passed(format!("levels 1 to 6: {most}; level 10: {}", log.last_line()?)))
}

fn halves(log: &mut Log) -> Result<Verdict> {
    build_released(log)?;
    run_guest(log, &newer_guest(), "halves.sh", &[root().join(RELEASED).as_os_str()])?;
    Ok(Verdict::Passed(log.last_line()?))
}

fn forced(log: &mut Log) -> Result<Verdict> {
    build_released(log)?;
    let guest = Guest::default().memory("1G").limit(Duration::from_secs(600));
    run_guest(log, &guest, "forced.sh", &[root().join(RELEASED).as_os_str()])?;
    Ok(Verdict::Passed(log.last_line()?))
}

/// One of so many states is tried here; [`every_unfinished`] tries all.
const UNFINISHED_SAMPLE: &str = "3";

fn unfinished(log: &mut Log) -> Result<Verdict> {
    unfinished_by(log, &newer_guest(), UNFINISHED_SAMPLE)
}

/// Each state that the older driver can leave unfinished.
pub(crate) fn every_unfinished(log: &mut Log) -> Result<Verdict> {
    unfinished_by(log, &Guest::default().memory("1G").limit(Duration::from_secs(1200)), "1")
}

fn unfinished_by(log: &mut Log, guest: &Guest, sample: &str) -> Result<Verdict> {
    build_released(log)?;
    run_guest(log, guest, "unfinished.sh", &[root().join(RELEASED).as_os_str(), sample.as_ref()])?;
    Ok(Verdict::Passed(log.last_line()?))
}

fn in_place(log: &mut Log) -> Result<Verdict> {
    build_released(log)?;
    let guest = Guest::default().memory("1G").limit(Duration::from_secs(600));
    run_guest(log, &guest, "in_place.sh", &[root().join(RELEASED).as_os_str()])?;
    Ok(Verdict::Passed(log.last_line()?))
}

/// Of the shapes in `crates/sim/src/reshaped.rs`, those whose power cuts are tried here; [`every_more_slots`] tries all.
const RESHAPED: [&str; 1] = ["5"];
const EVERY_RESHAPED: [&str; 7] = ["0", "1", "2", "3", "4", "5", "6"];

fn more_slots(log: &mut Log) -> Result<Verdict> {
    more_slots_of(log, &newer_guest(), &RESHAPED)
}

/// Power cuts of all shapes, judged by the older driver.
pub(crate) fn every_more_slots(log: &mut Log) -> Result<Verdict> {
    more_slots_of(log, &Guest::default().memory("1G").limit(Duration::from_secs(1200)), &EVERY_RESHAPED)
}

fn more_slots_of(log: &mut Log, guest: &Guest, cases: &[&str]) -> Result<Verdict> {
    build_released(log)?;
    let images = root().join("target/xtask/reshape_cuts");
    if images.exists() {
        std::fs::remove_dir_all(&images)?;
    }
    let mut example = cargo(&["run", "--quiet", "--locked"]);
    log.run(example.args(sim::HISTORIES).args(["--example", "reshape_cuts", "--"]).arg(&images).arg("8"))?;
    let (released, cases) = (root().join(RELEASED), cases.iter().map(std::ffi::OsStr::new));
    let arguments: Vec<_> = [released.as_os_str(), images.as_os_str()].into_iter().chain(cases).collect();
    run_guest(log, guest, "more_slots.sh", &arguments)?;
    std::fs::remove_dir_all(&images)?;
    Ok(Verdict::Passed(log.last_line()?))
}

fn bad_blocks(log: &mut Log) -> Result<Verdict> {
    build_released(log)?;
    let guest = Guest::default().memory("1G").limit(Duration::from_secs(600));
    run_guest(log, &guest, "bad_blocks.sh", &[root().join(RELEASED).as_os_str()])?;
    Ok(Verdict::Passed(log.last_line()?))
}

fn faults(log: &mut Log) -> Result<Verdict> {
    build_released(log)?;
    let output = figures::faults()?;
    log.write(&output)?;
    figures::check_faults(&output)?;
    Ok(Verdict::Passed(log.last_line()?))
}

fn scrub(log: &mut Log) -> Result<Verdict> {
    build_released(log)?;
    run_guest(log, &newer_guest(), "scrub.sh", &[root().join(RELEASED).as_os_str()])?;
    let corrupted = rot::some(CORRUPTED)?;
    Ok(Verdict::Passed(format!("{}; {corrupted} corruptions with checksums judged right", log.last_line()?)))
}

/// The number of corruptions per shape; `cargo xtask figures` has a hundred thousand in all.
const CORRUPTED: u64 = 200;

fn checksums(log: &mut Log) -> Result<Verdict> {
    build_released(log)?;
    run_guest(log, &newer_guest(), "checksums.sh", &[root().join(RELEASED).as_os_str()])?;
    Ok(Verdict::Passed(log.last_line()?))
}

fn grow(log: &mut Log) -> Result<Verdict> {
    build_released(log)?;
    run_guest(log, &newer_guest(), "grow.sh", &[root().join(RELEASED).as_os_str()])?;
    Ok(Verdict::Passed(log.last_line()?))
}

/// Scenes of detail.sh that differ most: metadata 0.90; a spare; a bitmap, and a member missing.
const DETAILS: [&str; 3] = ["4", "7", "12"];

/// Scenes of created.sh: a size of a RAID-1, flags of members, metadata 0.90 with a bitmap.
const CREATED: [&str; 3] = ["2", "5", "8"];

fn mdadm_words(log: &mut Log) -> Result<Verdict> {
    build_released(log)?;
    let mdspace = root().join(RELEASED);
    let mut told = Vec::new();
    for (script, scenes) in [("detail.sh", DETAILS), ("created.sh", CREATED)] {
        let words: Vec<&OsStr> = std::iter::once(mdspace.as_os_str()).chain(scenes.iter().map(OsStr::new)).collect();
        run_guest(log, &Guest::default(), script, &words)?;
        told.push(log.last_line()?);
    }
    Ok(Verdict::Passed(told.join("; ")))
}

fn bitmap(log: &mut Log) -> Result<Verdict> {
    build_released(log)?;
    let guest = Guest::default().memory("1G").limit(Duration::from_secs(900));
    run_guest(log, &guest, "bitmap.sh", &[root().join(RELEASED).as_os_str()])?;
    Ok(Verdict::Passed(log.last_line()?))
}

/// The disks of all arrays in tests/kernel/interrupted.sh.
const CRASH_DISKS: usize = 15;
const CRASH_DISK_BYTES: u64 = 16 << 20;
/// Random bytes, enough for the largest of those arrays at any offset that the script uses.
const CRASH_POOL_BYTES: usize = 64 << 20;

fn interrupted(log: &mut Log) -> Result<Verdict> {
    build_released(log)?;
    let (script, command) = ("interrupted.sh", root().join(RELEASED));
    run_guest(log, &newer_guest(), script, &["ours".as_ref(), command.as_os_str()])?;
    let ours = log.last_line()?;
    run_guest(log, &Guest::default().memory("1G"), script, &["no-room".as_ref(), command.as_os_str()])?;

    let place = Scratch::create("interrupted")?;
    fs::write(place.path.join("pool"), matrix::random::Random::new(0).bytes(CRASH_POOL_BYTES))?;
    let mut guest = newer_guest();
    for number in 0..CRASH_DISKS {
        let disk = place.path.join(format!("m{number:02}"));
        File::create(&disk)?.set_len(CRASH_DISK_BYTES)?;
        guest = guest.disk(&disk);
    }
    let arguments = |phase: &'static str| [OsStr::new(phase), place.path.as_os_str()];
    match guest.run(&root().join("tests/kernel").join(script), &arguments("crash"))? {
        Outcome::Died { output, .. } if output.ends_with("crashing\n") => log.write(&output)?,
        other => bail!("the guest was to crash while it wrote: {}", other.success()?),
    }
    log.run(Command::new("tests/interrupted.sh").arg(&command).arg(&place.path))?;
    run_guest(log, &guest, script, &arguments("taken-over"))?;
    Ok(Verdict::Passed(format!("{ours}; {}", log.last_line()?)))
}

/// Kills during requests in tests/killed.py, and its arrays with their members.
const KILLS: &str = "28";
const KILLED_ARRAYS: [(&str, usize); 4] = [("raid5", 3), ("raid6", 4), ("raid10", 4), ("checked", 4)];

fn killed(log: &mut Log) -> Result<Verdict> {
    build(log)?;
    let (place, script) = (Scratch::create("killed")?, root().join("tests/killed.py"));
    log.run(Command::new(&script).arg("run").arg(root().join(MDSPACE)).arg(&place.path).arg(KILLS))?;
    let ours = log.last_line()?;
    let members =
        KILLED_ARRAYS.iter().flat_map(|(name, count)| (0..*count).map(move |member| format!("{name}.{member}")));
    let guest = members.fold(newer_guest(), |guest, member| guest.disk(&place.path.join(member)));
    run_guest(log, &guest, "killed.sh", &[script.as_os_str(), place.path.as_os_str()])?;
    Ok(Verdict::Passed(format!("{ours}; {}", log.last_line()?)))
}

/// Seconds of tests/soak.py; a person can run it for longer.
const SOAK_SECONDS: &str = "30";

fn soak(log: &mut Log) -> Result<Verdict> {
    build(log)?;
    let place = Scratch::create("soak")?;
    log.run(Command::new(root().join("tests/soak.py")).arg(root().join(MDSPACE)).arg(&place.path).arg(SOAK_SECONDS))?;
    Ok(Verdict::Passed(log.last_line()?))
}

/// Kills and seconds of tests/killed.py and tests/soak.py where io_uring is refused.
const REFUSED_KILLS: &str = "4";
const REFUSED_SOAK_SECONDS: &str = "10";

/// Runs scripts with a program that starts mdspace under a filter, as a container does.
fn refused(log: &mut Log) -> Result<Verdict> {
    build(log)?;
    let (place, scripts) = (Scratch::create("refused")?, root().join("tests"));
    let program = place.path.join("mdspace");
    let calls = "io_uring_setup,io_uring_enter,io_uring_register";
    let (filter, mdspace) = (scripts.join("refused.py"), root().join(MDSPACE));
    let line = format!("#!/bin/sh\nexec '{}' EPERM {calls} '{}' \"$@\"\n", filter.display(), mdspace.display());
    fs::write(&program, line)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let directory = |name: &str| -> Result<PathBuf> {
        let directory = place.path.join(name);
        fs::create_dir(&directory)?;
        Ok(directory)
    };
    log.run(Command::new(scripts.join("end_to_end.sh")).arg(&program).arg(directory("end-to-end")?))?;
    let killed = directory("killed")?;
    log.run(Command::new(scripts.join("killed.py")).arg("run").arg(&program).arg(killed).arg(REFUSED_KILLS))?;
    let kills = log.last_line()?;
    // Files that hang: a server goes on beside them, and ends.
    let mut hung = cargo(&["test", "--locked"]);
    log.run(hung.args(TESTED).args(["--test", "command", "--", "hung::"]).env("MDSPACE_IO", "threads"))?;
    let soak = directory("soak")?;
    log.run(Command::new(scripts.join("soak.py")).arg(&program).arg(soak).arg(REFUSED_SOAK_SECONDS))?;
    Ok(Verdict::Passed(format!("{kills}; {}", log.last_line()?)))
}

/// Seconds in which tests/attack.py begins attacks: each of them once, then the cheap ones again.
const ATTACK_SECONDS: &str = "45";

fn attack(log: &mut Log) -> Result<Verdict> {
    build(log)?;
    if !setup::is_root()? || !Path::new("/dev/fuse").exists() || !Path::new("/dev/loop-control").exists() {
        return Ok(Verdict::Skipped("needs root, /dev/fuse and loop devices".into()));
    }
    let place = Scratch::create("attack")?;
    log.run(
        Command::new(root().join("tests/attack.py")).arg(root().join(MDSPACE)).arg(&place.path).arg(ATTACK_SECONDS),
    )?;
    Ok(Verdict::Passed(log.last_line()?))
}

/// The number directly before `word` in `line`; 0 if there is none.
fn count_before(line: &str, word: &str) -> u64 {
    let before = line.split(word).next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
