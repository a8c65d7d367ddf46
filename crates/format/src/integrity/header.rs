//! The header: whose checksums these are, and for which superblock they stand.
//!
//! It is written twice, and before the superblock: with the superblock that is
//! there and the one to come. So whichever of the two a loss of power leaves is
//! one that the header knows. The kernel writes no microseconds into a superblock,
//! and one without them is never vouched for: events alone do not tell, because
//! the kernel takes back the event of becoming dirty when it becomes clean.

use super::{BLOCK_BYTES, Binding, Layout, PAGE_BYTES, crc32c, defect};
use crate::Defect;
use crate::superblock::{Superblock, Timestamp};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"md-csums";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 512;

#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawStamp {
    events: U64,
    updated: U64,
}

#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    checksum: U32,
    set_uuid: [u8; 16],
    device_uuid: [u8; 16],
    device_number: U32,
    pages_in_region: U32,
    data_offset: U64,
    blocks: U64,
    epoch: U64,
    generation: U64,
    stamps: [RawStamp; 2],
    reserved: [u8; 392],
}

const _: () = assert!(size_of::<Raw>() == HEADER_BYTES);

/// By what one write of a superblock is told from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// Its events.
    pub events: u64,
    /// Its `utime`.
    pub updated: Timestamp,
}

impl Stamp {
    /// Of a superblock as it is, or is to be written.
    pub fn of(superblock: &Superblock) -> Self {
        Self { events: superblock.events, updated: superblock.updated }
    }
}

/// A checked header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The array.
    pub set_uuid: [u8; 16],
    /// The member.
    pub device_uuid: [u8; 16],
    /// The member's number.
    pub device_number: u32,
    /// Where its data begins, in sectors.
    pub data_offset: u64,
    /// Blocks that have checksums.
    pub blocks: u64,
    /// Pages of the table in a region.
    pub pages_in_region: u32,
    /// Pages of the table with another epoch say nothing.
    pub epoch: u64,
    /// Grows with each header written; of two, the greater counts.
    pub generation: u64,
    /// The superblocks for which the checksums stand.
    pub stamps: [Stamp; 2],
}

impl Header {
    /// The first header of the member that `superblock` describes. `epoch` must be one that no page has.
    pub fn new(superblock: &Superblock, layout: &Layout, epoch: u64) -> Self {
        Self {
            set_uuid: superblock.set_uuid,
            device_uuid: superblock.device_uuid.unwrap_or_default(),
            device_number: superblock.device_number.0.into(),
            data_offset: superblock.data_offset.0,
            blocks: layout.blocks(),
            pages_in_region: layout.pages_in_region() as u32,
            epoch,
            generation: 1,
            stamps: [Stamp::default(), Stamp::of(superblock)],
        }
    }

    /// Reads what stands at one of [`Layout::headers_at`]. `Ok(None)` when there is no header.
    ///
    /// # Errors
    /// When it is damaged, or of a version that is not known.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, Defect> {
        let Ok((raw, _)) = Raw::ref_from_prefix(bytes) else {
            return defect("checksums", format!("only {} of {HEADER_BYTES} bytes are there", bytes.len()));
        };
        if raw.magic != MAGIC {
            return Ok(None);
        }
        let expected = checksum(raw);
        if raw.checksum.get() != expected {
            return defect("checksums.checksum", format!("{:08x}, but the bytes give {expected:08x}", raw.checksum));
        }
        if raw.version.get() != VERSION || raw.reserved.iter().any(|byte| *byte != 0) {
            return defect("checksums.version", format!("{}: a newer mdspace may have written it", raw.version));
        }
        let stamp =
            |raw: &RawStamp| Stamp { events: raw.events.get(), updated: Timestamp::from_bits(raw.updated.get()) };
        Ok(Some(Self {
            set_uuid: raw.set_uuid,
            device_uuid: raw.device_uuid,
            device_number: raw.device_number.get(),
            data_offset: raw.data_offset.get(),
            blocks: raw.blocks.get(),
            pages_in_region: raw.pages_in_region.get(),
            epoch: raw.epoch.get(),
            generation: raw.generation.get(),
            stamps: [stamp(&raw.stamps[0]), stamp(&raw.stamps[1])],
        }))
    }

    /// Of what stands at the two places, the header that counts.
    ///
    /// # Errors
    /// When there is none, but a damaged one.
    pub fn decode_pair(copies: [&[u8]; 2]) -> Result<Option<Self>, Defect> {
        match copies.map(Self::decode) {
            [Ok(Some(first)), Ok(Some(second))] => {
                Ok(Some(if second.generation > first.generation { second } else { first }))
            }
            [Ok(Some(header)), _] | [_, Ok(Some(header))] => Ok(Some(header)),
            [Err(defect), _] | [_, Err(defect)] => Err(defect),
            [Ok(None), Ok(None)] => Ok(None),
        }
    }

    /// The page to write at both of [`Layout::headers_at`].
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = Raw {
            magic: MAGIC,
            version: VERSION.into(),
            set_uuid: self.set_uuid,
            device_uuid: self.device_uuid,
            device_number: self.device_number.into(),
            pages_in_region: self.pages_in_region.into(),
            data_offset: self.data_offset.into(),
            blocks: self.blocks.into(),
            epoch: self.epoch.into(),
            generation: self.generation.into(),
            ..Raw::new_zeroed()
        };
        for (raw, stamp) in raw.stamps.iter_mut().zip(&self.stamps) {
            *raw = RawStamp { events: stamp.events.into(), updated: stamp.updated.to_bits().into() };
        }
        raw.checksum = checksum(&raw).into();
        let mut page = raw.as_bytes().to_vec();
        page.resize(PAGE_BYTES, 0);
        page
    }

    /// Whether it is of this very member, as it lies there now.
    ///
    /// # Errors
    /// The first field that differs: then the table says nothing.
    pub fn check(&self, superblock: &Superblock, layout: &Layout) -> Result<(), Defect> {
        let own = Self::new(superblock, layout, self.epoch);
        let fields = [
            ("checksums.set_uuid", self.set_uuid == own.set_uuid),
            ("checksums.device_uuid", self.device_uuid == own.device_uuid),
            ("checksums.device_number", self.device_number == own.device_number),
            ("checksums.data_offset", self.data_offset == own.data_offset),
            ("checksums.blocks", self.blocks == own.blocks),
            ("checksums.pages_in_region", self.pages_in_region == own.pages_in_region),
        ];
        match fields.iter().find(|(_, same)| !same) {
            Some((field, _)) => defect(
                field,
                format!(
                    "of another member, or of before it was reshaped: {} blocks of {BLOCK_BYTES} bytes from sector {}",
                    self.blocks, self.data_offset
                ),
            ),
            None => Ok(()),
        }
    }

    /// Whether nobody but a keeper of these checksums can have written to the
    /// member: its superblock is one that the header announced.
    pub fn vouches_for(&self, superblock: &Superblock) -> bool {
        superblock.updated.micros != 0 && self.stamps.contains(&Stamp::of(superblock))
    }

    /// What the table's pages and the open regions are sealed with.
    pub fn binding(&self) -> Binding {
        let mut identity = [0; 44];
        identity[..16].copy_from_slice(&self.set_uuid);
        identity[16..32].copy_from_slice(&self.device_uuid);
        identity[32..36].copy_from_slice(&self.device_number.to_le_bytes());
        identity[36..].copy_from_slice(&self.data_offset.to_le_bytes());
        Binding { seed: crc32c(&identity), epoch: self.epoch }
    }
}

fn checksum(raw: &Raw) -> u32 {
    let mut zeroed = raw.clone();
    zeroed.checksum = 0.into();
    crc32c(zeroed.as_bytes())
}
