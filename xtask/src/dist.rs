//! `cargo xtask dist`: the files of a release, in target/dist/VERSION, made and tried. These are static commands for both
//! machines, a Debian package of each, an image for containers, and the sums of them all.
//!
//! The step `static` makes and tries the image of an unoptimized command for this machine. Optimized builds for two
//! machines take a quarter of an hour.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::catalogue::Scratch;
use crate::cross;
use crate::cross::musl::{self, MACHINES, Machine};
use crate::package::{self, Libraries};
use crate::steps::{Log, Verdict};
use crate::systems::table::Record;
use crate::{root, setup};

/// The largest size of a command.
const BYTES_MAX: u64 = 20_000_000;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What an image is built and read with, and the clients of the server in it.
pub(crate) const NEEDS: &[&str] =
    &["x86_64-linux-gnu-gcc", "aarch64-linux-gnu-gcc", "buildah", "unshare", "nbdcopy", "nbdinfo", "openssl", "jq"];

/// What makes and tries the packages of a release, beside what makes and tries the image.
pub(crate) const PACKAGES_NEED: &[&str] = &["buildah", "dpkg-deb", "gzip", "groff", "mmdebstrap", cross::EMULATOR];

/// The step `dist`.
pub(crate) fn run(log: &mut Log) -> Result<Verdict> {
    if !musl::build(log, &MACHINES, &["--release"])? {
        return Ok(Verdict::Skipped(musl::NOT_THERE.into()));
    }
    let place = root().join("target/dist").join(VERSION);
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    fs::create_dir_all(&place)?;
    let tree = Scratch::create("dist")?;
    let sizes = make_commands(&place)?;
    let [package, _] = make_packages(log, &place, &tree.path)?;
    let image = place.join(format!("mdspace-{VERSION}-image.tar"));
    build_image(log, &tree.path, &MACHINES, &place, &image)?;
    let outcome = try_image(log, &tree.path, &image)?;
    let emulated = cross::use_command(log, &command_in(&place, &MACHINES[1]))?;
    let (target, kernel) = (MACHINES[1].target, "none: system calls translated");
    let tested = "emulated: the package of a release, and its command";
    Record::new("none", kernel, "aarch64, pages of 4 KiB", target, tested).leave("4-dist")?;
    let installed = install_in_debian(log, &tree.path, &package)?;
    log.run(Command::new("bash").args(["-c", "sha256sum mdspace* >SHA256SUMS"]).current_dir(&place))?;
    Ok(Verdict::Passed(format!("{}; {sizes}; {outcome}; emulated, {emulated}; {installed}", place.display())))
}

/// Puts the commands there, without symbols; returns their sizes as a text.
fn make_commands(place: &Path) -> Result<String> {
    let mut sizes = Vec::new();
    for machine in &MACHINES {
        let command = command_in(place, machine);
        strip(machine, "release", &command)?;
        let bytes = fs::metadata(&command)?.len();
        ensure!(bytes <= BYTES_MAX, "{} has {bytes} bytes, more than {BYTES_MAX}", command.display());
        sizes.push(format!("{} {:.1} MB", machine.debian, bytes as f64 / 1e6));
    }
    Ok(sizes.join(", "))
}

/// Makes the package of each command, and installs it into a directory below `tree`.
fn make_packages(log: &mut Log, place: &Path, tree: &Path) -> Result<[PathBuf; 2]> {
    let [native, _] = &MACHINES;
    let mut make = |machine: &Machine| {
        let made = package::make(&package::Command {
            path: &command_in(place, machine),
            describes_itself: &command_in(place, native),
            architecture: machine.debian,
            libraries: Libraries::None,
            place,
        })?;
        let emulator = (machine.debian != native.debian).then_some(cross::EMULATOR);
        let installed = tree.join(machine.debian);
        fs::create_dir(&installed)?;
        log.run(Command::new("tests/package.sh").arg(&made).arg(installed).args(emulator))?;
        anyhow::Ok(made)
    };
    Ok([make(&MACHINES[0])?, make(&MACHINES[1])?])
}

/// The step `static`.
pub(crate) fn static_command(log: &mut Log) -> Result<Verdict> {
    if !setup::is_root()? {
        return Ok(Verdict::Skipped("needs root, for a root directory of its own".into()));
    }
    let [machine, _] = &MACHINES;
    if !musl::build(log, std::slice::from_ref(machine), &[])? {
        return Ok(Verdict::Skipped(musl::NOT_THERE.into()));
    }
    let place = Scratch::create("static")?;
    strip(machine, "debug", &command_in(&place.path, machine))?;
    let image = place.path.join("image.tar");
    build_image(log, &place.path, std::slice::from_ref(machine), &place.path, &image)?;
    let outcome = try_image(log, &place.path, &image)?;
    let kernel = "Debian 12's; the same without io_uring, and without system calls that Linux 3.10 lacks";
    let system = "none: the container image, as an unprivileged user, its root read-only";
    let tested = "run: the commands, NBD also through TLS";
    Record::new(system, kernel, "x86-64", machine.target, tested).leave("3-static")?;
    Ok(Verdict::Passed(outcome))
}

/// Uses an image that was built; returns what came of it.
fn try_image(log: &mut Log, place: &Path, image: &Path) -> Result<String> {
    if !setup::is_root()? {
        return Ok("the image NOT tried, as that needs root".into());
    }
    let tried = place.join("tried");
    fs::create_dir(&tried)?;
    log.run(Command::new("tests/alone.sh").arg(image).arg(&tried))?;
    log.last_line()
}

/// Installs a package for this machine into several versions of Debian; returns what came of it.
fn install_in_debian(log: &mut Log, place: &Path, package: &Path) -> Result<String> {
    if !setup::is_root()? {
        return Ok("the package NOT installed in other systems, as that needs root".into());
    }
    let tried = place.join("places");
    fs::create_dir(&tried)?;
    log.run(Command::new("tests/places.sh").arg(package).arg(&tried))?;
    let tested = "run: the package of a release, and its command";
    Record::new("Debian 11, 12 and 13", "the host's", "x86-64", MACHINES[0].target, tested).leave("4-debian")?;
    log.last_line()
}

/// The name of a command among the files of a release.
fn command_in(place: &Path, machine: &Machine) -> PathBuf {
    let (processor, _) = machine.target.split_once('-').expect("a target begins with its processor");
    place.join(format!("mdspace-{VERSION}-{processor}-linux"))
}

/// Puts the command of this profile to `at`, without symbols.
fn strip(machine: &Machine, profile: &str, at: &Path) -> Result<()> {
    let built = machine.command(profile);
    let status = Command::new(machine.program("strip")).arg("-o").arg(at).arg(&built).status()?;
    ensure!(status.success(), "cannot strip {}", built.display());
    Ok(())
}

/// Builds the image by dist/Containerfile, of commands in `from`, into an archive. Works in directories of `place`.
fn build_image(log: &mut Log, place: &Path, machines: &[Machine], from: &Path, archive: &Path) -> Result<()> {
    let context = place.join("context");
    for machine in machines {
        let root = context.join(machine.debian);
        fs::create_dir_all(root.join("disks"))?;
        fs::copy(command_in(from, machine), root.join("mdspace"))?;
    }
    let buildah = |words: &[&str]| {
        let mut buildah = Command::new("buildah");
        buildah.arg("--root").arg(place.join("store")).arg("--runroot").arg(place.join("run"));
        buildah.args(["--storage-driver", "vfs"]).args(words);
        buildah
    };
    let platforms: Vec<String> = machines.iter().map(|machine| format!("linux/{}", machine.debian)).collect();
    let name = format!("mdspace:{VERSION}");
    // Without a time of its own, the same command makes the same image.
    let mut build =
        buildah(&["build", "--isolation", "chroot", "--timestamp", "0", "--platform", &platforms.join(",")]);
    log.run(build.args(["--manifest", &name, "--file", "dist/Containerfile"]).arg(&context))?;
    let archive = format!("oci-archive:{}:{name}", archive.to_str().context("a path in UTF-8")?);
    log.run(&mut buildah(&["manifest", "push", "--quiet", "--all", &name, &archive]))
}
