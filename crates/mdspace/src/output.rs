//! Standard output, for people and for pipes.
//!
//! A reader that has seen enough (`| head`) is not a failure: output just ends.

use crate::failure::Failure;
use std::io::{ErrorKind, Write};

/// Prints `text` as it is.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::unwell(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}
