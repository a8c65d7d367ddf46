//! The layers beside the whole test: `cargo xtask quick` takes less than a minute, `cargo xtask long` hours.
//!
//! `quick` finds most mistakes while a change is made. It builds in the profiles of the whole test, so nothing is built
//! twice. `long` compiles for more systems, emulates others, tries fresh histories, a long soak, and fuzzing with a corpus that is
//! kept. The whole test is in
//! [`catalogue`].

use std::process::Command;

use anyhow::Result;

use crate::catalogue::{self, Scratch, beside, builds, step};
use crate::steps::{Log, Step, Verdict};
use crate::{cross, dist, fuzz, lockless, newcomer, policies, programs, release, root, setup, sim, suite, systems};

/// The layer that a run takes its steps from, which also limits their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    Quick,
    Test,
    /// Each step runs for this many minutes.
    Long(u64),
}

impl Layer {
    pub(crate) fn steps(self) -> &'static [Step] {
        match self {
            Self::Quick => QUICK,
            Self::Test => catalogue::STEPS,
            Self::Long(_) => LONG,
        }
    }

    /// The chore that runs the layer.
    pub(crate) fn chore(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Test => "test",
            Self::Long(_) => "long",
        }
    }
}

/// Less than a minute on two processors, once everything is built.
pub(crate) const QUICK: &[Step] = &[
    step("fmt", "rustfmt would change nothing", &["rustfmt"], catalogue::fmt),
    step("tidy", "the project's own rules hold", &["git"], catalogue::house_rules),
    builds(step("check", "every target compiles", &[], check)),
    builds(step("histories", "500 simulated histories keep all promises", &[], sim::few)),
    builds(step("unit", "unit tests pass; the planner's with smaller stripes", &[], unit)),
];

/// For hours: each step that tries fresh inputs runs for the requested time.
pub(crate) const LONG: &[Step] = &[
    step("setup", "the programs that the other steps need are installed", &[], setup::run),
    builds(step("dist", "the files of a release are made, and work", dist::PACKAGES_NEED, dist::run)),
    builds(step("publish", "each crate builds from its package", &[], release::crates_build)),
    builds(step(
        "programs",
        "the libraries for other languages are installed as docs/programs.md says, and its programs work",
        programs::NEEDS,
        programs::long,
    )),
    builds(step("threads", "the whole set of tests passes where commands take threads for io_uring", &[], threads)),
    beside(step(
        "systems",
        "the pure crates compile for other processors and systems, the command for FreeBSD and macOS",
        &[],
        cross::check,
    )),
    beside(step(
        "newest",
        "the newest kernel's md and mdadm, in emulation, and mdspace use each other's arrays",
        systems::NEEDS,
        systems::newest,
    )),
    beside(step(
        "newest-geometry",
        "the newest kernel's md places data as mdspace expects, in emulation",
        systems::NEEDS,
        systems::newest_geometry,
    )),
    beside(step(
        "pages",
        "the same on a system with pages of 16 KiB, in emulation, by the command built for it",
        systems::PAGES_NEEDS,
        systems::pages,
    )),
    beside(step(
        "pages-64k",
        "the same with pages of 64 KiB, on an emulated POWER",
        systems::PAGES_64K_NEED,
        systems::pages_64k,
    )),
    beside(step(
        "lockless",
        "a kernel with lockless bitmaps, which is built here, and mdspace use each other's arrays",
        lockless::NEEDS,
        lockless::run,
    )),
    beside(step("fresh", "fresh histories keep all promises", &[], sim::long)),
    beside(step("fuzz", "no decoder panics on foreign bytes; the corpus is kept and minimized", &["c++"], fuzz::long)),
    beside(step(
        "soak",
        "many clients verify what they write while members fail and return",
        &["fio", "python3"],
        soak,
    )),
    beside(step(
        "crashes",
        "arrays with each consistency policy, amid whose writes a kernel panics, lose nothing that a log keeps",
        catalogue::CLIENTS,
        policies::crashes::long,
    )),
    beside(step(
        "unfinished",
        "each state that the real driver can leave unfinished is read as the driver reads it",
        catalogue::GUEST,
        catalogue::every_unfinished,
    )),
    beside(step(
        "more-slots",
        "power cuts of every shape amid reshapes to more members, judged by the older driver",
        catalogue::GUEST,
        catalogue::every_more_slots,
    )),
    beside(step("suite", "mdadm's own suite of tests, against mdspace's mdadm", SUITE, suite::long)),
    beside(step(
        "newcomer",
        "a bare Debian is a few commands away from the files of a NAS, a served volume and a machine that boots from one",
        newcomer::NEEDS,
        newcomer::run,
    )),
    beside(step("search", "no shape that detect --search finds is wrong", SEARCHED, search)),
];

/// Programs of mdadm's suite and of its adapter.
const SUITE: &[&str] = &["linux.uml", "modprobe", "nbd-client", "jq", "git", "mke2fs"];

/// Programs that make file systems, and judge them.
const SEARCHED: &[&str] = &["linux.uml", "modprobe", "python3", "mke2fs", "mkfs.xfs", "xfs_io", "mkfs.btrfs", "e2fsck"];

fn check(log: &mut Log) -> Result<Verdict> {
    log.run(&mut catalogue::cargo(&["check", "--locked", "--workspace", "--all-targets"]))?;
    Ok(Verdict::Passed(String::new()))
}

/// Makes tests that try all cases up to a size try fewer.
const FEWER_CASES: &str = "MDSPACE_FEWER_CASES";

fn unit(log: &mut Log) -> Result<Verdict> {
    let mut tests = catalogue::cargo(&["test", "--locked", "--no-fail-fast"]);
    tests.args(catalogue::TESTED).args(["--lib", "--bins"]).env(FEWER_CASES, "1").env("PROPTEST_CASES", "32");
    let (name, seed) = catalogue::PROPERTY_SEED;
    log.run(tests.env(name, seed))?;
    let passed = log.text()?.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ok")).count();
    Ok(Verdict::Passed(format!("{passed} tests")))
}

/// The variable is that of the command, whose tests all run by threads then. Those of `io` run on both backends anyway.
fn threads(log: &mut Log) -> Result<Verdict> {
    let mut tests = catalogue::cargo(&["test", "--locked", "--no-fail-fast"]);
    tests.args(catalogue::TESTED).env("MDSPACE_IO", "threads");
    let passed = catalogue::run_tests_by(log, tests)?;
    Ok(Verdict::Passed(format!("{passed} tests")))
}

fn soak(log: &mut Log) -> Result<Verdict> {
    catalogue::build(log)?;
    let place = Scratch::create("long-soak")?;
    let seconds = (log.minutes() * 60).to_string();
    let mut soak = Command::new(root().join("tests/soak.py"));
    log.run(soak.arg(root().join(catalogue::MDSPACE)).arg(&place.path).arg(seconds))?;
    Ok(Verdict::Passed(log.last_line()?))
}

/// Arrays that are made and searched in a minute, about.
const SEARCHES_PER_MINUTE: u64 = 4;

fn search(log: &mut Log) -> Result<Verdict> {
    catalogue::build(log)?;
    let place = Scratch::create("long-search")?;
    let count = (log.minutes() * SEARCHES_PER_MINUTE).to_string();
    let seed = std::process::id().to_string();
    let mut search = Command::new(root().join("tests/search/search.py"));
    search.arg(root().join(catalogue::MDSPACE)).arg(&place.path).args([&count, "--quiet", "--seed", &seed]);
    log.run(&mut search)?;
    Ok(Verdict::Passed(log.last_line()?))
}
