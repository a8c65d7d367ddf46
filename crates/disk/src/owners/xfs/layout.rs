//! What the superblock of XFS says, and addresses by it.

use crate::bytes::{be16, be32, be64};
use crate::source::Source;
use std::ops::Range;

/// The file system's shape.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) blocks: u64,
    pub(super) block_bytes: u64,
    pub(super) sector_bytes: u64,
    pub(super) inode_bytes: u64,
    pub(super) groups: u64,
    pub(super) group_blocks: u64,
    group_log: u32,
    block_inodes_log: u32,
    pub(super) root: u64,
    /// Bytes in a block of a directory.
    pub(super) directory_bytes: u64,
    journal_at: u64,
    journal_blocks: u64,
    /// Inodes of the file system itself, and what they are.
    special: Vec<(u64, &'static str)>,
    pub(super) is_v5: bool,
    pub(super) has_kinds: bool,
    pub(super) has_free_inodes: bool,
    pub(super) has_owners: bool,
    pub(super) has_counts: bool,
    /// Chunks of inodes may have holes.
    pub(super) has_holes: bool,
}

impl Layout {
    /// Reads it, from the second allocation group if the first superblock cannot be used.
    pub(super) async fn read<S: Source + ?Sized>(source: &S) -> Result<(Self, Vec<String>), String> {
        let read = source.read(0, 512).await;
        match read.as_ref().map(|superblock| Self::decode(superblock, source.bytes())) {
            Ok(Some(layout)) => Ok((layout, Vec::new())),
            Ok(None) => Err("no superblock of XFS that can be used".to_owned()),
            Err(reason) => Err(format!("the superblock of XFS cannot be read: {reason}")),
        }
    }

    fn decode(superblock: &[u8], bytes: u64) -> Option<Self> {
        let version = be16(superblock, 100);
        let is_v5 = version & 0xf == 5;
        let (read_only, incompatible) = match is_v5 {
            true => (be32(superblock, 212), be32(superblock, 216)),
            false => (0, 0),
        };
        let more = if version & 0x8000 != 0 { be32(superblock, 200) } else { 0 };
        let block_bytes = u64::from(be32(superblock, 4));
        let special = [
            (64, "bitmap of the realtime device"),
            (72, "summary of the realtime device"),
            (160, "quota of users"),
            (168, "quota of groups"),
            (232, "quota of projects"),
        ];
        let special = special.map(|(at, what)| (be64(superblock, at), what));
        let layout = Self {
            blocks: be64(superblock, 8),
            block_bytes,
            sector_bytes: be16(superblock, 102).into(),
            inode_bytes: be16(superblock, 104).into(),
            groups: be32(superblock, 88).into(),
            group_blocks: be32(superblock, 84).into(),
            group_log: superblock[124].into(),
            block_inodes_log: superblock[123].into(),
            root: be64(superblock, 56),
            directory_bytes: block_bytes.checked_shl(superblock[192].into())?,
            journal_at: be64(superblock, 48),
            journal_blocks: be32(superblock, 96).into(),
            special: special.into_iter().filter(|(inode, _)| *inode != 0 && *inode != u64::MAX).collect(),
            is_v5,
            has_kinds: incompatible & 1 != 0 || more & 0x200 != 0,
            has_free_inodes: read_only & 1 != 0,
            has_owners: read_only & 2 != 0,
            has_counts: read_only & 4 != 0,
            has_holes: incompatible & 2 != 0,
        };
        (superblock.starts_with(b"XFSB") && layout.is_sane(bytes)).then_some(layout)
    }

    fn is_sane(&self, bytes: u64) -> bool {
        let is_power = |value: u64, from: u64, to: u64| value.is_power_of_two() && (from..=to).contains(&value);
        is_power(self.block_bytes, 512, 65_536)
            && is_power(self.sector_bytes, 512, 32_768)
            && is_power(self.inode_bytes, 256, 2048)
            && is_power(self.directory_bytes, self.block_bytes, 65_536)
            && self.inode_bytes <= self.block_bytes
            && self.block_inodes_log == (self.block_bytes / self.inode_bytes).ilog2()
            && self.group_blocks > 0
            && self.group_log < 32
            && self.group_blocks <= 1 << self.group_log
            && self.groups == self.blocks.div_ceil(self.group_blocks)
            && self.blocks <= bytes / self.block_bytes
    }

    /// Its length.
    pub(super) fn bytes(&self) -> u64 {
        self.blocks * self.block_bytes
    }

    /// The bytes of blocks by their place in the file system; none past the end.
    fn linear(&self, first: u64, count: u64) -> Range<u64> {
        let first = first.min(self.blocks);
        first * self.block_bytes..first.saturating_add(count).min(self.blocks) * self.block_bytes
    }

    /// The bytes of blocks of a group; none past its end.
    pub(super) fn group_range(&self, group: u64, first: u64, count: u64) -> Range<u64> {
        let end = first.saturating_add(count).min(self.group_blocks);
        let first = first.min(end);
        self.linear(group.saturating_mul(self.group_blocks).saturating_add(first), end - first)
    }

    /// All of a group.
    pub(super) fn whole_group(&self, group: u64) -> Range<u64> {
        self.group_range(group, 0, self.group_blocks)
    }

    /// The bytes of blocks by their address, which has the group's number in its high bits.
    pub(super) fn range(&self, address: u64, count: u64) -> Range<u64> {
        self.group_range(address >> self.group_log, address & ((1 << self.group_log) - 1), count)
    }

    /// The bytes of the journal, unless it is on another device.
    pub(super) fn journal(&self) -> Option<Range<u64>> {
        (self.journal_at != 0).then(|| self.range(self.journal_at, self.journal_blocks))
    }

    /// Where an inode of a group is.
    pub(super) fn inode_at(&self, group: u64, number: u64) -> u64 {
        let start = self.group_range(group, number >> self.block_inodes_log, 1).start;
        start + (number & ((1 << self.block_inodes_log) - 1)) * self.inode_bytes
    }

    /// The number of an inode of a group in the file system.
    pub(super) fn global(&self, group: u64, number: u64) -> u64 {
        group << (self.group_log + self.block_inodes_log) | number
    }

    /// The group of an inode, and its number there.
    pub(super) fn local(&self, inode: u64) -> Option<(u64, u64)> {
        let bits = self.group_log + self.block_inodes_log;
        let (group, number) = (inode >> bits, inode & ((1 << bits) - 1));
        (group < self.groups && number >> self.block_inodes_log < self.group_blocks).then_some((group, number))
    }

    /// What an inode of the file system itself is.
    pub(super) fn special(&self, inode: u64) -> Option<&'static str> {
        self.special.iter().find(|(special, _)| *special == inode).map(|(_, what)| *what)
    }
}
