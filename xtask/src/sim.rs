//! `cargo xtask sim`: simulated histories by the thousand, and the step that runs some of them.
//!
//! The histories are the business of crates/sim; this builds its swarm fast and starts it.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::root;

/// What builds and starts the swarm.
pub(crate) fn swarm() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--locked", "--profile", "swarm", "--package", "mdspace-sim", "--example", "swarm"]);
    cargo.arg("--").current_dir(root());
    cargo
}

/// Hands `arguments` on to the swarm.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let status = swarm().args(arguments).status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
