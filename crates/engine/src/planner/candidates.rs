//! The ways that there are to get one column's result, and which of them count.
//!
//! What is in memory is free and cannot be lost. Besides the cost, four rules say
//! what is sensible, here and in the search that the planner is held against:
//!
//! 1. Nothing is read that the result does not need.
//! 2. As much as a whole stripe's data is read only where nothing less will do.
//! 3. Data that can be had is not solved for: not at all for a read; for a write
//!    only where no parity can be remade without it, or fewer chunks are read.
//! 4. At most one data chunk that can be had is solved for.

use super::{Code, Column, Health, Symbols, Way};
use format::geometry::Role;
use smallvec::SmallVec;

/// Chunks whose old contents are used, and how.
pub(super) type Candidates = SmallVec<[(Symbols, Way); 4]>;

/// What can be had in one column.
struct View<'a> {
    code: Code,
    column: &'a Column,
    /// Chunks whose old contents cannot be had.
    lost: Symbols,
    parity_trusted: bool,
}

impl<'a> View<'a> {
    fn new(code: Code, column: &'a Column, health: &Health) -> Self {
        let lost = health.unreadable.minus(column.cached);
        Self { code, column, lost, parity_trusted: health.parity_trusted }
    }

    fn is_there(&self, set: Symbols) -> bool {
        set.intersection(self.lost).is_empty()
    }

    /// Chunks that members are asked for.
    fn reads(&self, uses: Symbols) -> Symbols {
        uses.minus(self.column.cached)
    }

    /// As many reads as there is data in a stripe.
    fn is_whole(&self, uses: Symbols) -> bool {
        self.reads(uses).len() >= self.code.data.into()
    }
}

pub(super) fn read_candidates(code: Code, column: &Column, health: &Health) -> Candidates {
    let view = View::new(code, column, health);
    if view.is_there(column.asked) {
        return Candidates::from_iter([(column.asked, Way::Direct)]);
    }
    view.without_waste(view.solutions())
}

pub(super) fn write_candidates(code: Code, column: &Column, health: &Health) -> Candidates {
    let parities = code.all_parities().minus(health.absent);
    if column.is_gap() || parities.is_empty() {
        return Candidates::from_iter([(column.kept, Way::Direct)]);
    }
    let view = View::new(code, column, health);
    let mut candidates = Candidates::new();
    let rest = code.all_data().minus(column.asked);
    if view.is_there(rest) {
        candidates.push((rest, Way::Reconstruct));
        if !health.parity_trusted {
            return candidates; // makes the parity right in passing; modifying would keep it wrong
        }
    }
    let old = column.asked.union(column.kept).union(parities);
    if view.is_there(old) {
        candidates.push((old, Way::Modify));
    }
    let lengths = candidates.iter().filter(|(uses, _)| !view.is_whole(*uses)).map(|(uses, _)| view.reads(*uses).len());
    match lengths.min() {
        Some(0) => {}
        least => {
            let is_less = |uses: Symbols| least.is_none_or(|least| view.reads(uses).len() < least);
            candidates.extend(view.solutions().into_iter().filter(|(uses, _)| is_less(*uses)));
        }
    }
    if candidates.iter().any(|(uses, _)| !view.is_whole(*uses)) {
        candidates.retain(|(uses, _)| !view.is_whole(*uses));
    }
    view.without_waste(candidates)
}

impl View<'_> {
    /// Leaves out what reads all that another candidate reads, and more.
    fn without_waste(&self, candidates: Candidates) -> Candidates {
        if candidates.len() < 2 {
            return candidates;
        }
        let wasteful = |uses: Symbols| {
            let reads = self.reads(uses);
            candidates.iter().any(|(other, _)| {
                let other = self.reads(*other);
                other != reads && other.minus(reads).is_empty()
            })
        };
        candidates.iter().filter(|(uses, _)| !wasteful(*uses)).cloned().collect()
    }

    /// Ways to learn all data: as many parities are used as data chunks are not.
    fn solutions(&self) -> Candidates {
        let lost = self.code.all_data().intersection(self.lost);
        let parities = self.code.all_parities().minus(self.lost);
        let mut candidates = Candidates::new();
        if !self.parity_trusted || lost.len() > parities.len() {
            return candidates;
        }
        let mut add = |unknown: Symbols| {
            let known = self.code.all_data().minus(unknown);
            let mut candidate = |parities| candidates.push((known.union(parities), Way::Solve { unknown }));
            match (unknown.len(), parities.len()) {
                (0, _) => {}
                (unknown, parities_left) if unknown == parities_left => candidate(parities),
                (1, _) => parities.iter().map(Symbols::of).for_each(candidate),
                _ => {}
            }
        };
        add(lost);
        // A spare parity can stand in for any one chunk: that may save a read, or
        // continue the transfer of a neighbouring column.
        let spared: Symbols = self.code.all_data().minus(lost).minus(self.column.cached).minus(self.column.kept);
        spared.iter().for_each(|role: Role| add(lost.with(role)));
        candidates
    }
}
