//! A running array: what its users call, and the state that its parts share.
//!
//! A request is checked, aligned and locked here; what it does to the members
//! is in `mapped` (copies) and `striped` (parity), what the
//! superblocks say is in `membership`. Everything runs on one thread.
//!
//! Invariants:
//! * No write reaches a member before the array is marked dirty, and its
//!   bitmap chunk noted, on stable storage.
//! * A write that was answered is on every member that the superblocks call
//!   current, or can be reconstructed from those that are.
//! * Overlapping writes follow each other; so copies and parity never disagree
//!   for having been written in different orders.

use crate::base::buffer::{Block, Buffer, Pool};
use crate::base::gate::Gate;
use crate::base::notify::Signal;
use crate::base::range_lock::RangeLocks;
use crate::base::versioned::Growing;
use crate::control::assemble::LeftOut;
use crate::control::forced::Forced;
use crate::control::read_repair::Healing;
use crate::control::sweep::Sweeps;
use crate::core::request::Writers;
use crate::data::cache::StripeCache;
use crate::data::coalesce::Gathering;
use crate::data::read_ahead::{Found, ReadAhead};
use crate::data::request::Durability;
use crate::data::stripe_size::StripeSize;
use crate::device::Device;
use crate::device::checksums::Verify;
use crate::device::timeout::Surroundings;
use crate::metadata::bitmap::Intent;
use crate::metadata::superblocks::Record;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;
use crate::seam::observe::{Observer, Why};
use format::geometry::Geometry;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// An assembled array; clones share it. Made by [`Array::assemble`].
pub struct Array<M: Member, C: Clock>(pub(crate) Rc<Inner<M, C>>);

impl<M: Member, C: Clock> Clone for Array<M, C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

pub(crate) struct Inner<M: Member, C: Clock> {
    /// The latest is the array's. Who still goes by one before it is right in all that there was then.
    pub(crate) geometries: Growing<Geometry>,
    pub(crate) kernel: &'static parity::Kernel,
    pub(crate) pool: Pool,
    pub(crate) clock: C,
    pub(crate) read_only: bool,
    /// Largest logical block of any member, a power of two: the unit of all member transfers.
    pub(crate) block_bytes: u64,
    /// The unit in which stripes that change in part are moved.
    pub(crate) stripe_size: Cell<StripeSize>,
    /// When checksums are asked.
    pub(crate) verify: Cell<Verify>,
    /// Old contents of stripes that are likely to be written again.
    pub(crate) cache: RefCell<StripeCache>,
    /// What streams are about to read.
    pub(crate) read_ahead: ReadAhead,
    /// The device in each slot.
    pub(crate) slots: RefCell<Vec<Option<Rc<Device<M>>>>>,
    /// Raised when one that may be read takes the place of another.
    pub(crate) places: Signal,
    /// Devices without a slot: spares and those thrown out.
    pub(crate) others: RefCell<Vec<Rc<Device<M>>>>,
    /// Members that were offered and do not take part.
    pub(crate) left_out: Vec<LeftOut>,
    /// Stale members that its user made it take.
    pub(crate) forced_members: Vec<Forced>,
    /// What its user has accepted by force: what may be lost or wrong.
    pub(crate) warnings: Vec<String>,
    /// Every slot is filled by a device that is current everywhere.
    pub(crate) whole: Cell<bool>,
    /// Parity and copies agree everywhere.
    pub(crate) agreed: Cell<bool>,
    /// They agree below this byte of the array, as far as a resync has come.
    pub(crate) agreed_below: Cell<u64>,
    /// Why the array takes no more writes, once more has failed than it bears.
    pub(crate) broken: RefCell<Option<String>>,
    pub(crate) record: RefCell<Record>,
    /// Raised when the array is marked dirty.
    pub(crate) marked_dirty: Signal,
    pub(crate) intent: RefCell<Option<Rc<Intent<M>>>>,
    /// Bytes (copies) or stripes (parity) under change.
    pub(crate) locks: Rc<RangeLocks>,
    /// Writes to stripes that wait for each other.
    pub(crate) gathering: Gathering,
    /// Held while superblocks or bitmaps are written.
    pub(crate) metadata: RangeLocks,
    pub(crate) gate: Gate,
    pub(crate) sweeps: Sweeps,
    /// Is told of every transfer of every member.
    pub(crate) observer: RefCell<Option<Rc<dyn Observer>>>,
    pub(crate) healing: Healing,
    pub(crate) surroundings: Rc<Surroundings>,
    /// The user has accepted parity that may be wrong, where a member of a dirty array has bad blocks.
    pub(crate) forced: bool,
    pub(crate) writers: Writers,
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Length of the array in bytes. It may grow; it never shrinks before it is stopped.
    pub fn bytes(&self) -> u64 {
        self.0.geometry().array_bytes()
    }

    /// The unit in which requests need no extra reads: the members' largest logical block.
    pub fn block_bytes(&self) -> u64 {
        self.0.block_bytes
    }

    /// Whether writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.0.read_only
    }

    /// The pool that its buffers come from.
    pub fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// Fills `into` from array position `at`, in bytes; any position and length.
    ///
    /// # Errors
    /// `OutOfRange`, `Stopped`, or `Io` when the members left cannot give the data.
    pub async fn read(&self, at: u64, mut into: Buffer) -> Result<Buffer, ArrayError> {
        let inner = &*self.0;
        let _inside = inner.enter(at, into.len() as u64)?;
        if into.is_empty() {
            return Ok(into);
        }
        if !inner.is_memory_of_members(&into) && !mutant!("memory-of-any-alignment") {
            return Box::pin(inner.read_elsewhere(at, into)).await;
        }
        if !inner.whole.get() {
            into = match inner.read_degraded(at, into) {
                Found::There(filled) => return Ok(filled),
                Found::Nothing(buffer) => buffer,
                Found::UnderWay(buffer) => return Box::pin(inner.read_any(at, buffer)).await,
            };
        }
        if inner.gathering.keeps_any() && !mutant!("kept-not-read") {
            return Box::pin(inner.read_with_kept(at, into)).await;
        }
        let now = inner.read_now(at, &mut into);
        if let Some(Ok(())) = now {
            return Ok(into);
        }
        if now.is_none()
            && let Some((device, position)) = inner.locate(at, into.len() as u64)
        {
            let (result, buffer) = device.read_later(position, into, Why::Data).await;
            into = buffer;
            if result.is_ok() {
                return Ok(into);
            }
        }
        // Boxed, so that the short way above stays small enough to be cheap.
        Box::pin(inner.read_any(at, into)).await
    }

    /// Writes `from` at array position `at`, in bytes; any position and length.
    /// To be driven to its end: when it and all that were gathered with it are
    /// dropped halfway, the array takes no more writes.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `Stopped`, `NoSpace` when a member has no room for it, or `Io` when too many members failed.
    pub async fn write(&self, at: u64, from: Block, durability: Durability) -> Result<(), ArrayError> {
        let inner = &*self.0;
        let _inside = inner.enter_to_write(at, from.len() as u64)?;
        if from.is_empty() {
            return Ok(());
        }
        let _writing = inner.writers.begin();
        inner.check_room().await?;
        match inner.geometry() {
            Geometry::Parity(parity) => {
                let range = at..at + from.len() as u64;
                self.gather(parity, at, from, durability).await?;
                inner.gathering.written_over(&range);
                inner.keep_within_memory().await;
            }
            Geometry::Mapping(mapping) => match inner.write_now(at, &from) {
                Some(written) => written?,
                // Boxed, as in `read`.
                None => Box::pin(inner.write_later(mapping, at, from)).await?,
            },
        }
        match durability {
            Durability::Ordinary => Ok(()),
            Durability::Stable if mutant!("stable-write-unflushed") => Ok(()),
            Durability::Stable => Box::pin(inner.flush_members()).await,
        }
    }

    /// Every write answered before this call is on stable storage after it.
    ///
    /// # Errors
    /// `Stopped`, `NoSpace` when a member has no room for what was answered from memory, or `Io` when too many members failed.
    pub async fn flush(&self) -> Result<(), ArrayError> {
        let inner = &*self.0;
        let _inside = inner.enter(0, 0)?;
        if !mutant!("writeback-not-written") {
            inner.write_out_all().await?;
        }
        inner.flush_members().await?;
        inner.check_kept_are_paid().await?;
        inner.check_nothing_lost()
    }

    /// Finishes what is under way, flushes, and marks the array clean. Nothing
    /// is accepted afterwards. An array that is broken stays marked dirty.
    ///
    /// # Errors
    /// `Io` when it could not be marked clean, or something was answered from memory and could not be written.
    pub async fn stop(&self) -> Result<(), ArrayError> {
        self.0.watched(self.finish()).await
    }

    async fn finish(&self) -> Result<(), ArrayError> {
        let inner = &*self.0;
        let drained = inner.drain().await;
        if drained.is_err() {
            inner.check_unbroken()?; // otherwise it is clean, without what was lost
        }
        if inner.owes_any() {
            inner.pay().await?;
        }
        if !inner.read_only {
            inner.checkpoint().await?;
        }
        inner.tell_forced().await?;
        inner.mark_clean().await?;
        drained.and_then(|()| inner.check_nothing_lost())
    }
}
