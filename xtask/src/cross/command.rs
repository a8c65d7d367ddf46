//! The command in emulation: it creates, examines, writes and reads an array of files.
//!
//! The emulator has no io_uring, so the command can open members only if it has another way. If it has none, this says
//! so. If it has one, all must succeed.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::{EMULATOR, LIBRARIES};
use crate::catalogue::Scratch;
use crate::matrix::random::Random;
use crate::steps::Log;

/// The bytes that are written and read, and where.
const BYTES: usize = 300_000;
const OFFSET: &str = "12345";

/// The option that selects another way than io_uring.
const OTHER_WAY: &str = "--io ";

/// Uses a command for the emulated processor; returns a text about it.
pub(crate) fn run(log: &mut Log, command: &Path) -> Result<&'static str> {
    let place = Scratch::create("cross")?;
    let place = place.path.as_path();
    let mut mdspace = |words: &str, input| mdspace(log, command, place, words, input);
    let help = mdspace("create --help", None)?;
    if !String::from_utf8_lossy(&help).contains(OTHER_WAY) {
        return Ok("the command starts, but opens NO members, for want of io_uring");
    }
    mdspace("create --level 6 --chunk 64K --size 8M a b c d", None)?;
    let examined = mdspace("examine a b c d", None)?;
    ensure!(String::from_utf8_lossy(&examined).contains("raid6"), "examine shows no RAID-6");
    let data = Random::new(0).bytes(BYTES);
    fs::write(place.join("data"), &data)?;
    mdspace(&format!("write a b c d --offset {OFFSET}"), Some("data"))?;
    let read = mdspace(&format!("read a d --offset {OFFSET} --length {BYTES}"), None)?;
    ensure!(read == data, "a RAID-6 without two members reads otherwise than it was written");
    Ok("the command creates, examines, writes and reads there")
}

/// Runs the command with these words, and a file as its input; returns its output.
fn mdspace(log: &mut Log, command: &Path, place: &Path, words: &str, input: Option<&str>) -> Result<Vec<u8>> {
    let mut emulator = Command::new(EMULATOR);
    emulator.args(["-L", LIBRARIES]).arg(command).args(words.split(' ')).current_dir(place);
    emulator.stdin(match input {
        Some(name) => File::open(place.join(name))?.into(),
        None => Stdio::null(),
    });
    let output = emulator.output().context(EMULATOR)?;
    log.write(&format!("$ mdspace {words}\n{}", String::from_utf8_lossy(&output.stderr)))?;
    ensure!(output.status.success(), "mdspace {words}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}
