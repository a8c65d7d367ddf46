//! Makes a running array read-only, and writable again, with its clients connected: md's `readonly`.
//!
//! Members that fail meanwhile are still recorded, and writes that a member owes are still tried: both belong to writes that
//! were answered. The state ends with the process.
//!
//! Facts: md(4) on `array_state`, and `md_set_readonly` in `drivers/md/md.c`. Linux refuses while the array is open; here
//! its clients stay, and their writes are refused.

use crate::control::state::Control;
use crate::control::stop::Then;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::Member;

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::make_read_only`].
    pub(crate) async fn make_read_only(&self) -> Result<(), ArrayError> {
        if self.core.info.read_only {
            return Ok(());
        }
        let closing = Closing(self);
        self.core.gate.close_to_writes().await;
        self.sweeps.changed.raise();
        if !mutant!("read-only-unsettled") {
            self.end_writing().await?;
        }
        if !self.core.gate.is_closed_to_writes() {
            return Err(ArrayError::new(ArrayErrorKind::Stopped, "the array was made writable meanwhile"));
        }
        std::mem::forget(closing);
        Ok(())
    }

    /// [`crate::Array::make_writable`].
    pub(crate) fn make_writable(&self) {
        self.core.gate.open_to_writes();
        self.sweeps.changed.raise();
        self.core.context.read_error_pending.raise();
    }

    async fn end_writing(&self) -> Result<(), ArrayError> {
        self.sweeps.end().await;
        self.data.write_out_all().await?;
        self.settle(Then::IsRead).await?;
        self.data.check_nothing_lost()
    }
}

/// Takes writes again when it is dropped: the array did not become read-only.
struct Closing<'a, M: Member, C: Clock>(&'a Control<M, C>);

impl<M: Member, C: Clock> Drop for Closing<'_, M, C> {
    fn drop(&mut self) {
        self.0.make_writable();
    }
}
