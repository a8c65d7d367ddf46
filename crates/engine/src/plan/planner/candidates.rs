//! The candidate methods for one column.
//!
//! Pure. Cached chunks are free and cannot be lost. Besides the cost, four rules
//! limit the candidates, here and in the search that `tests` compares with:
//!
//! 1. A candidate reads nothing that the result does not need.
//! 2. It reads as much as a whole stripe's data only where nothing less suffices.
//! 3. A read never solves for readable data. A write does so only where no parity can
//!    be computed without it, or where fewer chunks are read.
//! 4. At most one readable data chunk is solved for.

use crate::plan::planner::symbols::Symbols;
use crate::plan::planner::types::{Code, Column, Method, StripeHealth};
use format::geometry::Role;
use smallvec::SmallVec;

/// One method for a column, and the chunks that it uses.
#[derive(Clone)]
pub(super) struct PlanCandidate {
    /// Chunks whose old contents are used.
    pub(super) uses: Symbols,
    /// The used chunks that are not cached, and so are read from members.
    pub(super) reads: Symbols,
    /// The number of `reads`.
    pub(super) count: u32,
    pub(super) method: Method,
}

pub(super) type Candidates = SmallVec<[PlanCandidate; 2]>;

/// The readable chunks of one column.
struct View<'a> {
    code: Code,
    column: &'a Column,
    /// Chunks whose old contents are neither cached nor readable.
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

    fn candidate(&self, uses: Symbols, method: Method) -> PlanCandidate {
        let reads = uses.minus(self.column.cached);
        PlanCandidate { uses, reads, count: reads.len(), method }
    }

    /// Whether the candidate reads as many chunks as a stripe has data chunks.
    fn is_whole(&self, candidate: &PlanCandidate) -> bool {
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
            return candidates; // corrects the parity in passing; modifying would leave it wrong
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

/// Drops candidates whose reads are a proper superset of another candidate's.
fn without_waste(mut candidates: Candidates) -> Candidates {
    let is_wasteful = |candidate: &PlanCandidate, others: &Candidates| {
        others.iter().any(|other| other.count < candidate.count && other.reads.minus(candidate.reads).is_empty())
    };
    if candidates.iter().any(|candidate| is_wasteful(candidate, &candidates)) {
        let all = candidates.clone();
        candidates.retain(|candidate| !is_wasteful(candidate, &all));
    }
    candidates
}

impl View<'_> {
    /// Candidates that solve for data and read fewer than `bound` chunks. Each uses as
    /// many parities as there are unknown data chunks.
    fn solutions(&self, bound: u32) -> Candidates {
        let mut candidates = Candidates::new();
        if !self.parity_trusted || self.least_to_solve() >= bound {
            return candidates;
        }
        let lost = self.code.all_data().intersection(self.lost);
        let parities = self.code.all_parities().minus(self.lost);
        let left = parities.len();
        if lost.len() > left {
            return candidates;
        }
        let mut add = |unknown: Symbols| {
            let known = self.code.all_data().minus(unknown);
            let mut push = |parities| {
                let candidate = self.candidate(known.union(parities), Method::Solve { unknown });
                candidates.extend((candidate.count < bound).then_some(candidate));
            };
            match unknown.len() {
                0 => {}
                count if count > left => {} // most sets with a spared chunk; not worth looking for a choice
                count => choices(parities, count).for_each(&mut push),
            }
        };
        add(lost);
        // A spare parity can replace any one chunk. That may save a read, or
        // continue the transfer of an adjacent column.
        let spared: Symbols = self.code.all_data().minus(lost).minus(self.column.cached).minus(self.column.kept);
        spared.iter().for_each(|role: Role| add(lost.with(role)));
        candidates
    }

    /// The least number of chunks that any solution reads.
    fn least_to_solve(&self) -> u32 {
        self.code.all_data().minus(self.lost).minus(self.column.cached).len().saturating_sub(1)
    }
}

/// Every choice of `count` of these parities.
fn choices(parities: Symbols, count: u32) -> impl Iterator<Item = Symbols> {
    let choose = move |chosen: u32| -> Symbols {
        let is_chosen = |&(_, number): &(Role, u32)| chosen & 1 << number != 0;
        parities.iter().zip(0..).filter(is_chosen).map(|(role, _)| role).collect()
    };
    (0..1_u32 << parities.len()).filter(move |chosen| chosen.count_ones() == count).map(choose)
}
