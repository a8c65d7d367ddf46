//! The program `mdspace`: the library's module `command`, and nothing besides.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    mdspace::command::run()
}
