//! Decides which blocks are wrong where redundant blocks do not agree: pure functions.
//!
//! Blocks are judged in *rows*: the same bytes of every chunk of a stripe, or the
//! same bytes of every copy. Each block is a [`BlockEvidence`]: its bytes, and
//! what else is known of it (a checksum, an unreadable sector). The rules are in
//! `stripe` and `copies`. Both blame a block only where one answer is left, and
//! assume that few wrong blocks are likelier than many:
//!
//! * Blocks known to be bad are wrong, and verified blocks are right. Where the
//!   verified blocks determine all others, they decide.
//! * Otherwise at most one more block than those known to be bad is wrong (of
//!   copies, a minority), and the evidence must single it out. If it does not, the
//!   row is undecidable. Nothing is guessed.
//!
//! This gives what RAID-6 allows without checksums. In a complete row one wrong
//! block of any member is found and named. With one member missing one equation
//! is left: it shows that a block is wrong, but not which. Two wrong blocks are
//! detected and undecidable, with one exception: their errors may look like the
//! error of a single other block. For that they must be in the same bytes, with a
//! ratio that equals that block's coefficient. One wrong byte meets this by chance
//! in one of 255 cases for each member; a block of random bytes practically never.
//! Two exchanged blocks always look like a wrong Q, and that is no accident. So
//! the exchange is tested for, and is undecidable.
//!
//! Source of the arithmetic: H. P. Anvin, "The mathematics of RAID-6", section 4.

mod copies;
mod stripe;
#[cfg(test)]
mod tests;

pub use copies::{judge_copies, truth};
pub use stripe::StripeRow;

use smallvec::SmallVec;

/// One block of a row: its bytes, and what else is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockEvidence<'a> {
    /// The member is missing or not in sync yet, so no contents are expected.
    Absent,
    /// The block should be readable and is not.
    Unreadable,
    /// The block was read, and no checksum is known. Only the other blocks can tell whether it is right.
    Unverified(&'a [u8]),
    /// The block was read, and its checksum matches.
    Verified(&'a [u8]),
    /// The block was read, and its checksum does not match; with the bytes read, if they were kept.
    Mismatched(Option<&'a [u8]>),
}

impl<'a> BlockEvidence<'a> {
    /// The bytes read.
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Absent | Self::Unreadable => None,
            Self::Unverified(bytes) | Self::Verified(bytes) => Some(bytes),
            Self::Mismatched(bytes) => bytes,
        }
    }

    /// Whether the block is known to be bad regardless of the other blocks.
    fn is_known_bad(self) -> bool {
        matches!(self, Self::Unreadable | Self::Mismatched(_))
    }

    /// Bytes that may be used until other blocks contradict them.
    fn usable(self) -> Option<&'a [u8]> {
        match self {
            Self::Unverified(bytes) | Self::Verified(bytes) => Some(bytes),
            Self::Absent | Self::Unreadable | Self::Mismatched(_) => None,
        }
    }
}

/// Blocks, by their index in the row.
pub type Indices = SmallVec<[usize; 2]>;

/// The evidence that decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// The blocks cannot be read.
    Unreadable,
    /// The checksums.
    Checksum,
    /// P and Q.
    Parity,
    /// The majority of the copies.
    Majority,
}

/// The verdict on a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All blocks agree.
    Sound,
    /// Some blocks are wrong, and the others determine their contents.
    Wrong {
        /// The wrong blocks, ascending; not empty.
        blocks: Indices,
        /// The evidence.
        by: Evidence,
    },
    /// At least one block is wrong, and the evidence does not tell which.
    Undecidable,
    /// Some blocks are known to be bad, and the others are too few to reconstruct them.
    Lost {
        /// The lost blocks, ascending; not empty.
        blocks: Indices,
    },
}

/// The indices of the blocks for which `is` is true.
fn indices<'a>(evidence: &[BlockEvidence<'a>], is: impl Fn(BlockEvidence<'a>) -> bool) -> Indices {
    evidence.iter().enumerate().filter(|(_, block)| is(**block)).map(|(index, _)| index).collect()
}

/// The evidence against the blocks that are known to be bad.
fn known_bad_by(evidence: &[BlockEvidence<'_>]) -> Evidence {
    match evidence.iter().any(|block| matches!(block, BlockEvidence::Mismatched(_))) {
        true => Evidence::Checksum,
        false => Evidence::Unreadable,
    }
}
