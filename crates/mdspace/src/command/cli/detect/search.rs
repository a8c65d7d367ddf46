//! `detect --search`: the shape of an array whose superblocks are lost, from the data on its disks.
//!
//! The crate `search` finds it; this file opens the disks for reading, and prints the result with the next command.

use crate::command::cli::arguments::DetectArguments;
use crate::command::opening::members::expand;
use crate::command::text::failure::Failure;
use crate::command::text::geometry::GeometryText;
use crate::command::text::output::{print, print_json, tell};
use crate::command::text::progress::Progress;
use crate::command::text::size::Size;
use crate::maps::Maps;
use crate::names::{name_of, shell_word};
use crate::place::{DiskFile, at_once, is_part, partition_of, resolve};
use disk::table::{Partition, find};
use disk::{Section, Source};
use format::geometry::Level;
use search::{Answer, Difference, Recency, Verdict};
use serde::Serialize;
use std::cell::RefCell;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The findings. Their fields are a stable interface (docs/json.md).
#[derive(Serialize)]
struct Report {
    /// `found`, `undecided` or `nothing`
    verdict: &'static str,
    /// Why nothing was found.
    reason: Option<String>,
    /// What is inside: `ext4`, `XFS` or `Btrfs`, or what is around it: `LVM`, `a partition table` or `LUKS`.
    file_system: Option<&'static str>,
    file_system_bytes: u64,
    read_bytes: u64,
    unreadable_bytes: u64,
    /// The shape, or all that the data does not tell apart.
    shapes: Vec<ShapeFound>,
    /// The best of those that the data rules out.
    second: Option<ShapeFound>,
}

/// A shape.
#[derive(Serialize)]
struct ShapeFound {
    /// The text for `--geometry`.
    geometry: String,
    /// Disks that are in no slot.
    left_out: Vec<String>,
    /// Blocks that the file system knows, and that are where this shape has them.
    fits: u64,
    /// Those that are not.
    against: u64,
    /// Bytes that it takes for data, and in which superblocks of md have been written since.
    overwritten: Vec<Overwritten>,
    /// Bytes in blocks that it reads otherwise than the first shape, and the first of them in the array.
    differs: Option<Differs>,
    /// Whether its file system is `newer` or `older` than those of the other shapes, by what its superblock says.
    file_system_is: Option<&'static str>,
    /// Commands that come next.
    next: Vec<String>,
}

/// Bytes of the array.
#[derive(Serialize)]
struct Differs {
    at: u64,
    bytes: u64,
}

/// Bytes of a disk.
#[derive(Serialize)]
struct Overwritten {
    name: String,
    at: u64,
    bytes: u64,
}

/// Runs `mdspace detect --search`.
pub(super) fn run(arguments: &DetectArguments) -> Result<(), Failure> {
    let maps = arguments.maps.read()?;
    let paths = expand(&arguments.disks)?;
    maps.check_used(&paths)?;
    note_partitions(&paths);
    let files = paths.iter().map(|path| open(path)).collect::<Result<Vec<_>, _>>()?;
    let disks = files.iter().zip(&paths).map(|(file, path)| Imaged::of(file, path, &maps));
    let disks = disks.collect::<Result<Vec<_>, _>>()?;
    let shown = RefCell::new(None);
    let progress = |done: u64, total: u64| {
        let mut shown = shown.borrow_mut();
        let (bar, before) = shown.get_or_insert_with(|| (Progress::start("search", Some(total)), 0));
        bar.advance(done - *before);
        *before = done;
    };
    let found = at_once(search::search(&disks, arguments.search_bytes.0, &progress));
    drop(shown);
    let report = Report::of(found, &paths, &maps);
    match arguments.json {
        true => print_json(&report)?,
        false => print(&report.text())?,
    }
    match (report.verdict, report.reason) {
        ("found", _) => Ok(()),
        (_, Some(reason)) => Err(Failure::unwell(reason)
            .advise("give all disks of the array and no others; if you know its shape, state it with --geometry")),
        _ if report.shapes.len() == 1 && report.shapes[0].left_out.is_empty() => Err(Failure::unwell(
            "nothing confirms this shape: parity or copies could not be compared, or known blocks are elsewhere",
        )
        .advise("a disk may be stale or of another array: look at the files before you trust it; nothing is written")),
        _ if report.shapes.len() == 1 => Err(Failure::unwell(
            "one disk is stale or of another array, and nothing proves that it is the one that this shape leaves out",
        )
        .advise("look at the files that it reads before you trust it, or leave another disk out; nothing is written")),
        _ => Err(Failure::unwell("the data does not tell these shapes apart, and they read different bytes")
            .advise("try each, and look at the files: a wrong one shows damaged ones; nothing is written")),
    }
}

/// Notes disks that have partitions of md: the search takes a disk as it is named.
fn note_partitions(paths: &[PathBuf]) {
    for path in paths.iter().filter(|path| !is_part(path)) {
        let Ok(Ok(Some(table))) = DiskFile::open(path).map(|disk| at_once(find(&disk))) else { continue };
        let is_of_md = |partition: &&Partition| partition.type_name == Some("Linux RAID");
        let names = table.partitions.iter().filter(is_of_md).map(|found| name_of(&partition_of(path, found.number)));
        let names: Vec<String> = names.collect();
        if !names.is_empty() {
            tell!(
                "note: {}: searched as a whole; it has partitions of Linux RAID: {}",
                name_of(path),
                names.join(", ")
            );
        }
    }
}

/// A disk, or an image without what it lacks by its map.
struct Imaged<'a> {
    section: Section<'a, DiskFile>,
    /// The disk's, of which an image may lack the end.
    bytes: u64,
    /// Bytes, in order.
    holes: Vec<Range<u64>>,
}

impl<'a> Imaged<'a> {
    fn of((file, part): &'a (DiskFile, io::Part), path: &Path, maps: &Maps) -> Result<Self, Failure> {
        let section = Section::new(file, part.at, part.bytes);
        let mapped = maps.of_member(path, None)?;
        let holes = mapped.map(|mapped| mapped.holes(path, section.bytes())).transpose()?.flatten();
        let (bytes, holes) = holes.map_or((0, Vec::new()), |holes| (holes.disk_bytes, holes.ranges));
        Ok(Self { bytes: bytes.max(section.bytes()), section, holes })
    }
}

impl Source for Imaged<'_> {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    async fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, String> {
        let next = self.holes.partition_point(|hole| hole.end <= at);
        match self.holes.get(next).filter(|hole| hole.start < at + length as u64) {
            Some(hole) => Err(format!("byte {}: not in the image, by its map", hole.start.max(at))),
            None => self.section.read(at, length).await,
        }
    }
}

fn open(path: &Path) -> Result<(DiskFile, io::Part), Failure> {
    let opened = resolve(path).and_then(|(file, part)| Ok((DiskFile::open(&file)?, part)));
    let (file, part) = opened.map_err(|error| Failure::refused(format!("{}: {error}", name_of(path))))?;
    Ok((file, part.unwrap_or(io::Part { at: 0, bytes: u64::MAX })))
}

impl Report {
    fn of(found: search::Found, paths: &[PathBuf], maps: &Maps) -> Self {
        let is_readable = found.unreadable_bytes == 0;
        let shape = |answer: &Answer| ShapeFound::of(answer, paths, maps, is_readable);
        let (verdict, reason, answers) = match found.verdict {
            Verdict::Found(answer) => ("found", None, vec![answer]),
            Verdict::Undecided(answers) => ("undecided", None, answers),
            Verdict::Nothing(reason) => ("nothing", Some(reason), Vec::new()),
        };
        Self {
            verdict,
            reason,
            file_system: found.system,
            file_system_bytes: found.system_bytes,
            read_bytes: found.read_bytes,
            unreadable_bytes: found.unreadable_bytes,
            shapes: answers.iter().map(shape).collect(),
            second: found.second.as_ref().map(shape),
        }
    }

    fn text(&self) -> String {
        let mut text = match self.file_system {
            Some(system) => format!("inside: {system}, {}\n", Size(self.file_system_bytes)),
            None => String::new(),
        };
        if self.unreadable_bytes > 0 {
            text += &format!("unreadable: {}\n", Size(self.unreadable_bytes));
        }
        for ShapeFound { geometry, left_out, fits, against, overwritten, differs, file_system_is, next } in &self.shapes
        {
            text += &format!("geometry: {geometry}\n  {fits} known blocks fit it, {against} do not\n");
            if !left_out.is_empty() {
                text += &format!("  stale, or not of this array: {}\n", left_out.join(" "));
            }
            for Overwritten { name, at, bytes } in overwritten {
                text += &format!("  lost: {bytes} bytes at {at} of {name}, where md has written a superblock since\n");
            }
            if let Some(Differs { at, bytes }) = differs {
                text += &format!("  reads {bytes} bytes otherwise than the first shape, from {at} on\n");
            }
            if let Some(age) = file_system_is {
                text += &format!("  its file system is the {age} one, by its superblock\n");
            }
            next.iter().for_each(|next| text += &format!("  next: {next}\n"));
        }
        if let Some(ShapeFound { geometry, fits, against, .. }) = &self.second {
            text += &format!("ruled out, next best: {geometry}\n  {fits} known blocks fit it, {against} do not\n");
        }
        text
    }
}

impl ShapeFound {
    fn of(answer: &Answer, paths: &[PathBuf], maps: &Maps, is_readable: bool) -> Self {
        let name = |disk: &usize| name_of(&paths[*disk]);
        let order: Vec<Option<String>> = answer.order.iter().map(|disk| disk.as_ref().map(name)).collect();
        let geometry = GeometryText {
            level: answer.level,
            layout: Some(answer.layout).filter(|_| answer.level != Level::Raid0),
            chunk_bytes: answer.chunk_bytes,
            offsets: vec![answer.offset],
            size: answer.size_bytes,
            order: Some(order),
        };
        let geometry = geometry.to_string();
        let used: Vec<String> = answer.order.iter().flatten().map(name).collect();
        let options = format!("--geometry {}{}", shell_word(&geometry), maps.options(&used));
        let next = match is_readable {
            true => format!("mdspace read {options} --output array.img"),
            false => format!("mdspace read {options} --salvage --output array.img --map-out array.map"),
        };
        let left_out = answer.left_out.iter().map(name).collect();
        let overwritten = answer.overwritten.iter().map(|(disk, range)| Overwritten {
            name: name(disk),
            at: range.start,
            bytes: range.end - range.start,
        });
        let differs = answer.difference.map(|Difference { bytes, at }| Differs { at, bytes });
        let file_system_is = answer.recency.map(|recency| match recency {
            Recency::Newer => "newer",
            Recency::Older => "older",
        });
        let overwritten = overwritten.collect();
        let (fits, against) = (answer.fits, answer.against);
        Self { geometry, left_out, fits, against, overwritten, differs, file_system_is, next: vec![next] }
    }
}
