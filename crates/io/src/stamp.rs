//! Time stamps that cost next to nothing, for measuring.
//!
//! Reading the system's clock takes as long as a good part of a small request. But an executor hands
//! everything to the kernel between its rounds, and hears from it between them: so stamps within a round share
//! a reading, up to [`SHARED_BYTES`] of transfers or as many small ones as would fill them. A stamp
//! is then older than the truth by the time that so much work takes, some microseconds.

use crate::executor::Core;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

/// Bytes of transfers that share one reading; each end counts as [`SMALL_BYTES`] at least.
const SHARED_BYTES: u64 = 64 << 10;
const SMALL_BYTES: u64 = 4 << 10;

/// Tells the time cheaply, on the executor's thread.
#[derive(Debug)]
pub struct Stamps {
    start: Instant,
    /// The executor's present round.
    rounds: Rc<Cell<u64>>,
    /// The round of the last reading, and what it said.
    round: Cell<u64>,
    last: Cell<u64>,
    /// Bytes of transfers that may still share it.
    left: Cell<u64>,
}

impl Stamps {
    /// Stamps that count from now.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub fn new() -> Self {
        let rounds = Core::current().rounds.clone();
        Self { start: Instant::now(), rounds, round: Cell::new(u64::MAX), last: Cell::new(0), left: Cell::new(0) }
    }

    /// Nanoseconds since the start, for a transfer of so many bytes that begins. A small one is counted at its end.
    pub fn before(&self, bytes: u64) -> u64 {
        self.shared(bytes.saturating_sub(SMALL_BYTES))
    }

    /// The same for one that ends.
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

    /// The same, read now.
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
