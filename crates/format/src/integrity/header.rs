//! The header of the checksums: the member they belong to, the superblocks for which they are valid, and the areas
//! that were never written.
//!
//! It is written twice, and before the superblock ([`crate::stamp`]). Nothing here reads a member. Layout:
//! `docs/format.md`, "Checksums".

use super::{BLOCK_BYTES, Binding, Layout, PAGE_BYTES, Touched, crc32c, defect};
use crate::Defect;
use crate::stamp::{self, RawStamp, Stamp};
use crate::superblock::Superblock;
use std::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"md-csums";
/// The version without blank areas: nothing stands behind the header, and every area counts as touched.
const VERSION: u32 = 1;
/// The version in which the touched areas stand behind the header. A program that knows only the first one must not
/// write the member and keep these bytes.
const VERSION_BLANK: u32 = 2;
const HEADER_BYTES: usize = 512;
const TOUCHED: Range<usize> = HEADER_BYTES..HEADER_BYTES + Touched::BYTES;

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

/// A checked header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The uuid of the array.
    pub set_uuid: [u8; 16],
    /// The uuid of the member.
    pub device_uuid: [u8; 16],
    /// The member's device number.
    pub device_number: u32,
    /// The start of its data area, in sectors.
    pub data_offset: u64,
    /// The number of blocks with checksums.
    pub blocks: u64,
    /// Pages of the table in a region.
    pub pages_in_region: u32,
    /// The current epoch. Pages of another epoch are ignored.
    pub epoch: u64,
    /// Raised with each write of the header. The header with the greater one is valid.
    pub generation: u64,
    /// The superblocks for which the checksums are valid.
    pub stamps: [Stamp; 2],
    /// The areas that may have been written since the member was filled with zeros.
    pub touched: Touched,
}

impl Header {
    /// The first header of the member of `superblock`. No page may have `epoch` already. No area is blank.
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
            touched: Touched::all(),
        }
    }

    /// Decodes the page at one of [`Layout::headers_at`]. `Ok(None)` when there is no header.
    ///
    /// # Errors
    /// When the header is damaged, or of an unknown version.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, Defect> {
        let Ok((raw, _)) = Raw::ref_from_prefix(bytes) else {
            return defect("checksums", format!("only {} of {HEADER_BYTES}", bytes.len()));
        };
        if raw.magic != MAGIC {
            return Ok(None);
        }
        let expected = checksum(raw);
        if raw.checksum.get() != expected {
            return defect("checksums.checksum", format!("{:08x}, but the bytes give {expected:08x}", raw.checksum));
        }
        if ![VERSION, VERSION_BLANK].contains(&raw.version.get()) || raw.reserved.iter().any(|byte| *byte != 0) {
            return defect("checksums.version", format!("{}: a newer mdspace may have written it", raw.version));
        }
        let mut header = Self {
            set_uuid: raw.set_uuid,
            device_uuid: raw.device_uuid,
            device_number: raw.device_number.get(),
            data_offset: raw.data_offset.get(),
            blocks: raw.blocks.get(),
            pages_in_region: raw.pages_in_region.get(),
            epoch: raw.epoch.get(),
            generation: raw.generation.get(),
            stamps: raw.stamps.map(Stamp::from),
            touched: Touched::all(),
        };
        if let (VERSION_BLANK, Some(touched)) = (raw.version.get(), bytes.get(TOUCHED)) {
            header.touched = Touched::decode(touched, header.binding().touched_seed());
        }
        Ok(Some(header))
    }

    /// The valid header of the two copies. An area that either of them calls touched is.
    ///
    /// # Errors
    /// When one copy is damaged and the other is no header.
    pub fn decode_pair(copies: [&[u8]; 2]) -> Result<Option<Self>, Defect> {
        match copies.map(Self::decode) {
            [Ok(Some(first)), Ok(Some(second))] => {
                let (mut newer, older) =
                    if second.generation > first.generation { (second, first) } else { (first, second) };
                newer.touched.unite(&older.touched);
                Ok(Some(newer))
            }
            [Ok(Some(header)), _] | [_, Ok(Some(header))] => Ok(Some(header)),
            [Err(defect), _] | [_, Err(defect)] => Err(defect),
            [Ok(None), Ok(None)] => Ok(None),
        }
    }

    /// Encodes the page to write at both of [`Layout::headers_at`].
    pub fn encode(&self) -> Vec<u8> {
        let has_blank = self.touched != Touched::all();
        let mut raw = Raw {
            magic: MAGIC,
            version: if has_blank { VERSION_BLANK } else { VERSION }.into(),
            set_uuid: self.set_uuid,
            device_uuid: self.device_uuid,
            device_number: self.device_number.into(),
            pages_in_region: self.pages_in_region.into(),
            data_offset: self.data_offset.into(),
            blocks: self.blocks.into(),
            epoch: self.epoch.into(),
            generation: self.generation.into(),
            stamps: self.stamps.map(RawStamp::from),
            ..Raw::new_zeroed()
        };
        raw.checksum = checksum(&raw).into();
        let mut page = raw.as_bytes().to_vec();
        page.resize(PAGE_BYTES, 0);
        if has_blank {
            page[TOUCHED].copy_from_slice(&self.touched.encode(self.binding().touched_seed()));
        }
        page
    }

    /// Checks that the header belongs to this member and its current layout.
    ///
    /// # Errors
    /// The first field that differs. Then the table must be ignored.
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
        stamp::check_fields(&fields, || {
            format!(
                "of another member, or from before a reshape: {} blocks of {BLOCK_BYTES} bytes from sector {}",
                self.blocks, self.data_offset
            )
        })
    }

    /// Whether only a program that maintains these checksums can have written the member: the header announced its
    /// superblock.
    pub fn vouches_for(&self, superblock: &Superblock) -> bool {
        stamp::vouch_for(&self.stamps, superblock)
    }

    /// The values that seal the table's pages and the open regions.
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
