//! The write-intent bitmap of an array as an object: its bits, where they are stored, and marks of writes under way.
//!
//! Nothing is read or written here.

use crate::base::lazy_marks::Earned;
use crate::base::range_set::Ranges;
use crate::metadata::bitmap::bits::Bits;
use crate::metadata::bitmap::policy::BitmapPolicy;
use crate::metadata::bitmap::sizing::PAGE_BYTES;
use crate::seam::member::{Candidate, Member};
use crate::seam::observe::Watched;
use format::bitmap::Kind;
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// The write-intent bitmap of a running array.
#[derive(Debug, Clone, Serialize)]
pub struct BitmapStatus {
    /// Chunks whose bits are set.
    pub set: u64,
    /// Number of chunks.
    pub bits: u64,
    /// Bytes of what the bitmap covers that were never written to, of a lockless bitmap; `None` of others.
    pub unwritten_bytes: Option<u64>,
    /// Bytes of a chunk, which one bit covers.
    pub chunk_bytes: u64,
    /// Pages of 4 KiB that the bitmap takes.
    pub pages: u64,
    /// Seconds without a write after which a chunk's bit may be cleared.
    pub daemon_sleep_seconds: u32,
    /// The file that holds the bitmap; `None` if the members hold it.
    pub file: Option<String>,
}

/// A file that holds only a bitmap.
pub(super) struct File<M> {
    pub(super) name: String,
    pub(super) member: Watched<M>,
}

impl<M: Member> From<Candidate<M>> for File<M> {
    fn from(Candidate { name, member }: Candidate<M>) -> Self {
        Self { name, member: Watched::new(member) }
    }
}

/// Where the bits are stored.
pub(super) enum Home<M> {
    /// On every member, after its superblock.
    Members,
    /// In a file of their own.
    File(File<M>),
}

/// The write-intent bitmap of an array.
pub(crate) struct IntentBitmap<M> {
    pub(super) bits: RefCell<Bits>,
    pub(super) home: Home<M>,
    /// The bitmap failed or is being removed: nothing more is written to it.
    pub(super) retired: Cell<bool>,
    pub(super) policy: BitmapPolicy,
    /// Whether the header on the members declares their bits valid.
    pub(super) is_valid: Cell<bool>,
    /// The oldest `events_cleared` on any member.
    pub(super) cleared_everywhere: Cell<u64>,
    /// What the writes since the last period have paid for clearing bits.
    pub(super) earned: Earned,
}

impl<M> IntentBitmap<M> {
    /// `trusted` tells whether the bits are as new as the superblocks.
    pub(super) fn new(home: Home<M>, mut bits: Bits, trusted: bool, policy: BitmapPolicy) -> Self {
        let cleared = bits.header.events_cleared;
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
            earned: Earned::default(),
        }
    }

    /// Whether each member carries the bitmap, rather than a file.
    pub(crate) fn is_on_members(&self) -> bool {
        matches!(self.home, Home::Members)
    }

    /// Its length on a member or in its file.
    pub(crate) fn bytes(&self) -> u64 {
        self.bits.borrow().header.bytes_on_disk(u64::MAX)
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

    /// All that may disagree since the array was last in use; `None` if the bits do not tell.
    pub(crate) fn needed(&self) -> Option<Ranges> {
        self.bits.borrow().needed()
    }

    /// The first part of a range, about `most` bytes of it, whose bits are set. A member that was away since
    /// `events_cleared` may lack it.
    pub(crate) fn next_set(&self, range: Range<u64>, most: u64) -> Option<Range<u64>> {
        self.bits.borrow().next_set(range, most)
    }

    /// The first part, at or after this byte of what the bitmap covers, that was not built in a chunk that was written.
    pub(crate) fn next_half_built(&self, from: u64) -> Option<Range<u64>> {
        self.bits.borrow().next_half_built(from)
    }

    /// Whether it is a lockless one.
    pub(crate) fn is_lockless(&self) -> bool {
        self.bits.borrow().header.kind == Kind::Lockless
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
            unwritten_bytes: (bits.header.kind == Kind::Lockless).then(|| bits.unwritten_bytes()),
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
    pub(super) intent: Option<Rc<IntentBitmap<M>>>,
    pub(super) bits: Range<u64>,
    pub(super) bytes: u64,
}

impl<M> WriteMark<M> {
    pub(super) fn is_stable(&self) -> bool {
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
