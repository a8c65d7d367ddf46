//! Volume groups of LVM over arrays, partitions and disks.

use crate::layers::Bytes;
use disk::lvm::{self, Group, LogicalVolume};

/// A physical volume.
pub(crate) struct Physical {
    id: String,
    /// `None`: it has no metadata, which others of its group have.
    group: Option<Group>,
    /// Where it is: the UUID of an array, or the name of a partition or disk.
    pub(crate) owner: String,
    bytes: Bytes,
}

/// A group, and where its physical volumes are.
pub(crate) struct FoundGroup<'a> {
    pub(crate) group: &'a Group,
    /// In the order of [`Group::physical`]: what has this id, which should be one.
    pub(crate) places: Vec<Vec<&'a Physical>>,
}

impl Physical {
    /// The physical volume in `bytes`; `Err` is why its group is unknown, `None` that there is none.
    pub(crate) async fn of(owner: String, bytes: Bytes) -> Option<Result<Self, String>> {
        let lvm::PhysicalVolume { id, group } = lvm::read(&bytes).await?;
        let group = match group {
            Err(lvm::NoGroup::Elsewhere) => None,
            Err(lvm::NoGroup::Damaged(reason)) => return Some(Err(reason)),
            Ok(group) => Some(group),
        };
        Some(Ok(Self { id, group, owner, bytes }))
    }
}

/// The groups of physical volumes. Of several versions of a group's metadata the newest counts.
pub(crate) fn groups(physical: &[Physical]) -> Vec<FoundGroup<'_>> {
    let mut newest: Vec<&Group> = Vec::new();
    for group in physical.iter().filter_map(|physical| physical.group.as_ref()) {
        match newest.iter_mut().find(|other| other.name == group.name && has_common(other, group)) {
            Some(other) if other.sequence < group.sequence => *other = group,
            Some(_) => {}
            None => newest.push(group),
        }
    }
    let of = |id: &str| physical.iter().filter(|physical| physical.id == id).collect();
    let places = |group: &Group| group.physical.iter().map(|place| of(&place.id)).collect();
    newest.into_iter().map(|group| FoundGroup { group, places: places(group) }).collect()
}

/// Whether two groups of one name are the same: they share a physical volume.
fn has_common(one: &Group, other: &Group) -> bool {
    one.physical.iter().any(|place| other.physical.iter().any(|other| other.id == place.id))
}

impl FoundGroup<'_> {
    /// The full name of a volume of it.
    pub(crate) fn full_name(&self, volume: &LogicalVolume) -> String {
        format!("{}/{}", self.group.name, volume.name)
    }

    /// The bytes of a volume of it.
    ///
    /// # Errors
    /// When its kind is not read, or two places claim to be the same physical volume.
    pub(crate) fn open(&self, volume: &LogicalVolume) -> Result<Bytes, String> {
        if let Err(kind) = &volume.segments {
            return Err(format!("segments of type {kind} are not read"));
        }
        if let Some([one, other, ..]) = volume.used().map(|index| &self.places[index][..]).find(|same| same.len() > 1) {
            return Err(format!("{} and {} are the same physical volume: leave one out", one.owner, other.owner));
        }
        let sources = self.places.iter().map(|place| place.first().map(|physical| physical.bytes.clone())).collect();
        Ok(Bytes::logical(volume.clone(), sources))
    }
}
