//! The RAID engine: what an array does, over members and a clock that are
//! given to it.
//!
//! It owns the two seams [`Member`] and [`Clock`]. It knows no file, thread,
//! runtime, clock or source of randomness: straight-line `async` code that
//! runs on one thread and is driven by whoever polls it, real rings and virtual
//! time alike.
#![deny(unsafe_code)] // allowed in `buffer` and `at_once`

pub mod assemble;
pub mod buffer;
pub mod clock;
pub mod create;
pub mod examined;
pub mod inspect;
pub mod member;
pub mod observe;
mod owed;
pub mod planner;
pub mod status;
pub mod verdict;

mod array;
mod at_once;
mod bad_blocks;
mod blocks;
mod cache;
mod changes;
mod copies;
mod counted;
mod degraded;
mod device;
mod direct;
mod error;
mod forced;
mod full;
mod gate;
mod gather;
mod grow;
mod growing;
mod healing;
mod in_place;
mod integrity;
mod intent;
mod joining;
mod locks;
mod logs;
mod lost_roles;
mod mapped;
mod membership;
mod modify;
mod newcomer;
mod patchwork;
mod ranges;
mod read_ahead;
mod recall;
mod replace;
mod shrink;
mod signal;
mod split;
mod stripe_size;
mod striped;
mod sweep;
mod syndrome;
mod watch;
mod zeros;

pub use array::{Array, Durability};
pub use assemble::{AssembleOptions, CACHE_BYTES, Candidate, Offer};
pub use buffer::{Block, Buffer, Pool, SUMMED_BYTES};
pub use changes::{ChangeKind, LOG_TARGET, MemberChange};
pub use clock::{Clock, Moment};
pub use error::{ArrayError, ArrayErrorKind, Refusal};
pub use forced::Forced;
pub use grow::Growth;
pub use growing::Growing;
pub use integrity::{ChecksumMemory, Verify};
pub use intent::{BitmapClearing, BitmapPolicy, BitmapWrites};
pub use member::{Limits, Member, MemberError, MemberErrorKind, MemberFault, Operation};
pub use stripe_size::{STRIPE_SIZE_MIN, StripeSize};
pub use sweep::{
    ArrayPart, DoubtfulZeros, FINDINGS_LISTED_MAX, Finding, FindingVerdict, Findings, MemberCount, MemberPart, Outcome,
    Resynced, ScrubAction, ScrubCounts, ScrubReport, ScrubRequest, ScrubState, SweepStatus, SweepTransfers, SyncSpeed,
};
