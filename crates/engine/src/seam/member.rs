//! The seam to a member: a device-like thing that never shrinks and that reads, writes,
//! flushes and discards. Narrow on purpose, so that one fault double, one
//! model and one real implementation serve every purpose.
//!
//! Buffers travel by value and come back with the result, because hardware may
//! use them until then. A member never retries and never splits a request's
//! meaning: a transfer is whole or it is an error.

use crate::base::buffer::{Block, Buffer};
use format::units::MemberByte;
use std::cell::Ref;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::rc::Rc;

/// Bytes of a member in one window of a sweep, at the most.
const WINDOW_BYTES_MAX: u64 = 512 << 10;

/// What a member can do and prefers; fixed while it is open, but for a length that grows when it is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Length of the member.
    pub bytes: u64,
    /// Every transfer's position and length is a multiple of this power of two.
    pub logical_block_bytes: u32,
    /// Writes smaller than this, or not aligned to it, cost the device a read.
    pub physical_block_bytes: u32,
    /// The transfer size the device likes best (its optimal I/O size), a
    /// multiple of the logical block; 0 when it has no opinion.
    pub optimal_bytes: u32,
    /// The longest transfer that gains by its length; beyond it neighbouring transfers need not become one. 0 when the
    /// member has no opinion.
    pub longest_bytes: u32,
    /// Transfers are copies in memory, made before the call returns (Linux's `BLK_FEAT_SYNCHRONOUS`, as of zram): to keep
    /// what was read saves nothing.
    pub synchronous: bool,
    /// Whether [`Member::discard`] does anything.
    pub discards: bool,
    /// Whether a range that was discarded reads as zeros from then on.
    pub discards_to_zeros: bool,
    /// Whether a completed write may still be lost with power until a flush.
    pub volatile_cache: bool,
}

impl Limits {
    /// Bytes of the member in one window of a sweep: 512 KiB, as few devices gain by longer transfers, or less where the
    /// member does not gain by those.
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
    /// What this member can do.
    fn limits(&self) -> &Limits;

    /// Looks whether the member was made longer. One whose length is fixed does nothing.
    fn measure(&self) {}

    /// Fills `into` from `at`. On error the contents of `into` are unspecified. A member that copies the bytes itself takes
    /// their checksums on the way where the buffer wants them ([`Buffer::fill_summed`]); others leave that to who judges.
    fn read(&self, at: MemberByte, into: Buffer) -> impl Future<Output = (Result<(), MemberError>, Buffer)>;

    /// As [`Member::read`], without waiting: `None`, with nothing done, where that cannot be, as it mostly cannot. What a
    /// synchronous member copies ([`Limits::synchronous`]) needs no future, which would cost a third as much as the copy.
    fn read_now(&self, _at: MemberByte, _into: &mut Buffer) -> Option<Result<(), MemberError>> {
        None
    }

    /// What it holds at `at`, in place and without waiting: `None` where that cannot be, as it mostly cannot. Nothing is
    /// done to the member while somebody has it, so nobody keeps it over anything that waits.
    fn lend(&self, _at: MemberByte, _bytes: u64) -> Option<Result<Ref<'_, [u8]>, MemberError>> {
        None
    }

    /// As [`Member::read`], scattering one contiguous transfer over several buffers.
    fn read_vectored(
        &self,
        at: MemberByte,
        into: Vec<Buffer>,
    ) -> impl Future<Output = (Result<(), MemberError>, Vec<Buffer>)>;

    /// Writes `from` at `at`. Completion means that the device has it, not
    /// that it is on stable storage. On error any part may have been written.
    fn write(&self, at: MemberByte, from: Block) -> impl Future<Output = Result<(), MemberError>>;

    /// As [`Member::write`], without waiting, as [`Member::read_now`] is.
    fn write_now(&self, _at: MemberByte, _from: &Block) -> Option<Result<(), MemberError>> {
        None
    }

    /// As [`Member::write`], gathering one contiguous transfer from several blocks.
    fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> impl Future<Output = Result<(), MemberError>>;

    /// Every write that completed before this call is on stable storage after it.
    fn flush(&self) -> impl Future<Output = Result<(), MemberError>>;

    /// The range's contents no longer matter; afterwards they are unspecified
    /// but stable. `Unsupported` when the member cannot.
    fn discard(&self, at: MemberByte, bytes: u64) -> impl Future<Output = Result<(), MemberError>>;

    /// The range reads as zeros afterwards. `Unsupported` when the member has
    /// no way cheaper than writing them.
    fn write_zeroes(&self, at: MemberByte, bytes: u64) -> impl Future<Output = Result<(), MemberError>>;
}

/// A member with several owners, such as an array and who measures beside it.
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

/// What was asked of a member.
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

/// How a member failed; few kinds, because each is acted on differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemberErrorKind {
    /// The device says that the medium failed (EIO and its relatives).
    Io,
    /// Fewer bytes moved than asked, without an error.
    Short,
    /// No room behind a sparse file or thin device.
    NoSpace,
    /// The device is gone (ENODEV, ENXIO, a closed connection).
    Gone,
    /// No answer within the bound.
    TimedOut,
    /// What was read is not what was last written there, as its checksum says.
    Corrupt,
    /// The member cannot do this operation at all; not a fault.
    Unsupported,
}

/// A failed operation on a member, of which its [`MemberFault`] says all. A pointer, because every
/// transfer has room for one in what it gives, which is moved many times on its way.
#[derive(Debug, Clone)]
pub struct MemberError(Rc<MemberFault>);

/// What failed. Which member is known to whoever asked.
#[derive(Debug, Clone)]
pub struct MemberFault {
    /// The kind to act on.
    pub kind: MemberErrorKind,
    /// What was asked.
    pub operation: Operation,
    /// Where it began.
    pub at: MemberByte,
    /// How long it was.
    pub bytes: u64,
    /// What lies below, for a person: the system's words.
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
    /// Whether it is about a place on the medium, and not about the member.
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

/// A member that is offered, under the name that messages call it by.
pub struct Candidate<M> {
    /// Its name: a path.
    pub name: String,
    /// The member itself.
    pub member: M,
}
