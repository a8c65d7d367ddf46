//! Replays the partial parity logs of an array that was not stopped cleanly. Afterwards parity agrees with the data, so
//! that it can be trusted also where a member is missing.
//!
//! It writes parity to the members, before any request. Of an array that is only read, the caller gives members whose
//! writes stay in memory. It never writes a log or a superblock, and data only where a member cannot be read
//! ([`crate::metadata::replay`]).
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
use crate::metadata::replay::{Chunks, Replayed, Settle, Slots, read_chunk, rewrite, write_chunk};
use crate::seam::bytes::read_bytes;
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use crate::seam::observe::Why;
use format::geometry::Parity;
use format::partial_parity::{HEADER_BYTES, Header, Repair, TORN, checksum};
use format::superblock::Superblock;
use format::units::{MemberByte, SECTOR_BYTES};
use std::ops::Range;
use std::rc::Rc;

/// Replays the logs of all members that are here.
///
/// # Errors
/// When a log cannot be read, or is not of this array, or a member can neither be read nor written where it says: parity
/// may then be wrong there.
pub(crate) async fn replay<M: Member>(parity: &Parity, slots: &Slots<M>, pool: &Pool) -> Result<Replayed, Refusal> {
    let mut replayed = Replayed::default();
    for (index, device) in slots.iter().enumerate().filter_map(|(index, device)| Some((index, device.as_ref()?))) {
        let superblock = device.superblock.borrow().clone();
        let Some((header, mut at)) = newest(&device.name, &device.member, &superblock, pool).await? else {
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
            let replay = Replay { repair: &repair, partial: &partial, slots, pool };
            replay.carry_out(repair.rows.clone(), &mut replayed).await?;
            replayed.entries += 1;
        }
    }
    replayed.end(slots).await
}

/// The newest header of a member's log, and where its partial parity begins; `None` if it is torn.
///
/// # Errors
/// When the member has no such log, it cannot be read, or is not of this array.
pub(crate) async fn newest<M: Member>(
    name: &str,
    member: &M,
    superblock: &Superblock,
    pool: &Pool,
) -> Result<Option<(Header, MemberByte)>, Refusal> {
    let (Some(place), Some(start)) = (superblock.ppl, superblock.ppl_at()) else {
        let reason = "it has no partial parity log, but other members have one";
        return Err(Refusal::new(reason).of(name).field("superblock.feature_map"));
    };
    let room = u64::from(place.sectors) * SECTOR_BYTES;
    let (mut offset, mut newest): (u64, Option<(Header, MemberByte)>) = (0, None);
    while offset + HEADER_BYTES as u64 <= room {
        let at = MemberByte(start.0 + offset);
        let bytes = read(name, member, at, HEADER_BYTES as u64, pool).await?;
        let header = match Header::decode(&bytes, &superblock.set_uuid, room - offset) {
            Ok(header) => header,
            Err(_) if newest.is_some() => break,
            Err(defect) if defect.field == TORN => break,
            Err(defect) => return Err(Refusal::defect(name, defect)),
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

async fn read<M: Member>(name: &str, member: &M, at: MemberByte, bytes: u64, pool: &Pool) -> Result<Vec<u8>, Refusal> {
    let unreadable = |reason| Refusal::new(reason).of(name).field("partial parity log");
    read_bytes(member, pool, at, bytes).await.map_err(unreadable)
}

/// The partial parity of an entry.
struct Partial<'a, M> {
    device: &'a Rc<Device<M>>,
    at: MemberByte,
    bytes: u64,
}

impl<M: Member> Partial<'_, M> {
    async fn is_sound(&self, expected: u32, pool: &Pool) -> Result<bool, Refusal> {
        Ok(checksum(&self.read(self.at, self.bytes, pool).await?) == expected)
    }

    async fn read(&self, at: MemberByte, bytes: u64, pool: &Pool) -> Result<Vec<u8>, Refusal> {
        read(&self.device.name, &self.device.member, at, bytes, pool).await
    }
}

/// The replay of one entry.
struct Replay<'a, M> {
    repair: &'a Repair,
    partial: &'a Partial<'a, M>,
    slots: &'a Slots<M>,
    pool: &'a Pool,
}

impl<M: Member> Settle<M> for Replay<'_, M> {
    fn slots(&self) -> &Slots<M> {
        self.slots
    }

    fn pool(&self) -> &Pool {
        self.pool
    }

    fn changed(&self) -> impl Iterator<Item = (u16, Option<&Rc<Device<M>>>)> {
        self.repair.changed_slots().map(|slot| (slot.0, self.slots[slot.index()].as_ref()))
    }

    /// Where a changed chunk is not here, parity stays as it is.
    async fn settle(&self, rows: &Range<u64>, chunks: Chunks<'_, M>, replayed: &mut Replayed) -> Result<(), Refusal> {
        let parity = self.partial.device;
        let mut sum = match self.partial.bytes {
            0 => vec![0; (rows.end - rows.start) as usize],
            _ => {
                let at = MemberByte(self.partial.at.0 + (rows.start - self.repair.rows.start));
                self.partial.read(at, rows.end - rows.start, self.pool).await?
            }
        };
        chunks.known.iter().for_each(|(_, bytes)| add(&mut sum, bytes));
        if chunks.lost() == 0 {
            return write_chunk(parity, rows, sum, Why::Parity, self.pool).await;
        }
        if self.repair.changed_slots().count() > 1 {
            replayed.unknown_bytes += rows.end - rows.start;
        }
        match chunks.unreadable[..] {
            [] => {}
            [(_, device)] if chunks.absent.is_empty() => {
                match read_chunk(Some(parity), rows, self.pool).await.bytes() {
                    Some(own) => {
                        add(&mut sum, &own);
                        rewrite(device, rows, sum, replayed, self.pool).await;
                    }
                    None => replayed.leave_unsettled(device, rows, "cannot be read, and neither can their parity"),
                }
            }
            [(_, device), ..] => {
                replayed.leave_unsettled(device, rows, "cannot be read, and parity lacks another chunk as well");
            }
        }
        Ok(())
    }
}

fn add(sum: &mut [u8], bytes: &[u8]) {
    sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte);
}
