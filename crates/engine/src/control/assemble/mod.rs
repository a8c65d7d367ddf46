//! Assembles an array from members, or says why not.
//!
//! The rules are md's. The freshest event count wins, a member more than one event behind is left out, and
//! the freshest superblock decides every role. Where md would have to guess, this engine refuses: members of
//! the same age that disagree, members of another array, and duplicates. Members that were used apart are
//! left out (`split.rs`).
//!
//! Nothing is written here but what a log of md's holds, to members that the caller gave for that
//! ([`AssembleOptions::replay`]). The first write of the running array marks the members.
//!
//! Facts: `drivers/md/md.c` (`super_1_validate`, `analyze_sbs`), mdadm's `Assemble.c`.

mod agreement;
mod backup;
mod buffered;
mod journal;
mod record;
pub(crate) mod reshape;
mod seats;
mod shape;
pub(crate) mod start;
mod supported;

pub use crate::control::offer::{AssembleOptions, CACHE_BYTES, FindWriteBuffer, JournalPlan, LeftOut, Offer};
