//! What `read` and `serve` work on: an array, or with `--inner` something inside of one or more arrays.
//!
//! With `--inner` the members may be of several arrays. All are first assembled for a look, without a lock. Only those
//! that the wanted bytes lie on are then opened for the command's purpose. The others stay for the look: they may have
//! the newest metadata of a volume group.

use crate::command::opening::arguments::AssembleArguments;
use crate::command::opening::assembly::{Found, note_disks, unknown_on};
use crate::command::opening::members::expand;
use crate::command::text::failure::Failure;
use crate::layers::{Bytes, Layers};
use crate::machine::{Array, Consent, Machine, Purpose};
use crate::names::name_of;
use crate::place::partition_of;
use crate::whole_disks::members_on;
use disk::lvm;
use engine::inspect::find_superblock;
use engine::{BitmapPolicy, Candidate, Refusal};
use futures_util::future::LocalBoxFuture;
use std::path::PathBuf;

/// Opened bytes, and the arrays that they lie on.
pub(crate) struct Target {
    /// The arrays, of which the first speaks for all where one is expected.
    pub(crate) arrays: Vec<Array>,
    pub(crate) volume: Bytes,
    /// The name of something inside.
    pub(crate) inner: Option<String>,
}

impl Target {
    /// A whole array.
    pub(crate) fn whole(array: Array) -> Self {
        Self { volume: Bytes::of(&array), arrays: vec![array], inner: None }
    }

    /// The first array.
    pub(crate) fn array(&self) -> &Array {
        &self.arrays[0]
    }

    /// Runs `work`, and meanwhile abandons operations of members that exceed their timeout.
    pub(crate) async fn in_time<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work: LocalBoxFuture<'_, T> = Box::pin(work);
        for array in &self.arrays {
            work = Box::pin(array.in_time(work));
        }
        work.await
    }

    /// Stops every array; returns the first error.
    pub(crate) async fn stop(&self) -> Result<(), engine::ArrayError> {
        let mut stopped = Ok(());
        for array in &self.arrays {
            stopped = stopped.and(array.stop().await);
        }
        stopped
    }
}

/// Disks and members that are sorted by array.
struct Sorted {
    /// The members of each array.
    arrays: Vec<([u8; 16], Found)>,
    /// Physical volumes of LVM that are in no array.
    plain: Vec<PathBuf>,
}

impl Machine {
    /// Opens the array that `arguments` name, or what `inner` names inside of it, or over several.
    pub(crate) async fn open_target(
        &self,
        arguments: &AssembleArguments,
        inner: Option<&str>,
        purpose: Purpose,
        policy: BitmapPolicy,
    ) -> Result<Target, Failure> {
        if let Some(target) = self.open_container(arguments, inner, purpose).await? {
            return Ok(target);
        }
        let Some(inner) = inner else {
            return Ok(Target::whole(self.assemble(arguments, purpose, policy).await?));
        };
        let consent = arguments.consent();
        if arguments.geometry().is_some() {
            let arrays = vec![self.assemble(arguments, purpose, policy).await?];
            let volume = self.look_for(inner, &arrays, &[], consent).await.map_err(|r| refused(inner, r))?;
            return Ok(Target { arrays, volume, inner: Some(inner.to_owned()) });
        }
        let (members, _) = arguments.resolve()?;
        let (found, plain) = match members.choice() {
            Some(_) => (vec![self.find(&members).await?], Vec::new()),
            None => {
                let Sorted { arrays, plain } = self.sort(expand(&members.members)?).await?;
                (arrays.into_iter().map(|(_, found)| found).collect(), plain)
            }
        };
        let (found, others) = match found.len() > 1 {
            true => self.needed(arguments, found, &plain, inner).await?,
            false => (found, Vec::new()),
        };
        let mut arrays = Vec::new();
        for found in &found {
            arrays.push(self.assemble_found(arguments, found, purpose, policy).await?);
        }
        let all = [&arrays[..], &others].concat();
        let volume = self.look_for(inner, &all, &plain, consent).await.map_err(|r| refused(inner, r))?;
        let is_open = |array: &Array| arrays.iter().any(|open| open.status().uuid == array.status().uuid);
        match volume.arrays().iter().all(is_open) {
            true => Ok(Target { arrays, volume, inner: Some(inner.to_owned()) }),
            false => Err(refused(inner, "what it lies on changed meanwhile; try again")),
        }
    }

    /// What `inner` names inside of `devices`, each with its owner.
    pub(crate) async fn look_into(
        &self,
        inner: &str,
        devices: Vec<(String, Bytes)>,
        consent: Consent,
    ) -> Result<Bytes, Failure> {
        Layers::of(self, devices, consent)
            .await
            .find(self, inner, consent.force)
            .await
            .map_err(|reason| refused(inner, reason))
    }

    async fn look_for(
        &self,
        inner: &str,
        arrays: &[Array],
        plain: &[PathBuf],
        consent: Consent,
    ) -> Result<Bytes, String> {
        let mut devices: Vec<_> = arrays.iter().map(|array| (array.status().uuid, Bytes::of(array))).collect();
        for path in plain {
            let Candidate { name, member } = self.open(path, Purpose::Look).map_err(|refusal| refusal.to_string())?;
            devices.push((name, Bytes::Plain(member, self.pool.clone())));
        }
        Layers::of(self, devices, consent).await.find(self, inner, consent.force).await
    }

    /// The arrays among several that `inner` lies on; and the others, assembled for a look.
    async fn needed(
        &self,
        arguments: &AssembleArguments,
        found: Vec<Found>,
        plain: &[PathBuf],
        inner: &str,
    ) -> Result<(Vec<Found>, Vec<Array>), Failure> {
        let (mut arrays, mut refusals) = (Vec::new(), Vec::new());
        for found in &found {
            match self.assemble_quietly(arguments, found).await {
                Ok(array) => arrays.push(array),
                Err(refusal) => refusals.push(refusal),
            }
        }
        let volume = match self.look_for(inner, &arrays, plain, arguments.consent()).await {
            Ok(volume) => volume,
            Err(reason) => return Err(with_refusals(inner, &reason, refusals)),
        };
        let used: Vec<String> = volume.arrays().iter().map(|array| array.status().uuid).collect();
        let is_used = |found: &Found| {
            arrays.iter().any(|array| {
                let status = array.status();
                let own = status.members.iter().any(|member| found.own.iter().any(|path| name_of(path) == member.name));
                own && used.contains(&status.uuid)
            })
        };
        let found: Vec<Found> = found.into_iter().filter(is_used).collect();
        if found.is_empty() {
            return Err(refused(inner, "it lies on none of these arrays, but on a disk that is in no array"));
        }
        arrays.retain(|array| !used.contains(&array.status().uuid));
        Ok((found, arrays))
    }

    /// Sorts the members at `paths`, and on the disks among them, by array.
    async fn sort(&self, paths: Vec<PathBuf>) -> Result<Sorted, Failure> {
        let (members, disks) = members_on(paths);
        let mut sorted = Sorted { arrays: Vec::new(), plain: Vec::new() };
        for path in members {
            let Candidate { name, member } = self.open(&path, Purpose::Look)?;
            let uuid = match find_superblock(&name, &member, &self.pool).await {
                Ok(found) => found.superblock.set_uuid,
                Err(refusal) => {
                    let is_physical = lvm::read(&Bytes::Plain(member, self.pool.clone())).await.is_some();
                    if !is_physical {
                        return Err(refusal.into());
                    }
                    sorted.plain.push(path);
                    continue;
                }
            };
            match sorted.arrays.iter_mut().find(|(known, _)| *known == uuid) {
                Some((_, found)) => found.own.push(path),
                None => sorted.arrays.push((uuid, Found::of(vec![path]))),
            }
        }
        note_disks(&disks);
        if let [(_, found)] = &mut sorted.arrays[..] {
            found.unknown = unknown_on(&disks);
        }
        for disk in &disks {
            let known = sorted.plain.len();
            let own: Vec<u32> = disk.members.iter().map(|member| member.number).collect();
            let others = disk.table.partitions.iter().filter(|partition| !own.contains(&partition.number));
            for path in others.map(|partition| partition_of(&disk.path, partition.number)) {
                let Ok(Candidate { member, .. }) = self.open(&path, Purpose::Look) else { continue };
                if lvm::read(&Bytes::Plain(member, self.pool.clone())).await.is_some() {
                    sorted.plain.push(path);
                }
            }
            if let (true, Some(refusal)) = (sorted.plain.len() == known, disk.without_members()) {
                return Err(refusal.into());
            }
        }
        match sorted.arrays.is_empty() {
            true => Err(Failure::refused("no member of an md array is among these")
                .advise("`mdspace detect` prints what is on disks")),
            false => Ok(sorted),
        }
    }
}

fn refused(inner: &str, reason: impl std::fmt::Display) -> Failure {
    Failure::refused(format!("--inner {inner}: {reason}"))
        .advise("`mdspace detect` prints what is inside of each array")
}

/// The failure for something that was not found while arrays could not be assembled.
fn with_refusals(inner: &str, reason: &str, refusals: Vec<Refusal>) -> Failure {
    let others: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
    match others.is_empty() {
        true => refused(inner, reason),
        false => {
            refused(inner, format!("{reason}; an array that cannot be started may have it: {}", others.join("; ")))
        }
    }
}
