//! The open regions: those to which a write may have been under way when the
//! member was last written to. Their checksums are unknown after a loss of power.
//!
//! One page, eight sectors that each stand for themselves: a checksum, then 508
//! bytes of bits. So a page of which only some sectors were written is as good
//! as its parts, and in a sector that is damaged every region counts as open.

use super::{Binding, PAGE_BYTES, crc32c};
use std::ops::Range;

const SECTOR: usize = 512;
const SEAL: usize = 4;
const SECTORS: usize = PAGE_BYTES / SECTOR;
const BITS: usize = (SECTOR - SEAL) * 8;

/// Which regions are open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open([[u8; SECTOR - SEAL]; SECTORS]);

impl Open {
    /// As many as can be noted.
    pub const REGIONS_MAX: u64 = (BITS * SECTORS) as u64;

    /// No region is open.
    pub fn none() -> Self {
        Self([[0; SECTOR - SEAL]; SECTORS])
    }

    /// Reads the page at [`super::Layout::open_at`].
    ///
    /// # Panics
    /// When `bytes` are not a page.
    pub fn decode(bytes: &[u8], binding: &Binding) -> Self {
        assert_eq!(bytes.len(), PAGE_BYTES, "a page");
        let mut open = Self::none();
        for (index, (bits, sector)) in open.0.iter_mut().zip(bytes.chunks_exact(SECTOR)).enumerate() {
            bits.copy_from_slice(&sector[SEAL..]);
            if sector[..SEAL] != seal(bits, binding, index).to_le_bytes() {
                bits.fill(0xff);
            }
        }
        open
    }

    /// The page's bytes; `decode` of them gives `self` again.
    pub fn encode(&self, binding: &Binding) -> Vec<u8> {
        let sector = |(index, bits): (usize, &[u8; SECTOR - SEAL])| {
            seal(bits, binding, index).to_le_bytes().into_iter().chain(*bits)
        };
        self.0.iter().enumerate().flat_map(sector).collect()
    }

    /// Whether a region is open.
    pub fn contains(&self, region: u64) -> bool {
        let (sector, byte, bit) = place(region);
        self.0[sector][byte] & bit != 0
    }

    /// Notes regions as open.
    pub fn insert(&mut self, regions: Range<u64>) {
        for region in regions {
            let (sector, byte, bit) = place(region);
            self.0[sector][byte] |= bit;
        }
    }

    /// Takes a region's note back.
    pub fn remove(&mut self, region: u64) {
        let (sector, byte, bit) = place(region);
        self.0[sector][byte] &= !bit;
    }
}

fn place(region: u64) -> (usize, usize, u8) {
    let (sector, within) = (region as usize / BITS, region as usize % BITS);
    (sector, within / 8, 1 << (within % 8))
}

fn seal(bits: &[u8; SECTOR - SEAL], binding: &Binding, sector: usize) -> u32 {
    crc32c(bits) ^ binding.seed.wrapping_add(sector as u32)
}
