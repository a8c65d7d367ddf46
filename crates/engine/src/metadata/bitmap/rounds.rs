//! The rounds in which bits are set: what is written, in which order, and to which members.
//!
//! All writes of the bitmap happen under the metadata lock, one round after the other. So a bit that is set again is
//! written only after the round that cleared it has ended. Writes that wait for the lock share the next round (group
//! commit): one write for each page and member, then a flush.

use crate::base::buffer::{Block, Pool};
use crate::base::join::join_all;
use crate::core::metadata_lock::MetadataGuard;
use crate::device::{Device, Failures};
use crate::metadata::bitmap::bits::{Bits, Round};
use crate::metadata::bitmap::intent::{File, Home, IntentBitmap, WriteMark};
use crate::metadata::bitmap::sizing::{BitmapWrites, Room, spans};
use crate::metadata::record::ROUNDS_TO_EJECT;
use crate::metadata::state::Metadata;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::{Limits, Member, MemberError, Operation};
use crate::seam::observe::{Watched, Why};
use format::units::MemberByte;
use std::cell::{Ref, RefCell};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;

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
    /// Sets the bits of a write in memory. This needs no metadata lock: a round takes the bits that are set when it
    /// begins, and a mark is stable only after a round that has them.
    pub(in crate::metadata) fn note(&self, range: &Range<u64>) -> WriteMark<M> {
        let intent = self.intent();
        let bits = intent
            .as_ref()
            .map_or(0..0, |intent| intent.bits.borrow_mut().begin(self.core.geometry().sync_range(range)));
        WriteMark { intent, bits, bytes: range.end - range.start }
    }

    /// Sets bits in memory for a range of what the bitmap covers, as [`Self::note`] does. The next round writes them.
    pub(crate) fn note_covered(&self, covered: Range<u64>) -> WriteMark<M> {
        let intent = self.intent();
        let bits = intent.as_ref().map_or(0..0, |intent| intent.bits.borrow_mut().begin(covered));
        WriteMark { intent, bits, bytes: 0 }
    }

    /// Returns when the bits are on stable storage on every member.
    pub(in crate::metadata) async fn record_intent(&self, mark: &WriteMark<M>) -> Result<(), ArrayError> {
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
    pub(super) async fn write_round_of_bits(
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
            let cleared = self.core.is_whole().then(|| self.record().events);
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
    /// are pending.
    fn retire(&self, guard: &MetadataGuard<'_>, intent: &IntentBitmap<M>) {
        intent.retired.set(true);
        self.set_intent(guard, None);
        let mut record = self.record_mut(guard);
        record.rounds_pending = record.rounds_pending.max(ROUNDS_TO_EJECT);
    }

    /// One write for each page and member, all at once.
    pub(super) async fn write_pages(
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
    pool: &'a Pool,
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
