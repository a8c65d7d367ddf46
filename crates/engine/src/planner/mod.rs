//! Which member transfers one stripe's read or write needs: a pure function.
//!
//! (what is asked, who cannot be read, who is not there) -> (what to read, how
//! to get at the parity, what to write). Full-stripe, read-modify-write,
//! reconstruct-write, degraded read and double failure are outcomes of it.
//!
//! The cost of a plan is its member transfers, then its bytes; a transfer is
//! one contiguous range of one chunk. No byte is read that the result does not
//! need, so a gap is not bridged to save a transfer; and as much as a whole
//! stripe's data is read only where nothing less will do. Within that the plan
//! is the least there is: `tests` holds it against a search over every set of reads.
//!
//! A stripe is cut into *columns*: ranges of chunk offsets within which the
//! same chunks are touched. Chunks are named by their [`Role`], never by slot.

mod symbols;
#[cfg(test)]
mod tests;

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
        (0..self.data).map(Role::Data).collect()
    }

    fn all_parities(self) -> Symbols {
        [Role::P, Role::Q].into_iter().take(self.parities.into()).collect()
    }
}

/// What can be had of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// Chunks whose old contents cannot be had; includes all of `absent`.
    pub unreadable: Symbols,
    /// Chunks that cannot be written, because their member is not there.
    pub absent: Symbols,
    /// Whether parity matches the data now. False after an unclean stop, until
    /// a resync: then nothing is reconstructed from it.
    pub parity_trusted: bool,
}

impl Health {
    /// Every chunk there and in agreement.
    pub const GOOD: Health = Health { unreadable: Symbols::EMPTY, absent: Symbols::EMPTY, parity_trusted: true };
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
pub struct Transfer {
    /// The chunk.
    pub role: Role,
    /// Bytes within the chunk.
    pub within: Range<u32>,
}

/// How a column's result is computed from what was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
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
    /// Chunks read in it.
    pub reads: Symbols,
    /// What to compute.
    pub way: Way,
}

/// What one stripe's read or write does to the members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Adjacent, in ascending order.
    pub columns: SmallVec<[Column; 3]>,
    /// All reads, before any write; each chunk's in ascending order.
    pub reads: SmallVec<[Transfer; 4]>,
    /// All writes, data and parity; empty for a read.
    pub writes: SmallVec<[Transfer; 4]>,
}

/// More chunks are lost than the parity can make good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unrecoverable;

/// Plans a read of `spans`, which do not overlap.
pub fn plan_read(code: Code, spans: &[Span], health: &Health) -> Result<Plan, Unrecoverable> {
    let columns = choose(cut(spans), |asked| read_candidates(code, asked, health))?;
    let reads = transfers(&columns, |column| column.reads);
    Ok(Plan { columns, reads, writes: SmallVec::new() })
}

/// Plans a write of `spans`, which do not overlap.
pub fn plan_write(code: Code, spans: &[Span], health: &Health) -> Result<Plan, Unrecoverable> {
    let columns = choose(cut(spans), |asked| write_candidates(code, asked, health))?;
    let reads = transfers(&columns, |column| column.reads);
    let writes = transfers(&columns, |column| {
        let parities = if column.asked.is_empty() { Symbols::EMPTY } else { code.all_parities() };
        column.asked.union(parities).minus(health.absent)
    });
    Ok(Plan { columns, reads, writes })
}

type Candidates = SmallVec<[(Symbols, Way); 4]>;

fn read_candidates(code: Code, asked: Symbols, health: &Health) -> Candidates {
    if asked.intersection(health.unreadable).is_empty() {
        return Candidates::from_iter([(asked, Way::Direct)]);
    }
    solutions(code, health)
}

fn write_candidates(code: Code, asked: Symbols, health: &Health) -> Candidates {
    let kept = code.all_parities().minus(health.absent);
    if asked.is_empty() || kept.is_empty() {
        return Candidates::from_iter([(Symbols::EMPTY, Way::Direct)]);
    }
    let readable = |set: Symbols| set.intersection(health.unreadable).is_empty();
    let mut candidates = Candidates::new();
    let rest = code.all_data().minus(asked);
    if readable(rest) {
        candidates.push((rest, Way::Reconstruct));
        if !health.parity_trusted {
            return candidates; // makes the parity right in passing; modifying would keep it wrong
        }
    }
    let old = asked.union(kept);
    if readable(old) {
        candidates.push((old, Way::Modify));
    }
    let is_whole = |reads: Symbols| reads.len() >= code.data.into();
    if candidates.iter().all(|(reads, _)| is_whole(*reads)) {
        candidates.extend(solutions(code, health));
    } else {
        candidates.retain(|(reads, _)| !is_whole(*reads));
    }
    without_waste(candidates)
}

/// Leaves out what reads all that another candidate reads, and more.
fn without_waste(candidates: Candidates) -> Candidates {
    let wasteful =
        |reads: Symbols| candidates.iter().any(|(other, _)| *other != reads && other.minus(reads).is_empty());
    candidates.iter().filter(|(reads, _)| !wasteful(*reads)).cloned().collect()
}

/// Ways to learn all data: as many parities are read as data chunks are not.
fn solutions(code: Code, health: &Health) -> Candidates {
    let lost = code.all_data().intersection(health.unreadable);
    let parities = code.all_parities().minus(health.unreadable);
    let mut candidates = Candidates::new();
    if !health.parity_trusted || lost.len() > parities.len() {
        return candidates;
    }
    let mut candidate = |unread: Symbols, parities: Symbols| {
        let reads = code.all_data().minus(unread).union(parities);
        candidates.push((reads, Way::Solve { unknown: unread }));
    };
    if lost.len() == parities.len() {
        candidate(lost, parities);
        return candidates;
    }
    parities.iter().for_each(|parity| candidate(lost, Symbols::of(parity)));
    // A spare parity can stand in for any one chunk: no fewer bytes, but it may
    // continue the transfer of a neighbouring column.
    code.all_data().minus(lost).iter().for_each(|spared| candidate(lost.with(spared), parities));
    candidates
}

/// Cuts spans into columns, gaps included, so that neighbours touch.
fn cut(spans: &[Span]) -> SmallVec<[Column; 3]> {
    let mut edges = SmallVec::<[u32; 8]>::new();
    for span in spans {
        debug_assert!(span.within.start < span.within.end, "a span is not empty");
        edges.extend([span.within.start, span.within.end]);
    }
    edges.sort_unstable();
    edges.dedup();
    let column = |edge: &[u32]| {
        let asked = spans
            .iter()
            .filter(|span| span.within.start <= edge[0] && edge[1] <= span.within.end)
            .map(|span| Role::Data(span.data))
            .collect();
        Column { within: edge[0]..edge[1], asked, reads: Symbols::EMPTY, way: Way::Direct }
    };
    edges.windows(2).map(column).collect()
}

/// Transfers (fewest first), then bytes.
type Cost = (u32, u64);

/// Picks one candidate for each column so that the whole costs least: a
/// shortest path, because a chunk read in two neighbouring columns is one transfer.
fn choose(
    mut columns: SmallVec<[Column; 3]>,
    candidates: impl Fn(Symbols) -> Candidates,
) -> Result<SmallVec<[Column; 3]>, Unrecoverable> {
    let mut steps: SmallVec<[SmallVec<[Step; 4]>; 3]> = SmallVec::new();
    for column in &columns {
        let length = u64::from(column.within.end - column.within.start);
        let step: SmallVec<[Step; 4]> = candidates(column.asked)
            .into_iter()
            .map(|(reads, way)| Step::after(steps.last().map(SmallVec::as_slice), reads, way, length))
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
        column.reads = chosen.reads;
        column.way = chosen.way;
    }
    Ok(columns)
}

struct Step {
    reads: Symbols,
    way: Way,
    cost: Cost,
    /// The candidate of the column before that this cost goes through.
    previous: usize,
}

impl Step {
    fn after(previous: Option<&[Step]>, reads: Symbols, way: Way, length: u64) -> Step {
        let bytes = u64::from(reads.len()) * length;
        let Some(previous) = previous else {
            return Step { reads, way, cost: (reads.len(), bytes), previous: 0 };
        };
        let through = |step: &Step| (step.cost.0 + reads.minus(step.reads).len(), step.cost.1 + bytes);
        let index = (0..previous.len()).min_by_key(|&index| through(&previous[index])).expect("no step is empty");
        Step { reads, way, cost: through(&previous[index]), previous: index }
    }
}

fn cheapest(step: &[Step]) -> usize {
    (0..step.len()).min_by_key(|&index| step[index].cost).expect("no step is empty")
}

/// The contiguous transfers that `set` asks for in each column.
fn transfers(columns: &[Column], set: impl Fn(&Column) -> Symbols) -> SmallVec<[Transfer; 4]> {
    let mut transfers = SmallVec::<[Transfer; 4]>::new();
    for column in columns {
        for role in set(column).iter() {
            let open = transfers.iter_mut().find(|t| t.role == role && t.within.end == column.within.start);
            match open {
                Some(transfer) => transfer.within.end = column.within.end,
                None => transfers.push(Transfer { role, within: column.within.clone() }),
            }
        }
    }
    transfers
}
