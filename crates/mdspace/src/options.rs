//! Options for opening an array.

use crate::array::Array;
use crate::error::Error;
use crate::inside::{Needed, Sorted, check_writes};
use crate::machine::{self, Consent, Machine, Purpose, refuse_duplicates};
use crate::maps::Maps;
use crate::opened::Opened;
use crate::whole_disks::{Disk, members_on};
use engine::{BitmapPolicy, Offer, Refusal};
use std::path::{Path, PathBuf};

/// Options for opening an array. The default opens it for reading, by the strictest rules.
///
/// # Example
/// ```no_run
/// let array = mdspace::Options::new().write(true).open(["a.img", "b.img", "c.img"])?;
/// # Ok::<(), mdspace::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Options {
    write: bool,
    force: bool,
    bitmap: Option<PathBuf>,
    backup_file: Option<PathBuf>,
    maps: Vec<(PathBuf, PathBuf)>,
    overlay: Option<PathBuf>,
    partial: bool,
    inner: Option<String>,
}

impl Options {
    /// Options for reading.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the array may be written to. Members are then locked exclusively, otherwise shared with other readers.
    ///
    /// An array that is open for writing has the background work of `mdspace serve`: a resync that is due begins at
    /// once, and spares take over from failed members. After a fifth of a second without writes the array is marked
    /// clean, so that a crash of an idle array needs no resync.
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// Whether to assemble an array that may have lost data:
    ///
    /// - one with too few current members, with the fewest and freshest stale members that it needs, as in mdadm;
    /// - a dirty and degraded parity array, although the missing member's data may be wrong where a write was under
    ///   way;
    /// - an array without its write journal, for reading.
    ///
    /// [`Status::warnings`](crate::Status::warnings) names what may be lost or wrong, and
    /// [`Status::forced`](crate::Status::forced) the stale members. An array open for reading writes nothing. One open
    /// for writing updates the superblocks of these members, so that later assemblies need no force. A dirty RAID-6 that
    /// lacks one member needs it until a resync has ended.
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// The file with the write-intent bitmap, if the array has its bitmap in a file. Only writing needs it.
    pub fn bitmap(mut self, file: impl Into<PathBuf>) -> Self {
        self.bitmap = Some(file.into());
        self
    }

    /// The file that `mdadm --grow --backup-file` named, for reading an array in the middle of a reshape that writes over
    /// its data in place. Without it, what the reshape may have left half written fails with
    /// [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn backup_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.backup_file = Some(file.into());
        self
    }

    /// The map of a member that is the image of a failing disk, or of a disk whose image has members in its partitions:
    /// the mapfile of GNU ddrescue, or what HDDSuperClone writes. What the map does not call finished is unreadable on
    /// that member, so its data comes from the other members. For reading, or with [`Options::overlay`].
    pub fn map(mut self, image: impl Into<PathBuf>, mapfile: impl Into<PathBuf>) -> Self {
        self.maps.push((image.into(), mapfile.into()));
        self
    }

    /// Whether to open an array with fewer members than it needs: what these hold is read, and everything else fails with
    /// [`ErrorKind::Io`](crate::ErrorKind::Io). Only for reading. At levels without redundancy the missing members are
    /// taken to be as long as the others, which [`Status::warnings`](crate::Status::warnings) tells.
    pub fn partial(mut self, partial: bool) -> Self {
        self.partial = partial;
        self
    }

    /// Opens something inside of the array: the number of a partition, `GROUP/VOLUME` of LVM, or the name or UUID of an
    /// array inside. The members may be of several arrays, of which those are opened that it lies on. It takes writes if
    /// it is a partition, or a linear or striped volume on one array, and no snapshot depends on it; everything else is
    /// only for reading.
    pub fn inner(mut self, name: impl Into<String>) -> Self {
        self.inner = Some(name.into());
        self
    }

    /// The maps that were named.
    pub(crate) fn named_maps(&self) -> Result<Maps, Refusal> {
        Maps::named(&self.maps)
    }

    /// The directory of an overlay, which takes every write: the members stay as they are. It is made if it does not exist
    /// and the array is written to. `mdspace overlay` shows, discards or commits what it holds. What was written since the
    /// last flush may be lost if the process is killed, as on a disk with a volatile cache that loses its power.
    pub fn overlay(mut self, directory: impl Into<PathBuf>) -> Self {
        self.overlay = Some(directory.into());
        self
    }

    /// The directory of the overlay.
    pub(crate) fn overlay_directory(&self) -> Option<&Path> {
        self.overlay.as_deref()
    }

    /// Opens the array of these members, which are files or block devices, in any order. As many may be missing as the
    /// level allows. A disk with partitions, or its image, stands for the members on it. If they are of several arrays,
    /// name the partitions: `disk.img:2`.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused), with the member and the field: a member is damaged,
    /// foreign or in use, or too few are there. No byte of any member was changed.
    pub fn open<P: AsRef<Path>>(&self, members: impl IntoIterator<Item = P>) -> Result<Array, Error> {
        let members = members.into_iter().map(|member| member.as_ref().to_owned()).collect();
        Array::start(self.clone(), members)
    }

    /// Assembles the array, or those that something inside lies on, on the thread of `machine`.
    pub(crate) async fn assemble(&self, members: &[PathBuf], machine: &Machine) -> Result<Opened, Refusal> {
        refuse_duplicates(members)?;
        machine.maps.check_used(members)?;
        if let Some(inner) = &self.inner {
            return self.assemble_around(inner, members.to_vec(), machine).await;
        }
        let (members, disks) = members_on(members.to_vec());
        if let Some(refusal) = disks.iter().find_map(Disk::without_members) {
            return Err(refusal);
        }
        for note in disks.iter().flat_map(Disk::notes) {
            tracing::warn!("{note}");
        }
        Ok(Opened::whole(self.assemble_members(&members, machine).await?))
    }

    /// Assembles the arrays that `inner` lies on.
    async fn assemble_around(&self, inner: &str, paths: Vec<PathBuf>, machine: &Machine) -> Result<Opened, Refusal> {
        let Sorted { arrays: own, plain, disks } = machine.sort(paths).await?;
        for note in disks.iter().flat_map(Disk::notes) {
            tracing::warn!("{note}");
        }
        let consent = self.consent();
        let needed = match &own[..] {
            [_] => Needed { used: vec![0], others: Vec::new() },
            _ => {
                let all: Vec<&[PathBuf]> = own.iter().map(|own| &own[..]).collect();
                machine.needed(&all, &plain, inner, consent).await?
            }
        };
        let mut arrays = Vec::new();
        for place in needed.used {
            arrays.push(self.assemble_members(&own[place], machine).await?);
        }
        let volume = machine.find_inside(inner, &arrays, &needed.others, &plain, consent).await?;
        if self.write {
            check_writes(inner, arrays.len(), &volume)?;
        }
        Ok(Opened::inside(arrays, volume))
    }

    fn consent(&self) -> Consent {
        Consent { force: self.force, partial: self.partial, ..Consent::default() }
    }

    async fn assemble_members(&self, members: &[PathBuf], machine: &Machine) -> Result<machine::Array, Refusal> {
        let purpose = if self.write { Purpose::Write } else { Purpose::Read };
        let members = machine.open_all(members, purpose)?;
        let file = self.bitmap.as_deref().filter(|_| self.write);
        let bitmap = file.map(|path| machine.open_bitmap(path)).transpose()?;
        let file = self.backup_file.as_deref().filter(|_| !self.write);
        let backup = file.map(|path| machine.open_backup(path)).transpose()?;
        let offer = Offer { bitmap, backup, ..Offer::of(members) };
        machine.assemble_offer(offer, self.consent(), purpose, BitmapPolicy::default()).await
    }
}
