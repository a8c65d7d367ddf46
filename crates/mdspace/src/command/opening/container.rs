//! Volumes of DDF and IMSM containers, opened for reading.
//!
//! The container's metadata give the shape of a volume, and the array is then put together by hand ([`by_hand`]). So no
//! byte is written, and the engine knows nothing of containers. A disk counts as one of a container if neither it nor
//! a partition on it is a member of md.
//!
//! IMSM's metadata name drives by serial number, which is not on the disk. It has to occur in the disk's name, as it
//! does in /dev/disk/by-id, and as a whole word. Otherwise only a RAID-1, whose disks are alike, can be put together.

use crate::command::opening::arguments::AssembleArguments;
use crate::command::opening::by_hand;
use crate::command::opening::members::{ArrayChoice, expand};
use crate::command::opening::target::Target;
use crate::command::text::failure::Failure;
use crate::command::text::geometry::GeometryText;
use crate::command::text::output::tell;
use crate::layers::Bytes;
use crate::machine::{Array, Machine, Purpose};
use crate::names::name_of;
use crate::place::{DiskFile, at_once, resolve};
use crate::whole_disks;
use disk::Section;
use disk::container::{self, Container, DiskId, Kind, Place, Volume};
use disk::content::superblock;
use format::geometry::Level;
use std::cmp::Reverse;
use std::path::{Path, PathBuf};

/// A disk of a container.
pub(crate) struct ContainerDisk {
    pub(crate) path: PathBuf,
    pub(crate) container: Container,
}

/// An opened volume.
pub(crate) struct OpenedVolume {
    array: Array,
    pub(crate) bytes: Bytes,
    /// What the user should know, in lines.
    notes: Vec<String>,
    /// How many slots are without a disk.
    pub(crate) missing: usize,
}

/// A container, with those of its disks that are here.
pub(crate) struct FoundContainer {
    pub(crate) kind: Kind,
    pub(crate) id: String,
    pub(crate) disks: Vec<ContainerDisk>,
    pub(crate) volumes: Vec<Volume>,
}

/// The container's metadata on a disk. `None`: there are none, or md's count.
pub(crate) fn look(path: &Path) -> Option<Result<ContainerDisk, String>> {
    let (file, part) = resolve(path).ok()?;
    let file = DiskFile::open(&file).ok()?;
    let io::Part { at, bytes } = part.unwrap_or(io::Part { at: 0, bytes: u64::MAX });
    let whole = Section::new(&file, at, bytes);
    let container = at_once(container::read(&whole)).transpose()?;
    let is_of_md = matches!(at_once(superblock(&whole)), Ok(Some(_)))
        || whole_disks::look(path).is_some_and(|disk| disk.members.iter().any(|member| member.superblock.is_ok()));
    let of = |container| ContainerDisk { path: path.to_owned(), container };
    (!is_of_md).then(|| container.map(of).map_err(|reason| format!("{}: {reason}", name_of(path))))
}

/// The containers of some disks.
pub(crate) fn containers(disks: Vec<ContainerDisk>) -> Vec<FoundContainer> {
    let mut containers: Vec<FoundContainer> = Vec::new();
    for disk in disks {
        let (kind, id) = (disk.container.kind, &disk.container.id);
        match containers.iter_mut().find(|known| known.kind == kind && known.id == *id) {
            Some(known) => known.disks.push(disk),
            None => containers.push(FoundContainer { kind, id: id.clone(), disks: vec![disk], volumes: Vec::new() }),
        }
    }
    for container in &mut containers {
        let disks: Vec<&Container> = container.disks.iter().map(|disk| &disk.container).collect();
        container.volumes = container::volumes(&disks);
    }
    containers
}

impl FoundContainer {
    /// The disk in a slot, if it is here.
    pub(crate) fn disk(&self, id: &DiskId) -> Option<&ContainerDisk> {
        let is_it = |disk: &&ContainerDisk| match id {
            DiskId::Number(_) => disk.container.disk.as_ref() == Some(id),
            DiskId::Serial(serial) => self.serial(disk) == Some(serial),
        };
        let mut found = self.disks.iter().filter(is_it);
        found.next().filter(|_| found.next().is_none())
    }

    /// The serial number in a disk's name: the longest, and the only one of its length.
    fn serial(&self, disk: &ContainerDisk) -> Option<&str> {
        let name = disk.path.file_name().unwrap_or_default().to_string_lossy();
        let listed = self.disks.iter().flat_map(|disk| &disk.container.disks);
        let serials =
            listed.filter_map(|listed| if let DiskId::Serial(serial) = &listed.id { Some(&**serial) } else { None });
        let mut serials: Vec<&str> = serials.filter(|serial| is_in(&name, serial)).collect();
        serials.sort_by_cached_key(|serial| Reverse(word(serial).len()));
        serials.dedup();
        match serials[..] {
            [one] => Some(one),
            [one, other, ..] if word(one).len() > word(other).len() => Some(one),
            _ => None,
        }
    }

    /// The disks of a volume by slot, `None` for one that is missing, has failed, or is being rebuilt.
    ///
    /// # Errors
    /// When it is unknown which disk is in which slot.
    fn order(&self, volume: &Volume) -> Result<Vec<Option<&ContainerDisk>>, String> {
        let known = |slot: &Option<Place>| self.disk(&slot.as_ref()?.disk);
        let found: Vec<Option<&ContainerDisk>> = volume.slots.iter().map(known).collect();
        let identified = |disk: &ContainerDisk| found.iter().flatten().any(|other| other.path == disk.path);
        // A disk that left the container keeps older metadata.
        let newest = self.disks.iter().map(|disk| disk.container.sequence).max();
        let is_newest = |disk: &&ContainerDisk| Some(disk.container.sequence) == newest;
        let strangers = self.disks.iter().filter(is_newest).filter(|disk| !identified(disk));
        let strangers: Vec<&ContainerDisk> = strangers.collect();
        let paths: Vec<&PathBuf> = found.iter().flatten().map(|disk| &disk.path).collect();
        if let Some(twice) = paths.iter().enumerate().find(|(index, path)| paths[..*index].contains(path)) {
            return Err(format!("{} is the disk of two slots", name_of(twice.1)));
        }
        let is_current = |slot: &Option<Place>| slot.as_ref().is_some_and(|slot| slot.is_current);
        if self.kind == Kind::Ddf || strangers.is_empty() {
            let current = volume.slots.iter().map(is_current);
            return Ok(found.into_iter().zip(current).map(|(disk, is_current)| disk.filter(|_| is_current)).collect());
        }
        // The disks of a RAID-1 are alike, if none of them is a spare.
        let slots = volume.slots.len();
        let has_spares = self.disks.iter().filter(is_newest).any(|disk| disk.container.disks.len() > slots);
        let disks: Vec<&ContainerDisk> = found.into_iter().flatten().chain(strangers.iter().copied()).collect();
        let is_mirror = volume.level == Level::Raid1 && volume.slots.iter().all(is_current);
        if is_mirror && !has_spares && disks.len() <= slots {
            let disks = disks.into_iter().map(Some).chain(std::iter::repeat(None));
            return Ok(disks.take(slots).collect());
        }
        let ids =
            volume.slots.iter().map(|slot| slot.as_ref().map_or("unknown".to_owned(), |slot| slot.disk.to_string()));
        let ids: Vec<String> = ids.collect();
        Err(format!(
            "IMSM does not record on a disk which one it is, and the name {} contains none of the serial numbers; the \
             slots in order: {}",
            name_of(&strangers[0].path),
            ids.join(", ")
        ))
    }

    /// The shape of a volume; with its disks by slot, if these are known.
    pub(crate) fn geometry(&self, volume: &Volume, order: Option<&[Option<&ContainerDisk>]>) -> GeometryText {
        let has_layout = matches!(volume.level, Level::Raid5 | Level::Raid6 | Level::Raid10);
        let at: Vec<u64> = volume.slots.iter().map(|slot| slot.as_ref().map_or(0, |slot| slot.at)).collect();
        let is_same = at.iter().all(|other| *other == at[0]);
        let name = |disk: &Option<&ContainerDisk>| disk.map(|disk| name_of(&disk.path));
        GeometryText {
            level: volume.level,
            layout: has_layout.then_some(volume.layout),
            chunk_bytes: volume.chunk_bytes,
            offsets: if is_same { at[..1].to_vec() } else { at },
            size: Some(volume.component_bytes),
            order: order.map(|order| order.iter().map(name).collect()),
        }
    }

    /// Opens a volume for reading. With `force` also one whose parity may be wrong where it is needed.
    pub(crate) async fn open(
        &self,
        machine: &Machine,
        volume: &Volume,
        force: bool,
        purpose: Purpose,
    ) -> Result<OpenedVolume, Failure> {
        let refused = |reason: &str| Failure::refused(format!("volume \"{}\": {reason}", volume.name.escape_default()));
        if let Some(reason) = &volume.refusal {
            return Err(refused(reason).advise("the system that made it can finish that change"));
        }
        let order = self.order(volume).map_err(|reason| {
            let shape = self.geometry(volume, None);
            refused(&reason).advise(format!(
                "give each disk a name that contains its serial number (a link will do), as in /dev/disk/by-id; or name \
                 the disks in the order of their slots with --geometry '{shape}'"
            ))
        })?;
        let unused = self.disks.iter().filter(|disk| !order.iter().flatten().any(|used| used.path == disk.path));
        let note = |disk: &ContainerDisk| {
            format!("note: {}: not used: failed, being rebuilt, or of no slot", name_of(&disk.path))
        };
        let mut notes: Vec<String> = unused.map(note).collect();
        let missing = order.iter().filter(|disk| disk.is_none()).count();
        if missing > 0 && volume.is_dirty && volume.level.has_parity() {
            let reason = "it is dirty and degraded: data of the missing disk may be wrong where a write was under way";
            if !force {
                return Err(refused(reason).advise("give all of its disks, or read it nevertheless with --force"));
            }
            notes.push(format!("warning: volume \"{}\": {reason}", volume.name.escape_default()));
        }
        let geometry = self.geometry(volume, Some(&order));
        let array = by_hand::open(machine, &geometry, &[], purpose).await?;
        let bytes = Bytes::of(&array);
        if volume.bytes > bytes.bytes() {
            let (own, found) = (volume.bytes, bytes.bytes());
            return Err(refused(&format!("its metadata say {own} bytes, but its disks hold {found}")));
        }
        Ok(OpenedVolume { array, bytes: bytes.part(0, volume.bytes), notes, missing })
    }
}

/// The part of a serial number that a name has: mdadm takes a device's path for that of a drive without one.
fn word(serial: &str) -> &str {
    serial.rsplit('/').next().unwrap_or_default()
}

/// Whether a serial number is in a name, and not a part of a longer one there.
fn is_in(name: &str, serial: &str) -> bool {
    /// The length of the field: of longer serial numbers it has the end.
    const FIELD_BYTES: usize = 16;
    let word = word(serial);
    let is_apart = |next: Option<char>| next.is_none_or(|letter| !letter.is_alphanumeric());
    !word.is_empty()
        && name.match_indices(word).any(|(at, _)| {
            let starts = word.len() >= FIELD_BYTES || is_apart(name[..at].chars().next_back());
            starts && is_apart(name[at + word.len()..].chars().next())
        })
}

/// A line about a volume.
fn description(container: &FoundContainer, volume: &Volume) -> String {
    let disks: Vec<String> = container.disks.iter().map(|disk| name_of(&disk.path)).collect();
    format!("\n  --name {} ({}): {}", volume.name.escape_default(), container.kind.name(), disks.join(" "))
}

impl Machine {
    /// Opens a volume of a container, if the disks that `arguments` name are of one. `None`: none of them is.
    pub(crate) async fn open_container(
        &self,
        arguments: &AssembleArguments,
        inner: Option<&str>,
        purpose: Purpose,
    ) -> Result<Option<Target>, Failure> {
        if arguments.geometry().is_some() {
            return Ok(None);
        }
        let (members, _) = arguments.resolve()?;
        if matches!(members.choice(), Some(ArrayChoice::Uuid(_))) {
            return Ok(None);
        }
        let Ok(paths) = expand(&members.members) else { return Ok(None) };
        let looked: Vec<_> = paths.iter().filter_map(|path| look(path)).collect();
        if looked.is_empty() {
            return Ok(None);
        }
        let disks = looked.into_iter().collect::<Result<Vec<_>, _>>().map_err(Failure::refused)?;
        let strangers: Vec<&PathBuf> =
            paths.iter().filter(|path| disks.iter().all(|disk| disk.path != **path)).collect();
        if let (Some(stranger), None) = (strangers.first(), members.choice()) {
            let reason =
                format!("{}: is no disk of a container, and {} is", name_of(stranger), name_of(&disks[0].path));
            return Err(
                Failure::refused(reason).advise("leave one of them out; `mdspace detect` prints what is on each")
            );
        }
        let containers = containers(disks);
        let all: Vec<_> =
            containers.iter().flat_map(|one| one.volumes.iter().map(move |volume| (one, volume))).collect();
        let chosen: Vec<_> = all
            .iter()
            .filter(|(_, volume)| match members.choice() {
                Some(ArrayChoice::Name(name)) => volume.name == name,
                _ => true,
            })
            .collect();
        let [(container, volume)] = chosen[..] else {
            if chosen.is_empty() && !strangers.is_empty() {
                return Ok(None);
            }
            let described: String = all.iter().map(|(container, volume)| description(container, volume)).collect();
            return Err(Failure::refused(format!(
                "on these disks are {} volumes of containers:{described}",
                all.len()
            ))
            .advise("choose one by --name; `mdspace detect` prints more"));
        };
        if purpose == Purpose::Write {
            let kind = container.kind.name();
            return Err(Failure::refused(format!("volumes of {kind} containers are only read"))
                .advise("use `mdspace read`, or `mdspace serve --read-only`"));
        }
        let opened = container.open(self, volume, arguments.force, purpose).await?;
        opened.notes.iter().for_each(|note| tell!("{note}"));
        let OpenedVolume { array, bytes, .. } = opened;
        let Some(inner) = inner else {
            return Ok(Some(Target { arrays: vec![array], volume: bytes, inner: Some(volume.name.clone()) }));
        };
        let devices = vec![(volume.name.clone(), bytes)];
        let volume = self.look_into(inner, devices, arguments.consent()).await?;
        Ok(Some(Target { arrays: vec![array], volume, inner: Some(inner.to_owned()) }))
    }
}
