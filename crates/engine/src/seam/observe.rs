//! The seam for observers: they see the begin and end of every transfer of every
//! member, with its purpose.
//!
//! A [`Watch`] cannot refuse, delay or alter a transfer. It brings its own clock.
//! Without an observer a transfer costs one more test.

use crate::base::buffer::{Block, Buffer};
use crate::seam::member::{Limits, Member, MemberError, Operation};
use format::units::MemberByte;
use std::cell::{Ref, RefCell};
use std::rc::Rc;

/// The purpose of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// The data of a request.
    Data,
    /// Parity of a partial stripe write.
    Parity,
    /// A full stripe's chunks, data and parity in one transfer.
    Stripe,
    /// A read that a write needs to compute parity: read-modify-write and reconstruct-write.
    Rmw,
    /// A read to reconstruct the data of a missing or failed member.
    Reconstruct,
    /// The write-intent bitmap.
    Intent,
    /// A superblock.
    Superblock,
    /// The partial parity log.
    Log,
    /// The checksums of a member's blocks.
    Checksum,
    /// A resync, a recovery or another sweep.
    Sweep,
}

impl Why {
    /// All purposes, each at the index that is its discriminant.
    pub const ALL: [Self; 10] = [
        Self::Data,
        Self::Parity,
        Self::Stripe,
        Self::Rmw,
        Self::Reconstruct,
        Self::Intent,
        Self::Superblock,
        Self::Log,
        Self::Checksum,
        Self::Sweep,
    ];

    /// The name, in one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Parity => "parity",
            Self::Stripe => "stripe",
            Self::Rmw => "rmw",
            Self::Reconstruct => "reconstruct",
            Self::Intent => "intent",
            Self::Superblock => "superblock",
            Self::Log => "log",
            Self::Checksum => "checksum",
            Self::Sweep => "sweep",
        }
    }
}

/// A transfer, as observers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// The operation.
    pub operation: Operation,
    /// The first byte; 0 for a flush.
    pub at: MemberByte,
    /// The length; 0 for a flush.
    pub bytes: u64,
    /// The purpose.
    pub why: Why,
}

/// How a transfer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransferOutcome {
    /// Without an error.
    Done,
    /// With an error.
    Failed,
    /// The caller dropped the transfer before it ended.
    Abandoned,
}

/// Observes all members of an array.
pub trait Observer {
    /// The watch that receives the transfers of the member `name` from now on.
    fn watch(&self, name: &str) -> Rc<dyn Watch>;
}

/// Observes one member.
pub trait Watch {
    /// `transfer` is handed to the member. The returned value, such as the time, is passed to [`Watch::ended`].
    fn begun(&self, transfer: &Transfer) -> u64;

    /// `transfer` has ended. Each begun transfer ends exactly once.
    fn ended(&self, transfer: &Transfer, begun: u64, outcome: TransferOutcome);
}

/// A member with its watch. A running array reaches its members only through this.
pub(crate) struct Watched<M> {
    member: M,
    watch: RefCell<Option<Rc<dyn Watch>>>,
}

/// A watched transfer; dropping this reports its end.
struct Watching {
    watch: Rc<dyn Watch>,
    transfer: Transfer,
    begun: u64,
    outcome: TransferOutcome,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.watch.ended(&self.transfer, self.begun, self.outcome);
    }
}

fn end(watching: Option<Watching>, result: &Result<(), MemberError>) {
    if let Some(mut watching) = watching {
        watching.outcome = if result.is_ok() { TransferOutcome::Done } else { TransferOutcome::Failed };
    }
}

impl<M: Member> Watched<M> {
    pub(crate) fn new(member: M) -> Self {
        Self { member, watch: RefCell::default() }
    }

    pub(crate) fn watch(&self, watch: Option<Rc<dyn Watch>>) {
        self.watch.replace(watch);
    }

    pub(crate) fn limits(&self) -> &Limits {
        self.member.limits()
    }

    pub(crate) fn measure(&self) {
        self.member.measure();
    }

    fn begin(&self, operation: Operation, at: MemberByte, bytes: u64, why: Why) -> Option<Watching> {
        let watch = self.watch.borrow().clone()?;
        let transfer = Transfer { operation, at, bytes, why };
        let begun = watch.begun(&transfer);
        Some(Watching { watch, transfer, begun, outcome: TransferOutcome::Abandoned })
    }

    /// Unwatched transfers take a path without a [`Watching`], whose mere presence would slow small reads and writes.
    fn is_watched(&self) -> bool {
        self.watch.borrow().is_some()
    }

    pub(crate) async fn read(&self, at: MemberByte, into: Buffer, why: Why) -> (Result<(), MemberError>, Buffer) {
        if !self.is_watched() {
            return self.member.read(at, into).await;
        }
        let watching = self.begin(Operation::Read, at, into.len() as u64, why);
        let (result, into) = self.member.read(at, into).await;
        end(watching, &result);
        (result, into)
    }

    /// As [`Member::read_now`]. A watched member returns `None`, so that [`Watched::read`] reports the transfer.
    pub(crate) fn read_now(&self, at: MemberByte, into: &mut Buffer) -> Option<Result<(), MemberError>> {
        if self.is_watched() { None } else { self.member.read_now(at, into) }
    }

    /// Whether [`Watched::lend`] usually succeeds.
    pub(crate) fn is_in_place(&self) -> bool {
        self.member.limits().synchronous && !self.is_watched()
    }

    /// As [`Watched::read_now`].
    pub(crate) fn lend(&self, at: MemberByte, bytes: u64) -> Option<Result<Ref<'_, [u8]>, MemberError>> {
        if self.is_watched() { None } else { self.member.lend(at, bytes) }
    }

    pub(crate) async fn read_vectored(
        &self,
        at: MemberByte,
        into: Vec<Buffer>,
        why: Why,
    ) -> (Result<(), MemberError>, Vec<Buffer>) {
        let bytes = into.iter().map(|buffer| buffer.len() as u64).sum();
        let watching = self.begin(Operation::Read, at, bytes, why);
        let (result, into) = self.member.read_vectored(at, into).await;
        end(watching, &result);
        (result, into)
    }

    pub(crate) async fn write(&self, at: MemberByte, from: Block, why: Why) -> Result<(), MemberError> {
        if !self.is_watched() {
            return self.member.write(at, from).await;
        }
        let watching = self.begin(Operation::Write, at, from.len() as u64, why);
        let result = self.member.write(at, from).await;
        end(watching, &result);
        result
    }

    /// As [`Watched::read_now`].
    pub(crate) fn write_now(&self, at: MemberByte, from: &Block) -> Option<Result<(), MemberError>> {
        if self.is_watched() { None } else { self.member.write_now(at, from) }
    }

    pub(crate) async fn write_vectored(&self, at: MemberByte, from: Vec<Block>, why: Why) -> Result<(), MemberError> {
        let bytes = from.iter().map(|block| block.len() as u64).sum();
        let watching = self.begin(Operation::Write, at, bytes, why);
        let result = self.member.write_vectored(at, from).await;
        end(watching, &result);
        result
    }

    pub(crate) async fn flush(&self, why: Why) -> Result<(), MemberError> {
        let watching = self.begin(Operation::Flush, MemberByte(0), 0, why);
        let result = self.member.flush().await;
        end(watching, &result);
        result
    }

    pub(crate) async fn discard(&self, at: MemberByte, bytes: u64, why: Why) -> Result<(), MemberError> {
        let watching = self.begin(Operation::Discard, at, bytes, why);
        let result = self.member.discard(at, bytes).await;
        end(watching, &result);
        result
    }

    pub(crate) async fn write_zeroes(&self, at: MemberByte, bytes: u64, why: Why) -> Result<(), MemberError> {
        let watching = self.begin(Operation::WriteZeroes, at, bytes, why);
        let result = self.member.write_zeroes(at, bytes).await;
        end(watching, &result);
        result
    }
}

/// The checksums use the watched member through this trait, so all these transfers are theirs.
impl<M: Member> Member for Watched<M> {
    fn limits(&self) -> &Limits {
        self.member.limits()
    }

    async fn read(&self, at: MemberByte, into: Buffer) -> (Result<(), MemberError>, Buffer) {
        Self::read(self, at, into, Why::Checksum).await
    }

    async fn read_vectored(&self, at: MemberByte, into: Vec<Buffer>) -> (Result<(), MemberError>, Vec<Buffer>) {
        Self::read_vectored(self, at, into, Why::Checksum).await
    }

    async fn write(&self, at: MemberByte, from: Block) -> Result<(), MemberError> {
        Self::write(self, at, from, Why::Checksum).await
    }

    async fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> Result<(), MemberError> {
        Self::write_vectored(self, at, from, Why::Checksum).await
    }

    async fn flush(&self) -> Result<(), MemberError> {
        Self::flush(self, Why::Checksum).await
    }

    async fn discard(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        Self::discard(self, at, bytes, Why::Checksum).await
    }

    async fn write_zeroes(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        Self::write_zeroes(self, at, bytes, Why::Checksum).await
    }
}
