//! The command line: its arguments, and the commands that work without a server.
//!
//! [`run`] reads the process's arguments and calls one function for each command: of this folder for `up`, `create`,
//! `detect`, `examine`, `read`, `write` and what else opens members itself, of `server`, `clients` or `measure` for the others.

mod arguments;
mod create;
mod detect;
mod examination;
mod examine;
mod generate;
mod grow;
mod habits;
mod journal;
mod locate;
mod lost_files;
mod map_file;
mod mapped_read;
mod metadata;
mod overlay;
#[cfg(test)]
mod pages;
mod reshape;
mod resumed;
mod salvage;
mod scrub;
mod sink;
mod transfer;
mod up;
mod update;
mod web;
mod web_create;
mod wipe;

use crate::command::clients::{control, iostat, list, monitor, top, trace, wait};
use crate::command::mdadm::{self, mdstat};
use crate::command::measure::{bench, lab};
use crate::command::server::serve;
use crate::command::text::failure::Failure;
use crate::command::text::journal::{Prioritized, Priority};
use crate::command::text::output::StandardError;
use crate::machine::choose_backend;
use arguments::{Command, CommandLine, IoBackend, LogFormat};
use clap::{Parser, ValueEnum};
use parity::Kernel;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Sets the default of `--io`.
const IO_VARIABLE: &str = "MDSPACE_IO";

/// Carries out the process's arguments. This is the whole program.
pub fn run() -> ExitCode {
    io::signal::ignore_file_size_limit_signal();
    let line = match CommandLine::try_parse_from(words()) {
        Ok(line) => line,
        Err(error) => return refuse(error),
    };
    log(line.log);
    match carry_out(&line) {
        Ok(status) => status,
        Err(failure) => {
            StandardError::lines(Priority::Error, &failure.to_string());
            failure.exit_code()
        }
    }
}

/// The process's words. Called as mdadm, by a link of that name, it takes mdadm's.
fn words() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    if words.first().is_some_and(|name| Path::new(name).file_name() == Some("mdadm".as_ref())) {
        words.splice(..1, ["mdspace".into(), "mdadm".into()]);
    }
    words
}

/// Prints why the command line is refused; for mdadm's options and removed ones, what to do instead.
fn refuse(error: clap::Error) -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    if error.use_stderr()
        && !habits::asks_for_help(&words)
        && let Some((reason, next)) = habits::answer(&words).or_else(|| habits::answer_to_removed_option(&error))
    {
        let failure = Failure::refused(reason).advise(next);
        StandardError::lines(Priority::Error, &failure.to_string());
        return failure.exit_code();
    }
    habits::without_changes(error).exit()
}

/// Sets up the log of servers, on standard error.
fn log(format: LogFormat) {
    // Changes of members at level info, everything else from warnings on.
    let shown = Targets::new().with_default(LevelFilter::WARN).with_target(engine::LOG_TARGET, LevelFilter::INFO);
    let log = tracing_subscriber::fmt::layer().with_writer(|| StandardError);
    let registry = tracing_subscriber::registry().with(shown);
    match format {
        LogFormat::Human => registry.with(log.without_time().map_event_format(Prioritized)).init(),
        LogFormat::Json => registry.with(log.json().map_event_format(Prioritized)).init(),
    }
}

/// The backend: the user's choice on the command line, or the environment's.
fn io_of(chosen: Option<IoBackend>) -> Result<IoBackend, Failure> {
    match (chosen, std::env::var_os(IO_VARIABLE)) {
        (Some(io), _) => Ok(io),
        (None, Some(text)) if !text.is_empty() => IoBackend::from_str(&text.to_string_lossy(), false).map_err(|_| {
            Failure::refused(format!("{IO_VARIABLE}={}: not a backend", text.display()))
                .advise("unset it, or set it to auto, io_uring or threads")
        }),
        (None, _) => Ok(IoBackend::Auto),
    }
}

/// The exit status is that of success, except where mdadm has others.
fn carry_out(line: &CommandLine) -> Result<ExitCode, Failure> {
    let kernel = line.kernel.as_deref().map(Kernel::by_name).transpose();
    let kernel = kernel.map_err(|error| Failure::refused(format!("--kernel: {error}")))?;
    choose_backend(io_of(line.io)?.choice());
    let done = match &line.command {
        Command::Mdadm(arguments) => return Ok(mdadm::run(&arguments.words)),
        Command::Up(arguments) => up::run(arguments, kernel),
        Command::Create(arguments) => create::run(arguments, kernel),
        Command::Detect(arguments) => detect::run(arguments, kernel),
        Command::Examine(arguments) => examine::run(arguments, kernel),
        Command::Serve(arguments) => serve::serve(arguments, kernel),
        Command::Read(arguments) => transfer::read(arguments, kernel),
        Command::Write(arguments) => transfer::write(arguments, kernel),
        Command::List(arguments) => list::run(arguments),
        Command::Status(arguments) => control::status(arguments, kernel),
        Command::Wait(arguments) => wait::run(arguments),
        Command::Iostat(arguments) => iostat::run(arguments),
        Command::Top(arguments) => top::run(arguments),
        Command::Monitor(arguments) => monitor::run(arguments),
        Command::Web(arguments) => web::run(arguments),
        Command::Trace(arguments) => trace::run(arguments),
        Command::Fail(arguments) => control::change_member(arguments, "fail"),
        Command::Remove(arguments) => control::change_member(arguments, "remove"),
        Command::Add(arguments) => control::add(arguments),
        Command::ReAdd(arguments) => control::re_add(arguments),
        Command::Replace(arguments) => control::replace(arguments),
        Command::Set(arguments) => control::set(arguments),
        Command::Grow(arguments) => grow::run(arguments, kernel),
        Command::Scrub(arguments) => scrub::run(arguments, kernel),
        Command::Locate(arguments) => locate::run(arguments, kernel),
        Command::Stop(arguments) => control::stop(arguments),
        Command::Update(arguments) => update::run(arguments, kernel),
        Command::Overlay(arguments) => overlay::run(arguments, kernel),
        Command::Wipe(arguments) => wipe::run(arguments, kernel),
        Command::Mdstat => mdstat::run(),
        Command::Bench(arguments) => bench::run(arguments, kernel),
        Command::Lab(arguments) => lab::run(arguments),
        Command::Generate(arguments) => generate::run(arguments),
    };
    done.map(|()| ExitCode::SUCCESS)
}
