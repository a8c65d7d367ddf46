//! The seam between interfaces and storage: a disk of fixed size with reads, writes, flushes and discards at any byte.
//!
//! An array implements it; so does a piece of memory. It is narrow, so that tests of every interface need no array.
//! Buffers are passed by value, as at the engine's seam to a member, so their contents cannot change during a write.
//! Nothing here does I/O. Its operations are those that NBD and virtio-blk specify.

pub use engine::Durability;
use engine::{Block, Buffer, Pool};
use std::fmt;
use std::future::Future;

/// A volume that an interface serves. It is cheap to clone, and bound to one thread.
///
/// Callers keep every range within [`Volume::bytes`]. Ranges need no alignment and may be empty. Offsets and lengths
/// are in bytes.
pub trait Volume: Clone + 'static {
    /// The size in bytes, fixed while the volume is served.
    fn bytes(&self) -> u64;

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool;

    /// The block size for which transfers are fastest, in bytes: a power of two of at least 512.
    fn preferred_block_bytes(&self) -> u32;

    /// The disk's logical block in bytes: a power of two from 512. Clients align requests to it, and partition tables
    /// count in it. `None` leaves the choice to the interface.
    fn logical_block_bytes(&self) -> Option<u32> {
        None
    }

    /// The pool that buffers for the volume come from.
    fn pool(&self) -> &Pool;

    /// Reads at byte `at` until `into` is full.
    fn read(&self, at: u64, into: Buffer) -> impl Future<Output = Result<Buffer, VolumeError>>;

    /// Writes `from` at byte `at`.
    fn write(&self, at: u64, from: Block, durability: Durability) -> impl Future<Output = Result<(), VolumeError>>;

    /// Completes when every write that had completed before the call is on stable storage.
    fn flush(&self) -> impl Future<Output = Result<(), VolumeError>>;

    /// Discards the range: its contents no longer matter. This is a hint, and may do nothing.
    fn discard(&self, at: u64, bytes: u64) -> impl Future<Output = Result<(), VolumeError>>;

    /// Zeroes the range. With `may_discard` the volume may deallocate it; without, later writes to it must find space.
    fn write_zeroes(
        &self,
        at: u64,
        bytes: u64,
        may_discard: bool,
        durability: Durability,
    ) -> impl Future<Output = Result<(), VolumeError>>;

    /// The allocation from `at` on: one or more consecutive extents, none of them empty. They cover at most `bytes`,
    /// and may cover less.
    fn allocation(&self, at: u64, bytes: u64) -> impl Future<Output = Result<Vec<Extent>, VolumeError>> {
        let _ = at;
        std::future::ready(Ok(vec![Extent { bytes, hole: false, zero: false }]))
    }
}

/// A range of one allocation state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Its length in bytes; never 0.
    pub bytes: u64,
    /// The range is not allocated: a write to it may find no space.
    pub hole: bool,
    /// The range reads as zeroes.
    pub zero: bool,
}

/// The kinds of failure. NBD has an error number for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VolumeErrorKind {
    /// The data cannot be read or written.
    Io,
    /// The storage below the volume has no space left.
    NoSpace,
    /// Writes are refused.
    ReadOnly,
    /// The range is not within the volume, or the request is invalid for it.
    OutOfRange,
    /// The volume is being stopped.
    ShuttingDown,
}

/// A failed operation on a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeError {
    /// The kind, for code.
    pub kind: VolumeErrorKind,
    /// What happened, for the log and for the client's user.
    pub text: String,
}

impl VolumeError {
    /// An error of `kind` with its description.
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
