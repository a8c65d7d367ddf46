//! mdspace's own commands, as processes: for what makes, changes or serves arrays.
//!
//! What such a command tells on standard error is told on as mdadm's.

use super::{Trouble, note};
use crate::command::clients::monitor::detached::WATCHING;
use crate::command::opening::sockets::own_directory;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The words of a command of mdspace.
pub(super) struct Line(Vec<OsString>);

impl Line {
    pub(super) fn of(command: &str) -> Self {
        Self(vec![command.into()])
    }

    /// Adds an option without a value, if `is_given`.
    pub(super) fn flag(mut self, option: &str, is_given: bool) -> Self {
        self.0.extend(is_given.then(|| option.into()));
        self
    }

    /// Adds an option and its value, if there is one.
    pub(super) fn option(mut self, option: &str, value: Option<impl AsRef<OsStr>>) -> Self {
        if let Some(value) = value {
            let mut word = OsString::from(format!("{option}="));
            word.push(value.as_ref());
            self.0.push(word);
        }
        self
    }

    /// Adds paths and other words that are no options.
    pub(super) fn words(mut self, words: impl IntoIterator<Item = OsString>) -> Self {
        let words: Vec<OsString> = words.into_iter().collect();
        if !words.is_empty() {
            self.0.push("--".into());
            self.0.extend(words);
        }
        self
    }

    fn command(&self) -> Result<Command, Trouble> {
        let program = std::env::current_exe().map_err(|error| Trouble::failed(format!("this program: {error}")))?;
        let mut command = Command::new(program);
        // Called as mdadm, it would read mdadm's words.
        command.arg0("mdspace").args(&self.0).stdin(Stdio::null());
        Ok(command)
    }

    /// Runs it, and returns what it prints.
    pub(super) fn run(&self) -> Result<String, Trouble> {
        let output = self.command()?.output().map_err(|error| Trouble::failed(format!("mdspace: {error}")))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let status = output.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
        Err(Trouble::failed(said(&String::from_utf8_lossy(&output.stderr))).with_status(status))
    }

    /// Runs it in the place of this process.
    pub(super) fn become_it(&self) -> Result<u8, Trouble> {
        let error = self.command()?.exec();
        Err(Trouble::failed(format!("mdspace: {error}")))
    }

    /// Starts `monitor --detached` in the background, and returns its process id once it watches. Its messages up to then
    /// are told to the caller.
    pub(super) fn detach(&self) -> Result<u32, Trouble> {
        let failed = |error: std::io::Error| Trouble::failed(format!("mdspace monitor: {error}"));
        let mut command = self.command()?;
        let mut monitor = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
        let (mut greeting, mut messages) = (String::new(), Vec::new());
        // Both end when it watches, or ends itself.
        monitor.stdout.take().expect("a pipe").read_to_string(&mut greeting).map_err(failed)?;
        monitor.stderr.take().expect("a pipe").read_to_end(&mut messages).map_err(failed)?;
        let messages = said(&String::from_utf8_lossy(&messages));
        if greeting == WATCHING {
            if !messages.is_empty() {
                note(&messages);
            }
            return Ok(monitor.id());
        }
        let status = monitor.wait().map_err(failed)?;
        let status = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
        Err(Trouble::failed(messages).with_status(status))
    }

    /// Starts it in the background: `serve --json`, whose first line is the array's status. Its messages go to the file
    /// `log` beside the control sockets, and to the caller if it does not start.
    pub(super) fn serve(&self, log: &str) -> Result<Value, Trouble> {
        let path = own_directory()?.join(log);
        let failed = |error: std::io::Error| Trouble::failed(format!("{}: {error}", path.display()));
        let messages = log_file(&path).map_err(failed)?;
        let mut command = self.command()?;
        // A group of its own, so that the terminal's signals do not reach it; and no directory that it would hold.
        command.process_group(0).current_dir("/").stdout(Stdio::piped()).stderr(messages);
        let mut server = command.spawn().map_err(|error| Trouble::failed(format!("mdspace serve: {error}")))?;
        let mut greeting = String::new();
        let output = server.stdout.take().expect("its output is a pipe");
        BufReader::new(output).read_line(&mut greeting).map_err(failed)?;
        if let Ok(status) = serde_json::from_str(&greeting) {
            return Ok(status);
        }
        // Without a greeting it has ended, or is about to.
        let _ = server.wait();
        let text = std::fs::read(&path).map_err(failed)?;
        Err(Trouble::failed(said(&String::from_utf8_lossy(&text))))
    }
}

fn log_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// A command's messages, without what marks them as mdspace's.
fn said(text: &str) -> String {
    let line = |line: &str| {
        let line = line.trim();
        let marks = ["refused: ", "error: ", "next: "];
        marks.iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line).to_owned()
    };
    text.lines().map(line).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

/// An absolute path of a member, because the server runs in another directory. Words that are no paths stay.
pub(super) fn absolute(word: &OsStr) -> OsString {
    let is_word = word == OsStr::new("missing") || word.to_string_lossy().contains("://");
    match std::path::absolute(Path::new(word)) {
        Ok(path) if !is_word => PathBuf::into_os_string(path),
        _ => word.to_owned(),
    }
}
