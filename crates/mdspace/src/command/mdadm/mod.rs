//! mdadm's command line: called as `mdadm`, or as `mdspace mdadm`, the program takes mdadm's arguments, prints what mdadm
//! prints, and ends with its exit statuses.
//!
//! It is a translation. Arrays are made, assembled, updated and wiped by mdspace's own commands, which run as processes
//! of their own; served arrays are asked and changed through their control sockets. So nothing here writes to a member.
//! A line is read whole before anything happens; what cannot be done is refused by its name, with exit status 2.
//!
//! [`words`] reads a line by the table in [`options`]; there is a file for each mode or group of actions.

mod arrays;
mod assemble;
mod create;
mod detail;
mod examine;
mod grow;
mod incremental;
mod manage;
mod map;
pub(crate) mod mdstat;
mod misc;
mod options;
mod own;
mod text;
mod words;

use crate::command::text::failure::Failure;
use crate::command::text::output::print;
use crate::command::text::output::tell as tell_line;
use crate::names::name_of;
use crate::names::shell_word;
use control::ClientError;
use engine::Refusal;
use format::text::plain;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use words::{Mode, Words};

/// The version of mdadm whose words are spoken. Scripts look for it.
const SPOKEN: &str = "mdadm - v4.2 - 2021-12-30";

const USAGE: &str = "Usage: mdadm --help\n  for help";

const HELP: &str = "\
mdadm's command line, spoken by mdspace. Arrays are served by processes, and not by the kernel.

  mdadm --create /dev/md/NAME -l LEVEL -n COUNT MEMBER...     makes an array, and serves it in the background
  mdadm --assemble /dev/md/NAME MEMBER...                     serves it; also --scan, --uuid=, --name=
  mdadm --incremental MEMBER                                  notes it, and serves the array once it is whole
  mdadm --detail /dev/md/NAME                                 also --scan, --export, --test
  mdadm --examine MEMBER...                                   also --scan, --brief, --export; -X, --examine-badblocks
  mdadm /dev/md/NAME --fail M --remove M --add M              also --re-add, --replace M --with M
  mdadm --grow /dev/md/NAME --size=max                        also --raid-devices=, --bitmap=
  mdadm --stop /dev/md/NAME                                   also --scan
  mdadm --wait, --wait-clean, --action=check, --query, --zero-superblock, --monitor

/dev/md/NAME is the served array with this name, /dev/mdN one with this number. `mdspace list` shows all.
mdadm --help-options says of each option what it is here. What is not here is refused, and nothing is changed.
";

/// Why a line failed: a message, and the exit status.
#[derive(Debug)]
struct Trouble {
    status: u8,
    message: String,
    /// Whether it is an option of mdadm's that is not here.
    is_refusal: bool,
}

impl Trouble {
    /// The line is not one of mdadm's.
    fn usage(message: impl Into<String>) -> Self {
        Self { status: 2, message: message.into(), is_refusal: false }
    }

    /// It is one of mdadm's that is not done here.
    fn refused(message: impl Into<String>) -> Self {
        Self { is_refusal: true, ..Self::usage(message) }
    }

    /// It did not succeed.
    fn failed(message: impl Into<String>) -> Self {
        Self { status: 1, ..Self::usage(message) }
    }

    fn with_status(self, status: u8) -> Self {
        Self { status, ..self }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        let advice = failure.advice().map(|advice| format!("\n{advice}")).unwrap_or_default();
        Self::failed(format!("{}{advice}", failure.reason()))
    }
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Failure::from(refusal).into()
    }
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        Failure::from(error).into()
    }
}

/// Tells a message as mdadm does; further lines are indented.
fn tell(trouble: &Trouble) {
    note(&trouble.message);
}

/// Tells something that is no error.
fn note(message: &str) {
    tell_line!("mdadm: {}", plain(message).replace('\n', "\n       "));
}

/// Says on standard output that an array was started or stopped, where mdadm from 4.3 on says it.
fn say(message: &str) -> Result<(), Failure> {
    print(&format!("mdadm: {message}\n"))
}

/// A reason and advice for `words`, arguments of mdspace's own command, if they are a line of mdadm.
pub(crate) fn answer(words: &[OsString]) -> Option<(String, String)> {
    let typed: Vec<String> = words.iter().map(|word| name_of(Path::new(word))).collect();
    match Words::of(words) {
        Ok(line) => {
            let option = typed.iter().find(|word| word.starts_with('-')).filter(|_| line.mode.is_some())?;
            let typed: Vec<String> = typed.iter().map(|word| shell_word(word)).collect();
            Some((format!("{option}: an option of mdadm"), format!("mdspace mdadm {}", typed.join(" "))))
        }
        Err(trouble) if trouble.is_refusal => {
            Some((trouble.message, "`mdspace mdadm --help-options` says what each option of mdadm is here".to_owned()))
        }
        Err(_) => None,
    }
}

/// Runs the words behind `mdadm`.
pub(crate) fn run(words: &[OsString]) -> ExitCode {
    let status = match Words::of(words).and_then(|words| carry_out(&words)) {
        Ok(status) => status,
        Err(trouble) => {
            tell(&trouble);
            trouble.status
        }
    };
    ExitCode::from(status)
}

fn carry_out(words: &Words) -> Result<u8, Trouble> {
    if words.has("help") || words.has("help-options") {
        print(&if words.has("help") { HELP.to_owned() } else { options::help_options() })?;
        return Ok(0);
    }
    if words.has("version") {
        tell_line!("{SPOKEN} - mdspace {}", env!("CARGO_PKG_VERSION"));
        return Ok(0);
    }
    match words.mode {
        Some(Mode::Assemble) => assemble::run(words),
        Some(Mode::Create) => create::run(words),
        Some(Mode::Manage) => manage::run(words),
        Some(Mode::Grow) => grow::run(words),
        Some(Mode::Monitor) => misc::monitor(words),
        Some(Mode::Misc) => misc::run(words),
        Some(Mode::Incremental) => incremental::run(words),
        // The parser has refused these by name.
        Some(Mode::Build | Mode::AutoDetect) | None => Err(Trouble::usage(USAGE)),
    }
}

/// The host in the names of arrays that are made here: the user's word, or this machine's name.
fn host_of(words: &Words) -> Option<String> {
    match words.value("homehost") {
        Some(host) if host.eq_ignore_ascii_case("<ignore>") || host.eq_ignore_ascii_case("any") => None,
        Some(host) if host.eq_ignore_ascii_case("<none>") => None,
        Some(host) if !host.eq_ignore_ascii_case("<system>") => Some(host),
        _ => {
            let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?.trim().to_owned();
            Some(name).filter(|name| !name.is_empty() && name != "(none)")
        }
    }
}
