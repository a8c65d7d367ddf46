//! The seam to what is exported: a disk of fixed size that can be read,
//! written, flushed and discarded at any byte.
//!
//! An array is one; so is a piece of memory. Narrow, so that every way in can
//! be tested without an array. Buffers travel by value, as at the engine's
//! seam to a member: what is written cannot change meanwhile.

use engine::{Block, Buffer, Pool};
use std::fmt;
use std::future::Future;

/// What is exported. Cheap to clone, and bound to one thread.
///
/// Callers keep every range within [`Volume::bytes`]. Ranges need no alignment
/// and may be empty.
pub trait Volume: Clone + 'static {
    /// Size, fixed while it is exported.
    fn bytes(&self) -> u64;

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool;

    /// Transfers that are multiples of this and aligned to it are served best;
    /// a power of two of at least 512.
    fn preferred_block_bytes(&self) -> u32;

    /// The disk's logical block, to be told to clients as the unit in which they may ask and in which partition tables count;
    /// a power of two from 512 bytes. `None` where there is none to keep to: then it is whatever the way in has.
    fn logical_block_bytes(&self) -> Option<u32> {
        None
    }

    /// Where buffers for it come from.
    fn pool(&self) -> &Pool;

    /// Fills `into` from `at`.
    fn read(&self, at: u64, into: Buffer) -> impl Future<Output = Result<Buffer, VolumeError>>;

    /// Writes `from` at `at`.
    fn write(&self, at: u64, from: Block, durability: Durability) -> impl Future<Output = Result<(), VolumeError>>;

    /// Every write that completed before this call is on stable storage after it.
    fn flush(&self) -> impl Future<Output = Result<(), VolumeError>>;

    /// The range's contents no longer matter: a hint, which may do nothing.
    fn discard(&self, at: u64, bytes: u64) -> impl Future<Output = Result<(), VolumeError>>;

    /// The range reads as zeroes afterwards. With `may_discard` it may give
    /// its space back; without, later writes to it must find theirs.
    fn write_zeroes(
        &self,
        at: u64,
        bytes: u64,
        may_discard: bool,
        durability: Durability,
    ) -> impl Future<Output = Result<(), VolumeError>>;

    /// What is allocated, from `at` on: consecutive extents, at least one and
    /// none of them empty, that cover at the most `bytes` and may cover less.
    fn allocation(&self, at: u64, bytes: u64) -> impl Future<Output = Result<Vec<Extent>, VolumeError>> {
        let _ = at;
        std::future::ready(Ok(vec![Extent { bytes, hole: false, zero: false }]))
    }
}

/// What the completion of a write promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Durability {
    /// It may be lost with power until the next flush.
    Ordinary,
    /// It is on stable storage (FUA).
    Stable,
}

/// A range of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Length; not 0.
    pub bytes: u64,
    /// Not allocated: a write may find no space.
    pub hole: bool,
    /// Reads as zeroes.
    pub zero: bool,
}

/// How a volume failed; each kind has an answer of its own in NBD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VolumeErrorKind {
    /// The data cannot be read or written.
    Io,
    /// There is no room left below.
    NoSpace,
    /// Writes are refused.
    ReadOnly,
    /// The range is not within the volume, or the request makes no sense to it.
    OutOfRange,
    /// The volume is being stopped.
    ShuttingDown,
}

/// A failed operation on a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeError {
    /// The kind to act on.
    pub kind: VolumeErrorKind,
    /// What happened, for the log and for a person at the other end.
    pub text: String,
}

impl VolumeError {
    /// An error of `kind` with its explanation.
    pub fn new(kind: VolumeErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for VolumeError {}
