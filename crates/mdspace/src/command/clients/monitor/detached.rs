//! `monitor` in the background, for mdadm's `--daemonise`: in a session of its own, with no file of its caller's, and with
//! its process id in a file.
//!
//! The caller starts it as a new process and never forks, because a fork of a process with threads has only one of them.
//! Standard output is a pipe to the caller: one line says that the arrays are watched. From then on the standard streams
//! are /dev/null. SIGINT and SIGTERM end the process, and the file with its id goes first. Facts: mdadm(8), `--pid-file`.

use crate::command::clients::arguments::MonitorArguments;
use crate::command::text::failure::Failure;
use crate::command::text::output::print;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// The line that tells the caller that the arrays are watched.
pub(crate) const WATCHING: &str = "watching\n";

/// A monitor in the background, until its value is dropped.
pub(super) struct Detached {
    terminations: Option<::io::signal::Terminations>,
    pid_file: Option<PidFile>,
}

impl Detached {
    /// Leaves the caller's session. No thread may run yet: all are to have the signals blocked.
    ///
    /// # Errors
    /// When this process is the first of a group, as one that a shell started is.
    pub(super) fn begin(arguments: &MonitorArguments) -> Result<Self, Failure> {
        let refused = |error: io::Error| Failure::refused(format!("no session of its own: {error}"));
        rustix::process::setsid().map_err(|error| refused(error.into()))?;
        let terminations = ::io::signal::Terminations::block().map_err(refused)?;
        let pid_file = arguments.pid_file.clone().map(|path| PidFile { path });
        Ok(Self { terminations: Some(terminations), pid_file })
    }

    /// Tells the caller that the arrays are watched, and lets go of the caller's files. Only the first call does something.
    pub(super) fn watches(&mut self) -> Result<(), Failure> {
        let Some(terminations) = self.terminations.take() else { return Ok(()) };
        if let Some(file) = &self.pid_file {
            file.write().map_err(|error| Failure::unwell(format!("{}: {error}", file.path.display())))?;
        }
        let file = self.pid_file.clone();
        std::thread::spawn(move || {
            // A failure to wait ends the process, too: it would otherwise ignore both signals.
            let waited = terminations.wait();
            file.as_ref().map(PidFile::remove);
            std::process::exit(i32::from(waited.is_err()));
        });
        let failed = |error: io::Error| Failure::unwell(format!("/dev/null: {error}"));
        let nothing = OpenOptions::new().read(true).write(true).open("/dev/null").map_err(failed)?;
        dup2_stdin(&nothing).and_then(|()| dup2_stderr(&nothing)).map_err(|error| failed(error.into()))?;
        print(WATCHING)?;
        dup2_stdout(&nothing).map_err(|error| failed(error.into()))
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        self.pid_file.as_ref().map(PidFile::remove);
    }
}

/// A file with the id of this process.
#[derive(Clone)]
struct PidFile {
    path: PathBuf,
}

impl PidFile {
    fn text() -> String {
        format!("{}\n", std::process::id())
    }

    /// Only its owner may write to it, as its readers send signals to what it names.
    fn write(&self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o644);
        options.open(&self.path)?.write_all(Self::text().as_bytes())
    }

    /// Removes the file, unless a later process has put its own id there.
    fn remove(&self) {
        if fs::read_to_string(&self.path).is_ok_and(|text| text == Self::text()) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
