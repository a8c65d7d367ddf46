//! Which member transfers one stripe's read or write needs: a pure function.
//!
//! (what is asked, what is in memory, who cannot be read, who is not there) ->
//! (what to read, how to get at the parity, what to write). Full-stripe,
//! read-modify-write, reconstruct-write, degraded read and double failure are
//! outcomes of it.
//!
//! The cost of a plan is its member transfers, then their bytes; a transfer is
//! one contiguous range of one chunk, and what is in memory costs nothing. Within
//! the rules of `candidates` the plan is the least there is: `tests` holds it
//! against a search over every set of reads.
//!
//! A stripe is cut into *columns*: ranges of chunk offsets within which the
//! same chunks are touched, and the same are in memory. Chunks are named by their
//! [`Role`], never by slot.

mod candidates;
mod symbols;
#[cfg(test)]
mod tests;

use candidates::{Candidate, Candidates, read_candidates, write_candidates};
use format::geometry::Role;
use smallvec::SmallVec;
use std::ops::Range;
pub use symbols::{DATA_CHUNKS_MAX, Symbols};

/// How many data and parity chunks a stripe has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// Data chunks, at least one.
    pub data: u16,
    /// 1 (P) or 2 (P and Q).
    pub parities: u16,
}

impl Code {
    fn all_data(self) -> Symbols {
        Symbols::data(self.data)
    }

    fn all_parities(self) -> Symbols {
        let p = Symbols::of(Role::P);
        if self.parities > 1 { p.with(Role::Q) } else { p }
    }
}

/// What can be had of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StripeHealth {
    /// Chunks whose old contents cannot be had; includes all of `absent`.
    pub unreadable: Symbols,
    /// Chunks that cannot be written, because their member is not there.
    pub absent: Symbols,
    /// Whether parity matches the data now. False after an unclean stop, until
    /// a resync: then nothing is reconstructed from it.
    pub parity_trusted: bool,
}

impl StripeHealth {
    /// Every chunk there and in agreement.
    pub const GOOD: StripeHealth =
        StripeHealth { unreadable: Symbols::EMPTY, absent: Symbols::EMPTY, parity_trusted: true };
}

/// A contiguous range of one data chunk that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Index of the data chunk.
    pub data: u16,
    /// Bytes within the chunk. Not empty.
    pub within: Range<u32>,
}

/// One contiguous transfer of one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkTransfer {
    /// The chunk.
    pub role: Role,
    /// Bytes within the chunk.
    pub within: Range<u32>,
}

impl ChunkTransfer {
    /// Whether all of `within` a chunk is part of it.
    pub fn covers(&self, role: Role, within: &Range<u32>) -> bool {
        self.role == role && self.within.start <= within.start && within.end <= self.within.end
    }
}

/// How a column's result is computed from what was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    /// Nothing to compute: no chunk is asked for here, or no parity is there
    /// to be kept (write), or all that is asked was read (read).
    Direct,
    /// New parity from all data: the new, and the old of what is not written.
    Reconstruct,
    /// New parity from old parity, old data and new data of what is written.
    Modify,
    /// `unknown` data follows from what is read: all other data, and as many
    /// parities as there are unknowns.
    Solve {
        /// The data chunks that are not read.
        unknown: Symbols,
    },
}

/// A range of chunk offsets in which the same chunks are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Bytes within each chunk.
    pub within: Range<u32>,
    /// Data chunks asked for in it.
    pub asked: Symbols,
    /// Data chunks that are written back as they are, to fill a unit.
    pub kept: Symbols,
    /// Chunks whose old contents are in memory.
    pub cached: Symbols,
    /// Chunks whose old contents are used; those that are not in memory are read.
    pub uses: Symbols,
    /// What to compute.
    pub method: Method,
}

impl Column {
    /// Whether nothing is asked for here.
    fn is_gap(&self) -> bool {
        self.asked.union(self.kept).is_empty()
    }

    /// Chunks that are read from members.
    pub fn reads(&self) -> Symbols {
        self.uses.minus(self.cached)
    }
}

/// What one stripe's read or write does to the members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Adjacent, in ascending order.
    pub columns: SmallVec<[Column; 3]>,
    /// All reads, before any write; each chunk's in ascending order.
    pub reads: SmallVec<[ChunkTransfer; 4]>,
    /// What is taken from memory, likewise.
    pub cached_reads: SmallVec<[ChunkTransfer; 4]>,
    /// All writes, data and parity; empty for a read.
    pub writes: SmallVec<[ChunkTransfer; 4]>,
}

/// More chunks are lost than the parity can make good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unrecoverable;

/// Plans a read of `spans`, which do not overlap, with the old contents of `cached` in memory.
pub fn plan_read(
    code: Code,
    spans: &[Span],
    cached: &[ChunkTransfer],
    health: &StripeHealth,
) -> Result<Plan, Unrecoverable> {
    let columns = choose(cut(spans, &[], cached), |column| read_candidates(code, column, health))?;
    Ok(Plan::of(columns))
}

/// Plans a write of `spans`, which do not overlap, with the old contents of
/// `cached` in memory. `kept`, apart from the spans, is written back as it is
/// where it can be had.
pub fn plan_write(
    code: Code,
    spans: &[Span],
    kept: &[Span],
    cached: &[ChunkTransfer],
    health: &StripeHealth,
) -> Result<Plan, Unrecoverable> {
    if let ([span], [], &StripeHealth::GOOD) = (spans, kept, health)
        && let Some(plan) = Plan::of_single_span(code, span, cached)
    {
        return Ok(plan);
    }
    plan_any_write(code, spans, kept, cached, health)
}

fn plan_any_write(
    code: Code,
    spans: &[Span],
    kept: &[Span],
    cached: &[ChunkTransfer],
    health: &StripeHealth,
) -> Result<Plan, Unrecoverable> {
    let mut columns = cut(spans, kept, cached);
    for column in &mut columns {
        column.kept = column.kept.minus(health.absent).minus(health.unreadable.minus(column.cached));
    }
    let columns = choose(columns, |column| write_candidates(code, column, health))?;
    let writes = transfers(&columns, |column| {
        let parities = if column.is_gap() { Symbols::EMPTY } else { code.all_parities() };
        column.asked.union(column.kept).union(parities).minus(health.absent)
    });
    Ok(Plan { writes, ..Plan::of(columns) })
}

/// Where a write of `span` alone, in a stripe whose chunks are all there, is planned as [`Method::Modify`] throughout:
/// the chunks that are in memory there.
pub(crate) fn modifies(code: Code, span: &Span, cached: &[ChunkTransfer]) -> Option<Symbols> {
    let single = SingleSpan::new(code, span, cached).filter(|single| single.method == Method::Modify)?;
    Some(single.here)
}

/// The commonest write, of one piece of one chunk, where every chunk is there and each
/// is in memory throughout the piece or not at all: what choosing among candidates comes to.
struct SingleSpan {
    asked: Symbols,
    changed: Symbols,
    here: Symbols,
    uses: Symbols,
    method: Method,
}

impl SingleSpan {
    /// `None` where the candidates have to be looked at.
    fn new(code: Code, span: &Span, cached: &[ChunkTransfer]) -> Option<Self> {
        let within = &span.within;
        let is_apart = |t: &ChunkTransfer| t.within.end <= within.start || within.end <= t.within.start;
        let mut here = Symbols::EMPTY;
        for transfer in cached.iter().filter(|transfer| !is_apart(transfer)) {
            if !transfer.covers(transfer.role, within) {
                return None;
            }
            here = here.with(transfer.role);
        }
        let asked = Symbols::of(Role::Data(span.data));
        let changed = asked.union(code.all_parities());
        let rest = code.all_data().minus(asked);
        let cost = |uses: Symbols| (uses.minus(here).len(), uses.len());
        // A healthy chunk is solved for only where that reads less than either of these.
        if code.all_data().minus(here).len() <= cost(changed).0.min(cost(rest).0) {
            return None;
        }
        let (uses, method) =
            if cost(rest) <= cost(changed) { (rest, Method::Reconstruct) } else { (changed, Method::Modify) };
        Some(Self { asked, changed, here, uses, method })
    }
}

impl Plan {
    /// The plan of a [`SingleSpan`].
    fn of_single_span(code: Code, span: &Span, cached: &[ChunkTransfer]) -> Option<Plan> {
        let SingleSpan { asked, changed, here, uses, method } = SingleSpan::new(code, span, cached)?;
        let within = &span.within;
        let transfers = |set: Symbols| set.iter().map(|role| ChunkTransfer { role, within: within.clone() }).collect();
        Some(Plan {
            reads: transfers(uses.minus(here)),
            cached_reads: transfers(uses.intersection(here)),
            writes: transfers(changed),
            columns: SmallVec::from_iter([Column {
                within: within.clone(),
                asked,
                kept: Symbols::EMPTY,
                cached: here,
                uses,
                method,
            }]),
        })
    }

    fn of(columns: SmallVec<[Column; 3]>) -> Plan {
        let reads = transfers(&columns, Column::reads);
        let cached_reads = transfers(&columns, |column| column.uses.intersection(column.cached));
        Plan { columns, reads, cached_reads, writes: SmallVec::new() }
    }
}

/// Cuts into columns, gaps included, so that neighbours touch.
fn cut(spans: &[Span], kept: &[Span], cached: &[ChunkTransfer]) -> SmallVec<[Column; 3]> {
    let mut edges = SmallVec::<[u32; 8]>::new();
    for span in spans.iter().chain(kept) {
        debug_assert!(span.within.start < span.within.end, "a span is not empty");
        edges.extend([span.within.start, span.within.end]);
    }
    if let (false, Some(&first), Some(&last)) = (cached.is_empty(), edges.iter().min(), edges.iter().max()) {
        let inner = cached.iter().flat_map(|transfer| [transfer.within.start, transfer.within.end]);
        edges.extend(inner.filter(|edge| (first..last).contains(edge)));
    }
    edges.sort_unstable();
    edges.dedup();
    let column = |edge: &[u32]| {
        let covers = |within: &Range<u32>| within.start <= edge[0] && edge[1] <= within.end;
        let data = |spans: &[Span]| -> Symbols {
            spans.iter().filter(|span| covers(&span.within)).map(|span| Role::Data(span.data)).collect()
        };
        let cached = cached.iter().filter(|transfer| covers(&transfer.within)).map(|transfer| transfer.role);
        Column {
            within: edge[0]..edge[1],
            asked: data(spans),
            kept: data(kept),
            cached: cached.collect(),
            uses: Symbols::EMPTY,
            method: Method::Direct,
        }
    };
    edges.windows(2).map(column).collect()
}

/// Transfers (fewest first), then their bytes; what is left equal is decided by
/// the bytes to compute with.
type Cost = (u32, u64, u64);

/// Picks one candidate for each column so that the whole costs least: a
/// shortest path, because a chunk read in two neighbouring columns is one transfer.
fn choose(
    mut columns: SmallVec<[Column; 3]>,
    candidates: impl Fn(&Column) -> Candidates,
) -> Result<SmallVec<[Column; 3]>, Unrecoverable> {
    let mut steps: SmallVec<[SmallVec<[Step; 2]>; 3]> = SmallVec::new();
    for column in &columns {
        let length = u64::from(column.within.end - column.within.start);
        let step: SmallVec<[Step; 2]> = candidates(column)
            .into_iter()
            .map(|candidate| Step::after(steps.last().map(SmallVec::as_slice), candidate, column, length))
            .collect();
        if step.is_empty() {
            return Err(Unrecoverable);
        }
        steps.push(step);
    }
    let mut best = None;
    for (column, step) in columns.iter_mut().zip(steps).rev() {
        let index = best.unwrap_or_else(|| cheapest(&step));
        let chosen = step.into_iter().nth(index).expect("an index into this step");
        best = Some(chosen.previous);
        column.uses = chosen.candidate.uses;
        column.method = chosen.candidate.method;
    }
    Ok(columns)
}

struct Step {
    candidate: Candidate,
    cost: Cost,
    /// The candidate of the column before that this cost goes through.
    previous: usize,
}

impl Step {
    fn after(previous: Option<&[Step]>, candidate: Candidate, column: &Column, length: u64) -> Step {
        let cached_reads = if column.cached.is_empty() { 0 } else { candidate.uses.intersection(column.cached).len() };
        let (bytes, work) = (u64::from(candidate.count) * length, u64::from(candidate.count + cached_reads) * length);
        let Some(previous) = previous else {
            return Step { cost: (candidate.count, bytes, work), candidate, previous: 0 };
        };
        let through = |step: &Step| {
            let (transfers, before, work_before) = step.cost;
            let begun = candidate.reads.minus(step.candidate.reads).len();
            (transfers + begun, before + bytes, work_before + work)
        };
        let index = (0..previous.len()).min_by_key(|&index| through(&previous[index])).expect("no step is empty");
        Step { cost: through(&previous[index]), candidate, previous: index }
    }
}

fn cheapest(step: &[Step]) -> usize {
    (0..step.len()).min_by_key(|&index| step[index].cost).expect("no step is empty")
}

/// The contiguous transfers that `set` asks for in each column.
fn transfers(columns: &[Column], set: impl Fn(&Column) -> Symbols) -> SmallVec<[ChunkTransfer; 4]> {
    let mut transfers = SmallVec::<[ChunkTransfer; 4]>::new();
    for column in columns {
        for role in set(column).iter() {
            let open = transfers.iter_mut().find(|t| t.role == role && t.within.end == column.within.start);
            match open {
                Some(transfer) => transfer.within.end = column.within.end,
                None => transfers.push(ChunkTransfer { role, within: column.within.clone() }),
            }
        }
    }
    transfers
}
