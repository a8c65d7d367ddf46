//! The successor of a member that is being replaced: every change of the member is repeated on it.
//!
//! It never decides when a replacement begins or is complete; that is control's ([`crate::control::replace`]).

use crate::device::{Device, DeviceState};
use crate::plan::ROW_BYTES;
use crate::seam::bytes::zero_or_write;
use crate::seam::member::{Member, MemberError};
use crate::seam::observe::Why;
use format::units::{ComponentByte, SECTOR_BYTES, Sectors};
use futures_util::future::join;
use std::rc::Rc;

/// Zeros written at a time to a successor without a better way to zero.
const ZEROS_BYTES: u64 = 1 << 20;

impl<M: Member> Device<M> {
    /// Of a successor: from this byte of the component on, it may differ from its member.
    pub(crate) fn revert_to(&self, from: u64) {
        let DeviceState::Recovering { current } = self.state.get() else { return };
        let current = mutant!("successor-not-compared" => current, else current.min(from / ROW_BYTES * ROW_BYTES));
        self.state.set(DeviceState::Recovering { current });
        self.superblock.borrow_mut().recovery_offset = Some(Sectors(current / SECTOR_BYTES));
    }

    /// The successor of this member, if there is one.
    pub(crate) fn successor(&self) -> Option<Rc<Device<M>>> {
        self.successor.borrow().clone()
    }

    /// Repeats on the successor what is done to this member. A successor that fails is ejected before the
    /// request is answered.
    pub(crate) async fn with_successor(
        &self,
        own: impl Future<Output = Result<(), MemberError>>,
        other: impl AsyncFnOnce(&Device<M>) -> Result<(), MemberError>,
    ) -> Result<(), MemberError> {
        let Some(successor) = self.successor() else { return own.await };
        let (own, result) = Box::pin(join(own, other(&successor))).await;
        if let Err(error) = result {
            successor.failure.borrow_mut().get_or_insert(error);
            self.context.is_successor_lost.set(true);
        }
        own
    }

    /// Zeroes a range of a successor: by the zeroing command, or else by writing zeros.
    pub(crate) async fn zero_own(&self, at: ComponentByte, bytes: u64) -> Result<(), MemberError> {
        let zeros = || self.context.pool.zeroed(ZEROS_BYTES.min(bytes) as usize).freeze();
        let write = async |start, zeros| self.write_own(ComponentByte(at.0 + start), vec![zeros], Why::Data).await;
        zero_or_write(self.write_zeroes_own(at, bytes), bytes, zeros, write).await
    }
}
