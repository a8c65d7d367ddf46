//! Sets of regions on a member: a bit for each, in sealed sectors of 512 bytes.
//!
//! Each sector is a checksum and 508 bytes of bits, independent of the others. So a partial write loses nothing but the
//! damaged sectors, and every bit of a damaged sector counts as set. Both sets here are safe that way:
//!
//! * [`Open`]: regions with a write possibly in flight at the last write to the member. After a power loss, their
//!   checksums are unknown.
//! * [`Touched`]: pairs of regions that may have been written since the member was filled with zeros. The others are
//!   blank: all their blocks are zeros, and no page of the table says so.
//!
//! Nothing here reads a member. Layout: `docs/format.md`, "Checksums".

use super::crc32c;
use std::ops::Range;

const SECTOR: usize = 512;
const SEAL: usize = 4;
const BITS: usize = (SECTOR - SEAL) * 8;

/// A set of numbers, in this many sectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bits<const SECTORS: usize>([[u8; SECTOR - SEAL]; SECTORS]);

/// The set of open regions, a page.
pub type Open = Bits<8>;

/// The set of touched areas, a part of the header's page. An area is [`super::REGIONS_IN_AREA`] regions.
pub type Touched = Bits<4>;

impl<const SECTORS: usize> Bits<SECTORS> {
    /// The largest size of a set.
    pub const REGIONS_MAX: u64 = (BITS * SECTORS) as u64;

    /// Its bytes on a member.
    pub const BYTES: usize = SECTOR * SECTORS;

    /// The empty set.
    pub fn none() -> Self {
        Self([[0; SECTOR - SEAL]; SECTORS])
    }

    /// The full set.
    pub fn all() -> Self {
        Self([[0xff; SECTOR - SEAL]; SECTORS])
    }

    /// Decodes sectors sealed with `seed`.
    ///
    /// # Panics
    /// When `bytes` are not [`Self::BYTES`].
    pub fn decode(bytes: &[u8], seed: u32) -> Self {
        assert_eq!(bytes.len(), Self::BYTES, "the sectors of the set");
        let mut set = Self::none();
        for (index, (bits, sector)) in set.0.iter_mut().zip(bytes.chunks_exact(SECTOR)).enumerate() {
            bits.copy_from_slice(&sector[SEAL..]);
            if sector[..SEAL] != seal(bits, seed, index).to_le_bytes() {
                bits.fill(0xff);
            }
        }
        set
    }

    /// Encodes the sectors; `decode` of the bytes returns `self`.
    pub fn encode(&self, seed: u32) -> Vec<u8> {
        let sector = |(index, bits): (usize, &[u8; SECTOR - SEAL])| {
            seal(bits, seed, index).to_le_bytes().into_iter().chain(*bits)
        };
        self.0.iter().enumerate().flat_map(sector).collect()
    }

    /// Whether the set contains a number.
    pub fn contains(&self, number: u64) -> bool {
        let (sector, byte, bit) = place(number);
        self.0[sector][byte] & bit != 0
    }

    /// Adds numbers.
    pub fn insert(&mut self, numbers: Range<u64>) {
        for number in numbers {
            let (sector, byte, bit) = place(number);
            self.0[sector][byte] |= bit;
        }
    }

    /// Removes a number.
    pub fn remove(&mut self, number: u64) {
        let (sector, byte, bit) = place(number);
        self.0[sector][byte] &= !bit;
    }

    /// Adds the numbers of another set.
    pub fn unite(&mut self, other: &Self) {
        let (own, others) = (self.0.as_flattened_mut(), other.0.as_flattened());
        own.iter_mut().zip(others).for_each(|(bits, other)| *bits |= other);
    }
}

fn place(number: u64) -> (usize, usize, u8) {
    let (sector, within) = (number as usize / BITS, number as usize % BITS);
    (sector, within / 8, 1 << (within % 8))
}

fn seal(bits: &[u8; SECTOR - SEAL], seed: u32, sector: usize) -> u32 {
    crc32c(bits) ^ seed.wrapping_add(sector as u32)
}
