//! Plans the member transfers of one stripe's read or write: a pure function.
//!
//! The input is the request, the cached chunks, the unreadable chunks and the
//! absent chunks. The output is the reads, the parity computation and the
//! writes. Full-stripe write, read-modify-write, reconstruct-write, degraded read
//! and double failure all follow from one cost function.
//!
//! The cost of a plan is its number of member transfers, then their bytes. A
//! transfer is one contiguous range of one chunk; cached data costs nothing.
//! Within the rules of `candidates` the plan has the least cost: `tests` compares
//! it with a search over every set of reads.
//!
//! A stripe is cut into *columns*: ranges of chunk offsets in which the same
//! chunks are touched and the same chunks are cached. Chunks are named by their
//! [`Role`], never by slot.

mod candidates;
mod symbols;
#[cfg(test)]
mod tests;
mod types;

use candidates::{Candidates, PlanCandidate, read_candidates, write_candidates};
use format::geometry::Role;
use smallvec::SmallVec;
use std::ops::Range;
pub use symbols::{DATA_CHUNKS_MAX, Symbols};
pub(crate) use types::code;
pub use types::{ChunkTransfer, Code, Column, Method, Plan, Span, StripeHealth, Unrecoverable};

/// Plans a read of `spans`, which do not overlap. The old contents of `cached` are in memory.
pub fn plan_read(
    code: Code,
    spans: &[Span],
    cached: &[ChunkTransfer],
    health: &StripeHealth,
) -> Result<Plan, Unrecoverable> {
    let columns = choose(cut(spans, &[], cached), |column| read_candidates(code, column, health))?;
    Ok(Plan::of(columns))
}

/// Plans a write of `spans`, which do not overlap. The old contents of `cached`
/// are in memory. `kept`, which does not overlap the spans, is rewritten unchanged
/// where it can be read.
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

/// What is done where read-modify-write and reconstruct-write read the same number of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tie {
    /// As in md: the reads and the writes are of different members, so none has to be read before it is written.
    Reconstruct,
    /// Only what was read is written: half as many members are asked.
    Modify,
}

/// The plan of the commonest write, without comparing candidates. The write is one span of one chunk,
/// every chunk is present, and each is cached for all of the span or for none of it.
pub(crate) struct SingleSpan {
    asked: Symbols,
    changed: Symbols,
    /// The cached chunks.
    pub(crate) in_memory: Symbols,
    /// The chunks whose old contents are used.
    pub(crate) uses: Symbols,
    /// [`Method::Modify`] or [`Method::Reconstruct`].
    pub(crate) method: Method,
}

impl SingleSpan {
    /// `None` where the candidates must be compared.
    pub(crate) fn new(code: Code, span: &Span, cached: &[ChunkTransfer], tie: Tie) -> Option<Self> {
        let within = &span.within;
        let is_apart = |t: &ChunkTransfer| t.within.end <= within.start || within.end <= t.within.start;
        let mut in_memory = Symbols::EMPTY;
        for transfer in cached.iter().filter(|transfer| !is_apart(transfer)) {
            if !transfer.covers(transfer.role, within) {
                return None;
            }
            in_memory = in_memory.with(transfer.role);
        }
        let asked = Symbols::of(Role::Data(span.data));
        let changed = asked.union(code.all_parities());
        let rest = code.all_data().minus(asked);
        let cost = |uses: Symbols| (uses.minus(in_memory).len(), uses.len());
        // A readable chunk is solved for only where that reads less than either of these.
        if code.all_data().minus(in_memory).len() <= cost(changed).0.min(cost(rest).0) {
            return None;
        }
        let is_rest_read = cost(rest) < cost(changed) || cost(rest) == cost(changed) && tie == Tie::Reconstruct;
        let (uses, method) = if is_rest_read { (rest, Method::Reconstruct) } else { (changed, Method::Modify) };
        Some(Self { asked, changed, in_memory, uses, method })
    }
}

impl Plan {
    /// The plan of a [`SingleSpan`].
    fn of_single_span(code: Code, span: &Span, cached: &[ChunkTransfer]) -> Option<Plan> {
        let SingleSpan { asked, changed, in_memory, uses, method } =
            SingleSpan::new(code, span, cached, Tie::Reconstruct)?;
        let within = &span.within;
        let transfers = |set: Symbols| set.iter().map(|role| ChunkTransfer { role, within: within.clone() }).collect();
        Some(Plan {
            reads: transfers(uses.minus(in_memory)),
            cached_reads: transfers(uses.intersection(in_memory)),
            writes: transfers(changed),
            columns: SmallVec::from_iter([Column {
                within: within.clone(),
                asked,
                kept: Symbols::EMPTY,
                cached: in_memory,
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

/// Cuts the spans into adjacent columns, gaps included.
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

/// Transfers, then their bytes, then the bytes that the computation uses.
type Cost = (u32, u64, u64);

/// Picks one candidate for each column so that the total cost is least. This is a shortest
/// path, because reads of one chunk in two adjacent columns are one transfer.
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
    candidate: PlanCandidate,
    cost: Cost,
    /// The candidate of the previous column on the cheapest path.
    previous: usize,
}

impl Step {
    fn after(previous: Option<&[Step]>, candidate: PlanCandidate, column: &Column, length: u64) -> Step {
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

/// The contiguous transfers of the chunks that `set` returns for each column.
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
