//! The steps `newest`, `pages` and `pages-64k`: mdspace and the md of an emulated system use each other's arrays. The step
//! `newest-geometry`: that md places data as mdspace expects.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::System;
use super::table::Record;
use super::tree::Tree;
use crate::catalogue::{RELEASED, Scratch, build_released, geometry_by, run_guest};
use crate::cross;
use crate::guest::Guest;
use crate::kernels::Kernel;
use crate::matrix::{self, random::Random};
use crate::root;
use crate::steps::{Log, Verdict};

fn guest(kernel: Kernel) -> Guest {
    Guest::default().kernel(kernel).memory("1536M").limit(Duration::from_secs(1500))
}

/// Cells of the matrix for each level, others in each run. They take six minutes; all cells would take an hour.
const SAMPLE_CELLS: usize = 4;

/// The step `newest`: the newest kernel and mdadm for this processor, with a sample of the matrix; and an array that they
/// made goes to an older kernel.
pub(crate) fn newest(log: &mut Log) -> Result<Verdict> {
    let tree = Tree::fetch(log, System::Newest)?;
    build_released(log)?;
    let (mdspace, place) = (root().join(RELEASED), Scratch::create("newest")?);
    let both = both_ways(log, System::Newest, &mdspace, Some(&place.path))?;
    goes_to_an_older_kernel(log, &mdspace, &place.path)?;
    takes_recorded(log, Kernel::System(System::Newest), "taken", &place.path)?;
    let seed = std::process::id().into();
    log.write(&format!("matrix: --system newest --seed {seed} --random 0 --sample {SAMPLE_CELLS}\n"))?;
    let of_sample = matrix::Arguments::of(System::Newest, SAMPLE_CELLS, seed);
    let summary = matrix::run(&matrix::Arguments { mdspace: Some(mdspace), ..of_sample })?;
    log.write(&summary)?;
    ensure!(both.contains(&tree.release), "the guest ran another kernel: {both}");
    let tested =
        format!("emulated: arrays of every level both ways with md; {SAMPLE_CELLS} cells of the matrix for each level");
    leave(System::Newest, &both, "x86_64-unknown-linux-gnu", &tested)?;
    let cells = summary.lines().find(|line| line.contains("assembled by the kernel")).unwrap_or_default().trim();
    Ok(Verdict::Passed(format!("{both}; its array taken by an older kernel; matrix: {cells}")))
}

/// The step `newest-geometry`: the geometry, against arrays that the newest kernel makes.
pub(crate) fn newest_geometry(log: &mut Log) -> Result<Verdict> {
    Tree::fetch(log, System::Newest)?;
    geometry_by(log, &guest(Kernel::System(System::Newest)))
}

/// The step `pages`: a system with pages of 16 KiB, and the command built for it.
pub(crate) fn pages(log: &mut Log) -> Result<Verdict> {
    on_another_processor(log, System::Pages16K, cross::AARCH64)
}

/// The step `pages-64k`: the same with pages of 64 KiB.
pub(crate) fn pages_64k(log: &mut Log) -> Result<Verdict> {
    on_another_processor(log, System::Pages64K, cross::POWERPC64LE)
}

fn on_another_processor(log: &mut Log, system: System, target: cross::Target) -> Result<Verdict> {
    Tree::fetch(log, system)?;
    let Some(mdspace) = cross::build_command(log, target)? else {
        return Ok(Verdict::Skipped(cross::NO_SOURCE.into()));
    };
    let both = both_ways(log, system, &mdspace, None)?;
    leave(system, &both, target.triple, "emulated: arrays of every level both ways with md")?;
    Ok(Verdict::Passed(both))
}

/// Leaves a record for the table. `both` is the last line of tests/kernel/both_ways.sh.
fn leave(system: System, both: &str, target: &str, tested: &str) -> Result<()> {
    let facts = system.facts();
    let after = |word: &str| {
        let rest = both.split_once(word).with_context(|| format!("{both}: {word}"))?.1;
        let numbers: Vec<&str> = rest.split(|sign: char| !sign.is_ascii_digit()).take(2).collect();
        Ok::<_, anyhow::Error>(numbers.join("."))
    };
    let kernel = format!("Linux {}, mdadm {}", after("Linux ")?, after("mdadm, v")?);
    Record::new("Debian unstable", &kernel, facts.processor, target, tested).leave(facts.key)
}

/// Runs tests/kernel/both_ways.sh; returns its last line.
fn both_ways(log: &mut Log, system: System, mdspace: &Path, place: Option<&Path>) -> Result<String> {
    let mut arguments = vec![mdspace.as_os_str()];
    arguments.extend(place.map(Path::as_os_str));
    run_guest(log, &guest(Kernel::System(system)), "both_ways.sh", &arguments)?;
    log.last_line()
}

/// The members of an array that records its logical block, as tests/kernel/both_ways.sh leaves them.
fn recorded(place: &Path) -> [PathBuf; 3] {
    [0, 1, 2].map(|number| place.join(format!("recorded.{number}")))
}

/// Makes such members by mdspace.
pub(crate) fn record_a_block(log: &mut Log, mdspace: &Path, place: &Path) -> Result<()> {
    let (members, pool) = (recorded(place), place.join("pool"));
    fs::write(&pool, Random::new(0).bytes(4 << 20))?;
    let create = ["create", "--level", "5", "--chunk", "64K", "--size", "12M", "--logical-block-size", "512"];
    log.run(Command::new(mdspace).args(create).args(&members))?;
    log.run(Command::new(mdspace).arg("write").args(&members).arg("--input").arg(pool))?;
    log.run(Command::new(mdspace).arg("read").args(&members).arg("--output").arg(place.join("recorded.model")))
}

/// The older kernel, which does not know the record, refuses these members until `mdspace update` has removed it.
pub(crate) fn goes_to_an_older_kernel(log: &mut Log, mdspace: &Path, place: &Path) -> Result<()> {
    takes_recorded(log, Kernel::Older, "refused", place)?;
    log.run(Command::new(mdspace).args(["update", "--clear-logical-block-size"]).args(recorded(place)))?;
    takes_recorded(log, Kernel::Older, "taken", place)
}

fn takes_recorded(log: &mut Log, kernel: Kernel, expected: &str, place: &Path) -> Result<()> {
    run_guest(log, &guest(kernel), "recorded.sh", &[OsStr::new(expected), place.as_os_str()])
}
