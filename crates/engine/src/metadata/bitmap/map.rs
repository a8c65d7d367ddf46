//! What a bitmap on disk says of its chunks: a bit of each or, in a lockless one, a state.
//!
//! Pure. Format: [`format::bitmap`], [`format::lockless`].

use crate::base::range_set::Ranges;
use format::bitmap::{BitmapSuper, Kind, set_range};
use format::lockless::ChunkState;

/// The chunks of a bitmap; see the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Map {
    /// A bit of each chunk, lowest first.
    Bits(Vec<u8>),
    /// A state of each chunk.
    States(Vec<ChunkState>),
}

impl Map {
    /// What `image`, a bitmap from its superblock on, says.
    ///
    /// # Panics
    /// When `image` is shorter than the bitmap.
    pub(super) fn of(header: &BitmapSuper, image: &[u8]) -> Self {
        let map = &image[header.kind.head_bytes() as usize..];
        match header.kind {
            Kind::Lockless => {
                Self::States(map[..header.bits() as usize].iter().map(|byte| ChunkState::from_byte(*byte)).collect())
            }
            Kind::HostEndian | Kind::Normal | Kind::Clustered => Self::Bits(map.to_vec()),
        }
    }

    /// Adds what another member's bitmap of the same chunks says.
    pub(super) fn unite(&mut self, other: &Self) {
        match (self, other) {
            (Self::Bits(sum), Self::Bits(more)) => sum.iter_mut().zip(more).for_each(|(sum, byte)| *sum |= byte),
            (Self::States(sum), Self::States(more)) => {
                sum.iter_mut().zip(more).for_each(|(sum, state)| *sum = sum.united(*state));
            }
            _ => unreachable!("bitmaps of two kinds are not united"),
        }
    }

    /// The chunks that were being written to, a bit of each.
    pub(crate) fn set(self) -> Vec<u8> {
        match self {
            Self::Bits(bits) => bits,
            Self::States(states) => {
                let mut bits = vec![0; states.len().div_ceil(8)];
                for chunk in (0..).zip(&states).filter(|(_, state)| **state > ChunkState::Clean).map(|(at, _)| at) {
                    set_range(&mut bits, chunk..chunk + 1);
                }
                bits
            }
        }
    }

    /// The parts of what the bitmap covers that were never written to.
    pub(super) fn unwritten(&self, header: &BitmapSuper) -> Ranges {
        let Self::States(states) = self else { return Ranges::default() };
        let unwritten = (0..).zip(states).filter(|(_, state)| **state == ChunkState::Unwritten);
        // In ascending order, so that each joins the last.
        Ranges::of(unwritten.map(|(chunk, _)| header.bytes_of(chunk)))
    }

    /// How many chunks were never written to.
    pub(crate) fn unwritten_chunks(&self) -> u64 {
        let Self::States(states) = self else { return 0 };
        states.iter().filter(|state| **state == ChunkState::Unwritten).count() as u64
    }

    /// Whether a chunk has to be brought into agreement, although the superblock may call the array clean.
    pub(super) fn needs_sync(&self) -> bool {
        matches!(self, Self::States(states) if states.contains(&ChunkState::NeedsSync))
    }
}
