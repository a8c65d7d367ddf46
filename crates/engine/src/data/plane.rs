//! [`DataPlane`]: the state of the data path of one array.
//!
//! The files of this folder each add some of its functions. Nothing here reads or writes a member.

use crate::core::Core;
use crate::core::authority::Authority;
use crate::data::cache::StripeCache;
use crate::data::coalesce::coalescer::Coalescer;
use crate::data::read_ahead::stretches::ReadAhead;
use crate::data::stitched::Elsewhere;
use crate::data::stripe_size::StripeSize;
use crate::seam::clock::Clock;
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

/// The state of the data path of one array.
pub(crate) struct DataPlane<M: Member, C: Clock, A: Authority<M>> {
    pub(crate) core: Rc<Core<M, C>>,
    /// Writes superblocks and bitmap.
    pub(super) authority: Rc<A>,
    /// The unit in which partly changed stripes are moved.
    pub(crate) stripe_size: Cell<StripeSize>,
    /// Old contents of stripes that are likely to be written again.
    pub(crate) cache: RefCell<StripeCache>,
    /// Stripes that streams are about to read.
    pub(crate) read_ahead: ReadAhead,
    /// Writes that wait to be coalesced into full stripes.
    pub(crate) coalescer: Coalescer,
    /// Bytes that others have: in the middle of a reshape.
    pub(crate) elsewhere: OnceCell<Vec<Elsewhere<M, C, A>>>,
}

/// The data path's memory, and the unit in which it moves stripes.
pub(crate) struct DataOptions {
    pub(crate) stripe_size: StripeSize,
    pub(crate) cache_bytes: usize,
    pub(crate) gather_bytes: u64,
    pub(crate) read_ahead_bytes: usize,
    /// The transfer size that members prefer, in bytes.
    pub(crate) optimal_bytes: u64,
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    pub(crate) fn new(core: Rc<Core<M, C>>, authority: Rc<A>, options: &DataOptions) -> Self {
        let geometry = core.geometry();
        Self {
            coalescer: Coalescer::new(geometry, options.optimal_bytes, options.gather_bytes),
            read_ahead: ReadAhead::new(geometry, options.read_ahead_bytes),
            stripe_size: Cell::new(options.stripe_size),
            cache: RefCell::new(StripeCache::new(options.cache_bytes)),
            elsewhere: OnceCell::new(),
            core,
            authority,
        }
    }

    /// Drops what is cached of the array: a member has changed.
    pub(crate) fn drop_caches(&self) {
        self.cache.borrow_mut().clear();
        self.read_ahead.clear();
    }
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// [`crate::Array::set_stripe_size`].
    pub(crate) fn set_stripe_size(&self, stripe_size: StripeSize) -> Result<(), Refusal> {
        self.check_stripe_size(stripe_size)?;
        self.stripe_size.set(stripe_size);
        Ok(())
    }

    /// [`crate::Array::check_stripe_size`].
    pub(crate) fn check_stripe_size(&self, stripe_size: StripeSize) -> Result<(), Refusal> {
        stripe_size.check(self.core.geometry())
    }

    /// The fixed unit in bytes; `None` if there is none.
    pub(crate) fn stripe_size_bytes(&self) -> Option<u32> {
        self.stripe_size.get().bytes()
    }
}
