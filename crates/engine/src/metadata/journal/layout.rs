//! How the writes of a batch lie in the journal: a meta block, the blocks that it lists, and so on.
//!
//! All blocks of a row are listed by one meta block, so that a replay writes them all or none. Pure.
//!
//! Facts: `r5l_log_stripe` in `drivers/md/raid5-cache.c`.

use crate::base::buffer::{Block, Pool};
use crate::core::authority::LogEntry;
use crate::metadata::journal::ring::Spot;
use format::geometry::{Parity, Role};
use format::journal::{BLOCK_BYTES, META_ROOM, MetaBlock, Payload, Ring, checksum};
use format::units::Sectors;
use std::ops::Range;

/// A meta block in the making, and the blocks that follow it.
#[derive(Default)]
pub(super) struct Unit {
    payloads: Vec<Payload>,
    blocks: Vec<Block>,
}

/// Counts the blocks of a batch, meta blocks included.
#[derive(Debug, Default)]
struct Counter {
    meta_blocks: u64,
    blocks: u64,
    room: usize,
}

impl Counter {
    /// Adds a row; true when it begins a meta block.
    fn add(&mut self, data: usize, parities: usize) -> bool {
        let bytes = Payload::row_bytes(data, parities);
        let begins = self.room < bytes;
        if begins {
            (self.room, self.meta_blocks) = (META_ROOM, self.meta_blocks + 1);
        }
        self.room = self.room.saturating_sub(bytes);
        self.blocks += (data + parities) as u64;
        begins
    }
}

/// Blocks that entries take, meta blocks included.
pub(super) fn blocks_of<'a>(parity: &Parity, entries: impl Iterator<Item = &'a LogEntry>) -> u64 {
    let mut counter = Counter::default();
    for entry in entries {
        for _ in rows(entry) {
            counter.add(data_of(entry).count(), parity.parities().into());
        }
    }
    counter.meta_blocks + counter.blocks
}

fn rows(entry: &LogEntry) -> impl Iterator<Item = Range<usize>> {
    let bytes = (entry.rows.end - entry.rows.start) as usize;
    debug_assert!(bytes.is_multiple_of(BLOCK_BYTES), "the array's blocks are the journal's");
    (0..bytes).step_by(BLOCK_BYTES).map(|row| row..row + BLOCK_BYTES)
}

fn data_of(entry: &LogEntry) -> impl Iterator<Item = (u16, &Block)> {
    entry.contents.iter().filter_map(|(role, block)| match role {
        Role::Data(index) => Some((*index, block)),
        Role::P | Role::Q => None,
    })
}

/// The meta blocks of a batch. A parity that is missing is listed as zeros: no member gets them, and the log is emptied
/// before a recovery begins.
pub(super) fn lay_out(parity: &Parity, entries: &[LogEntry], set_uuid: &[u8; 16], pool: &Pool) -> Vec<Unit> {
    let mut counter = Counter::default();
    let mut units: Vec<Unit> = Vec::new();
    let zeros = pool.zeroed(BLOCK_BYTES).freeze();
    for entry in entries {
        let stripe = entry.stripe.number() * parity.stripe_bytes();
        for row in rows(entry) {
            if counter.add(data_of(entry).count(), parity.parities().into()) {
                units.push(Unit::default());
            }
            let unit = units.last_mut().expect("the first row begins one");
            let within = u64::from(entry.rows.start) + row.start as u64;
            for (index, block) in data_of(entry) {
                let at = stripe + u64::from(index) * parity.chunk_bytes() + within;
                let block = block.slice(row.clone());
                unit.payloads
                    .push(Payload::Data { at: Sectors::from_bytes_down(at), checksum: checksum(set_uuid, &block) });
                unit.blocks.push(block);
            }
            let parities: Vec<Block> = Role::parities(parity.parities())
                .map(|role| entry.contents.iter().find(|(of, _)| *of == role))
                .map(|found| found.map_or_else(|| zeros.clone(), |(_, block)| block.slice(row.clone())))
                .collect();
            let at = Sectors::from_bytes_down(entry.stripe.component().0 + within);
            unit.add_parities(at, parities, set_uuid);
        }
    }
    units
}

impl Unit {
    /// Lists the parities of a row.
    pub(super) fn add_parities(&mut self, at: Sectors, parities: Vec<Block>, set_uuid: &[u8; 16]) {
        let checksums = parities.iter().map(|block| checksum(set_uuid, block)).collect();
        self.payloads.push(Payload::Parity { at, checksums });
        self.blocks.extend(parities);
    }

    /// Its blocks, the meta block included.
    pub(super) fn len(&self) -> u64 {
        1 + self.blocks.len() as u64
    }

    /// The meta block and those that follow it.
    pub(super) fn encode(self, spot: Spot, set_uuid: &[u8; 16], pool: &Pool) -> (Block, Vec<Block>) {
        let meta = MetaBlock { sequence: spot.sequence, position: spot.at, payloads: self.payloads };
        (pool.copy_of(&meta.encode(set_uuid)), self.blocks)
    }
}

/// All blocks of some units, in order.
pub(super) fn encode_all(units: Vec<Unit>, first: Spot, ring: &Ring, set_uuid: &[u8; 16], pool: &Pool) -> Vec<Block> {
    let mut spot = first;
    let mut blocks = Vec::new();
    for unit in units {
        let next = Spot { at: ring.after(spot.at, unit.len()), sequence: spot.sequence.wrapping_add(1) };
        let (meta, listed) = unit.encode(spot, set_uuid, pool);
        blocks.push(meta);
        blocks.extend(listed);
        spot = next;
    }
    blocks
}
