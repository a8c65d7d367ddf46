//! Where a running journal stands: its tail, its head, and the batches between them.
//!
//! Pure. Positions are those of [`format::journal::Ring`].

use crate::metadata::batches::Batch;
use format::journal::Ring;
use format::units::Sectors;
use std::collections::VecDeque;
use std::rc::Weak;

/// Blocks that stay free: for the empty meta block that makes the log empty, and one behind it.
const SPARE_BLOCKS: u64 = 2;

/// See the module.
pub(super) struct Live {
    ring: Ring,
    /// Where a replay begins, by the superblock.
    tail: Sectors,
    head: Sectors,
    /// The sequence number of the next meta block.
    sequence: u64,
    /// Blocks from the tail to the head. They may fill the ring, as found.
    used: u64,
    /// The batches from the tail on, oldest first, and where each begins.
    running: VecDeque<(Sectors, Weak<Batch>)>,
}

/// Where a batch goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) at: Sectors,
    pub(super) sequence: u64,
}

impl Live {
    /// The state after a scan that went from `tail` over `used` blocks.
    pub(super) fn found(ring: Ring, tail: Sectors, used: u64, sequence: u64) -> Self {
        let running = VecDeque::from([(tail, Weak::new())]);
        Self { ring, tail, head: ring.after(tail, used), sequence, used, running }
    }

    pub(super) fn ring(&self) -> Ring {
        self.ring
    }

    /// Whether so many blocks can be written.
    pub(super) fn has_room(&self, blocks: u64) -> bool {
        self.used + blocks + SPARE_BLOCKS <= self.ring.blocks()
    }

    /// Where the tail may go once the members are flushed: to the last batch of those that have ended. There is always a
    /// meta block there, as the kernel takes any other block for a journal that was never used.
    pub(super) fn next_tail(&self) -> Option<Sectors> {
        let ended = self.running.iter().take_while(|(_, batch)| batch.strong_count() == 0);
        ended.last().map(|(at, _)| *at).filter(|at| *at != self.tail)
    }

    /// The superblock names this tail.
    pub(super) fn give_up_before(&mut self, tail: Sectors) {
        while self.running.front().is_some_and(|(at, _)| *at != tail) {
            self.running.pop_front();
        }
        self.used -= self.ring.distance(self.tail, tail);
        self.tail = tail;
    }

    /// The next batch, of so many blocks and meta blocks, begins here.
    pub(super) fn put(&mut self, batch: Weak<Batch>, blocks: u64, meta_blocks: u64) -> Spot {
        let spot = Spot { at: self.head, sequence: self.sequence };
        self.running.push_back((self.head, batch));
        self.head = self.ring.after(self.head, blocks);
        self.used += blocks;
        self.sequence = self.sequence.wrapping_add(meta_blocks);
        spot
    }

    /// An empty meta block at the head is to be the whole log. `gap` sequence numbers are left out.
    pub(super) fn empty_from(&self, gap: u64) -> Spot {
        Spot { at: self.head, sequence: self.sequence.wrapping_add(gap) }
    }

    /// The superblock names an empty meta block as the tail.
    pub(super) fn emptied(&mut self, spot: Spot) {
        *self = Self::found(self.ring, spot.at, 1, spot.sequence.wrapping_add(1));
    }
}
