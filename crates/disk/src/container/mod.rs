//! Containers: RAID metadata of firmware, DDF and IMSM, that one or more volumes share.
//!
//! Such metadata say of each volume what md's superblock says of an array. They are decoded into one type, whose levels
//! and layouts have md's numbers, so that the rest of the project treats a volume like an array whose shape is known.
//! They are not md's format, and the engine never sees them.
//!
//! Each disk has a copy of the metadata of the whole container. [`read`] decodes the copy of one disk; [`volumes`] puts
//! the copies together: the newest counts.
//!
//! Facts: SNIA's "Common RAID Disk Data Format Specification" 2.0, and mdadm's `super-ddf.c` and `super-intel.c`.

mod ddf;
mod imsm;

use crate::source::Source;
use format::geometry::Level;
use std::fmt;

/// The kind of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The Common RAID Disk Data Format.
    Ddf,
    /// Intel's Matrix Storage Manager.
    Imsm,
}

impl Kind {
    /// The usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ddf => "DDF",
            Self::Imsm => "IMSM",
        }
    }
}

/// How the metadata identify a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskId {
    /// By a number that is on the disk itself.
    Number(u32),
    /// By the serial number of the drive, which is not on the disk.
    Serial(String),
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "number {number:08x}"),
            Self::Serial(serial) => write!(f, "serial number \"{}\"", serial.escape_default()),
        }
    }
}

/// What one disk says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The kind.
    pub kind: Kind,
    /// The same on every disk of the container.
    pub id: String,
    /// Which of its disks this is, if the disk says so.
    pub disk: Option<DiskId>,
    /// The number of the metadata's last change.
    pub sequence: u64,
    /// The disks that the metadata list.
    pub disks: Vec<ListedDisk>,
    /// The volumes, in the metadata's order. DDF lists only those of this disk.
    pub volumes: Vec<Volume>,
}

/// A disk in the list of a container's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedDisk {
    /// The disk.
    pub id: DiskId,
    /// It is in use, has not failed, and is not being rebuilt.
    pub is_current: bool,
}

/// A volume: an array in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// What makes it different from others of the container.
    pub id: String,
    /// The part that this copy describes: DDF has a record for each part of a volume, on the disks of the part.
    pub part: usize,
    /// The number of the part's own last change, for copies of different age. Those of two parts do not compare.
    pub sequence: u64,
    /// The level.
    pub level: Level,
    /// The layout, in md's number.
    pub layout: u32,
    /// Bytes in a chunk; 0 for RAID-1 and linear.
    pub chunk_bytes: u64,
    /// Bytes that it uses on each disk.
    pub component_bytes: u64,
    /// Its length.
    pub bytes: u64,
    /// The disks, by slot; `None` where no disk is known, as in parts that only other disks describe.
    pub slots: Vec<Option<Place>>,
    /// Copies or parity may not agree: it was not stopped, or was not yet initialized.
    pub is_dirty: bool,
    /// Why it cannot be read: a state that is not understood.
    pub refusal: Option<String>,
}

/// A slot of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The disk.
    pub disk: DiskId,
    /// Its first byte on the disk.
    pub at: u64,
    /// Its data is current: the disk has not failed, and is not being rebuilt.
    pub is_current: bool,
}

/// The most volumes that are read of a container.
const VOLUMES_MAX: usize = 256;

/// The most slots of a volume.
const SLOTS_MAX: usize = 4096;

/// Reads the container's metadata on a disk. `None`: there are none.
///
/// # Errors
/// When there are some, and they cannot be used.
pub async fn read<S: Source + ?Sized>(disk: &S) -> Result<Option<Container>, String> {
    match imsm::read(disk).await? {
        Some(container) => Ok(Some(container)),
        None => ddf::read(disk).await,
    }
}

/// The volumes of one container, from what its disks say: by the newest metadata of each.
pub fn volumes(disks: &[&Container]) -> Vec<Volume> {
    let newest = disks.iter().map(|disk| disk.sequence).max();
    let is_newest = |disk: &&&Container| Some(disk.sequence) == newest;
    let mut copies: Vec<Vec<&Volume>> = Vec::new();
    // The newest first: what an older copy says counts only where no newer one says anything.
    let mut sorted: Vec<&&Container> = disks.iter().collect();
    sorted.sort_by_key(|disk| std::cmp::Reverse(disk.sequence));
    for disk in sorted {
        // IMSM's metadata are whole on each disk, so a volume that the newest do not know is deleted.
        if disk.kind == Kind::Imsm && !is_newest(&disk) {
            continue;
        }
        for volume in &disk.volumes {
            match copies.iter_mut().find(|known| known[0].id == volume.id) {
                Some(known) => known.push(volume),
                None => copies.push(vec![volume]),
            }
        }
    }
    let mut volumes: Vec<Volume> = copies.iter().map(|copies| together(copies)).collect();
    // A disk that left the container has an older list, in which it may still be current.
    let is_current = |place: &Place| {
        let entry = |disk: &&Container| disk.disks.iter().find(|listed| listed.id == place.disk).cloned();
        disks.iter().filter(is_newest).all(|disk| entry(disk).is_some_and(|listed| listed.is_current))
    };
    for place in volumes.iter_mut().flat_map(|volume| &mut volume.slots).flatten() {
        place.is_current = place.is_current && is_current(place);
    }
    volumes
}

/// One volume from its copies, of which there is one at least. Of each part the newest count.
fn together(copies: &[&Volume]) -> Volume {
    let is_newest =
        |copy: &&&Volume| copies.iter().all(|other| other.part != copy.part || other.sequence <= copy.sequence);
    let mut newest = copies.iter().filter(is_newest);
    let mut volume = Volume::clone(newest.next().unwrap_or(&copies[0]));
    newest.for_each(|copy| volume.complete(copy));
    volume
}

impl Volume {
    /// Adds the slots that `other`, the same volume by another disk, knows.
    fn complete(&mut self, other: &Self) {
        let shape = |volume: &Self| {
            let Self { level, layout, chunk_bytes, component_bytes, bytes, slots, .. } = volume;
            (*level, *layout, *chunk_bytes, *component_bytes, *bytes, slots.len())
        };
        let is_elsewhere = |(own, other): (&Option<Place>, &Option<Place>)| match (own, other) {
            (Some(own), Some(other)) => own.disk != other.disk || own.at != other.at,
            _ => false,
        };
        if shape(self) != shape(other) || self.slots.iter().zip(&other.slots).any(is_elsewhere) {
            self.refusal = Some("its disks contradict each other, and none is newer".to_owned());
            return;
        }
        for (own, other) in self.slots.iter_mut().zip(&other.slots) {
            *own = own.take().or_else(|| other.clone());
        }
    }
}
