//! Runs the fuzz targets, each for a limited time: every decoder of foreign bytes, and the NBD parser.
//!
//! The targets are a separate workspace (fuzz/), because they are built with the sanitizer's coverage flags. They are
//! the binaries that its manifest names; as many run at once as there are processors.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, bail, ensure};

use crate::root;
use crate::steps::{Log, Verdict};

/// For each target in the whole test.
const SECONDS: u64 = 5;

/// Targets whose input is metadata of a member, and the suffix of fixtures for them (tests/kernel/fixtures.sh), which
/// the real driver wrote. These are the seeds.
const SEEDS: [(&str, &str); 5] = [
    ("superblock_v1", "superblock"),
    ("superblock_v0", "superblock"),
    ("bitmap", "bitmap"),
    ("bad_blocks", "bad_blocks"),
    ("partial_parity", "ppl"),
];

/// The step of the whole test: each target for seconds.
pub(crate) fn run(log: &mut Log) -> Result<Verdict> {
    let (targets, runs) = run_all(log, |_, _| SECONDS)?;
    Ok(Verdict::Passed(format!("{} targets, {SECONDS} s each, {runs} runs", targets.len())))
}

/// The step of the long layer: all targets share the time, and afterwards each corpus is replaced by the fewest inputs that
/// reach the same code. Both runs begin with that corpus.
pub(crate) fn long(log: &mut Log) -> Result<Verdict> {
    let seconds = log.minutes() * 60;
    let (targets, runs) = run_all(log, |targets, workers| seconds * workers as u64 / targets as u64)?;
    let mut kept = 0;
    for target in &targets {
        kept += minimize(log, target)?;
    }
    Ok(Verdict::Passed(format!("{} targets, {runs} runs, {kept} inputs kept in fuzz/corpus", targets.len())))
}

/// Replaces a target's corpus by the fewest of its inputs that reach the same code; returns how many those are.
fn minimize(log: &mut Log, target: &str) -> Result<usize> {
    let directory = root().join("fuzz");
    let (corpus, least) = (format!("corpus/{target}"), format!("corpus/{target}.least"));
    if directory.join(&least).exists() {
        fs::remove_dir_all(directory.join(&least))?; // of a run that was ended
    }
    fs::create_dir_all(directory.join(&least))?;
    let words = ["run", "--quiet", "--release", "--locked", "--bin", target, "--", "-merge=1", &least, &corpus];
    log.run(cargo(&directory).args(words))?;
    fs::remove_dir_all(directory.join(&corpus))?;
    fs::rename(directory.join(&least), directory.join(&corpus))?;
    Ok(fs::read_dir(directory.join(&corpus))?.count())
}

/// Builds and runs all targets, each for the seconds that `share` gives for so many targets and workers; returns the targets, and how
/// many inputs they tried.
fn run_all(log: &mut Log, share: impl Fn(usize, usize) -> u64) -> Result<(Vec<String>, u64)> {
    let directory = root().join("fuzz");
    let targets = targets(&fs::read_to_string(directory.join("Cargo.toml")).context("fuzz/Cargo.toml")?);
    ensure!(!targets.is_empty(), "fuzz/Cargo.toml names no target");
    let mut build = cargo(&directory);
    log.run(build.args(["build", "--release", "--locked", "--bins"]))?;

    let queue = Mutex::new(targets.iter());
    let results = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism()?.get();
    let seconds = share(targets.len(), workers);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(target) = { queue.lock().expect("no worker panicked").next() } {
                    let result = fuzz(&directory, target, seconds);
                    results.lock().expect("no worker panicked").push((target, result));
                }
            });
        }
    });

    let mut failed = Vec::new();
    let mut runs = 0;
    for (target, result) in results.into_inner().expect("no worker panicked") {
        match result {
            Ok(count) => runs += count,
            Err(error) => {
                log.write(&format!("{error:#}\n"))?;
                failed.push(target.clone());
            }
        }
    }
    if !failed.is_empty() {
        bail!("findings in: {}; their inputs are in fuzz/artifacts/", failed.join(" "));
    }
    Ok((targets, runs))
}

/// Runs one target for its time; returns how many inputs it tried.
fn fuzz(directory: &Path, target: &str, seconds: u64) -> Result<u64> {
    for kind in ["corpus", "artifacts"] {
        fs::create_dir_all(directory.join(kind).join(target))?;
    }
    sow(target, &directory.join("corpus").join(target))?;
    let output = cargo(directory)
        .args(["run", "--quiet", "--release", "--locked", "--bin", target, "--"])
        .args([&format!("-max_total_time={seconds}"), "-print_final_stats=1"])
        .args([&format!("-artifact_prefix=artifacts/{target}/"), &format!("corpus/{target}")])
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{text}{target}: {}", output.status);
    }
    let runs = text.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    runs.and_then(|runs| runs.trim().parse().ok()).context("libFuzzer did not say how many inputs it tried")
}

/// Copies a target's seeds into its corpus.
fn sow(target: &str, corpus: &Path) -> Result<()> {
    let Some((_, kind)) = SEEDS.iter().find(|(name, _)| *name == target) else { return Ok(()) };
    let mut count = 0;
    for array in fs::read_dir(root().join("crates/format/tests/fixtures"))? {
        let array = array?;
        if !array.file_type()?.is_dir() {
            continue;
        }
        for fixture in fs::read_dir(array.path())? {
            let path = fixture?.path();
            if path.extension().is_some_and(|extension| extension == *kind) {
                let name = format!("{}-{}", array.file_name().display(), path.file_name().expect("a file").display());
                fs::copy(&path, corpus.join(name))?;
                count += 1;
            }
        }
    }
    ensure!(count > 0, "no fixture is called .{kind}: {target} has no seeds");
    Ok(())
}

/// A cargo command in fuzz/. Cargo finds the configuration there by the directory, so the outer cargo's variables are
/// removed.
fn cargo(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(directory).env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}

/// The names of the `[[bin]]` entries in a manifest.
fn targets(manifest: &str) -> Vec<String> {
    let sections = manifest.split("\n[[bin]]").skip(1);
    let name = |section: &str| {
        let line = section.lines().find(|line| line.starts_with("name"))?;
        line.split('"').nth(1).map(str::to_owned)
    };
    sections.filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_binaries_of_the_manifest() {
        let manifest = "[package]\nname = \"fuzz\"\n\n[[bin]]\nname = \"a\"\npath = \"a.rs\"\n\n[[bin]]\npath = \"b.rs\"\nname = \"b\"\n";
        assert_eq!(targets(manifest), ["a", "b"]);
    }
}
