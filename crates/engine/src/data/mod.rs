//! The data path: turns reads and writes of the array's bytes into transfers of its devices.
//!
//! It reaches the metadata only through [`crate::core::authority::Authority`], and never writes a superblock or a
//! bitmap itself.

pub(crate) mod cache;
pub(crate) mod cached_stripes;
pub(crate) mod coalesce;
pub(crate) mod fast_path;
pub(crate) mod full_stripe;
pub(crate) mod in_place;
pub(crate) mod mirror;
pub(crate) mod owed;
pub(crate) mod parity;
pub(crate) mod read_ahead;
pub(crate) mod rebuild;
pub(crate) mod reconstruct;
pub(crate) mod request;
pub(crate) mod rmw;
pub(crate) mod runs;
pub(crate) mod stripe;
pub(crate) mod stripe_size;
pub(crate) mod zeros;

use crate::core::Core;
use crate::core::authority::Authority;
use crate::data::cache::StripeCache;
use crate::data::coalesce::Coalescer;
use crate::data::read_ahead::ReadAhead;
use crate::data::stripe_size::StripeSize;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The state of the data path of one array.
pub(crate) struct DataPlane<M: Member, C: Clock, A: Authority<M>> {
    pub(crate) core: Rc<Core<M, C>>,
    /// Writes superblocks and bitmap.
    authority: Rc<A>,
    /// The unit in which partly changed stripes are moved.
    pub(crate) stripe_size: Cell<StripeSize>,
    /// Old contents of stripes that are likely to be written again.
    pub(crate) cache: RefCell<StripeCache>,
    /// Stripes that streams are about to read.
    pub(crate) read_ahead: ReadAhead,
    /// Writes that wait to be coalesced into full stripes.
    pub(crate) coalescer: Coalescer,
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
