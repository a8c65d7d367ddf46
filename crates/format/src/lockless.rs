//! The states of a lockless write-intent bitmap (version 6): what each chunk's byte says, and which of two states
//! counts where two members' bitmaps differ.
//!
//! Beside what a bit says, the states tell apart chunks that were never written to. Their parity was never built, and
//! their copies never made equal, so an array needs no sync after its creation.
//!
//! Nothing is read or written here. Facts: `drivers/md/md-llbitmap.c`; `docs/format.md`.

/// The position of the first chunk's state in the bitmap.
pub const STATES_AT: u64 = 1024;

/// The least size of a chunk that md gives a new bitmap, in bytes. It doubles until the states fit.
pub const CHUNK_MIN: u64 = 64 << 10;

/// Seconds between two visits of md's daemon, which clears states, in a new bitmap.
pub const DAEMON_SLEEP_SECONDS: u32 = 30;

/// What is known of a chunk. Ordered: of two members' states the greater one counts, unless only one is
/// [`ChunkState::Unwritten`] ([`ChunkState::united`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChunkState {
    /// It was never written to, or was discarded: its copies may differ, and its parity may be wrong.
    Unwritten,
    /// Copies agree in all that was written, and parity agrees everywhere.
    Clean,
    /// A write may be under way. Once it has ended, the chunk is as if it were clean.
    Dirty,
    /// Copies or parity have to be brought into agreement.
    NeedsSync,
}

impl ChunkState {
    /// The state that a byte stands for. A byte that is no state counts as the most doubtful one, as in md.
    ///
    /// md has states for a chunk whose parity was built, or is being built, before anything was written to it. They
    /// count as unwritten: md turns some of them back in memory, and does not write that at once.
    pub fn from_byte(byte: u8) -> Self {
        match byte {
            0 | 5 | 6 | 7 => Self::Unwritten,
            1 => Self::Clean,
            2 => Self::Dirty,
            _ => Self::NeedsSync, // 3; 4: it was being brought into agreement
        }
    }

    /// The byte on disk.
    pub fn byte(self) -> u8 {
        match self {
            Self::Unwritten => 0,
            Self::Clean => 1,
            Self::Dirty => 2,
            Self::NeedsSync => 3,
        }
    }

    /// What two members' states of a chunk say together. A member that has it as unwritten knows nothing of a write to
    /// it.
    #[must_use]
    pub fn united(self, other: Self) -> Self {
        match (self == Self::Unwritten, other == Self::Unwritten) {
            (true, true) => Self::Unwritten,
            (false, false) => self.max(other),
            _ => Self::NeedsSync,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ChunkState::{Clean, Dirty, NeedsSync, Unwritten};
    use super::*;

    #[test]
    fn each_byte_has_a_state_and_each_state_its_byte() {
        let table = [(0, Unwritten), (1, Clean), (2, Dirty), (3, NeedsSync), (4, NeedsSync)];
        for (byte, state) in table.into_iter().chain([5, 6, 7].map(|byte| (byte, Unwritten))) {
            assert_eq!(ChunkState::from_byte(byte), state);
        }
        for byte in 0..=255 {
            let state = ChunkState::from_byte(byte);
            assert_eq!(ChunkState::from_byte(state.byte()), state);
            assert!(byte < 8 || state == NeedsSync);
        }
    }

    #[test]
    fn what_members_disagree_on_is_never_called_clean_or_unwritten() {
        let all = [Unwritten, Clean, Dirty, NeedsSync];
        for (a, b) in all.into_iter().flat_map(|a| all.map(|b| (a, b))) {
            let both = a.united(b);
            assert_eq!(both, b.united(a));
            assert!(a == b && both == a || both > Clean && both >= a && both >= b, "{a:?} and {b:?}");
        }
    }
}
