//! Reads what md left on one member: superblock, bitmap, bad-block log.
//!
//! It never writes. [`mod@format`] decodes; this file finds the places and fetches the bytes, in the units
//! that the member takes.

use crate::base::buffer::Pool;
use crate::control::names::uuid_text;
use crate::metadata::stripe_log::found::of_member;
use crate::seam::bytes::read_bytes;
use crate::seam::error::Refusal;
use crate::seam::member::{Limits, Member};
use format::bad_blocks;
use format::signature::{Signature, recognize, windows};
use format::superblock::{Resync, Superblock, Version, decode, places};
use format::units::{MemberByte, SECTOR_BYTES};
use std::ops::Range;

/// A member's superblock, and the bytes at its place.
#[derive(Debug, Clone)]
pub struct Found {
    /// The superblock that counts.
    pub superblock: Superblock,
    /// The bytes at its place, up to 4096.
    pub place: Box<[u8]>,
}

/// Finds the superblock of `member`. Of two valid ones the later created one counts, as in mdadm.
///
/// # Errors
/// When there is no superblock, or none is valid: then the refusal names the field.
pub async fn find_superblock<M: Member>(name: &str, member: &M, pool: &Pool) -> Result<Found, Refusal> {
    match search(name, member, pool).await {
        (Some(found), _) => Ok(found),
        (None, Some(refusal)) => Err(refusal),
        (None, None) => Err(none(name, find_signature(name, member, pool).await.ok().flatten())),
    }
}

/// Whether an assembly of the member's array may replay a log. To read it, the caller then gives members whose writes stay
/// in memory.
pub async fn may_replay<M: Member>(name: &str, member: &M, pool: &Pool) -> bool {
    let Ok(Found { superblock, .. }) = find_superblock(name, member, pool).await else { return false };
    if superblock.ppl.is_some() || superblock.journal {
        return true;
    }
    superblock.resync != Resync::Clean && matches!(of_member(member, name, &superblock, pool).await, Ok(Some(_)))
}

/// The superblock of a member that is about to be overwritten, if there is one.
///
/// # Errors
/// When a superblock begins there but is not valid, or a place cannot be read: the array may need a newer
/// driver, or the member may be repairable. Also when the member holds other data that [`format::signature`]
/// knows.
pub(crate) async fn find_claim<M: Member>(name: &str, member: &M, pool: &Pool) -> Result<Option<Superblock>, Refusal> {
    if let Some(superblock) = find_claim_of_md(name, member, pool).await? {
        return Ok(Some(superblock));
    }
    match find_signature(name, member, pool).await? {
        None => Ok(None),
        Some(Signature { what, at }) => Err(Refusal::new(format!("holds {what}, which begins at byte {at}"))
            .of(name)
            .advice("give another member, or look at what is there first; --force overwrites it")),
    }
}

/// As [`find_claim`], for a member that holds only zeros, as the caller says. Only superblocks are searched.
pub(crate) async fn find_claim_of_md<M: Member>(
    name: &str,
    member: &M,
    pool: &Pool,
) -> Result<Option<Superblock>, Refusal> {
    match search(name, member, pool).await {
        (Some(found), _) => Ok(Some(found.superblock)),
        (None, None) => Ok(None),
        (None, Some(refusal)) => Err(refusal.advice(
            "it may still belong to an array: `mdspace examine` shows what is there; --force takes it as if it were empty",
        )),
    }
}

/// Describes what an overwrite of `member` would lose, in words that follow "holds"; `None` when nothing is
/// known. It never fails: what cannot be read is described as such.
pub async fn what_it_holds<M: Member>(name: &str, member: &M, pool: &Pool) -> Option<String> {
    match find_claim(name, member, pool).await {
        Ok(None) => None,
        Ok(Some(superblock)) => Some(format!("a member of the array {}", uuid_text(&superblock.set_uuid))),
        Err(_) => match find_signature(name, member, pool).await {
            Ok(found) => Some(found.map_or("what may be a superblock", |found| found.what).to_owned()),
            Err(refusal) => Some(format!("unknown contents: {}", refusal.reason)),
        },
    }
}

/// Finds what software other than md has left on `member`.
///
/// # Errors
/// When a part of it cannot be read.
async fn find_signature<M: Member>(name: &str, member: &M, pool: &Pool) -> Result<Option<Signature>, Refusal> {
    let Limits { bytes: member_bytes, logical_block_bytes, .. } = *member.limits();
    // A partial block at the end of a file cannot be read by itself. No signature is expected there.
    let whole = member_bytes / u64::from(logical_block_bytes) * u64::from(logical_block_bytes);
    let mut parts = Vec::new();
    for window in windows(member_bytes) {
        let unreadable = |reason| {
            Refusal::new(reason)
                .of(name)
                .field("signatures")
                .advice("its contents are unknown; give another member; --force takes it as if it were empty")
        };
        let bytes = window.end.min(whole).saturating_sub(window.start);
        let part = read_bytes(member, pool, MemberByte(window.start), bytes).await;
        parts.push((window.start, part.map_err(unreadable)?));
    }
    Ok(recognize(member_bytes, &parts))
}

/// The superblock that counts, and the first error at any of the places.
async fn search<M: Member>(name: &str, member: &M, pool: &Pool) -> (Option<Found>, Option<Refusal>) {
    let member_bytes = member.limits().bytes;
    let mut found: Option<Found> = None;
    let mut refusal = None;
    for (version, at) in places(member_bytes) {
        let bytes = crate::device::place_bytes(at, member_bytes) as u64;
        let place = match read_bytes(member, pool, at, bytes).await {
            Ok(place) => place,
            Err(reason) => {
                // A bad sector where another version's superblock would be does no harm.
                refusal.get_or_insert_with(|| Refusal::new(reason).of(name).field("superblock"));
                continue;
            }
        };
        match decode(version, at, &place, member_bytes) {
            Ok(None) => {}
            Ok(Some(superblock)) => {
                if found.as_ref().is_none_or(|other| other.superblock.created < superblock.created) {
                    found = Some(Found { superblock, place: place.into() });
                }
            }
            Err(defect) => {
                refusal.get_or_insert_with(|| damaged(name, version, defect));
            }
        }
    }
    (found, refusal)
}

fn damaged(name: &str, version: Version, defect: format::Defect) -> Refusal {
    Refusal::defect(name, defect).advice(format!("its {version} superblock cannot be used; leave this member out"))
}

/// The refusal for a member without a superblock; it names other data that was recognized.
fn none(name: &str, other: Option<Signature>) -> Refusal {
    let none = "no md superblock is on it, of version 0.90, 1.0, 1.1 or 1.2";
    let refuse = |reason: String| Refusal::new(reason).of(name).field("superblock.magic");
    match other {
        None => refuse(none.to_owned()),
        Some(other) if !other.is_known() => refuse(none.to_owned()),
        Some(other) if other.is_partition_table() => refuse(format!("{none}, but {}", other.what)).advice(
            "an array's members are partitions then: name these, such as `disk.img:2`; `mdspace detect` prints them",
        ),
        Some(other) if other.is_of_firmware() => refuse(format!("{none}, but {}", other.what)).advice(
            "`mdspace detect` prints its volumes; `mdspace read` and `mdspace serve --read-only` take its disks",
        ),
        Some(other) => refuse(format!("{none}, but {}", other.what)),
    }
}

/// The ranges of data bytes in a member's bad-block log.
///
/// # Errors
/// When the log cannot be read or decoded.
pub(crate) async fn read_bad_blocks<M: Member>(
    name: &str,
    member: &M,
    superblock: &Superblock,
    pool: &Pool,
) -> Result<Vec<Range<u64>>, Refusal> {
    let (Some(place), Some(at)) = (superblock.bad_blocks.filter(|log| log.in_use), superblock.bad_blocks_at()) else {
        return Ok(Vec::new());
    };
    let bytes = u64::from(place.sectors) * SECTOR_BYTES;
    let unreadable = |reason| Refusal::new(reason).of(name).field("bad-block log");
    let log = read_bytes(member, pool, at, bytes).await.map_err(unreadable)?;
    let bad = bad_blocks::decode(&log, place.shift).map_err(|defect| Refusal::defect(name, defect))?;
    Ok(bad.iter().map(|range| range.first.bytes()..range.first.bytes() + range.count.bytes()).collect())
}
