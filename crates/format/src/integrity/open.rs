//! The open regions: those with a write possibly in flight at the last write to the member. After a power loss, their
//! checksums are unknown.
//!
//! One page of eight independent sectors: each is a checksum and 508 bytes of bits. So a partial write of the page
//! loses nothing but the damaged sectors, and every region of a damaged sector counts as open. Nothing here reads a
//! member. Layout: `docs/format.md`, "Checksums".

use super::{Binding, PAGE_BYTES, crc32c};
use std::ops::Range;

const SECTOR: usize = 512;
const SEAL: usize = 4;
const SECTORS: usize = PAGE_BYTES / SECTOR;
const BITS: usize = (SECTOR - SEAL) * 8;

/// The set of open regions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open([[u8; SECTOR - SEAL]; SECTORS]);

impl Open {
    /// The maximum number of regions.
    pub const REGIONS_MAX: u64 = (BITS * SECTORS) as u64;

    /// No region is open.
    pub fn none() -> Self {
        Self([[0; SECTOR - SEAL]; SECTORS])
    }

    /// Decodes the page at [`super::Layout::open_at`].
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

    /// Encodes the page; `decode` of the bytes returns `self`.
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

    /// Marks regions as open.
    pub fn insert(&mut self, regions: Range<u64>) {
        for region in regions {
            let (sector, byte, bit) = place(region);
            self.0[sector][byte] |= bit;
        }
    }

    /// Marks a region as closed.
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
