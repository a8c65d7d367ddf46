//! The command `mdspace`.
//!
//! It turns arguments into calls of the engine, and results into text, JSON
//! and an exit status. It knows nothing about RAID that the engine does not
//! tell it, and never writes to a member itself.

mod activation;
mod arguments;
mod assembly;
mod bench;
mod bitmap_file;
mod commands;
mod control;
mod create;
mod crew;
mod doubt;
mod examine;
mod failure;
mod figures;
mod generate;
mod grow;
mod habits;
mod html;
mod interval;
mod iostat;
mod lab;
mod level;
mod mdadm_conf;
mod members;
mod metrics;
mod monitor;
mod nbd_address;
mod output;
mod own;
#[cfg(test)]
mod pages;
mod progress;
mod report;
mod salvage;
mod scrub;
mod serve;
mod settings;
mod size;
mod sockets;
mod top;
mod trace;
mod transfer;
mod volume;
mod ways;

use crate::command::output::tell;
use arguments::{Command, CommandLine, LogFormat};
use clap::Parser;
use failure::Failure;
use parity::Kernel;
use std::process::ExitCode;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Does what the process's arguments say: all that the program is.
pub fn run() -> ExitCode {
    io::signal::ignore_file_size_limit_signal();
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => return refuse(error),
    };
    log(line.log);
    match carry_out(&line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tell!("{failure}");
            failure.exit_code()
        }
    }
}

/// Says what is wrong with the command line: by mdadm's options in it, where there are some.
fn refuse(error: clap::Error) -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    if error.use_stderr()
        && !habits::asks_for_help(&words)
        && let Some((reason, next)) = habits::answer(&words)
    {
        let failure = Failure::refused(reason).advise(next);
        tell!("{failure}");
        return failure.exit_code();
    }
    habits::without_changes(error).exit()
}

/// What servers have to say while they run: warnings, on standard error.
fn log(format: LogFormat) {
    // Of members a line for each change, of everything else what is amiss.
    let shown = Targets::new().with_default(LevelFilter::WARN).with_target(engine::LOG_TARGET, LevelFilter::INFO);
    let log = tracing_subscriber::fmt::layer().with_writer(|| output::StandardError);
    let registry = tracing_subscriber::registry().with(shown);
    match format {
        LogFormat::Human => registry.with(log.without_time()).init(),
        LogFormat::Json => registry.with(log.json()).init(),
    }
}

fn carry_out(line: &CommandLine) -> Result<(), Failure> {
    let kernel = line.kernel.as_deref().map(Kernel::by_name).transpose();
    let kernel = kernel.map_err(|error| Failure::refused(format!("--kernel: {error}")))?;
    match &line.command {
        Command::Up(arguments) => serve::up(arguments, kernel),
        Command::Create(arguments) => create::run(arguments, kernel),
        Command::Examine(arguments) => examine::run(arguments, kernel),
        Command::Serve(arguments) => serve::serve(arguments, kernel),
        Command::Read(arguments) => transfer::read(arguments, kernel),
        Command::Write(arguments) => transfer::write(arguments, kernel),
        Command::Status(arguments) => control::status(arguments),
        Command::Iostat(arguments) => iostat::run(arguments),
        Command::Top(arguments) => top::run(arguments),
        Command::Monitor(arguments) => monitor::run(arguments),
        Command::Trace(arguments) => trace::run(arguments),
        Command::Fail(arguments) => control::change_member(arguments, "fail"),
        Command::Remove(arguments) => control::change_member(arguments, "remove"),
        Command::Add(arguments) => control::add(arguments),
        Command::ReAdd(arguments) => control::re_add(arguments),
        Command::Replace(arguments) => control::replace(arguments),
        Command::Set(arguments) => control::set(arguments),
        Command::Grow(arguments) => grow::run(arguments, kernel),
        Command::Scrub(arguments) => scrub::run(arguments, kernel),
        Command::Stop(arguments) => control::stop(arguments),
        Command::Bench(arguments) => bench::run(arguments, kernel),
        Command::Lab(arguments) => lab::run(arguments),
        Command::Generate(arguments) => generate::run(arguments),
    }
}
