//! The uppermost layer of a write: every change of a member is repeated on its successor.
//!
//! It never decides when a replacement begins or is complete; that is control's ([`crate::control::replace`]).

use crate::device::in_use::Device;
use crate::seam::member::{Member, MemberError};
use futures_util::future::join;

impl<M: Member> Device<M> {
    /// Repeats on the successor what is done to this member. A successor that fails is ejected before the
    /// request is answered.
    pub(super) async fn with_successor(
        &self,
        own: impl Future<Output = Result<(), MemberError>>,
        other: impl AsyncFnOnce(&Device<M>) -> Result<(), MemberError>,
    ) -> Result<(), MemberError> {
        let Some(successor) = self.successor() else { return own.await };
        let (own, result) = Box::pin(join(own, other(&successor))).await;
        if let Err(error) = result {
            successor.replacement.fail(error);
            self.context.is_successor_lost.set(true);
        }
        own
    }
}
