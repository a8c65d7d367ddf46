//! The progress of long work, on standard error: a bar on a terminal, otherwise a line every few seconds.
//!
//! Work that ends before the first line is due prints nothing.

use crate::command::text::output::tell;
use crate::command::text::size::Size;
use crate::command::text::wording::minutes;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Time between two plain lines, and before the first.
const INTERVAL: Duration = Duration::from_secs(5);

/// Long work, measured in bytes.
pub(crate) struct Progress(Display);

enum Display {
    Bar(ProgressBar),
    Lines(Lines),
}

impl Progress {
    /// Starts work called `verb` on `bytes`, if their number is known.
    pub(crate) fn start(verb: &'static str, bytes: Option<u64>) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(Display::Lines(Lines::start(verb, bytes, Instant::now())));
        }
        let bar = ProgressBar::with_draw_target(bytes, ProgressDrawTarget::stderr());
        let template = match bytes {
            Some(_) => "{prefix} [{bar:40}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left",
            None => "{prefix} {binary_bytes}, {binary_bytes_per_sec}",
        };
        let style = ProgressStyle::with_template(template).expect("the template is a constant");
        bar.set_style(style.progress_chars("=> "));
        bar.set_prefix(verb);
        Self(Display::Bar(bar))
    }

    /// As [`Progress::start`], for work of which `done` bytes were done earlier. They count as done, but not for the
    /// rate.
    pub(crate) fn resume(verb: &'static str, bytes: u64, done: u64) -> Self {
        let mut progress = Self::start(verb, Some(bytes));
        match &mut progress.0 {
            Display::Bar(bar) => {
                bar.set_position(done);
                bar.reset_eta();
            }
            Display::Lines(lines) => (lines.before, lines.done) = (done, done),
        }
        progress
    }

    /// Counts `bytes` more as done.
    pub(crate) fn advance(&mut self, bytes: u64) {
        match &mut self.0 {
            Display::Bar(bar) => bar.inc(bytes),
            Display::Lines(lines) => {
                if let Some(line) = lines.advance(bytes, Instant::now()) {
                    tell!("{line}");
                }
            }
        }
    }
}

impl Drop for Progress {
    /// Clears the terminal's line for the next output.
    fn drop(&mut self) {
        if let Display::Bar(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Long work in named steps of unknown duration.
pub(crate) struct Steps(StepsDisplay);

enum StepsDisplay {
    Bar(ProgressBar),
    Lines(StepLines),
}

impl Steps {
    /// Starts work called `verb` with `count` steps.
    pub(crate) fn start(verb: &'static str, count: usize) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(StepsDisplay::Lines(StepLines { verb, begun: 0, count, last: Instant::now() }));
        }
        let bar = ProgressBar::with_draw_target(Some(count as u64), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{prefix} [{bar:40}] {pos} of {len} done, {msg}");
        bar.set_style(style.expect("the template is a constant").progress_chars("=> "));
        bar.set_prefix(verb);
        Self(StepsDisplay::Bar(bar))
    }

    /// Begins the step `name`, which ends the step before.
    pub(crate) fn begin(&mut self, name: &str) {
        match &mut self.0 {
            StepsDisplay::Bar(bar) => {
                if !bar.message().is_empty() {
                    bar.inc(1);
                }
                bar.set_message(name.to_owned());
            }
            StepsDisplay::Lines(lines) => {
                if let Some(line) = lines.begin(name, Instant::now()) {
                    tell!("{line}");
                }
            }
        }
    }

    /// Prints other output without disturbing the bar.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.0 {
            StepsDisplay::Bar(bar) => bar.suspend(print),
            StepsDisplay::Lines(_) => print(),
        }
    }
}

impl Drop for Steps {
    /// As for [`Progress`].
    fn drop(&mut self) {
        if let StepsDisplay::Bar(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// The plain form of [`Steps`].
struct StepLines {
    verb: &'static str,
    begun: usize,
    count: usize,
    last: Instant,
}

impl StepLines {
    /// Counts a step; returns the line to print, if one is due.
    fn begin(&mut self, name: &str, now: Instant) -> Option<String> {
        self.begun += 1;
        if now.duration_since(self.last) < INTERVAL {
            return None;
        }
        self.last = now;
        Some(format!("{}: {} of {}: {name}", self.verb, self.begun, self.count))
    }
}

/// The plain form of [`Progress`]. The caller passes the time, so that tests need not wait.
struct Lines {
    verb: &'static str,
    /// Bytes done before the start.
    before: u64,
    done: u64,
    total: Option<u64>,
    started: Instant,
    last: Instant,
}

impl Lines {
    fn start(verb: &'static str, total: Option<u64>, now: Instant) -> Self {
        Self { verb, before: 0, done: 0, total, started: now, last: now }
    }

    /// Counts `bytes`; returns the line to print, if one is due.
    fn advance(&mut self, bytes: u64, now: Instant) -> Option<String> {
        self.done += bytes;
        if now.duration_since(self.last) < INTERVAL {
            return None;
        }
        self.last = now;
        let seconds = now.duration_since(self.started).as_secs_f64();
        let rate = Size(((self.done - self.before) as f64 / seconds) as u64);
        let verb = self.verb;
        let done = Size(self.done);
        Some(match self.total.filter(|&total| total > 0) {
            Some(total) => {
                let percent = self.done as f64 * 100.0 / total as f64;
                let left = minutes((total.saturating_sub(self.done)) / rate.0.max(1));
                format!("{verb}: {done} of {} ({percent:.0} %), {rate}/s, {left} left", Size(total))
            }
            None => format!("{verb}: {done}, {rate}/s"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_line_appears_once_an_interval() {
        let start = Instant::now();
        let mut lines = Lines::start("write", Some(4 << 20), start);
        assert_eq!(lines.advance(1 << 20, start + INTERVAL / 2), None);
        let line = lines.advance(1 << 20, start + INTERVAL);
        assert_eq!(line.as_deref(), Some("write: 2 MiB of 4 MiB (50 %), 410 KiB/s, 0:05 min left"));
        assert_eq!(lines.advance(1 << 20, start + INTERVAL + INTERVAL / 2), None);
        assert!(lines.advance(1 << 20, start + INTERVAL * 2).is_some());
    }

    #[test]
    fn bytes_done_before_the_start_count_as_done_and_not_for_the_rate() {
        let start = Instant::now();
        let mut lines = Lines { before: 2 << 20, done: 2 << 20, ..Lines::start("scrub", Some(4 << 20), start) };
        let line = lines.advance(1 << 20, start + INTERVAL);
        assert_eq!(line.as_deref(), Some("scrub: 3 MiB of 4 MiB (75 %), 205 KiB/s, 0:05 min left"));
    }

    #[test]
    fn a_plain_line_names_the_current_step_once_an_interval() {
        let start = Instant::now();
        let mut lines = StepLines { verb: "lab", begun: 0, count: 3, last: start };
        assert_eq!(lines.begin("e1", start), None);
        assert_eq!(lines.begin("e2", start + INTERVAL).as_deref(), Some("lab: 2 of 3: e2"));
        assert_eq!(lines.begin("e3", start + INTERVAL + INTERVAL / 2), None);
    }

    #[test]
    fn work_of_unknown_length_has_no_percentage() {
        let start = Instant::now();
        let mut lines = Lines::start("read", None, start);
        assert_eq!(lines.advance(5 << 20, start + INTERVAL).as_deref(), Some("read: 5 MiB, 1 MiB/s"));
    }
}
