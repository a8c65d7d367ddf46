//! The maps of members that are images of failing disks: what an image lacks is an unreadable range of the member.
//!
//! A map belongs to an image by the user's word: named, or beside the image if the user said so. Positions in a map are
//! those of the disk, so a member that is a part of the image has its part of the map. A map that says more than the
//! image holds is refused. Nothing is written, and a member with a map is only read: writes go to an overlay, which keeps
//! the holes with them.

use crate::machine::Purpose;
use crate::names::name_of;
#[cfg(feature = "command")]
use crate::names::path_of;
#[cfg(feature = "command")]
use crate::names::word_of;
#[cfg(feature = "command")]
use crate::place::file_of;
use crate::place::{DiskFile, canonical, identity, resolve_within};
use disk::Source;
use disk::map::RescueMap;
use engine::Refusal;
use format::overlay::Holes;
use io::{AnyMember, OpenError, Rescued};
use std::cell::RefCell;
use std::collections::HashMap;
#[cfg(feature = "command")]
use std::ffi::OsStr;
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// An image may end within a block, which no member has; the rest of the block reads as a hole.
const BLOCK_BYTES_MAX: u64 = 4096;

/// A map is a text of some ten megabytes at most, even of a disk with a bad sector in each track.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The ending of a map beside an image.
const ENDING: &str = "map";

/// Advice about an image whose superblock was not read.
pub(crate) const HIDDEN: &str =
    "its map has a hole over md's metadata: leave this image and its map out, or let ddrescue read more of the disk";

/// What failed if the map of an image cannot be used.
pub(crate) const ACTION: &str = "use its map";

/// Advice about a map that is none.
const ADVICE: &str = "give ddrescue's mapfile, or what HDDSuperClone exports for ddrescue";

/// The maps of a command's members.
#[derive(Default)]
pub(crate) struct Maps {
    /// The images for which the user named a map, and the maps.
    named: Vec<(PathBuf, PathBuf)>,
    /// Whether the map beside an image counts.
    beside: bool,
    /// The maps by the resolved path of the image; `None` for an image without one.
    known: RefCell<HashMap<PathBuf, Option<Rc<RescueMap>>>>,
}

impl Maps {
    /// Reads the maps of `pairs`, each an image and its map.
    ///
    /// # Errors
    /// A file that cannot be read or is no map.
    pub(crate) fn named(pairs: &[(PathBuf, PathBuf)]) -> std::result::Result<Self, Refusal> {
        let mut maps = Self::default();
        for (image, map) in pairs {
            let cannot = |error: Error| Refusal::new(error.to_string()).of(name_of(image)).field("map");
            let resolved = image.canonicalize().map_err(cannot)?;
            let text = |error: Error| Refusal::new(error.to_string()).of(name_of(map)).advice(ADVICE);
            let read = read(map).map_err(text)?;
            if maps.known.get_mut().insert(resolved, Some(Rc::new(read))).is_some() {
                let refusal = Refusal::new("two maps are given for it").of(name_of(image)).field("map");
                return Err(refusal.advice("give the one that belongs to this image"));
            }
            maps.named.push((image.clone(), map.clone()));
        }
        Ok(maps)
    }

    /// Also counts the map beside an image: `disk.img.map`, or `disk.map` of `disk.img`.
    #[cfg(feature = "command")]
    pub(crate) fn and_beside(mut self, beside: bool) -> Self {
        self.beside = beside;
        self
    }

    /// Whether a member is refused because its map calls unread what says that it is one.
    pub(crate) fn hide(refusal: &Refusal) -> bool {
        refusal.reason.contains(io::NOT_IN_IMAGE)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.named.is_empty() && !self.beside
    }

    /// Refuses maps for another purpose than reading, without an overlay.
    pub(crate) fn refuse_writing(&self, purpose: Purpose) -> std::result::Result<(), Refusal> {
        if self.is_empty() || purpose != Purpose::Write {
            return Ok(());
        }
        let reason = "maps of images are only for reading: after a write a map would say the wrong thing";
        Err(Refusal::new(reason)
            .advice("keep the writes in an overlay (--overlay DIR), or read the array, or serve it with --read-only"))
    }

    /// Refuses a map that was named for none of `paths`.
    pub(crate) fn check_used(&self, paths: &[PathBuf]) -> std::result::Result<(), Refusal> {
        let images: Vec<PathBuf> = paths.iter().filter_map(|path| Some(identity(path).ok()?.0)).collect();
        let is_used = |image: &PathBuf| image.canonicalize().is_ok_and(|image| images.contains(&image));
        match self.named.iter().map(|(image, _)| image).find(|image| !is_used(image)) {
            None => Ok(()),
            Some(image) => {
                let refusal = Refusal::new("it has a map, and is none of the members").of(name_of(image)).field("map");
                Err(refusal.advice("name the image in the map as among the members"))
            }
        }
    }

    /// The map of an image.
    fn of(&self, file: &Path) -> Result<Option<Rc<RescueMap>>> {
        if self.is_empty() {
            return Ok(None);
        }
        let resolved = canonical(file)?;
        if let Some(known) = self.known.borrow().get(&resolved) {
            return Ok(known.clone());
        }
        let found = self.find(file)?.map(Rc::new);
        self.known.borrow_mut().insert(resolved, found.clone());
        Ok(found)
    }

    /// The map beside an image.
    fn find(&self, file: &Path) -> Result<Option<RescueMap>> {
        let mut appended = file.as_os_str().to_owned();
        appended.push(format!(".{ENDING}"));
        let places = [PathBuf::from(appended), file.with_extension(ENDING)];
        let mut there = places.iter().filter(|path| self.beside && path.is_file());
        let Some(path) = there.next() else { return Ok(None) };
        if let Some(other) = there.find(|other| other.canonicalize().ok() != path.canonicalize().ok()) {
            let (one, other) = (name_of(path), name_of(other));
            return Err(Error::other(format!(
                "{one} and {other} are both beside it: choose with --map instead of --maps"
            )));
        }
        let named = |error: Error| Error::new(error.kind(), format!("{}: {error}", name_of(path)));
        read(path).map(Some).map_err(named)
    }

    /// What the map says of the member at `path`, or of its range `data`; `None` if there is no map.
    pub(crate) fn of_member(
        &self,
        path: &Path,
        data: Option<io::Part>,
    ) -> std::result::Result<Option<Mapped>, OpenError> {
        self.look_up(path, data).map_err(|source| failed(path, source))
    }

    fn look_up(&self, path: &Path, data: Option<io::Part>) -> Result<Option<Mapped>> {
        if self.is_empty() {
            return Ok(None);
        }
        let (file, part) = resolve_within(path, data)?;
        let Some(map) = self.of(&file)? else { return Ok(None) };
        if part.is_some()
            && let Ok(there) = DiskFile::open(&file).map(|disk| disk.bytes())
        {
            check_end(map.finished_end(), there)?;
        }
        let io::Part { at, bytes } = part.unwrap_or(io::Part { at: 0, bytes: u64::MAX });
        let inside = |byte: u64| byte.saturating_sub(at).min(bytes);
        let holes = map.holes(&(at..at.saturating_add(inside(map.end()))));
        Ok(Some(Mapped {
            disk_bytes: inside(map.end()),
            finished_end: inside(map.finished_end()),
            holes: holes.iter().map(|hole| inside(hole.start)..inside(hole.end)).collect(),
        }))
    }

    /// The options that give these maps to another command with the members `names`, each with a space before it.
    #[cfg(feature = "command")]
    pub(crate) fn options(&self, names: &[String]) -> String {
        let of = |path: &Path| canonical(path).ok();
        let images: Vec<PathBuf> = names.iter().filter_map(|name| of(&file_of(&path_of(name)))).collect();
        let is_used = |image: &PathBuf| of(image).is_some_and(|image| images.contains(&image));
        let named = self.named.iter().filter(|(image, _)| is_used(image));
        let option = |(image, map): &(PathBuf, PathBuf)| {
            let pair = [image.as_os_str(), map.as_os_str()].join(OsStr::new("="));
            format!(" --map {}", word_of(Path::new(&pair)))
        };
        let beside = if self.beside { " --maps" } else { "" };
        named.map(option).chain([beside.to_owned()]).collect()
    }

    /// What is to be said of the member at `path`, if its map says anything.
    #[cfg(feature = "command")]
    pub(crate) fn note(&self, path: &Path) -> Option<String> {
        match self.look_up(path, None).ok()? {
            Some(Mapped { holes, .. }) if holes.is_empty() => None,
            Some(Mapped { holes, .. }) => {
                let bytes: u64 = holes.iter().map(|hole| hole.end - hole.start).sum();
                let places = if holes.len() == 1 { "place" } else { "places" };
                Some(format!("{bytes} bytes in {} {places} were not read from the disk, by its map", holes.len()))
            }
            None if self.beside => Some("no map is beside it, so it is taken as complete".to_owned()),
            None => None,
        }
    }
}

fn failed(path: &Path, source: Error) -> OpenError {
    OpenError::System { path: path.to_owned(), action: ACTION, source }
}

/// What a map says of a member, in bytes of the member.
pub(crate) struct Mapped {
    /// The end of what the map describes; the member's end if it is a part that lies within.
    disk_bytes: u64,
    /// The end of what was read.
    finished_end: u64,
    /// What was not read, up to `disk_bytes`.
    holes: Vec<Range<u64>>,
}

impl Mapped {
    /// What the image at `path` lacks, which has `there` bytes; `None` if it is complete.
    ///
    /// # Errors
    /// The map calls more read than the image holds.
    pub(crate) fn holes(self, path: &Path, there: u64) -> std::result::Result<Option<Holes>, OpenError> {
        let Self { disk_bytes, finished_end, holes: ranges } = self;
        check_end(finished_end, there).map_err(|error| failed(path, error))?;
        let is_complete = ranges.is_empty() && disk_bytes == there;
        Ok((!is_complete).then_some(Holes { disk_bytes, ranges }))
    }
}

/// Refuses a map that calls more read than there is.
fn check_end(finished_end: u64, there: u64) -> Result<()> {
    if finished_end <= there.next_multiple_of(BLOCK_BYTES_MAX) {
        return Ok(());
    }
    Err(Error::other(format!(
        "byte {finished_end} is read by it, and the image ends at {there}: a map of another image"
    )))
}

/// `member` without what it lacks.
pub(crate) fn without(holes: Option<Holes>, member: AnyMember) -> AnyMember {
    match holes {
        Some(Holes { disk_bytes, ranges }) => Rescued::new(member, disk_bytes, ranges).into(),
        None => member,
    }
}

/// Whether `member` is an image with holes, or writes over one.
pub(crate) fn has_holes(member: &AnyMember) -> bool {
    match member {
        AnyMember::Rescued(_) => true,
        AnyMember::Stored(overlay) => has_holes(overlay.under()),
        _ => false,
    }
}

fn read(path: &Path) -> Result<RescueMap> {
    let metadata = path.metadata()?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(Error::other("no file of a map's length"));
    }
    RescueMap::decode(&std::fs::read(path)?).map_err(|defect| Error::new(ErrorKind::InvalidData, defect))
}
