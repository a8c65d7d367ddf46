//! What a member does and did: its transfers under way, where its head is, and sums since the array was assembled.
//!
//! It counts and decides nothing. Every layer that begins a transfer, or learns its end, reports it here.

use format::units::ComponentByte;
use std::cell::Cell;

/// Sums since the array was assembled.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) errors: u64,
    /// Unreadable or wrong bytes that read repair has rewritten.
    pub(crate) rewritten_bytes: u64,
}

/// The transfers of one member.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    reads: Cell<u64>,
    read_bytes: Cell<u64>,
    writes: Cell<u64>,
    written_bytes: Cell<u64>,
    errors: Cell<u64>,
    rewritten_bytes: Cell<u64>,
    in_flight: Cell<u32>,
    head: Cell<u64>,
}

/// One transfer in flight; dropping this ends it.
pub(super) struct InFlight<'a>(&'a Cell<u32>);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

fn add(counter: &Cell<u64>, more: u64) {
    counter.set(counter.get() + more);
}

impl Activity {
    /// The sums so far.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            reads: self.reads.get(),
            read_bytes: self.read_bytes.get(),
            writes: self.writes.get(),
            written_bytes: self.written_bytes.get(),
            errors: self.errors.get(),
            rewritten_bytes: self.rewritten_bytes.get(),
        }
    }

    /// The number of transfers under way.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.get()
    }

    /// The component's byte behind the last begun transfer, where a disk's head is.
    pub(crate) fn head(&self) -> u64 {
        self.head.get()
    }

    /// Read repair has rewritten so many bytes.
    pub(crate) fn rewritten(&self, bytes: u64) {
        add(&self.rewritten_bytes, bytes);
    }

    /// A transfer begins, which ends when the returned value is dropped.
    pub(super) fn begin(&self, at: ComponentByte, bytes: u64) -> InFlight<'_> {
        self.moved(at, bytes);
        self.in_flight.set(self.in_flight.get() + 1);
        InFlight(&self.in_flight)
    }

    /// A transfer took no time.
    pub(super) fn moved(&self, at: ComponentByte, bytes: u64) {
        self.head.set(at.0 + bytes);
    }

    pub(super) fn count_read(&self, bytes: u64) {
        add(&self.reads, 1);
        add(&self.read_bytes, bytes);
    }

    pub(super) fn count_write(&self, bytes: u64) {
        add(&self.writes, 1);
        add(&self.written_bytes, bytes);
    }

    /// Counts an error; true when it is the first.
    pub(super) fn count_error(&self) -> bool {
        add(&self.errors, 1);
        self.errors.get() == 1
    }
}
