//! Members on whole disks: a disk's partitions stand for the disk.
//!
//! A path is a disk if it has a partition table and is no member itself. A superblock at the end of the last partition
//! is also at the end of the disk; then the partition is the member. It only reads, and locks nothing.

use crate::names::name_of;
use crate::place::{DiskFile, at_once, is_part, partition_of};
use disk::Section;
use disk::content::superblock;
use disk::table::{Partition, Table, find};
use engine::Refusal;
use format::Defect;
use format::superblock::Superblock;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// A disk with a partition table.
pub(crate) struct Disk {
    /// Its path.
    pub(crate) path: PathBuf,
    /// Its table.
    pub(crate) table: Table,
    /// The partitions that are members, or were.
    pub(crate) members: Vec<OnDisk>,
    /// Why a superblock of the disk itself cannot be used, if there is one: the disk may be a member.
    #[cfg(feature = "command")]
    pub(crate) own: Option<Defect>,
}

/// A partition with a superblock of md.
pub(crate) struct OnDisk {
    /// Its number.
    pub(crate) number: u32,
    /// Its path: the kernel's device if there is one, otherwise a part of the disk.
    pub(crate) path: PathBuf,
    /// The superblock, or why it cannot be used.
    pub(crate) superblock: Result<Box<Superblock>, Defect>,
}

/// Replaces disks among `paths` by the members on them; returns the paths and the disks.
pub(crate) fn members_on(paths: Vec<PathBuf>) -> (Vec<PathBuf>, Vec<Disk>) {
    let mut members = Vec::new();
    let mut disks = Vec::new();
    for path in paths {
        match look(&path) {
            None => members.push(path),
            Some(disk) => {
                let usable = disk.members.iter().filter(|member| member.superblock.is_ok());
                members.extend(usable.map(|member| member.path.clone()));
                disks.push(disk);
            }
        }
    }
    (members, disks)
}

/// The disk at `path`. `None`: it is a member, or has no table, or cannot be read, which its opening will tell.
pub(crate) fn look(path: &Path) -> Option<Disk> {
    if is_part(path) {
        return None;
    }
    let file = DiskFile::open(path).ok()?;
    let found = at_once(superblock(&file));
    #[cfg(feature = "command")]
    let damaged = found.as_ref().err().cloned();
    let own = found.ok().flatten();
    if own.as_ref().is_some_and(|superblock| !superblock.version.is_at_end()) {
        return None;
    }
    let own_at = own.as_ref().map(|superblock| superblock.super_at().0);
    let table = at_once(find(&file)).ok().flatten()?;
    let mut members = Vec::new();
    let mut is_in_partition = false;
    for Partition { number, at, bytes, .. } in &table.partitions {
        let found = at_once(superblock(&Section::new(&file, *at, *bytes)));
        let superblock = match found {
            Ok(None) => continue,
            Ok(Some(superblock)) => Ok(superblock),
            Err(defect) => Err(defect),
        };
        is_in_partition |= superblock.as_ref().is_ok_and(|superblock| Some(at + superblock.super_at().0) == own_at);
        let device = kernel_partition(path, *number, *at);
        members.push(OnDisk {
            number: *number,
            path: device.unwrap_or_else(|| partition_of(path, *number)),
            superblock,
        });
    }
    (own.is_none() || is_in_partition).then(|| Disk {
        path: path.to_owned(),
        table,
        members,
        #[cfg(feature = "command")]
        own: damaged,
    })
}

/// The kernel's device of a partition, which has a claim of its own, if it begins where the table says.
fn kernel_partition(disk: &Path, number: u32, at: u64) -> Option<PathBuf> {
    disk.metadata().ok().filter(|metadata| metadata.file_type().is_block_device())?;
    let node = disk.canonicalize().ok()?;
    let directory = Path::new("/sys/class/block").join(node.file_name()?);
    let number_in = |path: PathBuf| std::fs::read_to_string(path).ok()?.trim_end().parse::<u64>().ok();
    for entry in directory.read_dir().ok()?.flatten() {
        let start = number_in(entry.path().join("start")).and_then(|sectors| sectors.checked_mul(512));
        if start == Some(at) && number_in(entry.path().join("partition")) == Some(number.into()) {
            let device = node.with_file_name(entry.file_name());
            return device.exists().then_some(device);
        }
    }
    None
}

impl Disk {
    /// What is odd about the table.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.table.notes.iter().map(|note| format!("{}: {note}", name_of(&self.path))).collect()
    }

    /// The partitions whose superblock cannot be used, and why. They may be members of any array.
    pub(crate) fn damaged(&self) -> impl Iterator<Item = (&Path, &Defect)> {
        self.members.iter().filter_map(|OnDisk { path, superblock, .. }| Some((&**path, superblock.as_ref().err()?)))
    }

    /// The refusal for a disk on which no partition is a member.
    pub(crate) fn without_members(&self) -> Option<Refusal> {
        if self.members.iter().any(|member| member.superblock.is_ok()) {
            return None;
        }
        let Table { kind, partitions, .. } = &self.table;
        if let Some((path, defect)) = self.damaged().next() {
            return Some(Refusal::defect(&name_of(path), defect.clone()));
        }
        let reason = format!("none of the {} partitions in its {} is a member of md", partitions.len(), kind.name());
        let refusal = Refusal::new(reason).of(name_of(&self.path)).field("superblock.magic");
        Some(refusal.advice("`mdspace detect` prints what is on it"))
    }
}
