//! `cargo xtask mutants`: engines broken on purpose, each of which the simulated world must catch.
//!
//! A mutant is one hook, `mutant!("name")`, in the engine's source (crates/engine/src/mutant.rs). One build with `--cfg mutants`
//! holds them all, and an environment variable tells a process which of them it is. For each, the table names what catches it:
//! a history, by its seed, or one of the simulator's own tests where histories rarely come to the situation. Both pass with
//! the engine as it is. Where histories have changed since, `--hunt` tries seeds in order until one fails.

mod table;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::root;
use crate::sim::HISTORIES;
use crate::steps::{Log, TIMED_OUT, Verdict, limited};

/// An engine that is wrong in one place.
pub(crate) struct Mutant {
    name: &'static str,
    /// What is wrong with it.
    broken: &'static str,
    by: By,
}

/// What catches a mutant.
#[derive(Clone, Copy)]
enum By {
    /// The history of this seed.
    Seed(u64),
    /// A test of crates/sim/tests/sim, by its full name.
    Test(&'static str),
}

/// Tells a process which mutant it is.
const VARIABLE: &str = "MDSPACE_MUTANT";

/// Sets the cfg that the hooks ask.
const CFG: &str = "--cfg mutants";

/// As much of a reason as fits a line.
const REASON_CHARS: usize = 100;

/// A test that takes longer does not end.
const TEST_LIMIT: Duration = Duration::from_secs(300);

/// What is asked of the mutants.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Which of them; all if none is given.
    names: Vec<String>,
    /// Look for histories that catch them, to be written into the table.
    #[arg(long)]
    hunt: bool,
    /// Among so many.
    #[arg(long, default_value_t = 20_000, requires = "hunt")]
    histories: u64,
}

/// Whether there are mutants of these names.
#[cfg(test)]
pub(crate) fn are_known(arguments: &Arguments) -> Result<()> {
    named(&arguments.names).map(drop)
}

/// Catches the mutants named, or all.
///
/// # Errors
/// A name that is not in the table, a text that does not occur once, a copy that does not build.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mutants = named(&arguments.names)?;
    let say = &mut |line: String| {
        println!("{line}");
        Ok::<(), anyhow::Error>(())
    };
    let survivors = if arguments.hunt { hunt(&mutants, arguments.histories, say)? } else { confirm(&mutants, say)? };
    Ok(if survivors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The step: each mutant is caught by what the table names.
pub(crate) fn step(log: &mut Log) -> Result<Verdict> {
    let mutants = named(&[])?;
    let survivors = confirm(&mutants, &mut |line| log.write(&format!("{line}\n")))?;
    ensure!(
        survivors.is_empty(),
        "not caught: {}; cargo xtask mutants --hunt NAME finds another history",
        survivors.join(" ")
    );
    Ok(Verdict::Passed(format!(
        "{} broken engines caught by histories and tests that the whole one passes",
        mutants.len()
    )))
}

/// The mutants of these names, or all.
fn named(names: &[String]) -> Result<Vec<&'static Mutant>> {
    let all = || table::MUTANTS.iter();
    if let Some(name) = names.iter().find(|name| all().all(|mutant| mutant.name != **name)) {
        let known: Vec<_> = all().map(|mutant| mutant.name).collect();
        bail!("no mutant is called {name}; there are {}", known.join(" "));
    }
    Ok(all().filter(|mutant| names.is_empty() || names.iter().any(|name| name == mutant.name)).collect())
}

/// Where it is told how each was caught.
type Say<'a> = dyn FnMut(String) -> Result<()> + 'a;

/// Tries what is to catch each, with and without it; gives those that are not caught.
fn confirm(mutants: &[&'static Mutant], say: &mut Say<'_>) -> Result<Vec<&'static str>> {
    build_swarm()?;
    let tests = build_tests()?;
    let mut survivors = Vec::new();
    for mutant in mutants {
        let told = match catch_by(mutant, &tests)? {
            Some(reason) => format!("caught by {reason}"),
            None => {
                survivors.push(mutant.name);
                format!("NOT CAUGHT: {}", mutant.broken)
            }
        };
        say(format!("{:28} {told}", mutant.name))?;
    }
    Ok(survivors)
}

/// The histories that are tried where the one that is named does not catch its mutant any more: what any member is asked
/// first moves all chance that follows, and a seed then is another history.
const FURTHER: Range<u64> = 0..4000;

/// How a mutant is caught by what the table names, which the engine as it is passes.
fn catch_by(mutant: &Mutant, tests: &Path) -> Result<Option<String>> {
    match mutant.by {
        By::Seed(seed) => {
            if let Some(Catch { reason, .. }) = catch(None, seed..seed + 1)? {
                bail!("seed {seed}: the engine as it is fails already: {reason}");
            }
            if let Some(Catch { reason, .. }) = catch(Some(mutant), seed..seed + 1)? {
                return Ok(Some(format!("{seed}: {reason}")));
            }
            let another = first_that_tells(mutant, FURTHER)?;
            Ok(another.map(|Catch { seed: by, reason }| format!("{by}, as {seed} is another history by now: {reason}")))
        }
        By::Test(name) => {
            if let Some(reason) = fail(None, name, tests)? {
                bail!("{name}: the engine as it is fails already: {reason}");
            }
            Ok(fail(Some(mutant), name, tests)?.map(|reason| format!("{name}: {reason}")))
        }
    }
}

/// The first history of these that a mutant fails and the engine as it is does not.
fn first_that_tells(mutant: &Mutant, seeds: Range<u64>) -> Result<Option<Catch>> {
    let mut from = seeds.start;
    while let Some(caught) = catch(Some(mutant), from..seeds.end)? {
        if catch(None, caught.seed..caught.seed + 1)?.is_none() {
            return Ok(Some(caught));
        }
        from = caught.seed + 1; // the engine as it is fails that one, too
    }
    Ok(None)
}

/// Runs one of the simulator's tests as a mutant, or as the engine is; how it fails.
fn fail(mutant: Option<&Mutant>, name: &str, tests: &Path) -> Result<Option<String>> {
    let mut test = as_mutant(tests, mutant);
    test.args(["--exact", name]);
    let output = limited(&test, TEST_LIMIT).output()?;
    if output.status.code() == Some(TIMED_OUT) {
        return Ok(Some(format!("does not end within {} s", TEST_LIMIT.as_secs())));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(text.contains("running 1 test\n"), "{name}: the simulator has no such test");
    if output.status.success() {
        return Ok(None);
    }
    // What is said of a panic comes behind the line that says where; and at its end, what went wrong.
    let said = text.lines().skip_while(|line| !line.contains(" panicked at ")).nth(1).unwrap_or("it fails");
    let skipped = said.chars().count().saturating_sub(REASON_CHARS);
    Ok(Some(said.chars().skip(skipped).collect()))
}

/// Looks for the first history that catches each; gives those that survive them all.
fn hunt(mutants: &[&'static Mutant], histories: u64, say: &mut Say<'_>) -> Result<Vec<&'static str>> {
    build_swarm()?;
    let mut survivors = Vec::new();
    for mutant in mutants {
        let start = Instant::now();
        let told = match first_that_tells(mutant, 0..histories)? {
            Some(Catch { seed, reason }) => format!("caught by {seed}: {reason}"),
            None => {
                survivors.push(mutant.name);
                format!("SURVIVED {histories} histories: {}", mutant.broken)
            }
        };
        say(format!("{:28} {:5.1} s  {told}", mutant.name, start.elapsed().as_secs_f64()))?;
    }
    Ok(survivors)
}

/// Has the C library keep what a history frees, of which the next one is made. Giving it back to the kernel and asking for
/// it again took as long as the histories (docs/decisions/1902). Facts: mallopt(3).
const KEPT_MEMORY: [(&str, &str); 3] = [
    ("MALLOC_MMAP_THRESHOLD_", "1000000000"),
    ("MALLOC_TRIM_THRESHOLD_", "2000000000"),
    ("MALLOC_TOP_PAD_", "67108864"),
];

/// Where the swarm is built.
fn target() -> PathBuf {
    root().join("target/mutants")
}

/// Lets cargo build with the hooks of all mutants, none of which is active unless a process is told to be one. The steps of
/// the whole test share this build.
pub(crate) fn with_hooks(cargo: &mut Command) -> &mut Command {
    cargo.env("CARGO_TARGET_DIR", target()).env("RUSTFLAGS", CFG).env_remove(VARIABLE).envs(KEPT_MEMORY)
}

/// Lets the swarm live through histories as a mutant, or as the engine is, until one fails.
fn catch(mutant: Option<&Mutant>, seeds: Range<u64>) -> Result<Option<Catch>> {
    let (from, count) = (seeds.start, seeds.end.saturating_sub(seeds.start));
    let mut swarm = as_mutant(&target().join("swarm/examples/swarm"), mutant);
    swarm.args(["--brief", "--from", &from.to_string(), "--count", &count.to_string()]);
    let limit = Duration::from_secs(60 + count / 20);
    let output = limited(&swarm, limit).output()?;
    if output.status.code() == Some(TIMED_OUT) {
        ensure!(count == 1, "one of {count} histories from seed {from} on does not end");
        return Ok(Some(Catch { seed: from, reason: format!("does not end within {} s", limit.as_secs()) }));
    }
    if output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let (seed, reason) = text
        .lines()
        .find_map(|line| line.strip_prefix("seed ")?.split_once(": "))
        .with_context(|| format!("the swarm says neither how it failed nor that it passed:\n{text}"))?;
    Ok(Some(Catch { seed: seed.parse()?, reason: reason.chars().take(REASON_CHARS).collect() }))
}

fn as_mutant(program: &Path, mutant: Option<&Mutant>) -> Command {
    let mut command = Command::new(program);
    command.env_remove(VARIABLE).envs(KEPT_MEMORY).envs(mutant.map(|mutant| (VARIABLE, mutant.name)));
    command
}

/// How a mutant was caught.
struct Catch {
    seed: u64,
    reason: String,
}

/// Builds the program that runs histories, with all mutants in it.
fn build_swarm() -> Result<()> {
    build(&["--example", "swarm"]).map(drop)
}

/// Builds the simulator's own tests, with all mutants in them; gives the program's path.
fn build_tests() -> Result<PathBuf> {
    let said = String::from_utf8(build(&["--test", "sim", "--message-format", "json"])?)?;
    let artifacts = said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut tests = artifacts.filter(|artifact| artifact["target"]["name"] == "sim");
    let program = tests.find_map(|artifact| artifact["executable"].as_str().map(PathBuf::from));
    program.context("cargo does not say where it put the tests")
}

/// Builds targets of the simulator under the mutants' cfg; gives what cargo printed.
fn build(targets: &[&str]) -> Result<Vec<u8>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked"]).args(HISTORIES).args(targets).current_dir(root());
    let built = with_hooks(&mut cargo).output()?;
    ensure!(built.status.success(), "it does not build:\n{}", String::from_utf8_lossy(&built.stderr));
    Ok(built.stdout)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    /// The names in the hooks of a folder's files, each as often as it occurs.
    fn hooks(folder: &Path, names: &mut Vec<String>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                hooks(&path, names);
            } else if !path.ends_with("mutant.rs") {
                let text = fs::read_to_string(&path).expect("a source");
                let after = text.split("mutant!(\"").skip(1);
                names.extend(after.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
            }
        }
    }

    #[test]
    fn each_mutant_has_one_hook_in_the_engine_and_each_hook_one_mutant() {
        let mut hooked = Vec::new();
        hooks(&root().join("crates/engine/src"), &mut hooked);
        hooked.sort();
        let mut listed: Vec<_> = table::MUTANTS.iter().map(|mutant| mutant.name.to_owned()).collect();
        listed.sort();
        assert_eq!(hooked, listed);
        assert_eq!(listed.iter().collect::<BTreeSet<_>>().len(), listed.len(), "a name occurs twice");
    }
}
