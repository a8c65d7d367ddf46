//! Types of the superblock's fields that need more than a number. They never check a superblock as a whole. Facts:
//! `md_p.h`.

use std::fmt;

use super::Superblock;
use super::v1::level_from_md;
use crate::Defect;
use crate::geometry::Level;
use crate::units::{Sectors, Slot};

/// A point in time: seconds since 1970 (40 bits on disk) and microseconds (24 bits). 0.90 stores only 32 bits of
/// seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub seconds: u64,
    /// Microseconds within the second. md does not always write them.
    pub micros: u32,
}

impl Timestamp {
    const SECOND_BITS: u32 = 40;

    /// Decodes the 64 bits on disk.
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self { seconds: bits & ((1 << Self::SECOND_BITS) - 1), micros: (bits >> Self::SECOND_BITS) as u32 }
    }

    /// Encodes the 64 bits on disk, truncating to the fields' widths.
    pub(crate) const fn to_bits(self) -> u64 {
        (self.seconds & ((1 << Self::SECOND_BITS) - 1)) | ((self.micros as u64) << Self::SECOND_BITS)
    }
}

/// How much of the redundancy is known to be consistent with the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resync {
    /// All of it: the array was stopped cleanly.
    Clean,
    /// Only below this position of each component.
    From(Sectors),
}

/// The role of a device number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceRole {
    /// The member of this slot.
    Active(Slot),
    /// Not in use: a spare, or an unused number.
    Spare,
    /// Failed, or removed.
    Faulty,
    /// The array's write journal.
    Journal,
}

/// The array's name as stored: up to 32 bytes, usually `host:name`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SetName([u8; 32]);

impl SetName {
    /// The name `text`.
    ///
    /// # Errors
    /// When it has more than 31 bytes or a zero byte: mdadm would truncate it.
    pub fn new(text: &str) -> Result<Self, Defect> {
        if text.len() > 31 || text.contains('\0') {
            return Err(Defect::new("superblock.set_name", format!("{text:?} is not 31 bytes or fewer without zeros")));
        }
        let mut bytes = [0; 32];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self(bytes))
    }

    /// From the 32 bytes on disk.
    pub(super) const fn from_raw(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes on disk.
    pub(super) const fn raw(&self) -> [u8; 32] {
        self.0
    }

    /// The name's bytes, up to the first zero. They need not be UTF-8.
    pub fn as_bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        &self.0[..end]
    }
}

impl fmt::Display for SetName {
    /// Invalid UTF-8 is shown as U+FFFD.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl fmt::Debug for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(self.as_bytes()), f)
    }
}

/// `devflags`: md's preferences for a member. Bits without a name are preserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DeviceFlags(pub u8);

impl DeviceFlags {
    /// Read only when no other member can serve.
    pub const WRITE_MOSTLY: Self = Self(1);
    /// Fail requests fast instead of retrying.
    pub const FAIL_FAST: Self = Self(2);

    /// Whether all of `other`'s bits are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The position of the write-intent bitmap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BitmapPlace {
    /// Signed distance in sectors from the superblock's start to the bitmap's.
    pub sectors_from_superblock: i32,
}

/// The position of the bad-block log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BadBlockPlace {
    /// Signed distance in sectors from the superblock's start to the log's.
    pub sectors_from_superblock: i32,
    /// Sectors reserved for the log: 1 to 8.
    pub sectors: u16,
    /// The unit of positions and lengths in the log: `1 << shift` sectors.
    pub shift: u8,
    /// Whether the log has entries, and must be read and obeyed.
    pub in_use: bool,
}

/// The position of the partial parity log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PplPlace {
    /// Signed distance in sectors from the superblock's start to the log's.
    pub sectors_from_superblock: i16,
    /// Sectors of the log.
    pub sectors: u16,
    /// The space holds several logs in a row; the newest generation is valid.
    pub multiple: bool,
}

/// A reshape in progress, in md's own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reshape {
    /// Its progress, in sectors of the array.
    pub position: Sectors,
    /// The new level.
    pub new_level: i32,
    /// `raid_disks` already holds the new number; this is new minus old.
    pub delta_disks: i32,
    /// The new layout.
    pub new_layout: u32,
    /// The new chunk, in sectors.
    pub new_chunk: u32,
    /// It runs from the array's end to its start.
    pub backwards: bool,
}

impl Reshape {
    /// The new level; `None` if it is no level of md's.
    pub fn level(&self) -> Option<Level> {
        level_from_md(self.new_level)
    }
}

/// A 1.x `feature_map`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Features(pub u32);

impl Features {
    /// The array has a write-intent bitmap.
    pub const BITMAP: Self = Self(1);
    /// `recovery_offset` is valid.
    pub const RECOVERY_OFFSET: Self = Self(2);
    /// A reshape is in progress.
    pub const RESHAPE: Self = Self(4);
    /// The bad-block log has entries.
    pub const BAD_BLOCKS: Self = Self(8);
    /// The member replaces the active one of its slot.
    pub const REPLACEMENT: Self = Self(16);
    /// The reshape runs from the end.
    pub const RESHAPE_BACKWARDS: Self = Self(32);
    /// `new_offset` is valid.
    pub const NEW_OFFSET: Self = Self(64);
    /// The rebuild copies only the chunks set in the bitmap.
    pub const RECOVERY_BITMAP: Self = Self(128);
    /// The bitmap is a cluster's.
    pub const CLUSTERED: Self = Self(256);
    /// The array has a write journal.
    pub const JOURNAL: Self = Self(512);
    /// The array has a partial parity log.
    pub const PPL: Self = Self(1024);
    /// The space holds several partial parity logs.
    pub const MULTIPLE_PPLS: Self = Self(2048);
    /// Level 0: `layout` is valid.
    pub const RAID0_LAYOUT: Self = Self(4096);

    /// Each known bit, with its name for messages.
    pub const NAMED: [(Self, &'static str); 13] = [
        (Self::BITMAP, "bitmap"),
        (Self::RECOVERY_OFFSET, "recovery-offset"),
        (Self::RESHAPE, "reshape"),
        (Self::BAD_BLOCKS, "bad-blocks"),
        (Self::REPLACEMENT, "replacement"),
        (Self::RESHAPE_BACKWARDS, "reshape-backwards"),
        (Self::NEW_OFFSET, "new-offset"),
        (Self::RECOVERY_BITMAP, "recovery-bitmap"),
        (Self::CLUSTERED, "clustered"),
        (Self::JOURNAL, "journal"),
        (Self::PPL, "ppl"),
        (Self::MULTIPLE_PPLS, "multiple-ppls"),
        (Self::RAID0_LAYOUT, "raid0-layout"),
    ];

    /// Bits without a definition in any kernel known to this crate.
    pub const fn unknown(self) -> u32 {
        self.0 & !0x1fff
    }

    /// Whether all of `other`'s bits are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The features of `superblock`'s fields. Always none for 0.90.
    pub(super) fn of(superblock: &Superblock) -> Self {
        let ppl = superblock.ppl;
        let bits = [
            (superblock.bitmap.is_some(), Self::BITMAP),
            (superblock.recovery_offset.is_some(), Self::RECOVERY_OFFSET),
            (superblock.reshape.is_some(), Self::RESHAPE),
            (superblock.bad_blocks.is_some_and(|place| place.in_use), Self::BAD_BLOCKS),
            (superblock.replacement, Self::REPLACEMENT),
            (superblock.reshape.is_some_and(|reshape| reshape.backwards), Self::RESHAPE_BACKWARDS),
            (superblock.new_offset.is_some(), Self::NEW_OFFSET),
            (superblock.recovery_from_bitmap, Self::RECOVERY_BITMAP),
            (superblock.clustered, Self::CLUSTERED),
            (superblock.journal, Self::JOURNAL),
            (ppl.is_some_and(|place| !place.multiple), Self::PPL),
            (ppl.is_some_and(|place| place.multiple), Self::MULTIPLE_PPLS),
            (superblock.raid0_layout, Self::RAID0_LAYOUT),
        ];
        Self(bits.iter().filter(|(set, _)| *set).fold(0, |map, (_, bit)| map | bit.0))
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMED.iter().filter(|(bit, _)| self.contains(*bit)).map(|(_, name)| name);
        f.debug_list().entries(names).finish()
    }
}
