//! Label, identity and length of the formats that people have on arrays, from their superblocks.
//!
//! Facts: the kernel's `fs/ext4/ext4.h`, `fs/xfs/libxfs/xfs_format.h`, `include/uapi/linux/btrfs_tree.h` and
//! `include/linux/swap.h`; cryptsetup's `lib/luks1/luks.h` and `lib/luks2/luks2.h`.

use crate::bytes::{array, be32, be64, le32, le64, text, uuid};
use format::signature::Signature;

/// A format, as far as others treat it differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// ext2, ext3 or ext4.
    Ext,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// A physical volume of LVM.
    Lvm,
    /// An encrypted volume.
    Luks,
    /// Swap space.
    Swap,
    /// A member of a ZFS pool.
    Zfs,
    /// A partition table.
    Table,
    /// Any other known format.
    Other,
}

/// A known format, and what its superblock says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The format.
    pub kind: Kind,
    /// The format in words, with an article unless it is a mass noun: "an ext4 file system".
    pub what: &'static str,
    /// Its label.
    pub label: Option<String>,
    /// Its UUID.
    pub uuid: Option<String>,
    /// Its length in bytes.
    pub bytes: Option<u64>,
}

/// Where ext's superblock begins, and Btrfs's.
const EXT_AT: u64 = 1024;
const BTRFS_AT: u64 = 0x1_0000;

impl Volume {
    /// The volume with this signature, from parts of it (start and bytes).
    pub(super) fn of(signature: Signature, parts: &[(u64, Vec<u8>)]) -> Self {
        let view = |at: u64| -> &[u8] {
            let part = parts.iter().find(|(start, part)| (*start..start + part.len() as u64).contains(&at));
            part.map_or(&[], |(start, part)| &part[(at - start) as usize..])
        };
        let Signature { what, at } = signature;
        let start = view(0);
        let magic = view(at);
        let is = |bytes: &[u8]| magic.starts_with(bytes);
        match at {
            _ if signature.is_partition_table() => Self::plain(Kind::Table, what),
            0x438 if is(b"\x53\xef") => ext(view(EXT_AT)),
            0 if is(b"XFSB") => xfs(start, what),
            0x1_0040 if is(b"_BHRfS_M") => btrfs(view(BTRFS_AT), what),
            0 if is(b"LUKS\xba\xbe") => luks(start, what),
            _ if is(b"SKUL\xba\xbe") => Self::plain(Kind::Luks, what),
            0..2048 if is(b"LABELONE") => Self::plain(Kind::Lvm, what),
            _ if is(b"SWAPSPACE2") => swap(view(1024), at + 10, what),
            _ if is(b"SWAP-SPACE") => Self::plain(Kind::Swap, what),
            _ if what == "a member of a ZFS pool" => Self::plain(Kind::Zfs, what),
            _ => Self::plain(Kind::Other, what),
        }
    }

    fn plain(kind: Kind, what: &'static str) -> Self {
        Self { kind, what, label: None, uuid: None, bytes: None }
    }
}

/// A block count times a block size.
fn product(blocks: u64, block: u64) -> Option<u64> {
    blocks.checked_mul(block).filter(|bytes| *bytes > 0)
}

fn ext(superblock: &[u8]) -> Volume {
    const HAS_JOURNAL: u32 = 0x4;
    const WIDE: u32 = 0x80;
    // Extents, 64-bit block numbers, flexible groups and what came later.
    const OF_EXT4: u32 = !0x3f;
    let (compatible, incompatible) = (le32(superblock, 0x5c), le32(superblock, 0x60));
    let what = match (incompatible & OF_EXT4, compatible & HAS_JOURNAL) {
        (0, 0) => "an ext2 file system",
        (0, _) => "an ext3 file system",
        _ => "an ext4 file system",
    };
    let high = if incompatible & WIDE != 0 { u64::from(le32(superblock, 0x150)) << 32 } else { 0 };
    let block = 1024_u64.checked_shl(le32(superblock, 0x18)).filter(|block| *block <= 65_536).unwrap_or(0);
    Volume {
        kind: Kind::Ext,
        what,
        label: text(superblock, 0x78, 16),
        uuid: uuid(array(superblock, 0x68)),
        bytes: product(high | u64::from(le32(superblock, 4)), block),
    }
}

fn xfs(superblock: &[u8], what: &'static str) -> Volume {
    Volume {
        kind: Kind::Xfs,
        what,
        label: text(superblock, 108, 12),
        uuid: uuid(array(superblock, 32)),
        bytes: product(be64(superblock, 8), be32(superblock, 4).into()),
    }
}

fn btrfs(superblock: &[u8], what: &'static str) -> Volume {
    Volume {
        kind: Kind::Btrfs,
        what,
        label: text(superblock, 0x12b, 256),
        uuid: uuid(array(superblock, 0x20)),
        bytes: Some(le64(superblock, 0x70)).filter(|bytes| *bytes > 0),
    }
}

fn luks(header: &[u8], what: &'static str) -> Volume {
    let is_second = u16::from_be_bytes(array(header, 6)) == 2;
    let label = if is_second { text(header, 24, 48) } else { None };
    Volume { kind: Kind::Luks, what, label, uuid: text(header, 168, 40), bytes: None }
}

/// `page`: bytes in a page, which ends with the signature.
fn swap(header: &[u8], page: u64, what: &'static str) -> Volume {
    Volume {
        kind: Kind::Swap,
        what,
        label: text(header, 28, 16),
        uuid: uuid(array(header, 12)),
        bytes: product(u64::from(le32(header, 4)) + 1, page),
    }
}
