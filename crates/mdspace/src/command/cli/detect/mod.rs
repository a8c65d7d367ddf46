//! `detect`: everything on some disks, as a tree: partitions, arrays, what is inside of each, and the next command.
//!
//! It only reads, also members in use, and takes no lock. Arrays are assembled by the rules of `serve --read-only`;
//! what cannot be assembled is listed with the reason.

mod arrays;
mod layer;
mod next;
mod search;
mod text;
mod volumes;

use crate::command::cli::arguments::DetectArguments;
use crate::command::opening::members::expand_with_directories;
use crate::command::text::failure::Failure;
use crate::command::text::output::{print, print_json};
use crate::machine::{Arena, Machine};
use crate::names::name_of;
use crate::place::{DiskFile, resolve};
use crate::whole_disks;
pub(super) use arrays::ArraySource;
use arrays::{ArrayFound, Assembled};
use disk::{Section, Source};
use layer::Layer;
use parity::Kernel;
use serde::Serialize;
use std::path::{Path, PathBuf};
use volumes::{Physical, VolumeGroup};

/// The findings. Their fields are a stable interface (docs/json.md).
#[derive(Serialize)]
struct Report {
    disks: Vec<DiskFound>,
    arrays: Vec<ArrayFound>,
    volume_groups: Vec<VolumeGroup>,
    unusable: Vec<Unusable>,
}

/// A disk, or a file of any kind.
#[derive(Serialize)]
struct DiskFound {
    name: String,
    bytes: u64,
    /// Its partition table.
    table: Option<TableFound>,
    /// Its partitions, if it has a table.
    partitions: Vec<PartitionFound>,
    /// What it holds, if it has no table.
    content: Option<Layer>,
}

#[derive(Serialize)]
struct TableFound {
    /// `GPT` or `MBR`
    kind: &'static str,
    /// The sector size in which it counts.
    sector_bytes: u32,
    /// What is odd about it.
    notes: Vec<String>,
}

#[derive(Serialize)]
struct PartitionFound {
    /// The name to give where a member is expected.
    name: String,
    number: u32,
    at: u64,
    bytes: u64,
    /// A GUID, or a number such as `0xfd`.
    type_id: String,
    type_name: Option<&'static str>,
    label: Option<String>,
    content: Layer,
}

/// A file or device that cannot be looked at.
#[derive(Serialize)]
struct Unusable {
    name: String,
    reason: String,
}

/// Runs `mdspace detect`.
pub(crate) fn run(arguments: &DetectArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    if arguments.search {
        return search::run(arguments);
    }
    let paths = expand_with_directories(&arguments.disks)?;
    let machine = Machine::start(kernel, Arena::Medium)?.with_maps(arguments.maps.read()?);
    machine.maps.check_used(&paths)?;
    let report = machine.run(detect(&machine, &paths));
    if arguments.json {
        print_json(&report)?
    } else {
        print(&text::of(&report))?
    }
    report.verdict()
}

async fn detect(machine: &Machine, paths: &[PathBuf]) -> Report {
    let (mut disks, mut unusable, mut members, mut physical) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for path in paths {
        match look(path, &mut members, &mut physical).await {
            Ok(disk) => disks.push(disk),
            Err(error) => {
                let reason = format!("{}: {error}", name_of(path));
                unusable.push(Unusable { name: name_of(path), reason });
            }
        }
    }
    let mut arrays = Vec::new();
    for Assembled { found, array } in arrays::assemble(machine, &members).await {
        if let Some(array) = array
            && found.holds("lvm")
        {
            physical.extend(Physical::of_array(&found, array).await);
        }
        arrays.push(found);
    }
    let mut volume_groups = volumes::groups(&physical).await;
    next::add(&mut arrays, &mut volume_groups);
    Report { disks, arrays, volume_groups, unusable }
}

/// Looks at one disk; adds the members of arrays and the physical volumes on it.
async fn look(path: &Path, members: &mut Vec<PathBuf>, physical: &mut Vec<Physical>) -> std::io::Result<DiskFound> {
    let (file, part) = resolve(path)?;
    let file = DiskFile::open(&file)?;
    let io::Part { at, bytes } = part.unwrap_or(io::Part { at: 0, bytes: u64::MAX });
    let whole = Section::new(&file, at, bytes);
    let bytes = whole.bytes();
    let name = name_of(path);
    let Some(whole_disks::Disk { table, members: named, .. }) = whole_disks::look(path) else {
        let content = Layer::of(&whole).await;
        if content.kind == "md" {
            members.push(path.to_owned());
        }
        physical.extend(Physical::of_disk(path, &content).await);
        return Ok(DiskFound { name, bytes, table: None, partitions: Vec::new(), content: Some(content) });
    };
    let mut partitions = Vec::new();
    for partition in table.partitions {
        let content = Layer::of(&Section::new(&file, partition.at, partition.bytes)).await;
        let own = named.iter().find(|member| member.number == partition.number);
        let place = own.map_or_else(|| crate::place::partition_of(path, partition.number), |own| own.path.clone());
        if content.kind == "md" {
            members.push(place.clone());
        }
        physical.extend(Physical::of_disk(&place, &content).await);
        partitions.push(PartitionFound {
            name: name_of(&place),
            number: partition.number,
            at: partition.at,
            bytes: partition.bytes,
            type_id: partition.type_id,
            type_name: partition.type_name,
            label: partition.name,
            content,
        });
    }
    let table = TableFound { kind: table.kind.name(), sector_bytes: table.sector_bytes, notes: table.notes };
    Ok(DiskFound { name, bytes, table: Some(table), partitions, content: None })
}

impl Report {
    /// The result for the exit status, as of `examine`.
    fn verdict(&self) -> Result<(), Failure> {
        if !self.unusable.is_empty() {
            let reasons: Vec<&str> = self.unusable.iter().map(|disk| &*disk.reason).collect();
            return Err(Failure::refused(reasons.join("\n  and: ")).advise("name disks, their images, or members"));
        }
        let Some(array) = self.arrays.iter().find(|array| array.refusal.is_some()) else { return Ok(()) };
        let reason = array.refusal.as_deref().unwrap_or_default();
        let failure = Failure::unwell(format!("array {}: {reason}", array.uuid));
        Err(array.advice.iter().fold(failure, |failure, advice| failure.advise(advice)))
    }
}
