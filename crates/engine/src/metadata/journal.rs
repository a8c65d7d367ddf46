//! Replays the write journal of an array, for reading. The caller gives members whose writes stay in memory.
//!
//! For a row of a stripe whose data and parity are in the journal, both are written to the members. A row of which the
//! journal has only data is written later, by [`crate::control`]: the members' own data and parity of that row still
//! agree, so that the rest of the row can be read even where a member is missing, and new parity be computed.
//!
//! The journal itself and superblocks are never written.
//!
//! Facts: `r5c_recovery_flush_log` and `r5c_recovery_analyze_meta_block` in `drivers/md/raid5-cache.c`.

use crate::base::buffer::Pool;
use crate::device::Device;
use crate::metadata::partial_parity::Slots;
use crate::seam::bytes::{read_bytes, replace_bytes};
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use format::geometry::{Parity, Role};
use format::journal::{BLOCK_BYTES, BLOCK_SECTORS, MetaBlock, Payload, checksum};
use format::superblock::Superblock;
use format::units::{ArrayByte, ComponentByte, MemberByte, Sectors, Slot};
use std::collections::BTreeMap;

/// The member that holds the journal.
pub(crate) struct Journal<M> {
    pub(crate) name: String,
    pub(crate) member: M,
    pub(crate) superblock: Superblock,
}

/// What a row of a stripe has in the journal: the places of its blocks there.
#[derive(Debug, Default)]
pub(crate) struct Row {
    blocks: BTreeMap<Slot, Sectors>,
    has_parity: bool,
    has_data: bool,
}

/// What a replay found.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    /// Rows written to the members with data and parity.
    pub(crate) whole: u64,
    /// Rows of which the journal has data alone, by their component byte: the data by slot.
    pub(crate) data_only: BTreeMap<u64, BTreeMap<Slot, Vec<u8>>>,
}

impl<M: Member> Journal<M> {
    /// Replays the journal into the members of `slots`.
    ///
    /// # Errors
    /// When the journal cannot be read, or does not begin where its superblock says.
    pub(crate) async fn replay(&self, parity: &Parity, slots: &Slots<M>, pool: &Pool) -> Result<Replayed, Refusal> {
        let start = self.superblock.journal_tail.unwrap_or_default();
        let ring = Ring { start: self.superblock.data_at().0, blocks: self.superblock.data_size.0 / BLOCK_SECTORS };
        let first = self.meta_block(&ring, start, parity, pool).await?;
        let Some(first) = first else {
            let reason = format!("no journal begins at sector {}, where its superblock says", start.0);
            return Err(Refusal::new(reason).of(&self.name).field("superblock.journal_tail"));
        };
        let mut replayed = Replayed::default();
        let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
        let (mut next, mut expected, mut scanned) = (Some(first), None, 0);
        while let Some(block) = next {
            let is_next = expected.is_none_or(|expected| expected == block.sequence);
            scanned += 1 + block.payloads.iter().map(Payload::blocks).sum::<u64>();
            if scanned > ring.blocks || !(is_next || mutant!("journal-sequence-ignored")) {
                break;
            }
            let mut at = ring.after(block.position, 1);
            if !self.are_sound(&ring, at, &block, pool).await? && !mutant!("torn-journal-believed") {
                break;
            }
            for payload in &block.payloads {
                self.take(&ring, at, payload, parity, &mut rows, slots, &mut replayed, pool).await?;
                at = ring.after(at, payload.blocks());
            }
            expected = Some(block.sequence.wrapping_add(1));
            next = self.meta_block(&ring, at, parity, pool).await?;
        }
        for (row, found) in rows {
            match found.has_parity {
                true => self.write_row(&ring, row, &found, slots, &mut replayed, pool).await?,
                false => {
                    let mut data = BTreeMap::new();
                    for (slot, at) in found.blocks {
                        data.insert(slot, self.read(&ring, at, pool).await?);
                    }
                    replayed.data_only.insert(row, data);
                }
            }
        }
        Ok(replayed)
    }

    async fn read(&self, ring: &Ring, at: Sectors, pool: &Pool) -> Result<Vec<u8>, Refusal> {
        let read = read_bytes(&self.member, pool, ring.place(at), BLOCK_BYTES as u64).await;
        read.map_err(|reason| Refusal::new(reason).of(&self.name).field("journal"))
    }

    /// The meta block at `at`; `None` where the journal ends.
    async fn meta_block(
        &self,
        ring: &Ring,
        at: Sectors,
        parity: &Parity,
        pool: &Pool,
    ) -> Result<Option<MetaBlock>, Refusal> {
        if ring.blocks == 0 || at.0 >= ring.blocks * BLOCK_SECTORS {
            return Ok(None);
        }
        let bytes = self.read(ring, at, pool).await?;
        Ok(MetaBlock::decode(&bytes, at, parity.parities(), &self.superblock.set_uuid).ok())
    }

    /// Whether all blocks of a meta block are there. If one is not, power was lost while they were written.
    async fn are_sound(&self, ring: &Ring, mut at: Sectors, block: &MetaBlock, pool: &Pool) -> Result<bool, Refusal> {
        for payload in &block.payloads {
            let checksums = match payload {
                Payload::Data { checksum, .. } => std::slice::from_ref(checksum),
                Payload::Parity { checksums, .. } => checksums,
                Payload::Flush { .. } => &[],
            };
            for expected in checksums {
                if checksum(&self.superblock.set_uuid, &self.read(ring, at, pool).await?) != *expected {
                    return Ok(false);
                }
                at = ring.after(at, 1);
            }
        }
        Ok(true)
    }

    /// Notes what one payload has of which row.
    #[expect(clippy::too_many_arguments, reason = "the state of one scan")]
    async fn take(
        &self,
        ring: &Ring,
        at: Sectors,
        payload: &Payload,
        parity: &Parity,
        rows: &mut BTreeMap<u64, Row>,
        slots: &Slots<M>,
        replayed: &mut Replayed,
        pool: &Pool,
    ) -> Result<(), Refusal> {
        match payload {
            Payload::Flush { rows: flushed } => {
                let of_bytes = |row: &Sectors| row.checked_bytes();
                flushed.iter().filter_map(of_bytes).for_each(|row| drop(rows.remove(&row)));
            }
            Payload::Data { at: place, .. } => {
                let byte = place.checked_bytes().filter(|byte| *byte < parity.array_bytes() && byte % 4096 == 0);
                let byte = byte.ok_or_else(|| self.misplaced(*place))?;
                let (slot, component, _) = parity.locate(ArrayByte(byte));
                let row = rows.entry(component.0).or_default();
                if row.has_parity {
                    // The row was written to the members before it was written again.
                    let earlier = std::mem::take(row);
                    self.write_row(ring, component.0, &earlier, slots, replayed, pool).await?;
                }
                row.blocks.insert(slot, at);
                row.has_data = true;
            }
            Payload::Parity { at: place, checksums } => {
                let component = place.checked_bytes().filter(|at| at % 4096 == 0);
                let stripe = component.map(|at| at / parity.chunk_bytes()).filter(|stripe| *stripe < parity.stripes());
                let (Some(component), Some(stripe)) = (component, stripe) else { return Err(self.misplaced(*place)) };
                let row = rows.entry(component).or_default();
                for (index, role) in Role::parities(checksums.len() as u16).enumerate() {
                    let slot = parity.stripe(stripe).slot_of(role).expect("the level has this parity");
                    row.blocks.insert(slot, ring.after(at, index as u64));
                }
                row.has_parity = true;
            }
        }
        Ok(())
    }

    fn misplaced(&self, at: Sectors) -> Refusal {
        Refusal::new(format!("sector {}, beyond the array", at.0)).of(&self.name).field("journal.location")
    }

    /// Writes a row that has data and parity. One that has parity alone was flushed before.
    async fn write_row(
        &self,
        ring: &Ring,
        row: u64,
        found: &Row,
        slots: &Slots<M>,
        replayed: &mut Replayed,
        pool: &Pool,
    ) -> Result<(), Refusal> {
        if !found.has_data {
            return Ok(());
        }
        for (slot, at) in &found.blocks {
            if let Some(device) = &slots[slot.index()] {
                write(device, row, &self.read(ring, *at, pool).await?, pool).await?;
            }
        }
        replayed.whole += 1;
        Ok(())
    }
}

/// Writes a row's block to one member, before the array runs.
pub(crate) async fn write<M: Member>(device: &Device<M>, row: u64, bytes: &[u8], pool: &Pool) -> Result<(), Refusal> {
    let written = replace_bytes(&device.member, pool, device.absolute(ComponentByte(row)), bytes).await;
    written.map_err(|error| Refusal::member_error(&device.name, &error))
}

/// The part of the member in which the journal goes round.
struct Ring {
    start: u64,
    blocks: u64,
}

impl Ring {
    /// The place `blocks` further on.
    fn after(&self, at: Sectors, blocks: u64) -> Sectors {
        Sectors((at.0 / BLOCK_SECTORS + blocks) % self.blocks * BLOCK_SECTORS)
    }

    fn place(&self, at: Sectors) -> MemberByte {
        MemberByte(self.start + at.bytes())
    }
}
