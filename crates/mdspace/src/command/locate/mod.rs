//! Which file: what some bytes of an array are, inside of the volumes and file systems on it.
//!
//! It only reads, also members in use, and takes no lock. An array that is degraded, dirty or lacks too many members is
//! read as far as it can be, as what is asked for is mostly damage: a note says which consent was taken for that. What
//! could not be read is never called free. The file systems are read by [`disk::owners`].

mod asked;
mod opening;
mod places;
mod text;

pub(crate) use asked::Asked;
pub(crate) use text::text;

use crate::command::opening::arguments::AssembleArguments;
use crate::command::text::failure::Failure;
use crate::machine::Machine;
use serde::Serialize;
use std::collections::BTreeMap;

/// What is inside of which bytes. Its fields are a stable interface (docs/json.md).
#[derive(Debug, Default, Serialize)]
pub(crate) struct Located {
    /// The array in which the bytes count; `None` with `inner`.
    pub(crate) array: Option<String>,
    /// What `--inner` named, in which the bytes count.
    pub(crate) inner: Option<String>,
    /// The bytes, in order, and what they are.
    pub(crate) places: Vec<PlaceFound>,
    /// The files that are hit.
    pub(crate) files: Vec<FileHit>,
    /// What could not be read, and what makes an answer uncertain.
    pub(crate) notes: Vec<String>,
}

/// What some bytes are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct PlaceFound {
    /// The first byte, of the array or of what `--inner` named.
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// The partition or logical volume that has them.
    pub(crate) volume: Option<String>,
    /// The first byte there.
    pub(crate) volume_at: u64,
    /// `file`, `directory`, `map`, `attributes`, `journal`, `metadata`, `free`, `outside`, `other` or `unknown`.
    pub(crate) kind: &'static str,
    /// The same in words, where there is more to say.
    pub(crate) what: Option<String>,
    /// A path of the file.
    pub(crate) path: Option<String>,
    /// The number of its inode.
    pub(crate) inode: Option<u64>,
    /// The number of its subvolume in Btrfs.
    pub(crate) subvolume: Option<u64>,
    /// The first byte in the file, of its content.
    pub(crate) file_at: Option<u64>,
}

/// A file that is hit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct FileHit {
    /// The partition or logical volume that has it.
    pub(crate) volume: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) inode: u64,
    pub(crate) subvolume: Option<u64>,
    /// Bytes of it among those that were asked for: of its content, its map and its attributes.
    pub(crate) bytes: u64,
}

impl Located {
    /// Whether some bytes could not be told.
    pub(crate) fn has_unknown(&self) -> bool {
        self.places.iter().any(|place| place.kind == "unknown")
    }

    /// Adds up the files of the places.
    fn count_files(&mut self) {
        let mut files: BTreeMap<(Option<&str>, Option<u64>, u64), FileHit> = BTreeMap::new();
        for place in &self.places {
            let Some(inode) = place.inode else { continue };
            let key = (place.volume.as_deref(), place.subvolume, inode);
            let hit = files.entry(key).or_insert_with(|| FileHit {
                volume: place.volume.clone(),
                path: place.path.clone(),
                inode,
                subvolume: place.subvolume,
                bytes: 0,
            });
            hit.bytes += place.bytes;
        }
        self.files = files.into_values().collect();
    }
}

/// Says what the bytes in `asked` are, of the array of these members, or of what `inner` names inside.
pub(crate) async fn locate(
    machine: &Machine,
    assemble: &AssembleArguments,
    inner: Option<&str>,
    asked: &Asked,
) -> Result<Located, Failure> {
    let opened = opening::open(machine, assemble, inner).await?;
    let wanted = asked.within(opened.bytes())?;
    let mut located = places::find(machine, &opened, &wanted).await;
    located.notes.extend(asked.notes.iter().cloned());
    located.count_files();
    Ok(located)
}
