//! The trace of the members' transfers: a ring that records only while a client polls it.
//!
//! It never waits for a client. Transfers that no client fetched in time are overwritten, and counted as lost.
//! `docs/json.md` describes its fields.

use engine::observe::{Transfer, TransferOutcome};
use engine::{Operation, observe::Why};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Capacity of the ring, in transfers.
const KEPT: usize = 1 << 16;

/// Maximum number of transfers in one answer.
const ANSWER_MAX: usize = 1 << 13;

/// How long recording continues after the last poll.
const KEPT_FOR_NANOS: u64 = 10_000_000_000;

struct Entry {
    member: Rc<str>,
    transfer: Transfer,
    outcome: TransferOutcome,
    begun: u64,
    ended: u64,
}

/// A ring of the last transfers.
#[derive(Default)]
pub struct Trace {
    entries: RefCell<VecDeque<Entry>>,
    /// The sequence number of the next entry. It starts at 0.
    next: Cell<u64>,
    /// Recording stops at this time, in nanoseconds since the server's start.
    until: Cell<u64>,
}

/// The answer to one poll. Its fields are a stable interface (docs/json.md).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Traces {
    /// The sequence number to poll from next.
    pub next: u64,
    /// Transfers overwritten before this poll.
    pub lost: u64,
    /// Transfers in the order in which they ended.
    pub transfers: Vec<Traced>,
}

/// One transfer, in the form of the block layer's tracers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Traced {
    /// When it ended, in seconds since the server's start.
    pub seconds: f64,
    /// The process that issued it: always the server.
    pub process: String,
    /// The member.
    pub device: String,
    /// `R`, `W`, `F` (flush), `D` (discard) or `Z` (zeroing).
    pub operation: char,
    /// Its first sector, in units of 512 bytes.
    pub sector: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its duration, in milliseconds.
    pub latency_ms: f64,
    /// Its reason: see [`Why`].
    pub why: String,
    /// Whether it failed.
    pub failed: bool,
}

fn letter(operation: Operation) -> char {
    match operation {
        Operation::Read => 'R',
        Operation::Write => 'W',
        Operation::Flush => 'F',
        Operation::Discard => 'D',
        Operation::WriteZeroes => 'Z',
    }
}

impl Trace {
    /// Whether a client has polled within the last 10 seconds.
    pub fn is_wanted(&self, now: u64) -> bool {
        now < self.until.get()
    }

    /// Records a transfer that ended.
    pub fn add(&self, member: &Rc<str>, transfer: &Transfer, outcome: TransferOutcome, begun: u64, ended: u64) {
        let mut entries = self.entries.borrow_mut();
        if entries.len() == KEPT {
            entries.pop_front();
        }
        entries.push_back(Entry { member: member.clone(), transfer: *transfer, outcome, begun, ended });
        self.next.set(self.next.get() + 1);
    }

    /// Transfers from sequence number `from` on. Without `from`, the answer holds no transfer, but recording starts.
    pub fn fetch(&self, from: Option<u64>, now: u64) -> Traces {
        let mut entries = self.entries.borrow_mut();
        if !self.is_wanted(now) {
            entries.clear();
        }
        self.until.set(now + KEPT_FOR_NANOS);
        let next = self.next.get();
        let oldest = next - entries.len() as u64;
        let from = from.unwrap_or(next).min(next);
        let first = from.max(oldest);
        let transfers: Vec<Traced> =
            entries.iter().skip((first - oldest) as usize).take(ANSWER_MAX).map(Entry::traced).collect();
        Traces { next: first + transfers.len() as u64, lost: first - from, transfers }
    }
}

impl Entry {
    fn traced(&self) -> Traced {
        let Transfer { operation, at, bytes, why } = self.transfer;
        Traced {
            seconds: self.ended as f64 / 1e9,
            process: "mdspace".to_owned(),
            device: self.member.to_string(),
            operation: letter(operation),
            sector: at.0 / 512,
            bytes,
            latency_ms: (self.ended.saturating_sub(self.begun)) as f64 / 1e6,
            why: Why::name(why).to_owned(),
            failed: self.outcome != TransferOutcome::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::units::MemberByte;

    #[test]
    fn what_is_fetched_is_what_ended_and_what_was_missed_is_counted() {
        let trace = Trace::default();
        let member: Rc<str> = "a".into();
        let add = |number: u64| {
            let transfer =
                Transfer { operation: Operation::Write, at: MemberByte(number * 512), bytes: 512, why: Why::Data };
            trace.add(&member, &transfer, TransferOutcome::Done, number, number + 1_000_000);
        };
        assert!(!trace.is_wanted(0), "no client has polled yet");
        assert_eq!(trace.fetch(None, 0), Traces { next: 0, lost: 0, transfers: Vec::new() });
        assert!(trace.is_wanted(KEPT_FOR_NANOS - 1) && !trace.is_wanted(KEPT_FOR_NANOS));
        (0..3).for_each(add);
        let traces = trace.fetch(Some(1), 1);
        assert_eq!((traces.next, traces.lost), (3, 0));
        assert_eq!(traces.transfers.iter().map(|t| (t.sector, t.latency_ms)).collect::<Vec<_>>(), [(1, 1.0), (2, 1.0)]);
        (3..KEPT as u64 + 5).for_each(add);
        let traces = trace.fetch(Some(3), 2);
        assert_eq!(
            (traces.lost, traces.transfers.len()),
            (2, ANSWER_MAX),
            "5 were overwritten, 3 of them fetched before"
        );
        assert_eq!(traces.transfers[0].sector, 5);
        assert_eq!(traces.next, 5 + ANSWER_MAX as u64, "the next poll returns the rest");
        // The last poll was too long ago, so recording had stopped.
        let late = trace.fetch(Some(traces.next), 3 + 2 * KEPT_FOR_NANOS);
        assert_eq!((late.transfers.len(), late.next), (0, KEPT as u64 + 5));
    }
}
