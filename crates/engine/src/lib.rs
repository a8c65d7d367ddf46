//! The RAID engine: what an array does, over abstract members and an abstract clock.
//!
//! It defines the two seams [`Member`] and [`Clock`], which its users implement. It knows no file, thread,
//! runtime, system clock or source of randomness. It is straight-line `async` code on one thread, and runs
//! the same on real rings and in virtual time.
//!
//! The folders, from the bottom:
//!
//! * `base`: buffers, locks and signals, without RAID.
//! * `seam`: what users implement or read.
//! * `plan`: which reads and writes a request needs; pure.
//! * `device`: one member in use.
//! * `core`: what all parts share.
//! * `data` serves requests, `metadata` writes superblocks and bitmap; neither calls the other.
//! * `control`: everything else about an array.
//! * `array`: the facade.
#![deny(unsafe_code)] // allowed in `base::buffer` and `base::join`

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
pub use control::{assemble, conversion, create, examined, inspect, reshape, status, update, wipe};
pub use plan::{diagnose, planner};
pub use seam::{clock, member, observe};

pub use array::Array;
pub use base::buffer::{Block, Buffer, Pool, SUMMED_BYTES};
pub use base::range_lock::{Locking, RangeGuard, RangeLocks};
pub use base::versioned::Growing;
pub use control::assemble::{AssembleOptions, CACHE_BYTES, FindWriteBuffer, JournalPlan, Offer};
pub use control::forced::Forced;
pub use control::grow::Growth;
pub use control::sweep::{
    ArrayPart, DoubtfulZeros, FINDINGS_LISTED_MAX, Finding, FindingVerdict, Findings, MemberCount, MemberPart, Outcome,
    Resynced, ScrubAction, ScrubCounts, ScrubReport, ScrubRequest, ScrubState, SweepStatus, SweepTransfers, SyncSpeed,
};
pub use data::coalesce::WriteBack;
pub use data::stripe_size::{STRIPE_SIZE_MIN, StripeSize};
pub use device::checksums::{ChecksumMemory, Verify};
pub use device::write_buffer::WriteBuffer;
pub use metadata::bitmap::{BitmapClearing, BitmapPolicy, BitmapWrites};
pub use metadata::consistency::ConsistencyPolicy;
pub use seam::clock::{Clock, Moment};
pub use seam::durability::Durability;
pub use seam::error::{ArrayError, ArrayErrorKind, Refusal};
pub use seam::member::{Candidate, Limits, Member, MemberError, MemberErrorKind, MemberFault, Operation};
pub use seam::report::{ChangeKind, LOG_TARGET, MemberChange};
