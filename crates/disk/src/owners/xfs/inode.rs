//! Inodes of XFS, and where their content and attributes are.

use super::layout::Layout;
use super::tree::Node;
use crate::bytes::{be16, be32, be64};
use crate::source::Source;

/// An inode in use.
pub(super) struct Inode {
    raw: Vec<u8>,
    /// Bytes before the forks.
    core: usize,
}

/// Blocks in a row.
pub(super) struct Extent {
    /// The address of the first.
    pub(super) block: u64,
    pub(super) count: u64,
    /// Their place in the file or its attributes, in blocks; `None`: they are a part of its map.
    pub(super) within: Option<u64>,
}

/// Where a fork's extents are.
const LOCAL: u8 = 1;
const EXTENTS: u8 = 2;
const TREE: u8 = 3;

impl Inode {
    pub(super) fn of(raw: Vec<u8>) -> Option<Self> {
        let core = if raw[4] >= 3 { 176 } else { 100 };
        (raw.starts_with(b"IN") && be16(&raw, 2) != 0).then_some(Self { raw, core })
    }

    pub(super) fn is_directory(&self) -> bool {
        be16(&self.raw, 2) >> 12 == 4
    }

    /// Its length in bytes.
    pub(super) fn bytes(&self) -> u64 {
        be64(&self.raw, 56)
    }

    /// The content, if it is in the inode.
    pub(super) fn local(&self) -> Option<&[u8]> {
        (self.raw[5] == LOCAL).then(|| self.fork(true))
    }

    /// The bytes of the fork of the content, or of the attributes.
    fn fork(&self, is_data: bool) -> &[u8] {
        let split = usize::from(self.raw[82]) * 8;
        let forks = &self.raw[self.core..];
        let split = if split == 0 { forks.len() } else { split.min(forks.len()) };
        if is_data { &forks[..split] } else { &forks[split..] }
    }

    /// How a fork is kept, and its number of extents.
    fn shape(&self, is_data: bool) -> (u8, u64) {
        let is_wide = self.core == 176 && be64(&self.raw, 120) & 0x10 != 0;
        let count = match (is_data, is_wide) {
            (true, true) => be64(&self.raw, 24),
            (false, true) | (true, false) => be32(&self.raw, 76).into(),
            (false, false) => be16(&self.raw, 80).into(),
        };
        (self.raw[if is_data { 5 } else { 83 }], count)
    }

    /// The extents of the content, or of the attributes, and the blocks of their map.
    pub(super) async fn extents<S: Source + ?Sized>(
        &self,
        is_data: bool,
        source: &S,
        layout: &Layout,
        left: &mut u64,
    ) -> Vec<Result<Extent, String>> {
        let is_realtime = is_data && be16(&self.raw, 90) & 1 != 0;
        let (fork, (format, count)) = (self.fork(is_data), self.shape(is_data));
        match format {
            _ if is_realtime => Vec::new(),
            EXTENTS => records(fork).take(usize::try_from(count).unwrap_or(usize::MAX)).map(Ok).collect(),
            TREE => walk(fork, source, layout, left).await,
            _ => Vec::new(),
        }
    }
}

/// The extents in a fork or leaf.
fn records(bytes: &[u8]) -> impl Iterator<Item = Extent> {
    bytes.chunks_exact(16).map(|record| {
        let (high, low) = (be64(record, 0), be64(record, 8));
        Extent {
            within: Some(high >> 9 & ((1 << 54) - 1)),
            block: (high & 0x1ff) << 43 | low >> 21,
            count: low & 0x1f_ffff,
        }
    })
}

/// The extents of a tree whose root is in the inode.
async fn walk<S: Source + ?Sized>(
    root: &[u8],
    source: &S,
    layout: &Layout,
    left: &mut u64,
) -> Vec<Result<Extent, String>> {
    let mut found = Vec::new();
    let (level, count) = (be16(root, 0), usize::from(be16(root, 2)));
    let most = root.len().saturating_sub(4) / 16;
    let Some(below) = level.checked_sub(1) else { return vec![Err("its root makes no sense".to_owned())] };
    let pointers = root.get(4 + most * 8..).unwrap_or_default().chunks_exact(8).take(count.min(most));
    let mut due: Vec<(u64, u16)> = pointers.map(|pointer| (be64(pointer, 0), below)).collect();
    due.reverse();
    while let Some((block, level)) = due.pop() {
        found.push(Ok(Extent { block, count: 1, within: None }));
        let range = layout.range(block, 1);
        let read = match (range.is_empty(), left.checked_sub(1)) {
            (true, _) => Err("a pointer leads past the end".to_owned()),
            (_, None) => Err("it has more blocks than the file system".to_owned()),
            (false, Some(rest)) => {
                *left = rest;
                source.read(range.start, (range.end - range.start) as usize).await
            }
        };
        let node = read.and_then(|block| {
            Node::long(block, level, layout.is_v5).ok_or_else(|| "a block makes no sense".to_owned())
        });
        match node {
            Ok(node) if node.level == 0 => {
                found.extend(node.records(16).iter().flat_map(|record| records(record).map(Ok).collect::<Vec<_>>()));
            }
            Ok(node) => due.extend(node.long_children().into_iter().rev().map(|child| (child, level - 1))),
            Err(reason) => found.push(Err(reason)),
        }
    }
    found
}
