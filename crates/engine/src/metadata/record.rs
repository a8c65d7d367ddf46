//! The record: what the superblocks say or are about to say of the array, and the rounds that are pending.
//!
//! A value alone. [`crate::metadata::state::Metadata`] keeps it; [`crate::metadata::superblocks`] writes it to the
//! members.

use format::superblock::{BitmapPlace, DeviceRole, Resync, Timestamp};
use std::cell::Cell;
use std::time::Duration;

/// What the superblocks say or are about to say of the array, and how far they are from saying it.
pub(crate) struct Record {
    pub(crate) events: u64,
    /// The time in all superblocks with these events, and the events for which it was read. Members of one round would
    /// otherwise differ by microseconds.
    pub(crate) updated: Cell<(u64, Timestamp)>,
    /// The events at assembly.
    pub(crate) events_found: u64,
    /// Whether the members are to be marked dirty. [`Self::rounds_pending`] tells whether they already are.
    pub(crate) dirty: bool,
    /// How far the array agrees, for the superblocks of a clean stop.
    pub(crate) resync: Resync,
    /// The roles of the devices, by device number.
    pub(crate) roles: Vec<DeviceRole>,
    /// Rounds of superblocks that are still to be written, each with the next events. At zero, the superblocks on
    /// stable storage match this record.
    pub(crate) rounds_pending: u32,
    /// What the newest superblocks say, while other members are still one event behind them.
    pub(crate) lagging: Option<SharedFields>,
    /// What assembly read may still be in volatile caches only. It is flushed before anything is written that builds
    /// on it: a power failure could otherwise leave a member further behind than is accepted.
    pub(crate) is_flush_pending: bool,
    /// A device failed a write of the next events, which no other device has. It may have them.
    pub(crate) is_any_ahead: bool,
    /// The array was assembled by force, or a stripe log was replayed, and its superblocks do not show that yet. As they
    /// are, the next assembly would refuse the array, or md would.
    pub(crate) is_assembly_pending: bool,
    /// A member had no room for its superblock, so the pending rounds are tried again.
    pub(crate) is_out_of_room: bool,
}

/// What the superblocks with the same events say.
pub(crate) struct SharedFields {
    pub(crate) resync: Resync,
    pub(crate) roles: Vec<DeviceRole>,
    pub(crate) bitmap: Option<BitmapPlace>,
}

impl Record {
    /// The time in the superblocks of the present events. `now` is wall-clock time.
    pub(crate) fn updated(&self, now: Duration) -> Timestamp {
        let (events, updated) = self.updated.get();
        if events == self.events && !mutant!("time-of-each-superblock") {
            return updated;
        }
        // The kernel writes no microseconds. By them, mdspace recognizes its own superblocks.
        let updated = Timestamp { seconds: now.as_secs(), micros: now.subsec_micros().max(1) };
        self.updated.set((self.events, updated));
        updated
    }

    /// Sets the role of a device number. Numbers that were never listed are spares.
    pub(crate) fn set_role(&mut self, number: usize, role: DeviceRole) {
        if self.roles.len() <= number {
            self.roles.resize(number + 1, DeviceRole::Spare);
        }
        self.roles[number] = role;
    }
}

/// Rounds after which an ejected member is rejected for good.
pub(crate) const ROUNDS_TO_EJECT: u32 = 2;

/// Rounds after which a device is rejected that may have the next event alone: it was absent at assembly, after an
/// interrupted round, or it failed the first write of a round.
pub(crate) const ROUNDS_TO_EJECT_ABSENT: u32 = ROUNDS_TO_EJECT + 1;
