//! Finds the blocks of inodes, and says which of them may be believed.
//!
//! With checksums a block tells its place. Without them the blocks of a row look alike: any of them may be the one that is
//! wanted, and one may be the parity of the others. Then a block counts if a directory in it says its number, or if nothing
//! else there looks like inodes. It notes blocks of inodes, and never what these inodes say.

use super::groups::Group;
use super::inode::{Kind, is_as_long, kind, links, place_in, written};
use super::recognition::{Recognition, Sight, are_summed_inodes};
use super::walk::Walker;
use crate::crc::{BLOCK, content};
use crate::seen::{Finder, is_a_sum};

/// Which inodes of a group are used, by its bitmap.
pub(super) struct Uses(Option<Vec<u8>>);

/// Directories of a block that are asked whether it is in its place.
const ASKED_MAX: usize = 3;

/// What directories say of a block with their inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// That it is in its place.
    InPlace,
    /// That it is not, as none of them is where it says.
    Elsewhere,
    /// Nothing.
    Nothing,
}

impl Recognition<'_> {
    /// Whether `block` has inodes from `first` on, as far as it is known which are used.
    pub(super) fn are_inodes(&self, first: u32, used: &dyn Fn(u32) -> Option<bool>, block: &[u8]) -> bool {
        match self {
            Self::Sums(own, seed) => are_summed_inodes(*seed, first, own.inode_bytes, block),
            Self::Structure(own) => own.are_inodes(first, used, block),
        }
    }
}

impl Uses {
    /// Whether inode `index` of the group is used, if that is known.
    fn is_used(&self, index: u32) -> Option<bool> {
        let byte = self.0.as_ref()?.get(index as usize / 8)?;
        Some(byte >> (index % 8) & 1 == 1)
    }

    /// Whether any of so many inodes from `first` of the group on may be used.
    pub(super) fn may_have_any(&self, first: u32, count: u32) -> bool {
        (first..first + count).any(|inode| self.is_used(inode) != Some(false))
    }
}

impl<F: Finder> Walker<'_, F> {
    /// Notes the bitmaps of a group, and gives that of its inodes. Without checksums they have to be looked at, as few of
    /// very many are. Of a file system that was not unmounted, they may be older or newer than their descriptor.
    pub(super) async fn bitmaps(&mut self, group: &Group, is_looked_at: bool) -> Uses {
        let mut uses = Uses(None);
        for bitmap in [group.block_bitmap, group.inode_bitmap].into_iter().flatten() {
            if let Recognition::Sums(..) = self.how {
                self.walk.expected.extend(self.how.expected(&bitmap));
                continue;
            }
            let is_of_inodes = group.inode_bitmap.is_some_and(|own| own.block == bitmap.block);
            let tells =
                is_looked_at && self.is_unmounted() && bitmap.free < bitmap.bits && self.finder.knows(bitmap.block);
            if !tells {
                continue;
            }
            let is_right = |block: &[u8]| Recognition::is_bitmap(&bitmap, block);
            match self.how.find(bitmap.block, self.finder, &is_right).await {
                Sight::Block(found) => {
                    self.walk.note(bitmap.block, &found);
                    uses.0 = if is_of_inodes { Some(found) } else { uses.0 };
                }
                Sight::Nothing => self.walk.lose(bitmap.block, self.finder),
                Sight::Several(_) => {}
            }
        }
        uses
    }

    /// Blocks of a group's inodes that are looked at. Without checksums nothing tells those of which all are free.
    pub(super) fn table_blocks(&self, group: &Group) -> u64 {
        let is_empty = group.inode_bitmap.is_some_and(|bitmap| bitmap.free == bitmap.bits);
        let is_told = !is_empty || matches!(self.how, Recognition::Sums(..));
        let used = if is_told { group.used_inodes } else { 0 };
        (u64::from(used) * u64::from(self.own.inode_bytes)).div_ceil(BLOCK as u64)
    }

    /// Finds one block of a group's inodes; `None` if it is not known for certain which one it is.
    pub(super) async fn inodes(&mut self, group: &Group, uses: &Uses, index: u64) -> Option<Vec<u8>> {
        match self.how {
            Recognition::Sums(..) => self.inodes_by_sums(group, index).await,
            Recognition::Structure(_) => self.inodes_by_structure(group, uses, index).await,
        }
    }

    /// The number of the first inode in a block of a group's inodes.
    pub(super) fn first_inode(&self, group: &Group, index: u64) -> u32 {
        let each = BLOCK as u32 / u32::from(self.own.inode_bytes);
        group.number * self.own.group_inodes + index as u32 * each + 1
    }

    async fn inodes_by_sums(&mut self, group: &Group, index: u64) -> Option<Vec<u8>> {
        let (how, first) = (self.how, self.first_inode(group, index));
        let bytes = usize::from(self.own.inode_bytes);
        let is_right = |block: &[u8]| how.are_inodes(first, &|_| None, block);
        let is_plausible =
            |block: &[u8]| is_right(block) && !is_a_sum(block.chunks_exact(bytes).filter_map(is_as_long));
        let block = group.table + index;
        let found = match self.finder.find(block, &is_plausible).await {
            Some(found) => Some(found),
            None => self.finder.find(block, &is_right).await,
        };
        match &found {
            Some(found) => self.walk.note(block, found),
            None if group.is_old => {}
            None => self.walk.lose(block, self.finder),
        }
        found
    }

    async fn inodes_by_structure(&mut self, group: &Group, uses: &Uses, index: u64) -> Option<Vec<u8>> {
        let (how, first) = (self.how, self.first_inode(group, index));
        let (block, bytes) = (group.table + index, usize::from(self.own.inode_bytes));
        let used = |number: u32| uses.is_used(number - 1 - group.number * self.own.group_inodes);
        // All that looks like inodes, of whatever numbers.
        let is_alike =
            |block: &[u8]| how.are_inodes(u32::MAX / 2, &|_| None, block) || how.are_inodes(first, &used, block);
        let alike = self.finder.find_all(block, &is_alike).await;
        let fitting: Vec<&Vec<u8>> = alike.iter().filter(|own| how.are_inodes(first, &used, own)).collect();
        let is_sum = |block: &[u8]| is_a_sum(block.chunks_exact(bytes).filter_map(is_as_long));
        let mut told = Vec::new();
        for own in &fitting {
            told.push(self.told_by_directories(first, own).await);
        }
        let those =
            |wanted: Told| fitting.iter().zip(&told).filter(move |(_, told)| **told == wanted).map(|(own, _)| *own);
        let in_place: Vec<&Vec<u8>> = those(Told::InPlace).collect();
        if let [only] = in_place[..] {
            self.walk.note(block, only);
            return Some(only.clone());
        }
        let open: Vec<&Vec<u8>> = those(Told::Nothing).chain(in_place.iter().copied()).collect();
        // Where the bitmap is not known, all of its inodes may be free, also where some of a block's neighbours are used.
        let may_be_free =
            uses.0.is_none() && !self.finder.find_all(block, &|own| self.own.are_free(own)).await.is_empty();
        match open[..] {
            // Before a crash a directory may have been in the journal alone.
            [] if (fitting.is_empty() || self.is_unmounted()) && !may_be_free && !group.is_old => {
                self.walk.lose(block, self.finder);
                None
            }
            [only] if !may_be_free && are_independent(&alike) && self.finder.knows(block) && !is_sum(only) => {
                self.walk.note(block, only);
                Some(only.clone())
            }
            _ => None,
        }
    }

    /// What the directories say whose inodes are in `block`, if its first inode is `first`.
    async fn told_by_directories(&mut self, first: u32, block: &[u8]) -> Told {
        let inodes = (first..).zip(block.chunks_exact(self.own.inode_bytes.into()));
        let directories = inodes.filter(|(_, inode)| kind(inode) == Some(Kind::Directory) && links(inode) > 0);
        let mut told = Told::Nothing;
        for (number, inode) in directories.take(ASKED_MAX) {
            let Some(place) = place_in(written(inode), 0) else { continue };
            let how = self.how;
            let is_right = |block: &[u8]| how.is_directory(number, inode, block);
            match how.find(place, self.finder, &is_right).await {
                Sight::Block(_) | Sight::Several(_) => return Told::InPlace,
                Sight::Nothing if self.finder.knows(place) => told = Told::Elsewhere,
                Sight::Nothing => {}
            }
        }
        told
    }
}

/// Whether none of these blocks is the xor of others of them. Where one is, any of them may be the parity.
fn are_independent(blocks: &[Vec<u8>]) -> bool {
    let mut basis: Vec<u64> = Vec::new();
    blocks.iter().all(|block| {
        let rest = basis.iter().fold(content(block), |rest, own| rest.min(rest ^ own));
        basis.push(rest);
        rest != 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ext4::groups::Group;
    use crate::ext4::superblock::Sums;
    use crate::ext4::testing::{Blocks, ext4, inode, xor};
    use futures_util::FutureExt;

    /// Blocks of files at these places of a table.
    fn blocks<const N: usize>(places: [u32; N]) -> [Vec<u8>; N] {
        let mut random = crate::memory::numbers(3);
        places.map(|place| {
            let numbers = place * 16 + 1..=place * 16 + 16;
            numbers.flat_map(|number| inode(7, number, 1 + random() as u32 % 100_000)).collect()
        })
    }

    #[test]
    fn parity_of_three_blocks_of_inodes_has_right_checksums_and_is_told_from_a_fourth() {
        let own = ext4(Sums::All(7));
        let parts = blocks([4, 8, 16]);
        let sum = xor(&[&parts[0], &parts[1], &parts[2]]);
        let are_inodes = |place: u32, block: &[u8]| Recognition::of(&own).are_inodes(place * 16 + 1, &|_| None, block);
        assert!(are_inodes(4, &parts[0]));
        assert!(are_inodes(4 ^ 8 ^ 16, &sum), "its checksums are right");
        let is_sum = |block: &[u8]| is_a_sum(block.chunks_exact(256).filter_map(is_as_long));
        assert!(is_sum(&sum) && !parts.iter().any(|part| is_sum(part)));
    }

    /// What is found of the block of inodes at 1004, and whether it counts as lost, if these blocks are there.
    fn found(blocks: &[&[u8]], others: Vec<(u64, Vec<u8>)>) -> (Option<Vec<u8>>, bool) {
        let own = ext4(Sums::None);
        let here = blocks.iter().map(|block| (1004, block.to_vec()));
        let mut blocks = Blocks(here.chain(others).collect());
        let mut walker = Walker::of(&own, &mut blocks);
        let (block_bitmap, inode_bitmap) = (None, None);
        let group = Group { number: 0, block_bitmap, inode_bitmap, table: 1000, used_inodes: 1 << 13, is_old: false };
        let found = walker.inodes(&group, &Uses(None), 4).now_or_never().expect("memory answers at once");
        (found, walker.walk.lost == [1004])
    }

    #[test]
    fn without_checksums_a_block_of_inodes_counts_if_nothing_else_there_looks_like_one() {
        let [one, two, three] = blocks([4, 8, 16]);
        let data = vec![b'x'; BLOCK];
        assert_eq!(found(&[&one, &data], vec![]), (Some(one.clone()), false));
        assert_eq!(found(&[&one, &two], vec![]), (None, false));
        assert_eq!(found(&[&data], vec![]), (None, true));
        assert_eq!(found(&[&data, &[0; BLOCK]], vec![]), (None, false), "all of them may be free");
        assert_eq!(found(&[&one, &[0; BLOCK]], vec![]), (None, false), "and the others those of another place");
        let parity = xor(&[&one, &two, &three]);
        assert!(!are_independent(&[one.clone(), two.clone(), three.clone(), parity]));
        assert!(are_independent(&[one, two, three]));
    }

    #[test]
    fn a_directory_tells_which_of_several_blocks_of_inodes_is_in_its_place() {
        let [mut one, two] = blocks([4, 8]);
        // Its third inode is of a directory at 5000, which says that its number is 67.
        one[2 * 256..][..2].copy_from_slice(&0x41ed_u16.to_le_bytes());
        one[2 * 256 + 4..][..4].copy_from_slice(&(BLOCK as u32).to_le_bytes());
        one[2 * 256 + 0x38..][..2].copy_from_slice(&1_u16.to_le_bytes());
        one[2 * 256 + 0x3c..][..4].copy_from_slice(&5000_u32.to_le_bytes());
        let mut directory = vec![0; BLOCK];
        directory[..9].copy_from_slice(&[67, 0, 0, 0, 12, 0, 1, 2, b'.']);
        directory[12..22].copy_from_slice(&[2, 0, 0, 0, 0xf4, 0x0f, 2, 2, b'.', b'.']);
        assert_eq!(found(&[&two, &one], vec![(5000, directory.clone())]), (Some(one.clone()), false));
        directory[0] = 68;
        assert_eq!(found(&[&one], vec![(5000, directory.clone())]), (None, true), "that is of another place");
        assert_eq!(found(&[&two, &one], vec![(5000, directory)]), (Some(two), false));
    }
}
