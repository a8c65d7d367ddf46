//! `cargo xtask mutants`: engines broken on purpose, each of which the simulated world must catch.
//!
//! A mutant is one change of text in a copy of the crates that the swarm is built of. The text must occur exactly
//! once, or the suite fails: it cannot rot unseen. The swarm lives through the same histories with each, until one
//! fails; a mutant that survives them all fails the suite. The working tree is never changed.

mod table;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::root;

/// An engine that is wrong in one place.
pub(crate) struct Mutant {
    name: &'static str,
    /// What is wrong with it.
    broken: &'static str,
    /// In crates/engine/src.
    file: &'static str,
    old: &'static str,
    new: &'static str,
}

/// What the swarm is built of.
const CRATES: [&str; 4] = ["parity", "format", "engine", "sim"];

/// Histories that a mutant may survive at the most.
const HISTORIES: u64 = 20_000;

/// Catches the mutants named, or all.
///
/// # Errors
/// A name that is not in the table, a text that does not occur once, a copy that does not build.
pub(crate) fn run(names: &[String]) -> Result<ExitCode> {
    let survivors = hunt(names, &mut |line| println!("{line}"))?;
    Ok(if survivors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Tells `say` how each was caught, and gives those that were not.
fn hunt(names: &[String], say: &mut dyn FnMut(String)) -> Result<Vec<&'static str>> {
    if let Some(name) = names.iter().find(|name| table::MUTANTS.iter().all(|mutant| mutant.name != **name)) {
        let known: Vec<_> = table::MUTANTS.iter().map(|mutant| mutant.name).collect();
        bail!("no mutant is called {name}; there are {}", known.join(" "));
    }
    let copy = Copy::make()?;
    ensure!(copy.catch()?.is_none(), "the engine as it is fails already: cargo xtask sim --from 0 --count {HISTORIES}");
    let mut survivors = Vec::new();
    for mutant in table::MUTANTS.iter().filter(|mutant| names.is_empty() || names.iter().any(|n| n == mutant.name)) {
        let start = Instant::now();
        let caught = copy.with(mutant, Copy::catch)?;
        let how = match &caught {
            Some(Catch { histories, reason }) => format!("caught after {histories}: {reason}"),
            None => {
                survivors.push(mutant.name);
                format!("SURVIVED {HISTORIES} histories: {}", mutant.broken)
            }
        };
        say(format!("{:28} {:5.1} s  {how}", mutant.name, start.elapsed().as_secs_f64()));
    }
    say(format!("{} survived", survivors.len()));
    Ok(survivors)
}

/// How a mutant was caught.
struct Catch {
    histories: u64,
    reason: String,
}

/// The crates' sources under target/mutants, where they can be broken.
struct Copy {
    place: PathBuf,
}

impl Copy {
    /// Makes the copy like the working tree; files that are alike stay untouched, so that they are not built anew.
    fn make() -> Result<Self> {
        let place = root().join("target/mutants/workspace");
        let mut kept = BTreeSet::new();
        for path in source_files()? {
            let mut contents = fs::read(root().join(&path)).with_context(|| path.clone())?;
            if path == "Cargo.toml" {
                contents = manifest(&String::from_utf8(contents)?).into_bytes();
            }
            write_if_new(&place.join(&path), &contents)?;
            kept.insert(path);
        }
        remove_others(&place, &place.join("crates"), &kept)?;
        Ok(Self { place })
    }

    /// Does `work` while the copy is broken as `mutant` says.
    fn with<T>(&self, mutant: &Mutant, work: impl Fn(&Self) -> Result<T>) -> Result<T> {
        let path = self.place.join("crates/engine/src").join(mutant.file);
        let whole = fs::read_to_string(&path).with_context(|| format!("{}: {}", mutant.name, mutant.file))?;
        let count = whole.matches(mutant.old).count();
        ensure!(count == 1, "{}: its text occurs {count} times in {}, not once", mutant.name, mutant.file);
        fs::write(&path, whole.replace(mutant.old, mutant.new))?;
        let done = work(self).with_context(|| mutant.name);
        fs::write(&path, whole)?;
        done
    }

    /// Builds the swarm and lets it live through histories until one fails.
    fn catch(&self) -> Result<Option<Catch>> {
        let build = ["build", "--quiet", "--offline", "--profile", "mutant", "--package", "mdspace-sim"];
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(build).args(["--example", "swarm"]).current_dir(&self.place);
        cargo.env("CARGO_TARGET_DIR", root().join("target/mutants/build")).env("RUSTFLAGS", "-Awarnings");
        let built = cargo.output()?;
        ensure!(built.status.success(), "it does not build:\n{}", String::from_utf8_lossy(&built.stderr));
        let count = HISTORIES.to_string();
        let output = Command::new(root().join("target/mutants/build/mutant/examples/swarm"))
            .args(["--brief", "--from", "0", "--count", &count])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        if output.status.success() {
            return Ok(None);
        }
        let (seed, reason) = text
            .lines()
            .find_map(|line| line.strip_prefix("seed ")?.split_once(": "))
            .with_context(|| format!("the swarm says neither how it failed nor that it passed:\n{text}"))?;
        let reason: String = reason.chars().take(100).collect();
        Ok(Some(Catch { histories: seed.parse::<u64>()? + 1, reason }))
    }
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
    fn each_mutants_text_occurs_once_in_the_engine() {
        for mutant in table::MUTANTS {
            let path = root().join("crates/engine/src").join(mutant.file);
            let whole = fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(whole.matches(mutant.old).count(), 1, "{}: {}", mutant.name, mutant.file);
            assert_ne!(mutant.old, mutant.new, "{}", mutant.name);
        }
    }
}
