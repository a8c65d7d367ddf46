//! What is asked of a member before the array takes it in: bounded, as there is no need to wait for it.
//!
//! A file that is offered may lie on a disk or file system that hangs. Nothing of the array depends on it yet, so the
//! array gives it up after the time that a member has for one operation ([`crate::device::timeout`]), or at once when the array is
//! stopped, and the refusal says so. All that is asked of a newcomer at a time is a handful of short transfers. Where
//! members may take as long as they like, a newcomer may not: other changes of the array wait meanwhile.
//!
//! What is given up goes on at the member, with its memory ([`crate::base::buffer`]); nobody waits for it.

use crate::control::Control;
use crate::device::timeout::TIMEOUT_DEFAULT;
use crate::seam::clock::Clock;
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use futures_util::future::{Either, select};
use std::pin::pin;

impl<M: Member, C: Clock> Control<M, C> {
    /// Carries out `work` on a newcomer called `name`, which changes nothing of the array, unless it takes too long.
    ///
    /// # Errors
    /// Those of `work`; and when it was given up.
    pub(crate) async fn in_newcomers_time<T>(
        &self,
        name: &str,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let timeout = self.core.context.timeout().unwrap_or(TIMEOUT_DEFAULT);
        let sleep = self.core.clock.sleep_until(self.core.clock.now() + timeout);
        let end = async {
            if mutant!("newcomer-waited-for") {
                sleep.await;
                return false;
            }
            self.core.gate.closes_before(sleep).await
        };
        let refusal = match select(pin!(work), pin!(end)).await {
            Either::Left((done, _)) => return done,
            Either::Right((true, _)) => Refusal::new("given up, as the array is being stopped"),
            Either::Right((false, _)) => {
                Refusal::new(format!("no answer within {} s, the member-timeout", timeout.as_secs_f64()))
                    .advice("see to its disk or file system, which may hang, or give another one")
            }
        };
        Err(refusal.of(name))
    }
}
