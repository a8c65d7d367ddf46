//! Btrfs: its tree blocks hold their own address, and its checksum tree has a CRC of every block of files.
//!
//! Addresses are logical: the chunk tree says where they are on the device. Facts: the kernel's
//! `include/uapi/linux/btrfs_tree.h` and `fs/btrfs/volumes.c`.

use crate::crc::{BLOCK, from_standard};
use crate::seen::number::{id, le16, le32, le64};
use crate::seen::{Expected, Place, Want};
use std::collections::HashMap;

/// What a superblock says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Super {
    /// Its uuid.
    pub(crate) id: [u8; 16],
    /// Its length in blocks.
    pub(crate) blocks: u64,
    /// The age.
    pub(crate) generation: u64,
    chunks: Vec<Chunk>,
}

/// A range of logical addresses, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Chunk {
    at: u64,
    bytes: u64,
    copies: Vec<u64>,
}

/// The first 4 KiB of a tree block.
struct Head {
    id: [u8; 16],
    address: u64,
    generation: u64,
    sum: u32,
}

/// What a leaf says.
struct Leaf {
    id: [u8; 16],
    address: u64,
    generation: u64,
    sums: Vec<(u64, u32)>,
    chunks: Vec<Chunk>,
    /// The sums of its blocks.
    blocks: Vec<u32>,
}

/// All that was recognized.
#[derive(Default)]
pub(crate) struct Seen {
    /// Superblocks at their first place, with their block's sum.
    pub(crate) supers: Vec<(Place, Super, u32)>,
    heads: Vec<Head>,
    leaves: Vec<Leaf>,
}

/// Where the first superblock is, in bytes and in blocks.
const SUPER_AT: u64 = 64 << 10;
/// The same in blocks.
pub(crate) const SUPER_BLOCK: u64 = SUPER_AT / BLOCK as u64;

const HEADER_BYTES: usize = 101;
const ITEM_BYTES: usize = 25;
const CHUNK_TREE: u64 = 3;
const CHECKSUM_TREE: u64 = 7;
const CHUNK_ITEM: u8 = 228;
const CHECKSUM_ITEM: u8 = 128;
/// Leaves have one of these sizes.
const NODE_BYTES: [usize; 5] = [16 << 10, 4 << 10, 8 << 10, 32 << 10, 64 << 10];

impl Seen {
    /// Looks at a block, with what follows on the member.
    pub(crate) fn look(&mut self, place: Place, sum: u32, block: &[u8], rest: &[u8]) {
        if &block[64..72] == b"_BHRfS_M" {
            if let Some(found) = Super::of(block).filter(|_| le64(block, 48) == SUPER_AT) {
                self.supers.push((place, found, sum));
            }
            return;
        }
        // A tree block: its flags say that it was written, and have the only back-reference revision that there is.
        let (flags, level) = (le64(block, 56), block[100]);
        if flags & !0b11 != 1 << 56 || level > 8 || !le64(block, 48).is_multiple_of(BLOCK as u64) {
            return;
        }
        let (address, generation, own) = (le64(block, 48), le64(block, 80), id(block, 32));
        self.heads.push(Head { id: own, address, generation, sum });
        let owner = le64(block, 88);
        if level == 0 && matches!(owner, CHUNK_TREE | CHECKSUM_TREE) {
            let node = NODE_BYTES.into_iter().filter_map(|bytes| rest.get(..bytes)).find(|node| has_sum(node));
            self.leaves.extend(node.map(|node| Leaf::of(node, own, address, generation)));
        }
    }

    /// What is known of the file system of `found`: of several versions of a block the latest.
    pub(crate) fn expected(&self, found: &Super) -> Vec<Expected> {
        let mut newest: HashMap<u64, (u64, u32)> = HashMap::new();
        for head in self.heads.iter().filter(|head| head.id == found.id) {
            let entry = newest.entry(head.address).or_insert((head.generation, head.sum));
            if entry.0 < head.generation {
                *entry = (head.generation, head.sum);
            }
        }
        let is_newest =
            |leaf: &&Leaf| leaf.id == found.id && newest.get(&leaf.address).is_some_and(|own| own.0 == leaf.generation);
        let leaves: Vec<&Leaf> = self.leaves.iter().filter(is_newest).collect();
        let chunks: Vec<&Chunk> = found.chunks.iter().chain(leaves.iter().flat_map(|leaf| &leaf.chunks)).collect();
        let sums = newest.iter().map(|(address, (_, sum))| (*address, *sum));
        let of_leaves = leaves.iter().flat_map(|leaf| {
            let blocks = leaf.blocks.iter().enumerate().skip(1);
            blocks.map(|(index, sum)| (leaf.address + (index * BLOCK) as u64, *sum))
        });
        let of_files = leaves.iter().flat_map(|leaf| leaf.sums.iter().copied());
        let all: HashMap<(u64, u32), ()> = sums
            .chain(of_leaves)
            .chain(of_files)
            .flat_map(|(address, sum)| places(&chunks, address).into_iter().map(move |block| ((block, sum), ())))
            .collect();
        let expected = all.into_keys().map(|(block, sum)| Expected { block, want: Want::Sum(sum) });
        expected.filter(|expected| expected.block < found.blocks).collect()
    }
}

/// The blocks of the device at which a logical address is.
fn places(chunks: &[&Chunk], address: u64) -> Vec<u64> {
    let chunk = chunks.iter().find(|chunk| address >= chunk.at && address - chunk.at < chunk.bytes);
    let copies = chunk.map_or(&[][..], |chunk| &chunk.copies).iter();
    let at = |copy: &u64| copy.checked_add(address - chunk?.at).map(|at| at / BLOCK as u64);
    copies.filter_map(at).collect()
}

fn has_sum(node: &[u8]) -> bool {
    parity::crc32c(&node[32..]) == le32(node, 0)
}

impl Super {
    fn of(block: &[u8]) -> Option<Self> {
        if !has_sum(block) || le16(block, 196) != 0 || le64(block, 136) != 1 {
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
        Some(Self { id: id(block, 32), blocks: le64(block, 112) / BLOCK as u64, generation: le64(block, 72), chunks })
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

impl Leaf {
    fn of(node: &[u8], id: [u8; 16], address: u64, generation: u64) -> Self {
        let blocks = node.chunks_exact(BLOCK).map(crate::crc::sum).collect();
        let mut leaf = Self { id, address, generation, sums: Vec::new(), chunks: Vec::new(), blocks };
        let count = le32(node, 96) as usize;
        for item in node[HEADER_BYTES..].chunks_exact(ITEM_BYTES).take(count) {
            let (kind, offset) = (item[8], le64(item, 9));
            let (at, bytes) = (HEADER_BYTES + le32(item, 17) as usize, le32(item, 21) as usize);
            let Some(data) = at.checked_add(bytes).and_then(|end| node.get(at..end)) else { continue };
            match kind {
                CHUNK_ITEM => leaf.chunks.extend(Chunk::of(offset, data).map(|(chunk, _)| chunk)),
                CHECKSUM_ITEM => {
                    let sums = data.chunks_exact(4).enumerate();
                    leaf.sums.extend(sums.map(|(index, sum)| {
                        (offset.wrapping_add((index * BLOCK) as u64), from_standard(le32(sum, 0)))
                    }));
                }
                _ => {}
            }
        }
        leaf
    }
}
