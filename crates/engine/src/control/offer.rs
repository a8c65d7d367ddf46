//! What an array is assembled from: members, a bitmap file, and settings. Also which members do not take part.
//!
//! Values alone; [`crate::control::assemble`] reads the members.

use crate::data::stripe_size::StripeSize;
use crate::device::checksums::Verify;
use crate::device::write_buffer::WriteBuffer;
use crate::metadata::bitmap::BitmapPolicy;
use crate::seam::error::Refusal;
use crate::seam::member::Candidate;
use serde::Serialize;

/// The members, and what lies beside them, that an array is assembled from.
pub struct Offer<M> {
    /// Its members.
    pub members: Vec<Candidate<M>>,
    /// The file that holds its write-intent bitmap, for an array that keeps it in one.
    pub bitmap: Option<Candidate<M>>,
    /// mdadm's backup file of a reshape, for an array in the middle of one that writes over data in place.
    pub backup: Option<Candidate<M>>,
    /// Gives the write buffer of the array with this uuid: memory that outlives the process, and what an earlier server
    /// had left there.
    pub write_buffer: Option<FindWriteBuffer>,
}

/// Finds the write buffer of an array by its uuid, if it has one or is to have one.
pub type FindWriteBuffer = Box<dyn FnOnce([u8; 16]) -> Result<Option<WriteBuffer>, Refusal>>;

impl<M> Offer<M> {
    /// These members alone.
    pub fn of(members: Vec<Candidate<M>>) -> Self {
        Self { members, bitmap: None, backup: None, write_buffer: None }
    }
}

/// Settings of an assembly.
#[derive(Debug, Clone)]
pub struct AssembleOptions {
    /// Accept possible loss, and warn about it. Covers seven cases: the fewest and least stale members that
    /// an array with too few current ones can start with, as in mdadm; a dirty and degraded parity array,
    /// where the missing member's data may be wrong where a write was under way; a dirty parity array with bad
    /// blocks, likewise; an array whose write journal is lost, for reading; a reshape whose position may be behind the
    /// data, or whose backup is of another time or lost, for reading; writes that an earlier server answered from memory and
    /// that cannot be written; and, with `partial`, what lies behind a missing member of a linear array.
    pub force: bool,
    /// Never write to any member.
    pub read_only: bool,
    /// Start with fewer members than the array needs: what those hold is read, and everything else is an error. In
    /// doubt nothing is reconstructed. Only with `read_only`.
    pub partial: bool,
    /// With `read_only`: replay what the logs hold into the members, whose writes stay in memory. Without it, an array
    /// that needs such a log is refused.
    pub replay: bool,
    /// Read what the members' bad-block logs say must not be read, after a fault that is gone, such as a bad
    /// cable. The data may be old. Only with `read_only`, as a write would treat the places as sound.
    pub ignore_bad_blocks: bool,
    /// The layout of a RAID-0 of unequal members whose superblock gives none: 1 original, 2 alternate.
    pub raid0_layout: Option<u32>,
    /// What is to become of the write journal.
    pub journal: JournalPlan,
    /// The policy of the write-intent bitmap.
    pub bitmap: BitmapPolicy,
    /// When checksums are verified, where the members have them.
    pub verify: Verify,
    /// The parity kernel; the best for this processor when `None`.
    pub kernel: Option<&'static parity::Kernel>,
    /// The unit in which partly written stripes are moved.
    pub stripe_size: StripeSize,
    /// The most memory, in bytes, for cached stripes that are likely to be written again. When `None`:
    /// [`CACHE_BYTES`], or none for members that are memory themselves.
    pub cache_bytes: Option<usize>,
    /// The most bytes of writes that may wait for other writes of their stripes.
    pub gather_bytes: u64,
    /// The most memory, in bytes, for read-ahead of sequential streams on a degraded array; 0 turns it off.
    pub read_ahead_bytes: usize,
}

/// What is to become of an array's write journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum JournalPlan {
    /// It is used as it is. An array whose journal is not given can only be read, with `force`.
    #[default]
    Kept,
    /// The array has none, and is to get one: its blocks have at least 4096 bytes, as a journal's.
    ToCome,
    /// If it is not given, it is lost, and the array is to go on without. What it alone held is lost. Parity is resynced; `force` accepts that
    /// what missing members held may be wrong where a write was under way.
    GivenUp,
}

/// Default of [`AssembleOptions::read_ahead_bytes`].
const READ_AHEAD_BYTES: usize = 32 << 20;

/// Default of [`AssembleOptions::gather_bytes`].
const GATHER_BYTES: u64 = 64 << 20;

/// Default of [`AssembleOptions::cache_bytes`], where a cache pays.
pub const CACHE_BYTES: usize = 32 << 20;

impl Default for AssembleOptions {
    fn default() -> Self {
        Self {
            force: false,
            read_only: false,
            partial: false,
            replay: false,
            ignore_bad_blocks: false,
            raid0_layout: None,
            journal: JournalPlan::Kept,
            bitmap: BitmapPolicy::default(),
            verify: Verify::default(),
            kernel: None,
            stripe_size: StripeSize::Auto,
            cache_bytes: None,
            gather_bytes: GATHER_BYTES,
            read_ahead_bytes: READ_AHEAD_BYTES,
        }
    }
}

/// A member that was offered and does not take part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: String,
}
