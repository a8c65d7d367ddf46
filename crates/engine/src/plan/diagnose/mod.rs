//! Who is wrong, where blocks that belong together do not agree: pure functions.
//!
//! Blocks are judged in *rows*: of a stripe the same bytes of every chunk, of
//! copies the same bytes of each. Each block is a [`BlockEvidence`]: what it says, and
//! what else is known of it (a checksum, an unreadable sector). The law is in
//! `stripe` and `copies`; both convict only where just one answer is left, on the
//! assumption that fewer blocks are wrong rather than more:
//!
//! * whoever is known to be wrong is wrong, and whoever is known to be right is
//!   right: where those known to be right say all that there is, so be it;
//! * otherwise at most one block more than those known to be wrong is taken to
//!   be (of copies, a minority), and it must be possible to say which. If not, the
//!   row is undecidable; nobody is guessed at.
//!
//! What RAID-6 allows without checksums follows: of a whole row one wrong block
//! of any member is found and named. With one member missing there is one
//! equation left: that something is wrong is seen, not who. Two blocks that are
//! wrong at once are seen, and undecidable, unless they differ from the truth
//! in a way that a single other block would explain: in the same bytes, with a
//! ratio that is just that block's coefficient. Against chance one byte is weak
//! evidence there (one in 255 for each member), a block of random bytes is proof.
//! Two blocks that were exchanged are the one such case that is no accident (it
//! looks like a wrong Q), so it is asked for, and undecidable.
//!
//! Source of the arithmetic: H. P. Anvin, "The mathematics of RAID-6", section 4.

mod copies;
mod stripe;
#[cfg(test)]
mod tests;

pub use copies::{judge_copies, truth};
pub use stripe::StripeRow;

use smallvec::SmallVec;

/// One block of a row: what it says, and what is known of it besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockEvidence<'a> {
    /// Its member is not there, or not current yet: nothing is expected of it.
    Absent,
    /// It should be there, and cannot be read.
    Unreadable,
    /// It was read; only the others can tell whether it is right.
    Unverified(&'a [u8]),
    /// It was read, and its checksum says that it is right.
    Verified(&'a [u8]),
    /// It was read, and its checksum says that it is wrong; with what was read, if that was kept.
    Mismatched(Option<&'a [u8]>),
}

impl<'a> BlockEvidence<'a> {
    /// What was read.
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Absent | Self::Unreadable => None,
            Self::Unverified(bytes) | Self::Verified(bytes) => Some(bytes),
            Self::Mismatched(bytes) => bytes,
        }
    }

    /// Whether it is known to be wrong before the others are asked.
    fn is_known_bad(self) -> bool {
        matches!(self, Self::Unreadable | Self::Mismatched(_))
    }

    /// What can be relied on until the others contradict it.
    fn claim(self) -> Option<&'a [u8]> {
        match self {
            Self::Unverified(bytes) | Self::Verified(bytes) => Some(bytes),
            Self::Absent | Self::Unreadable | Self::Mismatched(_) => None,
        }
    }
}

/// Witnesses, by their index in the row.
pub type Indices = SmallVec<[usize; 2]>;

/// What decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// The blocks cannot be read.
    Unreadable,
    /// Checksums.
    Checksum,
    /// P and Q.
    Parity,
    /// Most of the copies.
    Majority,
}

/// What is found of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing contradicts anything.
    Sound,
    /// These are wrong, and the others tell what they should be.
    Wrong {
        /// Ascending, not empty.
        blocks: Indices,
        /// Why.
        by: Evidence,
    },
    /// Somebody is wrong, and nothing says who.
    Undecidable,
    /// These are wrong for sure, and too few others are left to say what they should be.
    Lost {
        /// Ascending, not empty.
        blocks: Indices,
    },
}

/// The indices of the evidence of which `is` is true.
fn indices<'a>(evidence: &[BlockEvidence<'a>], is: impl Fn(BlockEvidence<'a>) -> bool) -> Indices {
    evidence.iter().enumerate().filter(|(_, block)| is(**block)).map(|(index, _)| index).collect()
}

/// What those that confess were blame by.
fn known_bad_by(evidence: &[BlockEvidence<'_>]) -> Evidence {
    match evidence.iter().any(|block| matches!(block, BlockEvidence::Mismatched(_))) {
        true => Evidence::Checksum,
        false => Evidence::Unreadable,
    }
}
