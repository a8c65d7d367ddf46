//! The superblock: what every member records about the array and itself.
//!
//! [`decode`] turns the bytes at one of [`places()`] into a checked [`Superblock`], one type for metadata 0.90 and 1.x.
//! The rest of the program uses that type only. [`Superblock::encode`] returns the bytes again.
//!
//! Invariants:
//! * A [`Superblock`] comes from bytes that passed every check, or from [`Superblock::new`], which applies the same
//!   checks.
//! * Bytes without a field here (padding, fields whose feature bit is not set, the space after the last role) survive
//!   decode and encode.
//! * It never repairs, guesses or falls back: one wrong field is a [`Defect`].
//!
//! Facts: `include/uapi/linux/raid/md_p.h`, `drivers/md/md.c` (`super_90_*`, `super_1_*`), and the driver itself;
//! `docs/format.md`, "Superblocks".

mod area;
mod checksum;
mod convert;
mod create;
mod grow;
mod listing;
mod more_slots;
mod parity_log;
mod places;
mod reshape;
mod types;
mod v0;
mod v1;

pub use create::Blueprint;
pub use listing::{Counts, Listed, checksum_at};
pub use places::{PLACE_BYTES, Version, places};
pub use reshape::{Progress, Side};
pub use types::{
    BadBlockPlace, BitmapPlace, DeviceFlags, DeviceRole, Features, PplPlace, Reshape, Resync, SetName, Timestamp,
};

pub(crate) use v1::level_to_md;

use crate::Defect;
use crate::geometry::{Level, Shape};
use crate::units::{DeviceNumber, MemberByte, Sectors};
use std::ops::Range;

/// Maximum number of device numbers in a 1.x superblock.
pub const MAX_DEVICES: usize = (PLACE_BYTES as usize - 256) / 2;

/// A flag in a device's role, set by a NAS vendor's kernel when the disk had errors. The rest of the role is its slot.
/// Neither the kernel nor mdadm knows the flag. Seen in 1.2 superblocks of Synology, whose kernel still uses the slot.
pub const DISK_ERROR: u16 = 0x8000;

/// A checked superblock. Public fields may be changed; [`Superblock::encode`] writes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// The format, which determines the position.
    pub version: Version,
    /// The uuid of the array.
    pub set_uuid: [u8; 16],
    /// The name of the array; empty for 0.90, which has none.
    pub set_name: SetName,
    /// The creation time of the array.
    pub created: Timestamp,
    /// The time of this superblock's last write.
    pub updated: Timestamp,
    /// RAID level.
    pub level: Level,
    /// The layout, in the level's own encoding. For level 0 see [`Self::raid0_layout`].
    pub layout: u32,
    /// The chunk; 0 for levels without chunks. For linear, members are rounded down to it.
    pub chunk: Sectors,
    /// Number of slots.
    pub raid_disks: u16,
    /// Sectors used of each member's data area, from level 1 up (md's `size`).
    pub component: Sectors,
    /// The position of this superblock, from the member's start.
    pub super_offset: Sectors,
    /// The start of the data area, from the member's start.
    pub data_offset: Sectors,
    /// The length of the data area.
    pub data_size: Sectors,
    /// Counts changes of membership and of clean/dirty. The member with the most events is the freshest at assembly.
    pub events: u64,
    /// How much of the redundancy is known to be consistent.
    pub resync: Resync,
    /// `Some` while this member is being rebuilt: its data area is valid below this position.
    pub recovery_offset: Option<Sectors>,
    /// The rebuild after a re-add copies only the chunks set in the bitmap.
    pub recovery_from_bitmap: bool,
    /// This member is replacing the active one of the same slot.
    pub replacement: bool,
    /// This member's device number: its index in [`Self::roles`].
    pub device_number: DeviceNumber,
    /// The uuid of this member; 0.90 has none.
    pub device_uuid: Option<[u8; 16]>,
    /// The role of each device number, as recorded on this member. Unused numbers are [`DeviceRole::Spare`].
    pub roles: Vec<DeviceRole>,
    /// Hints for reads and writes of this member.
    pub device_flags: DeviceFlags,
    /// Read errors corrected by rewriting, since the array's creation.
    pub corrected_reads: u32,
    /// The position of the write-intent bitmap.
    pub bitmap: Option<BitmapPlace>,
    /// The position of the bad-block log, and whether it has entries.
    pub bad_blocks: Option<BadBlockPlace>,
    /// The position of the partial parity log.
    pub ppl: Option<PplPlace>,
    /// The reshape in progress.
    pub reshape: Option<Reshape>,
    /// The reshape adds this to this member's `data_offset`.
    pub new_offset: Option<i32>,
    /// The array has a write journal (on a member of role [`DeviceRole::Journal`]).
    pub journal: bool,
    /// On the journal itself: its tail, from its data area's start. On disk it shares a field with
    /// [`Self::recovery_offset`], which takes precedence if both are given.
    pub journal_tail: Option<Sectors>,
    /// The bitmap is a cluster's, with one per node.
    pub clustered: bool,
    /// Level 0: `layout` defines the layout of zones. Without it, an array with several zones is ambiguous.
    pub raid0_layout: bool,
    /// Newest kernels: logical block size of the array in bytes; 0 otherwise.
    pub logical_block_bytes: u32,
    /// 0.90 only: written by a machine of the other byte order. The kernel accepts it only after `mdadm --assemble
    /// --update=byteorder`.
    pub other_byte_order: bool,
    /// 1.x only: devices whose role has [`DISK_ERROR`] set. The kernel accepts none of them.
    pub disk_errors: Vec<DeviceNumber>,
    /// Bytes without a field above, preserved for `encode`.
    rest: Rest,
}

/// Unknown bytes, by format.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Rest {
    V0(Box<v0::Rest>),
    V1(Box<v1::Rest>),
}

/// Decodes the bytes at one of [`places()`]. `bytes` starts there and has at least [`PLACE_BYTES`] bytes;
/// `member_bytes` is the member's length.
///
/// `Ok(None)` when there is no superblock: the magic number is missing.
///
/// # Errors
/// The magic number is there, but a field is wrong, or an area lies outside the member or overlaps another.
pub fn decode(version: Version, at: MemberByte, bytes: &[u8], member_bytes: u64) -> Result<Option<Superblock>, Defect> {
    let Some(bytes) = bytes.get(..PLACE_BYTES as usize) else {
        return Err(Defect::new("superblock", format!("only {} of {PLACE_BYTES}", bytes.len())));
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
    /// Encodes the bytes to write at [`Self::super_offset`]: whole sectors, with the checksum. `decode` of them returns
    /// `self`.
    ///
    /// # Panics
    /// When a field's value does not fit its field on disk: more than [`Self::devices_max`] roles, or for 0.90 a
    /// feature that it lacks.
    pub fn encode(&self) -> Vec<u8> {
        match &self.rest {
            Rest::V0(rest) => v0::encode(self, rest),
            Rest::V1(rest) => v1::encode(self, rest),
        }
    }

    /// This member's role, by its own superblock.
    pub fn own_role(&self) -> DeviceRole {
        self.role(self.device_number)
    }

    /// The role of `device`, by this member's superblock. A number not listed is a spare.
    pub fn role(&self, device: DeviceNumber) -> DeviceRole {
        self.roles.get(usize::from(device.0)).copied().unwrap_or(DeviceRole::Spare)
    }

    /// How many devices the superblock can list at its position; every number is below this. Never more than
    /// [`MAX_DEVICES`]; 27 for 0.90.
    pub fn devices_max(&self) -> usize {
        area::devices_max(self)
    }

    /// The position of the superblock.
    pub fn super_at(&self) -> MemberByte {
        MemberByte(self.super_offset.bytes())
    }

    /// The start of the data area.
    pub fn data_at(&self) -> MemberByte {
        MemberByte(self.data_offset.bytes())
    }

    /// The position of the write-intent bitmap's superblock. Its bits follow.
    pub fn bitmap_at(&self) -> Option<MemberByte> {
        self.bitmap.map(|place| area::from_superblock(self.super_offset, place.sectors_from_superblock.into()))
    }

    /// The position of the bad-block log.
    pub fn bad_blocks_at(&self) -> Option<MemberByte> {
        self.bad_blocks.map(|place| area::from_superblock(self.super_offset, place.sectors_from_superblock.into()))
    }

    /// The position of the partial parity log.
    pub fn ppl_at(&self) -> Option<MemberByte> {
        self.ppl.map(|place| area::from_superblock(self.super_offset, place.sectors_from_superblock.into()))
    }

    /// Bytes from the bitmap's start to the next area on a member of `member_bytes`. The bitmap with its own superblock
    /// must fit.
    pub fn bitmap_room(&self, member_bytes: u64) -> Option<u64> {
        area::bitmap_room(self, member_bytes)
    }

    /// Maximum bytes of a bitmap on this member, which has none yet.
    pub fn bitmap_room_max(&self, member_bytes: u64) -> u64 {
        area::bitmap_room_max(self, member_bytes)
    }

    /// Sectors from the member's start that md uses or reserves, if the data follows them.
    pub(crate) fn room_before_data(&self) -> Sectors {
        area::room_before_data(self)
    }

    /// Sectors behind the used part of the data area, up to its end, if no area of md covers them.
    pub(crate) fn room_behind_data(&self) -> Option<Range<u64>> {
        area::room_behind_data(self)
    }

    /// The position of a new bitmap of `bytes` on this member: behind the superblock or, with 1.0, before it and the
    /// bad-block log. It may not fit there ([`Self::with_bitmap`] checks).
    pub fn bitmap_place(&self, bytes: u64) -> BitmapPlace {
        area::bitmap_place(self, bytes)
    }

    /// The same superblock with another bitmap position, or without a bitmap.
    ///
    /// # Errors
    /// When the position is not on the member, or another area is there.
    pub fn with_bitmap(&self, bitmap: Option<BitmapPlace>, member_bytes: u64) -> Result<Self, Defect> {
        let changed = Self { bitmap, ..self.clone() };
        area::check(&changed, member_bytes)?;
        Ok(changed)
    }

    /// Bytes of this member for the array's data and parity: the whole data area for linear and RAID-0, the component
    /// elsewhere.
    pub fn data_bytes(&self) -> u64 {
        area::used_data(self).bytes()
    }

    /// The array's shape. `data_bytes_by_slot`: every slot's [`Self::data_bytes`], in slot order; needed only for
    /// linear and RAID-0.
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

    /// Whether padding is not zero. The kernel then refuses the member, because a newer kernel may use these bytes.
    /// `encode` preserves them.
    pub fn has_unknown_padding(&self) -> bool {
        match &self.rest {
            Rest::V0(_) => false,
            Rest::V1(rest) => rest.has_padding(),
        }
    }

    /// The feature bits that correspond to the fields.
    pub fn features(&self) -> Features {
        Features::of(self)
    }
}
