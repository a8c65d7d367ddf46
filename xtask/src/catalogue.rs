//! The steps of `cargo xtask test`, cheap ones first, and how each is run.
//!
//! Builds are shared: clippy checks, the tests and the guests use the dev profile (with overflow checks and debug
//! assertions), the README's commands the release profile, and nothing is built twice.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::Result;

use crate::steps::{Log, Step, Verdict};
use crate::{matrix, setup, tidy};

/// All steps in the order in which they run.
pub(crate) const STEPS: &[Step] = &[
    Step { name: "setup", about: "the programs that the other steps need are there", run: setup::run },
    Step { name: "fmt", about: "rustfmt would change nothing", run: fmt },
    Step { name: "tidy", about: "the house's own rules hold", run: house_rules },
    Step { name: "clippy", about: "clippy and the compiler have no warning", run: clippy },
    Step { name: "docs", about: "the documentation builds, and its links lead somewhere", run: docs },
    Step { name: "tests", about: "unit, property and black-box tests pass", run: tests },
    Step { name: "matrix", about: "the real md driver and mdspace take each other's arrays", run: interop },
];

fn cargo<A: AsRef<OsStr>>(arguments: &[A]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments);
    command
}

fn fmt(log: &mut Log) -> Result<Verdict> {
    log.run(&mut cargo(&["fmt", "--all", "--check"]))?;
    Ok(Verdict::Passed(String::new()))
}

fn house_rules(_: &mut Log) -> Result<Verdict> {
    tidy::check().map(Verdict::Passed)
}

fn clippy(log: &mut Log) -> Result<Verdict> {
    log.run(&mut cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    Ok(Verdict::Passed(String::new()))
}

fn docs(log: &mut Log) -> Result<Verdict> {
    let mut command = cargo(&["doc", "--locked", "--workspace", "--no-deps", "--document-private-items"]);
    log.run(command.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(Verdict::Passed(String::new()))
}

/// Runs the workspace's tests and repeats cargo's own summary of each binary, for those who count them.
fn tests(log: &mut Log) -> Result<Verdict> {
    let result = log.run(&mut cargo(&["test", "--locked", "--workspace", "--no-fail-fast"]));
    let mut passed = 0;
    for line in log.text()?.lines().filter(|line| line.starts_with("test result:")) {
        println!("{line}");
        passed += count_before(line, " passed");
    }
    result.map(|()| Verdict::Passed(format!("{passed} tests")))
}

/// Builds the command as the tests do, which leaves nothing to build after them.
fn build(log: &mut Log) -> Result<()> {
    log.run(&mut cargo(&["build", "--locked", "--workspace"]))
}

fn interop(log: &mut Log) -> Result<Verdict> {
    build(log)?;
    let summary = matrix::run(&matrix::Arguments::fixed())?;
    log.write(&summary)?;
    print!("{summary}");
    Ok(Verdict::Passed(String::new()))
}

/// The number in `line` directly before `word`; 0 if there is none.
fn count_before(line: &str, word: &str) -> u64 {
    let before = line.split(word).next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
