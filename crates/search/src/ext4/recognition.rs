//! How a block of an ext4 is recognised: by its checksum, or by its structure.
//!
//! A checksum tells the block from all others, so that the first one that has it is the block. By structure a block is
//! recognised only if nothing else at its place has that: otherwise nothing is said of it. All that differs between file
//! systems with checksums and without them is decided here and in `table.rs`.

use super::inode::{Child, EXTENTS};
use super::structure::{Descriptor, has_free};
use super::superblock::{Sums, Super};
use crate::crc::{BLOCK, crc16, from_raw, raw};
use crate::seen::number::{le16, le32};
use crate::seen::{Expected, Finder, Want};

/// What is at a place.
pub(super) enum Sight {
    /// The block that belongs there.
    Block(Vec<u8>),
    /// Several that may be it, of which this is one.
    Several(Vec<u8>),
    /// Nothing that may be it.
    Nothing,
}

/// How the blocks of a file system are recognised.
#[derive(Debug, Clone, Copy)]
pub(super) enum Recognition<'a> {
    /// By checksums with this seed.
    Sums(&'a Super, u32),
    /// By structure.
    Structure(&'a Super),
}

/// A bitmap of a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bitmap {
    pub(super) block: u64,
    /// Bits of it that mean something.
    pub(super) bits: u32,
    /// Those of them that are 0.
    pub(super) free: u32,
    /// Its checksum, where it has one, and the bits that it is of.
    sum: u32,
    summed: u32,
}

impl<'a> Recognition<'a> {
    pub(super) fn of(own: &'a Super) -> Self {
        match own.sums {
            Sums::All(seed) => Self::Sums(own, seed),
            Sums::Descriptors | Sums::None => Self::Structure(own),
        }
    }

    /// What `block` is, if `is_right` holds for it.
    pub(super) async fn find(&self, block: u64, finder: &mut impl Finder, is_right: &dyn Fn(&[u8]) -> bool) -> Sight {
        match self {
            Self::Sums(..) => finder.find(block, is_right).await.map_or(Sight::Nothing, Sight::Block),
            Self::Structure(_) => {
                let mut found = finder.find_all(block, is_right).await.into_iter();
                match (found.next(), found.next()) {
                    (None, _) => Sight::Nothing,
                    (Some(only), None) => Sight::Block(only),
                    (Some(first), Some(_)) => Sight::Several(first),
                }
            }
        }
    }

    /// Whether these are the descriptors of the groups from `first` on.
    pub(super) fn are_descriptors(&self, first: u32, descriptors: &[&[u8]]) -> bool {
        let mut numbered = (first..).zip(descriptors);
        match self {
            Self::Sums(_, seed) => numbered.all(|(number, own)| has_sum(*seed, number, own)),
            Self::Structure(own) => {
                let is_summed = own.sums == Sums::Descriptors;
                let has_sums = !is_summed || numbered.all(|(number, bytes)| has_crc16(own.id, number, bytes));
                has_sums && own.are_descriptors(first, descriptors)
            }
        }
    }

    /// What is known of a bitmap without looking at it: it has the sum that its descriptor names.
    pub(super) fn expected(&self, bitmap: &Bitmap) -> Option<Expected> {
        // The whole sums are kept with wide descriptors alone, and are those of as many bits as a group has. Behind them
        // all bits are set.
        let Self::Sums(own, seed) = self else { return None };
        let rest = vec![0xff; BLOCK.saturating_sub(bitmap.summed as usize / 8)];
        let is_whole = own.descriptor_bytes == 64;
        is_whole.then(|| Expected::new(bitmap.block, Want::Sum(from_raw(raw(bitmap.sum, &rest), *seed))))
    }

    /// Whether `block` is this bitmap, by the bits that are free. One without any bit set is no different from zeros.
    pub(super) fn is_bitmap(bitmap: &Bitmap, block: &[u8]) -> bool {
        has_free(bitmap.bits, bitmap.free, block) && block.iter().any(|byte| *byte != 0)
    }

    /// Whether `block` is the first one of the directory `number`, of which this is the inode.
    pub(super) fn is_directory(&self, number: u32, inode: &[u8], block: &[u8]) -> bool {
        match self {
            Self::Sums(_, seed) => is_summed_directory(seed_of(*seed, number, inode), number, block),
            Self::Structure(own) => own.is_directory(number, block),
        }
    }

    /// Whether `block` is a node of the extents of file `number`, of which this is the inode.
    pub(super) fn is_node(&self, number: u32, inode: &[u8], child: Child, block: &[u8]) -> bool {
        match self {
            Self::Sums(_, seed) => is_summed_node(seed_of(*seed, number, inode), block),
            Self::Structure(own) => own.is_node(block, Some(child.depth), Some(child.first)),
        }
    }
}

/// The seed of the checksums of a file's blocks.
fn seed_of(seed: u32, number: u32, inode: &[u8]) -> u32 {
    raw(raw(seed, &number.to_le_bytes()), &inode[0x64..0x68])
}

/// Whether `block` is a node of extents, by the checksum behind its entries.
fn is_summed_node(seed: u32, block: &[u8]) -> bool {
    let (entries, most) = (le16(block, 2), usize::from(le16(block, 4)));
    let end = 12 + 12 * most;
    let is_sane = le16(block, 0) == EXTENTS && usize::from(entries) <= most && end + 4 <= block.len();
    is_sane && raw(seed, &block[..end]) == le32(block, end)
}

/// Whether `block` is the first one of a directory: with its checksum, which a block with an index has elsewhere.
fn is_summed_directory(seed: u32, inode: u32, block: &[u8]) -> bool {
    const TAIL_BYTES: usize = 12;
    let begins = le32(block, 0) == inode && le32(block, 4) == 0x0201_000c && block[8] == b'.';
    let (entries, tail) = block.split_at(BLOCK - TAIL_BYTES);
    let has_tail = le32(tail, 0) == 0 && le32(tail, 4) == 0xde00_000c;
    let has_index = usize::from(le16(block, 16)) == BLOCK - TAIL_BYTES;
    begins && if has_tail { raw(seed, entries) == le32(tail, 8) } else { has_index }
}

fn has_sum(seed: u32, number: u32, descriptor: &[u8]) -> bool {
    let crc = raw(raw(seed, &number.to_le_bytes()), &descriptor[..0x1e]);
    let crc = raw(raw(crc, &[0; 2]), &descriptor[0x20..]);
    crc as u16 == le16(descriptor, 0x1e)
}

/// The checksum of `uninit_bg`, which leaves its own field out. Fact: `ext4_group_desc_csum` in the kernel's `super.c`.
fn has_crc16(id: [u8; 16], number: u32, descriptor: &[u8]) -> bool {
    let crc = crc16(crc16(!0, &id), &number.to_le_bytes());
    let crc = crc16(crc16(crc, &descriptor[..0x1e]), &descriptor[0x20..]);
    crc == le16(descriptor, 0x1e)
}

/// Whether `block` has inodes from `first` on with their checksums, and nothing else.
pub(super) fn are_summed_inodes(seed: u32, first: u32, bytes: u16, block: &[u8]) -> bool {
    let inodes = (first..).zip(block.chunks_exact(bytes.into()));
    let mut used = inodes.filter(|(_, inode)| inode.iter().any(|byte| *byte != 0)).peekable();
    used.peek().is_some() && used.all(|(number, inode)| is_summed_inode(seed, number, inode))
}

fn is_summed_inode(seed: u32, number: u32, inode: &[u8]) -> bool {
    let crc = seed_of(seed, number, inode);
    let crc = raw(raw(raw(crc, &inode[..0x7c]), &[0; 2]), &inode[0x7e..128]);
    let low = u32::from(le16(inode, 0x7c));
    if inode.len() == 128 {
        return crc & 0xffff == low;
    }
    let has_high = le16(inode, 0x80) >= 4;
    let crc = raw(crc, &inode[0x80..0x82]);
    if !has_high {
        return raw(crc, &inode[0x82..]) & 0xffff == low;
    }
    raw(raw(crc, &[0; 2]), &inode[0x84..]) == low | u32::from(le16(inode, 0x82)) << 16
}

impl Bitmap {
    /// The bitmaps of blocks and of inodes of a group, as far as its descriptor says that they were written.
    pub(super) fn of(own: &Super, number: u32, descriptor: &Descriptor<'_>) -> (Option<Self>, Option<Self>) {
        let (flags, (sum_of_blocks, sum_of_inodes)) = (descriptor.flags(), descriptor.bitmap_sums());
        let from = u64::from(number) * u64::from(own.group_blocks);
        let blocks = Self {
            block: descriptor.block_bitmap(),
            bits: own.blocks.saturating_sub(from).min(own.group_blocks.into()) as u32,
            free: descriptor.free_blocks(),
            sum: sum_of_blocks,
            summed: own.group_blocks,
        };
        let inodes = Self {
            block: descriptor.inode_bitmap(),
            bits: own.group_inodes,
            free: descriptor.free_inodes(),
            sum: sum_of_inodes,
            summed: own.group_inodes,
        };
        let is_whole = own.group_blocks == 8 * BLOCK as u32 && own.has_single_blocks;
        let has_inodes = flags & 1 == 0 && own.group_inodes <= 8 * BLOCK as u32;
        ((flags & 2 == 0 && is_whole).then_some(blocks), has_inodes.then_some(inodes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ext4::testing::ext4;

    #[test]
    fn descriptors_of_mke2fs_with_uninit_bg_are_known_by_their_number_and_the_uuid() {
        let id: [u8; 16] = std::array::from_fn(|at| at as u8 * 0x11);
        let own = Super { id, group_inodes: 25600, ..ext4(Sums::Descriptors) };
        let mut first = vec![0; 32];
        first[..18].copy_from_slice(&[0x14, 0, 0, 0, 0x17, 0, 0, 0, 0x1a, 0, 0, 0, 0x20, 0x6d, 0xf5, 0x63, 2, 0]);
        first[18..20].copy_from_slice(&[4, 0]);
        first[28..].copy_from_slice(&[0xf5, 0x63, 0x7e, 0x46]);
        let mut second = vec![0; 32];
        second[..16].copy_from_slice(&[0x15, 0, 0, 0, 0x18, 0, 0, 0, 0x5a, 6, 0, 0, 0xec, 0x6f, 0, 0x64]);
        second[18..20].copy_from_slice(&[5, 0]);
        second[28..].copy_from_slice(&[0, 0x64, 0x1e, 0x20]);
        let are_right = |own: &Super, from: u32, all: &[&[u8]]| Recognition::of(own).are_descriptors(from, all);
        assert!(are_right(&own, 0, &[&first, &second]));
        assert!(!are_right(&own, 1, &[&first]) && !are_right(&own, 0, &[&second]), "of another group");
        assert!(!are_right(&Super { id: [7; 16], ..own }, 0, &[&first]), "of another file system");
        first[12] ^= 1;
        assert!(!are_right(&own, 0, &[&first]), "its checksum is of other bytes");
        assert!(are_right(&Super { sums: Sums::None, ..own }, 1, &[&first]), "without checksums it might be");
    }
}
