//! Requests in flight of one queue, recorded in memory that outlives this process (QEMU's vhost-user.rst, "Inflight I/O
//! tracking", split virtqueue).
//!
//! A request is recorded before it starts, and cleared after its answer is in the used ring. The next process starts
//! the recorded requests again, in their old order. So a request may run twice, which is harmless: its first answer was
//! never seen. Nothing in the shared memory is trusted.

use super::QUEUE_SIZE_MAX;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vm_memory::{Bytes, MmapRegion, VolatileMemory, VolatileMemoryError, VolatileSlice};

/// Bytes before the descriptors' states: features, version, number of descriptors, last batch head, used index.
const HEADER_BYTES: usize = 16;
const VERSION_AT: usize = 8;
const NUMBER_AT: usize = 10;
const LAST_BATCH_HEAD_AT: usize = 12;
const USED_INDEX_AT: usize = 14;

/// Bytes of a descriptor's state: in-flight flag, next of its batch, counter.
const STATE_BYTES: usize = 16;
const NEXT_AT: usize = 6;
const COUNTER_AT: usize = 8;

/// Each queue's records begin at a multiple of this.
const ALIGNMENT: usize = 64;

/// The layout's version that this code implements.
const VERSION: u16 = 1;

/// The memory that a client keeps for a server, with room for the records of some queues.
#[derive(Debug, Clone)]
pub(super) struct Records {
    region: Arc<MmapRegion>,
    /// Bytes for each queue.
    each: usize,
}

impl Records {
    /// Bytes of the records of `queues` queues. A driver may make a ring longer than the client has announced: firmware
    /// does so, and the kernel that it starts does not. So there is room for the longest.
    pub(super) const fn bytes(queues: usize) -> usize {
        Inflight::bytes(QUEUE_SIZE_MAX) * queues
    }

    /// The records of `queues` queues, which share `region` evenly. The region may have been made for shorter rings.
    pub(super) fn in_region(region: MmapRegion, queues: usize) -> Option<Self> {
        let each = region.size().checked_div(queues)?;
        Some(Self { region: Arc::new(region), each: each - each % ALIGNMENT })
    }

    /// The records of queue `index`, whose ring has `size` descriptors. `None` when there is no room for them.
    pub(super) fn of(&self, index: usize, size: u16) -> Option<Inflight> {
        let start = index.checked_mul(self.each)?;
        let is_inside = start.checked_add(self.each).is_some_and(|end| end <= self.region.size());
        let has_room = Inflight::bytes(size) <= self.each && is_inside;
        has_room.then(|| Inflight { region: self.region.clone(), start, size, counter: 0 })
    }
}

/// The records of one queue.
#[derive(Debug, Clone)]
pub(super) struct Inflight {
    region: Arc<MmapRegion>,
    start: usize,
    size: u16,
    counter: u64,
}

impl Inflight {
    /// The bytes of the records of a queue of `size` descriptors.
    pub(super) const fn bytes(size: u16) -> usize {
        (HEADER_BYTES + STATE_BYTES * size as usize).next_multiple_of(ALIGNMENT)
    }

    fn memory(&self) -> VolatileSlice<'_> {
        self.region.get_slice(self.start, Self::bytes(self.size)).expect("checked when it was made")
    }

    fn state_at(&self, head: u16) -> usize {
        assert!(head < self.size, "descriptor {head} of {}", self.size);
        HEADER_BYTES + STATE_BYTES * usize::from(head)
    }

    /// The heads of the chains in flight, in the order in which they were started. `used` is the used ring's own index.
    pub(super) fn recover(&mut self, used: u16) -> Result<Vec<u16>, VolatileMemoryError> {
        let memory = self.memory();
        if memory.load::<u16>(VERSION_AT, Ordering::Acquire)? != VERSION {
            memory.store(self.size, NUMBER_AT, Ordering::Relaxed)?;
            memory.store(used, USED_INDEX_AT, Ordering::Relaxed)?;
            memory.store(VERSION, VERSION_AT, Ordering::Release)?;
            return Ok(Vec::new());
        }
        // Answers that were put into the ring, but not cleared here.
        let mut head: u16 = memory.load(LAST_BATCH_HEAD_AT, Ordering::Relaxed)?;
        let noted: u16 = memory.load(USED_INDEX_AT, Ordering::Relaxed)?;
        for _ in 0..used.wrapping_sub(noted).min(self.size) {
            if head >= self.size {
                break;
            }
            memory.store(0_u8, self.state_at(head), Ordering::Relaxed)?;
            head = memory.load(self.state_at(head) + NEXT_AT, Ordering::Relaxed)?;
        }
        memory.store(used, USED_INDEX_AT, Ordering::Release)?;
        let mut begun = Vec::new();
        for head in 0..self.size {
            let at = self.state_at(head);
            if memory.load::<u8>(at, Ordering::Relaxed)? == 1 {
                begun.push((memory.load::<u64>(at + COUNTER_AT, Ordering::Relaxed)?, head));
            }
        }
        begun.sort_unstable();
        self.counter = begun.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        Ok(begun.into_iter().map(|(_, head)| head).collect())
    }

    /// Records that `head` is started.
    pub(super) fn begin(&mut self, head: u16) -> Result<(), VolatileMemoryError> {
        let (memory, at) = (self.memory(), self.state_at(head));
        memory.store(self.counter, at + COUNTER_AT, Ordering::Relaxed)?;
        memory.store(1_u8, at, Ordering::Release)?;
        self.counter = self.counter.wrapping_add(1);
        Ok(())
    }

    /// Records that the answer to `head` is about to be put into the ring.
    pub(super) fn answering(&self, head: u16) -> Result<(), VolatileMemoryError> {
        let memory = self.memory();
        let before: u16 = memory.load(LAST_BATCH_HEAD_AT, Ordering::Relaxed)?;
        memory.store(before, self.state_at(head) + NEXT_AT, Ordering::Relaxed)?;
        memory.store(head, LAST_BATCH_HEAD_AT, Ordering::Release)
    }

    /// Clears `head`: its answer is in the ring, whose index is now `used`.
    pub(super) fn answered(&self, head: u16, used: u16) -> Result<(), VolatileMemoryError> {
        let memory = self.memory();
        memory.store(0_u8, self.state_at(head), Ordering::Release)?;
        memory.store(used, USED_INDEX_AT, Ordering::Release)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(queues: usize, size: u16) -> Records {
        let region = MmapRegion::new(Inflight::bytes(size) * queues).expect("memory");
        Records::in_region(region, queues).expect("there are queues")
    }

    fn notes(records: &Records) -> Inflight {
        records.of(1, 8).expect("there is room")
    }

    #[test]
    fn a_ring_may_be_longer_than_the_client_has_announced_and_others_records_stay() {
        let region = MmapRegion::new(Records::bytes(2)).expect("memory");
        let records = Records::in_region(region, 2).expect("there are queues");
        let mut other = records.of(1, 128).expect("there is room");
        other.recover(0).expect("memory");
        other.begin(5).expect("memory");
        for size in [256, 128, QUEUE_SIZE_MAX] {
            let mut longer = records.of(0, size).expect("there is room");
            longer.recover(0).expect("memory");
            longer.begin(size - 1).expect("memory");
            longer.answered(size - 1, 0).expect("memory");
        }
        assert_eq!(records.of(1, 256).expect("there is room").recover(0).expect("memory"), [5]);
    }

    #[test]
    fn what_was_begun_and_not_answered_is_found_in_the_old_order() {
        let region = region(2, 8);
        let mut before = notes(&region);
        assert_eq!(before.recover(5).expect("memory"), [0_u16; 0]);
        for head in [3, 1, 7, 0] {
            before.begin(head).expect("memory");
        }
        before.answering(1).expect("memory");
        before.answered(1, 6).expect("memory");
        before.begin(1).expect("memory");
        assert_eq!(notes(&region).recover(6).expect("memory"), [3, 7, 0, 1]);
        // The same again: recovery changes nothing.
        assert_eq!(notes(&region).recover(6).expect("memory"), [3, 7, 0, 1]);
    }

    #[test]
    fn an_answer_that_was_given_is_not_given_again() {
        let region = region(2, 8);
        let mut before = notes(&region);
        before.recover(u16::MAX).expect("memory");
        for head in [2, 4] {
            before.begin(head).expect("memory");
        }
        // The process ended after or before the answer to 4 was put into the ring.
        before.answering(4).expect("memory");
        assert_eq!(notes(&region).clone().recover(u16::MAX).expect("memory"), [2, 4]);
        assert_eq!(notes(&region).recover(0).expect("memory"), [2]);
    }

    #[test]
    fn notes_lie_within_their_region_and_hostile_ones_do_no_harm() {
        let region = region(2, 8);
        assert!(region.of(2, 8).is_none());
        assert!(region.of(usize::MAX, 8).is_none());
        assert!(region.of(0, 1024).is_none());
        assert!(Records::in_region(MmapRegion::new(64).expect("memory"), 0).is_none());
        let memory = region.region.get_slice(0, region.region.size()).expect("all of it");
        for at in 0..region.region.size() {
            memory.store(0xff_u8, at, Ordering::Relaxed).expect("memory");
        }
        for version in [0, VERSION] {
            memory.store(version, Inflight::bytes(8) + VERSION_AT, Ordering::Relaxed).expect("memory");
            let found = notes(&region).recover(9).expect("memory");
            assert!(found.iter().all(|head| *head < 8));
        }
    }
}
