//! The RAID engine: what an array does, over members and a clock that are
//! given to it.
//!
//! It owns the two seams [`Member`] and [`Clock`]. It knows no file, thread,
//! runtime, clock or source of randomness: straight-line `async` code that
//! runs on one thread and is driven by whoever polls it, real rings and virtual
//! time alike.
#![deny(unsafe_code)] // allowed in `buffer` and `at_once`

#[macro_use]
mod mutant;

mod array;
mod base;
mod control;
mod core;
mod data;
mod device;
mod metadata;
mod plan;
mod seam;

pub use base::buffer;
pub use control::{assemble, create, examined, inspect, status};
pub use plan::{diagnose, planner};
pub use seam::{clock, member, observe};

pub use array::Array;
pub use base::buffer::{Block, Buffer, Pool, SUMMED_BYTES};
pub use base::versioned::Growing;
pub use control::assemble::{AssembleOptions, CACHE_BYTES, Offer};
pub use control::forced::Forced;
pub use control::grow::Growth;
pub use control::sweep::{
    ArrayPart, DoubtfulZeros, FINDINGS_LISTED_MAX, Finding, FindingVerdict, Findings, MemberCount, MemberPart, Outcome,
    Resynced, ScrubAction, ScrubCounts, ScrubReport, ScrubRequest, ScrubState, SweepStatus, SweepTransfers, SyncSpeed,
};
pub use data::request::Durability;
pub use data::stripe_size::{STRIPE_SIZE_MIN, StripeSize};
pub use device::checksums::{ChecksumMemory, Verify};
pub use metadata::bitmap::{BitmapClearing, BitmapPolicy, BitmapWrites};
pub use seam::clock::{Clock, Moment};
pub use seam::error::{ArrayError, ArrayErrorKind, Refusal};
pub use seam::member::{Candidate, Limits, Member, MemberError, MemberErrorKind, MemberFault, Operation};
pub use seam::report::{ChangeKind, LOG_TARGET, MemberChange};
