//! The walk through an ext4, from its superblock on: groups, inodes, files and directories.
//!
//! It collects what is known of blocks, whichever member holds them, and judges no shape. How a block is recognised is
//! in `recognition.rs`.

use super::inode::{Kind, kind, links, place_in, written};
use super::recognition::{Recognition, Sight};
use super::structure::{JOURNAL, RESIZE};
use super::superblock::Super;
use crate::crc::BLOCK;
use crate::seen::number::{le16, le32};
use crate::seen::{Finder, LOST_MAX, Walk};
use std::collections::HashSet;

/// What is known on the way.
pub(super) struct Walker<'a, F> {
    pub(super) own: &'a Super,
    pub(super) how: Recognition<'a>,
    pub(super) finder: &'a mut F,
    pub(super) walk: Walk,
    directories: Vec<Directory>,
    /// Inodes of no file.
    free: HashSet<u32>,
}

/// A directory, and its first block.
struct Directory {
    number: u32,
    inode: Vec<u8>,
    block: u64,
}

/// Blocks of inodes that are looked at, at most.
const TABLE_BLOCKS_MAX: usize = 1500;
/// Directories that are looked at, at most.
const DIRECTORIES_MAX: usize = 300;

impl Super {
    /// Walks the file system.
    pub(crate) async fn walk(&self, finder: &mut impl Finder) -> Walk {
        let mut walker = Walker::of(self, finder);
        if self.sparse {
            walker.whole().await;
        }
        walker.walk
    }
}

impl<'a, F: Finder> Walker<'a, F> {
    /// At the start.
    pub(super) fn of(own: &'a Super, finder: &'a mut F) -> Self {
        let (walk, directories, free) = (Walk::default(), Vec::new(), HashSet::new());
        Self { own, how: Recognition::of(own), finder, walk, directories, free }
    }

    /// Whether everything is in its place. A copy of the superblock does not say so: it is as old as the file system.
    pub(super) fn is_unmounted(&self) -> bool {
        self.own.group == 0 && self.own.is_clean
    }

    async fn whole(&mut self) {
        let groups = self.groups().await;
        self.copies().await;
        let mut left = TABLE_BLOCKS_MAX;
        for group in &groups {
            let (blocks, each) = (self.table_blocks(group), BLOCK as u32 / u32::from(self.own.inode_bytes));
            let uses = self.bitmaps(group, left > 0 && blocks > 0).await;
            for index in (0..blocks).filter(|index| uses.may_have_any(*index as u32 * each, each)).take(left) {
                if self.walk.lost.len() > LOST_MAX {
                    return;
                }
                left -= 1;
                let Some(block) = self.inodes(group, &uses, index).await else { continue };
                let inodes = block.chunks_exact(self.own.inode_bytes.into());
                for (number, inode) in (self.first_inode(group, index)..).zip(inodes) {
                    self.inode(number, inode, group.is_old).await;
                }
            }
        }
        for directory in std::mem::take(&mut self.directories).into_iter().take(DIRECTORIES_MAX) {
            if self.walk.lost.len() > LOST_MAX {
                return;
            }
            self.directory(&directory).await;
        }
    }

    /// Notes what an inode says.
    async fn inode(&mut self, number: u32, inode: &[u8], is_old: bool) {
        match (number, kind(inode)) {
            (RESIZE, _) => self.note_lists(inode),
            (JOURNAL, _) => self.journal(inode).await,
            // A removed file may still name its blocks.
            _ if links(inode) == 0 => self.free.extend(Some(number).filter(|_| !is_old)),
            (_, Some(Kind::File)) => self.file(number, inode).await,
            (_, Some(Kind::Directory)) => {
                let first = place_in(written(inode), 0);
                let own = first.map(|block| Directory { number, inode: inode.to_vec(), block });
                self.directories.extend(own);
            }
            _ => {}
        }
    }

    /// Finds the first block of a directory.
    async fn directory(&mut self, Directory { number, inode, block }: &Directory) {
        let how = self.how;
        let is_right = |block: &[u8]| how.is_directory(*number, inode, block);
        match how.find(*block, self.finder, &is_right).await {
            // The directory, or the inodes, are of another time.
            Sight::Block(found) if self.is_unmounted() && entries(&found).any(|inode| self.free.contains(&inode)) => {
                self.walk.lose(*block, self.finder);
            }
            Sight::Block(found) => self.walk.note(*block, &found),
            Sight::Nothing => self.walk.lose(*block, self.finder),
            Sight::Several(_) => {}
        }
    }
}

/// The inodes that the entries of a directory's block name. Fact: `ext4_dir_entry_2`.
fn entries(block: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let mut at = 0;
    let next = std::iter::from_fn(move || {
        let (entry, length) = (block.get(at..at + 8)?, usize::from(le16(block, at + 4)));
        at += if length < 8 { BLOCK } else { length };
        Some(le32(entry, 0))
    });
    next.filter(|inode| *inode != 0)
}
