//! The entry of a request: bounds, the gate, alignment, and the errors that it can end with.
//!
//! This file performs no I/O.

use crate::base::gate::Inside;
use crate::core::roster::in_slot;
use crate::core::state::Core;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind, Refusal};
use crate::seam::member::{Member, MemberError, MemberErrorKind};
use format::units::Slot;
use std::ops::Range;

/// Why a write or a change is refused.
const READ_ONLY: &str = "the array is read-only";

fn stopped() -> ArrayError {
    ArrayError::new(ArrayErrorKind::Stopped, "the array is stopped")
}

/// Fails the array when it is dropped without [`ChangeGuard::end`]. Then a change was abandoned: a stripe may be half
/// written, or a mark half made.
pub(crate) struct ChangeGuard<'a, M: Member, C: Clock>(&'a Core<M, C>);

impl<M: Member, C: Clock> ChangeGuard<'_, M, C> {
    /// The change has ended, with success or an error.
    pub(crate) fn end(self) {
        std::mem::forget(self);
    }
}

impl<M: Member, C: Clock> Drop for ChangeGuard<'_, M, C> {
    fn drop(&mut self) {
        self.0.fail_array(|| "a change was abandoned halfway".to_owned());
    }
}

impl<M: Member, C: Clock> Core<M, C> {
    /// Lets a read of `bytes` at `at` in, unless it is out of range or the array is stopped.
    pub(crate) fn enter(&self, at: u64, bytes: u64) -> Result<Inside<'_>, ArrayError> {
        self.check_range(at, bytes)?;
        self.gate.enter().ok_or_else(stopped)
    }

    fn check_range(&self, at: u64, bytes: u64) -> Result<(), ArrayError> {
        let end = at.checked_add(bytes).filter(|&end| end <= self.geometry().array_bytes());
        if end.is_none() {
            let size = self.geometry().array_bytes();
            let reason = format!("{bytes} bytes at byte {at} run past the array's end at {size}");
            return Err(ArrayError::new(ArrayErrorKind::OutOfRange, reason));
        }
        Ok(())
    }

    /// Lets a write in, as [`Core::enter`] does a read.
    pub(crate) fn enter_to_write(&self, at: u64, bytes: u64) -> Result<Inside<'_>, ArrayError> {
        if self.is_read_only() {
            return Err(ArrayError::new(ArrayErrorKind::ReadOnly, READ_ONLY));
        }
        self.check_range(at, bytes)?;
        self.gate.enter_to_write().ok_or_else(stopped)
    }

    /// Whether writes are refused: the array was opened so, or is so for a while.
    pub(crate) fn is_read_only(&self) -> bool {
        self.info.read_only || self.gate.is_closed_to_writes()
    }

    /// Why a change of a read-only array is refused.
    pub(crate) fn refuse_read_only(&self) -> Refusal {
        Refusal::new(READ_ONLY).advice(match self.info.read_only {
            true => "serve it without --read-only",
            false => "`mdspace set read-only=off` ends that",
        })
    }

    pub(crate) fn is_aligned(&self, at: u64, bytes: u64) -> bool {
        (at | bytes) & (self.info.block_bytes - 1) == 0
    }

    /// The smallest aligned range that contains the given one.
    pub(crate) fn widened(&self, at: u64, bytes: u64) -> Range<u64> {
        let unit = self.info.block_bytes;
        at / unit * unit..(at + bytes).next_multiple_of(unit)
    }

    /// Runs a change that must not be dropped before it ends.
    pub(crate) async fn to_the_end<T>(&self, change: impl Future<Output = T>) -> T {
        let guard = self.begin_change();
        let result = change.await;
        guard.end();
        result
    }

    /// Begins a change that must not be dropped before [`ChangeGuard::end`].
    pub(crate) fn begin_change(&self) -> ChangeGuard<'_, M, C> {
        ChangeGuard(self)
    }

    pub(crate) fn io_error(&self, at: u64, bytes: u64, error: Option<&MemberError>) -> ArrayError {
        let cause = error.map(|error| format!(": {error}")).unwrap_or_default();
        if error.is_some_and(|error| error.kind == MemberErrorKind::NoSpace) {
            return ArrayError::new(ArrayErrorKind::NoSpace, format!("no room for {bytes} bytes at byte {at}{cause}"));
        }
        let logged = self.logged_bad(at, bytes);
        let logs = match logged.is_empty() {
            true => String::new(),
            false => format!(
                "; the bad-block log of {} covers this range (`mdspace read --ignore-bad-blocks` reads it anyway)",
                logged.join(" and that of ")
            ),
        };
        let reason = format!(
            "{bytes} bytes at byte {at} cannot be read or reconstructed from the remaining members{cause}{logs}"
        );
        ArrayError::new(ArrayErrorKind::Io, reason)
    }

    /// The names of members whose bad-block log covers any part of a range of the array, or any other chunk of its
    /// rows.
    pub(crate) fn logged_bad(&self, at: u64, bytes: u64) -> Vec<String> {
        let end = at.saturating_add(bytes).min(self.geometry().array_bytes());
        let slots = self.roster.slots.borrow();
        let mut names = Vec::new();
        let mut note = |slot: Slot, range: &Range<u64>| {
            let Some(device) = in_slot(&slots, slot).filter(|device| device.bad.touches(range)) else { return };
            if !names.contains(&device.name) {
                names.push(device.name.clone());
            }
        };
        self.personality().visit_members(&(at..end), &mut note);
        names
    }
}
