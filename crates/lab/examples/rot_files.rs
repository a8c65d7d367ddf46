//! Corrupts members in files, region by region, and judges a check and repairs of them. It is the part of `cargo xtask
//! figures` on silent corruption that knows the right contents.
//!
//! DIRECTORY holds files by slot: `right.0`, ... are the members before the corruption, `older.0`, ... before the last
//! write; `md.0`, ... and `ours.0`, ... are two identical corrupted copies. It also holds the reports of `mdspace scrub
//! --json` (`said.0`, ...), the array's contents (`model`), and what was read of the array after the driver's repair
//! (`md`) and after mdspace's (`ours`).
//!
//! The program runs no other command. What it does follows from the seed.

use clap::{Parser, Subcommand, ValueEnum};
use engine::ScrubReport;
use format::geometry::Level;
use mdspace_lab::rot::regions::{REGION_BYTES, array_bytes, judge_region, kind_of, spoil};
use mdspace_lab::rot::{Images, Kind, SHAPES, SURE_SHAPES, Said, Shape, Tally};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
    /// Level of the array
    #[arg(long, value_enum)]
    level: OfLevel,
    /// Whether its members have checksums
    #[arg(long)]
    integrity: bool,
    /// Byte at which data begins on each member
    #[arg(long)]
    data_at: u64,
    /// Number of regions, with one case in each
    #[arg(long)]
    regions: u64,
    directory: PathBuf,
}

#[derive(Subcommand, Clone, Copy)]
enum What {
    /// Make `md` and `ours`: copies of `right`, corrupted
    Spoil { seed: u64 },
    /// Fail unless `md` and `ours` hold the same data, which shows that the check changed nothing
    Untouched,
    /// Judge the reports and the repaired `ours` against `right`, with `md` as the corrupted state. Prints a line for
    /// each kind: its name, cases, wrong blocks, named, lost, undecidable, missed, healed, healthy ones named, healthy
    /// ones changed. Fails when less was decided than such an array allows.
    Judge,
    /// Compare what was read of the arrays with `model`. Prints for each kind the number of cases, and of those read
    /// correctly from `md` and from `ours`
    Read,
}

#[derive(Clone, Copy, ValueEnum)]
enum OfLevel {
    #[value(name = "1")]
    Raid1,
    #[value(name = "5")]
    Raid5,
    #[value(name = "6")]
    Raid6,
    #[value(name = "10")]
    Raid10,
}

impl Arguments {
    fn shape(&self) -> &'static Shape {
        let level = match self.level {
            OfLevel::Raid1 => Level::Raid1,
            OfLevel::Raid5 => Level::Raid5,
            OfLevel::Raid6 => Level::Raid6,
            OfLevel::Raid10 => Level::Raid10,
        };
        let shapes: &[Shape] = if self.integrity { &SURE_SHAPES } else { &SHAPES };
        shapes.iter().find(|shape| shape.level == level).expect("there is one of each level")
    }

    fn path(&self, name: &str, number: u16) -> PathBuf {
        self.directory.join(format!("{name}.{number}"))
    }

    fn slots(&self) -> std::ops::Range<u16> {
        0..self.shape().slots
    }

    /// The data areas of all members, up to the end of the last region.
    fn images(&self, name: &str) -> io::Result<Images> {
        let bytes = self.regions * REGION_BYTES;
        let image = |slot| {
            let mut image = vec![0; bytes as usize];
            File::open(self.path(name, slot))?.read_exact_at(&mut image, self.data_at)?;
            Ok(image)
        };
        self.slots().map(image).collect()
    }
}

fn main() -> io::Result<ExitCode> {
    let arguments = Arguments::parse();
    match arguments.what {
        What::Spoil { seed } => spoil_all(&arguments, seed)?,
        What::Untouched if arguments.images("md")? != arguments.images("ours")? => return Ok(ExitCode::FAILURE),
        What::Untouched => {}
        What::Judge => return judge(&arguments),
        What::Read => read(&arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn spoil_all(arguments: &Arguments, seed: u64) -> io::Result<()> {
    let (right, older) = (arguments.images("right")?, arguments.images("older")?);
    for slot in arguments.slots() {
        for name in ["md", "ours"] {
            fs::copy(arguments.path("right", slot), arguments.path(name, slot))?;
        }
    }
    let open = |name, slot| File::options().write(true).open(arguments.path(name, slot));
    for name in ["md", "ours"] {
        let files = arguments.slots().map(|slot| open(name, slot)).collect::<io::Result<Vec<_>>>()?;
        for region in 0..arguments.regions {
            let spoiled = spoil(&right, &older, region, seed);
            let at = arguments.data_at + region * REGION_BYTES;
            files.iter().zip(&spoiled).try_for_each(|(file, image)| file.write_all_at(image, at))?;
        }
    }
    Ok(())
}

/// The findings of all reports.
fn said(arguments: &Arguments) -> io::Result<Said> {
    let mut said = Said::default();
    for number in 0.. {
        let path = arguments.path("said", number);
        if !path.exists() {
            break;
        }
        let report: ScrubReport = serde_json::from_slice(&fs::read(path)?)?;
        said.add(&report, arguments.data_at);
    }
    Ok(said)
}

fn judge(arguments: &Arguments) -> io::Result<ExitCode> {
    let images = |name| arguments.images(name);
    let (right, spoiled, healed, said) = (images("right")?, images("md")?, images("ours")?, said(arguments)?);
    let mut tallies = Kind::ALL.map(|kind| (kind, Tally::default()));
    for region in 0..arguments.regions {
        let tally = judge_region(&right, &spoiled, &said, &healed, region);
        let of_kind = tallies.iter_mut().find(|(kind, _)| *kind == kind_of(region)).expect("all are there");
        of_kind.1 += tally;
    }
    let mut is_good = true;
    for (kind, tally) in tallies {
        let Tally { cases, wrong, named, lost, undecidable, missed, healed, accused, damaged, .. } = tally;
        let counts = [cases, wrong, named, lost, undecidable, missed, healed, accused, damaged].map(|n| n.to_string());
        println!("{}\t{}", kind.name(), counts.join("\t"));
        if !tally.is_as_good_as_can_be(arguments.shape(), kind) {
            eprintln!("{}: {tally:?}", kind.name());
            is_good = false;
        }
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read(arguments: &Arguments) -> io::Result<()> {
    let bytes = array_bytes(arguments.shape()) as usize;
    let all = |name: &str| fs::read(arguments.directory.join(name));
    let (model, md, ours) = (all("model")?, all("md")?, all("ours")?);
    for kind in Kind::ALL {
        let regions = (0..arguments.regions).filter(|&region| kind_of(region) == kind);
        let (mut cases, mut right) = (0, [0, 0]);
        for region in regions {
            let part = region as usize * bytes..(region as usize + 1) * bytes;
            cases += 1;
            for (count, read) in right.iter_mut().zip([&md, &ours]) {
                *count += u64::from(read[part.clone()] == model[part.clone()]);
            }
        }
        println!("{}\t{cases}\t{}\t{}", kind.name(), right[0], right[1]);
    }
    Ok(())
}
