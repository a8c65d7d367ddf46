//! Copies an array's data from its remaining members, such as the disks of a broken NAS or images of them.
//!
//! ```text
//! rescue OUTPUT MEMBER...
//! ```
//!
//! Members are opened for reading and never written to. Unreadable bytes of the array are zeros in the copy, and are
//! reported; the exit status is then 1. It is 2 if the array cannot be opened.

use mdspace::{Array, Error};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::ExitCode;

/// The smallest range that is given up: md's unit of recovery.
const BLOCK_BYTES: u64 = 4096;

fn main() -> ExitCode {
    let mut paths = std::env::args_os().skip(1).map(PathBuf::from);
    let Some(output) = paths.next() else {
        eprintln!("usage: rescue OUTPUT MEMBER...");
        return ExitCode::from(2);
    };
    let members: Vec<PathBuf> = paths.collect();
    let array = match Array::open(&members) {
        Ok(array) => array,
        Err(error) => {
            explain(&error);
            return ExitCode::from(2);
        }
    };
    match rescue(&array, &output) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(lost) => {
            eprintln!("{lost} bytes could not be read");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{}: {error}", output.display());
            ExitCode::FAILURE
        }
    }
}

/// Prints the parts of an error, each on its own line.
fn explain(error: &Error) {
    eprintln!("cannot open the array: {}", error.reason());
    for (what, value) in [("member", error.member()), ("field", error.field()), ("next", error.advice())] {
        if let Some(value) = value {
            eprintln!("  {what}: {value}");
        }
    }
}

/// Copies the whole array; returns the number of unreadable bytes.
fn rescue(array: &Array, output: &PathBuf) -> Result<u64, Box<dyn std::error::Error>> {
    let status = array.status()?;
    eprintln!("{} {:?}, {} bytes, {}", status.level, status.name, status.array_bytes, status.state);
    for left_out in &status.left_out {
        eprintln!("not used: {}: {}", left_out.name, left_out.reason);
    }
    let copy = File::create_new(output)?; // never overwrites a file
    copy.set_len(array.bytes())?;
    let piece_bytes = array.preferred_bytes() * 16;
    let mut lost = 0;
    for at in (0..array.bytes()).step_by(piece_bytes as usize) {
        lost += copy_range(array, &copy, at..(at + piece_bytes).min(array.bytes()))?;
    }
    copy.sync_all()?;
    Ok(lost)
}

/// Copies a range at once; if that fails, in halves, down to single blocks.
fn copy_range(array: &Array, copy: &File, range: Range<u64>) -> std::io::Result<u64> {
    let bytes = range.end - range.start;
    let mut buffer = vec![0; bytes as usize];
    let Err(error) = array.read_exact_at(&mut buffer, range.start) else {
        copy.write_all_at(&buffer, range.start)?;
        return Ok(0);
    };
    if bytes <= BLOCK_BYTES {
        eprintln!("lost: {bytes} bytes at {}: {error}", range.start);
        return Ok(bytes);
    }
    let middle = range.start + (bytes / 2).next_multiple_of(BLOCK_BYTES);
    Ok(copy_range(array, copy, range.start..middle)? + copy_range(array, copy, middle..range.end)?)
}
