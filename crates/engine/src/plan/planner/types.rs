//! What the planner takes and gives: the code, the request, the health of a stripe, and the plan.
//!
//! Pure values.

use crate::plan::planner::symbols::Symbols;
use format::geometry::{Parity, Role};
use smallvec::SmallVec;
use std::ops::Range;

/// How many data and parity chunks a stripe has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// Data chunks, at least one.
    pub data: u16,
    /// 1 (P) or 2 (P and Q).
    pub parities: u16,
}

impl Code {
    pub(super) fn all_data(self) -> Symbols {
        Symbols::data(self.data)
    }

    pub(crate) fn all_parities(self) -> Symbols {
        Role::parities(self.parities).collect()
    }
}

/// The code of an array's stripes.
pub(crate) fn code(parity: &Parity) -> Code {
    Code { data: parity.data_chunks(), parities: parity.parities() }
}

/// Which chunks of a stripe can be read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StripeHealth {
    /// Chunks whose old contents cannot be read; includes all of `absent`.
    pub unreadable: Symbols,
    /// Chunks that cannot be written, because their member is missing.
    pub absent: Symbols,
    /// Whether parity matches the data. False from an unclean stop until the
    /// resync; then nothing is reconstructed from parity.
    pub parity_trusted: bool,
}

impl StripeHealth {
    /// Every chunk is present and the parity matches.
    pub const GOOD: StripeHealth =
        StripeHealth { unreadable: Symbols::EMPTY, absent: Symbols::EMPTY, parity_trusted: true };
}

/// A requested contiguous range of one data chunk.
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
    /// Whether the transfer includes all of `within` of the chunk `role`.
    pub fn covers(&self, role: Role, within: &Range<u32>) -> bool {
        self.role == role && self.within.start <= within.start && within.end <= self.within.end
    }
}

/// How a column's result is computed from the data read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    /// Nothing to compute. A write has no requested chunk here or no parity to
    /// update; a read has read every requested chunk.
    Direct,
    /// New parity from all data: the new data, and the old data of the chunks not written.
    Reconstruct,
    /// New parity from the old parity, and the old and new data of the chunks written.
    Modify,
    /// Solves for the `unknown` data. Read are all other data chunks, and as many
    /// parities as there are unknowns.
    Solve {
        /// The data chunks that are not read.
        unknown: Symbols,
    },
}

/// A range of chunk offsets in which the same chunks are requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Bytes within each chunk.
    pub within: Range<u32>,
    /// The requested data chunks.
    pub asked: Symbols,
    /// Data chunks that are rewritten unchanged, to fill a unit.
    pub kept: Symbols,
    /// Chunks whose old contents are cached.
    pub cached: Symbols,
    /// Chunks whose old contents are used; those not cached are read.
    pub uses: Symbols,
    /// The computation.
    pub method: Method,
}

impl Column {
    /// Whether the column contains no requested chunk.
    pub(super) fn is_gap(&self) -> bool {
        self.asked.union(self.kept).is_empty()
    }

    /// The chunks that are read from members.
    pub fn reads(&self) -> Symbols {
        self.uses.minus(self.cached)
    }
}

/// The member transfers and computations of one stripe's read or write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Adjacent, in ascending order.
    pub columns: SmallVec<[Column; 3]>,
    /// All reads, which precede the writes. Those of one chunk are in ascending order.
    pub reads: SmallVec<[ChunkTransfer; 4]>,
    /// The ranges taken from the cache, in the same order.
    pub cached_reads: SmallVec<[ChunkTransfer; 4]>,
    /// All writes, data and parity; empty for a read.
    pub writes: SmallVec<[ChunkTransfer; 4]>,
}

/// More chunks are lost than the parity can reconstruct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unrecoverable;
