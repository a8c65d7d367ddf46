//! `cargo xtask test`: everything that is checked, step by step, each on one line with its time.
//!
//! Invariants:
//! - A step passes, fails or is skipped with a reason; nothing else counts as having run.
//! - What did not run is listed at the end. With `CI=true` a skipped step is a failure.
//! - The last line is `N passed, N failed` over the steps asked for.
//! - A step's own output goes to `target/xtask/STEP.log`; its end is shown when the step fails.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::{catalogue, root, setup};

/// Lines of a failed step's log that are shown.
const TAIL_LINES: usize = 60;

/// One step of the test run.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// What it shows when it passes, in a line.
    pub(crate) about: &'static str,
    /// Programs without which it is skipped; `setup` sees to it that they are there.
    pub(crate) needs: &'static [&'static str],
    pub(crate) run: fn(&mut Log) -> Result<Verdict>,
}

/// How a step ended that did not fail.
pub(crate) enum Verdict {
    /// With a figure or a few words on what was done.
    Passed(String),
    /// With the reason, and what would make it run.
    Skipped(String),
}

/// Where a step's commands print.
pub(crate) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    fn create(name: &str) -> Result<Log> {
        let directory = root().join("target/xtask");
        fs::create_dir_all(&directory)?;
        let path = directory.join(format!("{name}.log"));
        let file = File::create(&path).with_context(|| format!("{}", path.display()))?;
        Ok(Log { path, file })
    }

    /// Adds a text of the step's own.
    pub(crate) fn write(&mut self, text: &str) -> Result<()> {
        Ok(self.file.write_all(text.as_bytes())?)
    }

    /// Runs `command`, its output into the log; in the workspace's directory unless it names one.
    ///
    /// # Errors
    ///
    /// It cannot be started, or does not end with status 0.
    pub(crate) fn run(&mut self, command: &mut Command) -> Result<()> {
        writeln!(self.file, "$ {}", words(command))?;
        if command.get_current_dir().is_none() {
            command.current_dir(root());
        }
        let status = command
            .stdin(Stdio::null())
            .stdout(self.file.try_clone()?)
            .stderr(self.file.try_clone()?)
            .status()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        if !status.success() {
            bail!("{status}: {}", words(command));
        }
        Ok(())
    }

    /// The last line that was printed.
    pub(crate) fn last_line(&self) -> Result<String> {
        Ok(self.text()?.lines().last().unwrap_or_default().to_owned())
    }

    /// All that was printed until now.
    pub(crate) fn text(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.path)?).into_owned())
    }
}

fn words(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
    words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs the steps named, or all of them, in the catalogue's order.
///
/// # Errors
///
/// A name that is not in the catalogue. Failures of steps are the exit code's matter.
pub(crate) fn run(names: &[String]) -> Result<ExitCode> {
    let wanted = select(names)?;
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    let (mut passed, mut failed, mut skipped) = (0, Vec::new(), Vec::new());
    let begin = Instant::now();
    for step in wanted {
        let started = Instant::now();
        let mut log = Log::create(step.name)?;
        let result = match step.needs.iter().find(|program| !setup::is_there(program)) {
            Some(program) => Ok(Verdict::Skipped(format!("{program} is not installed; see the step setup"))),
            None => (step.run)(&mut log),
        };
        let (word, detail) = match &result {
            Ok(Verdict::Passed(detail)) => ("ok", detail.clone()),
            Ok(Verdict::Skipped(reason)) => ("SKIPPED", reason.clone()),
            Err(_) => ("FAILED", format!("log: {}", log.path.display())),
        };
        println!("{word:7}  {:11} {:>7}  {detail}", step.name, seconds(started.elapsed()));
        match result {
            Ok(Verdict::Passed(_)) => passed += 1,
            Ok(Verdict::Skipped(reason)) => skipped.push((step.name, reason)),
            Err(error) => {
                show_failure(&log.path, &error);
                println!("         again: cargo xtask test {}", step.name);
                failed.push(step.name);
            }
        }
    }
    println!("\n{} in all", seconds(begin.elapsed()));
    for (name, reason) in &skipped {
        println!("did not run: {name}: {reason}");
    }
    if !failed.is_empty() {
        println!("failed: {}", failed.join(" "));
    }
    let failures = failed.len() + if in_ci { skipped.len() } else { 0 };
    println!("{passed} passed, {failures} failed");
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the names of all steps and what they show.
pub(crate) fn list() {
    for step in catalogue::STEPS {
        println!("{:11}  {}", step.name, step.about);
    }
}

fn select(names: &[String]) -> Result<Vec<&'static Step>> {
    let known: BTreeSet<&str> = catalogue::STEPS.iter().map(|step| step.name).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(name.as_str())) {
        return Err(anyhow!("no step is called {name}; cargo xtask test --list shows them"));
    }
    Ok(catalogue::STEPS.iter().filter(|step| names.is_empty() || names.iter().any(|n| n == step.name)).collect())
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

fn show_failure(log: &Path, error: &anyhow::Error) {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(TAIL_LINES)..] {
        println!("         | {line}");
    }
    for line in format!("{error:#}").lines() {
        println!("         {line}");
    }
}
