//! Everything on some disks, as data: partitions, arrays, and what is inside of each.
//!
//! It only reads, also members in use, and takes no lock. Arrays are assembled by the rules of reading; what cannot be
//! assembled is listed with the reason. `mdspace detect` prints the same, with containers of firmware RAID and the
//! commands that come next. The fields are a stable interface (docs/json.md).

mod arrays;
mod layer;
mod volumes;

use crate::error::Error;
use crate::layers::{Physical, members_in};
use crate::machine::{Arena, Machine, Purpose};
use crate::maps::Maps;
use crate::names::name_of;
use crate::place::{DiskFile, resolve};
use crate::whole_disks;
use ::io::AnyMember;
use ::io::signal::AllBlocked;
use arrays::{Assembled, Offered};
use disk::{Section, Source};
use engine::examined::Examination;
use engine::inspect::find_superblock;
use engine::status::{level_name, uuid_text};
use engine::wipe::superblocks;
use engine::{Candidate, Member, Refusal};
use format::superblock::{Superblock, Version};
use serde::Serialize;
use std::path::{Path, PathBuf};

pub use arrays::{ArrayFound, MemberFound};
pub use engine::examined::{Behind, Differs};
pub use layer::{Inner, Layer};
pub use volumes::VolumeGroup;

/// What was found.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Detected {
    /// The disks, or files of any kind.
    pub disks: Vec<DiskFound>,
    /// The arrays of the members on them, those of files and devices first, and then arrays inside of these.
    pub arrays: Vec<ArrayFound>,
    /// Groups of LVM, on arrays or beside them.
    pub volume_groups: Vec<VolumeGroup>,
    /// What cannot be looked at.
    pub unusable: Vec<Unusable>,
    /// What else should be known.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// A disk, or a file of any kind.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct DiskFound {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its partition table.
    pub table: Option<TableFound>,
    /// Its partitions, if it has a table.
    pub partitions: Vec<PartitionFound>,
    /// What it holds, if it has no table.
    pub content: Option<Layer>,
}

/// A partition table.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct TableFound {
    /// `GPT` or `MBR`
    pub kind: &'static str,
    /// The sector size in which it counts.
    pub sector_bytes: u32,
    /// What is odd about it.
    pub notes: Vec<String>,
}

/// A partition.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct PartitionFound {
    /// The name to give where a member is expected.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// Its first byte on the disk.
    pub at: u64,
    /// Its length.
    pub bytes: u64,
    /// A GUID, or a number such as `0xfd`.
    pub type_id: String,
    /// The type in words.
    pub type_name: Option<&'static str>,
    /// Its name in the table.
    pub label: Option<String>,
    /// What it holds.
    pub content: Layer,
}

/// A file or device that cannot be looked at.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Unusable {
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// A command that comes next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Next {
    /// What it does.
    pub(crate) what: String,
    pub(crate) command: String,
}

/// The deepest nesting of arrays that is looked into.
const DEPTH_MAX: usize = 4;

/// Looks at disks, their images, or files of any kind, and says what is on them.
///
/// Nothing is written, and members may be in use meanwhile. Containers of firmware RAID are not among the arrays.
///
/// # Errors
/// When the thread that looks cannot be started. A disk that cannot be looked at is among [`Detected::unusable`].
pub fn detect<I>(disks: I) -> Result<Detected, Error>
where
    I: IntoIterator,
    I::Item: AsRef<Path>,
{
    let paths: Vec<PathBuf> = disks.into_iter().map(|path| path.as_ref().to_owned()).collect();
    // A thread can have only one executor, and the caller's thread may have one.
    let work = || {
        let machine = Machine::start(None, Arena::Medium)?;
        Ok::<_, Error>(machine.run(look_at(&machine, &paths)))
    };
    std::thread::scope(|scope| {
        let blocked = AllBlocked::new();
        let handle = std::thread::Builder::new().spawn_scoped(scope, work);
        drop(blocked);
        let handle = handle.map_err(|error| Refusal::new(format!("a thread to look at the disks: {error}")))?;
        handle.join().unwrap_or_else(|_| Err(Error::stopped()))
    })
}

/// Says what is on the disks at `paths`.
pub(crate) async fn look_at(machine: &Machine, paths: &[PathBuf]) -> Detected {
    let (mut disks, mut unusable, mut members, mut physical) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut notes = Vec::new();
    for path in paths {
        match look(machine, path, &mut members, &mut physical, &mut notes).await {
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
    let volume_groups = volumes::groups(machine, &physical).await;
    Detected { disks, arrays, volume_groups, unusable, notes }
}

/// The metadata of a member.
pub(crate) async fn examine(machine: &Machine, name: &str, member: &AnyMember) -> Result<Examination, Refusal> {
    let found = find_superblock(name, member, &machine.pool).await?;
    Ok(Examination::of(name, member.limits().bytes, &found).with_logs(member, &found, &machine.pool).await)
}

/// Looks at one disk; adds the members of arrays and the physical volumes on it.
async fn look(
    machine: &Machine,
    path: &Path,
    members: &mut Vec<PathBuf>,
    physical: &mut Vec<Physical>,
    notes: &mut Vec<String>,
) -> std::io::Result<DiskFound> {
    let (file, part) = resolve(path)?;
    let file = DiskFile::open(&file)?;
    let ::io::Part { at, bytes } = part.unwrap_or(::io::Part { at: 0, bytes: u64::MAX });
    let whole = Section::new(&file, at, bytes);
    let bytes = whole.bytes();
    let name = name_of(path);
    let Some(whole_disks::Disk { table, members: named, .. }) = whole_disks::look(path) else {
        let content = Layer::of(&whole).await;
        if content.kind == "md" {
            members.push(path.to_owned());
            notes.extend(other_arrays(machine, path).await);
        }
        notes.extend(hidden(machine, path).await);
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
            notes.extend(other_arrays(machine, &place).await);
        }
        notes.extend(hidden(machine, &place).await);
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

/// What to say of superblocks beside the one that counts, as `mdadm --create` leaves those of another version.
async fn other_arrays(machine: &Machine, path: &Path) -> Vec<String> {
    let Ok(Candidate { name, member }) = machine.open(path, Purpose::Look) else { return Vec::new() };
    let places = superblocks(&name, &member, &machine.pool).await;
    let sound: Vec<_> =
        places.iter().filter_map(|place| Some((place.version, &place.found.as_ref().ok()?.superblock))).collect();
    let Some((_, counts)) = sound.iter().max_by_key(|(_, superblock)| superblock.created) else { return Vec::new() };
    let others = sound.iter().filter(|(_, superblock)| superblock.set_uuid != counts.set_uuid);
    let note = |(version, superblock): &(Version, &Superblock)| {
        let (uuid, level) = (uuid_text(&superblock.set_uuid), level_name(superblock.level));
        format!(
            "{name}: also has a superblock of metadata {} of array {uuid} ({level}, {} slots), which was created earlier: \
             an array that was here before, or one inside of this array",
            version, superblock.raid_disks
        )
    };
    others.map(note).collect()
}

/// What to say of an image that counts as no member because its map has a hole where a superblock may be.
async fn hidden(machine: &Machine, path: &Path) -> Option<String> {
    if machine.maps.is_empty() {
        return None;
    }
    let Candidate { name, member } = machine.open(path, Purpose::Look).ok()?;
    let found = find_superblock(&name, &member, &machine.pool).await;
    found.is_err_and(|refusal| Maps::hide(&refusal)).then(|| {
        format!("{name}: its map has a hole where md's superblock may be, so it is taken for no member of an array")
    })
}
