//! `cargo xtask suite`: mdadm's own suite of tests, against `mdspace mdadm`, and the table of docs/mdadm-suite.md.
//!
//! The suite is cloned from its repository at test time, into `target/xtask/mdadm-suite`, and is no part of the project.
//! Each test runs in a guest of its own (`tests/suite/run.sh`), whose kernel has no md driver loaded. A result is what the
//! suite's own driver printed: a test that was skipped, or that ran out of time, has not passed, and a test that did not
//! run has no result. Results stay in tests/suite/results.tsv, so that some tests can run again alone.
//!
//! Counted are the tests of md itself: those of firmware RAID's containers (`ddf`, `imsm`) are not.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::catalogue::{self, RELEASED};
use crate::guest::{Guest, Outcome};
use crate::root;
use crate::steps::{Log, Verdict};

const REPOSITORY: &str = "https://github.com/md-raid-utilities/mdadm";
const RESULTS: &str = "tests/suite/results.tsv";
const NEEDS: &str = "tests/suite/needs.tsv";
const PAGE: &str = "docs/mdadm-suite.md";
const BEGIN: &str = "<!-- made by cargo xtask suite -->\n";
const END: &str = "<!-- end -->\n";

/// Minutes that the suite gives a test, and that a guest needs beside them.
const TEST_MINUTES: u64 = 8;
const GUEST_MINUTES: u64 = 2;

/// Arguments of the chore.
#[derive(Debug, clap::Args)]
pub(crate) struct SuiteArguments {
    /// Use this command instead of building one
    #[arg(long, value_name = "MDSPACE")]
    command: Option<PathBuf>,
    /// Make the page from the results that are there, and run nothing
    #[arg(long)]
    page: bool,
    /// Minutes that most tests may take; a loaded machine needs more
    #[arg(long, default_value_t = TEST_MINUTES)]
    minutes: u64,
    /// Tests, such as 00raid0; all without one
    #[arg(value_name = "TEST")]
    tests: Vec<String>,
}

/// How a test ended, by the suite's own words, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ended {
    how: String,
    place: String,
}

/// The word of a test that passed.
const PASSED: &str = "passed";

/// The step of the long layer: every test runs, and none that has passed before fails. Nothing is written.
pub(crate) fn long(log: &mut Log) -> Result<Verdict> {
    catalogue::build_released(log)?;
    let (before, suite, command) = (results()?, suite()?, root().join(RELEASED));
    let (mut passed, mut lost) = (0, Vec::new());
    let all = tests(&suite)?;
    for test in &all {
        let ended = try_one(&suite, &command, test, minutes(&suite, test, TEST_MINUTES))?;
        log.write(&format!("{test}: {}: {}\n", ended.how, ended.place))?;
        passed += usize::from(ended.how == PASSED);
        if ended.how != PASSED && before.get(test).is_some_and(|before| before.how == PASSED) {
            lost.push(test.clone());
        }
    }
    ensure!(lost.is_empty(), "passed before: {}", lost.join(" "));
    Ok(Verdict::Passed(format!("{passed} of {} tests of mdadm's suite pass", all.len())))
}

fn results() -> Result<BTreeMap<String, Ended>> {
    read(RESULTS, |fields| match fields {
        [how, place] => Ok(Ended { how: (*how).to_owned(), place: (*place).to_owned() }),
        _ => bail!("{RESULTS}: a test, how it ended, and where"),
    })
}

/// The chore.
pub(crate) fn run(arguments: &SuiteArguments) -> Result<ExitCode> {
    let suite = suite()?;
    let all = tests(&suite)?;
    if !arguments.page {
        let wanted = if arguments.tests.is_empty() { &all } else { &arguments.tests };
        ensure!(wanted.iter().all(|test| all.contains(test)), "the suite has {}", all.join(" "));
        let command = command(arguments)?;
        for test in wanted {
            let ended = try_one(&suite, &command, test, minutes(&suite, test, arguments.minutes))?;
            println!("{test}: {}: {}", ended.how, ended.place);
            // Read again: another run may have added its results.
            let mut results = results()?;
            results.insert(test.clone(), ended);
            write_results(&results)?;
        }
    }
    let passed = write_page(&all, &results()?)?;
    println!("mdadm's suite: {passed} of {} tests pass", all.len());
    Ok(ExitCode::SUCCESS)
}

/// The lines of a file: a key, and what `parse` makes of the other fields.
fn read<T>(path: &str, parse: impl Fn(&[&str]) -> Result<T>) -> Result<BTreeMap<String, T>> {
    let text = fs::read_to_string(root().join(path)).with_context(|| path.to_owned())?;
    let lines = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    lines.map(|fields| Ok((fields[0].to_owned(), parse(&fields[1..])?))).collect()
}

fn write_results(results: &BTreeMap<String, Ended>) -> Result<()> {
    let lines: String =
        results.iter().map(|(test, Ended { how, place })| format!("{test}\t{how}\t{place}\n")).collect();
    Ok(fs::write(root().join(RESULTS), lines)?)
}

/// The suite's directory, cloned if it is not there.
fn suite() -> Result<PathBuf> {
    let place = root().join("target/xtask/mdadm-suite");
    if !place.join("tests/func.sh").exists() {
        let status = Command::new("git").args(["clone", "--depth", "1", REPOSITORY]).arg(&place).status()?;
        ensure!(status.success(), "{REPOSITORY} cannot be cloned");
    }
    build(&place);
    Ok(place)
}

/// Programs of the suite's own source that tests call: other implementations of what an array's bytes are.
const PROGRAMS: [&str; 3] = ["test_stripe", "raid6check", "swap_super"];

/// Builds them in the suite's directory. A test that calls for one that is not built has not passed.
fn build(place: &Path) {
    let missing: Vec<&str> = PROGRAMS.into_iter().filter(|program| !place.join(program).exists()).collect();
    if missing.is_empty() {
        return;
    }
    let mut make = Command::new("make");
    make.args(["--silent", "CWFLAGS=-w", "CHECK_RUN_DIR=0", "CXFLAGS=-DNO_LIBUDEV"]).args(&missing).current_dir(place);
    if !make.status().is_ok_and(|status| status.success()) {
        println!("{}: not built, which takes make and a C compiler", missing.join(", "));
    }
}

/// The names of the tests of md itself.
fn tests(suite: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(suite.join("tests"))?.collect::<Result<Vec<_>, _>>()?;
    let names = entries.into_iter().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_of_md = |name: &String| {
        name.starts_with(|first: char| first.is_ascii_digit())
            && !["ddf", "imsm", "."].iter().any(|part| name.contains(part))
    };
    let mut names: Vec<String> = names.filter(is_of_md).collect();
    names.sort();
    ensure!(!names.is_empty(), "{}: no tests", suite.display());
    Ok(names)
}

fn command(arguments: &SuiteArguments) -> Result<PathBuf> {
    match &arguments.command {
        Some(command) => Ok(fs::canonicalize(command)?),
        None => {
            ensure!(crate::build_release()?, "the command is not built");
            Ok(root().join(RELEASED))
        }
    }
}

/// The minutes of a test: of those that are slow with md itself, and that the suite lists with their seconds, three times
/// as much.
fn minutes(suite: &Path, test: &str, of_most: u64) -> u64 {
    let listed = fs::read_to_string(suite.join("tests/skiptests")).unwrap_or_default();
    let seconds = listed.lines().find_map(|line| line.strip_prefix(test)?.strip_prefix(':')?.parse().ok());
    of_most.max(3 * seconds.unwrap_or(0) / 60)
}

/// Runs a test in a guest of its own.
fn try_one(suite: &Path, command: &Path, test: &str, minutes: u64) -> Result<Ended> {
    let guest = Guest::default().memory("1536M").limit(Duration::from_secs(60 * (minutes + GUEST_MINUTES)));
    let minutes = minutes.to_string();
    let logs = root().join("target/xtask/suite-logs");
    let arguments = [command.as_os_str(), suite.as_os_str(), minutes.as_ref(), logs.as_os_str(), test.as_ref()];
    let output = match guest.run(&root().join("tests/suite/run.sh"), &arguments)? {
        Outcome::Finished { output, .. } => output,
        Outcome::OverTime { .. } => return Ok(Ended { how: "late".into(), place: "the guest's time was over".into() }),
        Outcome::Died { .. } => return Ok(Ended { how: "failed".into(), place: "the guest stopped".into() }),
    };
    let last = output.lines().last().unwrap_or_default();
    // The last field is what a test said, with any character.
    match last.splitn(4, '|').collect::<Vec<_>>()[..] {
        [name, how, _, place] if name == test => {
            Ok(Ended { how: how.into(), place: place.replace('\t', " ").trim().into() })
        }
        _ => bail!("{test}: {output}"),
    }
}

/// Makes the page's table anew; the number of tests that pass.
fn write_page(all: &[String], results: &BTreeMap<String, Ended>) -> Result<usize> {
    let needs = read(NEEDS, |fields| Ok(fields.join(" ")))?;
    let is_passed = |test: &&String| results.get(*test).is_some_and(|ended| ended.how == PASSED);
    let passed = all.iter().filter(is_passed).count();
    let ran = all.iter().filter(|test| results.contains_key(*test)).count();
    let mut table =
        format!("{passed} of {} tests pass; {ran} ran.\n\n| Test | Result | Why |\n|---|---|---|\n", all.len());
    for test in all {
        let (how, place) = match results.get(test) {
            None => ("not run", String::new()),
            Some(Ended { how, .. }) if how == PASSED => ("passes", String::new()),
            Some(Ended { how, place }) => (how.as_str(), format!("ended at `{}`", place.replace(['|', '`'], " "))),
        };
        let need = needs.get(test).filter(|_| how != "passes").map(|need| format!("needs {need}"));
        let why: Vec<String> = need.into_iter().chain(Some(place).filter(|place| !place.is_empty())).collect();
        table += &format!("| {test} | {how} | {} |\n", why.join("; "));
    }
    let page = fs::read_to_string(root().join(PAGE))?;
    let parts = page.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let (head, tail) = parts.with_context(|| format!("{PAGE} has no place for the table"))?;
    fs::write(root().join(PAGE), format!("{head}{BEGIN}{table}{END}{tail}"))?;
    Ok(passed)
}
