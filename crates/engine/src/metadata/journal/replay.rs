//! Replays the write journal of an array ([`super::found`]): writes to the members what they may lack, before the array is
//! used. Of an array that is only read, the caller gives members whose writes stay in memory.
//!
//! For a row of a stripe whose data and parity are in the journal, both are written to the members. A row of which the
//! journal has only data is written later, by [`crate::control`]: the members' own data and parity of that row still
//! agree, so that the rest of the row can be read even where a member is missing, and new parity be computed.
//!
//! A replay that is cut short is repeated from its begin, as the journal stays as it is. Nothing here writes the journal
//! or a superblock.
//!
//! Facts: `r5c_recovery_flush_log` and `r5c_recovery_analyze_meta_block` in `drivers/md/raid5-cache.c`.

use crate::base::buffer::Pool;
use crate::device::{Device, DeviceState};
use crate::metadata::journal::found::Blocks;
use crate::metadata::replay::Slots;
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use crate::seam::observe::{Watched, Why};
use format::geometry::{Parity, Role};
use format::journal::Payload;
use format::units::{ArrayByte, ComponentByte, Sectors, Slot};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The device that holds the journal.
pub(crate) struct Journal<M> {
    pub(crate) device: Rc<Device<M>>,
}

/// What a row of a stripe has in the journal: the places of its blocks there.
#[derive(Debug, Default)]
struct Row {
    blocks: BTreeMap<Slot, Sectors>,
    has_parity: bool,
    has_data: bool,
}

/// A row of which the journal has data alone: the places of its blocks there.
pub(crate) type DataOnly = BTreeMap<Slot, Sectors>;

/// What a replay found.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// Rows written to the members with data and parity.
    pub(crate) whole: u64,
    /// Rows of which the journal has data alone, by their component byte.
    pub(crate) data_only: BTreeMap<u64, DataOnly>,
    /// Blocks of the log, from its tail on.
    pub(crate) blocks: u64,
    /// The next sequence number behind it.
    pub(crate) sequence: u64,
}

/// The state of a scan.
struct Scan<'a, M> {
    parity: &'a Parity,
    slots: &'a Slots<M>,
    pool: &'a Pool,
    blocks: &'a Blocks<'a, Watched<M>>,
    rows: BTreeMap<u64, Row>,
    whole: u64,
}

impl<M: Member> Journal<M> {
    /// Where the log begins, by its superblock.
    pub(crate) fn tail(&self) -> Sectors {
        self.device.superblock.borrow().journal_tail.unwrap_or_default()
    }

    /// Its blocks.
    pub(crate) fn blocks<'a>(&'a self, parity: &Parity, pool: &'a Pool) -> Blocks<'a, Watched<M>> {
        let Device { name, member, superblock, .. } = &*self.device;
        Blocks::of(name, member, &superblock.borrow(), parity.parities(), pool)
    }

    /// Replays the journal into the members of `slots`.
    ///
    /// # Errors
    /// When the journal cannot be read, or does not begin where its superblock says.
    pub(crate) async fn replay(&self, parity: &Parity, slots: &Slots<M>, pool: &Pool) -> Result<Replayed, Refusal> {
        let blocks = &self.blocks(parity, pool);
        let mut scan = Scan { parity, slots, pool, blocks, rows: BTreeMap::new(), whole: 0 };
        let mut log = blocks.log().await?;
        while let Some(block) = log.next().await? {
            let mut at = blocks.ring.after(block.position, 1);
            for payload in &block.payloads {
                self.take(at, payload, &mut scan).await?;
                at = blocks.ring.after(at, payload.blocks());
            }
        }
        let mut data_only = BTreeMap::new();
        for (row, found) in std::mem::take(&mut scan.rows) {
            match found.has_parity {
                true => self.write_row(row, &found, &mut scan).await?,
                false => drop(data_only.insert(row, found.blocks)),
            }
        }
        Ok(Replayed { whole: scan.whole, data_only, blocks: log.used, sequence: log.sequence })
    }

    /// Notes what one payload has of which row.
    async fn take(&self, at: Sectors, payload: &Payload, scan: &mut Scan<'_, M>) -> Result<(), Refusal> {
        let parity = scan.parity;
        match payload {
            Payload::Flush { rows: flushed } => {
                let of_bytes = |row: &Sectors| row.checked_bytes();
                flushed.iter().filter_map(of_bytes).for_each(|row| drop(scan.rows.remove(&row)));
            }
            Payload::Data { at: place, .. } => {
                let byte = place.checked_bytes().filter(|byte| *byte < parity.array_bytes() && byte % 4096 == 0);
                let byte = byte.ok_or_else(|| self.misplaced(*place))?;
                let (slot, component, _) = parity.locate(ArrayByte(byte));
                let row = scan.rows.entry(component.0).or_default();
                if row.has_parity {
                    // The row was written to the members before it was written again.
                    let earlier = std::mem::take(row);
                    self.write_row(component.0, &earlier, scan).await?;
                }
                let row = scan.rows.entry(component.0).or_default();
                row.blocks.insert(slot, at);
                row.has_data = true;
            }
            Payload::Parity { at: place, checksums } => {
                let component = place.checked_bytes().filter(|at| at % 4096 == 0);
                let stripe = component.map(|at| at / parity.chunk_bytes()).filter(|stripe| *stripe < parity.stripes());
                let (Some(component), Some(stripe)) = (component, stripe) else { return Err(self.misplaced(*place)) };
                let row = scan.rows.entry(component).or_default();
                for (index, role) in Role::parities(checksums.len() as u16).enumerate() {
                    let slot = parity.stripe(stripe).slot_of(role).expect("the level has this parity");
                    row.blocks.insert(slot, scan.blocks.ring.after(at, index as u64));
                }
                row.has_parity = true;
            }
        }
        Ok(())
    }

    fn misplaced(&self, at: Sectors) -> Refusal {
        Refusal::new(format!("sector {}, beyond the array", at.0)).of(&self.device.name).field("journal.location")
    }

    /// Writes a row that has data and parity. One that has parity alone was flushed before.
    async fn write_row(&self, row: u64, found: &Row, scan: &mut Scan<'_, M>) -> Result<(), Refusal> {
        if !found.has_data {
            return Ok(());
        }
        let others_suffice = others_suffice(scan.parity, scan.slots);
        for (slot, at) in &found.blocks {
            if let Some(device) = &scan.slots[slot.index()] {
                write(device, row, &scan.blocks.read(*at).await?, others_suffice, scan.pool).await?;
            }
        }
        scan.whole += 1;
        Ok(())
    }
}

/// Whether the array can do without any one of the members that are here.
pub(crate) fn others_suffice<M>(parity: &Parity, slots: &Slots<M>) -> bool {
    let lost =
        slots.iter().filter(|slot| !slot.as_ref().is_some_and(|device| device.state.get() == DeviceState::InSync));
    parity.survives(lost.count() as u16 + 1)
}

/// Writes a row's block to one member and its successor, before any request. What the member's bad-block log names may fail,
/// if the other members have it: no read trusts it.
///
/// # Errors
/// When the member cannot be written elsewhere, or nothing else has what the journal holds.
pub(crate) async fn write<M: Member>(
    device: &Device<M>,
    row: u64,
    bytes: &[u8],
    others_suffice: bool,
    pool: &Pool,
) -> Result<(), Refusal> {
    // Through the layers: the member may have checksums, and a replacement.
    let write = async |at: u64, bytes: &[u8]| device.write_one(ComponentByte(at), pool.copy_of(bytes), Why::Data).await;
    let Err(error) = write(row, bytes).await else { return Ok(()) };
    let refused = |error| {
        let refusal = Refusal::member_error(&device.name, &error);
        match others_suffice {
            true => refusal.advice("leave this member out: the journal is replayed on the others"),
            false => {
                refusal.advice("the members that are missing are needed, or one that can be written: copy this one")
            }
        }
    };
    if !others_suffice || !device.bad.touches(&(row..row + bytes.len() as u64)) {
        return Err(refused(error));
    }
    let unit = device.checksums.get().map_or(device.member.limits().logical_block_bytes as usize, |_| bytes.len());
    for (at, part) in (row..).step_by(unit).zip(bytes.chunks(unit)) {
        match write(at, part).await {
            Err(error) if !device.bad.touches(&(at..at + part.len() as u64)) => return Err(refused(error)),
            _ => {}
        }
    }
    Ok(())
}
