//! Volume groups of LVM over arrays, partitions and disks.

use crate::layers::{Bytes, raid};
use crate::machine::Machine;
use disk::lvm::{self, Content, Group, LogicalVolume, thin};
use futures_util::future::LocalBoxFuture;
use std::cmp::Reverse;

/// The deepest nesting of volumes: a thin volume on a pool whose data is a RAID of images has four.
const DEPTH_MAX: usize = 6;

/// What is wrong with a volume whose physical volumes are not all here.
pub(super) const MISSING: &str = "it lies on other physical volumes too, and they are not here";

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
    let all: Vec<&Group> = physical.iter().filter_map(|physical| physical.group.as_ref()).collect();
    let rank = |index: usize| (all[index].sequence, Reverse(index));
    let is_newest = |index: usize| {
        let group = all[index];
        let mut newer = (0..all.len()).filter(|other| rank(*other) > rank(index)).map(|other| all[other]);
        !newer.any(|other| other.name == group.name && has_common(other, group))
    };
    let newest = (0..all.len()).filter(|index| is_newest(*index)).map(|index| all[index]);
    let of = |id: &str| physical.iter().filter(|physical| physical.id == id).collect();
    let places = |group: &Group| group.physical.iter().map(|place| of(&place.id)).collect();
    newest.map(|group| FoundGroup { group, places: places(group) }).collect()
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
    /// When its kind is not read, its metadata are damaged, or two places claim to be the same physical volume.
    pub(crate) async fn open(&self, machine: &Machine, volume: &LogicalVolume, force: bool) -> Result<Bytes, String> {
        self.open_part(machine, volume, force, DEPTH_MAX).await
    }

    fn open_part<'s>(
        &'s self,
        machine: &'s Machine,
        volume: &'s LogicalVolume,
        force: bool,
        depth: usize,
    ) -> LocalBoxFuture<'s, Result<Bytes, String>> {
        Box::pin(async move {
            let Some(depth) = depth.checked_sub(1) else { return Err("its parts name each other".to_owned()) };
            let part = async |name: &str| {
                let part = self.group.volume(name).ok_or_else(|| format!("its part {name} is not in the group"))?;
                let bytes = self.open_part(machine, part, force, depth).await?;
                match bytes.is_incomplete() {
                    true => Err(format!("{MISSING}: its part {name} lies on others")),
                    false => Ok(bytes),
                }
            };
            match &volume.content {
                Content::Striped(_) => self.striped(volume),
                Content::Other(kind) => Err(format!("segments of type {kind} are not read")),
                Content::Pool { .. } => Err("it is a thin pool: name a volume in it".to_owned()),
                // A mirror without superblocks is resynced from its first image.
                Content::Mirror(images) => {
                    let image = part(&images[0]).await?;
                    match image.bytes() < volume.bytes {
                        true => Err(format!("its image {} has only {} bytes", images[0], image.bytes())),
                        false => Ok(image.part(0, volume.bytes)),
                    }
                }
                Content::Thin { pool, device } => {
                    let pool = self.group.volume(pool).map(|pool| &pool.content);
                    let Some(Content::Pool { metadata, data, block_bytes, transaction }) = pool else {
                        return Err("its pool is not in the group".to_owned());
                    };
                    let metadata = part(metadata).await?;
                    let map = thin::map(&metadata, *device, *transaction).await?;
                    if map.block_bytes() != *block_bytes {
                        return Err("its pool's metadata have other blocks than LVM's metadata say".to_owned());
                    }
                    Ok(Bytes::thin(volume.bytes, map, part(data).await?, metadata))
                }
                Content::Raid { chunk_bytes, images } => {
                    let mut opened = Vec::new();
                    for (metadata, image) in images {
                        let state = match metadata {
                            Some(name) => part(name).await,
                            None => Err(String::new()),
                        };
                        // An image that is not here is one that redundancy replaces.
                        let image = part(image).await;
                        opened.push((state.ok(), image.ok()));
                    }
                    let has_state = images.iter().any(|(metadata, _)| metadata.is_some());
                    let chunk_bytes = (!has_state).then_some(*chunk_bytes);
                    raid::assemble(machine, &volume.name, volume.bytes, chunk_bytes, opened, force).await
                }
            }
        })
    }

    fn striped(&self, volume: &LogicalVolume) -> Result<Bytes, String> {
        if let Some([one, other, ..]) = volume.used().map(|index| &self.places[index][..]).find(|same| same.len() > 1) {
            return Err(format!("{} and {} are the same physical volume: leave one out", one.owner, other.owner));
        }
        let used: Vec<usize> = volume.used().collect();
        let source = |(index, place): (usize, &Vec<&Physical>)| {
            place.first().filter(|_| used.contains(&index)).map(|physical| physical.bytes.clone())
        };
        Ok(Bytes::logical(volume.clone(), self.places.iter().enumerate().map(source).collect()))
    }
}
