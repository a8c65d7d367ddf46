//! Priorities of lines for the journal: a number in front of each line, if standard error or standard output leads there.
//!
//! systemd takes the number off, and stores it as the field PRIORITY. A line elsewhere has none. Facts: sd-daemon(3);
//! systemd.exec(5), "$JOURNAL_STREAM".

use std::fmt;
use std::os::fd::AsFd;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// A priority of syslog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    Error = 3,
    Warning = 4,
    Notice = 5,
    Info = 6,
    Debug = 7,
}

impl From<&Level> for Priority {
    fn from(level: &Level) -> Self {
        match *level {
            Level::ERROR => Self::Error,
            Level::WARN => Self::Warning,
            Level::INFO => Self::Info,
            _ => Self::Debug,
        }
    }
}

impl Priority {
    /// What is put in front of a line.
    pub(crate) fn prefix(self) -> String {
        format!("<{}>", self as u8)
    }

    /// `text` with this in front of each line, if `output` leads to the journal.
    pub(crate) fn before_lines(self, text: &str, output: impl AsFd) -> String {
        if !leads_to_journal(output) {
            return text.to_owned();
        }
        text.lines().map(|line| self.prefix() + line).collect::<Vec<_>>().join("\n")
    }
}

/// Whether `output` leads to the journal.
pub(crate) fn leads_to_journal(output: impl AsFd) -> bool {
    let Some(stream) = std::env::var_os("JOURNAL_STREAM") else { return false };
    rustix::fs::fstat(output).is_ok_and(|stat| stream.to_string_lossy() == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Lines of the log for the journal, which begin with their priority.
pub(crate) struct Prioritized<F>(pub(crate) F);

impl<S, N, F> FormatEvent<S, N> for Prioritized<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        if leads_to_journal(std::io::stderr()) {
            writer.write_str(&Priority::from(event.metadata().level()).prefix())?;
        }
        self.0.format_event(context, writer, event)
    }
}
