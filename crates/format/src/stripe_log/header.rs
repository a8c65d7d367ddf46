//! The header of a stripe log: the member that it belongs to, the superblocks for which it counts, and the records that
//! count.
//!
//! It is written before each superblock ([`crate::stamp`]). It is one sector, which members write as a whole. Nothing here reads a member.
//! Layout: `docs/format.md`, "Stripe log".

use super::{PAGE_BYTES, Place, checksum, defect};
use crate::Defect;
use crate::stamp::{self, RawStamp, Stamp};
use crate::superblock::{Superblock, level_to_md};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"md-strip";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 512;

/// [`Raw::flags`]: parity was built everywhere when the header was written.
const IS_BUILT: u32 = 1;

#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    checksum: U32,
    set_uuid: [u8; 16],
    device_uuid: [u8; 16],
    device_number: U32,
    level: U32,
    layout: U32,
    raid_disks: U32,
    chunk: U64,
    data_offset: U64,
    bytes: U64,
    epoch: U64,
    first: U64,
    tail: U64,
    flags: U32,
    padding: U32,
    stamps: [RawStamp; 2],
    reserved: [u8; 360],
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
    /// The level's number in the superblock.
    pub level: u32,
    /// The layout.
    pub layout: u32,
    /// Members in the array.
    pub raid_disks: u32,
    /// Sectors of a chunk.
    pub chunk: u64,
    /// The start of the data area, in sectors.
    pub data_offset: u64,
    /// Bytes of the log.
    pub bytes: u64,
    /// The use of the array that writes the log. Records of another one are ignored.
    pub epoch: u64,
    /// Records of this member with a smaller sequence are ignored: it was not in the array when they were written.
    pub first: u64,
    /// Records with a smaller sequence are ignored, on each member: their writes are on stable storage.
    pub tail: u64,
    /// Whether parity was built everywhere.
    pub is_built: bool,
    /// The superblocks for which the log counts.
    pub stamps: [Stamp; 2],
}

impl Header {
    /// The header of the member of `superblock`, for that superblock alone.
    pub fn new(superblock: &Superblock, place: &Place, epoch: u64) -> Self {
        Self {
            set_uuid: superblock.set_uuid,
            device_uuid: superblock.device_uuid.unwrap_or_default(),
            device_number: superblock.device_number.0.into(),
            level: level_to_md(superblock.level).cast_unsigned(),
            layout: superblock.layout,
            raid_disks: superblock.raid_disks.into(),
            chunk: superblock.chunk.0,
            data_offset: superblock.data_offset.0,
            bytes: place.bytes,
            epoch,
            first: 0,
            tail: 0,
            is_built: false,
            stamps: [Stamp::default(), Stamp::of(superblock)],
        }
    }

    /// Decodes the page at [`Place::at`]. `Ok(None)` when there is no header.
    ///
    /// # Errors
    /// When the header is damaged, or of an unknown version.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, Defect> {
        let Ok((raw, _)) = Raw::ref_from_prefix(bytes) else {
            return defect("stripe_log", format!("only {} of {HEADER_BYTES}", bytes.len()));
        };
        if raw.magic != MAGIC {
            return Ok(None);
        }
        let expected = sum(raw);
        if raw.checksum.get() != expected {
            return defect("stripe_log.checksum", format!("{:08x}, but the bytes give {expected:08x}", raw.checksum));
        }
        let is_known = raw.version.get() == VERSION && raw.flags.get() <= IS_BUILT && raw.padding.get() == 0;
        if !is_known || raw.reserved.iter().any(|byte| *byte != 0) {
            return defect("stripe_log.version", format!("{}: a newer mdspace may have written it", raw.version));
        }
        Ok(Some(Self {
            set_uuid: raw.set_uuid,
            device_uuid: raw.device_uuid,
            device_number: raw.device_number.get(),
            level: raw.level.get(),
            layout: raw.layout.get(),
            raid_disks: raw.raid_disks.get(),
            chunk: raw.chunk.get(),
            data_offset: raw.data_offset.get(),
            bytes: raw.bytes.get(),
            epoch: raw.epoch.get(),
            first: raw.first.get(),
            tail: raw.tail.get(),
            is_built: raw.flags.get() & IS_BUILT != 0,
            stamps: raw.stamps.map(Stamp::from),
        }))
    }

    /// Encodes the page to write at [`Place::at`].
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = Raw {
            magic: MAGIC,
            version: VERSION.into(),
            set_uuid: self.set_uuid,
            device_uuid: self.device_uuid,
            device_number: self.device_number.into(),
            level: self.level.into(),
            layout: self.layout.into(),
            raid_disks: self.raid_disks.into(),
            chunk: self.chunk.into(),
            data_offset: self.data_offset.into(),
            bytes: self.bytes.into(),
            epoch: self.epoch.into(),
            first: self.first.into(),
            tail: self.tail.into(),
            flags: if self.is_built { IS_BUILT } else { 0 }.into(),
            stamps: self.stamps.map(RawStamp::from),
            ..Raw::new_zeroed()
        };
        raw.checksum = sum(&raw).into();
        let mut page = raw.as_bytes().to_vec();
        page.resize(PAGE_BYTES, 0);
        page
    }

    /// Checks that the header belongs to this member, and to the array's current shape.
    ///
    /// # Errors
    /// The first field that differs. Then the log is void.
    pub fn check(&self, superblock: &Superblock, place: &Place) -> Result<(), Defect> {
        let own = Self::new(superblock, place, self.epoch);
        let fields = [
            ("stripe_log.set_uuid", self.set_uuid == own.set_uuid),
            ("stripe_log.device_uuid", self.device_uuid == own.device_uuid),
            ("stripe_log.device_number", self.device_number == own.device_number),
            ("stripe_log.level", self.level == own.level),
            ("stripe_log.layout", self.layout == own.layout),
            ("stripe_log.raid_disks", self.raid_disks == own.raid_disks),
            ("stripe_log.chunk", self.chunk == own.chunk),
            ("stripe_log.data_offset", self.data_offset == own.data_offset),
        ];
        stamp::check_fields(&fields, || "of another member, or from before the array's shape was changed".to_owned())
    }

    /// Whether only a program that keeps this log can have written the member: the header announced its superblock.
    pub fn vouches_for(&self, superblock: &Superblock) -> bool {
        stamp::vouch_for(&self.stamps, superblock)
    }

    /// Seals the records of this log: no data that happens to be in the ring passes for one.
    pub fn seed(&self) -> u32 {
        let mut identity = [0; 44];
        identity[..16].copy_from_slice(&self.set_uuid);
        identity[16..32].copy_from_slice(&self.device_uuid);
        identity[32..36].copy_from_slice(&self.device_number.to_le_bytes());
        identity[36..].copy_from_slice(&self.epoch.to_le_bytes());
        checksum(&identity)
    }
}

fn sum(raw: &Raw) -> u32 {
    let mut zeroed = raw.clone();
    zeroed.checksum = 0.into();
    checksum(zeroed.as_bytes())
}
