//! A page of the table: the checksums of 1020 blocks.
//!
//! It is sealed with the member's identity and the page's own number. So a page written to another position, or copied
//! from another member, is never accepted. Layout: `docs/format.md`, "Checksums".

use super::{Checksum, PAGE_BYTES, crc32c, defect};
use crate::Defect;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Checksums in a page.
pub const PAGE_ENTRIES: u64 = 1020;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Raw {
    checksum: U32,
    number: U32,
    epoch: U64,
    entries: [U32; PAGE_ENTRIES as usize],
}

const _: () = assert!(size_of::<Raw>() == PAGE_BYTES);

/// The values that seal a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// A hash of the member's identity.
    pub seed: u32,
    /// The current epoch. Pages of another epoch are ignored.
    pub epoch: u64,
}

impl Binding {
    /// Seals the touched areas. Those of another epoch are damaged.
    pub(super) fn touched_seed(&self) -> u32 {
        self.seed ^ crc32c(&self.epoch.to_le_bytes())
    }
}

/// The checksums of a page's blocks; `None`: unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page(Box<[Option<Checksum>; PAGE_ENTRIES as usize]>);

impl Page {
    /// A page of unknown checksums.
    pub fn unknown() -> Self {
        Self(Box::new([None; PAGE_ENTRIES as usize]))
    }

    /// The page of blocks of zeros.
    pub fn zeros() -> Self {
        Self(Box::new([Some(Checksum::of_zeros()); PAGE_ENTRIES as usize]))
    }

    /// Decodes page `number` of the table.
    ///
    /// # Errors
    /// When the page is damaged or belongs elsewhere; then all its checksums are unknown. A page never written, or of
    /// another epoch, decodes as unknown without an error.
    pub fn decode(bytes: &[u8], binding: &Binding, number: u64) -> Result<Self, Defect> {
        let Ok((raw, _)) = Raw::ref_from_prefix(bytes) else {
            return defect("checksums.page", format!("only {} of {PAGE_BYTES}", bytes.len()));
        };
        if raw.as_bytes().iter().all(|byte| *byte == 0) {
            return Ok(Self::unknown());
        }
        let expected = seal(raw, binding);
        if raw.checksum.get() != expected {
            let reason = format!("page {number}: {:08x}, but the bytes give {expected:08x}", raw.checksum);
            return defect("checksums.page", reason);
        }
        if u64::from(raw.number.get()) != number {
            return defect("checksums.page", format!("page {} at the position of page {number}", raw.number));
        }
        if raw.epoch.get() != binding.epoch {
            return Ok(Self::unknown());
        }
        let mut page = Self::unknown();
        for (entry, stored) in page.0.iter_mut().zip(&raw.entries) {
            *entry = Checksum::from_stored(stored.get());
        }
        Ok(page)
    }

    /// Encodes page `number`; `decode` of the bytes returns `self`.
    ///
    /// # Panics
    /// When `into` is not a page.
    pub fn encode(&self, binding: &Binding, number: u64, into: &mut [u8]) {
        let raw = Raw::mut_from_bytes(into).expect("a page");
        raw.number = (number as u32).into();
        raw.epoch = binding.epoch.into();
        for (stored, entry) in raw.entries.iter_mut().zip(self.0.iter()) {
            *stored = entry.map_or(0, |checksum| checksum.0.get()).into();
        }
        raw.checksum = seal(raw, binding).into();
    }

    /// Its checksums, one for each block.
    pub fn entries(&self) -> &[Option<Checksum>; PAGE_ENTRIES as usize] {
        &self.0
    }

    /// Its checksums, to modify.
    pub fn entries_mut(&mut self) -> &mut [Option<Checksum>; PAGE_ENTRIES as usize] {
        &mut self.0
    }
}

fn seal(raw: &Raw, binding: &Binding) -> u32 {
    crc32c(&raw.as_bytes()[size_of::<U32>()..]) ^ binding.seed
}
