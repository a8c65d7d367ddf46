//! A member in an array: the thing behind the seam, with its superblock, its
//! state and its counters.
//!
//! Positions here are component positions; this is the one place that adds a
//! member's `data_offset`.

use crate::buffer::{Block, Buffer};
use crate::joining::Return;
use crate::member::{Member, MemberError};
use format::superblock::{PLACE_BYTES, Superblock};
use format::units::{ComponentByte, MemberByte};
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// How a device takes part, as md(4) and mdadm name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceState {
    /// Active, all its data current.
    InSync,
    /// Active, but current only up to its recovery offset: written to everywhere.
    Recovering {
        /// Component bytes below this are current.
        current: u64,
    },
    /// Waiting to take a slot.
    Spare,
    /// Thrown out, by an error or by hand.
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
    pub(crate) member: M,
    /// As last read or written; the fields that all members share are kept in
    /// the array's own record and put in when it is written.
    pub(crate) superblock: RefCell<Superblock>,
    /// The superblock's whole place as it stands on the member, so that
    /// writing in larger blocks keeps what lies behind it.
    pub(crate) place: RefCell<Box<[u8]>>,
    pub(crate) state: Cell<DeviceState>,
    /// Of a spare that was away: the slot it had.
    pub(crate) returns_to: Cell<Option<Return>>,
    pub(crate) data_at: u64,
    /// Component ranges that md's bad-block log names; never read.
    pub(crate) bad: Vec<Range<u64>>,
    /// Whether a discard leaves zeros: its promise, until it turns out that it cannot.
    pub(crate) discards_to_zeros: Cell<bool>,
    pub(crate) in_flight: Cell<u32>,
    pub(crate) counters: Counters,
}

/// Counts an operation while it lives.
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
    ) -> Self {
        debug_assert_eq!(place.len() as u64 % 512, 0);
        let limits = member.limits();
        let discards_to_zeros = Cell::new(limits.discards && limits.discards_to_zeros);
        Self {
            name,
            member,
            data_at: superblock.data_at().0,
            superblock: RefCell::new(superblock),
            place: RefCell::new(place),
            state: Cell::new(state),
            returns_to: Cell::new(None),
            bad,
            discards_to_zeros,
            in_flight: Cell::new(0),
            counters: Counters::default(),
        }
    }

    /// Whether writes go to it.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state.get(), DeviceState::InSync | DeviceState::Recovering { .. })
    }

    /// Whether what it holds in `range` is current and can be had.
    pub(crate) fn is_readable(&self, range: Range<u64>) -> bool {
        let current = match self.state.get() {
            DeviceState::InSync => true,
            DeviceState::Recovering { current } => range.end <= current,
            DeviceState::Spare | DeviceState::Faulty => false,
        };
        current && !self.bad.iter().any(|bad| bad.start < range.end && range.start < bad.end)
    }

    /// Whether it has yet to be recovered somewhere below `end`.
    pub(crate) fn is_recovering(&self, end: u64) -> bool {
        matches!(self.state.get(), DeviceState::Recovering { current } if current < end)
    }

    /// Whether [`Device::is_readable`] is true of every range.
    pub(crate) fn is_whole(&self) -> bool {
        self.state.get() == DeviceState::InSync && self.bad.is_empty()
    }

    /// Counts an error; of the first a word goes to whoever serves the array.
    fn note(&self, result: &Result<(), MemberError>) {
        let Err(error) = result else { return };
        count(&self.counters.errors, 1);
        if self.counters.errors.get() == 1 {
            tracing::warn!("{}: {error}; further errors of it are counted in its status", self.name);
        }
    }

    fn absolute(&self, at: ComponentByte) -> MemberByte {
        MemberByte(self.data_at + at.0)
    }

    pub(crate) async fn read(&self, at: ComponentByte, into: Buffer) -> (Result<(), MemberError>, Buffer) {
        let _in_flight = InFlight::enter(&self.in_flight);
        count(&self.counters.reads, 1);
        count(&self.counters.read_bytes, into.len() as u64);
        let (result, into) = self.member.read(self.absolute(at), into).await;
        self.note(&result);
        (result, into)
    }

    /// Fills the buffers one behind the other, as one transfer.
    pub(crate) async fn read_vectored(
        &self,
        at: ComponentByte,
        mut into: Vec<Buffer>,
    ) -> (Result<(), MemberError>, Vec<Buffer>) {
        if into.len() == 1 {
            let (result, buffer) = self.read(at, into.remove(0)).await;
            into.push(buffer);
            return (result, into);
        }
        let _in_flight = InFlight::enter(&self.in_flight);
        count(&self.counters.reads, 1);
        count(&self.counters.read_bytes, into.iter().map(|buffer| buffer.len() as u64).sum());
        let (result, into) = self.member.read_vectored(self.absolute(at), into).await;
        self.note(&result);
        (result, into)
    }

    /// As [`Device::write`], of one block.
    pub(crate) async fn write_one(&self, at: ComponentByte, from: Block) -> Result<(), MemberError> {
        let _in_flight = InFlight::enter(&self.in_flight);
        count(&self.counters.writes, 1);
        count(&self.counters.written_bytes, from.len() as u64);
        let result = self.member.write(self.absolute(at), from).await;
        self.note(&result);
        result
    }

    /// Writes the blocks one behind the other, as one transfer.
    pub(crate) async fn write(&self, at: ComponentByte, mut from: Vec<Block>) -> Result<(), MemberError> {
        if from.len() == 1 {
            return self.write_one(at, from.remove(0)).await;
        }
        let _in_flight = InFlight::enter(&self.in_flight);
        count(&self.counters.writes, 1);
        count(&self.counters.written_bytes, from.iter().map(|block| block.len() as u64).sum());
        let result = self.member.write_vectored(self.absolute(at), from).await;
        self.note(&result);
        result
    }

    pub(crate) async fn discard(&self, at: ComponentByte, bytes: u64) -> Result<(), MemberError> {
        self.member.discard(self.absolute(at), bytes).await
    }

    pub(crate) async fn write_zeroes(&self, at: ComponentByte, bytes: u64) -> Result<(), MemberError> {
        self.member.write_zeroes(self.absolute(at), bytes).await
    }

    /// Puts `superblock` in its place, in whole logical blocks, and on stable storage.
    pub(crate) async fn write_superblock(&self, superblock: Superblock, pool: &crate::Pool) -> Result<(), MemberError> {
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
        self.member.write(at, block).await?;
        self.member.flush().await
    }
}

/// Bytes to read at a superblock's place, which may be the member's last.
pub(crate) fn place_bytes(at: MemberByte, member_bytes: u64) -> usize {
    PLACE_BYTES.min(member_bytes.saturating_sub(at.0)) as usize
}
