//! `detect`: everything on some disks, as a tree: partitions, arrays, what is inside of each, and the next command.
//!
//! It only reads, also members in use, and takes no lock. Arrays are assembled by the rules of `serve --read-only`;
//! what cannot be assembled is listed with the reason.

mod arrays;
mod containers;
mod layer;
mod next;
mod search;
mod text;
mod volumes;

use crate::command::cli::arguments::DetectArguments;
use crate::command::opening::container;
use crate::command::opening::members::expand_with_directories;
use crate::command::text::failure::Failure;
use crate::command::text::output::{print, print_json, tell};
use crate::layers::{Physical, members_in};
use crate::machine::{Arena, Machine, Purpose};
use crate::maps::Maps;
use crate::names::name_of;
use crate::place::{DiskFile, resolve};
use crate::whole_disks;
use arrays::{ArrayFound, Assembled, Offered};
use containers::ContainerFound;
use disk::{Section, Source};
use engine::Candidate;
use engine::inspect::find_superblock;
use layer::Layer;
pub(super) use next::{find, word};
use parity::Kernel;
use serde::Serialize;
use std::path::{Path, PathBuf};
use volumes::VolumeGroup;

/// The findings. Their fields are a stable interface (docs/json.md).
#[derive(Serialize)]
struct Report {
    disks: Vec<DiskFound>,
    arrays: Vec<ArrayFound>,
    volume_groups: Vec<VolumeGroup>,
    containers: Vec<ContainerFound>,
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

/// The deepest nesting of arrays that is looked into.
const DEPTH_MAX: usize = 4;

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
    let mut of_containers = Vec::new();
    for path in paths {
        match container::look(path) {
            Some(Ok(disk)) => of_containers.push(disk),
            Some(Err(reason)) => unusable.push(Unusable { name: name_of(path), reason }),
            None => {}
        }
        match look(machine, path, &mut members, &mut physical).await {
            Ok(disk) => disks.push(disk),
            Err(error) => {
                let reason = format!("{}: {error}", name_of(path));
                unusable.push(Unusable { name: name_of(path), reason });
            }
        }
    }
    let outer = members.iter().filter_map(|path| machine.open(path, Purpose::Look).ok());
    let mut offered: Vec<Offered> = outer.map(|candidate| Offered { candidate, inside_of: None }).collect();
    let mut arrays = Vec::new();
    // Arrays of files and devices first, then the arrays inside of them.
    for _ in 0..DEPTH_MAX {
        for Assembled { found, bytes } in arrays::assemble(machine, std::mem::take(&mut offered)).await {
            if let Some(bytes) = bytes {
                physical.extend(Physical::of(found.uuid.clone(), bytes.clone()).await.and_then(Result::ok));
                offered.extend(members_in(&found.uuid, &bytes).await.into_iter().map(|member| Offered {
                    candidate: Candidate { name: member.name, member: member.bytes.member() },
                    inside_of: Some((found.uuid.clone(), member.bytes)),
                }));
            }
            arrays.push(found);
        }
    }
    let mut volume_groups = volumes::groups(machine, &physical).await;
    let mut containers = containers::look(machine, of_containers).await;
    next::add(&mut arrays, &mut volume_groups, &machine.maps);
    next::add_of_containers(&mut containers, &machine.maps);
    Report { disks, arrays, volume_groups, containers, unusable }
}

/// Looks at one disk; adds the members of arrays and the physical volumes on it.
async fn look(
    machine: &Machine,
    path: &Path,
    members: &mut Vec<PathBuf>,
    physical: &mut Vec<Physical>,
) -> std::io::Result<DiskFound> {
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
        note_hidden(machine, path).await;
        physical.extend(volumes::on_disk(machine, path, &content).await);
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
        note_hidden(machine, &place).await;
        physical.extend(volumes::on_disk(machine, &place, &content).await);
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

/// Says that an image counts as no member because its map has a hole where a superblock may be.
async fn note_hidden(machine: &Machine, path: &Path) {
    if machine.maps.is_empty() {
        return;
    }
    let Ok(Candidate { name, member }) = machine.open(path, Purpose::Look) else { return };
    let found = find_superblock(&name, &member, &machine.pool).await;
    if found.is_err_and(|refusal| Maps::hide(&refusal)) {
        tell!(
            "note: {name}: its map has a hole where md's superblock may be, so it is taken for no member of an array"
        );
    }
}

impl Report {
    /// The result for the exit status, as of `examine`.
    fn verdict<'a>(&'a self) -> Result<(), Failure> {
        if !self.unusable.is_empty() {
            let reasons: Vec<&str> = self.unusable.iter().map(|disk| &*disk.reason).collect();
            return Err(Failure::refused(reasons.join("\n  and: ")).advise("name disks, their images, or members"));
        }
        let of_array = |array: &'a ArrayFound| {
            let reason = format!("array {}: {}", array.uuid, array.refusal.as_deref()?);
            Some((reason, array.advice.as_deref()))
        };
        let volumes = self.containers.iter().flat_map(|container| &container.volumes);
        let mut of_volumes = volumes.filter_map(|volume| Some((volume.refusal.clone()?, volume.advice.as_deref())));
        match self.arrays.iter().find_map(of_array).or_else(|| of_volumes.next()) {
            None => Ok(()),
            Some((reason, None)) => Err(Failure::unwell(reason)),
            Some((reason, Some(advice))) => Err(Failure::unwell(reason).advise(advice)),
        }
    }
}
