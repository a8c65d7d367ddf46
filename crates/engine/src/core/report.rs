//! Reports changes of membership, in the log and to the array's listener.

use crate::core::listener::Listener;
use crate::core::state::Core;
use crate::device::Device;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use crate::seam::report::{ChangeKind, LOG_TARGET, MemberChange};
use format::units::Slot;
use std::rc::Rc;

impl<M: Member, C: Clock> Core<M, C> {
    /// The listener for events; `None` until assembly is done.
    pub(crate) fn listener(&self) -> Option<Rc<dyn Listener>> {
        self.listener.get()?.upgrade()
    }

    /// Reports a change in the log and in the report of a running scrub.
    pub(crate) fn report_change(
        &self,
        device: &Device<M>,
        slot: Option<Slot>,
        change: ChangeKind,
        reason: Option<&str>,
    ) {
        let change_report = self.note_change(device, slot, change, reason);
        match change {
            ChangeKind::Left | ChangeKind::Silent => tracing::warn!(target: LOG_TARGET, "{change_report}"),
            _ => tracing::info!(target: LOG_TARGET, "{change_report}"),
        }
    }

    /// Reports a change in the report of a running scrub only; the caller has logged it.
    pub(crate) fn note_change(
        &self,
        device: &Device<M>,
        slot: Option<Slot>,
        change: ChangeKind,
        reason: Option<&str>,
    ) -> MemberChange {
        let (member, slot, reason) = (device.name.clone(), slot.map(|slot| slot.0), reason.map(str::to_owned));
        let change_report = MemberChange { member, slot, change, reason };
        if let Some(listener) = self.listener() {
            listener.member_changed(&change_report);
        }
        change_report
    }
}
