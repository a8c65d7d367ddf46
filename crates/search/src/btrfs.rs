//! Btrfs: a walk through its trees, whose checksum tree has a CRC of every block of files.
//!
//! Each pointer to a tree block has the address and the age that the block itself holds, and the block has a CRC. So, as
//! in ext4, a function finds each among the members by that. Addresses are logical: the chunk tree says where they are on
//! the device. Facts: the kernel's `include/uapi/linux/btrfs_tree.h` and `fs/btrfs/volumes.c`.

use crate::crc::{BLOCK, from_standard};
use crate::seen::number::{id, le16, le32, le64};
use crate::seen::{Expected, Finder, LOST_MAX, Node, Place, Walk, Want};

/// What a superblock says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Super {
    /// Its uuid.
    pub(crate) id: [u8; 16],
    /// Its length in blocks.
    pub(crate) blocks: u64,
    /// The block of this copy.
    pub(crate) super_block: u64,
    /// The age.
    pub(crate) generation: u64,
    /// Blocks of a tree block.
    node_blocks: u64,
    chunks: Vec<Chunk>,
    chunk_tree: Pointer,
    root_tree: Pointer,
}

/// A pointer to a tree block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pointer {
    address: u64,
    generation: u64,
}

/// A range of logical addresses, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Chunk {
    at: u64,
    bytes: u64,
    copies: Vec<u64>,
}

/// An item of a leaf.
struct Item {
    object: u64,
    offset: u64,
    data: Vec<u8>,
}

/// All that was recognized.
#[derive(Default)]
pub(crate) struct Seen {
    /// Superblocks at their first and second place, with their block's content.
    pub(crate) supers: Vec<(Place, Super, u64)>,
}

/// Where the superblock is, and its copy.
const SUPERS_AT: [u64; 2] = [64 << 10, 64 << 20];
/// The block of the first.
pub(crate) const SUPER_BLOCK: u64 = SUPERS_AT[0] / BLOCK as u64;
const MAGIC: &[u8; 8] = b"_BHRfS_M";

/// Whether [`Seen::look`] might see something in a block with these words.
pub(crate) fn may_be(word: impl Fn(usize) -> [u8; 8]) -> bool {
    word(64) == *MAGIC
}

const HEADER_BYTES: usize = 101;
const ITEM_BYTES: usize = 25;
const POINTER_BYTES: usize = 33;
const CHECKSUM_TREE: u64 = 7;
const ROOT_ITEM: u8 = 132;
const CHUNK_ITEM: u8 = 228;
const CHECKSUM_ITEM: u8 = 128;
/// A kind that no item has.
const NO_ITEM: u8 = 0;
/// Tree blocks that are looked at in each of the trees, at most.
const NODES_MAX: usize = 300;
const NODE_BYTES: [u32; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

impl Seen {
    /// Looks at a block.
    pub(crate) fn look(&mut self, place: Place, content: u64, block: &[u8]) {
        self.supers.extend(Super::of(block).map(|found| (place, found, content)));
    }
}

impl Super {
    /// The superblock in `block`, also a copy.
    pub(crate) fn of(block: &[u8]) -> Option<Self> {
        if &block[64..72] != MAGIC || !SUPERS_AT.contains(&le64(block, 48)) {
            return None;
        }
        let has_sum = parity::crc32c(&block[32..]) == le32(block, 0);
        let node_bytes = le32(block, 148);
        if !has_sum || le16(block, 196) != 0 || le64(block, 136) != 1 || !NODE_BYTES.contains(&node_bytes) {
            return None;
        }
        let array = block.get(811..811 + le32(block, 160).min(2048) as usize)?;
        let mut chunks = Vec::new();
        let mut rest = array;
        while rest.len() > 17 && rest[8] == CHUNK_ITEM {
            let (chunk, bytes) = Chunk::of(le64(rest, 9), &rest[17..])?;
            chunks.push(chunk);
            rest = rest.get(17 + bytes..)?;
        }
        let generation = le64(block, 72);
        Some(Self {
            id: id(block, 32),
            blocks: le64(block, 112) / BLOCK as u64,
            super_block: le64(block, 48) / BLOCK as u64,
            generation,
            node_blocks: u64::from(node_bytes) / BLOCK as u64,
            chunks,
            chunk_tree: Pointer { address: le64(block, 88), generation: le64(block, 164) },
            root_tree: Pointer { address: le64(block, 80), generation },
        })
    }

    /// Walks the file system: the chunk tree, then all others, with the checksum tree before the rest.
    pub(crate) async fn walk(&self, finder: &mut impl Finder) -> Walk {
        let mut walk = Walk::default();
        let mut chunks = self.chunks.clone();
        let items = self.tree(self.chunk_tree, CHUNK_ITEM, &chunks, finder, &mut walk).await;
        let found = items.iter().filter_map(|item| Some(Chunk::of(item.offset, &item.data)?.0));
        chunks.extend(found.filter(|chunk| !self.chunks.contains(chunk)));
        let mut roots = self.tree(self.root_tree, ROOT_ITEM, &chunks, finder, &mut walk).await;
        walk.is_wrong = roots.is_empty();
        roots.sort_by_key(|root| (root.object != CHECKSUM_TREE, root.object));
        for root in roots {
            let pointer = Pointer { address: le64(&root.data, 176), generation: le64(&root.data, 160) };
            let kind = if root.object == CHECKSUM_TREE { CHECKSUM_ITEM } else { NO_ITEM };
            let items = self.tree(pointer, kind, &chunks, finder, &mut walk).await;
            walk.expected.extend(items.iter().flat_map(|item| self.files(item, &chunks)));
        }
        walk.expected.sort_by_key(|expected| expected.block);
        walk.expected.dedup();
        walk
    }

    /// What an item of checksums says of files.
    fn files<'a>(&'a self, item: &'a Item, chunks: &'a [Chunk]) -> impl Iterator<Item = Expected> + 'a {
        let sums = item.data.chunks_exact(4).enumerate();
        sums.flat_map(move |(index, sum)| {
            let want = Want::Sum(from_standard(le32(sum, 0)));
            self.places(chunks, item.offset.wrapping_add((index * BLOCK) as u64))
                .map(move |block| Expected::new(block, want))
        })
    }

    /// The items of one kind in a tree, of which a part is looked at if it is large.
    async fn tree(
        &self,
        root: Pointer,
        kind: u8,
        chunks: &[Chunk],
        finder: &mut impl Finder,
        walk: &mut Walk,
    ) -> Vec<Item> {
        let (mut due, mut items, mut left) = (vec![root], Vec::new(), NODES_MAX);
        while let Some(pointer) = due.pop() {
            if left == 0 || walk.lost.len() > LOST_MAX {
                break;
            }
            left -= 1;
            let Some(node) = self.node(pointer, chunks, finder, walk).await else { continue };
            if node[100] == 0 {
                items.extend(items_of(&node, kind));
            } else {
                let children: Vec<Pointer> = pointers_of(&node).collect();
                let step = (due.len() + children.len()).div_ceil(left.max(1)).max(1);
                due.extend(children.into_iter().rev().step_by(step));
            }
        }
        items
    }

    /// Finds a tree block, and notes its parts at the places of its copies.
    async fn node(
        &self,
        Pointer { address, generation }: Pointer,
        chunks: &[Chunk],
        finder: &mut impl Finder,
        walk: &mut Walk,
    ) -> Option<Vec<u8>> {
        let is_it = |block: &[u8]| {
            le64(block, 48) == address
                && le64(block, 80) == generation
                && id(block, 32) == self.id
                && block[100] < 8
                && is_ordered(block, self.node_blocks)
        };
        let head = |block: &[u8]| {
            is_it(block).then(|| Node { stored: le32(block, 0), register: !parity::crc32c(&block[32..]) })
        };
        let places: Vec<u64> = self.places(chunks, address).collect();
        let mut found = None;
        for place in &places {
            found = finder.find_node(*place, self.node_blocks, &head).await;
            if found.is_some() {
                break;
            }
        }
        let Some(node) = found else {
            let known = places.iter().find(|place| (0..self.node_blocks).all(|part| finder.knows(**place + part)));
            known.into_iter().for_each(|place| walk.lose(*place, finder));
            return None;
        };
        for place in places {
            (place..).zip(node.chunks_exact(BLOCK)).for_each(|(block, part)| walk.note(block, part));
        }
        Some(node)
    }

    /// The blocks of the device at which a logical address is.
    fn places<'a>(&'a self, chunks: &'a [Chunk], address: u64) -> impl Iterator<Item = u64> + 'a {
        let chunk = chunks.iter().find(|chunk| address >= chunk.at && address - chunk.at < chunk.bytes);
        let copies = chunk.into_iter().flat_map(move |chunk| {
            chunk.copies.iter().filter_map(move |copy| Some(copy.checked_add(address - chunk.at)? / BLOCK as u64))
        });
        copies.filter(|block| block.checked_add(self.node_blocks).is_some_and(|end| end <= self.blocks))
    }
}

impl Chunk {
    /// A chunk item and its length. Only chunks are of use whose copies are whole: of one device, not striped.
    fn of(at: u64, item: &[u8]) -> Option<(Self, usize)> {
        let stripes = usize::from(le16(item, 44));
        let bytes = 48 + 32 * stripes;
        let item = item.get(..bytes)?;
        let copies = (0..stripes).map(|stripe| le64(item, 48 + 32 * stripe + 8)).collect();
        Some((Self { at, bytes: le64(item, 0), copies }, bytes))
    }
}

/// Whether the heads in a tree block's first block are those of one, of `blocks` blocks. The xor of three tree blocks
/// can have an address and has a CRC, as parity of them does; but no heads: the data of each item is beside the next.
fn is_ordered(first: &[u8], blocks: u64) -> bool {
    let count = le32(first, 96) as usize;
    let key = |head: &[u8]| (le64(head, 0), head[8], le64(head, 9));
    let is_leaf = first[100] == 0;
    let bytes = if is_leaf { ITEM_BYTES } else { POINTER_BYTES };
    let heads: Vec<&[u8]> = first[HEADER_BYTES..].chunks_exact(bytes).take(count).collect();
    let room = blocks as usize * BLOCK - HEADER_BYTES;
    let is_dense = || {
        let ends = heads.iter().map(|head| le32(head, 17) as usize + le32(head, 21) as usize);
        let begins = heads.iter().map(|head| le32(head, 17) as usize);
        ends.eq(std::iter::once(room).chain(begins).take(heads.len()))
    };
    count <= room / bytes && heads.is_sorted_by(|one, next| key(one) < key(next)) && (!is_leaf || is_dense())
}

/// The items of one kind in a leaf.
fn items_of(leaf: &[u8], kind: u8) -> impl Iterator<Item = Item> {
    let count = le32(leaf, 96) as usize;
    let heads = leaf[HEADER_BYTES..].chunks_exact(ITEM_BYTES).take(count).filter(move |head| head[8] == kind);
    heads.filter_map(move |head| {
        let (at, bytes) = (HEADER_BYTES + le32(head, 17) as usize, le32(head, 21) as usize);
        let data = leaf.get(at..at.checked_add(bytes)?)?.to_vec();
        Some(Item { object: le64(head, 0), offset: le64(head, 9), data })
    })
}

/// The pointers of an inner tree block.
fn pointers_of(node: &[u8]) -> impl Iterator<Item = Pointer> {
    let heads = node[HEADER_BYTES..].chunks_exact(POINTER_BYTES).take(le32(node, 96) as usize);
    heads.map(|head| Pointer { address: le64(head, 17), generation: le64(head, 25) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first block of a leaf with items of these lengths.
    fn leaf(lengths: &[u32]) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        block[96..100].copy_from_slice(&(lengths.len() as u32).to_le_bytes());
        let mut end = (4 * BLOCK - HEADER_BYTES) as u32;
        for (head, (number, length)) in block[HEADER_BYTES..].chunks_exact_mut(ITEM_BYTES).zip((1_u64..).zip(lengths)) {
            end -= length;
            head[..8].copy_from_slice(&number.to_le_bytes());
            head[17..21].copy_from_slice(&end.to_le_bytes());
            head[21..25].copy_from_slice(&length.to_le_bytes());
        }
        block
    }

    #[test]
    fn a_leaf_is_ordered_and_parity_of_three_is_not() {
        let leaves = [leaf(&[439, 12, 439]), leaf(&[160, 80, 33]), leaf(&[98; 150]), leaf(&[53; 300]), leaf(&[])];
        assert!(leaves.iter().all(|leaf| is_ordered(leaf, 4)));
        assert!(!is_ordered(&leaves[0], 8), "its items end where a shorter block ends");
        for left_out in 0..2 {
            let mut xor = vec![0; BLOCK];
            let others = leaves[..4].iter().enumerate().filter(|(number, _)| *number != left_out);
            others.for_each(|(_, leaf)| xor.iter_mut().zip(leaf).for_each(|(xor, byte)| *xor ^= byte));
            assert!(!is_ordered(&xor, 4), "without {left_out}");
        }
    }

    #[test]
    fn an_inner_tree_block_has_its_keys_in_order() {
        let mut block = vec![0; BLOCK];
        block[96] = 2;
        block[100] = 1;
        block[HEADER_BYTES] = 5;
        block[HEADER_BYTES + POINTER_BYTES] = 6;
        assert!(is_ordered(&block, 4));
        block[HEADER_BYTES] = 7;
        assert!(!is_ordered(&block, 4));
    }
}
