//! Which entry of an overlay is a member's, and whether the member is still what it was.
//!
//! An entry names its member by path. The same bytes have other names: links, ranges, devices, a directory that was moved.
//! A member under another name must not be shown without its overlay. So the same file and range is found by inode, and
//! a member that holds what an entry's member held is refused. Nothing here writes.

use crate::machine::Purpose;
use crate::overlay::files::Entry;
use crate::place;
use disk::content::superblock;
use disk::{Section, Source};
use format::overlay::{END_BYTES, Header, Identity, SAMPLE_BYTES, SAMPLES, Written, checksum};
use std::ffi::OsString;
use std::io::{Error, Result};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The name of a member in an index: the same for every path of the same file or device, or of the same part of it.
pub(super) fn key_of(member: &Path) -> Result<Vec<u8>> {
    let (file, at, bytes) = place::identity(member)?;
    let mut name = file.into_os_string();
    match (at, bytes) {
        (0, u64::MAX) => {}
        (at, u64::MAX) => name.push(format!("@{at}")),
        (at, bytes) => name.push(format!("@{at}+{bytes}")),
    }
    Ok(name.into_vec())
}

/// The member that an index names.
fn path_of(header: &Header) -> PathBuf {
    OsString::from_vec(header.name.clone()).into()
}

/// What a member holds now.
pub(super) fn identity_of(member: &Path) -> Result<Identity> {
    let (path, part) = place::resolve(member)?;
    let file = place::DiskFile::open(&path)?;
    let io::Part { at, bytes } = part.unwrap_or(io::Part { at: 0, bytes: u64::MAX });
    let section = Section::new(&file, at, bytes);
    let bytes = section.bytes();
    let length = bytes.min(END_BYTES);
    let (first, last) = (sum(&section, 0, length)?, sum(&section, bytes - length, length)?);
    let events = place::at_once(superblock(&section)).ok().flatten().map_or(0, |superblock| superblock.events);
    let modified = modified(&path);
    let samples = if modified == 0 { samples(&section)? } else { 0 };
    let written = if part.is_none() { written(&path) } else { None };
    Ok(Identity { bytes, first, last, modified, events, samples, written })
}

/// The checksum of places between the ends, evenly spread. It tells another disk, or one that was copied over or
/// recovered, and not a single write.
fn samples(section: &impl Source) -> Result<u32> {
    let between = section.bytes().saturating_sub(2 * END_BYTES);
    let mut sums = Vec::new();
    for number in 0..SAMPLES {
        let at = END_BYTES + between / SAMPLES * number / SAMPLE_BYTES * SAMPLE_BYTES;
        let length = SAMPLE_BYTES.min((END_BYTES + between).saturating_sub(at));
        sums.extend(sum(section, at, length)?.to_le_bytes());
    }
    Ok(checksum(&sums))
}

/// What the kernel has written to the device at `path` since its start, by its own count. What it still has to write is
/// written first, or the count would grow later without a further change.
///
/// Source: Documentation/block/stat.rst in Linux; a boot has a random id.
fn written(path: &Path) -> Option<Written> {
    path.metadata().ok().filter(|found| found.file_type().is_block_device())?;
    let node = path.canonicalize().ok()?;
    std::fs::File::open(path).and_then(|device| device.sync_all()).ok()?;
    let stat = std::fs::read_to_string(Path::new("/sys/class/block").join(node.file_name()?).join("stat")).ok()?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = boot.trim().chars().filter(|letter| *letter != '-').collect();
    let boot = u128::from_str_radix(&digits, 16).ok().filter(|boot| *boot != 0)?.to_be_bytes();
    Some(Written { boot, sectors: stat.split_whitespace().nth(SECTORS_WRITTEN)?.parse().ok()? })
}

/// The place of the sectors written among the numbers of a device's `stat`.
const SECTORS_WRITTEN: usize = 6;

fn sum(section: &impl Source, at: u64, length: u64) -> Result<u32> {
    let read = place::at_once(section.read(at, length as usize));
    read.map(|bytes| checksum(&bytes)).map_err(Error::other)
}

/// When a regular file was last written to; 0 for anything else.
fn modified(path: &Path) -> u64 {
    let found = path.metadata().ok().filter(std::fs::Metadata::is_file);
    found.map_or(0, |found| {
        let nanos = i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec());
        u64::try_from(nanos).unwrap_or_default()
    })
}

/// The entry of `member`, by its name or by its file and range.
///
/// # Errors
/// When two are, or one begins at the same byte and ends at another.
pub(super) fn find(member: &Path, entries: Vec<(Entry, Header)>) -> Result<Option<(Entry, Header)>> {
    let key = key_of(member)?;
    let is_named = entries.iter().any(|(_, header)| header.name == key);
    let span = if is_named || entries.is_empty() { None } else { Span::of(member) };
    let mut found = Vec::new();
    for (entry, header) in entries {
        let is_it = if is_named { header.name == key } else { Span::is_same(span.as_ref(), &header)? };
        if is_it {
            found.push((entry, header));
        }
    }
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => Err(Error::other("the overlay has two entries of the member")),
    }
}

/// A range of a file or device.
#[derive(PartialEq, Eq)]
struct Span {
    /// Device and inode of a file; of a device its number alone.
    file: (u64, u64),
    start: u64,
    end: u64,
}

impl Span {
    /// The span of `path`; `None` for an export, or what cannot be opened.
    fn of(path: &Path) -> Option<Self> {
        let (file, start, bytes) = place::identity(path).ok()?;
        let found = file.metadata().ok()?;
        let is_device = found.file_type().is_block_device();
        let key = if is_device { (u64::MAX, found.rdev()) } else { (found.dev(), found.ino()) };
        let end = place::DiskFile::open(&file).ok()?.bytes().min(start.saturating_add(bytes));
        Some(Self { file: key, start, end })
    }

    /// Whether it is that of the entry.
    fn is_same(span: Option<&Self>, header: &Header) -> Result<bool> {
        let Some((span, of_entry)) = span.zip(Self::of(&path_of(header))) else { return Ok(false) };
        if span.file != of_entry.file || span.start != of_entry.start {
            return Ok(false);
        }
        if span.end != of_entry.end {
            return Err(other_name(header, "begins at the same byte, and ends at another"));
        }
        Ok(true)
    }
}

fn other_name(header: &Header, why: &str) -> Error {
    let name = path_of(header);
    Error::other(format!("the overlay has the member {}, which {why}: give the member that name", name.display()))
}

/// Refuses a member without an entry that may be an entry's under another name.
///
/// Without a superblock a member is nothing to read, so what is blank at both ends is not compared.
pub(super) fn refuse_other_name(member: &Path, entries: &[(Entry, Header)], purpose: Purpose) -> Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let (file, part) = place::resolve(member)?;
    let file = place::DiskFile::open(&file)?;
    let io::Part { at, bytes } = part.unwrap_or(io::Part { at: 0, bytes: u64::MAX });
    let section = Section::new(&file, at, bytes);
    for (_, header) in entries {
        if holds_the_same(&section, &header.identity)? {
            return Err(other_name(header, "held the same"));
        }
        let named = path_of(header);
        if purpose == Purpose::Read && !place::exists(&named) {
            let named = named.display();
            return Err(Error::other(format!("the overlay has no such member, and its member {named} is not there")));
        }
    }
    Ok(())
}

/// Whether `section` begins with what the entry's member held.
fn holds_the_same(section: &impl Source, identity: &Identity) -> Result<bool> {
    let length = identity.bytes.min(END_BYTES);
    let blank = checksum(&vec![0; length as usize]);
    if section.bytes() < identity.bytes || (identity.first, identity.last) == (blank, blank) {
        return Ok(false);
    }
    Ok(sum(section, 0, length)? == identity.first && sum(section, identity.bytes - length, length)? == identity.last)
}
