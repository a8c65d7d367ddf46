//! The instructions that the parity kernels of aarch64 take for a byte, counted in emulation.
//!
//! Each instruction becomes a block of its own, and the emulator logs each block that it runs. Two runs of different
//! lengths leave out how the program starts. Speeds in emulation say nothing, so none is measured.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::{EMULATOR, LIBRARIES};
use crate::steps::Log;

/// The computations of the example `arithmetic`, with the largest share of the portable kernel's instructions that the
/// kernel `neon` may take.
const COMPUTATIONS: [(&str, f64); 4] = [("xor", 0.85), ("pq", 0.45), ("one-lost", 0.4), ("both-lost", 0.4)];

const KERNELS: [&str; 3] = ["portable", "neon", "neon-sha3"];

/// Bytes of data that one computation takes: 8 blocks of 4 KiB.
const BYTES: f64 = 32768.0;

/// Counts them all and writes a table into the log; returns a text about the gains.
pub(super) fn count(log: &mut Log, program: &Path) -> Result<String> {
    let mut counts = BTreeMap::new();
    let mut table = String::from("instructions for a byte:\n");
    for kernel in KERNELS {
        write!(table, "{kernel:10}")?;
        for (computation, _) in COMPUTATIONS {
            let for_a_byte = count_one(program, kernel, computation)?;
            write!(table, " {computation} {for_a_byte:.3}")?;
            counts.insert((kernel, computation), for_a_byte);
        }
        table.push('\n');
    }
    log.write(&table)?;
    let mut gains = Vec::new();
    for (computation, most) in COMPUTATIONS {
        let share = counts[&("neon", computation)] / counts[&("portable", computation)];
        ensure!(share <= most, "{computation}: neon takes {share:.2} of portable's instructions, more than {most}");
        gains.push(format!("{computation} {share:.2}"));
    }
    Ok(format!("neon's instructions to portable's: {}", gains.join(", ")))
}

/// Instructions of one computation for each byte.
fn count_one(program: &Path, kernel: &str, computation: &str) -> Result<f64> {
    let run = |times: u32| -> Result<u64> {
        // The loader takes more or fewer instructions by the addresses, which are random otherwise.
        let mut emulator = Command::new("setarch");
        emulator.args(["--addr-no-randomize", EMULATOR]);
        // The variable's name is another one since qemu 8.1.
        emulator.env("QEMU_SINGLESTEP", "1").env("QEMU_ONE_INSN_PER_TB", "1");
        emulator.args(["-L", LIBRARIES, "-d", "exec,nochain"]).arg(program);
        emulator.args([kernel, computation, &times.to_string()]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = emulator.spawn().context(EMULATOR)?;
        let lines = lines(child.stderr.take().context("its log")?)?;
        ensure!(child.wait()?.success(), "{kernel} {computation}: the program failed");
        Ok(lines)
    };
    // Now and then a start takes thousands more or fewer: the middle one of three counts.
    let middle = |times| -> Result<u64> {
        let mut counts = [run(times)?, run(times)?, run(times)?];
        counts.sort_unstable();
        Ok(counts[1])
    };
    let (short, long) = (middle(1)?, middle(3)?);
    ensure!(short < long, "{kernel} {computation}: {short} instructions for one, and {long} for three");
    Ok((long - short) as f64 / 2.0 / BYTES)
}

/// Counts lines.
fn lines(mut from: impl std::io::Read) -> Result<u64> {
    let (mut buffer, mut count) = (vec![0; 1 << 16], 0);
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(count),
            bytes => count += buffer[..bytes].iter().filter(|byte| **byte == b'\n').count() as u64,
        }
    }
}
