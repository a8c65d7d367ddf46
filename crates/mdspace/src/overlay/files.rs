//! The files of an overlay's directory: an index and a data file for each member, and how far a commit has come.
//!
//! An entry exists when its index does, which is renamed into place after its data file is on stable storage. Indexes
//! that cannot be decoded are refused, and never changed.

use super::Layer;
use crate::machine::Purpose;
use format::overlay::{BLOCK_BYTES, Header, Index};
use io::{Direct, Lock, OpenFile, OpenOptions};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::path::{Path, PathBuf};

/// Bytes of an index that surely have all of its header: a path has 4096 at most.
const HEADER_BYTES_MAX: u64 = 8192;

/// How far an overlay's commit has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// None was begun.
    InUse,
    /// Its members have some of the changes.
    Committing,
    /// Its members have all of them, on stable storage.
    Committed,
}

const COMMITTING: &str = "committing";
const COMMITTED: &str = "committed";

impl Stage {
    /// The stage of the overlay in `directory`.
    pub(super) fn of(directory: &Path) -> Self {
        match (directory.join(COMMITTED).exists(), directory.join(COMMITTING).exists()) {
            (true, _) => Self::Committed,
            (false, true) => Self::Committing,
            (false, false) => Self::InUse,
        }
    }

    /// Begins a commit: the members may be written to once this has returned.
    #[cfg(feature = "command")]
    pub(super) fn begin_commit(directory: &Path) -> Result<()> {
        File::create(directory.join(COMMITTING))?.sync_all()?;
        sync_directory(directory)
    }

    /// Ends a commit: the overlay may be removed once this has returned.
    #[cfg(feature = "command")]
    pub(super) fn end_commit(directory: &Path) -> Result<()> {
        std::fs::rename(directory.join(COMMITTING), directory.join(COMMITTED))?;
        sync_directory(directory)
    }

    /// Removes the mark of a commit, last of all.
    #[cfg(feature = "command")]
    pub(super) fn forget(directory: &Path) -> Result<()> {
        for name in [COMMITTING, COMMITTED] {
            remove(&directory.join(name))?;
        }
        Ok(())
    }
}

/// The files for one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    index: PathBuf,
    data: PathBuf,
}

impl Entry {
    fn numbered(directory: &Path, number: u64) -> Self {
        let file = |end: &str| directory.join(format!("member-{number}.{end}"));
        Self { index: file("index"), data: file("data") }
    }

    /// Its number, if `name` is that of an index.
    fn number(name: &str) -> Option<u64> {
        name.strip_prefix("member-")?.strip_suffix(".index")?.parse().ok()
    }

    /// Removes it if its index names no block. Returns whether it is removed.
    pub(super) fn remove_if_empty(&self) -> bool {
        self.decode().is_ok_and(|index| index.blocks.is_empty()) && self.remove().is_ok()
    }

    /// Removes it.
    pub(super) fn remove(&self) -> Result<()> {
        remove(&self.index)?;
        remove(&self.data)
    }

    /// What its index says.
    pub(super) fn decode(&self) -> Result<Index> {
        Index::decode(&std::fs::read(&self.index)?).map_err(|defect| self.damaged(&defect))
    }

    fn damaged(&self, defect: &format::Defect) -> Error {
        Error::other(format!("{}: {defect}", self.index.display()))
    }
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The entries in `directory` with their headers, by number.
pub(super) fn entries(directory: &Path) -> Result<Vec<(Entry, Header)>> {
    let mut numbers = Vec::new();
    for file in directory.read_dir()? {
        numbers.extend(file?.file_name().to_str().and_then(Entry::number));
    }
    numbers.sort_unstable();
    let mut found = Vec::new();
    for number in numbers {
        let entry = Entry::numbered(directory, number);
        let mut bytes = Vec::new();
        File::open(&entry.index)?.take(HEADER_BYTES_MAX).read_to_end(&mut bytes)?;
        let (header, _) = Header::decode(&bytes).map_err(|defect| entry.damaged(&defect))?;
        found.push((entry, header));
    }
    Ok(found)
}

/// Makes an entry without blocks. The caller has the overlay locked.
pub(super) fn make_entry(directory: &Path, header: &Header) -> Result<Entry> {
    let next = entries(directory)?.len() as u64;
    let is_free = |number: &u64| {
        let Entry { index, data } = Entry::numbered(directory, *number);
        !index.exists() && !data.exists()
    };
    let number = (next..).find(is_free).expect("numbers do not end");
    let entry = Entry::numbered(directory, number);
    io::create_sparse(&entry.data, header.identity.bytes.next_multiple_of(BLOCK_BYTES))?;
    File::open(&entry.data)?.sync_all()?;
    let new = entry.index.with_extension("new");
    let mut index = File::create(&new)?;
    index.write_all(&header.encode())?;
    index.sync_all()?;
    std::fs::rename(new, &entry.index)?;
    sync_directory(directory)?;
    Ok(entry)
}

fn sync_directory(directory: &Path) -> Result<()> {
    File::open(directory)?.sync_all()
}

/// Opens the files of an entry.
pub(super) fn open_entry(entry: &Entry, purpose: Purpose) -> Result<Layer> {
    let Index { header, blocks, end } = entry.decode()?;
    let bytes = header.identity.bytes;
    let lock = match purpose {
        Purpose::Write => Lock::Exclusive,
        Purpose::Read => Lock::Shared,
        Purpose::Look => Lock::None,
    };
    let options = OpenOptions { read_only: purpose != Purpose::Write, lock, ..OpenOptions::default() };
    let open = |direct| {
        let opened = OpenFile::open(&entry.data, &OpenOptions { direct, ..options });
        opened.map_err(|error| Error::other(error.to_string()))
    };
    let mut data = open(Direct::Auto)?;
    if data.limits().logical_block_bytes > SECTOR_BYTES {
        drop(data);
        data = open(Direct::Never)?; // the member may be written in smaller units than this file system transfers
    }
    if data.limits().bytes < bytes {
        let path = entry.data.display();
        return Err(Error::other(format!("{path}: has {} bytes, but its member has {bytes}", data.limits().bytes)));
    }
    let index = match purpose {
        Purpose::Write => {
            let index = File::options().write(true).open(&entry.index)?;
            index.set_len(end)?; // what a power loss left of a record
            index.sync_all()?;
            Some((index, end))
        }
        Purpose::Read | Purpose::Look => None,
    };
    Ok(Layer { bytes, data, index, blocks })
}

/// The smallest unit of a transfer.
const SECTOR_BYTES: u32 = 512;
