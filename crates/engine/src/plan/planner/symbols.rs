//! A set of the chunks of one stripe, as a bit mask.
//!
//! Pure.

use format::geometry::Role;
use std::fmt;

/// A set of [`Role`]s: up to 254 data chunks, P and Q.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Symbols([u64; 4]);

/// The most data chunks that a stripe may have.
pub const DATA_CHUNKS_MAX: u16 = 254;

const P_BIT: usize = DATA_CHUNKS_MAX as usize;
const Q_BIT: usize = P_BIT + 1;

/// Bits of a set.
const BITS: usize = 256;

const _: () =
    assert!(P_BIT + Role::PARITIES.len() == BITS, "each chunk of the widest stripe has a bit, and none is left");

fn bit(role: Role) -> usize {
    match role {
        Role::Data(index) => {
            assert!(usize::from(index) < P_BIT, "data chunk {index} of a stripe");
            index.into()
        }
        Role::P => P_BIT,
        Role::Q => Q_BIT,
    }
}

impl Symbols {
    /// No chunk.
    pub const EMPTY: Symbols = Symbols([0; 4]);

    /// The set of `role` alone.
    pub fn of(role: Role) -> Self {
        Self::EMPTY.with(role)
    }

    /// The first `count` data chunks.
    ///
    /// # Panics
    /// When that is more than [`DATA_CHUNKS_MAX`].
    pub fn data(count: u16) -> Self {
        assert!(count <= DATA_CHUNKS_MAX, "{count} data chunks of a stripe");
        let word = |index: u16| match count.saturating_sub(index * 64) {
            64.. => u64::MAX,
            low => (1 << low) - 1,
        };
        Self([word(0), word(1), word(2), word(3)])
    }

    /// This set and `role`.
    pub fn with(mut self, role: Role) -> Self {
        self.0[bit(role) / 64] |= 1 << (bit(role) % 64);
        self
    }

    /// Whether the set contains `role`.
    pub fn contains(self, role: Role) -> bool {
        self.0[bit(role) / 64] & 1 << (bit(role) % 64) != 0
    }

    /// The number of chunks.
    pub fn len(self) -> u32 {
        // Most words are empty, and counting bits is slow without a processor instruction for it.
        self.0.iter().filter(|word| **word != 0).map(|word| word.count_ones()).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    /// The chunks in either set.
    pub fn union(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// The chunks in both sets.
    pub fn intersection(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// The chunks that are not in `other`.
    pub fn minus(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// The chunks: data in ascending order, then P, then Q.
    pub fn iter(self) -> impl Iterator<Item = Role> {
        let (mut words, mut word) = (self.0, 0);
        std::iter::from_fn(move || {
            while *words.get(word)? == 0 {
                word += 1;
            }
            let low = words[word].trailing_zeros() as usize;
            words[word] &= words[word] - 1;
            Some(match word * 64 + low {
                P_BIT => Role::P,
                Q_BIT => Role::Q,
                data => Role::Data(data as u16),
            })
        })
    }
}

impl FromIterator<Role> for Symbols {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        roles.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Debug for Symbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
