//! The trees of Btrfs: logical addresses, nodes, and items by their keys.

use super::{chunk, count_of, is_unknown, level_of};
use crate::bytes::{le16, le32, le64};
use crate::source::Source;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// A range of logical addresses, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) at: u64,
    pub(super) bytes: u64,
    /// Devices, and the place on each.
    pub(super) copies: Vec<(u64, u64)>,
    /// Whether no device has all of it.
    pub(super) is_striped: bool,
}

impl Chunk {
    /// The places of its copies on a device.
    pub(super) fn places(&self, device: u64) -> impl Iterator<Item = u64> {
        self.copies.iter().filter(move |(own, _)| *own == device).map(|(_, at)| *at)
    }
}

/// A key of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) object: u64,
    pub(super) kind: u8,
    pub(super) offset: u64,
}

impl Key {
    fn at(bytes: &[u8]) -> Self {
        Self { object: le64(bytes, 0), kind: bytes.get(8).copied().unwrap_or(0), offset: le64(bytes, 9) }
    }
}

/// An item of a leaf.
pub(super) struct Item {
    pub(super) key: Key,
    pub(super) data: Vec<u8>,
}

/// The file system's trees.
pub(super) struct Trees<'a, S: ?Sized> {
    source: &'a S,
    superblock: Vec<u8>,
    /// The number of this device.
    pub(super) device: u64,
    pub(super) chunks: Vec<Chunk>,
    /// Nodes that were read last, as trees share their upper ones.
    nodes: HashMap<u64, Rc<Vec<u8>>>,
    /// Roots that were looked up.
    roots: BTreeMap<u64, Option<u64>>,
    has_all_chunks: bool,
    notes: Vec<String>,
}

const HEADER_BYTES: usize = 101;
const ITEM_BYTES: usize = 25;
const POINTER_BYTES: usize = 33;
const ROOT_ITEM: u8 = 132;
const CHUNK_ITEM: u8 = 228;
const SUPERBLOCK_AT: u64 = 64 << 10;
const NODES_KEPT: usize = 1000;
const NOTES_MAX: usize = 20;
const LEVEL_MAX: u8 = 7;

impl<'a, S: Source + ?Sized> Trees<'a, S> {
    /// Reads the superblock, or its copy, and the chunks.
    pub(super) async fn read(source: &'a S) -> Result<Self, String> {
        let mut why = "no superblock of Btrfs that can be used".to_owned();
        let mut notes = Vec::new();
        for at in [SUPERBLOCK_AT, 64 << 20].into_iter().filter(|at| at + 4096 <= source.bytes()) {
            let superblock = match source.read(at, 4096).await {
                Ok(superblock) => superblock,
                Err(reason) => {
                    why = format!("the superblock at byte {at} cannot be read: {reason}");
                    continue;
                }
            };
            let node_bytes = le32(&superblock, 148);
            if &superblock[64..72] != b"_BHRfS_M" || !node_bytes.is_power_of_two() || node_bytes > 64 << 10 {
                continue;
            }
            if is_unknown(le64(&superblock, 188)) {
                return Err("its tree of extents is of a version that is not read".to_owned());
            }
            if at != SUPERBLOCK_AT {
                notes.push(format!("the superblock at byte {at} counts: {why}"));
            }
            if le64(&superblock, 136) > 1 {
                notes.push("it has several devices, and only this one is read".to_owned());
            }
            if le64(&superblock, 96) != 0 {
                notes.push("its log was not replayed: what changed last may be named wrong".to_owned());
            }
            let mut trees = Self {
                source,
                device: le64(&superblock, 201),
                chunks: first_chunks(&superblock),
                superblock,
                nodes: HashMap::new(),
                roots: BTreeMap::new(),
                has_all_chunks: false,
                notes,
            };
            trees.read_chunks().await;
            return Ok(trees);
        }
        Err(why)
    }

    async fn read_chunks(&mut self) {
        let all = |offset| Key { object: 256, kind: CHUNK_ITEM, offset };
        let (items, is_whole) = self.items(le64(&self.superblock, 88), all(0), all(u64::MAX)).await;
        self.has_all_chunks = is_whole;
        for (chunk, _) in items.iter().filter_map(|item| chunk(item.key.offset, &item.data)) {
            if !self.chunks.contains(&chunk) {
                self.chunks.push(chunk);
            }
        }
    }

    /// Bytes of this device that it uses.
    pub(super) fn bytes(&self) -> u64 {
        le64(&self.superblock, 209)
    }

    pub(super) fn node_bytes(&self) -> u64 {
        le32(&self.superblock, 148).into()
    }

    /// The root of the tree of roots.
    pub(super) fn root_of_roots(&self) -> u64 {
        le64(&self.superblock, 80)
    }

    /// Whether all chunks are known.
    pub(super) fn is_whole(&self) -> bool {
        self.has_all_chunks
    }

    /// What could not be read.
    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// The address of a tree's root; `None` if there is no such tree.
    pub(super) async fn root(&mut self, tree: u64) -> Result<Option<u64>, String> {
        if let Some(known) = self.roots.get(&tree) {
            return Ok(*known);
        }
        let key = |offset| Key { object: tree, kind: ROOT_ITEM, offset };
        let (items, is_whole) = self.items(self.root_of_roots(), key(0), key(u64::MAX)).await;
        if items.is_empty() && !is_whole {
            return Err("the tree of roots cannot be read in whole".to_owned());
        }
        let root = items.last().map(|item| le64(&item.data, 176)).filter(|root| *root != 0);
        self.roots.insert(tree, root);
        Ok(root)
    }

    /// The items of a tree from one key to another, and whether these are all.
    pub(super) async fn items(&mut self, root: u64, from: Key, to: Key) -> (Vec<Item>, bool) {
        let (mut found, mut is_whole) = (Vec::new(), true);
        let mut due = vec![(root, None)];
        while let Some((address, level)) = due.pop() {
            let node = match self.node(address, level).await {
                Ok(node) => node,
                Err(reason) => {
                    self.note(reason);
                    is_whole = false;
                    continue;
                }
            };
            if level_of(&node) == 0 {
                found.extend(items_of(&node).filter(|item| (from..=to).contains(&item.key)));
                continue;
            }
            let below = level_of(&node) - 1;
            let pointers: Vec<(Key, u64)> = pointers_of(&node).collect();
            // A pointer's key is the first below it, and the next pointer's key follows the last.
            let first = pointers.partition_point(|(key, _)| *key <= from).saturating_sub(1);
            let wanted = pointers[first..].iter().take_while(|(key, _)| *key <= to);
            let children: Vec<_> = wanted.map(|(_, address)| (*address, Some(below))).collect();
            due.extend(children.into_iter().rev());
        }
        (found, is_whole)
    }

    /// The items of a leaf, and the tree that it was made for.
    pub(super) async fn leaf(&mut self, address: u64) -> Result<(u64, Vec<Item>), String> {
        let node = self.node(address, Some(0)).await?;
        Ok((le64(&node, 88), items_of(&node).collect()))
    }

    /// The node at a logical address, from any copy that holds it.
    async fn node(&mut self, address: u64, level: Option<u8>) -> Result<Rc<Vec<u8>>, String> {
        if let Some(known) = self.nodes.get(&address) {
            return Ok(known.clone());
        }
        let mut why = "it is in no chunk of this device".to_owned();
        for place in self.places(address) {
            match self.source.read(place, self.node_bytes() as usize).await {
                Ok(node) if self.is_node(&node, address, level) => {
                    if self.nodes.len() >= NODES_KEPT {
                        self.nodes.clear();
                    }
                    let node = Rc::new(node);
                    self.nodes.insert(address, node.clone());
                    return Ok(node);
                }
                Ok(_) => why = format!("byte {place} holds something else"),
                Err(reason) => why = reason,
            }
        }
        Err(format!("the node at {address}: {why}"))
    }

    /// Whether bytes are the node of this address and level. Its sum is checked where it is a CRC-32C.
    fn is_node(&self, node: &[u8], address: u64, level: Option<u8>) -> bool {
        const CRC_32C: u16 = 0;
        let has_sum = le16(&self.superblock, 196) != CRC_32C || crc32c::crc32c(&node[32..]) == le32(node, 0);
        le64(node, 48) == address
            && level_of(node) <= LEVEL_MAX
            && level.is_none_or(|is| is == level_of(node))
            && has_sum
    }

    /// The places of a logical address on this device.
    fn places(&self, address: u64) -> Vec<u64> {
        let has_it = |chunk: &&Chunk| !chunk.is_striped && address >= chunk.at && address - chunk.at < chunk.bytes;
        let end = self.source.bytes().saturating_sub(self.node_bytes());
        let chunk = self.chunks.iter().find(has_it);
        let places = chunk.into_iter().flat_map(|chunk| chunk.places(self.device).map(|at| at + (address - chunk.at)));
        places.filter(|place| *place <= end).collect()
    }
}

/// The chunks in a superblock, which have the tree of chunks.
fn first_chunks(superblock: &[u8]) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    let bytes = (le32(superblock, 160) as usize).min(2048);
    let mut rest = &superblock[811..811 + bytes];
    while rest.len() > 17 && rest[8] == CHUNK_ITEM {
        let Some((found, length)) = chunk(le64(rest, 9), &rest[17..]) else { break };
        chunks.push(found);
        rest = &rest[17 + length..];
    }
    chunks
}

/// The items of a leaf.
fn items_of(leaf: &[u8]) -> impl Iterator<Item = Item> {
    let heads = leaf[HEADER_BYTES..].chunks_exact(ITEM_BYTES).take(count_of(leaf));
    heads.filter_map(|head| {
        let at = HEADER_BYTES + le32(head, 17) as usize;
        let data = leaf.get(at..at.checked_add(le32(head, 21) as usize)?)?.to_vec();
        Some(Item { key: Key::at(head), data })
    })
}

/// The pointers of an inner node.
fn pointers_of(node: &[u8]) -> impl Iterator<Item = (Key, u64)> {
    let heads = node[HEADER_BYTES..].chunks_exact(POINTER_BYTES).take(count_of(node));
    heads.map(|head| (Key::at(head), le64(head, 17)))
}
