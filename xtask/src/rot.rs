//! Silent corruption by the thousand: the same members are repaired by the real driver and by `mdspace scrub --repair`.
//!
//! A batch is one array in which each region is a case (crates/lab/src/rot/regions.rs). `mdspace` creates it and writes
//! it twice. It is then corrupted, checked by `mdspace`, which must change nothing, and repaired by `mdspace`. The
//! driver repairs a copy, then checks and reads both. Everything follows from the batch's seed.
//!
//! A batch fails unless mdspace decides all that such an array allows. The driver's results are only counted.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::guest::Guest;
use crate::matrix::random::Random;
use crate::root;

/// A kind of array, as in crates/lab/src/rot.
struct Shape {
    name: &'static str,
    level: &'static str,
    members: usize,
    layout: Option<&'static str>,
    has_chunks: bool,
    integrity: bool,
}

const fn shape(name: &'static str, level: &'static str, members: usize) -> Shape {
    Shape { name, level, members, layout: None, has_chunks: true, integrity: true }
}

/// Arrays in which checksums identify the wrong block.
const SURE: [Shape; 4] = [
    Shape { has_chunks: false, ..shape("RAID-1, 2 copies", "1", 2) },
    shape("RAID-5", "5", 5),
    shape("RAID-6", "6", 6),
    Shape { layout: Some("n2"), ..shape("RAID-10, 2 copies", "10", 4) },
];

/// Arrays in which parity or most copies identify it, or nothing does.
const UNSURE: [Shape; 4] = [
    Shape { has_chunks: false, integrity: false, ..shape("RAID-1, 3 copies", "1", 3) },
    Shape { integrity: false, ..shape("RAID-5", "5", 5) },
    Shape { integrity: false, ..shape("RAID-6", "6", 6) },
    Shape { layout: Some("n3"), integrity: false, ..shape("RAID-10, 3 copies", "10", 4) },
];

/// Bytes of a region on each member, as in crates/lab/src/rot/regions.rs.
const REGION_BYTES: u64 = 48 << 10;

/// The most cases of a batch, whose members then take some 150 MB each.
const BATCH: u64 = 3200;

/// Cases per check, so that the report can list all findings.
const CHECKED: u64 = 200;

/// At most this much of a member is metadata and checksums.
const METADATA_BYTES: u64 = 8 << 20;

/// The outcome of the cases of one kind, in the order in which rot_files.rs prints it.
#[derive(Clone, Default)]
struct Counts {
    kind: String,
    /// Cases, wrong blocks, named, lost, undecidable, missed, healed, healthy ones named, healthy ones changed.
    judged: [u64; 9],
    /// Cases whose data is right after the driver's repair, and after mdspace's.
    right: [u64; 2],
}

/// The programs under test, and the judge.
struct Programs {
    mdspace: PathBuf,
    judge: PathBuf,
}

impl Programs {
    fn build() -> Result<Self> {
        let cargo = |words: &[&str]| -> Result<()> {
            let status = Command::new(env!("CARGO")).arg("build").args(words).current_dir(root()).status()?;
            ensure!(status.success(), "cargo build {}: {status}", words.join(" "));
            Ok(())
        };
        let packages = ["--package", "mdspace", "--package", "mdspace-lab"];
        let programs = ["--bin", "mdspace", "--example", "rot_files"];
        cargo(&[&["--quiet", "--locked", "--release"], &packages[..], &programs[..]].concat())?;
        let target = root().join("target/release");
        Ok(Self { mdspace: target.join("mdspace"), judge: target.join("examples/rot_files") })
    }
}

/// The table for docs/bench.md, from `sure` cases with checksums and `unsure` without.
pub(crate) fn table(sure: u64, unsure: u64) -> Result<String> {
    let programs = Programs::build()?;
    let mut text = String::new();
    for (shapes, cases) in [(&SURE, sure), (&UNSURE, unsure)] {
        for (number, shape) in shapes.iter().enumerate() {
            for counts in of_shape(&programs, shape, cases / shapes.len() as u64, number as u64)? {
                text += &row(shape, &counts);
            }
        }
    }
    Ok(text)
}

/// Runs some cases of each shape with checksums, as CI does; returns the number of cases.
pub(crate) fn some(cases: u64) -> Result<u64> {
    let programs = Programs::build()?;
    let mut done = 0;
    for (number, shape) in SURE.iter().enumerate() {
        done += of_shape(&programs, shape, cases, number as u64)?.iter().map(|counts| counts.judged[0]).sum::<u64>();
    }
    Ok(done)
}

fn row(shape: &Shape, counts: &Counts) -> String {
    let [cases, wrong, named, lost, undecidable, missed, healed, accused, changed] = counts.judged;
    let [md, ours] = counts.right;
    let checksums = if shape.integrity { "yes" } else { "no" };
    let healthy = accused + changed;
    format!(
        "| {} | {checksums} | {} | {cases} | {wrong} | {named} | {lost} | {undecidable} | {missed} | {healed} | {healthy} | {ours} | {md} |\n",
        shape.name, counts.kind
    )
}

/// Runs this many cases of a shape, batch by batch.
fn of_shape(programs: &Programs, shape: &Shape, cases: u64, seed: u64) -> Result<Vec<Counts>> {
    let mut all: Vec<Counts> = Vec::new();
    let mut left = cases;
    while left > 0 {
        let batch = Batch::make(programs, shape, left.min(BATCH), seed << 32 | left)?;
        let counts = batch.run().with_context(|| format!("{}, seed {}", shape.name, batch.seed))?;
        if all.is_empty() {
            all = counts;
        } else {
            for (sum, more) in all.iter_mut().zip(counts) {
                sum.judged.iter_mut().zip(more.judged).for_each(|(sum, more)| *sum += more);
                sum.right.iter_mut().zip(more.right).for_each(|(sum, more)| *sum += more);
            }
        }
        left -= left.min(BATCH);
    }
    Ok(all)
}

struct Batch<'a> {
    programs: &'a Programs,
    shape: &'a Shape,
    cases: u64,
    seed: u64,
    /// The directory of all files, which is removed at the end.
    place: tempfile::TempDir,
    data_at: u64,
    array_bytes: u64,
}

impl<'a> Batch<'a> {
    /// Creates an array and writes it twice; keeps copies of its members from before and after the second time.
    fn make(programs: &'a Programs, shape: &'a Shape, cases: u64, seed: u64) -> Result<Self> {
        let place = tempfile::Builder::new().prefix("rot.").tempdir_in(root().join("target"))?;
        let mut batch = Self { programs, shape, cases, seed, place, data_at: 0, array_bytes: 0 };
        let size = (cases * REGION_BYTES + METADATA_BYTES).to_string();
        let mut create = batch.mdspace("create");
        create.args(["--json", "--level", shape.level, "--size", &size]);
        create.args(shape.has_chunks.then_some(["--chunk", "8K"]).into_iter().flatten());
        create.args(shape.layout.map(|layout| ["--layout", layout]).into_iter().flatten());
        create.args(shape.integrity.then_some("--integrity"));
        batch.printed(create.args(batch.members("right")))?;

        let mut examine = batch.mdspace("examine");
        let told: Value = serde_json::from_slice(&batch.printed(examine.arg("--json").args(batch.members("right")))?)?;
        batch.data_at = told["members"][0]["data_at"].as_u64().context("data_at")?;
        batch.array_bytes = told["arrays"][0]["status"]["array_bytes"].as_u64().context("array_bytes")?;
        let component = told["arrays"][0]["status"]["component_bytes"].as_u64().context("component_bytes")?;
        ensure!(component >= cases * REGION_BYTES, "{component} bytes of each member are too few");

        let mut random = Random::new(seed);
        for is_last in [false, true] {
            fs::write(batch.file("model"), random.bytes(batch.array_bytes as usize))?;
            let mut write = batch.mdspace("write");
            batch.printed(write.arg("-i").arg(batch.file("model")).args(batch.members("right")))?;
            for slot in (0..shape.members).filter(|_| !is_last) {
                fs::copy(batch.file(&format!("right.{slot}")), batch.file(&format!("older.{slot}")))?;
            }
        }
        Ok(batch)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn members(&self, name: &str) -> Vec<PathBuf> {
        (0..self.shape.members).map(|slot| self.file(&format!("{name}.{slot}"))).collect()
    }

    fn mdspace(&self, command: &str) -> Command {
        let mut mdspace = Command::new(&self.programs.mdspace);
        mdspace.arg(command).env("XDG_STATE_HOME", self.file("state"));
        mdspace
    }

    /// The output of a command, which must succeed.
    fn printed(&self, command: &mut Command) -> Result<Vec<u8>> {
        let output = command.output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command:?}: {}\n{error}", output.status);
        Ok(output.stdout)
    }

    /// Runs the judge; returns its lines, split at tabs.
    fn judge(&self, what: &[&str]) -> Result<Vec<Vec<String>>> {
        let mut judge = Command::new(&self.programs.judge);
        judge.args(["--level", self.shape.level]).args(self.shape.integrity.then_some("--integrity"));
        judge.args(["--data-at", &self.data_at.to_string(), "--regions", &self.cases.to_string()]);
        let lines = self.printed(judge.arg(self.place.path()).args(what))?;
        Ok(String::from_utf8(lines)?.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
    }

    /// Scrubs mdspace's members, which must find something; returns the report.
    fn scrub(&self, words: &[String]) -> Result<Vec<u8>> {
        let mut scrub = self.mdspace("scrub");
        let output = scrub.arg("--json").args(words).args(self.members("ours")).output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1), "{scrub:?}: {}, though members are spoiled\n{error}", output.status);
        Ok(output.stdout)
    }

    /// Runs the whole batch.
    fn run(&self) -> Result<Vec<Counts>> {
        self.judge(&["spoil", &self.seed.to_string()])?;
        let region = self.region_bytes();
        for (number, first) in (0..self.cases).step_by(CHECKED as usize).enumerate() {
            let length = CHECKED.min(self.cases - first) * region;
            let words =
                ["--offset".to_owned(), (first * region).to_string(), "--length".to_owned(), length.to_string()];
            fs::write(self.file(&format!("said.{number}")), self.scrub(&words)?)?;
        }
        self.judge(&["untouched"]).context("a check changed what it read")?;
        self.scrub(&["--repair".to_owned()])?;
        let judged = self.judge(&["judge"])?;

        let left: Value = serde_json::from_slice(&self.scrub(&[])?)?;
        let (theirs, ours) = (self.by_the_driver()?, left["counts"]["mismatch_cnt"].as_u64().context("mismatch_cnt")?);
        // P is a sum that does not depend on the order of blocks: exchanged blocks look right to the driver.
        let is_same = theirs == ours || (self.shape.level == "5" && self.shape.integrity && theirs < ours);
        ensure!(
            is_same,
            "the driver counts {theirs} mismatches in what is left, and mdspace {ours}: {}",
            left["counts"]
        );
        let read = self.judge(&["read"])?;
        judged.iter().zip(&read).map(|(judged, read)| counts(judged, read)).collect()
    }

    /// Bytes of the array in a region.
    fn region_bytes(&self) -> u64 {
        let members = self.shape.members as u64;
        match (self.shape.level, self.shape.layout) {
            ("5", _) => REGION_BYTES * (members - 1),
            ("6", _) => REGION_BYTES * (members - 2),
            (_, Some(layout)) => REGION_BYTES * members / if layout == "n3" { 3 } else { 2 },
            _ => REGION_BYTES,
        }
    }

    /// Lets the driver repair its copy, check mdspace's, and read both. Returns the mismatches that it counts in
    /// mdspace's.
    fn by_the_driver(&self) -> Result<u64> {
        let disks = self.members("md").into_iter().chain(self.members("ours"));
        let guest =
            disks.fold(Guest::default().memory("1G").limit(Duration::from_secs(600)), |guest, disk| guest.disk(&disk));
        for name in ["md", "ours"] {
            File::create(self.file(name))?;
        }
        let arguments = [self.place.path().as_os_str().to_owned(), self.shape.members.to_string().into()];
        let output = guest.run(&root().join("tests/kernel/rot.sh"), &arguments)?.success()?;
        output
            .lines()
            .last()
            .and_then(|line| line.parse().ok())
            .with_context(|| format!("the guest printed {output:?}"))
    }
}

/// Combines the judge's two lines about a kind.
fn counts(judged: &[String], read: &[String]) -> Result<Counts> {
    let ([kind, judged @ ..], [of, cases, right @ ..]) = (judged, read) else { bail!("{judged:?}, {read:?}") };
    let numbers = |words: &[String]| words.iter().map(|word| word.parse()).collect::<Result<Vec<u64>, _>>();
    let (judged, right) = (numbers(judged)?, numbers(right)?);
    let counts = Counts {
        kind: kind.clone(),
        judged: judged.try_into().ok().context("counts of what was judged")?,
        right: right.try_into().ok().context("counts of what was read")?,
    };
    ensure!(kind == of && counts.judged[0].to_string() == *cases, "{kind}, {of}: the cases are not the same");
    Ok(counts)
}
