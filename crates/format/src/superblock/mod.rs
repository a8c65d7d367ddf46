//! The superblock: what every member says of the array and of itself.
//!
//! [`decode`] turns the bytes at one of [`places()`] into a checked
//! [`Superblock`], the same type for metadata 0.90 and 1.x; only that goes
//! further into the program. [`Superblock::encode`] gives the bytes back.
//!
//! Invariants:
//! * a value of [`Superblock`] came from bytes that passed every check, or from
//!   [`Superblock::new`], which applies the same checks;
//! * bytes that no field here stands for (padding, fields whose feature bit is
//!   not set, the space after the last role) survive decode and encode;
//! * never repairs, guesses or falls back: one wrong field is a [`Defect`].
//!
//! Facts: `include/uapi/linux/raid/md_p.h`, `drivers/md/md.c` (`super_90_*`,
//! `super_1_*`), and the driver itself; `docs/format.md`, "Superblocks".

mod area;
mod checksum;
mod create;
mod grow;
mod places;
mod types;
mod v0;
mod v1;

pub use create::Blueprint;
pub use places::{PLACE_BYTES, Version, places};
pub use types::{
    BadBlockPlace, BitmapPlace, DeviceFlags, DeviceRole, Features, PplPlace, Reshape, Resync, SetName, Timestamp,
};

use crate::Defect;
use crate::geometry::{Level, Shape};
use crate::units::{DeviceNumber, MemberByte, Sectors};
use std::ops::Range;

/// The most device numbers that a 1.x superblock can list.
pub const MAX_DEVICES: usize = (PLACE_BYTES as usize - 256) / 2;

/// Set in a device's role by a NAS maker's kernel whose disk had errors. The rest of the role is its slot. Neither the kernel
/// nor mdadm knows the flag. Seen in superblocks 1.2 of Synology's, where the slot counts on.
pub const DISK_ERROR: u16 = 0x8000;

/// A checked superblock. Public fields may be changed; [`Superblock::encode`]
/// writes what they say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Which format, and so where it is.
    pub version: Version,
    /// Identity of the array.
    pub set_uuid: [u8; 16],
    /// Name of the array; empty for 0.90, which has none.
    pub set_name: SetName,
    /// When the array was created.
    pub created: Timestamp,
    /// When this superblock was last written.
    pub updated: Timestamp,
    /// RAID level.
    pub level: Level,
    /// Layout, in the level's own coding. For level 0 see [`Self::raid0_layout`].
    pub layout: u32,
    /// Chunk; zero where the level has none. For linear: members are rounded down to it.
    pub chunk: Sectors,
    /// Number of slots.
    pub raid_disks: u16,
    /// What is used of each member's data area, from level 1 up (md's `size`).
    pub component: Sectors,
    /// Where this superblock is, from the member's start.
    pub super_offset: Sectors,
    /// Where the data area begins, from the member's start.
    pub data_offset: Sectors,
    /// Length of the data area.
    pub data_size: Sectors,
    /// Counts changes of membership and of clean/dirty; the freshest wins at assembly.
    pub events: u64,
    /// Whether redundancy is known to be right.
    pub resync: Resync,
    /// `Some` while this member is being recovered: the data area is valid below it.
    pub recovery_offset: Option<Sectors>,
    /// Recovery after a re-add, of only what the bitmap names.
    pub recovery_from_bitmap: bool,
    /// This member is replacing the active one of the same slot.
    pub replacement: bool,
    /// This member's own number: its index in [`Self::roles`].
    pub device_number: DeviceNumber,
    /// Identity of this member; 0.90 has none.
    pub device_uuid: Option<[u8; 16]>,
    /// What each device number is, as this superblock knows it. Numbers never used are [`DeviceRole::Spare`].
    pub roles: Vec<DeviceRole>,
    /// Hints for reads and writes of this member.
    pub device_flags: DeviceFlags,
    /// Read errors that were corrected by writing, since the array was made.
    pub corrected_reads: u32,
    /// Where the write-intent bitmap is.
    pub bitmap: Option<BitmapPlace>,
    /// Where room for the bad-block log is, and whether it has entries.
    pub bad_blocks: Option<BadBlockPlace>,
    /// Where the partial parity log is.
    pub ppl: Option<PplPlace>,
    /// A reshape is under way.
    pub reshape: Option<Reshape>,
    /// What the reshape adds to this member's `data_offset`.
    pub new_offset: Option<i32>,
    /// The array has a write journal (on a member of role [`DeviceRole::Journal`]).
    pub journal: bool,
    /// On the journal itself: its tail, from its data area's start. It shares its place with
    /// [`Self::recovery_offset`], which counts before it where both are given.
    pub journal_tail: Option<Sectors>,
    /// The bitmap is a cluster's, one for each node.
    pub clustered: bool,
    /// Level 0: `layout` says how zones are laid out. Without it an array with more than one zone is ambiguous.
    pub raid0_layout: bool,
    /// Newest kernels: logical block size of the array in bytes; zero elsewhere.
    pub logical_block_bytes: u32,
    /// 0.90 alone: written by a machine of the other byte order. The kernel here takes it only after
    /// `mdadm --assemble --update=byteorder`.
    pub other_byte_order: bool,
    /// 1.x alone: devices whose role has [`DISK_ERROR`] set. The kernel takes none of them.
    pub disk_errors: Vec<DeviceNumber>,
    /// What stands for nothing above, kept for `encode`.
    rest: Rest,
}

/// Bytes that are not understood, by format.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Rest {
    V0(Box<v0::Rest>),
    V1(Box<v1::Rest>),
}

/// Reads what stands at one of [`places()`]; `bytes` begins there and has at
/// least [`PLACE_BYTES`] bytes; `member_bytes` is the member's length.
///
/// `Ok(None)` when there is no superblock: the magic number is missing.
///
/// # Errors
/// The magic number is there but a field is wrong, or a part of the member
/// that it describes lies outside the member or over another part.
pub fn decode(version: Version, at: MemberByte, bytes: &[u8], member_bytes: u64) -> Result<Option<Superblock>, Defect> {
    let Some(bytes) = bytes.get(..PLACE_BYTES as usize) else {
        return Err(Defect::new("superblock", format!("only {} of {PLACE_BYTES} bytes are there", bytes.len())));
    };
    let found = match version {
        Version::V0_90 => v0::decode(at, bytes)?,
        Version::V1_0 | Version::V1_1 | Version::V1_2 => v1::decode(version, at, bytes)?,
    };
    if let Some(superblock) = &found {
        area::check(superblock, member_bytes)?;
    }
    Ok(found)
}

impl Superblock {
    /// The bytes to write at [`Self::super_offset`]: whole sectors, checksummed.
    /// `decode` of them gives `self` again.
    ///
    /// # Panics
    /// When a field was given a value that its place on disk cannot hold: more
    /// than [`Self::devices_max`] roles, or for 0.90 a feature that it lacks.
    pub fn encode(&self) -> Vec<u8> {
        match &self.rest {
            Rest::V0(rest) => v0::encode(self, rest),
            Rest::V1(rest) => v1::encode(self, rest),
        }
    }

    /// What this member is, by its own superblock.
    pub fn own_role(&self) -> DeviceRole {
        self.role(self.device_number)
    }

    /// What `device` is, by this member's superblock. A number that is not listed is a spare.
    pub fn role(&self, device: DeviceNumber) -> DeviceRole {
        self.roles.get(usize::from(device.0)).copied().unwrap_or(DeviceRole::Spare)
    }

    /// How many devices the superblock can list where it is, so that every number is below this. Never more than
    /// [`MAX_DEVICES`]; 27 for 0.90.
    pub fn devices_max(&self) -> usize {
        area::devices_max(self)
    }

    /// Where the superblock is.
    pub fn super_at(&self) -> MemberByte {
        MemberByte(self.super_offset.bytes())
    }

    /// Where the data area begins.
    pub fn data_at(&self) -> MemberByte {
        MemberByte(self.data_offset.bytes())
    }

    /// Where the write-intent bitmap's own superblock is; its bits follow.
    pub fn bitmap_at(&self) -> Option<MemberByte> {
        self.bitmap.map(|place| area::from_superblock(self.super_offset, place.sectors_from_superblock.into()))
    }

    /// Where the bad-block log is.
    pub fn bad_blocks_at(&self) -> Option<MemberByte> {
        self.bad_blocks.map(|place| area::from_superblock(self.super_offset, place.sectors_from_superblock.into()))
    }

    /// Where the partial parity log is.
    pub fn ppl_at(&self) -> Option<MemberByte> {
        self.ppl.map(|place| area::from_superblock(self.super_offset, place.sectors_from_superblock.into()))
    }

    /// Bytes from the bitmap's place to whatever comes next on a member of
    /// `member_bytes`: the bitmap with its own superblock must fit in them.
    pub fn bitmap_room(&self, member_bytes: u64) -> Option<u64> {
        area::bitmap_room(self, member_bytes)
    }

    /// The most bytes that a bitmap could have on this member, which has none yet.
    pub fn bitmap_room_max(&self, member_bytes: u64) -> u64 {
        area::bitmap_room_max(self, member_bytes)
    }

    /// Sectors from the member's start that md uses or keeps free for itself, where its data follows them.
    pub(crate) fn room_before_data(&self) -> Sectors {
        area::room_before_data(self)
    }

    /// Sectors behind what the array uses of its data area, up to that area's end, if they are free of everything of md's.
    pub(crate) fn room_behind_data(&self) -> Option<Range<u64>> {
        area::room_behind_data(self)
    }

    /// Where a bitmap of `bytes` would go on this member: behind the superblock or, with
    /// 1.0, before it and the bad-block log. It need not fit there ([`Self::with_bitmap`]).
    pub fn bitmap_place(&self, bytes: u64) -> BitmapPlace {
        area::bitmap_place(self, bytes)
    }

    /// The same superblock with its bitmap elsewhere, or with none.
    ///
    /// # Errors
    /// When the place is not on the member or something else is there.
    pub fn with_bitmap(&self, bitmap: Option<BitmapPlace>, member_bytes: u64) -> Result<Self, Defect> {
        let changed = Self { bitmap, ..self.clone() };
        area::check(&changed, member_bytes)?;
        Ok(changed)
    }

    /// Bytes of this member that the array's data and parity may use: the whole
    /// data area for linear and RAID-0, the component size elsewhere.
    pub fn data_bytes(&self) -> u64 {
        area::used_data(self).bytes()
    }

    /// The array's shape. `data_bytes_by_slot`: every slot's
    /// [`Self::data_bytes`], in slot order; used only for linear and RAID-0.
    pub fn shape(&self, data_bytes_by_slot: &[u64]) -> Shape {
        let chunk_bytes = self.chunk.bytes();
        let (chunk_bytes, member_bytes) = match self.level {
            Level::Raid0 => (chunk_bytes, data_bytes_by_slot.to_vec()),
            Level::Linear => {
                let rounding = chunk_bytes.max(1);
                (0, data_bytes_by_slot.iter().map(|bytes| bytes / rounding * rounding).collect())
            }
            Level::Raid1 => (0, Vec::new()),
            Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => (chunk_bytes, Vec::new()),
        };
        let layout = if self.level == Level::Raid0 && !self.raid0_layout { 0 } else { self.layout };
        Shape {
            level: self.level,
            layout,
            chunk_bytes,
            slots: self.raid_disks,
            component_bytes: self.component.bytes(),
            member_bytes,
        }
    }

    /// Whether padding that should be zero is not. The kernel then refuses the
    /// member, since a newer one may mean something by it; `encode` preserves it.
    pub fn has_unknown_padding(&self) -> bool {
        match &self.rest {
            Rest::V0(_) => false,
            Rest::V1(rest) => rest.has_padding(),
        }
    }

    /// The feature bits that these fields amount to.
    pub fn features(&self) -> Features {
        Features::of(self)
    }
}
