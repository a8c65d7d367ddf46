//! Bounds the time of everything that is asked of a member before it joins.
//!
//! A file that is offered may lie on a disk or file system that hangs. Nothing of the array depends on it
//! yet. So the array gives up after the time that a member has for one operation
//! ([`crate::device::timeout`]), or at once when the array is stopped; the refusal says which. Each attempt
//! is a handful of short transfers. The bound holds even where the member timeout is off, because other
//! changes of the array wait meanwhile.
//!
//! An abandoned transfer goes on at the member, and keeps its memory ([`crate::base::buffer`]); no task waits
//! for it.

use crate::control::state::Control;
use crate::device::timeout::TIMEOUT_DEFAULT;
use crate::seam::clock::Clock;
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use futures_util::future::{Either, select};
use std::pin::pin;

impl<M: Member, C: Clock> Control<M, C> {
    /// Carries out `work` on a new member called `name`, within the timeout. `work` must not change the
    /// array.
    ///
    /// # Errors
    /// Those of `work`; a timeout; a stop of the array.
    pub(crate) async fn within_timeout<T>(
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
            Either::Right((true, _)) => Refusal::new("abandoned, as the array is stopping"),
            Either::Right((false, _)) => {
                Refusal::new(format!("no answer within {} s, the member-timeout", timeout.as_secs_f64()))
                    .advice("check its disk or file system, which may hang, or give another member")
            }
        };
        Err(refusal.of(name))
    }
}
