//! What members owe: data that was to be written to them and for which they had no room.
//!
//! A sparse file or thin device that is full refuses a write, and is no failed member: what it holds is right. But the other
//! members may have their parts of the write, so copies differ and parity is wrong until this one has its own. So
//! the bytes are kept here, over what the member holds, until it takes them:
//!
//! * Whoever reads the member gets them. So copies and parity agree at any moment, whoever fails next.
//! * The write that met it is answered with [`ArrayErrorKind::NoSpace`]. A later write of the same place replaces what
//!   is owed, and settles it where it succeeds.
//! * As long as anything is owed, the array stays marked dirty and no bit of its bitmap is cleared: after a crash the
//!   resync makes up for it. Such an array is not stopped as clean.
//! * It is tried again now and then ([`crate::Array::keep_whole`]), and before a stop. What writeback has answered and a member
//!   owes is not durable: a flush fails until it is paid.
//! * Memory is bounded ([`OWED_MAX`]): beyond that writes are refused before they touch a member.
//!
//! Levels without redundancy owe nothing: each of their bytes is in one place, and a write that failed may be there in part.

use crate::control::Control;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use std::time::Duration;

/// How long nothing is tried after it was in vain.
const PAUSE: Duration = Duration::from_secs(1);

impl<M: Member, C: Clock> Control<M, C> {
    /// Tries to write what members owe, until the array is stopped.
    pub(crate) async fn pay_now_and_then(&self) {
        let mut was_owing = false;
        while !self.core.gate.is_closed() {
            let seen = self.core.context.owed_changed.seen();
            let is_owing = self.core.owes_any();
            if std::mem::replace(&mut was_owing, is_owing) != is_owing {
                self.sweeps.changed.raise(); // what had no room either may go on
            }
            if !is_owing {
                self.core.context.owed_changed.changed_since(seen).await;
                continue;
            }
            let pause = self.core.clock.sleep_until(self.core.clock.now() + PAUSE);
            if self.core.gate.closes_before(pause).await {
                return;
            }
            let Some(_inside) = self.core.gate.enter_background() else { return };
            if self.data.pay().await.is_err() {
                return; // the array takes no more changes
            }
        }
    }
}
