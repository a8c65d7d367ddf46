//! Which arrays something inside lies on, if the members are of several arrays.
//!
//! All arrays are first assembled for a look, without a lock. Only those that the wanted bytes lie on are then opened for
//! a purpose, by the caller. The others stay for the look: they may have the newest metadata of a volume group. Refusals
//! change nothing, and say `--inner`, as the command and the library have an option of that name.

use crate::layers::{Bytes, Layers};
use crate::machine::{Array, Consent, Machine, Purpose};
use crate::names::name_of;
use crate::place::partition_of;
use crate::whole_disks::{Disk, members_on};
use disk::lvm;
use engine::inspect::find_superblock;
use engine::{BitmapPolicy, Candidate, Offer, Refusal};
use std::path::PathBuf;

/// Disks and members that are sorted by array.
pub(crate) struct Sorted {
    /// The members of each array; at least one array.
    pub(crate) arrays: Vec<Vec<PathBuf>>,
    /// Physical volumes of LVM that are in no array.
    pub(crate) plain: Vec<PathBuf>,
    /// The disks with partition tables.
    pub(crate) disks: Vec<Disk>,
}

/// The arrays among several that something inside lies on.
pub(crate) struct Needed {
    /// Their places among all.
    pub(crate) used: Vec<usize>,
    /// The others, assembled for a look.
    pub(crate) others: Vec<Array>,
}

impl Machine {
    /// Sorts the members at `paths`, and on the disks among them, by array.
    pub(crate) async fn sort(&self, paths: Vec<PathBuf>) -> Result<Sorted, Refusal> {
        let (members, disks) = members_on(paths);
        let (mut arrays, mut plain): (Vec<([u8; 16], Vec<PathBuf>)>, _) = (Vec::new(), Vec::new());
        for path in members {
            let Candidate { name, member } = self.open(&path, Purpose::Look)?;
            let uuid = match find_superblock(&name, &member, &self.pool).await {
                Ok(found) => found.superblock.set_uuid,
                Err(refusal) => {
                    let is_physical = lvm::read(&Bytes::Plain(member, self.pool.clone())).await.is_some();
                    if !is_physical {
                        return Err(refusal);
                    }
                    plain.push(path);
                    continue;
                }
            };
            match arrays.iter_mut().find(|(known, _)| *known == uuid) {
                Some((_, own)) => own.push(path),
                None => arrays.push((uuid, vec![path])),
            }
        }
        for disk in &disks {
            let found = self.physical_volumes_on(disk).await;
            if let (true, Some(refusal)) = (found.is_empty(), disk.without_members()) {
                return Err(refusal);
            }
            plain.extend(found);
        }
        if arrays.is_empty() {
            let refusal = Refusal::new("no member of an md array is among these");
            return Err(refusal.advice("`mdspace detect` prints what is on disks"));
        }
        Ok(Sorted { arrays: arrays.into_iter().map(|(_, own)| own).collect(), plain, disks })
    }

    /// The partitions of `disk` that are physical volumes of LVM, and no members.
    async fn physical_volumes_on(&self, disk: &Disk) -> Vec<PathBuf> {
        let is_member = |number: u32| disk.members.iter().any(|member| member.number == number);
        let others = disk.table.partitions.iter().filter(|partition| !is_member(partition.number));
        let mut found = Vec::new();
        for path in others.map(|partition| partition_of(&disk.path, partition.number)) {
            let Ok(Candidate { member, .. }) = self.open(&path, Purpose::Look) else { continue };
            if lvm::read(&Bytes::Plain(member, self.pool.clone())).await.is_some() {
                found.push(path);
            }
        }
        found
    }

    /// The arrays of `arrays`, each by its members, that `inner` lies on.
    pub(crate) async fn needed(
        &self,
        arrays: &[&[PathBuf]],
        plain: &[PathBuf],
        inner: &str,
        consent: Consent,
    ) -> Result<Needed, Refusal> {
        let (mut assembled, mut refusals) = (Vec::new(), Vec::new());
        for own in arrays {
            match self.assemble_for_a_look(own, consent).await {
                Ok(array) => assembled.push(array),
                Err(refusal) => refusals.push(refusal.to_string()),
            }
        }
        let volume = self.look_for(inner, &assembled, plain, consent).await.map_err(|refusal| {
            let others = refusals.join("; ");
            match refusals.is_empty() {
                true => refusal,
                false => Refusal {
                    reason: format!("{}; an array that cannot be started may have it: {others}", refusal.reason),
                    ..refusal
                },
            }
        })?;
        let used: Vec<String> = volume.arrays().iter().map(|array| array.status().uuid).collect();
        let is_used = |own: &[PathBuf]| {
            assembled.iter().any(|array| {
                let status = array.status();
                let is_own = |name: &str| own.iter().any(|path| name_of(path) == name);
                status.members.iter().any(|member| is_own(&member.name)) && used.contains(&status.uuid)
            })
        };
        let places: Vec<usize> = (0..arrays.len()).filter(|place| is_used(arrays[*place])).collect();
        if places.is_empty() {
            return Err(refused(inner, "it lies on none of these arrays, but on a disk that is in no array"));
        }
        assembled.retain(|array| !used.contains(&array.status().uuid));
        Ok(Needed { used: places, others: assembled })
    }

    /// Assembles an array without a lock, to look at it.
    pub(crate) async fn assemble_for_a_look(&self, own: &[PathBuf], consent: Consent) -> Result<Array, Refusal> {
        let offer = Offer::of(self.open_all(own, Purpose::Look)?);
        self.assemble_offer(offer, consent, Purpose::Look, BitmapPolicy::default()).await
    }

    /// What `inner` names inside of `arrays`, which are open for the caller's purpose. `others` and `plain` may say where
    /// it is, and it lies on none of them.
    pub(crate) async fn find_inside(
        &self,
        inner: &str,
        arrays: &[Array],
        others: &[Array],
        plain: &[PathBuf],
        consent: Consent,
    ) -> Result<Bytes, Refusal> {
        let volume = self.look_for(inner, &[arrays, others].concat(), plain, consent).await?;
        let is_open = |array: &Array| arrays.iter().any(|open| open.status().uuid == array.status().uuid);
        match volume.arrays().iter().all(is_open) {
            true => Ok(volume),
            false => Err(refused(inner, "what it lies on changed meanwhile; try again")),
        }
    }

    async fn look_for(
        &self,
        inner: &str,
        arrays: &[Array],
        plain: &[PathBuf],
        consent: Consent,
    ) -> Result<Bytes, Refusal> {
        let mut devices: Vec<_> = arrays.iter().map(|array| (array.status().uuid, Bytes::of(array))).collect();
        for path in plain {
            let Candidate { name, member } = self.open(path, Purpose::Look)?;
            devices.push((name, Bytes::Plain(member, self.pool.clone())));
        }
        self.look_into(inner, devices, consent).await
    }

    /// What `inner` names inside of `devices`, each with its owner.
    pub(crate) async fn look_into(
        &self,
        inner: &str,
        devices: Vec<(String, Bytes)>,
        consent: Consent,
    ) -> Result<Bytes, Refusal> {
        let layers = Layers::of(self, devices, consent).await;
        layers.find(self, inner, consent.force).await.map_err(|reason| refused(inner, &reason))
    }
}

/// Refuses to open `arrays` arrays for writing where `volume` inside of them, which has the name `inner`, takes no writes.
pub(crate) fn check_writes(inner: &str, arrays: usize, volume: &Bytes) -> Result<(), Refusal> {
    let reason = match (arrays, volume.is_read_only()) {
        (1, false) => return Ok(()),
        (1, true) => "only partitions, and linear and striped volumes without snapshots, take writes",
        _ => "it lies on several arrays, and only what lies on one takes writes",
    };
    Err(named(inner, reason))
}

/// A name for messages about what is inside.
fn named(inner: &str, reason: &str) -> Refusal {
    Refusal::new(reason).field(format!("--inner {inner}"))
}

fn refused(inner: &str, reason: &str) -> Refusal {
    named(inner, reason).advice("`mdspace detect` prints what is inside of each array")
}
