//! The files of an overlay's directory: an index and a data file for each member, and how far a commit has come.
//!
//! An entry exists when its index does, which is renamed into place after its data file is on stable storage. Indexes
//! that cannot be decoded are refused, and never changed.

use super::Layer;
use crate::machine::Purpose;
use format::overlay::{BLOCK_BYTES, Header, Index};
use io::{Direct, Lock, OpenFile, OpenOptions};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes of an index that have all of most headers: a path has 4096 at most, and few members have holes.
const HEADER_BYTES: u64 = 8192;

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
#[cfg(feature = "command")]
const COMMITTING_NEW: &str = "committing.new";

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
    ///
    /// `record` says what the members are; [`Stage::record`] returns it to a later commit.
    pub(super) fn begin_commit(directory: &Path, record: &[u8]) -> Result<()> {
        let new = directory.join(COMMITTING_NEW);
        let mut file = File::create(&new)?;
        file.write_all(record)?;
        file.sync_all()?;
        std::fs::rename(new, directory.join(COMMITTING))?;
        sync_directory(directory)
    }

    /// Takes a commit back that has changed no member.
    #[cfg(feature = "command")]
    pub(super) fn cancel_commit(directory: &Path) -> Result<()> {
        std::fs::remove_file(directory.join(COMMITTING))?;
        sync_directory(directory)
    }

    /// What the commit that has begun knows of the members.
    #[cfg(feature = "command")]
    pub(super) fn record(directory: &Path) -> Result<Vec<u8>> {
        std::fs::read(directory.join(COMMITTING))
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
        for name in [COMMITTING_NEW, COMMITTING, COMMITTED] {
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

    /// Its number, if `name` is that of one of its files.
    fn number(name: &str) -> Option<u64> {
        let (number, kind) = name.strip_prefix("member-")?.split_once('.')?;
        let is_ours = number.bytes().all(|byte| byte.is_ascii_digit()) && ["index", "data", "new"].contains(&kind);
        number.parse().ok().filter(|_| is_ours)
    }

    /// A data file without its index. Only one that was never written to is what a killed process left.
    fn check_orphan(&self) -> Result<()> {
        if self.data.metadata()?.blocks() == 0 {
            return Ok(());
        }
        let (index, data) = (self.index.display(), self.data.display());
        Err(Error::other(format!("{index}: is missing, and {data} holds changes of a member")))
    }

    /// Removes it if its index names no block. Returns whether it is removed.
    pub(super) fn remove_if_empty(&self) -> bool {
        self.decode().is_ok_and(|index| index.blocks.is_empty()) && self.remove().is_ok()
    }

    /// Removes it.
    pub(super) fn remove(&self) -> Result<()> {
        remove(&self.index)?;
        remove(&self.index.with_extension("new"))?;
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

/// What has any file in `directory`, whole or not, by number.
pub(super) fn all_files(directory: &Path) -> Result<Vec<Entry>> {
    let mut numbers = BTreeSet::new();
    for file in directory.read_dir()? {
        numbers.extend(file?.file_name().to_str().and_then(Entry::number));
    }
    Ok(numbers.into_iter().map(|number| Entry::numbered(directory, number)).collect())
}

/// The entries in `directory` with their headers, by number.
pub(super) fn entries(directory: &Path) -> Result<Vec<(Entry, Header)>> {
    let mut found = Vec::new();
    for entry in all_files(directory)? {
        if !entry.index.exists() {
            if entry.data.exists() {
                entry.check_orphan()?;
            }
            continue;
        }
        let (mut bytes, file) = (Vec::new(), File::open(&entry.index)?);
        (&file).take(HEADER_BYTES).read_to_end(&mut bytes)?;
        let rest = Header::encoded_bytes(&bytes).unwrap_or_default().saturating_sub(HEADER_BYTES);
        (&file).take(rest).read_to_end(&mut bytes)?;
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
    let made = write_entry(directory, header, &entry);
    if made.is_err() {
        drop(entry.remove()); // the first error counts
    }
    made.map(|()| entry)
}

fn write_entry(directory: &Path, header: &Header, entry: &Entry) -> Result<()> {
    io::create_sparse(&entry.data, header.bytes().next_multiple_of(BLOCK_BYTES))?;
    File::open(&entry.data)?.sync_all()?;
    let new = entry.index.with_extension("new");
    let mut index = File::create(&new)?;
    index.write_all(&header.encode())?;
    index.sync_all()?;
    std::fs::rename(new, &entry.index)?;
    sync_directory(directory)
}

fn sync_directory(directory: &Path) -> Result<()> {
    File::open(directory)?.sync_all()
}

/// Opens the files of an entry.
pub(super) fn open_entry(entry: &Entry, purpose: Purpose) -> Result<Layer> {
    let Index { header, blocks, end } = entry.decode()?;
    let bytes = header.bytes();
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
    Ok(Layer { bytes, data, index, blocks, holes: header.holes })
}

/// The smallest unit of a transfer.
const SECTOR_BYTES: u32 = 512;
