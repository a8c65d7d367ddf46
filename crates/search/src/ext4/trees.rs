//! The blocks of a file, and of the journal: those that list its blocks, its last one, and some of the others.
//!
//! It believes the inode that it is given. Facts: `Documentation/filesystems/ext4/ifork.rst` and `journal.rst`.

use super::inode::{
    Child, DIRECT, WRITTEN_MAX, children, data_of, end_of, has_extents, is_inline, last_byte, list, mapped, pieces_in,
    place_in, root_of, written,
};
use super::recognition::{Recognition, Sight};
use super::walk::Walker;
use crate::crc::BLOCK;
use crate::seen::number::{be32, le32};
use crate::seen::{Finder, LOST_MAX};

/// Blocks that list a file's blocks and are looked at, at most.
const TREE_BLOCKS_MAX: usize = 64;
/// Entries of a block that lists others.
const ENTRIES: u64 = BLOCK as u64 / 4;

/// A block that lists blocks of a file, or such blocks.
struct List {
    block: u64,
    /// The first block of the file that it is for.
    first: u64,
    /// How many of the file's each entry is for.
    each: u64,
}

impl<F: Finder> Walker<'_, F> {
    /// Notes what is known of the blocks of file `number`.
    pub(super) async fn file(&mut self, number: u32, inode: &[u8]) {
        self.walk.expected.extend(end_of(inode, written(inode)));
        self.walk.expected.extend(data_of(written(inode)));
        self.extent_tree(number, inode).await;
        self.lists(inode).await;
    }

    /// Finds the blocks that hold a file's extents, where the inode has no room for them, and notes what these say.
    async fn extent_tree(&mut self, number: u32, inode: &[u8]) {
        let blocks = self.own.blocks;
        let is_inside = |child: &Child| child.block < blocks;
        let mut below: Vec<Child> = children(root_of(inode)).filter(is_inside).collect();
        let mut left = TREE_BLOCKS_MAX;
        while let Some(child) = below.pop().filter(|_| left > 0 && self.walk.lost.len() <= LOST_MAX) {
            left -= 1;
            let how = self.how;
            let is_right = |block: &[u8]| how.is_node(number, inode, child, block);
            let Some(found) = self.note_found(child.block, &is_right).await else { continue };
            below.extend(children(&found).filter(is_inside));
            let extents = || pieces_in(&found).filter(|(_, length, _)| *length <= WRITTEN_MAX);
            self.walk.expected.extend(end_of(inode, extents()));
            self.walk.expected.extend(data_of(extents()));
        }
    }

    /// Finds the blocks that list a file's blocks, where it has no extents, and notes what these say.
    async fn lists(&mut self, inode: &[u8]) {
        let Recognition::Structure(own) = self.how else { return }; // with checksums these blocks have none
        let Some(last) = last_byte(inode).filter(|_| !has_extents(inode) && !is_inline(inode)) else { return };
        let length = last / BLOCK as u64 + 1;
        let (mut below, mut first) = (Vec::new(), DIRECT as u64);
        for times in 1..=3 {
            let each = ENTRIES.pow(times as u32 - 1);
            below.extend(Some(list(inode, times)).filter(|block| *block != 0).map(|block| List { block, first, each }));
            first += each * ENTRIES;
        }
        below.retain(|list| list.first < length);
        let mut left = TREE_BLOCKS_MAX;
        while let Some(List { block, first, each }) =
            below.pop().filter(|_| left > 0 && self.walk.lost.len() <= LOST_MAX)
        {
            left -= 1;
            let is_right = |block: &[u8]| own.is_list(length - first, each, block);
            let Some(found) = self.note_found(block, &is_right).await else { continue };
            if each == 1 {
                self.walk.expected.extend(end_of(inode, mapped(&found, first)));
                self.walk.expected.extend(data_of(mapped(&found, first)));
                continue;
            }
            below.extend(mapped(&found, 0).map(|(index, _, block)| List {
                block,
                first: first + index * each,
                each: each / ENTRIES,
            }));
        }
    }

    /// Finds a block, and notes it, or that it is nowhere.
    pub(super) async fn note_found(&mut self, block: u64, is_right: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        match self.how.find(block, self.finder, is_right).await {
            Sight::Block(found) => {
                self.walk.note(block, &found);
                return Some(found);
            }
            Sight::Nothing => self.walk.lose(block, self.finder),
            Sight::Several(_) => {}
        }
        None
    }

    /// Finds the first block of the journal. What the others hold is unknown: most are zeros in a young file system.
    pub(super) async fn journal(&mut self, inode: &[u8]) {
        const MAGIC: u32 = 0xc03b_3998;
        const JOURNAL_HEAD_BYTES: usize = 1024;
        let Some(block) = place_in(written(inode), 0) else { return };
        let blocks = le32(inode, 4) / BLOCK as u32;
        // Magic number, kind, length of a block, and blocks: all in the other byte order. Behind them is nothing; in their
        // xor with the first block of the file system is its superblock.
        let is_right = |block: &[u8]| {
            let kind = be32(block, 4);
            let is_alone = block[JOURNAL_HEAD_BYTES..].iter().all(|byte| *byte == 0);
            let is_as_long = be32(block, 12) == BLOCK as u32 && be32(block, 16) == blocks;
            be32(block, 0) == MAGIC && matches!(kind, 3 | 4) && is_as_long && is_alone
        };
        self.note_found(block, &is_right).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc::content;
    use crate::ext4::superblock::Sums;
    use crate::ext4::testing::{Blocks, ext4};
    use crate::seen::{Expected, Walk, Want};
    use futures_util::FutureExt;

    /// What is known after the walker has done that, with these blocks at these places.
    macro_rules! walked {
        ($sums:expr, $blocks:expr, |$walker:ident| $walk:expr) => {{
            let (own, mut blocks) = (ext4($sums), Blocks($blocks));
            let mut $walker = Walker::of(&own, &mut blocks);
            $walk.now_or_never().expect("memory answers at once");
            $walker.walk
        }};
    }

    #[test]
    fn the_journal_is_known_by_its_first_block_alone() {
        let mut inode = vec![0; 256];
        inode[4..8].copy_from_slice(&(1024 * BLOCK as u32).to_le_bytes());
        inode[0x20..0x24].copy_from_slice(&0x8_0000_u32.to_le_bytes());
        inode[0x28..0x2c].copy_from_slice(&[0x0a, 0xf3, 1, 0]);
        inode[0x38..0x3a].copy_from_slice(&1024_u16.to_le_bytes());
        inode[0x3c..0x40].copy_from_slice(&777_u32.to_le_bytes());
        let mut first = vec![0; BLOCK];
        for (at, word) in [(0, 0xc03b_3998), (4, 4), (12, BLOCK as u32), (16, 1024)] {
            first[at..at + 4].copy_from_slice(&u32::to_be_bytes(word));
        }
        for sums in [Sums::All(7), Sums::None] {
            let walked = |block: &[u8]| walked!(sums, vec![(777, block.to_vec())], |walker| walker.journal(&inode));
            let walk = walked(&first);
            assert_eq!(walk.expected, [Expected::new(777, Want::Content(content(&first)))]);
            assert!(walk.lost.is_empty());
            let mut longer = first.clone();
            longer[19] ^= 1;
            let walk = walked(&longer);
            assert_eq!((walk.expected, walk.lost), (Vec::new(), vec![777]), "that of another length is not it");
        }
    }

    /// A file of ext3 with this many blocks, of which the list at 500 has those behind the first ones, and that list.
    fn listed(blocks: u32) -> (Vec<u8>, Vec<u8>) {
        let (mut inode, mut list) = (vec![0; 128], vec![0; BLOCK]);
        inode[..2].copy_from_slice(&0x81a4_u16.to_le_bytes());
        inode[4..8].copy_from_slice(&(blocks * BLOCK as u32 - 5).to_le_bytes());
        for (number, entry) in (0..DIRECT as u32).zip(inode[0x28..].chunks_exact_mut(4)) {
            entry.copy_from_slice(&(1000 + number).to_le_bytes());
        }
        inode[0x58..0x5c].copy_from_slice(&500_u32.to_le_bytes());
        for (number, entry) in (DIRECT as u32..blocks).zip(list.chunks_exact_mut(4)) {
            entry.copy_from_slice(&(2000 + number).to_le_bytes());
        }
        (inode, list)
    }

    #[test]
    fn a_list_of_blocks_says_where_its_file_ends_unless_two_blocks_look_like_it() {
        let (inode, list) = listed(100);
        let end = Expected::new(2099, Want::End(BLOCK as u16 - 5));
        let known = Expected::new(500, Want::Content(content(&list)));
        let walked = |blocks: Vec<(u64, Vec<u8>)>| walked!(Sums::None, blocks, |walker| walker.file(12, &inode));
        let is_known = |walk: &Walk| [end, known].map(|own| walk.expected.contains(&own));
        let walk = walked(vec![(500, list.clone())]);
        assert_eq!((is_known(&walk), walk.lost), ([true; 2], Vec::new()));
        let walk = walked(vec![(500, listed(101).1)]);
        assert_eq!((is_known(&walk), walk.lost), ([false; 2], vec![500]), "the file has no block 100");
        let mut other = list.clone();
        other[..4].copy_from_slice(&99_u32.to_le_bytes());
        let walk = walked(vec![(500, list), (500, other)]);
        assert_eq!((is_known(&walk), walk.lost), ([false; 2], Vec::new()), "either may be it");
    }
}
