//! Whether a file that was opened is still the member that the array knows.
//!
//! A regular file can be truncated, removed or replaced by its owner while it is open, a device made shorter. What is behind a
//! new end is lost; and a write there would make the file long again, with a hole that reads as zeros where data was. So
//! a member that became shorter is given up for good: every operation fails from the first moment that this is seen. A file that
//! no directory names any more keeps what it holds until it is closed: it can be read, and is written no more.
//!
//! A read finds out by coming to the end too soon. A write would not: the length is looked at before it, once for all
//! writes of a round of the executor, and with every flush. It never looks at what the file holds.

use crate::descriptor::Descriptor;
use rustix::fs::{AtFlags, Statx, StatxFlags};
use std::cell::{Cell, OnceCell};

/// What the kernel knows of a file by itself: a file system that hangs, or is on another machine, is not waited for.
fn look_at(descriptor: &Descriptor) -> rustix::io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(descriptor, c"", flags, StatxFlags::SIZE | StatxFlags::NLINK)
}

/// What was seen of a file since it was opened.
#[derive(Debug)]
pub(super) struct Still {
    /// Whether a directory named it when it was opened.
    was_linked: bool,
    /// The round of the executor in which it was looked at last.
    round: Cell<u64>,
    /// Why nothing can be asked of it any more.
    shorter: OnceCell<String>,
    /// Why it is not written any more.
    unlinked: OnceCell<String>,
}

impl Still {
    /// Of a file that was just opened.
    pub(super) fn of(descriptor: &Descriptor) -> Self {
        let was_linked = look_at(descriptor).is_ok_and(|status| status.stx_nlink > 0);
        let (shorter, unlinked) = (OnceCell::new(), OnceCell::new());
        Self { was_linked, round: Cell::new(u64::MAX), shorter, unlinked }
    }

    /// Why a read fails without being asked for.
    pub(super) fn forbids_reads(&self) -> Option<&str> {
        self.shorter.get().map(String::as_str)
    }

    /// Why a change fails without being asked for.
    pub(super) fn forbids_changes(&self) -> Option<&str> {
        self.forbids_reads().or(self.unlinked.get().map(String::as_str))
    }

    /// Looks, unless that was done in this round of the executor. `bytes` is how long it has to be.
    pub(super) fn look_once_a_round(&self, descriptor: &Descriptor, bytes: u64) {
        let round = descriptor.core().rounds.get();
        if self.round.replace(round) != round {
            self.look(descriptor, bytes);
        }
    }

    /// Looks at a regular file. One that cannot be looked at is as it was.
    pub(super) fn look(&self, descriptor: &Descriptor, bytes: u64) {
        let Ok(status) = look_at(descriptor) else { return };
        self.note_length(status.stx_size, bytes);
        if self.was_linked && status.stx_nlink == 0 {
            self.unlinked.get_or_init(|| {
                "the member's file was removed, or replaced by another, while it was in use: it is written no more"
                    .to_owned()
            });
        }
    }

    /// Takes note of how long a file or device is now.
    pub(super) fn note_length(&self, now: u64, bytes: u64) {
        if now < bytes {
            self.shorter.get_or_init(|| {
                format!("the member became shorter while it was in use, {now} bytes of {bytes}: what it holds is not believed")
            });
        }
    }
}
