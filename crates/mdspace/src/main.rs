//! The command `mdspace`.
//!
//! It turns arguments into calls of the engine, and results into text, JSON
//! and an exit status. It knows nothing about RAID that the engine does not
//! tell it, and never writes to a member itself.
#![forbid(unsafe_code)]

mod arguments;
mod create;
mod failure;
mod level;
mod machine;
mod members;
mod output;
mod progress;
mod size;
mod transfer;

use arguments::{Command, CommandLine};
use clap::Parser;
use failure::Failure;
use parity::Kernel;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(&CommandLine::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_code()
        }
    }
}

fn run(line: &CommandLine) -> Result<(), Failure> {
    let kernel = line.kernel.as_deref().map(Kernel::by_name).transpose();
    let kernel = kernel.map_err(|error| Failure::refused(format!("--kernel: {error}")))?;
    match &line.command {
        Command::Create(arguments) => create::run(arguments, kernel),
        Command::Read(arguments) => transfer::read(arguments, kernel),
        Command::Write(arguments) => transfer::write(arguments, kernel),
    }
}
