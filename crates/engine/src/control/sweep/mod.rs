//! Sweeps: a window that moves over all stripes of an array, for one of several purposes.
//!
//! The [`purpose::Purpose`] says which positions a sweep covers and what it does to a window of them. Everything else
//! is common: the number of bytes in flight on each member, long transfers, a speed that yields to requests,
//! checkpoints in md's own superblock fields, and the progress that `status` shows. So md or this engine can
//! continue an interrupted sweep.
//!
//! Positions are md's: component bytes for a recovery, and for a resync of parity or of RAID-1; array bytes
//! for a resync of RAID-10.
//!
//! Invariants:
//!
//! * A window blocks writes to its stripes from its first read to its last write. So neither requests nor the
//!   sweep see the other's half-done work.
//! * Windows end in order. A position counts as done only when all positions before it are done.
//! * A window that was begun is driven to its end, even when another window fails.
//!
//! Facts: md(4), `drivers/md/md.c` (`md_do_sync`, `md_check_recovery`).

mod check;
mod copies;
mod doubt;
mod findings;
mod learn;
mod personality;
pub(super) mod purpose;
mod recovery;
mod repair;
mod resync;
mod rows;
mod run;
mod schedule;
mod scrub;
pub(super) mod state;
mod stripes;
mod throttle;
mod transfers;
mod turns;
mod yielding;

pub use doubt::DoubtfulZeros;
pub use findings::{
    ArrayPart, FINDINGS_LISTED_MAX, Finding, FindingVerdict, Findings, MemberCount, MemberPart, Outcome, ScrubAction,
    ScrubCounts, ScrubReport, ScrubState,
};
pub use resync::Resynced;
pub use scrub::ScrubRequest;
pub use state::SweepStatus;
pub use throttle::SyncSpeed;
pub use transfers::SweepTransfers;
