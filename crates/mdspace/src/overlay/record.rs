//! What a commit records of each member before it changes the first, so that the commit that completes it writes to the
//! same members and to nothing that was made there meanwhile.
//!
//! A half-committed member has no superblock, so that it looks blank to every program. Three things tell it: its file, the
//! bytes at its ends that the commit does not write, and its superblocks, which are the old ones, the new ones or none.

use super::commit::superblock_blocks;
use crate::place;
use engine::{Member, Pool, Refusal};
use format::overlay::{BLOCK_BYTES, END_BYTES, checksum};
use format::units::MemberByte;
use io::StoredOverlay;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// The unit in which a transfer may be torn.
const SECTOR_BYTES: usize = 512;

/// A member, as the commit found it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    file: Option<RegularFile>,
    /// The checksum of what the commit does not write in the first and last [`END_BYTES`].
    ends: u32,
    /// The checksums of the sectors of its superblocks.
    superblocks: Vec<u32>,
}

/// A file, also after a restart, which may give its file system another number.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RegularFile {
    inode: u64,
    bytes: u64,
    /// When it was made, in nanoseconds since 1970, if its file system says so.
    made: Option<u64>,
}

impl RegularFile {
    fn of(path: &Path) -> Option<Self> {
        let found = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let made = found.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        let made = made.and_then(|made| u64::try_from(made.as_nanos()).ok());
        Some(Self { inode: found.ino(), bytes: found.len(), made })
    }
}

impl Record {
    /// The member at `path`, under `overlay`, which holds the superblocks that it has.
    pub(super) async fn of(path: &Path, overlay: &StoredOverlay, pool: &Pool) -> Result<Self, Refusal> {
        let name = crate::names::name_of(path);
        let mut sums = Vec::new();
        for blocks in superblock_blocks(&name, overlay.under(), pool).await.runs() {
            let bytes = read(&name, overlay.under(), blocks, pool).await?;
            sums.extend(bytes.chunks(SECTOR_BYTES).map(checksum));
        }
        Ok(Self { file: file_of(path), ends: ends(&name, overlay, pool).await?, superblocks: sums })
    }

    /// Refuses another member than the one of this record, and one on which something was made since.
    pub(super) async fn check(&self, path: &Path, overlay: &StoredOverlay, pool: &Pool) -> Result<(), Refusal> {
        let name = crate::names::name_of(path);
        let refused = |what: &str| {
            let reason = format!("a commit to it was interrupted, and {what}");
            Refusal::new(reason).of(&name).advice(
                "put the member back that the commit has begun to change; to keep what is there now instead, remove the \
                 overlay's directory: the changes in it are lost",
            )
        };
        if self.file != file_of(path) {
            return Err(refused("another file is in its place"));
        }
        if self.ends != ends(&name, overlay, pool).await? {
            return Err(refused("its other bytes have changed since"));
        }
        for blocks in superblock_blocks(&name, overlay.under(), pool).await.runs() {
            let found = read(&name, overlay.under(), blocks.clone(), pool).await?;
            let new = read(&name, overlay, blocks, pool).await?;
            let is_known = |(found, new): (&[u8], &[u8])| {
                found == new || found.iter().all(|byte| *byte == 0) || self.superblocks.contains(&checksum(found))
            };
            if !found.chunks(SECTOR_BYTES).zip(new.chunks(SECTOR_BYTES)).all(is_known) {
                return Err(refused("another superblock was written there since"));
            }
        }
        Ok(())
    }
}

fn file_of(path: &Path) -> Option<RegularFile> {
    place::resolve(path).ok().and_then(|(file, _)| RegularFile::of(&file))
}

/// The checksum of what the overlay does not hold in the member's ends.
async fn ends(name: &str, overlay: &StoredOverlay, pool: &Pool) -> Result<u32, Refusal> {
    let blocks = overlay.limits().bytes.div_ceil(BLOCK_BYTES);
    let length = (END_BYTES / BLOCK_BYTES).min(blocks);
    let held = overlay.blocks();
    let mut bytes = Vec::new();
    for end in [0..length, blocks - length..blocks] {
        let mut at = end.start;
        while at < end.end {
            let (is_held, behind) = held.run(at..end.end);
            if !is_held {
                bytes.extend(read(name, overlay.under(), at..behind, pool).await?);
            }
            at = behind;
        }
    }
    Ok(checksum(&bytes))
}

/// Blocks of a member, as far as it has them.
async fn read<M: Member>(name: &str, member: &M, blocks: Range<u64>, pool: &Pool) -> Result<Vec<u8>, Refusal> {
    let start = blocks.start * BLOCK_BYTES;
    let end = (blocks.end * BLOCK_BYTES).min(member.limits().bytes);
    let (read, bytes) = member.read(MemberByte(start), pool.take((end - start) as usize)).await;
    read.map_err(|error| Refusal::member_error(name, &error))?;
    Ok(bytes.to_vec())
}

/// Takes the room that the commit will need from the file system of the file at `path`, so that it cannot run out of it
/// half way. The bytes of the file stay as they are, and so does the time of its last write, which the overlay compares.
pub(super) fn reserve(path: &Path, overlay: &StoredOverlay) -> std::io::Result<()> {
    let (path, part) = place::resolve(path)?;
    let Some(found) = path.metadata().ok().filter(std::fs::Metadata::is_file) else { return Ok(()) };
    let at = part.map_or(0, |part| part.at);
    let file = std::fs::File::options().write(true).open(&path)?;
    let mut reserved = Ok(());
    for run in overlay.blocks().runs() {
        let (start, end) = (run.start * BLOCK_BYTES, (run.end * BLOCK_BYTES).min(overlay.limits().bytes));
        match io::reserve(&file, at + start, end - start) {
            Ok(true) => {}
            Ok(false) => break, // it cannot be told beforehand there
            Err(error) => {
                reserved = Err(error);
                break;
            }
        }
    }
    drop(file.set_modified(found.modified()?)); // else the overlay takes the member for changed, and is refused
    reserved
}
