//! The program `mdspace`, which only calls the library's module `command`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    mdspace::command::run()
}
