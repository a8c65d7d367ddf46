//! The host's processor: one thread that requests and member transfers pass through, one at a time.
//!
//! A drive's cost and the host's are kept apart: [`crate::drive`] knows no processor. A published figure that the host
//! bounds fixes a [`HostTime`] of its experiment; [`HostTime::ENGINE`] is what this engine takes.

use engine::{Clock, Moment, Operation};
use std::cell::Cell;
use world::World;

/// How long requests and transfers occupy the host's thread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HostTime {
    /// Per request of the array's user, also if no member is asked.
    pub(crate) request_nanos: u64,
    /// Per member read.
    pub(crate) read_nanos: u64,
    /// Per member write.
    pub(crate) write_nanos: u64,
    /// A longer transfer counts as several transfers of this size.
    pub(crate) unit_bytes: u64,
    /// Per byte of a member transfer, in picoseconds.
    pub(crate) byte_picos: u64,
}

impl HostTime {
    /// A host that takes no time.
    pub(crate) const NONE: Self =
        Self { request_nanos: 0, read_nanos: 0, write_nanos: 0, unit_bytes: u64::MAX, byte_picos: 0 };

    /// This engine on one core, from docs/bench.md (RAID-5 of 8 loop devices over tmpfs, `O_DIRECT`). The kernel's part
    /// and its copies are included, so it is an upper bound. 189 k reads of 4 KiB a second give 5.3 us for a request
    /// and a transfer, 49 k writes 20.4 us for a request and four. A check of 9.91 GB/s gives 0.1 ns a byte.
    pub(crate) const ENGINE: Self =
        Self { request_nanos: 300, read_nanos: 5_000, write_nanos: 5_000, unit_bytes: u64::MAX, byte_picos: 100 };

    /// The time of a member transfer. A flush passes with the write that it follows.
    fn transfer_nanos(&self, operation: Operation, bytes: u64) -> u64 {
        let each = match operation {
            Operation::Read => self.read_nanos,
            _ => self.write_nanos,
        };
        each * bytes.div_ceil(self.unit_bytes).max(1) + bytes * self.byte_picos / 1000
    }
}

/// The thread.
pub(crate) struct Host {
    world: World,
    time: HostTime,
    free_at: Cell<u64>,
}

impl Host {
    pub(crate) fn new(world: &World, time: HostTime) -> Self {
        Self { world: world.clone(), time, free_at: Cell::new(0) }
    }

    /// Returns when the thread has handled a request.
    pub(crate) async fn request(&self) {
        self.spend(self.time.request_nanos).await;
    }

    /// Returns when the thread has handed a transfer to a member.
    pub(crate) async fn transfer(&self, operation: Operation, bytes: u64) {
        self.spend(self.time.transfer_nanos(operation, bytes)).await;
    }

    /// Occupies the thread, after everything that occupies it already.
    pub(crate) async fn spend(&self, nanos: u64) {
        if nanos == 0 {
            return;
        }
        let clock = self.world.clock();
        let done_at = self.free_at.get().max(clock.now().nanos) + nanos;
        self.free_at.set(done_at);
        clock.sleep_until(Moment { nanos: done_at }).await;
    }
}
