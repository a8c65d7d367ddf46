//! `cargo xtask sim`: simulated histories by the thousand, and the step that plays some of them.
//!
//! The histories are in crates/sim. This module builds its program optimized and starts it.

use std::process::{Command, ExitCode};

use anyhow::{Result, ensure};

use crate::steps::{Log, Verdict};
use crate::{mutants, root};

/// Cargo's arguments that build the simulator.
pub(crate) const HISTORIES: [&str; 4] = ["--profile", "swarm", "--package", "mdspace-sim"];

/// The command that builds and starts the swarm.
pub(crate) fn swarm() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--locked"]).args(HISTORIES).args(["--example", "swarm", "--"]).current_dir(root());
    cargo
}

/// Passes `arguments` to the swarm.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let status = swarm().args(arguments).status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The same histories in every run, so that a failure is about the change at hand.
const FIXED: [&str; 4] = ["--from", "0", "--count", "10000"];

/// Fresh histories in every run, which print their first seed.
const FRESH: [&str; 2] = ["--minutes", "0.7"];

/// What the fixed ones must come to: each log against the write hole.
const MET: [&str; 3] = ["lives with a partial parity log", "lives with a stripe log", "lives with a write journal"];

/// Few of them, for the quick layer.
const FEW: [&str; 4] = ["--from", "0", "--count", "500"];

/// The step of the quick layer.
pub(crate) fn few(log: &mut Log) -> Result<Verdict> {
    log.run(swarm().args(FEW))?;
    Ok(Verdict::Passed(log.last_line()?))
}

/// The step of the long layer: fresh ones, for as long as it is told.
pub(crate) fn long(log: &mut Log) -> Result<Verdict> {
    log.run(swarm().args(["--minutes", &log.minutes().to_string()]))?;
    Ok(Verdict::Passed(log.last_line()?))
}

/// The step: a fixed batch and a fresh one.
pub(crate) fn step(log: &mut Log) -> Result<Verdict> {
    log.run(mutants::with_hooks(&mut swarm()).args(FIXED).arg("--tally"))?;
    let tally = log.text()?;
    let missed = MET.into_iter().find(|met| !tally.contains(met));
    ensure!(missed.is_none(), "no history has {}", missed.unwrap_or_default());
    log.run(mutants::with_hooks(&mut swarm()).args(FRESH))?;
    Ok(Verdict::Passed(format!("and {}", log.last_line()?)))
}
