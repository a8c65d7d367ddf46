//! The write-intent bitmap: a bit is on stable storage on every member before the first write to the chunk that it
//! covers.
//!
//! * [`bits`]: the bitmap in memory. [`sizing`]: how large its writes are.
//! * [`load`]: reads the members' bitmaps at assembly. [`clearing`]: clears bits.
//! * [`change`]: adds and removes a bitmap while the array is in use. [`named`]: the chunks that a returning member's
//!   own bitmap names.
//! * This file: the rounds in which bits are set.
//!
//! The bits are on every member, or in one file beside them, which is a [`Member`] as well. If the file fails, the
//! array goes on without it. The superblocks' events move past the file's, so that the file is never trusted again.
//!
//! All writes of the bitmap happen under the metadata lock, one round after the other. So a bit that is set again is
//! written only after the round that cleared it has ended. Writes that wait for the lock share the next round (group
//! commit): one write for each page and member, then a flush.
//!
//! This module never writes data. Format: [`format::bitmap`].

mod bits;
pub(crate) mod change;
pub(crate) mod clearing;
pub(crate) mod load;
pub(crate) mod named;
mod sizing;

pub use clearing::BitmapClearing;
pub use sizing::BitmapWrites;

use crate::base::buffer::Block;
use crate::base::join::join_all;
use crate::core::metadata_lock::MetadataGuard;
use crate::device::{Device, Failures};
use crate::metadata::Metadata;
use crate::metadata::superblocks::ROUNDS_TO_EJECT;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::{Candidate, Limits, Member, MemberError, Operation};
use crate::seam::observe::{Watched, Why};
use bits::{Bits, Round};
use format::bitmap::BitmapSuper;
use format::units::MemberByte;
use serde::Serialize;
use sizing::{Room, spans};
use std::cell::{Cell, Ref, RefCell};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;

/// The write-intent bitmap of a running array.
#[derive(Debug, Clone, Serialize)]
pub struct BitmapStatus {
    /// Chunks whose bits are set.
    pub set: u64,
    /// Number of chunks.
    pub bits: u64,
    /// Bytes of a chunk, which one bit covers.
    pub chunk_bytes: u64,
    /// Pages of 4 KiB that the bitmap takes.
    pub pages: u64,
    /// Seconds without a write after which a chunk's bit may be cleared.
    pub daemon_sleep_seconds: u32,
    /// The file that holds the bitmap; `None` if the members hold it.
    pub file: Option<String>,
}

/// md's page, the unit in which bitmaps are written.
const PAGE_BYTES: usize = 4096;

/// How the write-intent bitmap is maintained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BitmapPolicy {
    /// How large its writes are.
    pub writes: BitmapWrites,
    /// When bits are cleared.
    pub clearing: BitmapClearing,
}

/// A file that holds only a bitmap.
struct File<M> {
    name: String,
    member: Watched<M>,
}

impl<M: Member> From<Candidate<M>> for File<M> {
    fn from(Candidate { name, member }: Candidate<M>) -> Self {
        Self { name, member: Watched::new(member) }
    }
}

/// Where the bits are stored.
enum Home<M> {
    /// On every member, after its superblock.
    Members,
    /// In a file of their own.
    File(File<M>),
}

/// The write-intent bitmap of an array.
pub(crate) struct IntentBitmap<M> {
    bits: RefCell<Bits>,
    home: Home<M>,
    /// The bitmap failed or is being removed: nothing more is written to it.
    retired: Cell<bool>,
    policy: BitmapPolicy,
    /// Whether the header on the members declares their bits valid.
    is_valid: Cell<bool>,
    /// The oldest `events_cleared` on any member.
    cleared_everywhere: Cell<u64>,
    /// The worth of the writes since the last period, in the units of [`clearing`].
    written: Cell<u64>,
}

impl<M> IntentBitmap<M> {
    /// `image` is the superblock and bits, the members' bits united. `trusted` tells whether they are as new as the
    /// superblocks. `agreed` tells whether none of them needs a resync.
    fn new(
        home: Home<M>,
        header: BitmapSuper,
        image: Vec<u8>,
        trusted: bool,
        agreed: bool,
        policy: BitmapPolicy,
    ) -> Self {
        let cleared = header.events_cleared;
        let mut bits = Bits::new(header, image, agreed);
        if !trusted {
            bits.distrust();
        }
        Self {
            bits: RefCell::new(bits),
            home,
            retired: Cell::new(false),
            policy,
            is_valid: Cell::new(trusted),
            cleared_everywhere: Cell::new(cleared),
            written: Cell::new(0),
        }
    }

    /// Whether each member carries the bitmap, rather than a file.
    pub(crate) fn is_on_members(&self) -> bool {
        matches!(self.home, Home::Members)
    }

    /// The events before which bits may have been cleared. A member that left earlier may lack more than the bitmap
    /// names.
    pub(crate) fn events_cleared(&self) -> u64 {
        self.bits.borrow().header.events_cleared
    }

    /// The first part of a range, about `most` bytes of it, that may disagree since the array was last in use.
    pub(crate) fn next_needed(&self, range: Range<u64>, most: u64) -> Option<Range<u64>> {
        self.bits.borrow().next_needed(range, most)
    }

    /// The first part of a range, about `most` bytes of it, whose bits are set. A member that was away since
    /// `events_cleared` may lack it.
    pub(crate) fn next_set(&self, range: Range<u64>, most: u64) -> Option<Range<u64>> {
        self.bits.borrow().next_set(range, most)
    }

    /// The chunks that were named at assembly have been resynced.
    pub(crate) fn clear_needed(&self) {
        self.bits.borrow_mut().clear_needed();
    }

    /// The bitmap's present state.
    pub(crate) fn status(&self) -> BitmapStatus {
        let bits = self.bits.borrow();
        BitmapStatus {
            set: bits.set_count(),
            bits: bits.header.bits(),
            chunk_bytes: bits.header.chunk_bytes,
            pages: bits.used_bytes().div_ceil(PAGE_BYTES as u64),
            daemon_sleep_seconds: bits.header.daemon_sleep_seconds,
            file: match &self.home {
                Home::Members => None,
                Home::File(file) => Some(file.name.clone()),
            },
        }
    }
}

/// A write that the bitmap knows of. Its bits stay set while this lives.
pub(crate) struct WriteMark<M> {
    intent: Option<Rc<IntentBitmap<M>>>,
    bits: Range<u64>,
    bytes: u64,
}

impl<M> WriteMark<M> {
    fn is_stable(&self) -> bool {
        self.intent.as_ref().is_none_or(|intent| intent.bits.borrow().are_stable(self.bits.clone()))
    }
}

impl<M> Drop for WriteMark<M> {
    fn drop(&mut self) {
        if let Some(intent) = &self.intent {
            intent.bits.borrow_mut().end(self.bits.clone());
            intent.earn(self.bytes);
        }
    }
}

impl<M: Member, C: Clock> Metadata<M, C> {
    /// [`crate::Array::intended_ranges`].
    pub(crate) fn intended_ranges(&self) -> impl Iterator<Item = Range<u64>> {
        let intent = self.intent();
        let mut at = 0;
        std::iter::from_fn(move || {
            let range = intent.as_ref()?.bits.borrow().set_range_from(at)?;
            at = range.end;
            Some(range)
        })
    }
}

/// Whether a round of bitmap writes is flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flush {
    Yes,
    /// For cleared bits. A power failure may undo the clearing, which is safe.
    No,
}

/// A round that has not landed yet. Its pages wait again once this is dropped, also if the future of the round is.
struct PendingRound<'a> {
    bits: &'a RefCell<Bits>,
    round: Round,
}

impl Drop for PendingRound<'_> {
    fn drop(&mut self) {
        self.bits.borrow_mut().failed(std::mem::take(&mut self.round));
    }
}

impl<M: Member, C: Clock> Metadata<M, C> {
    /// Marks the array dirty and sets the bits of `range`, before data is written there. Both are then on stable
    /// storage on every member. The caller holds the result until every member has the data.
    pub(crate) async fn mark_write(&self, range: &Range<u64>) -> Result<WriteMark<M>, ArrayError> {
        // Recorded first, so that the round that marks the array dirty writes the bits as well.
        let mark = self.note(range);
        self.mark_dirty().await?;
        if !mutant!("intent-after-data") {
            self.record_intent(&mark).await?;
        }
        Ok(mark)
    }

    /// Sets the bits of a write in memory.
    fn note(&self, range: &Range<u64>) -> WriteMark<M> {
        let intent = self.intent();
        let bits = intent
            .as_ref()
            .map_or(0..0, |intent| intent.bits.borrow_mut().begin(self.core.geometry().sync_range(range)));
        WriteMark { intent, bits, bytes: range.end - range.start }
    }

    /// Sets bits in memory for a range of what the bitmap covers. The next round writes them.
    pub(crate) fn note_covered(&self, covered: Range<u64>) -> WriteMark<M> {
        let intent = self.intent();
        let bits = intent.as_ref().map_or(0..0, |intent| intent.bits.borrow_mut().begin(covered));
        WriteMark { intent, bits, bytes: 0 }
    }

    /// Returns when the bits are on stable storage on every member.
    async fn record_intent(&self, mark: &WriteMark<M>) -> Result<(), ArrayError> {
        if mark.is_stable() { Ok(()) } else { Box::pin(self.record_intent_now(mark)).await }
    }

    async fn record_intent_now(&self, mark: &WriteMark<M>) -> Result<(), ArrayError> {
        let guard = self.lock().await;
        // An earlier round may have written the bits already. A round that fails leaves fewer members for the next.
        while let Some(intent) = mark.intent.as_deref().filter(|_| !mark.is_stable()) {
            if intent.retired.get() {
                break;
            }
            self.core.check_not_failed()?;
            let round = intent.bits.borrow_mut().take_round(None);
            let failures = Self::refuse_without_room(self.write_round_of_bits(&guard, intent, round).await)?;
            self.eject(&guard, failures).await?;
        }
        Ok(())
    }

    /// Writes pages and makes their bits stable.
    async fn write_round_of_bits(
        &self,
        guard: &MetadataGuard<'_>,
        intent: &IntentBitmap<M>,
        round: Round,
    ) -> Failures<M> {
        let mut round = PendingRound { bits: &intent.bits, round };
        let failures = self.write_pages(guard, intent, &round.round, Flush::Yes).await;
        if failures.is_empty() {
            intent.bits.borrow_mut().landed(std::mem::take(&mut round.round));
        }
        failures
    }

    /// Writes the bitmap's superblock to every member, with the events of the superblocks that follow, and the bits
    /// that wait.
    pub(crate) async fn write_bitmap_header(&self, guard: &MetadataGuard<'_>, events: u64) -> Failures<M> {
        let Some(intent) = self.intent().filter(|intent| !intent.retired.get()) else { return Vec::new() };
        if !intent.is_valid.get() {
            // The bits first: a header that declares them valid must not be there before them.
            let round = intent.bits.borrow_mut().take_round(None);
            let failures = self.write_round_of_bits(guard, &intent, round).await;
            if !failures.is_empty() {
                return failures;
            }
        }
        let round = {
            let mut bits = intent.bits.borrow_mut();
            // Members with the present events have every bit that was ever cleared, so they can be re-added by the
            // bitmap. Older ones cannot.
            let cleared = self.core.is_whole().then(|| self.record.borrow().events);
            bits.set_events(events, cleared);
            bits.take_round(Some(0))
        };
        let failures = self.write_round_of_bits(guard, &intent, round).await;
        if failures.is_empty() {
            intent.is_valid.set(true);
            intent.cleared_everywhere.set(intent.bits.borrow().header.events_cleared);
        }
        failures
    }

    /// Registers the bitmap file, if there is one, with the array's observer.
    pub(crate) fn watch_file(&self, intent: &IntentBitmap<M>) {
        if let Home::File(File { name, member }) = &intent.home {
            self.core.watch(name, member);
        }
    }

    /// Writes the whole bitmap to a device that has none or an old one.
    pub(crate) async fn write_whole_bitmap(
        &self,
        _guard: &MetadataGuard<'_>,
        device: &Device<M>,
    ) -> Result<(), MemberError> {
        let Some(intent) = self.intent() else { return Ok(()) };
        let writes = {
            let everything = intent.bits.borrow().everything();
            self.cut(&intent, &everything).writes_to(device)
        };
        write_to(device, writes, Flush::Yes).await
    }

    fn cut<'a>(&'a self, intent: &'a IntentBitmap<M>, round: &'a Round) -> Cut<'a> {
        Cut {
            bits: intent.bits.borrow(),
            round,
            policy: intent.policy.writes,
            pool: &self.core.pool,
            blocks: Vec::new(),
        }
    }

    /// Goes on without a bitmap. The file that failed may already hold the events of the next round, so two rounds
    /// are owed.
    fn retire(&self, _guard: &MetadataGuard<'_>, intent: &IntentBitmap<M>) {
        intent.retired.set(true);
        self.intent.take();
        let mut record = self.record.borrow_mut();
        record.rounds_pending = record.rounds_pending.max(ROUNDS_TO_EJECT);
    }

    /// One write for each page and member, all at once.
    async fn write_pages(
        &self,
        guard: &MetadataGuard<'_>,
        intent: &IntentBitmap<M>,
        round: &Round,
        flush: Flush,
    ) -> Failures<M> {
        if round.is_empty() {
            return Vec::new();
        }
        if let Home::File(file) = &intent.home {
            let room = Room { at: 0, bytes: file.member.limits().bytes };
            let writes = self.cut(intent, round).writes(file.member.limits(), room);
            if write_all(&file.member, writes, flush).await.is_err() {
                self.retire(guard, intent);
            }
            return Vec::new();
        }
        let active = |device: &Rc<Device<M>>| device.is_active().then(|| device.clone());
        let mut devices: Vec<_> = self.core.roster.slots.borrow().iter().flatten().filter_map(active).collect();
        devices.extend(self.core.successors().into_iter().map(|(_, device)| device));
        let writes: Vec<_> = {
            let mut cut = self.cut(intent, round);
            devices.iter().map(|device| cut.writes_to(device)).collect()
        };
        let writes = devices.iter().zip(writes).map(|(device, writes)| write_to(device, writes, flush));
        let results = join_all(writes).await;
        devices.iter().cloned().zip(results).filter_map(|(device, result)| Some((device, result.err()?))).collect()
    }
}

/// As [`write_all`], within the members' timeout.
async fn write_to<M: Member>(
    device: &Device<M>,
    writes: Vec<(MemberByte, Block)>,
    flush: Flush,
) -> Result<(), MemberError> {
    let place = (device.superblock.borrow().bitmap_at().unwrap_or(MemberByte(0)), 0);
    device.with_timeout(Operation::Write, place, pin!(write_all(&device.member, writes, flush))).await.flatten()
}

async fn write_all<M: Member>(
    member: &Watched<M>,
    writes: Vec<(MemberByte, Block)>,
    flush: Flush,
) -> Result<(), MemberError> {
    let written = join_all(writes.into_iter().map(|(at, block)| member.write(at, block, Why::Intent))).await;
    written.into_iter().collect::<Result<(), _>>()?;
    if flush == Flush::Yes && !mutant!("bit-flush-lost") { member.flush(Why::Intent).await } else { Ok(()) }
}

/// Cuts a round into writes. Members with the same limits share blocks.
struct Cut<'a> {
    bits: Ref<'a, Bits>,
    round: &'a Round,
    policy: BitmapWrites,
    pool: &'a crate::base::buffer::Pool,
    blocks: Vec<(Range<u64>, Block)>,
}

impl Cut<'_> {
    fn writes_to<M: Member>(&mut self, device: &Device<M>) -> Vec<(MemberByte, Block)> {
        let limits = device.member.limits();
        let superblock = device.superblock.borrow();
        let (Some(at), Some(bytes)) = (superblock.bitmap_at(), superblock.bitmap_room(limits.bytes)) else {
            return Vec::new();
        };
        self.writes(limits, Room { at: at.0, bytes })
    }

    fn writes(&mut self, limits: &Limits, room: Room) -> Vec<(MemberByte, Block)> {
        let spans = spans(self.round.pages(), self.bits.used_bytes(), room, limits, self.policy);
        spans.into_iter().map(|span| (MemberByte(room.at + span.start), self.block(span))).collect()
    }

    fn block(&mut self, span: Range<u64>) -> Block {
        if let Some((_, block)) = self.blocks.iter().find(|(range, _)| *range == span) {
            return block.clone();
        }
        let mut buffer = self.pool.take((span.end - span.start) as usize);
        self.bits.copy_to(span.start as usize, &mut buffer);
        let block = buffer.freeze();
        self.blocks.push((span, block.clone()));
        block
    }
}

impl<M: Member, C: Clock> Metadata<M, C> {
    /// The write-intent bitmap, when the array has one.
    pub(crate) fn intent(&self) -> Option<Rc<IntentBitmap<M>>> {
        self.intent.borrow().clone()
    }
}
