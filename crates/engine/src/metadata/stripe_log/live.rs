//! The entries that a replay of the stripe log would find, by stripe.
//!
//! Pure.

use crate::core::authority::LogEntry;
use format::stripe_log::{Chunks, Entry};
use format::units::Slot;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;

#[derive(Debug)]
struct LiveEntry {
    slot: Slot,
    sequence: u64,
    rows: Range<u32>,
    changed: Chunks,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Live {
    by_stripe: HashMap<u64, SmallVec<[LiveEntry; 2]>>,
    /// The stripes of each member's records, oldest first.
    records: BTreeMap<Slot, VecDeque<(u64, Vec<u64>)>>,
}

impl Live {
    /// Whether a replay would find any entry of this stripe.
    pub(super) fn has(&self, stripe: u64) -> bool {
        self.by_stripe.contains_key(&stripe)
    }

    /// Whether an earlier write to the same rows may not be on stable storage, in a chunk that this write leaves as it is.
    /// Batches before `retired` are on stable storage.
    pub(super) fn is_unsettled(&self, entry: &LogEntry, retired: u64) -> bool {
        let Some(earlier) = self.by_stripe.get(&entry.stripe.number()) else { return false };
        earlier.iter().any(|earlier| {
            let overlaps = earlier.rows.start < entry.rows.end && entry.rows.start < earlier.rows.end;
            earlier.sequence >= retired && overlaps && !earlier.changed.is_within(entry.changed)
        })
    }

    /// Adds a record of the member in `slot`. A replay finds none of its records before `first`.
    pub(super) fn add<'a>(&mut self, slot: Slot, first: u64, sequence: u64, entries: impl Iterator<Item = &'a Entry>) {
        let records = self.records.entry(slot).or_default();
        let mut gone = Vec::new();
        while records.front().is_some_and(|(old, _)| *old < first) {
            gone.extend(records.pop_front());
        }
        let mut stripes = Vec::new();
        for Entry { stripe, rows, changed, .. } in entries {
            let (rows, changed) = (rows.clone(), *changed);
            self.by_stripe.entry(*stripe).or_default().push(LiveEntry { slot, sequence, rows, changed });
            stripes.push(*stripe);
        }
        records.push_back((sequence, stripes));
        for (old, stripes) in gone {
            stripes.into_iter().for_each(|stripe| self.forget(slot, old, stripe));
        }
    }

    fn forget(&mut self, slot: Slot, sequence: u64, stripe: u64) {
        let Some(entries) = self.by_stripe.get_mut(&stripe) else { return };
        entries.retain(|entry| entry.slot != slot || entry.sequence != sequence);
        if entries.is_empty() {
            self.by_stripe.remove(&stripe);
        }
    }
}
