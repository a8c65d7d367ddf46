//! Control: everything about an array that is not a request. Assembly, creation, membership, change of size,
//! sweeps and read repair.
//!
//! It calls the data path and the metadata; neither calls it. The core reaches it as a [`Listener`], for
//! events alone.

pub mod assemble;
pub(crate) mod blocks;
pub(crate) mod checksums;
pub(crate) mod copies;
pub mod create;
pub(crate) mod election;
pub mod examined;
pub(crate) mod forced;
pub(crate) mod grow;
pub(crate) mod hung;
pub(crate) mod idle;
pub mod inspect;
pub(crate) mod joining;
pub(crate) mod logs;
pub(crate) mod lost_roles;
pub(crate) mod newcomer;
pub(crate) mod owed;
pub(crate) mod read_repair;
pub(crate) mod replace;
pub(crate) mod shrink;
pub(crate) mod split;
pub mod status;
pub(crate) mod stop;
pub(crate) mod sweep;
pub mod update;
pub mod wipe;

use crate::control::assemble::LeftOut;
use crate::control::forced::Forced;
use crate::control::read_repair::ReadRepair;
use crate::control::sweep::Sweeps;
use crate::core::Core;
use crate::core::listener::Listener;
use crate::data::DataPlane;
use crate::device::checksums::Verify;
use crate::metadata::Metadata;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use crate::seam::report::MemberChange;
use std::cell::Cell;
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
    pub(crate) origin: Origin,
}

/// How the array came to be assembled.
pub(crate) struct Origin {
    /// Members that were offered and do not take part.
    pub(crate) left_out: Vec<LeftOut>,
    /// Stale members that were assembled by force.
    pub(crate) forced: Vec<Forced>,
    /// What `force` has accepted: what may be lost or wrong.
    pub(crate) warnings: Vec<String>,
}

impl<M: Member, C: Clock> Control<M, C> {
    pub(crate) fn new(
        core: Rc<Core<M, C>>,
        metadata: Rc<Metadata<M, C>>,
        data: Rc<DataPlane<M, C, Metadata<M, C>>>,
        verify: Verify,
        origin: Origin,
    ) -> Rc<Self> {
        let (sweeps, read_repair) = (Sweeps::default(), ReadRepair::default());
        let array = Rc::new(Self { core, metadata, data, verify: Cell::new(verify), sweeps, read_repair, origin });
        let listener: Rc<dyn Listener> = array.clone();
        array
            .core
            .listener
            .set(Rc::downgrade(&listener))
            .unwrap_or_else(|_: Weak<_>| unreachable!("the listener is set once"));
        array
    }
}

impl<M: Member, C: Clock> Listener for Control<M, C> {
    fn slots_changed(&self) {
        self.data.drop_caches();
        self.sweeps.changed.raise(); // a spare may take over
    }

    fn array_failed(&self, reason: &str) {
        self.sweeps.give_up_scrub(&format!("the array takes no more writes: {reason}"));
    }

    fn member_changed(&self, change: &MemberChange) {
        self.sweeps.note_change(change);
    }
}
