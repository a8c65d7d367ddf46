//! Volume groups of LVM: their physical volumes are arrays, partitions or disks; what is in their logical volumes.

use crate::command::cli::detect::arrays::{ArrayFound, ArraySource};
use crate::command::cli::detect::layer::{Inner, Layer};
use crate::command::cli::detect::next::Next;
use crate::names::name_of;
use crate::place::{DiskFile, resolve};
use disk::lvm::{self, Group, LogicalVolume};
use disk::{Section, Source};
use serde::Serialize;
use std::path::Path;

/// A volume group.
#[derive(Serialize)]
pub(crate) struct VolumeGroup {
    pub(crate) name: String,
    /// Where its physical volumes are: the UUID of an array, or the name of a partition or disk.
    pub(crate) physical: Vec<String>,
    /// How many physical volumes were not found.
    pub(crate) missing: usize,
    pub(crate) volumes: Vec<Inner>,
    /// Commands that come next.
    pub(crate) next: Vec<Next>,
}

/// A physical volume of a group.
pub(crate) struct Physical {
    id: String,
    group: Group,
    owner: String,
    source: Bytes,
}

/// The bytes of a physical volume.
enum Bytes {
    Array(ArraySource),
    Disk { file: DiskFile, at: u64, bytes: u64 },
}

impl Source for Bytes {
    fn bytes(&self) -> u64 {
        match self {
            Self::Array(array) => array.bytes(),
            Self::Disk { file, at, bytes } => Section::new(file, *at, *bytes).bytes(),
        }
    }

    async fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, String> {
        match self {
            Self::Array(array) => array.read(at, length).await,
            Self::Disk { file, at: start, bytes } => Section::new(file, *start, *bytes).read(at, length).await,
        }
    }
}

impl Physical {
    /// The physical volume on an array, if its metadata can be read.
    pub(crate) async fn of_array(found: &ArrayFound, array: ArraySource) -> Option<Self> {
        Self::of(found.uuid.clone(), Bytes::Array(array)).await
    }

    /// The physical volume on a partition or disk with this content.
    pub(crate) async fn of_disk(path: &Path, content: &Layer) -> Option<Self> {
        if content.kind != "lvm" {
            return None;
        }
        let (file, part) = resolve(path).ok()?;
        let io::Part { at, bytes } = part.unwrap_or(io::Part { at: 0, bytes: u64::MAX });
        Self::of(name_of(path), Bytes::Disk { file: DiskFile::open(&file).ok()?, at, bytes }).await
    }

    async fn of(owner: String, source: Bytes) -> Option<Self> {
        let lvm::PhysicalVolume { id, group } = lvm::read(&source).await?;
        Some(Self { id, group: group.ok()?, owner, source })
    }
}

/// The volume groups of physical volumes. Of several versions of a group's metadata the newest counts.
pub(crate) async fn groups(physical: &[Physical]) -> Vec<VolumeGroup> {
    let mut newest: Vec<&Group> = Vec::new();
    for Physical { group, .. } in physical {
        match newest.iter_mut().find(|other| other.name == group.name && has_common(other, group)) {
            Some(other) if other.sequence < group.sequence => *other = group,
            Some(_) => {}
            None => newest.push(group),
        }
    }
    let mut groups = Vec::new();
    for group in newest {
        groups.push(look(group, physical).await);
    }
    groups
}

/// Whether two groups of one name are the same: they share a physical volume.
fn has_common(one: &Group, other: &Group) -> bool {
    one.physical.iter().any(|place| other.physical.iter().any(|other| other.id == place.id))
}

async fn look(group: &Group, physical: &[Physical]) -> VolumeGroup {
    let of = |id: &str| physical.iter().find(|physical| physical.id == id);
    let places: Vec<Option<&Physical>> = group.physical.iter().map(|place| of(&place.id)).collect();
    let mut volumes = Vec::new();
    for volume in &group.logical {
        let content = match &volume.segments {
            Err(kind) => Layer::unreadable(format!("segments of type {kind} are not read")),
            Ok(_) => Layer::shallow(&LogicalBytes { volume, places: &places }).await,
        };
        volumes.push(Inner { name: volume.name.clone(), bytes: volume.bytes, content });
    }
    VolumeGroup {
        name: group.name.clone(),
        physical: places.iter().flatten().map(|physical| physical.owner.clone()).collect(),
        missing: places.iter().filter(|place| place.is_none()).count(),
        volumes,
        next: Vec::new(),
    }
}

/// The bytes of a logical volume.
struct LogicalBytes<'a> {
    volume: &'a LogicalVolume,
    places: &'a [Option<&'a Physical>],
}

impl Source for LogicalBytes<'_> {
    fn bytes(&self) -> u64 {
        self.volume.bytes
    }

    async fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let next = at + bytes.len() as u64;
            let (index, place, run) =
                self.volume.locate(next).ok_or_else(|| format!("byte {next} is in no segment"))?;
            let physical = self.places[index].ok_or("its physical volume is missing")?;
            let piece = (length - bytes.len()).min(usize::try_from(run).unwrap_or(usize::MAX));
            bytes.extend(physical.source.read(place, piece).await?);
        }
        Ok(bytes)
    }
}
