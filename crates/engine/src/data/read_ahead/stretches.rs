//! What was read ahead in one array, and what is being read: bookkeeping, without a member.
//!
//! [`super`] says what may be read ahead, and reads it.

use crate::base::buffer::{ALIGNMENT, Buffer};
use crate::core::personality::personality;
use crate::data::read_ahead::streams::ReadStreams;
use crate::data::reading::{EndedRead, Reading};
use format::geometry::Geometry;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::pin::Pin;
use std::task::Waker;

/// A request for at least this fraction of a stripe gets the stripe's memory instead of a copy.
const SHARE_TO_HAND_OVER: u64 = 64;

pub(super) type Reads = Pin<Box<dyn Future<Output = Vec<EndedRead>>>>;

/// Names a request that waits.
pub(super) type WaiterId = u64;

/// How far a stretch has come.
pub(super) enum StretchPhase {
    /// Members are being read.
    UnderWay {
        reading: Box<Reading>,
        reads: Reads,
        /// The request that polls the reads.
        driver: Option<WaiterId>,
        /// All requests that wait, the driver included. They are woken when the reads end or are abandoned; nothing
        /// else wakes the driver then.
        waiting: Vec<(WaiterId, Waker)>,
    },
    /// The data that is left, in the array's order.
    There {
        data: Buffer,
        /// How much of it was copied to requests.
        served: u64,
    },
}

/// A stripe, or the rest of one.
pub(super) struct Stretch {
    pub(super) stripe: u64,
    /// The first byte, in the array.
    pub(super) at: u64,
    /// The end of the stripe, in the array.
    pub(super) end: u64,
    /// Memory that it takes.
    pub(super) bytes: usize,
    pub(super) phase: StretchPhase,
}

pub(super) struct ReadAheadState {
    pub(super) streams: ReadStreams,
    /// Oldest first.
    pub(super) stretches: Vec<Stretch>,
    /// Memory that all stretches take.
    pub(super) bytes: usize,
}

/// What was read ahead in one array.
pub(crate) struct ReadAhead {
    pub(super) bytes_max: usize,
    pub(super) state: RefCell<ReadAheadState>,
    pub(super) next_waiter: Cell<WaiterId>,
}

/// The answer to a request for data that may have been read ahead, with the request's buffer.
pub(crate) enum FromMemory {
    /// The buffer is filled.
    There(Buffer),
    /// Members are being read for it, or have to be. Only the general path can serve it.
    UnderWay(Buffer),
    /// Nothing was read ahead for it.
    Nothing(Buffer),
}

impl ReadAhead {
    /// For an array of this geometry, with at most `bytes_max` of memory.
    pub(crate) fn new(geometry: &Geometry, bytes_max: usize) -> Self {
        let stripe_bytes = personality(geometry).stripe().map_or(u64::MAX, |stripe| stripe.bytes);
        let streams = ReadStreams::new(stripe_bytes);
        let state = RefCell::new(ReadAheadState { streams, stretches: Vec::new(), bytes: 0 });
        Self { bytes_max, state, next_waiter: Cell::new(0) }
    }

    /// Serves the array's bytes `at..at + into.len()`, if they were read ahead. They are copied; or, if no other part
    /// of `into`'s memory is in use, other memory of the pool is handed over.
    pub(crate) fn serve(&self, at: u64, into: Buffer) -> FromMemory {
        self.state.borrow_mut().serve(at, into)
    }

    /// Drops stripes that are about to change.
    pub(crate) fn invalidate(&self, stripes: Range<u64>) {
        if !self.state.borrow().stretches.is_empty() {
            self.drop_stretches(|stretch| stripes.contains(&stretch.stripe));
        }
    }

    /// Drops everything, including reads that are under way.
    pub(crate) fn clear(&self) {
        self.drop_stretches(|_| true);
    }

    fn drop_stretches(&self, is_meant: impl Fn(&Stretch) -> bool) {
        let mut gone = Vec::new();
        {
            let state = &mut *self.state.borrow_mut();
            while let Some(index) = state.stretches.iter().position(&is_meant) {
                gone.push(state.remove(index));
            }
        }
        for Stretch { phase, .. } in gone {
            if let StretchPhase::UnderWay { waiting, .. } = phase {
                waiting.into_iter().for_each(|(_, waker)| waker.wake());
            }
        }
    }
}

impl ReadAheadState {
    pub(super) fn find(&mut self, stripe: u64) -> Option<(usize, &mut Stretch)> {
        self.stretches.iter_mut().enumerate().find(|(_, stretch)| stretch.stripe == stripe)
    }

    pub(super) fn remove(&mut self, index: usize) -> Stretch {
        let stretch = self.stretches.remove(index);
        self.bytes -= stretch.bytes;
        stretch
    }

    fn serve(&mut self, at: u64, mut into: Buffer) -> FromMemory {
        let bytes = into.len() as u64;
        let mut stretches = self.stretches.iter_mut().enumerate();
        let Some((index, stretch)) = stretches.find(|(_, stretch)| stretch.at <= at && at < stretch.end) else {
            return FromMemory::Nothing(into);
        };
        let StretchPhase::There { data, served } = &mut stretch.phase else { return FromMemory::UnderWay(into) };
        let start = at - stretch.at;
        if start + bytes > data.len() as u64 {
            return FromMemory::Nothing(into);
        }
        let is_aligned = (at | bytes).is_multiple_of(ALIGNMENT as u64);
        if start == 0 && is_aligned && bytes >= data.len() as u64 / SHARE_TO_HAND_OVER && into.is_alone() {
            stretch.at += bytes;
            into = data.split_to(bytes as usize);
        } else {
            into.copy_from_slice(&data[start as usize..(start + bytes) as usize]);
            *served += bytes;
        }
        let (is_over, left) = (*served >= data.len() as u64, data.len());
        self.bytes -= std::mem::replace(&mut stretch.bytes, left) - left;
        if is_over {
            self.remove(index);
        }
        FromMemory::There(into)
    }

    /// Makes room for `bytes` more. Reads that are under way are left alone.
    pub(super) fn make_room(&mut self, bytes: usize, bytes_max: usize) -> bool {
        while self.bytes + bytes > bytes_max {
            let is_there = |stretch: &Stretch| matches!(stretch.phase, StretchPhase::There { .. });
            let Some(oldest) = self.stretches.iter().position(is_there) else { return false };
            self.remove(oldest);
        }
        true
    }
}
