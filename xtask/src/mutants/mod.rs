//! `cargo xtask mutants`: engines broken on purpose, each of which the simulated world must catch.
//!
//! A mutant is one change of text in a copy of the crates that the swarm is built of. All are made in one copy, each
//! behind a question of its own, `BROKEN` in its text: so all are built at once, and a process is told which of them
//! it is. The text that is changed must occur exactly once, or the suite fails: it cannot rot unseen. For each the table
//! names what catches it, which passes with the engine as it is and fails with the mutant: a history by its seed, or one
//! of the simulator's own tests where chance hardly comes to what it takes. Where
//! histories have changed since, `--hunt` lives through them from the first on as each mutant, until one
//! fails. The working tree is never changed.

mod table;

use std::collections::BTreeSet;
use std::fs;
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
    /// In crates/engine/src.
    file: &'static str,
    old: &'static str,
    /// With `BROKEN` for whether it is to be so.
    new: &'static str,
}

/// What catches a mutant.
#[derive(Clone, Copy)]
enum By {
    /// The history of this seed.
    Seed(u64),
    /// The same, whatever it says served by one shard.
    #[expect(dead_code, reason = "the history that was of it is sought anew")]
    SeedOfOneShard(u64),
    /// A test of crates/sim/tests/sim, by its full name.
    Test(&'static str),
    /// The history of this seed did once, and another one is sought: `cargo xtask mutants --hunt`. The step says so each time.
    Sought(u64),
}

/// What the swarm is built of.
const CRATES: [&str; 5] = ["parity", "format", "engine", "world", "sim"];

/// Tells a process which mutant it is.
const VARIABLE: &str = "MDSPACE_MUTANT";

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
    let is_sought = |(_, mutant): &&(usize, &Mutant)| matches!(mutant.by, By::Sought(_));
    let sought: Vec<_> = mutants.iter().filter(is_sought).map(|(_, mutant)| mutant.name).collect();
    let caught = mutants.len() - sought.len();
    let rest = match sought.is_empty() {
        true => String::new(),
        false => format!("; not shown, as their histories are sought anew: {}", sought.join(" ")),
    };
    Ok(Verdict::Passed(format!(
        "{caught} broken engines caught by histories and tests that the whole one passes{rest}"
    )))
}

/// Mutants with their numbers.
fn named(names: &[String]) -> Result<Vec<(usize, &'static Mutant)>> {
    let all = || table::MUTANTS.iter().enumerate();
    if let Some(name) = names.iter().find(|name| all().all(|(_, mutant)| mutant.name != **name)) {
        let known: Vec<_> = all().map(|(_, mutant)| mutant.name).collect();
        bail!("no mutant is called {name}; there are {}", known.join(" "));
    }
    Ok(all().filter(|(_, mutant)| names.is_empty() || names.iter().any(|name| name == mutant.name)).collect())
}

/// Where it is told how each was caught.
type Say<'a> = dyn FnMut(String) -> Result<()> + 'a;

/// Tries what is to catch each, with and without it; gives those that are not caught.
fn confirm(mutants: &[(usize, &'static Mutant)], say: &mut Say<'_>) -> Result<Vec<&'static str>> {
    let copy = Copy::make()?;
    copy.build()?;
    let tests = copy.build_tests()?;
    let mut survivors = Vec::new();
    for (number, mutant) in mutants {
        if let By::Sought(seed) = mutant.by {
            say(format!("{:28} NOT SHOWN: {seed} caught it once and is another history by now", mutant.name))?;
            continue;
        }
        let told = match catch_by(*number, mutant.by, &tests)? {
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

/// How a mutant is caught by that, and not the engine as it is.
fn catch_by(number: usize, by: By, tests: &Path) -> Result<Option<String>> {
    match by {
        By::Seed(seed) | By::SeedOfOneShard(seed) => {
            let shards = matches!(by, By::SeedOfOneShard(_)).then_some(1);
            if let Some(Catch { reason, .. }) = catch(None, seed..seed + 1, shards)? {
                bail!("seed {seed}: the engine as it is fails already: {reason}");
            }
            if let Some(Catch { reason, .. }) = catch(Some(number), seed..seed + 1, shards)? {
                return Ok(Some(format!("{seed}: {reason}")));
            }
            let another = first_that_tells(number, FURTHER, shards)?;
            Ok(another.map(|Catch { seed: by, reason }| format!("{by}, as {seed} is another history by now: {reason}")))
        }
        By::Sought(_) => Ok(None),
        By::Test(name) => {
            if let Some(reason) = fail(None, name, tests)? {
                bail!("{name}: the engine as it is fails already: {reason}");
            }
            Ok(fail(Some(number), name, tests)?.map(|reason| format!("{name}: {reason}")))
        }
    }
}

/// The first history of these that a mutant fails and the engine as it is does not.
fn first_that_tells(number: usize, seeds: Range<u64>, shards: Option<u16>) -> Result<Option<Catch>> {
    let mut from = seeds.start;
    while let Some(caught) = catch(Some(number), from..seeds.end, shards)? {
        if catch(None, caught.seed..caught.seed + 1, shards)?.is_none() {
            return Ok(Some(caught));
        }
        from = caught.seed + 1; // that one tells nothing
    }
    Ok(None)
}

/// Runs one of the simulator's tests as a mutant, or as the engine is; how it fails.
fn fail(mutant: Option<usize>, name: &str, tests: &Path) -> Result<Option<String>> {
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
fn hunt(mutants: &[(usize, &'static Mutant)], histories: u64, say: &mut Say<'_>) -> Result<Vec<&'static str>> {
    Copy::make()?.build()?;
    let mut survivors = Vec::new();
    for (number, mutant) in mutants {
        let start = Instant::now();
        let told = match first_that_tells(*number, 0..histories, None)? {
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

/// Where the swarm is built.
fn target() -> PathBuf {
    root().join("target/mutants/build")
}

/// Lets the swarm live through histories as a mutant, or as the engine is, until one fails.
fn catch(mutant: Option<usize>, seeds: Range<u64>, shards: Option<u16>) -> Result<Option<Catch>> {
    let (from, count) = (seeds.start, seeds.end.saturating_sub(seeds.start));
    let mut swarm = as_mutant(&target().join("swarm/examples/swarm"), mutant);
    swarm.args(["--brief", "--from", &from.to_string(), "--count", &count.to_string()]);
    if let Some(shards) = shards {
        swarm.args(["--shards", &shards.to_string()]);
    }
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

fn as_mutant(program: &Path, mutant: Option<usize>) -> Command {
    let mut command = Command::new(program);
    command.env_remove(VARIABLE).envs(mutant.map(|number| (VARIABLE, number.to_string())));
    command
}

/// How a mutant was caught.
struct Catch {
    seed: u64,
    reason: String,
}

/// The crates' sources under target/mutants, where they can be broken.
struct Copy {
    place: PathBuf,
}

impl Copy {
    /// Makes the copy like the working tree, with all mutants in it; files that are alike stay untouched, so that
    /// they are not built anew.
    fn make() -> Result<Self> {
        let place = root().join("target/mutants/workspace");
        let mut kept = BTreeSet::new();
        for path in source_files()? {
            let contents = fs::read(root().join(&path)).with_context(|| path.clone())?;
            let contents = match path.strip_prefix("crates/engine/src/") {
                _ if path == "Cargo.toml" => manifest(&String::from_utf8(contents)?).into_bytes(),
                Some(file) => broken(file, String::from_utf8(contents)?)?.into_bytes(),
                None => contents,
            };
            write_if_new(&place.join(&path), &contents)?;
            kept.insert(path);
        }
        remove_others(&place, &place.join("crates"), &kept)?;
        Ok(Self { place })
    }

    fn build(&self) -> Result<()> {
        self.cargo(&["--example", "swarm"]).map(drop)
    }

    /// The program of the simulator's own tests.
    fn build_tests(&self) -> Result<PathBuf> {
        let said = self.cargo(&["--test", "sim", "--message-format", "json"])?;
        let said = String::from_utf8(said)?;
        let artifacts = said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut tests = artifacts.filter(|artifact| artifact["target"]["name"] == "sim");
        let program = tests.find_map(|artifact| artifact["executable"].as_str().map(PathBuf::from));
        program.context("cargo does not say where it put the tests")
    }

    /// Builds targets of the simulator; gives what cargo said.
    fn cargo(&self, targets: &[&str]) -> Result<Vec<u8>> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--offline"]).args(HISTORIES).args(targets).current_dir(&self.place);
        // What others have made is the swarm's, and built beside it.
        cargo.env("CARGO_TARGET_DIR", target()).env("CARGO_BUILD_BUILD_DIR", root().join("target"));
        let built = cargo.output()?;
        ensure!(built.status.success(), "it does not build:\n{}", String::from_utf8_lossy(&built.stderr));
        Ok(built.stdout)
    }
}

/// A file of the engine with all mutants that are in it.
fn broken(file: &str, mut text: String) -> Result<String> {
    for (number, mutant) in table::MUTANTS.iter().enumerate().filter(|(_, mutant)| mutant.file == file) {
        let count = text.matches(mutant.old).count();
        ensure!(count == 1, "{}: its text occurs {count} times in {file}, not once", mutant.name);
        text = text.replace(mutant.old, &mutant.new.replace("BROKEN", &format!("crate::is_mutant({number})")));
    }
    if file == "lib.rs" {
        text += &format!(
            "
/// Whether this process is the mutant of that number.
pub(crate) fn is_mutant(number: usize) -> bool {{
    static MUTANT: std::sync::LazyLock<Option<usize>> =
        std::sync::LazyLock::new(|| std::env::var(\"{VARIABLE}\").ok()?.parse().ok());
    *MUTANT == Some(number)
}}
"
        );
    }
    Ok(text)
}

/// The workspace's manifest for the crates that are copied.
fn manifest(whole: &str) -> String {
    let lines = whole.lines().filter(|line| !line.starts_with("default-members") && !line.starts_with("exclude"));
    let lines: Vec<_> = lines.map(|line| line.replace(", \"xtask\"]", "]")).collect();
    lines.join("\n")
}

/// Manifests and sources of the crates, as git knows them.
fn source_files() -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "Cargo.toml", "Cargo.lock"]);
    git.args(CRATES.map(|name| format!("crates/{name}"))).current_dir(root());
    let output = git.output().context("cannot start git")?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let names = output.stdout.split(|&byte| byte == 0).map(|name| String::from_utf8_lossy(name).into_owned());
    Ok(names.filter(|name| !name.is_empty() && root().join(name).exists()).collect())
}

fn write_if_new(path: &Path, contents: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|there| there == contents) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().expect("a file is in a directory"))?;
    fs::write(path, contents).with_context(|| path.display().to_string())
}

/// Removes what the working tree no longer has.
fn remove_others(place: &Path, directory: &Path, kept: &BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(place, &path, kept)?;
        } else if !kept.contains(&*path.strip_prefix(place)?.to_string_lossy()) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mutants_text_occurs_once_in_the_engine_and_asks_whether_it_is_broken() {
        for mutant in table::MUTANTS {
            let path = root().join("crates/engine/src").join(mutant.file);
            let whole = fs::read_to_string(&path).unwrap_or_default();
            let text = broken(mutant.file, whole.clone()).unwrap_or_else(|error| panic!("{error:#}"));
            assert_eq!(whole.matches(mutant.old).count(), 1, "{}: {}", mutant.name, mutant.file);
            assert!(text != whole && mutant.new.matches("BROKEN").count() == 1, "{}", mutant.name);
        }
    }
}
