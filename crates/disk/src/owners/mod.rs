//! Which file has some bytes of a volume: ext2 to ext4, XFS and Btrfs.
//!
//! It reads the file system's own records of what is where, and no content of files. Nothing is written, no journal is
//! replayed, and nothing is repaired. A record that cannot be read makes the answer [`Owner::Unknown`] for what it
//! would have said, never [`Owner::Free`], and a note says so. Any bytes may be on a disk: each walk is bounded by the
//! length of the volume, and follows no loop.

mod btrfs;
mod claims;
mod ext;
mod paths;
mod xfs;

use crate::content::Kind;
use crate::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A file, directory or link in a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId {
    /// The number of its subvolume in Btrfs; 0 elsewhere.
    pub tree: u64,
    /// The number of its inode.
    pub inode: u64,
}

/// What of a file some bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Content, from this byte of the file on.
    Content(u64),
    /// Compressed content: bytes of the file from this one on are in it.
    Compressed(u64),
    /// The names in a directory.
    Entries,
    /// The record of where its content is.
    Map,
    /// Its extended attributes.
    Attributes,
}

/// What some bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// A part of a file.
    File(FileId, Part),
    /// The journal.
    Journal,
    /// Metadata of the file system, in words.
    Metadata(String),
    /// Free space.
    Free,
    /// Nothing: it is behind the end of the file system.
    Behind,
    /// Not known, and why.
    Unknown(String),
}

/// A range of the volume, and what it is. A range that several files share has several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Bytes of the volume.
    pub range: Range<u64>,
    /// What they are.
    pub owner: Owner,
}

/// The answer.
#[derive(Debug, Default)]
pub struct Owners {
    /// What the ranges are, in order.
    pub places: Vec<Place>,
    /// A path of each file, as far as it was found.
    pub paths: BTreeMap<FileId, String>,
    /// What could not be read, and what makes the answer uncertain.
    pub notes: Vec<String>,
}

impl Owners {
    /// The files of the places.
    fn files(&self) -> BTreeSet<FileId> {
        let file = |place: &Place| if let Owner::File(file, _) = place.owner { Some(file) } else { None };
        self.places.iter().filter_map(file).collect()
    }
}

/// Says what has the bytes `ranges` of a file system of this kind; `None` for other kinds.
///
/// # Errors
/// When the file system has no superblock that can be used.
pub async fn find<S: Source + ?Sized>(source: &S, kind: Kind, ranges: &[Range<u64>]) -> Option<Result<Owners, String>> {
    match kind {
        Kind::Ext => Some(ext::find(source, ranges).await),
        Kind::Xfs => Some(xfs::find(source, ranges).await),
        Kind::Btrfs => Some(btrfs::find(source, ranges).await),
        _ => None,
    }
}
