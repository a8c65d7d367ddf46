//! The seam to a member: a block device that never shrinks, and that reads, writes,
//! flushes and discards. It is narrow, so that one fault injector, one
//! model and one real implementation serve every purpose.
//!
//! Buffers are passed by value and returned with the result, because hardware may
//! use them until then. A member never retries, and never reports a part of a
//! transfer as success.

use crate::base::buffer::{Block, Buffer};
use format::units::MemberByte;
use std::cell::Ref;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::rc::Rc;

/// The most bytes of a member in one window of a sweep.
const WINDOW_BYTES_MAX: u64 = 512 << 10;

/// A member's capabilities and preferences. They are fixed while it is open, except that [`Member::measure`] may find
/// it longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Length of the member.
    pub bytes: u64,
    /// Position and length of every transfer are multiples of this power of two.
    pub logical_block_bytes: u32,
    /// Writes smaller than this, or not aligned to it, cost the device a read.
    pub physical_block_bytes: u32,
    /// The device's optimal I/O size, a multiple of the logical block; 0 when
    /// it is unknown.
    pub optimal_bytes: u32,
    /// The transfer length above which throughput no longer grows, so that merging neighbouring transfers gains
    /// nothing. 0 when it is unknown.
    pub longest_bytes: u32,
    /// Transfers are copies in memory, made before the call returns (Linux's `BLK_FEAT_SYNCHRONOUS`, as of zram).
    /// Caching such a member gains nothing.
    pub synchronous: bool,
    /// Whether [`Member::discard`] is supported.
    pub discards: bool,
    /// Whether a discarded range reads as zeros.
    pub discards_to_zeros: bool,
    /// Whether a power loss before the next flush may lose a completed write.
    pub volatile_cache: bool,
}

impl Limits {
    /// Bytes of the member in one window of a sweep: 512 KiB, because few devices gain by longer transfers, or
    /// [`Limits::longest_bytes`] where that is less.
    pub fn window_bytes(&self) -> u64 {
        match self.longest_bytes {
            0 => WINDOW_BYTES_MAX,
            bytes => WINDOW_BYTES_MAX.min(bytes.into()),
        }
    }
}

/// One member of an array.
///
/// `at` and lengths are multiples of [`Limits::logical_block_bytes`], and
/// buffers are aligned to it ([`crate::base::buffer::Pool`] aligns to 4096).
pub trait Member: 'static {
    /// The member's capabilities.
    fn limits(&self) -> &Limits;

    /// Updates the limits if the member has grown. A member of fixed length does nothing.
    fn measure(&self) {}

    /// Fills `into` from `at`. On error the contents of `into` are unspecified. A member that copies the bytes itself
    /// computes their checksums on the way, if the buffer requests them ([`Buffer::fill_summed`]). Other members leave
    /// that to the caller.
    fn read(&self, at: MemberByte, into: Buffer) -> impl Future<Output = (Result<(), MemberError>, Buffer)>;

    /// As [`Member::read`], without waiting. Most members cannot: they return `None` and do nothing. A synchronous
    /// member ([`Limits::synchronous`]) needs no future, which would cost a third as much as the copy.
    fn read_now(&self, _at: MemberByte, _into: &mut Buffer) -> Option<Result<(), MemberError>> {
        None
    }

    /// The contents at `at`, in place and without waiting. Most members cannot: they return `None`. The member must not
    /// be changed while the borrow lives, so a caller never holds it across an await.
    fn lend(&self, _at: MemberByte, _bytes: u64) -> Option<Result<Ref<'_, [u8]>, MemberError>> {
        None
    }

    /// As [`Member::read`], scattering one contiguous transfer over several buffers.
    fn read_vectored(
        &self,
        at: MemberByte,
        into: Vec<Buffer>,
    ) -> impl Future<Output = (Result<(), MemberError>, Vec<Buffer>)>;

    /// Writes `from` at `at`. Completion means that the device has the data, not
    /// that it is on stable storage. On error any part may have been written.
    fn write(&self, at: MemberByte, from: Block) -> impl Future<Output = Result<(), MemberError>>;

    /// As [`Member::write`], without waiting, as [`Member::read_now`] is.
    fn write_now(&self, _at: MemberByte, _from: &Block) -> Option<Result<(), MemberError>> {
        None
    }

    /// As [`Member::write`], one contiguous transfer from several blocks.
    fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> impl Future<Output = Result<(), MemberError>>;

    /// Puts every write that completed before this call on stable storage.
    fn flush(&self) -> impl Future<Output = Result<(), MemberError>>;

    /// Discards the range: afterwards its contents are unspecified but stable.
    /// `Unsupported` when the member cannot.
    fn discard(&self, at: MemberByte, bytes: u64) -> impl Future<Output = Result<(), MemberError>>;

    /// Zeroes the range. `Unsupported` when the member has no cheaper way than
    /// writing zeros.
    fn write_zeroes(&self, at: MemberByte, bytes: u64) -> impl Future<Output = Result<(), MemberError>>;
}

/// A member with several owners, such as an array and a measurement.
impl<M: Member> Member for Rc<M> {
    fn limits(&self) -> &Limits {
        (**self).limits()
    }

    fn measure(&self) {
        (**self).measure();
    }

    async fn read(&self, at: MemberByte, into: Buffer) -> (Result<(), MemberError>, Buffer) {
        (**self).read(at, into).await
    }

    fn read_now(&self, at: MemberByte, into: &mut Buffer) -> Option<Result<(), MemberError>> {
        (**self).read_now(at, into)
    }

    fn lend(&self, at: MemberByte, bytes: u64) -> Option<Result<Ref<'_, [u8]>, MemberError>> {
        (**self).lend(at, bytes)
    }

    async fn read_vectored(&self, at: MemberByte, into: Vec<Buffer>) -> (Result<(), MemberError>, Vec<Buffer>) {
        (**self).read_vectored(at, into).await
    }

    async fn write(&self, at: MemberByte, from: Block) -> Result<(), MemberError> {
        (**self).write(at, from).await
    }

    fn write_now(&self, at: MemberByte, from: &Block) -> Option<Result<(), MemberError>> {
        (**self).write_now(at, from)
    }

    async fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> Result<(), MemberError> {
        (**self).write_vectored(at, from).await
    }

    async fn flush(&self) -> Result<(), MemberError> {
        (**self).flush().await
    }

    async fn discard(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        (**self).discard(at, bytes).await
    }

    async fn write_zeroes(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        (**self).write_zeroes(at, bytes).await
    }
}

/// An operation of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// [`Member::read`]
    Read,
    /// [`Member::write`]
    Write,
    /// [`Member::flush`]
    Flush,
    /// [`Member::discard`]
    Discard,
    /// [`Member::write_zeroes`]
    WriteZeroes,
}

/// How an operation failed. There is one kind for each reaction of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemberErrorKind {
    /// The device reports a medium error (EIO and similar).
    Io,
    /// Fewer bytes were transferred than requested, without an error.
    Short,
    /// The storage behind a sparse file or thin device is full.
    NoSpace,
    /// The device is gone (ENODEV, ENXIO, a closed connection).
    Gone,
    /// No answer within the timeout.
    TimedOut,
    /// The checksum shows that the data read is not the data last written.
    Corrupt,
    /// The member does not support the operation; not a fault.
    Unsupported,
}

/// A failed operation on a member, as a pointer to its [`MemberFault`]. Every transfer's result has
/// room for it and is moved many times, so it is small.
#[derive(Debug, Clone)]
pub struct MemberError(Rc<MemberFault>);

/// The details of a failed operation. The caller knows the member.
#[derive(Debug, Clone)]
pub struct MemberFault {
    /// The kind, for callers to act on.
    pub kind: MemberErrorKind,
    /// The operation.
    pub operation: Operation,
    /// The first byte.
    pub at: MemberByte,
    /// The length.
    pub bytes: u64,
    /// The underlying error, in the system's words.
    pub source: Rc<dyn std::error::Error>,
}

impl From<MemberFault> for MemberError {
    fn from(fault: MemberFault) -> Self {
        Self(Rc::new(fault))
    }
}

impl Deref for MemberError {
    type Target = MemberFault;
    fn deref(&self) -> &MemberFault {
        &self.0
    }
}

impl MemberError {
    /// Whether the error concerns a place on the medium and not the whole member.
    pub fn is_medium_error(&self) -> bool {
        matches!(self.kind, MemberErrorKind::Io | MemberErrorKind::Corrupt)
    }
}

impl fmt::Display for MemberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = match self.operation {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Discard => "discard",
            Operation::WriteZeroes => "write-zeroes",
        };
        write!(f, "{operation} of {} bytes at byte {}: {}", self.bytes, self.at.0, self.source)
    }
}

impl std::error::Error for MemberError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

/// A member offered to an array, with its name in messages.
pub struct Candidate<M> {
    /// The name: a path.
    pub name: String,
    /// The member itself.
    pub member: M,
}
