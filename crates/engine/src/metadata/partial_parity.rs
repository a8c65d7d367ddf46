//! Replays the partial parity logs of an array that was not stopped cleanly. Afterwards parity agrees with the data, so
//! that it can be trusted also where a member is missing.
//!
//! It writes parity to the members, before any request. Of an array that is only read, the caller gives members whose
//! writes stay in memory. It never writes data, a log or a superblock.
//!
//! A torn log, or a torn entry, is one whose own writes had not begun: md writes the log first, and the next one only
//! when all writes of the one before have ended. So a torn one is passed over, as by md.
//!
//! If a write to several chunks was under way and one of their members is missing, nothing tells what that chunk held.
//! Parity stays as it is there, as with md: it gives the chunk if the write had ended, and otherwise any bytes of what was
//! being written. A log keeps writes that ended long ago, so these rows cannot be errors; the caller warns of them.
//!
//! Facts: `ppl_load_distributed`, `ppl_recover` and `ppl_recover_entry` in `drivers/md/raid5-ppl.c`; "Partial Parity
//! Log" in `Documentation/driver-api/md`.

use crate::base::buffer::Pool;
use crate::device::Device;
use crate::seam::bytes::{read_bytes, replace_bytes};
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use format::geometry::Parity;
use format::partial_parity::{HEADER_BYTES, Header, Repair, TORN, checksum};
use format::units::{ComponentByte, MemberByte, SECTOR_BYTES};
use std::ops::Range;
use std::rc::Rc;

/// The most bytes of a chunk that are repaired at a time.
const PIECE_BYTES: u64 = 256 << 10;

/// What a replay did.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    /// Entries whose parity was written.
    pub(crate) entries: u64,
    /// Logs and entries that were torn.
    pub(crate) torn: u64,
    /// Bytes of missing chunks that may have been under way, so that parity may give anything.
    pub(crate) unknown_bytes: u64,
}

/// The members of an array's slots.
pub(crate) type Slots<M> = [Option<Rc<Device<M>>>];

/// Replays the logs of all members that are here.
///
/// # Errors
/// When a log cannot be read, or is not of this array: parity may then be wrong where it says.
pub(crate) async fn replay<M: Member>(
    parity: &Parity,
    set_uuid: &[u8; 16],
    slots: &Slots<M>,
    pool: &Pool,
) -> Result<Replayed, Refusal> {
    let mut replayed = Replayed::default();
    for (index, device) in slots.iter().enumerate().filter_map(|(index, device)| Some((index, device.as_ref()?))) {
        let Some((header, mut at)) = newest(device, set_uuid, pool).await? else {
            replayed.torn += 1;
            continue;
        };
        for entry in &header.entries {
            let partial = Partial { device, at, bytes: entry.partial_parity_bytes.into() };
            at = MemberByte(at.0 + partial.bytes);
            if !partial.is_sound(entry.checksum, pool).await? && !mutant!("torn-entry-believed") {
                replayed.torn += 1;
                continue;
            }
            let repair = entry.repair(parity).map_err(|defect| Refusal::defect(&device.name, defect))?;
            if repair.parity_slot().index() != index {
                let reason = format!("its stripe's parity is in slot {}", repair.parity_slot());
                return Err(Refusal::new(reason).of(&device.name).field("ppl.parity_disk"));
            }
            carry_out(&repair, &partial, slots, &mut replayed, pool).await?;
            replayed.entries += 1;
        }
        let flushed = Member::flush(&device.member).await;
        flushed.map_err(|error| Refusal::member_error(&device.name, &error))?;
    }
    Ok(replayed)
}

/// The newest header of a member's log, and where its partial parity begins; `None` if it is torn.
async fn newest<M: Member>(
    device: &Device<M>,
    set_uuid: &[u8; 16],
    pool: &Pool,
) -> Result<Option<(Header, MemberByte)>, Refusal> {
    let superblock = device.superblock.borrow().clone();
    let (Some(place), Some(start)) = (superblock.ppl, superblock.ppl_at()) else {
        let reason = "it has no partial parity log, but other members have one";
        return Err(Refusal::new(reason).of(&device.name).field("superblock.feature_map"));
    };
    let room = u64::from(place.sectors) * SECTOR_BYTES;
    let (mut offset, mut newest): (u64, Option<(Header, MemberByte)>) = (0, None);
    while offset + HEADER_BYTES as u64 <= room {
        let at = MemberByte(start.0 + offset);
        let bytes = read(device, at, HEADER_BYTES as u64, pool).await?;
        let header = match Header::decode(&bytes, set_uuid, room - offset) {
            Ok(header) => header,
            Err(_) if newest.is_some() => break,
            Err(defect) if defect.field == TORN => break,
            Err(defect) => return Err(Refusal::defect(&device.name, defect)),
        };
        if newest.as_ref().is_some_and(|(before, _)| before.generation > header.generation) {
            break;
        }
        offset += header.bytes();
        newest = Some((header, MemberByte(at.0 + HEADER_BYTES as u64)));
        if !place.multiple || mutant!("oldest-header-replayed") {
            break;
        }
    }
    Ok(newest)
}

async fn read<M: Member>(device: &Device<M>, at: MemberByte, bytes: u64, pool: &Pool) -> Result<Vec<u8>, Refusal> {
    let unreadable = |reason| Refusal::new(reason).of(&device.name).field("partial parity log");
    read_bytes(&device.member, pool, at, bytes).await.map_err(unreadable)
}

/// The partial parity of an entry.
struct Partial<'a, M> {
    device: &'a Device<M>,
    at: MemberByte,
    bytes: u64,
}

impl<M: Member> Partial<'_, M> {
    async fn is_sound(&self, expected: u32, pool: &Pool) -> Result<bool, Refusal> {
        Ok(checksum(&read(self.device, self.at, self.bytes, pool).await?) == expected)
    }
}

/// Writes the parity of one entry. Where a changed chunk is not here, parity stays as it is.
async fn carry_out<M: Member>(
    repair: &Repair,
    partial: &Partial<'_, M>,
    slots: &Slots<M>,
    replayed: &mut Replayed,
    pool: &Pool,
) -> Result<(), Refusal> {
    let changed: Vec<_> = repair.changed_slots().map(|slot| slots[slot.index()].as_ref()).collect();
    for start in (repair.rows.start..repair.rows.end).step_by(PIECE_BYTES as usize) {
        let rows = start..(start + PIECE_BYTES).min(repair.rows.end);
        let mut sum = match partial.bytes {
            0 => vec![0; (rows.end - rows.start) as usize],
            _ => {
                let at = MemberByte(partial.at.0 + (rows.start - repair.rows.start));
                read(partial.device, at, rows.end - rows.start, pool).await?
            }
        };
        let mut is_known = true;
        for device in &changed {
            match chunk(*device, &rows, pool).await {
                Some(bytes) => sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte),
                None => is_known = false,
            }
        }
        if is_known {
            let at = partial.device.absolute(ComponentByte(rows.start));
            let written = replace_bytes(&partial.device.member, pool, at, &sum).await;
            written.map_err(|error| Refusal::member_error(&partial.device.name, &error))?;
        } else if changed.len() > 1 {
            replayed.unknown_bytes += rows.end - rows.start;
        }
    }
    Ok(())
}

/// The rows of a changed chunk; `None` if its member is missing, not current there, or cannot be read.
pub(super) async fn chunk<M: Member>(
    device: Option<&Rc<Device<M>>>,
    rows: &Range<u64>,
    pool: &Pool,
) -> Option<Vec<u8>> {
    let device = device.filter(|device| device.is_readable(rows.clone()))?;
    read_bytes(&device.member, pool, device.absolute(ComponentByte(rows.start)), rows.end - rows.start).await.ok()
}
