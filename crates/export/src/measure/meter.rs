//! A meter of one member, or of the requests to an array: counts, bytes, times, and operations in flight.
//!
//! The caller reports each start and end with its time; a meter never reads a clock. Every figure is a sum since the
//! start, as in /proc/diskstats. A caller that needs rates subtracts two snapshots.

use super::histogram::{Histogram, Latencies};
use engine::observe::Why;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::BTreeMap;

/// The kinds of operation, as iostat distinguishes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush to stable storage.
    Flush,
    /// A discard or zeroing of a range.
    Discard,
}

/// Sums of one kind of operation.
#[derive(Default)]
struct Sums {
    count: Cell<u64>,
    bytes: Cell<u64>,
    errors: Cell<u64>,
    nanos: Cell<u64>,
    latencies: Histogram,
}

fn add(sum: &Cell<u64>, more: u64) {
    sum.set(sum.get() + more);
}

/// Counts the operations of one member or array.
#[derive(Default)]
pub struct Meter {
    kinds: [Sums; 4],
    /// Transfers and their bytes, by [`Why`].
    reasons: [(Cell<u64>, Cell<u64>); Why::ALL.len()],
    in_flight: Cell<u32>,
    in_flight_max: Cell<u32>,
    /// When the meter last became busy. Times are in nanoseconds since the server's start.
    busy_since: Cell<u64>,
    busy_nanos: Cell<u64>,
}

impl Meter {
    /// An operation starts at `now`.
    pub fn begin(&self, now: u64) {
        let in_flight = self.in_flight.get() + 1;
        self.in_flight.set(in_flight);
        if in_flight == 1 {
            self.busy_since.set(now);
        }
        if in_flight > self.in_flight_max.get() {
            self.in_flight_max.set(in_flight);
        }
    }

    /// The operation that started at `begun` ends at `now`.
    pub fn end(&self, kind: Kind, bytes: u64, begun: u64, now: u64, is_done: bool) {
        let sums = &self.kinds[kind as usize];
        let took = now.saturating_sub(begun);
        add(&sums.count, 1);
        add(&sums.nanos, took);
        sums.latencies.count(took);
        if is_done {
            add(&sums.bytes, bytes);
        } else {
            add(&sums.errors, 1);
        }
        let in_flight = self.in_flight.get() - 1;
        self.in_flight.set(in_flight);
        if in_flight == 0 {
            add(&self.busy_nanos, now.saturating_sub(self.busy_since.get()));
        }
    }

    /// Counts the reason and the bytes of a transfer that starts.
    pub fn reason(&self, why: Why, bytes: u64) {
        let (transfers, sum) = &self.reasons[why as usize];
        add(transfers, 1);
        add(sum, bytes);
    }

    /// The sums up to `now`.
    pub fn snapshot(&self, now: u64) -> Metered {
        let [read, write, flush, discard] = &self.kinds;
        let sums = |sums: &Sums| Done {
            count: sums.count.get(),
            bytes: sums.bytes.get(),
            errors: sums.errors.get(),
            nanos: sums.nanos.get(),
            latencies: sums.latencies.snapshot(),
        };
        let running = if self.in_flight.get() > 0 { now.saturating_sub(self.busy_since.get()) } else { 0 };
        let reasons = Why::ALL.iter().zip(&self.reasons).filter(|(_, (transfers, _))| transfers.get() > 0);
        Metered {
            in_flight: self.in_flight.get(),
            in_flight_max: self.in_flight_max.get(),
            busy_nanos: self.busy_nanos.get() + running,
            read: sums(read),
            write: sums(write),
            flush: sums(flush),
            discard: sums(discard),
            reasons: reasons
                .map(|(why, (transfers, bytes))| {
                    (why.name().to_owned(), Reason { transfers: transfers.get(), bytes: bytes.get() })
                })
                .collect(),
        }
    }
}

/// A snapshot of a [`Meter`]. Its fields are a stable interface (docs/json.md).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Metered {
    /// Operations in flight now.
    pub in_flight: u32,
    /// The most operations in flight at a time.
    pub in_flight_max: u32,
    /// Nanoseconds during which at least one operation was in flight.
    pub busy_nanos: u64,
    /// Reads.
    pub read: Done,
    /// Writes.
    pub write: Done,
    /// Flushes.
    pub flush: Done,
    /// Discards and zeroing.
    pub discard: Done,
    /// Transfers by reason; only reasons that occurred. Empty for an array's requests.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<String, Reason>,
}

/// The sums of one kind of operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Operations that ended.
    pub count: u64,
    /// Bytes of the operations that succeeded.
    pub bytes: u64,
    /// Operations that failed or were abandoned.
    pub errors: u64,
    /// The sum of their durations, in nanoseconds.
    pub nanos: u64,
    /// Their durations, as a histogram.
    pub latencies: Latencies,
}

/// The sums of one reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Transfers that started.
    pub transfers: u64,
    /// Bytes of those transfers.
    pub bytes: u64,
}

impl Done {
    fn since(&self, earlier: &Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            errors: self.errors.saturating_sub(earlier.errors),
            nanos: self.nanos.saturating_sub(earlier.nanos),
            latencies: self.latencies.since(&earlier.latencies),
        }
    }

    /// The mean duration in nanoseconds. `None` when nothing ended.
    pub fn mean_nanos(&self) -> Option<u64> {
        self.nanos.checked_div(self.count)
    }
}

impl Metered {
    /// The sums of all four kinds, with their names.
    pub fn kinds(&self) -> [(&'static str, &Done); 4] {
        [("read", &self.read), ("write", &self.write), ("flush", &self.flush), ("discard", &self.discard)]
    }

    /// The sums added since an earlier snapshot of the same meter.
    pub fn since(&self, earlier: &Self) -> Self {
        let reasons = self.reasons.iter().map(|(why, now)| {
            let before = earlier.reasons.get(why).copied().unwrap_or_default();
            let transfers = now.transfers.saturating_sub(before.transfers);
            (why.clone(), Reason { transfers, bytes: now.bytes.saturating_sub(before.bytes) })
        });
        Self {
            in_flight: self.in_flight,
            in_flight_max: self.in_flight_max,
            busy_nanos: self.busy_nanos.saturating_sub(earlier.busy_nanos),
            read: self.read.since(&earlier.read),
            write: self.write.since(&earlier.write),
            flush: self.flush.since(&earlier.flush),
            discard: self.discard.since(&earlier.discard),
            reasons: reasons.filter(|(_, reason)| reason.transfers > 0).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_what_began_and_ended() {
        let meter = Meter::default();
        meter.begin(100);
        meter.reason(Why::Rmw, 4096);
        meter.begin(150);
        meter.reason(Why::Data, 512);
        meter.end(Kind::Read, 4096, 100, 300, true);
        meter.end(Kind::Write, 512, 150, 350, false);
        let first = meter.snapshot(1000);
        assert_eq!((first.read.count, first.read.bytes, first.read.errors, first.read.nanos), (1, 4096, 0, 200));
        assert_eq!((first.write.count, first.write.bytes, first.write.errors, first.write.nanos), (1, 0, 1, 200));
        assert_eq!((first.in_flight, first.in_flight_max, first.busy_nanos), (0, 2, 250), "idle time does not count");
        assert_eq!(first.reasons["rmw"], Reason { transfers: 1, bytes: 4096 });
        meter.begin(2000);
        meter.reason(Why::Rmw, 512);
        let second = meter.snapshot(2400);
        let between = second.since(&first);
        assert_eq!((between.in_flight, between.busy_nanos), (1, 400), "busy time includes operations in flight");
        assert_eq!((between.read.count, between.read.nanos), (0, 0));
        assert_eq!(between.reasons.keys().collect::<Vec<_>>(), ["rmw"]);
    }
}
