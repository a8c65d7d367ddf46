//! Cheap time stamps, for metering.
//!
//! Reading the system's clock costs a good part of a small request. An executor submits to the kernel, and reaps
//! completions, only between its rounds. So stamps within a round share one reading, for up to [`SHARED_BYTES`] of
//! transfers, or as many small transfers as would fill these. A stamp is late by at most the time of that much work:
//! some microseconds, measured. It is never used for deadlines.

use crate::executor::Core;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

/// Bytes of transfers that share one reading. Each ended transfer counts as at least [`SMALL_BYTES`].
const SHARED_BYTES: u64 = 64 << 10;
const SMALL_BYTES: u64 = 4 << 10;

/// A cheap clock on the executor's thread.
#[derive(Debug)]
pub struct Stamps {
    start: Instant,
    /// The executor's current round.
    rounds: Rc<Cell<u64>>,
    /// The round and the value of the last reading.
    round: Cell<u64>,
    last: Cell<u64>,
    /// Bytes of transfers that may still share it.
    left: Cell<u64>,
}

impl Stamps {
    /// A clock that starts at 0 now.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub fn new() -> Self {
        let rounds = Core::current().rounds.clone();
        Self { start: Instant::now(), rounds, round: Cell::new(u64::MAX), last: Cell::new(0), left: Cell::new(0) }
    }

    /// Nanoseconds since the start, for a transfer of `bytes` that starts. A small transfer counts at its end.
    pub fn before(&self, bytes: u64) -> u64 {
        self.shared(bytes.saturating_sub(SMALL_BYTES))
    }

    /// Nanoseconds since the start, for a transfer of `bytes` that ends.
    pub fn after(&self, bytes: u64) -> u64 {
        self.shared(bytes.max(SMALL_BYTES))
    }

    fn shared(&self, cost: u64) -> u64 {
        let left = self.left.get();
        if self.round.get() == self.rounds.get() && left >= cost {
            self.left.set(left - cost);
            return self.last.get();
        }
        self.exact()
    }

    /// Nanoseconds since the start, read now.
    pub fn exact(&self) -> u64 {
        let nanos = self.start.elapsed().as_nanos() as u64;
        self.round.set(self.rounds.get());
        self.left.set(SHARED_BYTES);
        self.last.set(nanos);
        nanos
    }
}

impl Default for Stamps {
    fn default() -> Self {
        Self::new()
    }
}
