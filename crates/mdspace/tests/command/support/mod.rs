//! Runs the command in a temporary directory, in the foreground or as a server in the background.

pub(crate) mod containers;
pub(crate) mod disks;
pub(crate) mod nbd;
pub(crate) mod traffic;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// How long a server that was told to end may take.
pub(crate) const END_TIMEOUT: Duration = Duration::from_secs(120);

/// A temporary directory to run the command in.
pub(crate) struct Workplace {
    directory: TempDir,
}

/// The result of a run: exit status and both outputs.
pub(crate) struct Run {
    /// The line that was run, for messages.
    line: String,
    /// Its exit status.
    pub(crate) status: i32,
    /// Its standard output.
    pub(crate) stdout: Vec<u8>,
    /// Its standard error.
    pub(crate) stderr: String,
}

impl Workplace {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The contents of these files.
    pub(crate) fn contents(&self, names: &[&str]) -> Vec<Vec<u8>> {
        names.iter().map(|name| std::fs::read(self.path().join(name)).expect("a member")).collect()
    }

    /// The command, ready to run here. Its default sockets and its state stay in the directory.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mdspace"));
        command.args(arguments).current_dir(self.path());
        command.env("XDG_RUNTIME_DIR", self.path()).env("XDG_STATE_HOME", self.path().join("state"));
        command
    }

    /// Runs it with words separated by spaces, and nothing on standard input.
    pub(crate) fn run(&self, line: &str) -> Run {
        self.run_with(line, &[])
    }

    /// Runs it with `input` on standard input.
    pub(crate) fn run_with(&self, line: &str, input: &[u8]) -> Run {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let mut command = self.command(&arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("mdspace starts");
        let mut stdin = child.stdin.take().expect("its input is a pipe");
        let input = input.to_vec();
        // The command may end without reading everything: a broken pipe is not a failure.
        let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().expect("mdspace ends");
        feeder.join().expect("feeding does not panic");
        Run::new(line, output)
    }
}

impl Run {
    pub(crate) fn new(line: &str, output: Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let status = output.status.code().unwrap_or_else(|| panic!("{line}: killed: {stderr}"));
        Self { line: line.to_owned(), status, stdout: output.stdout, stderr }
    }

    /// Asserts the exit status, and each of `words` on standard error.
    #[track_caller]
    pub(crate) fn expect(&self, status: i32, words: &[&str]) -> &Self {
        assert_eq!(self.status, status, "{}: {}", self.line, self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "{}: no `{word}` in: {}", self.line, self.stderr);
        }
        self
    }

    /// Asserts success.
    #[track_caller]
    pub(crate) fn ok(&self) -> &Self {
        self.expect(0, &[])
    }

    /// Standard output as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).expect("output is text")
    }
}

/// A server, killed when the test ends before it was stopped.
pub(crate) struct Server {
    pub(crate) child: Child,
    output: BufReader<ChildStdout>,
    /// The greeting that it printed.
    pub(crate) greeting: String,
}

impl Server {
    /// Starts it and waits for its greeting.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("mdspace starts");
        let mut output = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let mut greeting = String::new();
        // JSON is a single line.
        let is_whole = |text: &str| text.contains("\n  control") || (text.starts_with('{') && text.ends_with('\n'));
        while !is_whole(&greeting) {
            let read = output.read_line(&mut greeting).expect("its output is text");
            assert!(read > 0, "it ended: {greeting}");
        }
        Self { child, output, greeting }
    }

    /// As [`Server::start`], with words separated by spaces.
    pub(crate) fn of(here: &Workplace, line: &str) -> Self {
        Self::start(here.command(&line.split_whitespace().collect::<Vec<_>>()))
    }

    /// Reads on, up to a line that contains `end`, and adds that to the greeting.
    pub(crate) fn read_until(&mut self, end: &str) {
        while !self.greeting.contains(end) {
            let read = self.output.read_line(&mut self.greeting).expect("its output is text");
            assert!(read > 0, "it ended: {}", self.greeting);
        }
    }

    /// The first word of the greeting that begins with `start`.
    pub(crate) fn word(&self, start: &str) -> String {
        let word = self.greeting.split_whitespace().find(|word| word.starts_with(start));
        word.unwrap_or_else(|| panic!("{start}: {}", self.greeting)).to_owned()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Its exit status.
    ///
    /// # Panics
    /// When it still runs after [`END_TIMEOUT`].
    #[track_caller]
    pub(crate) fn wait(mut self) -> Option<i32> {
        assert!(self.ends_within(END_TIMEOUT), "process {} still runs after {END_TIMEOUT:?}", self.child.id());
        let mut rest = String::new();
        while self.output.read_line(&mut rest).expect("its output is text") > 0 {}
        self.child.wait().expect("it can be waited for").code()
    }

    fn ends_within(&self, time: Duration) -> bool {
        let process = rustix::process::pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty());
        process.map_or(true, |process| ends_within(&process, time))
    }
}

/// Whether the process of this descriptor ends within the time; it may be another's child.
pub(crate) fn ends_within(process: &OwnedFd, time: Duration) -> bool {
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&time)).expect("no signal comes") > 0
}

impl Drop for Server {
    fn drop(&mut self) {
        // All fail if it has ended already. A process that the kernel holds is left, as a test that waits tells nothing.
        drop(self.child.kill());
        if self.ends_within(Duration::from_secs(10)) {
            drop(self.child.wait());
        }
    }
}

/// The JSON in `text`.
pub(crate) fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
