//! A member in an array: the device behind the seam, with its superblock, its
//! state and its counters.
//!
//! Positions here are component positions; only this module adds a member's
//! `data_offset`. It decides nothing about the array: an error is counted and
//! returned, and the caller decides whether the member is ejected.
//!
//! Facts: md(4) and mdadm, for the names of the states.

pub(crate) mod bad_blocks;
pub(crate) mod checksums;
pub(crate) mod context;
pub(crate) mod counted;
pub(crate) mod owed;
pub(crate) mod read_errors;
pub(crate) mod successor;
pub(crate) mod timeout;

use crate::base::buffer::{Block, Buffer};
use crate::base::range_set::Ranges;
use crate::device::bad_blocks::BadBlocks;
use crate::device::checksums::{Checksums, WrittenChecksums};
use crate::device::context::DeviceContext;
use crate::device::counted::Counted;
use crate::device::owed::Owed;
use crate::device::read_errors::ReadErrors;
use crate::device::timeout::PendingOperations;
use crate::seam::bytes::write_bytes;
use crate::seam::member::{Member, MemberError, MemberErrorKind, Operation};
use crate::seam::observe::{Watched, Why};
use format::geometry::Level;
use format::superblock::{BadBlockPlace, DeviceFlags, PLACE_BYTES, Superblock};
use format::units::{ComponentByte, MemberByte, Slot};
use smallvec::{SmallVec, smallvec};
use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;

/// The state of a device, by the names of md(4) and mdadm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceState {
    /// Active, and all its data is current.
    InSync,
    /// Active: written everywhere, but current only up to its recovery offset.
    Recovering {
        /// Component bytes below this are current.
        current: u64,
    },
    /// Without a slot, ready to take one.
    Spare,
    /// Ejected, by an error or by request.
    Faulty,
}

/// Transfers since the array was assembled.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reads: Cell<u64>,
    pub(crate) read_bytes: Cell<u64>,
    pub(crate) writes: Cell<u64>,
    pub(crate) written_bytes: Cell<u64>,
    pub(crate) errors: Cell<u64>,
}

pub(crate) fn count(counter: &Cell<u64>, more: u64) {
    counter.set(counter.get() + more);
}

pub(crate) struct Device<M> {
    pub(crate) name: String,
    pub(crate) member: Watched<M>,
    /// The superblock as last read or written. The array's record holds the fields that all members
    /// share; they are filled in when the superblock is written.
    pub(crate) superblock: RefCell<Superblock>,
    /// The superblock's whole area as it is on the member, so that writes of
    /// whole logical blocks preserve the bytes behind the superblock.
    pub(crate) place: RefCell<Box<[u8]>>,
    pub(crate) state: Cell<DeviceState>,
    /// The slot that a returning spare had before it was missing.
    pub(crate) former_slot: Cell<Option<FormerSlot>>,
    pub(crate) data_at: u64,
    /// Component ranges that are never read.
    pub(crate) bad: BadBlocks,
    /// Data that the member had no space for.
    pub(crate) owed: Owed,
    pub(crate) is_redundant: bool,
    /// Component ranges whose reads failed, for read repair.
    pub(crate) unread: RefCell<Ranges>,
    pub(crate) read_errors: ReadErrors,
    /// Component ranges whose read errors are counted.
    failed_reads: Counted,
    /// Unreadable or wrong bytes that read repair has rewritten since the array was assembled.
    pub(crate) rewritten_bytes: Cell<u64>,
    /// The first byte of a check's read that timed out here.
    pub(crate) unanswered: Cell<Option<ComponentByte>>,
    /// An operation has timed out, and the member has not answered since.
    pub(crate) is_silent: Cell<bool>,
    /// The last read failed, but not by a medium error: the member may come back with all its data.
    pub(crate) is_away: Cell<bool>,
    pub(crate) pending: PendingOperations,
    /// The device that is to replace this one; it receives every write too.
    pub(crate) successor: RefCell<Option<Rc<Device<M>>>>,
    /// The error that makes a successor incomplete.
    pub(crate) failure: RefCell<Option<MemberError>>,
    /// The successor is taking over: superblocks no longer list this member, but it still receives writes.
    pub(crate) is_leaving: Cell<bool>,
    /// The successor has failed, and its superblock may already say that it took over. This member's superblock is
    /// written last, so that it is never the only one to contradict the successor's.
    pub(crate) is_contradicted: Cell<bool>,
    /// The superblock does not say yet that the member has a slot, or that it is in sync.
    pub(crate) is_superblock_stale: Cell<bool>,
    /// The member was stale and was assembled by force. Until the resync it is read only where no other copy exists.
    pub(crate) is_forced: Cell<bool>,
    /// The last recovery began with this member as a target.
    pub(crate) in_recovery: Cell<bool>,
    pub(crate) context: Rc<DeviceContext>,
    /// Whether a discard leaves zeros: true if the member says so, until it refuses a discard.
    pub(crate) discards_to_zeros: Cell<bool>,
    /// The checksums of the member's blocks, if it has any.
    pub(crate) checksums: OnceCell<Checksums>,
    pub(crate) in_flight: Cell<u32>,
    /// The component's byte behind the last begun transfer, where a disk's head is.
    pub(crate) head: Cell<u64>,
    pub(crate) counters: Counters,
}

/// One operation in flight; dropping this ends the count.
struct InFlight<'a>(&'a Cell<u32>);

impl<'a> InFlight<'a> {
    fn enter(counter: &'a Cell<u32>) -> Self {
        counter.set(counter.get() + 1);
        Self(counter)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl<M: Member> Device<M> {
    pub(crate) fn new(
        name: String,
        member: M,
        superblock: Superblock,
        place: Box<[u8]>,
        state: DeviceState,
        bad: Vec<Range<u64>>,
        context: Rc<DeviceContext>,
    ) -> Self {
        debug_assert_eq!(place.len() as u64 % 512, 0);
        let limits = member.limits();
        let discards_to_zeros = Cell::new(limits.discards && limits.discards_to_zeros);
        Self {
            name,
            member: Watched::new(member),
            data_at: superblock.data_at().0,
            owed: Owed::default(),
            is_redundant: Self::is_of_redundant(superblock.level),
            bad: BadBlocks::new(superblock.bad_blocks, superblock.data_at().0, bad),
            unread: RefCell::default(),
            read_errors: ReadErrors::default(),
            failed_reads: Counted::default(),
            rewritten_bytes: Cell::new(0),
            unanswered: Cell::new(None),
            is_silent: Cell::new(false),
            is_away: Cell::new(false),
            pending: PendingOperations::default(),
            successor: RefCell::default(),
            failure: RefCell::default(),
            is_leaving: Cell::new(false),
            is_contradicted: Cell::new(false),
            is_superblock_stale: Cell::new(false),
            is_forced: Cell::new(false),
            in_recovery: Cell::new(false),
            context,
            superblock: RefCell::new(superblock),
            place: RefCell::new(place),
            state: Cell::new(state),
            former_slot: Cell::new(None),
            discards_to_zeros,
            checksums: OnceCell::new(),
            in_flight: Cell::new(0),
            head: Cell::new(0),
            counters: Counters::default(),
        }
    }

    /// Whether writes go to it.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state.get(), DeviceState::InSync | DeviceState::Recovering { .. })
    }

    /// Whether the contents of `range` are current and can be read.
    pub(crate) fn is_readable(&self, range: Range<u64>) -> bool {
        let current = match self.state.get() {
            DeviceState::InSync => true,
            DeviceState::Recovering { current } => {
                range.end <= current + mutant!("read-beyond-recovery" => 1 << 20, else 0)
            }
            DeviceState::Spare | DeviceState::Faulty => false,
        };
        current && !self.is_silent.get() && !self.bad.touches(&range)
    }

    /// Whether any byte below `end` is still to be recovered.
    pub(crate) fn is_recovering(&self, end: u64) -> bool {
        matches!(self.state.get(), DeviceState::Recovering { current } if current < end)
    }

    /// Whether [`Device::is_readable`] is true of every range.
    pub(crate) fn is_whole(&self) -> bool {
        self.state.get() == DeviceState::InSync && self.bad.is_empty() && !self.is_silent.get()
    }

    /// Counts an error of the member, and logs the first. Checksum mismatches are counted
    /// separately, each block once ([`Device::corrupt_blocks`]).
    pub(crate) fn note(&self, result: &Result<(), MemberError>) {
        let Err(error) = result else { return };
        // Lack of space is no fault of the member; the caller gets the error.
        if matches!(error.kind, MemberErrorKind::Corrupt | MemberErrorKind::NoSpace) {
            return;
        }
        count(&self.counters.errors, 1);
        if self.counters.errors.get() == 1 {
            tracing::warn!("{}: {error}; its status counts further errors", self.name);
        }
    }

    /// As [`Device::note`], of a read. A sweep or read repair that reads a range again whose error was counted does not
    /// count it again.
    fn note_read(&self, at: ComponentByte, bytes: u64, result: &Result<(), MemberError>, why: Why) {
        let Err(error) = result else { return };
        let is_news = !error.is_medium_error() || self.failed_reads.add(at.0..at.0 + bytes);
        if is_news || why != Why::Sweep {
            self.note(result);
        }
    }

    /// Queues a failed read for read repair.
    pub(crate) fn note_unread(&self, at: ComponentByte, bytes: u64, result: &Result<(), MemberError>) {
        if let Err(error) = result {
            self.is_away.set(!error.is_medium_error());
            self.unread.borrow_mut().add(at.0..at.0 + bytes);
            self.context.read_error_pending.raise();
        }
    }

    /// After a successful write the range's bad blocks are good again, and it owes nothing there.
    pub(crate) fn note_written(&self, at: ComponentByte, bytes: u64, result: &Result<(), MemberError>) {
        if result.is_ok() {
            self.failed_reads.written(&(at.0..at.0 + bytes));
            self.note_paid(&(at.0..at.0 + bytes));
        }
        if result.is_ok() && !self.bad.is_empty() && self.bad.written(&(at.0..at.0 + bytes)) {
            self.context.read_error_pending.raise();
        }
    }

    /// Whether reads prefer other members: md's write-mostly flag, which md honours at level 1 only.
    pub(crate) fn is_write_mostly(&self) -> bool {
        let superblock = self.superblock.borrow();
        superblock.level == Level::Raid1 && superblock.device_flags.contains(DeviceFlags::WRITE_MOSTLY)
    }

    pub(crate) fn absolute(&self, at: ComponentByte) -> MemberByte {
        MemberByte(self.data_at + at.0)
    }

    fn begin(&self, at: ComponentByte, bytes: u64) -> InFlight<'_> {
        self.head.set(at.0 + bytes);
        InFlight::enter(&self.in_flight)
    }

    pub(crate) async fn read(
        &self,
        at: ComponentByte,
        mut into: Buffer,
        why: Why,
    ) -> (Result<(), MemberError>, Buffer) {
        match self.read_now(at, &mut into, why) {
            Some(result) => (result, into),
            None => self.read_later(at, into, why).await,
        }
    }

    /// As [`Device::read`], after [`Device::read_now`] returned `None`.
    pub(crate) async fn read_later(
        &self,
        at: ComponentByte,
        mut into: Buffer,
        why: Why,
    ) -> (Result<(), MemberError>, Buffer) {
        let (checksums, bytes) = (self.verifier(why), into.len() as u64);
        // [`Device::read_against`], inlined for speed.
        let rewrites = Checksums::expect(checksums, &mut into);
        let (mut result, mut into) = self.read_bare(at, into, why).await;
        if let Some(checksums) = Checksums::against(checksums, at, &result, &into) {
            (result, into) = Box::pin(self.verify_again(checksums, at, into, rewrites, why)).await;
        }
        self.note_unread(at, bytes, &result);
        (result, into)
    }

    /// As [`Device::read`], without waiting: `None` where the member cannot, or where the checksums do not confirm
    /// the data.
    pub(crate) fn read_now(&self, at: ComponentByte, into: &mut Buffer, why: Why) -> Option<Result<(), MemberError>> {
        let (checksums, bytes) = (self.verifier(why), into.len() as u64);
        if self.owed.touches(&(at.0..at.0 + bytes)) {
            return None;
        }
        Checksums::expect(checksums, into);
        let result = self.member.read_now(self.absolute(at), into)?;
        self.head.set(at.0 + bytes);
        count(&self.counters.reads, 1);
        count(&self.counters.read_bytes, bytes);
        if Checksums::against(checksums, at, &result, into).is_some() {
            return None;
        }
        self.note_read(at, bytes, &result, why);
        self.note_unread(at, bytes, &result);
        Some(result)
    }

    /// Whether [`Device::lend`] usually succeeds.
    pub(crate) fn is_in_place(&self) -> bool {
        self.verifier(Why::Data).is_none() && self.member.is_in_place()
    }

    /// The member's contents, in place: `None` where the member cannot, or where checksums must be verified.
    pub(crate) fn lend(&self, at: ComponentByte, bytes: u64) -> Option<Ref<'_, [u8]>> {
        if self.verifier(Why::Data).is_some() || self.owed.touches(&(at.0..at.0 + bytes)) {
            return None;
        }
        let result = self.member.lend(self.absolute(at), bytes)?;
        self.head.set(at.0 + bytes);
        count(&self.counters.reads, 1);
        count(&self.counters.read_bytes, bytes);
        match result {
            Ok(part) => Some(part),
            Err(error) => {
                let result = Err(error);
                self.note_read(at, bytes, &result, Why::Data);
                self.note_unread(at, bytes, &result);
                None
            }
        }
    }

    /// As [`Device::read`], and verifies the checksums regardless of the setting.
    pub(crate) async fn read_verified(
        &self,
        at: ComponentByte,
        into: Buffer,
        why: Why,
    ) -> (Result<(), MemberError>, Buffer) {
        let bytes = into.len() as u64;
        let (result, into) = self.read_verified_unqueued(at, into, why).await;
        self.note_unread(at, bytes, &result);
        (result, into)
    }

    pub(crate) async fn read_bare(
        &self,
        at: ComponentByte,
        into: Buffer,
        why: Why,
    ) -> (Result<(), MemberError>, Buffer) {
        let _in_flight = self.begin(at, into.len() as u64);
        let (place, bytes) = (self.absolute(at), into.len());
        count(&self.counters.reads, 1);
        count(&self.counters.read_bytes, bytes as u64);
        match self.with_timeout(Operation::Read, (place, bytes as u64), pin!(self.member.read(place, into, why))).await
        {
            Ok((result, mut into)) => {
                let result = if self.owed.is_empty() { result } else { self.with_owed(at, result, &mut into) };
                self.note_read(at, bytes as u64, &result, why);
                (result, into)
            }
            Err(error) => {
                let result = Err(error);
                self.note_read(at, bytes as u64, &result, why);
                (result, self.context.pool.take(bytes))
            }
        }
    }

    /// Fills the buffers in order, as one transfer.
    pub(crate) async fn read_vectored(
        &self,
        at: ComponentByte,
        mut into: Vec<Buffer>,
        why: Why,
    ) -> (Result<(), MemberError>, Vec<Buffer>) {
        if into.len() == 1 {
            let (result, buffer) = self.read(at, into.remove(0), why).await;
            into.push(buffer);
            return (result, into);
        }
        let bytes = into.iter().map(|buffer| buffer.len() as u64).sum();
        let (result, into) = self.read_vectored_against(self.verifier(why), at, into, why).await;
        self.note_unread(at, bytes, &result);
        (result, into)
    }

    pub(crate) async fn read_vectored_bare(
        &self,
        at: ComponentByte,
        into: Vec<Buffer>,
        why: Why,
    ) -> (Result<(), MemberError>, Vec<Buffer>) {
        let _in_flight = self.begin(at, into.iter().map(|buffer| buffer.len() as u64).sum());
        let lengths: SmallVec<[usize; 16]> = into.iter().map(|buffer| buffer.len()).collect();
        let (place, bytes) = (self.absolute(at), lengths.iter().sum::<usize>() as u64);
        count(&self.counters.reads, 1);
        count(&self.counters.read_bytes, bytes);
        match self
            .with_timeout(Operation::Read, (place, bytes), pin!(self.member.read_vectored(place, into, why)))
            .await
        {
            Ok((mut result, mut into)) => {
                if !self.owed.is_empty() {
                    let mut at = at.0;
                    for part in &mut into {
                        result = self.with_owed(ComponentByte(at), result, part);
                        at += part.len() as u64;
                    }
                }
                self.note_read(at, bytes, &result, why);
                (result, into)
            }
            Err(error) => {
                let result = Err(error);
                self.note_read(at, bytes, &result, why);
                (result, lengths.iter().map(|&bytes| self.context.pool.take(bytes)).collect())
            }
        }
    }

    /// Writes the blocks in order, as one transfer, to this member and its successor.
    pub(crate) async fn write(
        &self,
        at: ComponentByte,
        mut from: SmallVec<[Block; 1]>,
        why: Why,
    ) -> Result<(), MemberError> {
        if self.successor.borrow().is_some() {
            let (from, copy) = (from.to_vec(), from.into_vec());
            let other = async move |successor: &Device<M>| successor.write_own(at, copy, why).await;
            return Box::pin(self.with_successor(self.write_own(at, from, why), other)).await;
        }
        match from.len() {
            1 => self.write_one_own(at, from.remove(0), why).await,
            _ => self.write_own(at, from.into_vec(), why).await,
        }
    }

    /// As [`Device::write`], of one block.
    pub(crate) async fn write_one(&self, at: ComponentByte, from: Block, why: Why) -> Result<(), MemberError> {
        match self.write_now(at, &from) {
            Some(result) => result,
            None if self.successor.borrow().is_some() => Box::pin(self.write(at, smallvec![from], why)).await,
            None => self.write_one_own(at, from, why).await,
        }
    }

    /// As [`Device::write_one`], without waiting: `None`, with nothing done, where the member cannot, where it has
    /// checksums, or where it has a successor.
    pub(crate) fn write_now(&self, at: ComponentByte, from: &Block) -> Option<Result<(), MemberError>> {
        if self.checksums.get().is_some() || self.successor.borrow().is_some() {
            return None;
        }
        let (result, bytes) = (self.member.write_now(self.absolute(at), from)?, from.len() as u64);
        self.head.set(at.0 + bytes);
        count(&self.counters.writes, 1);
        count(&self.counters.written_bytes, bytes);
        self.note(&result);
        self.note_written(at, bytes, &result);
        self.note_owed(at, std::slice::from_ref(from), &result);
        Some(result)
    }

    /// As [`Device::write_one`], but bad blocks stay bad until the caller has read the data back and calls
    /// [`Device::note_written`].
    pub(crate) async fn write_on_trial(&self, at: ComponentByte, from: Block, why: Why) -> Result<(), MemberError> {
        let (copy, owed) = (from.clone(), self.may_owe().then(|| from.clone()));
        let other = async move |successor: &Device<M>| successor.write_one_own(at, copy, why).await;
        let own = async {
            let bytes = from.len() as u64;
            let result = self.write_one_unnoted(at, from, why).await;
            if mutant!("bad-block-good-on-trial") {
                self.note_written(at, bytes, &result);
            }
            self.note_owed(at, owed.as_slice(), &result);
            result
        };
        self.with_successor(own, other).await
    }

    async fn write_one_own(&self, at: ComponentByte, from: Block, why: Why) -> Result<(), MemberError> {
        let bytes = from.len() as u64;
        let owed = self.may_owe().then(|| from.clone());
        let result = self.write_one_unnoted(at, from, why).await;
        self.note_written(at, bytes, &result);
        self.note_owed(at, owed.as_slice(), &result);
        result
    }

    async fn write_one_unnoted(&self, at: ComponentByte, from: Block, why: Why) -> Result<(), MemberError> {
        let bytes = from.len() as u64;
        match self.sums_of(std::slice::from_ref(&from)) {
            None => self.write_one_bare(at, from, why).await,
            // Boxed, here and below, so that the futures of transfers without checksums stay small.
            Some((checksums, sums)) => {
                Box::pin(self.keeping(checksums, at, bytes, sums, self.write_one_bare(at, from, why))).await
            }
        }
    }

    async fn write_one_bare(&self, at: ComponentByte, from: Block, why: Why) -> Result<(), MemberError> {
        let _in_flight = self.begin(at, from.len() as u64);
        let (at, bytes) = (self.absolute(at), from.len() as u64);
        count(&self.counters.writes, 1);
        count(&self.counters.written_bytes, bytes);
        let result =
            self.with_timeout(Operation::Write, (at, bytes), pin!(self.member.write(at, from, why))).await.flatten();
        self.note(&result);
        result
    }

    /// As [`Device::write`], without the successor.
    pub(crate) async fn write_own(&self, at: ComponentByte, mut from: Vec<Block>, why: Why) -> Result<(), MemberError> {
        if from.len() == 1 {
            return self.write_one_own(at, from.remove(0), why).await;
        }
        let bytes = from.iter().map(|block| block.len() as u64).sum();
        let owed = if self.may_owe() { from.clone() } else { Vec::new() };
        let result = match self.sums_of(&from) {
            None => self.write_bare(at, bytes, from, why).await,
            Some((checksums, sums)) => {
                Box::pin(self.keeping(checksums, at, bytes, sums, self.write_bare(at, bytes, from, why))).await
            }
        };
        self.note_written(at, bytes, &result);
        self.note_owed(at, &owed, &result);
        result
    }

    async fn write_bare(&self, at: ComponentByte, bytes: u64, from: Vec<Block>, why: Why) -> Result<(), MemberError> {
        let _in_flight = self.begin(at, bytes);
        let at = self.absolute(at);
        count(&self.counters.writes, 1);
        count(&self.counters.written_bytes, bytes);
        let result = self
            .with_timeout(Operation::Write, (at, bytes), pin!(self.member.write_vectored(at, from, why)))
            .await
            .flatten();
        self.note(&result);
        result
    }

    /// Discards the range, and zeroes it on a successor.
    pub(crate) async fn discard(&self, at: ComponentByte, bytes: u64) -> Result<(), MemberError> {
        let other = async move |successor: &Device<M>| successor.zero_own(at, bytes).await;
        self.with_successor(self.discard_own(at, bytes), other).await
    }

    /// The caller ensures that a member with checksums discards to zeros.
    async fn discard_own(&self, at: ComponentByte, bytes: u64) -> Result<(), MemberError> {
        let place = (self.absolute(at), bytes);
        let discard = async {
            self.with_timeout(Operation::Discard, place, pin!(self.member.discard(place.0, bytes, Why::Data)))
                .await
                .flatten()
        };
        let result = match self.checksums.get() {
            None => discard.await,
            Some(checksums) => self.keeping(checksums, at, bytes, WrittenChecksums::Zeros, discard).await,
        };
        if result.is_ok() {
            self.note_paid(&(at.0..at.0 + bytes));
        }
        self.note_zeros_owed(at, bytes, &result);
        result
    }

    /// Zeroes the range, also on a successor.
    pub(crate) async fn write_zeroes(&self, at: ComponentByte, bytes: u64) -> Result<(), MemberError> {
        let other = async move |successor: &Device<M>| successor.zero_own(at, bytes).await;
        self.with_successor(self.write_zeroes_own(at, bytes), other).await
    }

    pub(crate) async fn write_zeroes_own(&self, at: ComponentByte, bytes: u64) -> Result<(), MemberError> {
        let place = (self.absolute(at), bytes);
        let zero = async {
            self.with_timeout(Operation::WriteZeroes, place, pin!(self.member.write_zeroes(place.0, bytes, Why::Data)))
                .await
                .flatten()
        };
        let result = match self.checksums.get() {
            None => zero.await,
            Some(checksums) => self.keeping(checksums, at, bytes, WrittenChecksums::Zeros, zero).await,
        };
        self.note_written(at, bytes, &result);
        self.note_zeros_owed(at, bytes, &result);
        result
    }

    /// Puts every write that completed before this call on stable storage.
    pub(crate) async fn flush(&self, why: Why) -> Result<(), MemberError> {
        self.with_timeout(Operation::Flush, (MemberByte(0), 0), pin!(self.member.flush(why))).await.flatten()
    }

    /// Writes `superblock`, in whole logical blocks, and flushes. A changed bad-block log is
    /// written first, so that it is on the member before the superblock says that it is in use.
    pub(crate) async fn write_superblock(
        &self,
        mut superblock: Superblock,
        pool: &crate::base::buffer::Pool,
    ) -> Result<(), MemberError> {
        superblock.bad_blocks =
            superblock.bad_blocks.map(|log| BadBlockPlace { in_use: self.bad.is_log_in_use(), ..log });
        let place = (superblock.super_at(), PLACE_BYTES);
        self.with_timeout(Operation::Write, place, pin!(self.put_superblock(superblock, pool))).await.flatten()
    }

    async fn put_superblock(
        &self,
        superblock: Superblock,
        pool: &crate::base::buffer::Pool,
    ) -> Result<(), MemberError> {
        self.write_log(&superblock, pool).await?;
        self.announce(&superblock).await?;
        let encoded = superblock.encode();
        let block = {
            let mut place = self.place.borrow_mut();
            place[..encoded.len()].copy_from_slice(&encoded);
            let unit = self.member.limits().logical_block_bytes as usize;
            let bytes = encoded.len().next_multiple_of(unit).min(place.len());
            pool.copy_of(&place[..bytes])
        };
        let at = superblock.super_at();
        *self.superblock.borrow_mut() = superblock;
        self.member.write(at, block, Why::Superblock).await?;
        mutant!("superblock-flush-lost" => Ok(()), else self.member.flush(Why::Superblock).await)
    }

    /// Flushes first: a range that leaves the log was rewritten, and that write must be stable before the log is.
    async fn write_log(&self, superblock: &Superblock, pool: &crate::base::buffer::Pool) -> Result<(), MemberError> {
        let (Some(log), Some(at)) = (self.bad.unsaved(), superblock.bad_blocks_at()) else { return Ok(()) };
        self.member.flush(Why::Superblock).await?;
        write_bytes(&self.member, pool, at, &log.bytes).await?;
        self.member.flush(Why::Superblock).await?;
        self.bad.saved(&log);
        Ok(())
    }
}

/// Bytes to read at a superblock's position, which may be near the member's end.
pub(crate) fn place_bytes(at: MemberByte, member_bytes: u64) -> usize {
    PLACE_BYTES.min(member_bytes.saturating_sub(at.0)) as usize
}

/// A slot that a device had before, and its event count then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FormerSlot {
    pub(crate) slot: Slot,
    pub(crate) events: u64,
}

/// Failed members, and their errors.
pub(crate) type Failures<M> = Vec<(Rc<Device<M>>, MemberError)>;
