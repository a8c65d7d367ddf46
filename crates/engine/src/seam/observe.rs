//! The seam for whoever watches: every transfer of every member as it is handed
//! over and as it ends, with the reason why it was made.
//!
//! What is told changes nothing: a [`Watch`] cannot refuse, delay or alter a
//! transfer. It brings its own clock. While nobody watches, a transfer costs one
//! look more.

use crate::base::buffer::{Block, Buffer};
use crate::seam::member::{Limits, Member, MemberError, Operation};
use format::units::MemberByte;
use std::cell::{Ref, RefCell};
use std::rc::Rc;

/// Why a transfer was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// For the data of a request itself.
    Data,
    /// Parity that goes with data that changed in part of a stripe.
    Parity,
    /// A full stripe's chunks, data and parity in one transfer.
    Stripe,
    /// Read because a write needs it to compute parity: read-modify-write and reconstruct-write.
    Rmw,
    /// Read to work out what a missing or failed member holds.
    Reconstruct,
    /// The write-intent bitmap.
    Intent,
    /// A superblock.
    Superblock,
    /// The checksums of its blocks.
    Checksum,
    /// A resync, a recovery or another sweep.
    Sweep,
}

impl Why {
    /// All of them; each stands at the place that is its number.
    pub const ALL: [Self; 9] = [
        Self::Data,
        Self::Parity,
        Self::Stripe,
        Self::Rmw,
        Self::Reconstruct,
        Self::Intent,
        Self::Superblock,
        Self::Checksum,
        Self::Sweep,
    ];

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Parity => "parity",
            Self::Stripe => "stripe",
            Self::Rmw => "rmw",
            Self::Reconstruct => "reconstruct",
            Self::Intent => "intent",
            Self::Superblock => "superblock",
            Self::Checksum => "checksum",
            Self::Sweep => "sweep",
        }
    }
}

/// A transfer, as it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// What was asked of the member.
    pub operation: Operation,
    /// Where it begins; 0 for a flush.
    pub at: MemberByte,
    /// How long it is; 0 for a flush.
    pub bytes: u64,
    /// What for.
    pub why: Why,
}

/// How a transfer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// As it should.
    Done,
    /// With an error.
    Failed,
    /// Whoever asked went away first.
    Abandoned,
}

/// Watches all members of an array.
pub trait Observer {
    /// What is to be told of the member called `name` from now on.
    fn watch(&self, name: &str) -> Rc<dyn Watch>;
}

/// Watches one member.
pub trait Watch {
    /// `transfer` is handed to the member. What is returned, such as the time, comes back with its end.
    fn begun(&self, transfer: &Transfer) -> u64;

    /// It is over. Each that begins ends exactly once.
    fn ended(&self, transfer: &Transfer, begun: u64, outcome: Outcome);
}

/// A member and whoever watches it: the one way to it in a running array.
pub(crate) struct Watched<M> {
    member: M,
    watch: RefCell<Option<Rc<dyn Watch>>>,
}

/// A transfer that is watched while this lives.
struct Watching {
    watch: Rc<dyn Watch>,
    transfer: Transfer,
    begun: u64,
    outcome: Outcome,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.watch.ended(&self.transfer, self.begun, self.outcome);
    }
}

fn end(watching: Option<Watching>, result: &Result<(), MemberError>) {
    if let Some(mut watching) = watching {
        watching.outcome = if result.is_ok() { Outcome::Done } else { Outcome::Failed };
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
        Some(Watching { watch, transfer, begun, outcome: Outcome::Abandoned })
    }

    /// Small reads and writes would feel even a place for who watches, so they have a way without one.
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

    /// As [`Member::read_now`]; what is watched takes the way on which whoever watches has a place.
    pub(crate) fn read_now(&self, at: MemberByte, into: &mut Buffer) -> Option<Result<(), MemberError>> {
        if self.is_watched() { None } else { self.member.read_now(at, into) }
    }

    /// Whether [`Watched::lend`] gives anything, as a rule.
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

/// Its checksums take it for a member like any other: whatever they ask of it is theirs.
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
