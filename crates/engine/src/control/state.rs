//! The running array as an object: its parts, and the state of its background work.

use crate::control::forced::Forced;
use crate::control::offer::LeftOut;
use crate::control::sweep::state::Sweeps;
use crate::core::Core;
use crate::core::listener::Listener;
use crate::data::DataPlane;
use crate::device::checksums::Verify;
use crate::metadata::Metadata;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use format::superblock::Reshape;
use std::cell::{Cell, OnceCell};
use std::rc::{Rc, Weak};

/// A running array: its core, data path and metadata, and the state of its background work.
pub(crate) struct Control<M: Member, C: Clock> {
    pub(crate) core: Rc<Core<M, C>>,
    pub(crate) metadata: Rc<Metadata<M, C>>,
    pub(crate) data: Rc<DataPlane<M, C, Metadata<M, C>>>,
    /// When checksums are verified.
    pub(crate) verify: Cell<Verify>,
    pub(crate) sweeps: Sweeps,
    pub(crate) read_repair: ReadRepair,
    pub(crate) origin: AssemblyReport,
    /// In the middle of a reshape: the array of the other shape, for what this one does not read.
    pub(crate) other_side: OnceCell<OtherSide<M, C>>,
}

/// The same members in another shape.
pub(crate) struct OtherSide<M: Member, C: Clock> {
    pub(crate) control: Rc<Control<M, C>>,
    pub(crate) reshape: Reshape,
    /// What may be wrong because of the reshape, and what was done about it.
    pub(crate) warnings: Vec<String>,
}

/// How the array came to be assembled.
pub(crate) struct AssemblyReport {
    /// Members that were offered and do not take part.
    pub(crate) left_out: Vec<LeftOut>,
    /// Stale members that were assembled by force.
    pub(crate) forced: Vec<Forced>,
    /// What `force` has accepted: what may be lost or wrong.
    pub(crate) warnings: Vec<String>,
}

/// The default of md's `max_corr_read_errors`.
const READ_ERRORS_MAX: u32 = 20;

/// Settings of read repair.
pub(crate) struct ReadRepair {
    /// md's `max_corr_read_errors`.
    pub(super) read_errors_max: Cell<u32>,
}

impl Default for ReadRepair {
    fn default() -> Self {
        Self { read_errors_max: Cell::new(READ_ERRORS_MAX) }
    }
}

impl<M: Member, C: Clock> Control<M, C> {
    pub(crate) fn new(
        core: Rc<Core<M, C>>,
        metadata: Rc<Metadata<M, C>>,
        data: Rc<DataPlane<M, C, Metadata<M, C>>>,
        verify: Verify,
        origin: AssemblyReport,
    ) -> Rc<Self> {
        let (sweeps, read_repair) = (Sweeps::default(), ReadRepair::default());
        let array = Rc::new(Self {
            core,
            metadata,
            data,
            verify: Cell::new(verify),
            sweeps,
            read_repair,
            origin,
            other_side: OnceCell::new(),
        });
        let listener: Rc<dyn Listener> = array.clone();
        array
            .core
            .listener
            .set(Rc::downgrade(&listener))
            .unwrap_or_else(|_: Weak<_>| unreachable!("the listener is set once"));
        array
    }
}
