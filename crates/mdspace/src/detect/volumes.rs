//! Volume groups of LVM: their physical volumes are arrays, partitions or disks; what is in their logical volumes.

use crate::detect::Next;
use crate::detect::layer::{Inner, Layer};
use crate::layers::{self, Bytes, FoundGroup, Physical};
use crate::machine::{Machine, Purpose};
use engine::Candidate;
use serde::Serialize;
use std::path::Path;

/// A volume group.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct VolumeGroup {
    /// Its name.
    pub name: String,
    /// Where its physical volumes are: the UUID of an array, or the name of a partition or disk.
    pub physical: Vec<String>,
    /// How many physical volumes were not found.
    pub missing: usize,
    /// Its logical volumes.
    pub volumes: Vec<Inner>,
    /// Commands that come next, by the command alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<Vec<Next>>,
}

/// The physical volume on a partition or disk with this content.
pub(crate) async fn on_disk(machine: &Machine, path: &Path, content: &Layer) -> Option<Physical> {
    if content.kind != "lvm" {
        return None;
    }
    let Candidate { name, member } = machine.open(path, Purpose::Look).ok()?;
    Physical::of(name, Bytes::Plain(member, machine.pool.clone())).await?.ok()
}

/// The volume groups of physical volumes.
pub(crate) async fn groups(machine: &Machine, physical: &[Physical]) -> Vec<VolumeGroup> {
    let mut groups = Vec::new();
    for group in layers::groups(physical) {
        groups.push(look(machine, &group).await);
    }
    groups
}

async fn look(machine: &Machine, found: &FoundGroup<'_>) -> VolumeGroup {
    let mut volumes = Vec::new();
    for volume in &found.group.logical {
        let content = match found.open(machine, volume, false).await {
            Err(reason) => Layer::unreadable(reason),
            Ok(bytes) => Layer::shallow(&bytes).await,
        };
        volumes.push(Inner { name: volume.name.clone(), bytes: volume.bytes, content });
    }
    VolumeGroup {
        name: found.group.name.clone(),
        physical: found.places.iter().flatten().map(|physical| physical.owner.clone()).collect(),
        missing: found.places.iter().filter(|place| place.is_empty()).count(),
        volumes,
        next: None,
    }
}
