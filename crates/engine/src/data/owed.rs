//! Writes again what members had no room for.
//!
//! The list of what a member owes is [`crate::device::owed`]; when to try is decided by `control`.

use crate::core::authority::Authority;
use crate::data::plane::DataPlane;
use crate::device::owed::Content;
use crate::device::{Device, DeviceState};
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::{Member, MemberError, MemberErrorKind};
use crate::seam::observe::Why;
use format::units::{ComponentByte, Slot};
use std::ops::Range;
use std::rc::Rc;

/// How much all members of an array may owe before writes are refused, in bytes of memory.
const OWED_MAX: u64 = 16 << 20;

/// The most that is written in one attempt.
const PART_BYTES: u64 = 1 << 20;

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// Fails when members owe too much. What there is room for by now is written first.
    pub(crate) async fn check_room(&self) -> Result<(), ArrayError> {
        if self.core.context.owed_changed.is_untouched() || self.core.owed_cost() <= OWED_MAX {
            return Ok(());
        }
        Box::pin(self.write_owed()).await?;
        if self.core.owed_cost() > OWED_MAX { Err(self.core.no_room()) } else { Ok(()) }
    }

    /// Writes what is owed, to each member until it has no room.
    ///
    /// # Errors
    /// When a member failed in another way, and the array cannot do without it.
    pub(crate) async fn write_owed(&self) -> Result<(), ArrayError> {
        for slot in (0..self.core.geometry().slots()).map(Slot) {
            let Some(device) = self.core.device(slot) else { continue };
            let mut at = 0;
            while let Some(part) = device.owed.next(at) {
                let part = self.owed_part(slot, part);
                at = part.end;
                match self.write_owed_part(slot, &device, &part).await {
                    Err(error) if error.kind == MemberErrorKind::NoSpace => break,
                    Err(error) => self.authority.record_failure(&device, &error).await?,
                    Ok(()) => {}
                }
            }
        }
        Ok(())
    }

    /// The front of a part, as much as one lock covers.
    pub(crate) fn owed_part(&self, slot: Slot, part: Range<u64>) -> Range<u64> {
        let bytes = self.core.personality().lock_rest(slot, ComponentByte(part.start)).unwrap_or(PART_BYTES);
        part.start..part.end.min(part.start + bytes.min(PART_BYTES))
    }

    /// Writes what a member owes of one part.
    pub(crate) async fn write_owed_part(
        &self,
        slot: Slot,
        device: &Rc<Device<M>>,
        part: &Range<u64>,
    ) -> Result<(), MemberError> {
        let _lock = self.lock_part(slot, part).await;
        if device.state.get() == DeviceState::Faulty {
            return Ok(());
        }
        for (at, content) in device.owed.parts(part) {
            match content {
                Content::Bytes(block) => device.write_own(ComponentByte(at), vec![block], Why::Sweep).await?,
                Content::Zeros(bytes) => device.zero_own(ComponentByte(at), bytes).await?,
            }
        }
        Ok(())
    }
}
