//! The four formats, and the position of each on a member. The minor version of 1.x is not stored: the position where
//! the superblock was found determines it. Nothing here reads a member. Facts: `super_1_load` and `calc_dev_sboffset`
//! in `drivers/md/md.c`.

use std::fmt;
use std::str::FromStr;

use crate::units::{MemberByte, SECTOR_BYTES};

/// Bytes to read at a position: every superblock fits in them.
pub const PLACE_BYTES: u64 = 4096;

/// Sectors that 0.90 reserves at the end, and rounds the end down to.
const V0_RESERVED_SECTORS: u64 = 128;

/// Minimum length of a member with a 1.x superblock, in sectors.
const V1_MEMBER_SECTORS_MIN: u64 = 24;

/// A metadata format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 0.90: 64 KiB-aligned, 64 to 128 KiB before the end.
    V0_90,
    /// 1.0: 4 KiB-aligned, 8 to 12 KiB before the end.
    V1_0,
    /// 1.1: at the start.
    V1_1,
    /// 1.2: 4 KiB after the start.
    V1_2,
}

impl Version {
    /// All formats, in mdadm's order of search.
    pub const ALL: [Self; 4] = [Self::V0_90, Self::V1_0, Self::V1_1, Self::V1_2];

    /// The position of this format's superblock on a member of `member_bytes`. `None` when the member is too short.
    pub fn place(self, member_bytes: u64) -> Option<MemberByte> {
        let sectors = member_bytes / SECTOR_BYTES;
        let sector = match self {
            Self::V0_90 => (sectors & !(V0_RESERVED_SECTORS - 1)).checked_sub(V0_RESERVED_SECTORS)?,
            _ if sectors < V1_MEMBER_SECTORS_MIN => return None,
            Self::V1_0 => (sectors - 16) & !7,
            Self::V1_1 => 0,
            Self::V1_2 => 8,
        };
        Some(MemberByte(sector * SECTOR_BYTES))
    }

    /// Whether the superblock is behind the data.
    pub const fn is_at_end(self) -> bool {
        matches!(self, Self::V0_90 | Self::V1_0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V0_90 => "0.90",
            Self::V1_0 => "1.0",
            Self::V1_1 => "1.1",
            Self::V1_2 => "1.2",
        })
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "0" | "0.90" => Ok(Self::V0_90),
            "1.0" => Ok(Self::V1_0),
            "1.1" => Ok(Self::V1_1),
            "1" | "1.2" => Ok(Self::V1_2),
            _ => Err(format!("metadata version {text:?} is none of 0.90, 1.0, 1.1, 1.2")),
        }
    }
}

/// The position of each format's superblock on a member of `member_bytes`, in mdadm's order. From each position,
/// [`PLACE_BYTES`] bytes lie within the member. If several hold a valid superblock, the one created last is valid.
pub fn places(member_bytes: u64) -> Vec<(Version, MemberByte)> {
    Version::ALL.into_iter().filter_map(|version| Some((version, version.place(member_bytes)?))).collect()
}
