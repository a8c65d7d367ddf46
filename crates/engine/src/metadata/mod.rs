//! The array's metadata on the members: superblocks and the write-intent bitmap, and the order in which they change.
//!
//! The data path reaches it only through [`crate::core::authority::Authority`]. It never reads or writes data.

pub(crate) mod bitmap;
pub(crate) mod superblocks;

use crate::base::notify::Signal;
use crate::core::Core;
use crate::core::metadata_lock::{MetadataGuard, MetadataLock};
use crate::metadata::bitmap::IntentBitmap;
use crate::metadata::superblocks::Record;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use std::cell::RefCell;
use std::rc::Rc;

/// Superblocks and bitmap of an array.
pub(crate) struct Metadata<M: Member, C: Clock> {
    pub(crate) core: Rc<Core<M, C>>,
    /// What the superblocks say or are about to say, and the rounds that are pending.
    pub(crate) record: RefCell<Record>,
    /// Raised when the array is marked dirty.
    pub(crate) marked_dirty: Signal,
    /// The write-intent bitmap, when the array has one.
    pub(crate) intent: RefCell<Option<Rc<IntentBitmap<M>>>>,
    lock: MetadataLock,
}

impl<M: Member, C: Clock> Metadata<M, C> {
    pub(crate) fn new(core: Rc<Core<M, C>>, record: Record, intent: Option<IntentBitmap<M>>) -> Self {
        let intent = RefCell::new(intent.map(Rc::new));
        let record = RefCell::new(record);
        Self { core, record, marked_dirty: Signal::default(), intent, lock: MetadataLock::default() }
    }

    /// The right to change superblocks and bitmap. Rounds follow each other in the order of these calls.
    pub(crate) async fn lock(&self) -> MetadataGuard<'_> {
        self.lock.take().await
    }
}
