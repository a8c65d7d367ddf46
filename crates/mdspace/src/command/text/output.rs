//! Standard output and standard error.
//!
//! A reader that closes its pipe (`| head`) ends the output and is not a failure. A line that standard error does not
//! accept, because its file system is full or its reader has gone, is lost. `eprintln!` would panic there and end the
//! server.

use crate::command::text::failure::Failure;
use crate::command::text::journal::Priority;
use crate::command::text::screen::{coloured, folded, is_coloured, width};
use format::text::plain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::io::{ErrorKind, Write};

/// Prints `text` with its control characters escaped, as it may contain names that other users chose; folded to the
/// terminal's width.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_as_it_is(&folded(&plain(text), width()))
}

/// As [`print()`], with words for states in their colours.
pub(crate) fn print_states(text: &str) -> Result<(), Failure> {
    let text = folded(&plain(text), width());
    print_as_it_is(&if is_coloured() { coloured(&text) } else { text })
}

/// Clears the terminal and moves the cursor to its first line.
pub(crate) fn clear_screen() -> Result<(), Failure> {
    print_as_it_is("\x1b[H\x1b[2J")
}

/// Prints `text` without escapes. The caller guarantees that it does not drive the terminal by accident.
pub(crate) fn print_as_it_is(text: &str) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::unwell(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Whether standard output still has a reader: what repeats a report ends without one.
pub(crate) fn is_read() -> bool {
    let output = std::io::stdout();
    let mut polled = [PollFd::new(&output, PollFlags::empty())];
    let asked = poll(&mut polled, Some(&Timespec::default()));
    asked.is_err() || !polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Prints `value` as indented JSON and a line feed.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).expect("our own types have string keys");
    print_as_it_is(&format!("{text}\n"))
}

/// As `eprintln!`, but a line that cannot be written is lost.
macro_rules! tell {
    ($($text:tt)*) => {
        $crate::command::text::output::StandardError::line(format_args!($($text)*))
    };
}
pub(crate) use tell;

/// Standard error, whose failures are ignored: no other place is left to report them.
pub(crate) struct StandardError;

impl StandardError {
    /// Writes a line.
    pub(crate) fn line(text: std::fmt::Arguments<'_>) {
        Self::lines(Priority::Notice, &text.to_string());
    }

    /// Writes lines of this priority.
    pub(crate) fn lines(priority: Priority, text: &str) {
        let _ = writeln!(std::io::stderr(), "{}", priority.before_lines(text, std::io::stderr()));
    }
}

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = std::io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Columns of text, each as wide as its widest cell, two spaces apart.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_never_reach_the_terminal() {
        for (text, expected) in [
            ("a.img\tin sync\n", "a.img\tin sync\n"),
            ("\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            ("line\rover", "line\\u{d}over"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("gmi.\u{202e}exe", "gmi.\\u{202e}exe"),
            ("größer €", "größer €"),
        ] {
            assert_eq!(plain(text), expected);
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["slot".to_owned(), "member".to_owned()], vec!["0".to_owned(), "a.img".to_owned()]];
        assert_eq!(columns(&rows), "slot  member\n0     a.img\n");
        assert_eq!(columns(&[]), "");
    }
}
