//! The layers of the tests around the whole test: `cargo xtask quick`, under a minute, and `cargo xtask long`, for hours.
//!
//! `quick` shows most mistakes while a change is made; it builds in the same profiles as the whole test, so that nothing is built
//! twice. `long` tries what no other run has tried: fresh histories, a long soak, and fuzzing whose corpus is kept. The whole test is
//! in [`catalogue`].

use std::process::Command;

use anyhow::Result;

use crate::catalogue::{self, Scratch, beside, builds, step};
use crate::steps::{Log, Step, Verdict};
use crate::{fuzz, root, sim};

/// Which steps a run chooses from, and how long it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    Quick,
    Test,
    /// Each step goes on for so many minutes.
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

/// Under a minute on two processors, when everything is built.
pub(crate) const QUICK: &[Step] = &[
    step("fmt", "rustfmt would change nothing", &["rustfmt"], catalogue::fmt),
    step("tidy", "the house's own rules hold", &["git"], catalogue::house_rules),
    builds(step("check", "every target compiles", &[], check)),
    builds(step("histories", "500 simulated histories end as they may", &[], sim::few)),
    builds(step("unit", "unit tests pass; the planner's with smaller stripes", &[], unit)),
];

/// For hours: each step goes on for as long as it is told.
pub(crate) const LONG: &[Step] = &[
    beside(step("fresh", "histories that no run has lived through end as they may", &[], sim::long)),
    beside(step("fuzz", "no decoder panics on foreign bytes; the corpus is kept and minimized", &["c++"], fuzz::long)),
    beside(step(
        "soak",
        "many clients verify what they write while members fail and return",
        &["fio", "python3"],
        soak,
    )),
];

fn check(log: &mut Log) -> Result<Verdict> {
    log.run(&mut catalogue::cargo(&["check", "--locked", "--workspace", "--all-targets"]))?;
    Ok(Verdict::Passed(String::new()))
}

/// Tells tests that try all cases up to a size to try fewer.
const FEWER_CASES: &str = "MDSPACE_FEWER_CASES";

fn unit(log: &mut Log) -> Result<Verdict> {
    let mut tests = catalogue::cargo(&["test", "--locked", "--no-fail-fast"]);
    tests.args(catalogue::TESTED).args(["--lib", "--bins"]).env(FEWER_CASES, "1").env("PROPTEST_CASES", "32");
    let (name, seed) = catalogue::PROPERTY_SEED;
    log.run(tests.env(name, seed))?;
    let passed = log.text()?.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ok")).count();
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
