//! The stripe log of one member as it is found there: its header, and the records in its ring.
//!
//! It only reads. What the members' records mean together is decided in [`super::replay`].

use crate::base::buffer::Pool;
use crate::seam::bytes::read_bytes;
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use format::stripe_log::{Header, PAGE_BYTES, Place, Record};
use format::superblock::Superblock;
use format::units::MemberByte;

/// The most bytes of a ring that are read at a time.
const PIECE_BYTES: u64 = 256 << 10;

/// The header of the log on a member; `None` if it has none of this array.
///
/// # Errors
/// When it cannot be read, is damaged, or is of a newer version.
pub(crate) async fn of_member<M: Member>(
    member: &M,
    name: &str,
    superblock: &Superblock,
    pool: &Pool,
) -> Result<Option<(Header, Place)>, Refusal> {
    let wrong = |defect| Refusal::defect(name, defect);
    let Some(at) = Place::start(superblock).ok().filter(|at| at.0 + PAGE_BYTES as u64 <= superblock.data_at().0) else {
        return Ok(None);
    };
    let page = read(member, name, at, PAGE_BYTES as u64, pool).await?;
    let header = Header::decode(&page).map_err(wrong)?.filter(|header| header.set_uuid == superblock.set_uuid);
    let Some(header) = header else { return Ok(None) };
    let place = Place::found(superblock, &header).map_err(wrong)?;
    Ok(Some((header, place)))
}

/// Checks that the log counts for the member's superblock.
///
/// # Errors
/// Why it does not.
pub(crate) fn check_current(
    name: &str,
    superblock: &Superblock,
    header: &Header,
    place: &Place,
) -> Result<(), Refusal> {
    header.check(superblock, place).map_err(|defect| Refusal::defect(name, defect))?;
    if header.vouches_for(superblock) || mutant!("void-log-replayed") {
        return Ok(());
    }
    let reason = "other software has written the member since the log was kept";
    Err(Refusal::new(reason).of(name).field("superblock.events"))
}

/// The records in a member's ring.
///
/// # Errors
/// When the ring cannot be read.
pub(crate) async fn records_of<M: Member>(
    member: &M,
    name: &str,
    header: &Header,
    place: &Place,
    pool: &Pool,
) -> Result<Vec<Record>, Refusal> {
    let (ring_bytes, page) = (place.ring_bytes(), PAGE_BYTES as u64);
    let mut ring = Vec::with_capacity(ring_bytes as usize);
    for at in (0..ring_bytes).step_by(PIECE_BYTES as usize) {
        let bytes = (ring_bytes - at).min(PIECE_BYTES);
        ring.extend(read(member, name, place.in_ring(at), bytes, pool).await?);
    }
    let (mut records, mut offset) = (Vec::new(), 0);
    while offset + page <= ring_bytes {
        let head = &ring[offset as usize..(offset + page) as usize];
        let record = Record::decode(head, offset, ring_bytes, header.epoch, header.seed());
        // A newer record may lie over all but the head of one that was given up.
        let record = record.filter(|record| record.sequence >= header.first);
        offset += record.as_ref().map_or(page, Record::bytes);
        records.extend(record);
    }
    Ok(records)
}

/// Bytes of the log.
pub(super) async fn read<M: Member>(
    member: &M,
    name: &str,
    at: MemberByte,
    bytes: u64,
    pool: &Pool,
) -> Result<Vec<u8>, Refusal> {
    if bytes == 0 {
        return Ok(Vec::new());
    }
    let unreadable = |reason| Refusal::new(reason).of(name).field("stripe_log");
    read_bytes(member, pool, at, bytes).await.map_err(unreadable)
}
