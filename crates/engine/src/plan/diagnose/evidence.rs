//! What is known of each block of a row, and the verdicts that can follow from it.
//!
//! Pure values.

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
    pub(super) fn is_known_bad(self) -> bool {
        matches!(self, Self::Unreadable | Self::Mismatched(_))
    }

    /// Bytes that may be used until other blocks contradict them.
    pub(super) fn usable(self) -> Option<&'a [u8]> {
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
pub(super) fn indices<'a>(evidence: &[BlockEvidence<'a>], is: impl Fn(BlockEvidence<'a>) -> bool) -> Indices {
    evidence.iter().enumerate().filter(|(_, block)| is(**block)).map(|(index, _)| index).collect()
}

/// The evidence against the blocks that are known to be bad.
pub(super) fn known_bad_by(evidence: &[BlockEvidence<'_>]) -> Evidence {
    match evidence.iter().any(|block| matches!(block, BlockEvidence::Mismatched(_))) {
        true => Evidence::Checksum,
        false => Evidence::Unreadable,
    }
}
