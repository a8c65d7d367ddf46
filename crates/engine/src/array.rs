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
use crate::base::gate::{Gate, Inside};
use crate::base::notify::Signal;
use crate::base::range_lock::RangeLocks;
use crate::base::versioned::Growing;
use crate::base::write_set::{Patch, Patchwork};
use crate::control::assemble::LeftOut;
use crate::control::forced::Forced;
use crate::control::read_repair::Healing;
use crate::control::sweep::Sweeps;
use crate::data::cache::StripeCache;
use crate::data::coalesce::Gathering;
use crate::data::read_ahead::{Found, ReadAhead};
use crate::device::Device;
use crate::device::checksums::Verify;
use crate::device::timeout::Surroundings;
use crate::licences::Licences;
use crate::metadata::bitmap::Intent;
use crate::metadata::superblocks::Record;
use crate::plan::stripe_size::StripeSize;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::{Member, MemberError, MemberErrorKind};
use crate::seam::observe::{Observer, Why};
use crate::shards::seam::Seam;
use format::geometry::{Geometry, Mapping};
use format::units::{ArrayByte, Slot};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// When a write counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// When every member has it; a flush makes it safe from a loss of power.
    #[default]
    Ordinary,
    /// When it is on stable storage (FUA).
    Stable,
}

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
    pub(crate) licences: Licences,
    /// Of a further shard: how it asks the first for what there is one of.
    pub(crate) seam: Option<Rc<Seam>>,
}

/// Writes since the array was assembled.
#[derive(Default)]
pub(crate) struct Writers {
    begun: Cell<u64>,
    ended: Cell<u64>,
}

/// One write, from its acceptance to its end.
pub(crate) struct Writing<'a>(&'a Writers);

impl Writers {
    pub(crate) fn begin(&self) -> Writing<'_> {
        self.enter();
        Writing(self)
    }

    /// As [`Writers::begin`], ended by [`Writers::leave`].
    pub(crate) fn enter(&self) {
        self.begun.set(self.begun.get() + 1);
    }

    pub(crate) fn leave(&self) {
        self.ended.set(self.ended.get() + 1);
    }

    /// How many have begun, when none is under way.
    pub(crate) fn at_rest(&self) -> Option<u64> {
        (self.begun.get() == self.ended.get()).then(|| self.begun.get())
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
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

    /// Every write answered before this call is on the members after it.
    pub(crate) async fn write_out(&self) -> Result<(), ArrayError> {
        let _inside = self.0.enter(0, 0)?;
        self.0.write_out_all().await?;
        self.0.check_unbroken()
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
        let _alone = inner.licences.alone().await;
        let drained = inner.drain().await;
        if drained.is_err() {
            inner.check_unbroken()?; // otherwise it is clean, without what was lost
        }
        inner.licences.changed.raise();
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

/// Dropped only when a change was abandoned: a stripe may be half written, or
/// marks half made.
pub(crate) struct Halfway<'a, M: Member, C: Clock>(&'a Inner<M, C>);

impl<M: Member, C: Clock> Halfway<'_, M, C> {
    /// The change has come to its end, good or bad.
    pub(crate) fn end(self) {
        std::mem::forget(self);
    }
}

impl<M: Member, C: Clock> Drop for Halfway<'_, M, C> {
    fn drop(&mut self) {
        self.0.give_out(|| "a change was abandoned halfway".to_owned());
    }
}

impl<M: Member, C: Clock> Inner<M, C> {
    fn enter(&self, at: u64, bytes: u64) -> Result<Inside<'_>, ArrayError> {
        let end = at.checked_add(bytes).filter(|&end| end <= self.geometry().array_bytes());
        if end.is_none() {
            let size = self.geometry().array_bytes();
            let reason = format!("{bytes} bytes at byte {at} run past the array's end at {size}");
            return Err(ArrayError::new(ArrayErrorKind::OutOfRange, reason));
        }
        self.gate.enter().ok_or_else(|| ArrayError::new(ArrayErrorKind::Stopped, "the array is stopped"))
    }

    /// Lets nobody in any more, and ends what is under way.
    pub(crate) async fn drain(&self) -> Result<(), ArrayError> {
        self.sweeps.changed.raise();
        self.surroundings.hurt.raise();
        self.surroundings.unanswered.raise();
        self.surroundings.owing.raise();
        self.gathering.close_all();
        self.gate.close().await;
        self.sweeps.scrub_changed.raise();
        self.surroundings.owing.raise();
        self.read_ahead.clear();
        self.gathering.wake_keeper();
        self.write_out_all().await
    }

    /// What is where.
    pub(crate) fn geometry(&self) -> &Geometry {
        self.geometries.latest()
    }

    pub(crate) fn enter_to_write(&self, at: u64, bytes: u64) -> Result<Inside<'_>, ArrayError> {
        if self.read_only {
            return Err(ArrayError::new(ArrayErrorKind::ReadOnly, "the array is read-only"));
        }
        self.enter(at, bytes)
    }

    /// The write-intent bitmap, when the array has one.
    pub(crate) fn intent(&self) -> Option<Rc<Intent<M>>> {
        self.intent.borrow().clone()
    }

    /// Fails when the array takes no more writes.
    pub(crate) fn check_unbroken(&self) -> Result<(), ArrayError> {
        match &*self.broken.borrow() {
            None => Ok(()),
            Some(reason) => Err(ArrayError::new(ArrayErrorKind::Io, format!("the array takes no writes: {reason}"))),
        }
    }

    /// The array takes no more writes from here on, by any of its shards.
    pub(crate) fn give_out(&self, reason: impl FnOnce() -> String) {
        let reason = self.broken.borrow_mut().get_or_insert_with(reason).clone();
        if !mutant!("scrub-outlives-array") {
            self.sweeps.give_up_scrub(&format!("the array takes no more writes: {reason}"));
        }
        match &self.seam {
            Some(seam) => seam.broke(reason),
            None => self.licences.changed.raise(),
        }
    }

    /// Whether parity and copies agree in all that lies below `end`, or have to be taken so. Never once the
    /// array has broken off: a write may have reached some of a stripe's members alone.
    pub(crate) fn is_agreed(&self, end: u64) -> bool {
        let is_known = self.agreed.get() || end <= self.agreed_below.get() || self.forced;
        is_known && self.broken.borrow().is_none()
    }

    /// The device that fills `slot` and takes part.
    pub(crate) fn device(&self, slot: Slot) -> Option<Rc<Device<M>>> {
        let slots = self.slots.borrow();
        in_slot(&slots, slot).filter(|device| device.is_active()).cloned()
    }

    pub(crate) fn is_aligned(&self, at: u64, bytes: u64) -> bool {
        (at | bytes) & (self.block_bytes - 1) == 0
    }

    /// Whether members take memory where this lies: a part of a longer buffer may begin at any byte.
    fn is_memory_of_members(&self, into: &Buffer) -> bool {
        self.is_aligned(into.as_ptr() as usize as u64, 0)
    }

    /// Reads into memory that members take, and from there.
    async fn read_elsewhere(&self, at: u64, mut into: Buffer) -> Result<Buffer, ArrayError> {
        let other = self.pool.take(into.len());
        let other = if self.gathering.keeps_any() {
            self.read_with_kept(at, other).await
        } else {
            self.read_any(at, other).await
        };
        into.copy_from_slice(&other?);
        Ok(into)
    }

    pub(crate) async fn read_any(&self, at: u64, mut into: Buffer) -> Result<Buffer, ArrayError> {
        if self.is_aligned(at, into.len() as u64) {
            return self.read_aligned(at, into, Locked::No).await;
        }
        let outer = self.widened(at, into.len() as u64);
        let wide = self.pool.take((outer.end - outer.start) as usize);
        let wide = self.read_aligned(outer.start, wide, Locked::No).await?;
        let skip = (at - outer.start) as usize;
        let length = into.len();
        into.copy_from_slice(&wide[skip..skip + length]);
        Ok(into)
    }

    pub(crate) async fn read_aligned(&self, at: u64, into: Buffer, locked: Locked) -> Result<Buffer, ArrayError> {
        let into = match self.read_whole(at, into).await {
            Ok(filled) => return Ok(filled),
            Err(into) => into,
        };
        match self.geometry() {
            Geometry::Mapping(mapping) => self.read_mapped(mapping, at, into).await,
            Geometry::Parity(parity) => self.read_striped(parity, at, into, locked).await,
        }
    }

    /// The smallest aligned range around it.
    fn widened(&self, at: u64, bytes: u64) -> Range<u64> {
        let unit = self.block_bytes;
        at / unit * unit..(at + bytes).next_multiple_of(unit)
    }

    /// After [`Inner::write_now`].
    async fn write_later(&self, mapping: &Mapping, at: u64, from: Block) -> Result<(), ArrayError> {
        match self.locate_alone(at, &from) {
            Some((device, position)) => self.write_alone(&device, position, at, from).await,
            None => self.write_copies(mapping, at, from).await,
        }
    }

    async fn write_copies(&self, mapping: &Mapping, at: u64, from: Block) -> Result<(), ArrayError> {
        let outer = self.widened(at, from.len() as u64);
        let _lock = match mutant!("copies-not-locked") {
            true => self.locks.shared(outer.clone()).await,
            false => self.locks.exclusive(outer.clone()).await,
        };
        let mut data = Patchwork::default();
        data.put(Patch { at, block: from });
        let data = self.in_whole_blocks(data).await?;
        let write = async {
            for Patch { at, block } in data.patches() {
                self.write_mapped(mapping, *at, block.clone()).await?;
            }
            Ok(())
        };
        self.to_the_end(self.marked(&outer, write)).await
    }

    /// Carries out what must not be dropped halfway.
    pub(crate) async fn to_the_end<T>(&self, change: impl Future<Output = T>) -> T {
        let halfway = self.begin_change();
        let result = change.await;
        halfway.end();
        result
    }

    /// From here to its end a change must not be dropped.
    pub(crate) fn begin_change(&self) -> Halfway<'_, M, C> {
        Halfway(self)
    }

    /// Carries out a write between the marks that come before and after.
    pub(crate) async fn marked(
        &self,
        range: &Range<u64>,
        write: impl Future<Output = Result<(), ArrayError>>,
    ) -> Result<(), ArrayError> {
        self.check_unbroken()?;
        let _intended = self.mark_write(range).await?;
        write.await?;
        self.settle().await
    }

    /// The same data in whole blocks, with what the array holds around it, in
    /// memory that members accept. The caller keeps writes off the range.
    pub(crate) async fn in_whole_blocks(&self, data: Patchwork) -> Result<Patchwork, ArrayError> {
        if self.are_whole_blocks(&data) {
            return Ok(data);
        }
        let unit = self.block_bytes;
        let shares_block = |a: &Patch, b: &Patch| b.at / unit * unit < a.end().next_multiple_of(unit);
        let mut whole = Patchwork::default();
        for run in data.patches().chunk_by(shares_block) {
            match run {
                [patch] if self.is_whole_blocks(patch) => whole.put(patch.clone()),
                _ => whole.put(self.copied(run).await?),
            }
        }
        Ok(whole)
    }

    /// Whether members take all of it as it is.
    pub(crate) fn are_whole_blocks(&self, data: &Patchwork) -> bool {
        data.patches().iter().all(|patch| self.is_whole_blocks(patch))
    }

    fn is_whole_blocks(&self, patch: &Patch) -> bool {
        let place = patch.block.as_ptr() as usize as u64;
        self.is_aligned(patch.at | place, patch.block.len() as u64)
    }

    /// Patches that lie in blocks next to each other, as one; where they leave a
    /// part of a block out, it is read.
    async fn copied(&self, run: &[Patch]) -> Result<Patch, ArrayError> {
        let unit = self.block_bytes;
        let outer = self.widened(run[0].at, run[run.len() - 1].end() - run[0].at);
        let mut wide = self.pool.take((outer.end - outer.start) as usize);
        let place = |at: u64| (at - outer.start) as usize;
        let starts = run.iter().map(|patch| patch.at).chain([outer.end]);
        let ends = [outer.start].into_iter().chain(run.iter().map(Patch::end));
        let mut gaps: Vec<u64> =
            ends.zip(starts).filter(|(end, start)| end < start).map(|(end, _)| end / unit).collect();
        gaps.dedup();
        for gap in gaps {
            let at = gap * unit;
            let block = self.read_aligned(at, self.pool.take(unit as usize), Locked::Exclusively).await?;
            wide[place(at)..place(at + unit)].copy_from_slice(&block);
        }
        for patch in run {
            wide[place(patch.at)..place(patch.end())].copy_from_slice(&patch.block);
        }
        Ok(Patch { at: outer.start, block: wide.freeze() })
    }

    async fn flush_members(&self) -> Result<(), ArrayError> {
        if self.read_only {
            return Ok(()); // nothing was written, and a failure could not be noted
        }
        if !mutant!("flush-lost") {
            self.flush_devices().await?;
        }
        self.settle().await
    }

    pub(crate) fn io_error(&self, at: u64, bytes: u64, error: Option<&MemberError>) -> ArrayError {
        let cause = error.map(|error| format!(": {error}")).unwrap_or_default();
        if error.is_some_and(|error| error.kind == MemberErrorKind::NoSpace) {
            return ArrayError::new(ArrayErrorKind::NoSpace, format!("no room for {bytes} bytes at byte {at}{cause}"));
        }
        let logged = self.logged_bad(at, bytes);
        let logs = match logged.is_empty() {
            true => String::new(),
            false => format!(
                "; the bad-block log of {} names the place (`mdspace read --ignore-bad-blocks` reads what is there)",
                logged.join(" and that of ")
            ),
        };
        let reason = format!("{bytes} bytes at byte {at} cannot be had from the members left{cause}{logs}");
        ArrayError::new(ArrayErrorKind::Io, reason)
    }

    /// The names of members whose bad-block logs name any of what a range of the array, or the rest of its rows, is on.
    fn logged_bad(&self, at: u64, bytes: u64) -> Vec<String> {
        let end = at.saturating_add(bytes).min(self.geometry().array_bytes());
        let slots = self.slots.borrow();
        let mut names = Vec::new();
        let mut note = |device: Option<&Rc<Device<M>>>, range: &Range<u64>| {
            let Some(device) = device.filter(|device| device.bad.touches(range)) else { return };
            if !names.contains(&device.name) {
                names.push(device.name.clone());
            }
        };
        match self.geometry() {
            Geometry::Parity(parity) => {
                let mut at = at;
                while at < end {
                    let (_, component, rest) = parity.locate(ArrayByte(at));
                    let part = rest.min(end - at);
                    slots.iter().for_each(|slot| note(slot.as_ref(), &(component.0..component.0 + part)));
                    at += part;
                }
            }
            Geometry::Mapping(mapping) => {
                for piece in mapping.pieces(ArrayByte(at), end - at) {
                    for (slot, component) in piece.copies.iter() {
                        note(in_slot(&slots, *slot), &(component.0..component.0 + piece.bytes));
                    }
                }
            }
        }
        names
    }
}

/// Who fills a slot. One that there is no more, of copies that were given up while somebody read, is empty.
pub(crate) fn in_slot<T>(slots: &[Option<T>], slot: Slot) -> Option<&T> {
    slots.get(slot.index())?.as_ref()
}

/// Whether a caller already keeps writes off the stripes it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locked {
    No,
    Exclusively,
}
