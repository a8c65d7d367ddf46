//! The metadata of a running array as an object: the record, the bitmap and their lock.
//!
//! The record is private to this file. It changes only through [`Metadata::record_mut`], which takes the lock's guard.

use crate::base::notify::Signal;
use crate::core::Core;
use crate::core::metadata_lock::{Guarded, MetadataGuard, MetadataLock};
use crate::metadata::bitmap::intent::IntentBitmap;
use crate::metadata::journal::log::JournalLog;
use crate::metadata::parity_log::ParityLog;
use crate::metadata::record::Record;
use crate::metadata::stripe_log::StripeLog;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use format::geometry::Geometry;
use std::cell::{Ref, RefMut};
use std::rc::Rc;

/// Superblocks and bitmap of an array.
pub(crate) struct Metadata<M: Member, C: Clock> {
    pub(crate) core: Rc<Core<M, C>>,
    record: Guarded<Record>,
    /// Raised when the array is marked dirty.
    pub(crate) marked_dirty: Signal,
    intent: Guarded<Option<Rc<IntentBitmap<M>>>>,
    lock: MetadataLock,
    parity_log: Guarded<Option<Rc<ParityLog>>>,
    stripe_log: Guarded<Option<Rc<StripeLog>>>,
    journal: Guarded<Option<Rc<JournalLog<M>>>>,
}

impl<M: Member, C: Clock> Metadata<M, C> {
    pub(crate) fn new(core: Rc<Core<M, C>>, record: Record, intent: Option<IntentBitmap<M>>) -> Self {
        let intent = Guarded::new(intent.map(Rc::new));
        let record = Guarded::new(record);
        let devices = core.devices();
        let parity_log = devices.iter().filter_map(|device| device.parity_log_room()).min().map(ParityLog::new);
        let parity_log = Guarded::new(parity_log.map(Rc::new));
        let stripe_log = Guarded::new(core.context.stripe_log().map(StripeLog::new).map(Rc::new));
        let (marked_dirty, lock) = (Signal::default(), MetadataLock::default());
        Self { core, record, marked_dirty, intent, lock, parity_log, stripe_log, journal: Guarded::new(None) }
    }

    /// The right to change superblocks and bitmap. Rounds follow each other in the order of these calls. The array may
    /// have failed: [`Metadata::begin`] checks that, too.
    pub(crate) async fn lock(&self) -> MetadataGuard<'_> {
        self.lock.take().await
    }

    /// What the superblocks say or are about to say, and the rounds that are pending.
    pub(crate) fn record(&self) -> Ref<'_, Record> {
        self.record.borrow()
    }

    /// The record, to be changed. The next round of superblocks writes the change.
    pub(crate) fn record_mut(&self, guard: &MetadataGuard<'_>) -> RefMut<'_, Record> {
        self.record.borrow_mut(guard)
    }

    /// The write-intent bitmap, when the array has one.
    pub(crate) fn intent(&self) -> Option<Rc<IntentBitmap<M>>> {
        self.intent.borrow().clone()
    }

    /// Whether the array has a partial parity log.
    pub(crate) fn has_parity_log(&self) -> bool {
        self.parity_log.borrow().is_some()
    }

    /// The partial parity log, when the array has one.
    pub(super) fn parity_log(&self) -> Option<Rc<ParityLog>> {
        self.parity_log.borrow().clone()
    }

    /// From now on this is the array's log, or it has none.
    pub(super) fn set_parity_log(&self, guard: &MetadataGuard<'_>, log: Option<ParityLog>) {
        *self.parity_log.borrow_mut(guard) = log.map(Rc::new);
        self.lock_whole_stripes();
    }

    /// Has writes that wait for a change of the log lock whole stripes, as later ones do: a log has one entry of a stripe
    /// at a time. No write is under way.
    fn lock_whole_stripes(&self) {
        if let Geometry::Parity(parity) = self.core.geometry() {
            self.core.locks.widen_waiting(parity.chunk_bytes());
        }
    }

    /// Whether the array has a stripe log.
    pub(crate) fn has_stripe_log(&self) -> bool {
        self.stripe_log.borrow().is_some()
    }

    /// The stripe log, when the array has one.
    pub(super) fn stripe_log(&self) -> Option<Rc<StripeLog>> {
        self.stripe_log.borrow().clone()
    }

    /// From now on this is the array's stripe log, or it has none.
    pub(super) fn set_stripe_log(&self, guard: &MetadataGuard<'_>, log: Option<StripeLog>) {
        *self.stripe_log.borrow_mut(guard) = log.map(Rc::new);
        self.lock_whole_stripes();
    }

    /// The write journal that is in use.
    pub(crate) fn journal(&self) -> Option<Rc<JournalLog<M>>> {
        self.journal.borrow().clone()
    }

    /// From now on writes go to this journal first, or to none. No write is under way.
    pub(super) fn set_journal(&self, guard: &MetadataGuard<'_>, log: Option<JournalLog<M>>) {
        *self.journal.borrow_mut(guard) = log.map(Rc::new);
        self.lock_whole_stripes();
    }

    /// From now on this is the array's bitmap, or it has none.
    pub(super) fn set_intent(&self, guard: &MetadataGuard<'_>, intent: Option<Rc<IntentBitmap<M>>>) {
        *self.intent.borrow_mut(guard) = intent;
    }
}
