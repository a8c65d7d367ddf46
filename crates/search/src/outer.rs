//! What file systems lie in: a partition table, a physical volume of LVM, or LUKS.
//!
//! The first block of each is recognized. From there the file systems are found as they are without it, with their
//! blocks moved: partitions say where they begin, and LVM's text which extents a volume has. LUKS hides what is in it, so
//! that its header is all that is known. Facts: see [`disk::table`] and [`disk::lvm`]; the LUKS2 on-disk format.

use crate::btrfs;
use crate::crc::{BLOCK, ZEROS};
use crate::evidence::Kind;
use crate::seen::number::{le32, le64};
use crate::seen::{Expected, Finder, Holder, LOST_MAX, Node, Place, Seen, Walk};
use disk::{Source, lvm};
use std::collections::HashSet;

/// The first block of one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct First {
    /// What it is.
    pub(crate) what: What,
    /// Its length in blocks, as far as its first block tells.
    pub(crate) blocks: u64,
    block: Vec<u8>,
}

/// What can lie around file systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum What {
    /// A partition table.
    Table,
    /// A physical volume of LVM.
    Lvm,
    /// LUKS.
    Luks,
}

/// A file system's blocks in the array: so many from the first on are those from the second on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Map(Vec<(u64, u64, u64)>);

const LABEL: &[u8; 8] = b"LABELONE";
const GPT: &[u8; 8] = b"EFI PART";
const LUKS: &[u8; 6] = b"LUKS\xba\xbe";
const SECTOR: usize = 512;
/// Where the metadata area of LVM begins, in blocks: pvcreate has no other.
const AREA_AT: u64 = 1;
/// The longest text of LVM that is read, in blocks, and combinations of members for its parts.
const TEXT_BLOCKS_MAX: u64 = 64;
const TEXTS_MAX: usize = 4096;
/// Volumes and partitions that are looked into.
const INNER_MAX: usize = 64;

/// Whether [`First::of`] might see something in a block with these words.
pub(crate) fn may_be(word: impl Fn(usize) -> [u8; 8]) -> bool {
    word(0).starts_with(LUKS)
        || word(SECTOR) == *GPT
        || word(SECTOR) == *LABEL
        || word(SECTOR - 8).ends_with(&[0x55, 0xaa])
}

impl First {
    /// What begins with `block`.
    pub(crate) fn of(block: &[u8]) -> Option<Self> {
        let (what, blocks) = if block.starts_with(LUKS) && matches!(block[6..8], [0, 1 | 2]) {
            (What::Luks, 1)
        } else if block[SECTOR..].starts_with(LABEL) && le64(block, SECTOR + 8) == 1 {
            // The label names its header, which has an id of 32 letters and the length behind it.
            let at = SECTOR + le32(block, SECTOR + 20) as usize;
            (What::Lvm, le64(block, at + 32) / BLOCK as u64)
        } else if block[SECTOR - 2..SECTOR] == [0x55, 0xaa] {
            let ends = partitions(block).into_iter().map(|(from, blocks)| from + blocks);
            (What::Table, ends.max()?)
        } else {
            return None;
        };
        (blocks > 0).then(|| Self { what, blocks, block: block.to_vec() })
    }

    /// Its name.
    pub(crate) fn name(&self) -> &'static str {
        match self.what {
            What::Table => "a partition table",
            What::Lvm => "LVM",
            What::Luks => "LUKS",
        }
    }

    /// Walks the file systems in it. `seen` is what the pass over the members has seen.
    pub(crate) async fn walk(&self, seen: &Seen, finder: &mut impl Finder) -> Walk {
        let mut walk = Walk::default();
        let maps = match self.what {
            What::Luks => return walk,
            What::Table => partitions(&self.block).into_iter().map(|(at, blocks)| Map(vec![(0, at, blocks)])).collect(),
            What::Lvm => self.volumes(finder, &mut walk).await,
        };
        let mut found = HashSet::new();
        for map in maps.into_iter().take(INNER_MAX) {
            let mut inner = Inner { map: &map, finder };
            let Some((kind, block)) = inner.system().await else { continue };
            found.insert(kind.id());
            let mut part = kind.walk(seen, &mut inner).await;
            part.note(kind.super_block(), &block);
            walk.is_wrong |= part.is_wrong;
            walk.lost.extend(part.lost.iter().filter_map(|block| map.to(*block)));
            let mapped = |own: Expected| {
                let by = own.by.and_then(|by| map.to(by));
                Some(Expected { block: map.to(own.block)?, by, ..own })
            };
            walk.expected.extend(part.expected.into_iter().filter_map(mapped));
            walk.likely.extend(part.likely.into_iter().filter_map(mapped));
            if walk.lost.len() > LOST_MAX {
                break;
            }
        }
        // Where the members have file systems, and this shape none in its volumes, the shape is wrong.
        let others = seen.systems();
        walk.is_wrong |= found.is_empty() && !others.is_empty();
        walk.missed = others.difference(&found).count() as u64;
        walk
    }

    /// The volumes of LVM that lie on this physical volume, as far as its text is found.
    async fn volumes(&self, finder: &mut impl Finder, walk: &mut Walk) -> Vec<Map> {
        let Some(group) = self.group(finder, walk).await else {
            walk.is_wrong = walk.lost.is_empty();
            return Vec::new();
        };
        let own = &self.block[SECTOR + le32(&self.block, SECTOR + 20) as usize..];
        let own = own.get(..32).unwrap_or_default();
        let Some(physical) = group.physical.iter().position(|place| place.id.as_bytes() == own) else {
            return Vec::new();
        };
        let volumes = group.logical.iter().chain(&group.hidden);
        volumes.filter_map(|volume| Map::of(volume, physical)).collect()
    }

    async fn group(&self, finder: &mut impl Finder, walk: &mut Walk) -> Option<lvm::Group> {
        const MAGIC: &[u8; 16] = b" LVM2 x[5A%r0N*>";
        let is_header = |block: &[u8]| block[4..].starts_with(MAGIC);
        let Some(header) = finder.find(AREA_AT, &is_header).await else {
            walk.lose(AREA_AT, finder);
            return None;
        };
        walk.note(AREA_AT, &header);
        let (start, length) = (le64(&header, 40), le64(&header, 48));
        let end = start.checked_add(length).filter(|_| length > 0)?;
        let (first, last) = (start / BLOCK as u64, (end - 1) / BLOCK as u64);
        if last - first >= TEXT_BLOCKS_MAX {
            return None;
        }
        let mut texts = vec![Vec::new()];
        for block in first..=last {
            let at = block * BLOCK as u64;
            let part = (start.max(at) - at) as usize..(end.min(at + BLOCK as u64) - at) as usize;
            let is_text = |block: &[u8]| block[part.clone()].iter().all(|byte| matches!(byte, 9 | 10 | 32..127 | 0));
            let found = match block {
                0 => vec![header.clone()],
                _ => finder.find_all(AREA_AT + block, &is_text).await,
            };
            if texts.len() * found.len() > TEXTS_MAX {
                return None;
            }
            let with = |text: &Vec<Vec<u8>>| -> Vec<Vec<Vec<u8>>> {
                found.iter().map(|block| [text.clone(), vec![block.clone()]].concat()).collect()
            };
            texts = texts.iter().flat_map(with).collect();
        }
        for text in texts {
            let area = Area { first: &self.block, header: &header, from: AREA_AT + first, text: &text };
            if let Some(lvm::PhysicalVolume { group: Ok(group), .. }) = lvm::read(&area).await {
                (AREA_AT + first..).zip(&text).for_each(|(at, block)| walk.note(at, block));
                return Some(group);
            }
        }
        None
    }
}

/// The start of a physical volume: its first block, the header of its metadata, and the blocks of its text.
struct Area<'a> {
    first: &'a [u8],
    header: &'a [u8],
    from: u64,
    text: &'a [Vec<u8>],
}

impl Source for Area<'_> {
    fn bytes(&self) -> u64 {
        u64::MAX / 2
    }

    async fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let wanted = length.min(2 * TEXT_BLOCKS_MAX as usize * BLOCK);
        for block in at / BLOCK as u64..=(at + wanted as u64) / BLOCK as u64 {
            let text = block.checked_sub(self.from).and_then(|index| self.text.get(index as usize));
            let own = match (block, text) {
                (0, _) => self.first,
                (AREA_AT, _) => self.header,
                (_, Some(text)) => text,
                _ => &ZEROS[..],
            };
            bytes.extend_from_slice(own);
        }
        let from = (at % BLOCK as u64) as usize;
        bytes.get(from..from + length).map(<[u8]>::to_vec).ok_or_else(|| "longer than any text".to_owned())
    }
}

/// Start and length in blocks of the partitions that a first block names, as far as they begin with a block.
fn partitions(block: &[u8]) -> Vec<(u64, u64)> {
    let sectors = |from: u64, count: u64| {
        let (from, bytes) = (from.checked_mul(SECTOR as u64)?, count.checked_mul(SECTOR as u64)?);
        let is_whole = from > 0 && from.is_multiple_of(BLOCK as u64) && bytes >= BLOCK as u64;
        is_whole.then(|| (from / BLOCK as u64, bytes / BLOCK as u64))
    };
    if block[SECTOR..].starts_with(GPT) {
        let header = &block[SECTOR..];
        let bytes = le32(header, 84) as usize;
        if le64(header, 72) != 2 || !(128..=1024).contains(&bytes) {
            return Vec::new();
        }
        // Entries further on are in other blocks.
        let entries = block[2 * SECTOR..].chunks_exact(bytes).filter(|entry| entry[..16] != [0; 16]);
        let place = |entry: &[u8]| {
            let (from, last) = (le64(entry, 32), le64(entry, 40));
            sectors(from, last.checked_sub(from)?.checked_add(1)?)
        };
        return entries.filter_map(place).collect();
    }
    let entries: Vec<&[u8]> = block[446..510].chunks_exact(16).collect();
    if entries.iter().any(|entry| entry[0] & 0x7f != 0) {
        return Vec::new();
    }
    let data = entries.into_iter().filter(|entry| !matches!(entry[4], 0 | 5 | 0xf | 0x85 | 0xee));
    data.filter_map(|entry| sectors(le32(entry, 8).into(), le32(entry, 12).into())).collect()
}

impl Map {
    /// Of a file system that lies in nothing.
    pub(crate) fn whole() -> Self {
        Self(vec![(0, 0, u64::MAX)])
    }

    /// The part of a volume that lies on one physical volume in one piece each.
    fn of(volume: &lvm::LogicalVolume, physical: usize) -> Option<Self> {
        let lvm::Content::Striped(segments) = &volume.content else { return None };
        let here = segments.iter().filter(|segment| matches!(&segment.stripes[..], [one] if one.physical == physical));
        let block = BLOCK as u64;
        let pieces: Vec<(u64, u64, u64)> = here
            .filter(|segment| segment.stripes[0].at.is_multiple_of(block))
            .map(|segment| (segment.at / block, segment.stripes[0].at / block, segment.bytes / block))
            .collect();
        (!pieces.is_empty()).then_some(Self(pieces))
    }

    /// The block of the array, if it is on it.
    fn to(&self, block: u64) -> Option<u64> {
        let piece = self.0.iter().find(|(from, _, count)| block.checked_sub(*from).is_some_and(|past| past < *count));
        piece.and_then(|(from, to, _)| to.checked_add(block - from))
    }
}

/// Finds blocks of a file system that lies in a volume. Each kind of file system is walked with it alone, and so compiled
/// once.
pub(crate) struct Inner<'a, F> {
    pub(crate) map: &'a Map,
    pub(crate) finder: &'a mut F,
}

impl<F: Finder> Inner<'_, F> {
    /// The file system that begins here, in its latest version, with the block of its superblock.
    async fn system(&mut self) -> Option<(Kind, Vec<u8>)> {
        for at in [0, btrfs::SUPER_BLOCK] {
            let is_super = |block: &[u8]| Kind::of(block).is_some_and(|(kind, _)| kind.super_block() == at);
            let blocks = self.find_all(at, &is_super).await.into_iter();
            let kinds = blocks.filter_map(|block| Kind::of(&block).map(|(kind, age)| (kind, age, block)));
            if let Some((kind, _, block)) = kinds.max_by_key(|(_, age, _)| *age) {
                return Some((kind, block));
            }
        }
        None
    }
}

impl<F: Finder> Finder for Inner<'_, F> {
    fn knows(&self, block: u64) -> bool {
        self.map.to(block).is_some_and(|block| self.finder.knows(block))
    }

    fn holder(&self, place: Place) -> Option<Holder> {
        self.finder.holder(place)
    }

    async fn find(&mut self, block: u64, is_right: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        self.finder.find(self.map.to(block)?, is_right).await
    }

    async fn find_all(&mut self, block: u64, is_right: &dyn Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        match self.map.to(block) {
            Some(block) => self.finder.find_all(block, is_right).await,
            None => Vec::new(),
        }
    }

    async fn find_node(&mut self, first: u64, blocks: u64, node: &dyn Fn(&[u8]) -> Option<Node>) -> Option<Vec<u8>> {
        let (from, last) = (self.map.to(first)?, self.map.to(first + blocks - 1)?);
        match last - from == blocks - 1 {
            true => self.finder.find_node(from, blocks, node).await,
            false => None,
        }
    }
}
