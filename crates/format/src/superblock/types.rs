//! The superblock's fields that need more than a number.

use std::fmt;

use super::Superblock;
use super::v1::level_from_md;
use crate::Defect;
use crate::geometry::Level;
use crate::units::{Sectors, Slot};

/// A moment: seconds since 1970 (40 bits on disk) and microseconds (24 bits).
/// 0.90 keeps only 32 bits of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub seconds: u64,
    /// Microseconds within the second; md does not always write them.
    pub micros: u32,
}

impl Timestamp {
    const SECOND_BITS: u32 = 40;

    /// From the 64 bits on disk.
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self { seconds: bits & ((1 << Self::SECOND_BITS) - 1), micros: (bits >> Self::SECOND_BITS) as u32 }
    }

    /// To the 64 bits on disk; what exceeds the fields' widths is dropped.
    pub(crate) const fn to_bits(self) -> u64 {
        (self.seconds & ((1 << Self::SECOND_BITS) - 1)) | ((self.micros as u64) << Self::SECOND_BITS)
    }
}

/// Whether copies and parity are known to agree with the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resync {
    /// Everywhere: the array was stopped cleanly.
    Clean,
    /// Only below this position of each component; from it on, not known.
    From(Sectors),
}

/// What a device number stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceRole {
    /// The member of this slot.
    Active(Slot),
    /// Not in use: a spare, or a number that was never given.
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
    /// When it has more than 31 bytes or a zero byte: mdadm would cut it.
    pub fn new(text: &str) -> Result<Self, Defect> {
        if text.len() > 31 || text.contains('\0') {
            return Err(Defect::new("superblock.set_name", format!("{text:?} is not 31 bytes or fewer without zeros")));
        }
        let mut bytes = [0; 32];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self(bytes))
    }

    /// The 32 bytes as they stand on disk.
    pub(super) const fn from_raw(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes as they stand on disk.
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
    /// What is not UTF-8 is shown as U+FFFD.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl fmt::Debug for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(self.as_bytes()), f)
    }
}

/// `devflags`: how md prefers to use a member. Bits without a name are kept.
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

/// Where the write-intent bitmap is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BitmapPlace {
    /// Signed distance in sectors from the superblock's start to the bitmap's.
    pub sectors_from_superblock: i32,
}

/// Where the bad-block log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BadBlockPlace {
    /// Signed distance in sectors from the superblock's start to the log's.
    pub sectors_from_superblock: i32,
    /// Sectors kept for the log: 1 to 8.
    pub sectors: u16,
    /// Positions and lengths in the log are in units of `1 << shift` sectors.
    pub shift: u8,
    /// Whether the log has entries, so that it must be read and honoured.
    pub in_use: bool,
}

/// Where the partial parity log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PplPlace {
    /// Signed distance in sectors from the superblock's start to the log's.
    pub sectors_from_superblock: i16,
    /// Sectors of the log.
    pub sectors: u16,
    /// Several logs follow each other in that space; the newest generation counts.
    pub multiple: bool,
}

/// A reshape under way, in md's own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reshape {
    /// How far it has come, in sectors of the array.
    pub position: Sectors,
    /// Level that the array is becoming.
    pub new_level: i32,
    /// `raid_disks` already says the new number; this is new minus old.
    pub delta_disks: i32,
    /// Layout that the array is becoming.
    pub new_layout: u32,
    /// Chunk that the array is becoming, in sectors.
    pub new_chunk: u32,
    /// From the array's end to its start.
    pub backwards: bool,
}

impl Reshape {
    /// The level that the array is becoming; `None` where it is none of md's own.
    pub fn level(&self) -> Option<Level> {
        level_from_md(self.new_level)
    }
}

/// A 1.x `feature_map`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Features(pub u32);

impl Features {
    /// There is a write-intent bitmap.
    pub const BITMAP: Self = Self(1);
    /// `recovery_offset` counts.
    pub const RECOVERY_OFFSET: Self = Self(2);
    /// A reshape is under way.
    pub const RESHAPE: Self = Self(4);
    /// The bad-block log has entries.
    pub const BAD_BLOCKS: Self = Self(8);
    /// The member replaces the active one of its slot.
    pub const REPLACEMENT: Self = Self(16);
    /// The reshape runs from the end.
    pub const RESHAPE_BACKWARDS: Self = Self(32);
    /// `new_offset` counts.
    pub const NEW_OFFSET: Self = Self(64);
    /// Recovery of what the bitmap names.
    pub const RECOVERY_BITMAP: Self = Self(128);
    /// The bitmap is a cluster's.
    pub const CLUSTERED: Self = Self(256);
    /// The array has a write journal.
    pub const JOURNAL: Self = Self(512);
    /// There is a partial parity log.
    pub const PPL: Self = Self(1024);
    /// There are several in its space.
    pub const MULTIPLE_PPLS: Self = Self(2048);
    /// Level 0: `layout` counts.
    pub const RAID0_LAYOUT: Self = Self(4096);

    /// Each bit that is understood, with its name for messages.
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

    /// Bits that no kernel known to this code defines.
    pub const fn unknown(self) -> u32 {
        self.0 & !0x1fff
    }

    /// Whether all of `other`'s bits are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// What `superblock`'s fields amount to. Always none for 0.90.
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
