//! The write-intent bitmap as this engine keeps it: a bit is on stable storage
//! on every member before the first write to what it covers.
//!
//! * [`bits`]: the bitmap in memory. [`sizing`]: how large its writes are.
//! * [`load`]: the members' bitmaps, united. [`clearing`]: bits taken back.
//! * [`change`]: a bitmap added and removed while the array is in use. [`named`]: what a member's own names that returns.
//! * Here: the rounds in which bits are set.
//!
//! The bits are on every member, or in one file beside them that is a
//! [`Member`] like any other here. An array whose file fails goes on without: its
//! superblocks move past the file's events, so that the file is never believed again.
//!
//! All writes of the bitmap are made under the metadata lock, one round after
//! the other: so a bit that is set again is written after the round that
//! cleared it was over. Those that wait for the lock share the next round
//! (group commit): one write for each page and member, then a flush.
//! Format: [`format::bitmap`].

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
use crate::device::{Device, Failures};
use crate::metadata::Metadata;
use crate::metadata::superblocks::ROUNDS_TO_LEAVE_BEHIND;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::{Candidate, Limits, Member, MemberError, Operation};
use crate::seam::observe::{Watched, Why};
use bits::{Bits, Round};
use format::bitmap::BitmapSuper;
use format::geometry::{Geometry, Level};
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
    /// Chunks noted as written to.
    pub set: u64,
    /// Chunks in all.
    pub bits: u64,
    /// Bytes that a bit stands for.
    pub chunk_bytes: u64,
    /// Pages of 4 KiB that it takes.
    pub pages: u64,
    /// Seconds that a chunk is left alone before its bit may be cleared.
    pub daemon_sleep_seconds: u32,
    /// The file that holds it; `None` when the members do.
    pub file: Option<String>,
}

/// md's page, in which bitmaps are written.
const PAGE_BYTES: usize = 4096;

/// How the write-intent bitmap is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BitmapPolicy {
    /// How large its writes are.
    pub writes: BitmapWrites,
    /// When bits are cleared.
    pub clearing: BitmapClearing,
}

/// A file for bits alone.
struct File<M> {
    name: String,
    member: Watched<M>,
}

impl<M: Member> From<Candidate<M>> for File<M> {
    fn from(Candidate { name, member }: Candidate<M>) -> Self {
        Self { name, member: Watched::new(member) }
    }
}

/// Where the bits are kept.
enum Home<M> {
    /// On every member, behind its superblock.
    Members,
    /// In a file of their own.
    File(File<M>),
}

pub(crate) struct Intent<M> {
    bits: RefCell<Bits>,
    home: Home<M>,
    /// No longer kept up to date, because it failed or is being removed: nothing is written to it.
    retired: Cell<bool>,
    policy: BitmapPolicy,
    /// Whether what the members hold as a header vouches for the bits there.
    vouched: Cell<bool>,
    /// The oldest `events_cleared` that any member holds.
    cleared_everywhere: Cell<u64>,
    /// What writes since the last period were worth, in [`clearing`]'s units.
    written: Cell<u64>,
}

impl<M> Intent<M> {
    /// `image` is superblock and bits, the members' bits united; `trusted` is
    /// whether they are as new as the superblocks; `agreed`, whether they name nothing that needs a resync.
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
            vouched: Cell::new(trusted),
            cleared_everywhere: Cell::new(cleared),
            written: Cell::new(0),
        }
    }

    /// Whether each member carries it, and not a file beside them.
    pub(crate) fn is_on_members(&self) -> bool {
        matches!(self.home, Home::Members)
    }

    /// Events before which bits may have been cleared: who left earlier may lack more than the bitmap names.
    pub(crate) fn events_cleared(&self) -> u64 {
        self.bits.borrow().header.events_cleared
    }

    /// The first part of a range, about `most` bytes of it, that may be in disagreement since the array was last in use.
    pub(crate) fn next_needed(&self, range: Range<u64>, most: u64) -> Option<Range<u64>> {
        self.bits.borrow().next_needed(range, most)
    }

    /// The first part of a range, about `most` bytes of it, whose bits are set: what a member that was away
    /// since `events_cleared` may lack.
    pub(crate) fn next_set(&self, range: Range<u64>, most: u64) -> Option<Range<u64>> {
        self.bits.borrow().next_set(range, most)
    }

    /// What was found set has been brought into agreement.
    pub(crate) fn forget_found(&self) {
        self.bits.borrow_mut().forget_needed();
    }

    /// How it is now.
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

/// A write that the bitmap knows of: its bits stay set while this lives.
pub(crate) struct Intended<M> {
    intent: Option<Rc<Intent<M>>>,
    bits: Range<u64>,
    bytes: u64,
}

impl<M> Intended<M> {
    fn is_stable(&self) -> bool {
        self.intent.as_ref().is_none_or(|intent| intent.bits.borrow().are_stable(self.bits.clone()))
    }
}

impl<M> Drop for Intended<M> {
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
    /// For bits that are cleared: lost with power, they stay set, which is safe.
    No,
}

impl<M: Member, C: Clock> Metadata<M, C> {
    /// The part of what the bitmap covers that a write to `range` of the array touches.
    pub(crate) fn covered(&self, range: &Range<u64>) -> Range<u64> {
        match self.core.geometry() {
            Geometry::Parity(parity) => {
                let (chunk, width) = (parity.chunk_bytes(), parity.stripe_bytes());
                range.start / width * chunk..range.end.div_ceil(width) * chunk
            }
            Geometry::Mapping(mapping) => {
                debug_assert!(matches!(mapping.level(), Level::Raid1 | Level::Raid10));
                range.clone() // level 1: component and array are one; level 10: bits cover the array
            }
        }
    }

    /// Before data is written to `range` of the array: it is marked dirty and
    /// the bits are set, on stable storage on every member. To be held until
    /// every member has the data.
    pub(crate) async fn mark_write(&self, range: &Range<u64>) -> Result<Intended<M>, ArrayError> {
        // Noted first, so that the round which marks the array dirty takes the bits along.
        let intended = self.note(range);
        self.mark_dirty().await?;
        if !mutant!("intent-after-data") {
            self.record_intent(&intended).await?;
        }
        Ok(intended)
    }

    fn note(&self, range: &Range<u64>) -> Intended<M> {
        let intent = self.intent();
        let bits = intent.as_ref().map_or(0..0, |intent| intent.bits.borrow_mut().begin(self.covered(range)));
        Intended { intent, bits, bytes: range.end - range.start }
    }

    /// Notes a long write to a range of what the bitmap covers, as [`Metadata::mark_write`] does first.
    pub(crate) fn note_covered(&self, covered: Range<u64>) -> Intended<M> {
        let intent = self.intent();
        let bits = intent.as_ref().map_or(0..0, |intent| intent.bits.borrow_mut().begin(covered));
        Intended { intent, bits, bytes: 0 }
    }

    /// Returns when the bits are on stable storage on every member.
    async fn record_intent(&self, intended: &Intended<M>) -> Result<(), ArrayError> {
        if intended.is_stable() { Ok(()) } else { Box::pin(self.record_intent_now(intended)).await }
    }

    async fn record_intent_now(&self, intended: &Intended<M>) -> Result<(), ArrayError> {
        let _lock = self.lock.exclusive(0..1).await;
        // The round before this one may have taken the bits along; one that fails leaves fewer members.
        while let Some(intent) = intended.intent.as_deref().filter(|_| !intended.is_stable()) {
            if intent.retired.get() {
                break;
            }
            self.core.check_unbroken()?;
            let round = intent.bits.borrow_mut().take_round(None);
            let failures = Self::without_room(self.write_round_of_bits(intent, round).await)?;
            self.leave_behind(failures).await?;
        }
        Ok(())
    }

    /// Writes pages and makes their bits stable. The caller holds the metadata lock.
    async fn write_round_of_bits(&self, intent: &Intent<M>, round: Round) -> Failures<M> {
        let failures = self.write_pages(intent, &round, Flush::Yes).await;
        let mut bits = intent.bits.borrow_mut();
        if failures.is_empty() {
            bits.landed(round)
        } else {
            bits.failed(round)
        }
        failures
    }

    /// Puts the bitmap's superblock on every member with the events of the
    /// superblocks that follow it, and the bits that wait. The caller holds the metadata lock.
    pub(crate) async fn write_bitmap_header(&self, events: u64) -> Failures<M> {
        let Some(intent) = self.intent().filter(|intent| !intent.retired.get()) else { return Vec::new() };
        if !intent.vouched.get() {
            // The bits first: a header that calls them current must not be there before them.
            let round = intent.bits.borrow_mut().take_round(None);
            let failures = self.write_round_of_bits(&intent, round).await;
            if !failures.is_empty() {
                return failures;
            }
        }
        let round = {
            let mut bits = intent.bits.borrow_mut();
            // Members of the present events have all that was ever cleared, so
            // they can be re-added by the bitmap; none older than these can.
            let cleared = self.core.health.whole.get().then(|| self.record.borrow().events);
            bits.set_events(events, cleared);
            bits.take_round(Some(0))
        };
        let failures = self.write_round_of_bits(&intent, round).await;
        if failures.is_empty() {
            intent.vouched.set(true);
            intent.cleared_everywhere.set(intent.bits.borrow().header.events_cleared);
        }
        failures
    }

    /// Has the array's observer told of the file that holds the bits, where one does.
    pub(crate) fn watch_file(&self, intent: &Intent<M>) {
        if let Home::File(File { name, member }) = &intent.home {
            self.core.watch(name, member);
        }
    }

    /// Puts the whole bitmap on a device that has none of it, or an old one.
    /// The caller holds the metadata lock.
    pub(crate) async fn write_whole_bitmap(&self, device: &Device<M>) -> Result<(), MemberError> {
        let Some(intent) = self.intent() else { return Ok(()) };
        let writes = {
            let everything = intent.bits.borrow().everything();
            self.cut(&intent, &everything).writes_to(device)
        };
        write_to(device, writes, Flush::Yes).await
    }

    fn cut<'a>(&'a self, intent: &'a Intent<M>, round: &'a Round) -> Cut<'a> {
        Cut {
            bits: intent.bits.borrow(),
            round,
            policy: intent.policy.writes,
            pool: &self.core.pool,
            blocks: Vec::new(),
        }
    }

    /// The array goes on without a bitmap. What failed may have been written in part, with
    /// the events of the next round: so two rounds are owed.
    fn retire(&self, intent: &Intent<M>) {
        intent.retired.set(true);
        self.intent.take();
        let mut record = self.record.borrow_mut();
        record.owed = record.owed.max(ROUNDS_TO_LEAVE_BEHIND);
    }

    /// One write for each page and member, all at once.
    async fn write_pages(&self, intent: &Intent<M>, round: &Round, flush: Flush) -> Failures<M> {
        if round.is_empty() {
            return Vec::new();
        }
        if let Home::File(file) = &intent.home {
            let room = Room { at: 0, bytes: file.member.limits().bytes };
            let writes = self.cut(intent, round).writes(file.member.limits(), room);
            if write_all(&file.member, writes, flush).await.is_err() {
                self.retire(intent);
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

/// As [`write_all`], within the time that members have.
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

/// Cuts a round into writes; members with the same needs share their blocks.
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
    pub(crate) fn intent(&self) -> Option<Rc<Intent<M>>> {
        self.intent.borrow().clone()
    }
}
