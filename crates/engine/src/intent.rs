//! The write-intent bitmap as this engine keeps it: a bit is on stable storage
//! on every member before the first write to what it covers.
//!
//! Bits are set and stay set until the array is stopped clean and whole; then
//! those that were set here are cleared again. Bits found set are left alone,
//! unless a resync has been over what they name.
//! Requests that wait at the same time share one write of the page (group
//! commit). A bitmap that was out of date is taken as all set.
//! Format: [`format::bitmap`].

use crate::array::Inner;
use crate::buffer::Block;
use crate::clock::Clock;
use crate::device::Device;
use crate::error::ArrayError;
use crate::member::{Member, MemberError};
use format::bitmap::{self, BitmapSuper, SUPER_BYTES};
use format::geometry::{Geometry, Level};
use format::units::MemberByte;
use futures_util::future::join_all;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

/// Bytes in which bitmaps are written: md's page, and no less than what drives
/// with 4 KiB sectors write at once.
const PAGE_BYTES: usize = 4096;

pub(crate) struct Intent(RefCell<State>);

struct State {
    header: BitmapSuper,
    /// Superblock and bits as they should be on every member.
    image: Vec<u8>,
    /// The bits as they were found.
    found: Vec<u8>,
    /// Pages with bits that are not yet on stable storage.
    pending: BTreeSet<usize>,
}

impl Intent {
    /// `image` is superblock and bits, the members' bits united. `trusted` is
    /// whether the bitmap is as new as the superblocks.
    pub(crate) fn new(header: BitmapSuper, mut image: Vec<u8>, trusted: bool) -> Self {
        let mut pending = BTreeSet::new();
        if !trusted {
            bitmap::set_range(&mut image[SUPER_BYTES..], 0..header.bits());
            pending.extend(0..image.len().div_ceil(PAGE_BYTES));
        }
        let found = image.clone();
        Self(RefCell::new(State { header, image, found, pending }))
    }

    /// Sets the bits of a range of the space that the bitmap covers; true when
    /// any of them is not on stable storage yet.
    fn set(&self, range: Range<u64>) -> bool {
        let state = &mut *self.0.borrow_mut();
        let bits = state.header.bits_of(range);
        let map = &mut state.image[SUPER_BYTES..];
        let pages = page_of(bits.start)..page_of(bits.end.max(1) - 1) + 1;
        if !bits.clone().all(|bit| bitmap::is_set(map, bit)) {
            bitmap::set_range(map, bits);
            state.pending.extend(pages.clone());
        }
        state.pending.range(pages).next().is_some()
    }

    /// Whether nothing of the range was being written when the array was last
    /// in use: no bit of it was found set.
    pub(crate) fn rules_out(&self, range: Range<u64>) -> bool {
        let state = self.0.borrow();
        !state.header.bits_of(range).any(|bit| bitmap::is_set(&state.found[SUPER_BYTES..], bit))
    }

    /// What was found set has been brought into agreement, and is cleared with the rest.
    pub(crate) fn forget_found(&self) {
        self.0.borrow_mut().found[SUPER_BYTES..].fill(0);
    }

    fn take_pending(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.borrow_mut().pending).into_iter().collect()
    }

    fn page(&self, index: usize) -> (usize, Vec<u8>) {
        let state = self.0.borrow();
        let start = index * PAGE_BYTES;
        (start, state.image[start..state.image.len().min(start + PAGE_BYTES)].to_vec())
    }

    /// Bits set and bits in all, for a person.
    pub(crate) fn tally(&self) -> (u64, u64) {
        let state = self.0.borrow();
        let bits = state.header.bits();
        ((0..bits).filter(|&bit| bitmap::is_set(&state.image[SUPER_BYTES..], bit)).count() as u64, bits)
    }

    /// The header keeps step with the superblocks.
    fn set_events(&self, events: u64, cleared: Option<u64>) {
        let state = &mut *self.0.borrow_mut();
        state.header.events = events;
        if let Some(cleared) = cleared {
            state.header.events_cleared = cleared;
        }
        let header = state.header.encode();
        state.image[..SUPER_BYTES].copy_from_slice(&header);
    }

    fn has_more_than_found(&self) -> bool {
        let state = self.0.borrow();
        state.image[SUPER_BYTES..] != state.found[SUPER_BYTES..]
    }

    /// Goes back to the bits that were found; the pages that differ are pending then.
    fn revert(&self) {
        let state = &mut *self.0.borrow_mut();
        for start in (0..state.image.len()).step_by(PAGE_BYTES) {
            let bits = start.max(SUPER_BYTES)..state.image.len().min(start + PAGE_BYTES);
            if state.image[bits.clone()] != state.found[bits.clone()] {
                state.image[bits.clone()].copy_from_slice(&state.found[bits]);
                state.pending.insert(start / PAGE_BYTES);
            }
        }
    }
}

fn page_of(bit: u64) -> usize {
    (SUPER_BYTES + (bit / 8) as usize) / PAGE_BYTES
}

/// Members that failed, and how.
pub(crate) type Failures<M> = Vec<(Rc<Device<M>>, MemberError)>;

impl<M: Member, C: Clock> Inner<M, C> {
    /// The part of what the bitmap covers that a write to `range` of the array touches.
    pub(crate) fn covered(&self, range: &Range<u64>) -> Range<u64> {
        match &self.geometry {
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

    /// Returns when the bits of `range` are on stable storage on every member.
    pub(crate) async fn record_intent(&self, range: &Range<u64>) -> Result<(), ArrayError> {
        let Some(intent) = &self.intent else { return Ok(()) };
        if !intent.set(self.covered(range)) {
            return Ok(());
        }
        let _lock = self.metadata.exclusive(0..1).await;
        let failures = self.write_bitmap_pages(intent, intent.take_pending()).await;
        if failures.is_empty() { Ok(()) } else { self.leave_behind(failures).await }
    }

    /// Puts the bitmap's superblock on every member with the events of the
    /// superblocks that follow it. The caller holds the metadata lock.
    pub(crate) async fn write_bitmap_header(&self, events: u64) -> Failures<M> {
        let Some(intent) = &self.intent else { return Vec::new() };
        // The bits first: a header that calls them current must not be there before them.
        let failures = self.write_bitmap_pages(intent, intent.take_pending()).await;
        if !failures.is_empty() {
            return failures;
        }
        intent.set_events(events, None);
        self.write_bitmap_pages(intent, vec![0]).await
    }

    /// Clears what was set here. Only for an array that is whole and already
    /// marked clean. The caller holds the metadata lock.
    pub(crate) async fn clear_intent(&self, events: u64) -> Failures<M> {
        let Some(intent) = self.intent.as_ref().filter(|intent| intent.has_more_than_found()) else {
            return Vec::new();
        };
        // First the header, so that a member that was away while bits are
        // cleared can never be re-added by the bitmap alone.
        intent.set_events(events, Some(events));
        let failures = self.write_bitmap_pages(intent, vec![0]).await;
        if !failures.is_empty() {
            return failures;
        }
        intent.revert();
        self.write_bitmap_pages(intent, intent.take_pending()).await
    }

    async fn write_bitmap_pages(&self, intent: &Intent, pages: Vec<usize>) -> Failures<M> {
        let pages: Vec<(usize, Block)> = pages
            .into_iter()
            .map(|index| intent.page(index))
            .map(|(start, bytes)| (start, self.pool.copy_of(&bytes)))
            .collect();
        if pages.is_empty() {
            return Vec::new();
        }
        let devices: Vec<_> = self.slots.borrow().iter().flatten().filter(|d| d.is_active()).cloned().collect();
        let results = join_all(devices.iter().map(|device| write_pages(device, &pages))).await;
        devices.into_iter().zip(results).filter_map(|(device, result)| Some((device, result.err()?))).collect()
    }
}

async fn write_pages<M: Member>(device: &Device<M>, pages: &[(usize, Block)]) -> Result<(), MemberError> {
    let Some(at) = device.superblock.borrow().bitmap_at() else { return Ok(()) };
    for (start, page) in pages {
        device.member.write(MemberByte(at.0 + *start as u64), page.clone()).await?;
    }
    device.member.flush().await
}
