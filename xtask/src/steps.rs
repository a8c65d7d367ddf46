//! `cargo xtask quick`, `test` and `long`: what is checked, step by step, each on one line with its time.
//!
//! Invariants:
//! - A step passes, fails or is skipped with a reason; nothing else counts as having run.
//! - What did not run is listed at the end. With `CI=true` a skipped step is a failure.
//! - The last line is `N passed, N failed` over the steps asked for. Before it, each failed step has one line that says why,
//!   because a caller may show only the end of the report.
//! - A command that does not end is killed, with all that it started, and its step fails. Nor does a whole run go on for ever:
//!   a step that has not begun by then does not run.
//! - A step's own output goes to `target/xtask/STEP.log`; its end is shown when the step fails.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::layers::Layer;
use crate::systems::table::Record;
use crate::{kernels, root, setup};

/// Lines of a failed step's log that are shown: from its end, and before those the lines that tell why.
const TAIL_LINES: usize = 60;
const TELLING_LINES: usize = 20;

/// The time limit of a step's command. The longest, which builds all tests, takes half of it on two processors.
const COMMAND_MINUTES: u64 = 25;

/// After this time no step begins, so that a run reports before its caller ends it.
const RUN_MINUTES: u64 = 75;

/// A command that is ended when its time is over, with all its children.
pub(crate) fn limited(command: &Command, limit: Duration) -> Command {
    let mut limited = Command::new("timeout");
    limited.arg("--kill-after=10").arg(limit.as_secs().to_string()).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.current_dir(command.get_current_dir().unwrap_or(root()));
    limited
}

/// The exit status of `timeout` after the time.
pub(crate) const TIMED_OUT: i32 = 124;

/// One step of the test run.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// What the step shows when it passes, in one line.
    pub(crate) about: &'static str,
    /// Programs without which the step is skipped; `setup` installs them.
    pub(crate) needs: &'static [&'static str],
    pub(crate) stage: Stage,
    pub(crate) run: fn(&mut Log) -> Result<Verdict>,
}

/// The stage of a step: all steps of a stage run before those of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Alone.
    Alone,
    /// Beside other builds, as the end of a build occupies only one processor.
    Builds,
    /// Beside others, once everything is built, as each leaves a processor idle at times.
    Uses,
}

/// The outcome of a step that did not fail.
pub(crate) enum Verdict {
    /// With a figure or a few words about the outcome.
    Passed(String),
    /// With the reason, and what would make the step run.
    Skipped(String),
}

/// The log of a step, where its commands print, and the layer, which sets their time limit.
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    layer: Layer,
}

impl Log {
    fn create(name: &str, layer: Layer) -> Result<Log> {
        let directory = root().join("target/xtask");
        fs::create_dir_all(&directory)?;
        let path = directory.join(format!("{name}.log"));
        let file = File::create(&path).with_context(|| format!("{}", path.display()))?;
        Ok(Log { path, file, layer })
    }

    /// Minutes for which a step without an end of its own runs. Only steps of the long layer use it.
    pub(crate) fn minutes(&self) -> u64 {
        if let Layer::Long(minutes) = self.layer { minutes } else { 1 }
    }

    /// The time limit of a command in minutes. What a step builds takes as long as in other layers.
    fn command_minutes(&self) -> u64 {
        COMMAND_MINUTES + if let Layer::Long(minutes) = self.layer { minutes } else { 0 }
    }

    /// Adds a text.
    pub(crate) fn write(&mut self, text: &str) -> Result<()> {
        Ok(self.file.write_all(text.as_bytes())?)
    }

    /// Runs `command`, with its output in the log; in the workspace's directory unless it sets one.
    ///
    /// # Errors
    ///
    /// The command cannot be started, or does not end with status 0.
    pub(crate) fn run(&mut self, command: &mut Command) -> Result<()> {
        writeln!(self.file, "$ {}", words(command))?;
        let minutes = self.command_minutes();
        let status = limited(command, Duration::from_secs(minutes * 60))
            .stdin(Stdio::null())
            .stdout(self.file.try_clone()?)
            .stderr(self.file.try_clone()?)
            .status()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        if status.code() == Some(TIMED_OUT) {
            bail!("did not end within {minutes} minutes: {}", words(command));
        }
        if !status.success() {
            bail!("{status}: {}", words(command));
        }
        Ok(())
    }

    /// The last line of the log.
    pub(crate) fn last_line(&self) -> Result<String> {
        Ok(self.text()?.lines().last().unwrap_or_default().to_owned())
    }

    /// The whole log so far.
    pub(crate) fn text(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.path)?).into_owned())
    }
}

fn words(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
    words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The number of steps that run at once in stages that allow it.
const WORKERS: usize = 2;

impl Stage {
    const ALL: [Self; 3] = [Self::Alone, Self::Builds, Self::Uses];

    fn workers(self) -> usize {
        if self == Self::Alone { 1 } else { WORKERS }
    }
}

/// The outcomes so far.
struct Score {
    passed: usize,
    /// With the reason in one line.
    failed: Vec<(&'static str, String)>,
    skipped: Vec<(&'static str, String)>,
    /// When the first step began.
    begun: Instant,
}

/// Runs the steps named, or all of a layer.
///
/// # Errors
///
/// A name is not in the layer. Failures of steps are in the exit code.
pub(crate) fn run(layer: Layer, names: &[String]) -> Result<ExitCode> {
    let steps = select(layer, names)?;
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    let begin = Instant::now();
    let score = Mutex::new(Score { passed: 0, failed: Vec::new(), skipped: Vec::new(), begun: begin });
    for stage in Stage::ALL {
        let queue = Mutex::new(steps.iter().filter(|step| step.stage == stage));
        let work = || -> Result<()> {
            loop {
                let next = queue.lock().expect("no worker panicked").next();
                let Some(step) = next else { return Ok(()) };
                run_step(step, layer, &score)?;
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..stage.workers()).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
        })?;
    }

    let Score { passed, failed, skipped, .. } = score.into_inner().expect("no worker panicked");
    println!("\n{} in all", seconds(begin.elapsed()));
    for (name, reason) in &skipped {
        println!("did not run: {name}: {reason}");
    }
    for (name, reason) in &failed {
        println!("failed: {name}: {reason}");
    }
    let failures = failed.len() + if in_ci { skipped.len() } else { 0 };
    if layer == Layer::Test && names.is_empty() && failed.is_empty() && skipped.is_empty() {
        record_whole()?;
    }
    println!("{passed} passed, {failures} failed");
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Leaves a record for the table of systems: all steps passed here.
fn record_whole() -> Result<()> {
    let about = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let field = |name: &str| {
        let value = about.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_default().trim_matches('"').to_owned()
    };
    let system = format!("{} {}", field("NAME").replace(" GNU/Linux", ""), field("VERSION_ID"));
    let own = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let own: Vec<&str> = own.split('.').take(2).collect();
    let kernel = format!("Linux {}; md of Linux {}", own.join("."), kernels::judges()?.join(" and "));
    let target = "x86_64-unknown-linux-gnu";
    Record::new(system.trim(), &kernel, "x86-64", target, "run: all of `cargo xtask test`")
        .leave(&format!("1-whole-{}", field("VERSION_ID")))
}

/// Runs one step, prints its line and adds it to the score.
fn run_step(step: &'static Step, layer: Layer, score: &Mutex<Score>) -> Result<()> {
    let started = Instant::now();
    let mut log = Log::create(step.name, layer)?;
    let missing = step.needs.iter().find(|program| !setup::is_there(program));
    let elapsed = score.lock().expect("no worker panicked").begun.elapsed();
    let result = match missing {
        _ if layer == Layer::Test && elapsed.as_secs() > RUN_MINUTES * 60 => {
            Ok(Verdict::Skipped(format!("the run has taken {RUN_MINUTES} minutes already")))
        }
        Some(program) => Ok(Verdict::Skipped(format!("{program} is not installed; see the step setup"))),
        None => (step.run)(&mut log),
    };
    let (word, detail) = match &result {
        Ok(Verdict::Passed(detail)) => ("ok", detail.clone()),
        Ok(Verdict::Skipped(reason)) => ("SKIPPED", reason.clone()),
        Err(error) => ("FAILED", failure(step.name, layer, &log.path, error)),
    };
    println!("{word:7}  {:12} {:>7}  {detail}", step.name, seconds(started.elapsed()));
    let mut score = score.lock().expect("no worker panicked");
    match result {
        Ok(Verdict::Passed(_)) => score.passed += 1,
        Ok(Verdict::Skipped(reason)) => score.skipped.push((step.name, reason)),
        Err(error) => score.failed.push((step.name, reason(&error, &log.text()?))),
    }
    Ok(())
}

/// Prints the names of a layer's steps and what they show.
pub(crate) fn list(layer: Layer) {
    for step in layer.steps() {
        println!("{:12}  {}", step.name, step.about);
    }
}

/// The steps with these names in the order of the list, or all if there are no names.
pub(crate) fn select(layer: Layer, names: &[String]) -> Result<Vec<&'static Step>> {
    let known: BTreeSet<&str> = layer.steps().iter().map(|step| step.name).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(name.as_str())) {
        return Err(anyhow!("no step is called {name}; cargo xtask {} --list shows them", layer.chore()));
    }
    Ok(layer.steps().iter().filter(|step| names.is_empty() || names.iter().any(|n| n == step.name)).collect())
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// The end of a failed step's log and the lines that tell why, its error, and how to run the step again.
fn failure(name: &str, layer: Layer, log: &Path, error: &anyhow::Error) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !is_progress(line)).collect();
    let (before, tail) = lines.split_at(lines.len().saturating_sub(TAIL_LINES));
    let shown = telling(before).into_iter().chain(tail.iter().copied()).map(|line| format!("| {line}"));
    let error = format!("{error:#}");
    let rest = error.lines().map(str::to_owned).chain([format!("again: cargo xtask {} {name}", layer.chore())]);
    let shown: String = shown.chain(rest).map(|line| format!("\n         {line}")).collect();
    format!("log: {}{shown}", log.display())
}

/// Why a step failed, in one line: its error, and the last line of its log, which may be the seed of what failed.
fn reason(error: &anyhow::Error, log: &str) -> String {
    let error = format!("{error:#}");
    let error = error.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let lines = log.lines().rev().filter(|line| !is_progress(line)).map(without_colours);
    let last = lines.map(|line| line.trim().to_owned()).find(|line| !line.is_empty());
    [error.to_owned()].into_iter().chain(last).collect::<Vec<_>>().join(": ")
}

/// The line without a terminal's sequences that choose colours. rustfmt ends with a line of nothing else.
fn without_colours(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap_or_default();
    let is_end = |c: char| c.is_ascii_alphabetic();
    let rest = parts.map(|part| part.split_once(is_end).map_or("", |(_, rest)| rest));
    [first].into_iter().chain(rest).collect()
}

/// Whether the line is cargo's progress, which may fill the end of a log and hide what failed. Cargo puts such a word at
/// the end of twelve columns.
fn is_progress(line: &str) -> bool {
    const WORDS: [&str; 7] = ["Blocking", "Checking", "Compiling", "Documenting", "Executable", "Finished", "Fresh"];
    line.starts_with(' ') && line.split_whitespace().next().is_some_and(|word| WORDS.contains(&word))
}

/// The first lines that say what failed: the name of a test, the place and message of a panic, an error of the
/// compiler. Many tests may pass after one that fails, so the end of a log may not show it.
fn telling<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let panics = |line: &str| line.starts_with("thread '") && line.contains(" panicked at ");
    let tells = |line: &str| line.starts_with("error") || (line.starts_with("test ") && line.ends_with(" FAILED"));
    let is_message = |index: usize| index.checked_sub(1).is_some_and(|before| panics(lines[before]));
    let told = |&(index, line): &(usize, &'a str)| tells(line) || panics(line) || is_message(index);
    lines.iter().copied().enumerate().filter(told).map(|(_, line)| line).take(TELLING_LINES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_failure_is_shown_however_much_passed_after_it() {
        let log = "test a ... ok\ntest pages::b ... FAILED\nfailures:\nthread 'pages::b' (7) panicked at src/pages.rs:5:9:\nnot a \
                   command\nnote: run with\nerror[E0308]: mismatched types\n";
        let lines: Vec<&str> = log.lines().chain(std::iter::repeat_n("test c ... ok", 500)).collect();
        let place = "thread 'pages::b' (7) panicked at src/pages.rs:5:9:";
        let expected = ["test pages::b ... FAILED", place, "not a command", "error[E0308]: mismatched types"];
        assert_eq!(telling(&lines), expected);
        assert_eq!(telling(&["error"; 500]).len(), TELLING_LINES);
    }

    const PROGRESS: &str =
        "   Compiling a v1.0.0\n    Finished `test` profile\n  Executable unittests src/lib.rs (target/a)\n";

    #[test]
    fn a_failed_step_has_one_line_with_its_error_and_the_last_line_of_its_log() {
        let error = anyhow!("exit status: 1\nmore").context("cargo test");
        let cases = [
            ("ok\nseed 7\n\n", "cargo test: exit status: 1: seed 7"),
            ("  indented\n \n", "cargo test: exit status: 1: indented"),
            ("\x1b[32m+fn x() {}\n\x1b(B\x1b[m\n", "cargo test: exit status: 1: +fn x() {}"),
            ("", "cargo test: exit status: 1"),
        ];
        for (log, expected) in cases {
            assert_eq!(reason(&error, &format!("{log}{PROGRESS}")), expected, "{log:?}");
        }
    }

    #[test]
    fn the_end_of_a_log_is_shown_without_the_progress_of_cargo() {
        let log = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(&log, format!("seed 7\nFinished early\n{}", PROGRESS.repeat(TAIL_LINES))).expect("it is ours");
        let shown = failure("sim", Layer::Test, log.path(), &anyhow!("no"));
        let lines: Vec<&str> = shown.lines().skip(1).map(str::trim).collect();
        assert_eq!(lines, ["| seed 7", "| Finished early", "no", "again: cargo xtask test sim"]);
    }
}
