//! Detects that an open file was truncated, removed or replaced.
//!
//! The owner of a regular file can do all three while it is open, and a device can become shorter. Data beyond the new
//! end is lost. A write there would extend the file again, with a hole that reads as zeros where data was. So a member
//! that became shorter is failed for good: every later operation fails. A file without a name keeps its data until it
//! is closed: it can be read, but is not written any more.
//!
//! A read detects a truncation by its short result. For writes, the length is checked once per round of the executor,
//! and with every flush. This module never reads the file's data.

use crate::descriptor::Descriptor;
use crate::system::status::cached_status;
use std::cell::{Cell, OnceCell};

/// What was detected about a file since its open.
#[derive(Debug)]
pub(super) struct FileState {
    /// Whether the file had a name at its open.
    was_linked: bool,
    /// The executor's round of the last check.
    round: Cell<u64>,
    /// Why every operation fails.
    shorter: OnceCell<String>,
    /// Why every change fails.
    unlinked: OnceCell<String>,
}

impl FileState {
    /// The state of a file that was just opened.
    pub(super) fn of(descriptor: &Descriptor) -> Self {
        let was_linked = cached_status(descriptor).is_ok_and(|status| status.links > 0);
        let (shorter, unlinked) = (OnceCell::new(), OnceCell::new());
        Self { was_linked, round: Cell::new(u64::MAX), shorter, unlinked }
    }

    /// Why a read fails at once.
    pub(super) fn forbids_reads(&self) -> Option<&str> {
        self.shorter.get().map(String::as_str)
    }

    /// Why a change fails at once.
    pub(super) fn forbids_changes(&self) -> Option<&str> {
        self.forbids_reads().or(self.unlinked.get().map(String::as_str))
    }

    /// Checks, unless the file was checked in this round of the executor. `bytes` is its minimum length.
    pub(super) fn check_once_per_round(&self, descriptor: &Descriptor, bytes: u64) {
        let round = descriptor.core().rounds.get();
        if self.round.replace(round) != round {
            self.check(descriptor, bytes);
        }
    }

    /// Checks a regular file. A file that cannot be checked counts as unchanged.
    pub(super) fn check(&self, descriptor: &Descriptor, bytes: u64) {
        let Ok(status) = cached_status(descriptor) else { return };
        self.note_length(status.bytes, bytes);
        if self.was_linked && status.links == 0 {
            self.unlinked.get_or_init(|| {
                "the member's file was removed, or replaced by another, while it was in use: it is not written any more"
                    .to_owned()
            });
        }
    }

    /// Records the current length of a file or device.
    pub(super) fn note_length(&self, now: u64, bytes: u64) {
        if now < bytes {
            self.shorter.get_or_init(|| {
                format!(
                    "the member became shorter while it was in use, {now} bytes of {bytes}: its data is not trusted"
                )
            });
        }
    }
}
