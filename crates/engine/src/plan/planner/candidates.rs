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

use crate::plan::planner::{Code, Column, Method, StripeHealth, Symbols};
use format::geometry::Role;
use smallvec::SmallVec;

/// A way to get a column's result.
#[derive(Clone)]
pub(super) struct Candidate {
    /// Chunks whose old contents are used.
    pub(super) uses: Symbols,
    /// Those of them that members are asked for.
    pub(super) reads: Symbols,
    /// How many these are.
    pub(super) count: u32,
    pub(super) method: Method,
}

pub(super) type Candidates = SmallVec<[Candidate; 2]>;

/// What can be had in one column.
struct View<'a> {
    code: Code,
    column: &'a Column,
    /// Chunks whose old contents cannot be had.
    lost: Symbols,
    parity_trusted: bool,
}

impl<'a> View<'a> {
    fn new(code: Code, column: &'a Column, health: &StripeHealth) -> Self {
        let lost = health.unreadable.minus(column.cached);
        Self { code, column, lost, parity_trusted: health.parity_trusted }
    }

    fn is_there(&self, set: Symbols) -> bool {
        set.intersection(self.lost).is_empty()
    }

    fn candidate(&self, uses: Symbols, method: Method) -> Candidate {
        let reads = uses.minus(self.column.cached);
        Candidate { uses, reads, count: reads.len(), method }
    }

    /// As many reads as there is data in a stripe.
    fn is_whole(&self, candidate: &Candidate) -> bool {
        candidate.count >= self.code.data.into()
    }
}

pub(super) fn read_candidates(code: Code, column: &Column, health: &StripeHealth) -> Candidates {
    let view = View::new(code, column, health);
    if view.is_there(column.asked) {
        return Candidates::from_iter([view.candidate(column.asked, Method::Direct)]);
    }
    without_waste(view.solutions(u32::MAX))
}

pub(super) fn write_candidates(code: Code, column: &Column, health: &StripeHealth) -> Candidates {
    let view = View::new(code, column, health);
    let parities = code.all_parities().minus(health.absent);
    if column.is_gap() || parities.is_empty() {
        return Candidates::from_iter([view.candidate(column.kept, Method::Direct)]);
    }
    let mut candidates = Candidates::new();
    let rest = code.all_data().minus(column.asked);
    if view.is_there(rest) {
        candidates.push(view.candidate(rest, Method::Reconstruct));
        if !health.parity_trusted {
            return candidates; // makes the parity right in passing; modifying would keep it wrong
        }
    }
    let old = column.asked.union(column.kept).union(parities);
    if view.is_there(old) {
        candidates.push(view.candidate(old, Method::Modify));
    }
    let parts = candidates.iter().filter(|candidate| !view.is_whole(candidate));
    let least = parts.map(|candidate| candidate.count).min().unwrap_or(u32::MAX);
    candidates.extend(view.solutions(least));
    if candidates.len() > 1 && candidates.iter().any(|candidate| !view.is_whole(candidate)) {
        candidates.retain(|candidate| !view.is_whole(candidate));
    }
    without_waste(candidates)
}

/// Leaves out what reads all that another candidate reads, and more.
fn without_waste(mut candidates: Candidates) -> Candidates {
    let is_wasteful = |candidate: &Candidate, others: &Candidates| {
        others.iter().any(|other| other.count < candidate.count && other.reads.minus(candidate.reads).is_empty())
    };
    if candidates.iter().any(|candidate| is_wasteful(candidate, &candidates)) {
        let all = candidates.clone();
        candidates.retain(|candidate| !is_wasteful(candidate, &all));
    }
    candidates
}

impl View<'_> {
    /// Ways to learn all data that read fewer than `bound` chunks: as many
    /// parities are used as data chunks are not.
    fn solutions(&self, bound: u32) -> Candidates {
        let mut candidates = Candidates::new();
        if !self.parity_trusted || self.least_to_solve() >= bound {
            return candidates;
        }
        let lost = self.code.all_data().intersection(self.lost);
        let parities = self.code.all_parities().minus(self.lost);
        if lost.len() > parities.len() {
            return candidates;
        }
        let mut add = |unknown: Symbols| {
            let known = self.code.all_data().minus(unknown);
            let mut push = |parities| {
                let candidate = self.candidate(known.union(parities), Method::Solve { unknown });
                candidates.extend((candidate.count < bound).then_some(candidate));
            };
            match (unknown.len(), parities.len()) {
                (0, _) => {}
                (unknown, left) if unknown == left => push(parities),
                (1, _) => parities.iter().map(Symbols::of).for_each(push),
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

    /// No solution reads fewer chunks than this.
    fn least_to_solve(&self) -> u32 {
        self.code.all_data().minus(self.lost).minus(self.column.cached).len().saturating_sub(1)
    }
}
