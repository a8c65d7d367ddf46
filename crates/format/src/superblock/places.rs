//! The four formats and where each stands on a member. The minor version of
//! 1.x is not stored: it is where the superblock was found.

use std::fmt;
use std::str::FromStr;

use crate::units::{MemberByte, SECTOR_BYTES};

/// Bytes to read at a place: every superblock fits in them.
pub const PLACE_BYTES: u64 = 4096;

/// Sectors that 0.90 keeps for itself at the end, and rounds the end down to.
const V0_RESERVED_SECTORS: u64 = 128;

/// A 1.x superblock is not looked for on anything shorter.
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
    /// All of them, in the order in which mdadm looks.
    pub const ALL: [Self; 4] = [Self::V0_90, Self::V1_0, Self::V1_1, Self::V1_2];

    /// Where this format's superblock is on a member of `member_bytes`;
    /// `None` when the member is too short to have one.
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

    /// Whether the superblock comes after the data.
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

/// Where each format's superblock would be on a member of `member_bytes`, in
/// mdadm's order. From each place [`PLACE_BYTES`] bytes lie within the member.
/// More than one may hold a valid superblock: the one created last counts.
pub fn places(member_bytes: u64) -> Vec<(Version, MemberByte)> {
    Version::ALL.into_iter().filter_map(|version| Some((version, version.place(member_bytes)?))).collect()
}
