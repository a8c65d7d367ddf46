//! md's use of a write journal, stated anew and not taken from the engine: what it replays when it starts an array.
//!
//! A replay begins at the tail that the journal's superblock names. It ends before the first meta block that is torn, lists
//! a torn block, or has not the next sequence number. It writes all rows of which the journal has data and parity.
//!
//! The engine keeps a journal as md's write-through mode does, so a row of data alone is a fault here.
//!
//! Facts: `r5l_load_log`, `r5c_recovery_flush_log` and `r5c_recovery_analyze_meta_block` in `drivers/md/raid5-cache.c`.

use format::geometry::{Parity, Role};
use format::journal::{BLOCK_BYTES, MetaBlock, Payload, Ring, checksum};
use format::superblock::Superblock;
use format::units::{ArrayByte, Sectors, Slot};
use std::collections::BTreeMap;

/// The blocks that a replay writes, by slot and component byte.
pub(crate) type Blocks<'a> = BTreeMap<(Slot, u64), &'a [u8]>;

/// A journal's blocks.
struct Journal<'a, 'p> {
    image: &'a [u8],
    data_at: usize,
    ring: Ring,
    set_uuid: [u8; 16],
    parity: &'p Parity,
}

/// The payloads of a meta block, each with its blocks.
type Listed<'m, 'a> = Vec<(&'m Payload, Vec<&'a [u8]>)>;

/// What the journal has of a row.
#[derive(Default)]
struct Row<'a> {
    data: BTreeMap<Slot, &'a [u8]>,
    parity: BTreeMap<Slot, &'a [u8]>,
}

/// What md writes to the members when it starts the array whose journal has this image and superblock.
///
/// # Errors
/// What md would lose, or could not replay, in words.
pub(crate) fn replayed<'a>(image: &'a [u8], superblock: &Superblock, parity: &Parity) -> Result<Blocks<'a>, String> {
    let (data_at, ring) = (superblock.data_at().0 as usize, Ring::of(superblock));
    let journal = Journal { image, data_at, ring, set_uuid: superblock.set_uuid, parity };
    let mut at = superblock.journal_tail.unwrap_or_default();
    let first = journal.meta_block(at).ok_or("md would take the journal for one that was never used")?;
    let (mut sequence, mut blocks) = (first.sequence, 0);
    let (mut rows, mut written) = (BTreeMap::<u64, Row<'a>>::new(), Blocks::new());
    while let Some(meta) = journal.meta_block(at).filter(|meta| meta.sequence == sequence) {
        blocks += 1 + meta.payloads.iter().map(Payload::blocks).sum::<u64>();
        if blocks > ring.blocks() || !journal.is_whole(&meta) {
            break;
        }
        at = journal.take(&meta, &mut rows, &mut written)?;
        sequence = sequence.wrapping_add(1);
    }
    for (row, found) in rows {
        write(row, found, &mut written)?;
    }
    Ok(written)
}

/// A row goes to the members once it has parity. What has parity alone was flushed before.
fn write<'a>(row: u64, found: Row<'a>, written: &mut Blocks<'a>) -> Result<(), String> {
    match (found.data.is_empty(), found.parity.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => Err(format!("the journal has data alone of the row at component byte {row}")),
        (false, false) => {
            written.extend(found.data.into_iter().chain(found.parity).map(|(slot, block)| ((slot, row), block)));
            Ok(())
        }
    }
}

impl<'a> Journal<'a, '_> {
    fn block(&self, at: Sectors) -> &'a [u8] {
        let start = self.data_at + at.bytes() as usize;
        &self.image[start..start + BLOCK_BYTES]
    }

    fn meta_block(&self, at: Sectors) -> Option<MetaBlock> {
        MetaBlock::decode(self.block(at), at, self.parity.parities(), &self.set_uuid).ok()
    }

    /// The blocks of each payload, and the place behind them all.
    fn listed<'m>(&self, meta: &'m MetaBlock) -> (Listed<'m, 'a>, Sectors) {
        let mut at = self.ring.after(meta.position, 1);
        let blocks = |payload: &'m Payload| {
            let first = at;
            at = self.ring.after(at, payload.blocks());
            (payload, (0..payload.blocks()).map(|index| self.block(self.ring.after(first, index))).collect())
        };
        (meta.payloads.iter().map(blocks).collect(), at)
    }

    fn is_whole(&self, meta: &MetaBlock) -> bool {
        let sound = |(payload, blocks): &(&Payload, Vec<&[u8]>)| {
            let expected = match payload {
                Payload::Data { checksum, .. } => std::slice::from_ref(checksum),
                Payload::Parity { checksums, .. } => checksums,
                Payload::Flush { .. } => &[],
            };
            blocks.iter().zip(expected).all(|(block, expected)| checksum(&self.set_uuid, block) == *expected)
        };
        self.listed(meta).0.iter().all(sound)
    }

    /// Takes what a meta block lists. Returns the place behind it.
    fn take(
        &self,
        meta: &MetaBlock,
        rows: &mut BTreeMap<u64, Row<'a>>,
        written: &mut Blocks<'a>,
    ) -> Result<Sectors, String> {
        let (listed, behind) = self.listed(meta);
        for (payload, blocks) in listed {
            match payload {
                Payload::Data { at, .. } => {
                    let (slot, component, _) = self.parity.locate(ArrayByte(at.bytes()));
                    let row = rows.entry(component.0).or_default();
                    if !row.parity.is_empty() {
                        // It was on the members before it was written again.
                        write(component.0, std::mem::take(row), written)?;
                    }
                    row.data.insert(slot, blocks[0]);
                }
                Payload::Parity { at, .. } => {
                    let stripe = self.parity.stripe(at.bytes() / self.parity.chunk_bytes());
                    let slots = Role::parities(self.parity.parities()).map(|role| stripe.slot_of(role));
                    let parities = slots.map(|slot| slot.expect("the level has this parity")).zip(blocks);
                    rows.entry(at.bytes()).or_default().parity.extend(parities);
                }
                Payload::Flush { rows: flushed } => flushed.iter().for_each(|row| drop(rows.remove(&row.bytes()))),
            }
        }
        Ok(behind)
    }
}
