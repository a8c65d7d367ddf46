//! Thin pools of device-mapper: which block of the pool's data holds which block of a thin device.
//!
//! The metadata are blocks of 4096 bytes: a superblock, and B-trees. The first level of the mapping tree leads from a
//! device to a tree of its own, whose values are blocks of data. Each block's checksum and number are checked.
//!
//! Facts: the kernel's `drivers/md/dm-thin-metadata.c`, `persistent-data/dm-btree-internal.h` and `dm-block-manager.c`.

use crate::bytes::{le32, le64};
use crate::source::Source;

const BLOCK_BYTES: usize = 4096;
const SECTOR_BYTES: u64 = 512;

const MAGIC: u64 = 27_022_010;
const SUPERBLOCK_XOR: u32 = 160_774;
const NODE_XOR: u32 = 121_107;

/// Bytes of a node before its keys.
const NODE_HEAD_BYTES: usize = 32;

/// The deepest tree that is followed. 2^64 keys with the least fill need fewer levels.
const DEPTH_MAX: usize = 16;

/// The most nodes of one tree: those of the largest metadata device, 16 GiB.
const NODES_MAX: usize = 4 << 20;

/// Where the blocks of a thin device are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThinMap {
    /// Bytes in a block.
    block_bytes: u64,
    /// Ascending, without overlaps.
    runs: Vec<Run>,
}

/// Consecutive blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    /// The first block of the device.
    first: u64,
    /// The block of data that holds it.
    data: u64,
    count: u64,
}

/// What a pool's superblock says.
struct Pool {
    mapping_root: u64,
    transaction: u64,
    block_bytes: u64,
}

/// A block, if its checksum and number are right.
async fn block<S: Source + ?Sized>(metadata: &S, number: u64, xor: u32) -> Result<Vec<u8>, String> {
    let at = number.checked_mul(BLOCK_BYTES as u64).filter(|at| *at < metadata.bytes());
    let at = at.ok_or_else(|| format!("the pool's metadata name block {number}, which they do not have"))?;
    let block = metadata.read(at, BLOCK_BYTES).await.map_err(|reason| format!("the pool's metadata: {reason}"))?;
    let sum = !crc32c::crc32c(&block[4..]) ^ xor;
    match sum == le32(&block, 0) && le64(&block, 8) == number {
        true => Ok(block),
        false => Err(format!("block {number} of the pool's metadata has a wrong checksum")),
    }
}

/// The blocks of the thin device `device`, by a pool's metadata. LVM's metadata say which transaction they belong to.
///
/// # Errors
/// When the metadata are damaged, or do not know the device.
pub async fn map<S: Source + ?Sized>(metadata: &S, device: u32, transaction: u64) -> Result<ThinMap, String> {
    let superblock = block(metadata, 0, SUPERBLOCK_XOR).await?;
    if le64(&superblock, 32) != MAGIC {
        return Err("its pool's metadata have no signature".to_owned());
    }
    let pool = Pool {
        mapping_root: le64(&superblock, 320),
        transaction: le64(&superblock, 48),
        block_bytes: u64::from(le32(&superblock, 336)) * SECTOR_BYTES,
    };
    if pool.block_bytes == 0 {
        return Err("its pool's metadata have blocks of no bytes".to_owned());
    }
    if pool.transaction != transaction {
        let own = pool.transaction;
        return Err(format!("its pool is at transaction {own}, and LVM's metadata at {transaction}: one is older"));
    }
    let mut roots = Vec::new();
    walk(metadata, pool.mapping_root, &mut |key, value| roots.push((key, value))).await?;
    let Some((_, root)) = roots.into_iter().find(|(key, _)| *key == u64::from(device)) else {
        return Err(format!("its pool's metadata have no device {device}"));
    };
    let mut runs: Vec<Run> = Vec::new();
    walk(metadata, root, &mut |first, value| {
        // The lower 24 bits are the time of the mapping.
        let data = value >> 24;
        match runs.last_mut() {
            Some(run) if run.first + run.count == first && run.data + run.count == data => run.count += 1,
            _ => runs.push(Run { first, data, count: 1 }),
        }
    })
    .await?;
    Ok(ThinMap { block_bytes: pool.block_bytes, runs })
}

/// Calls `each` with the keys and values of a tree, ascending.
async fn walk<S: Source + ?Sized>(metadata: &S, root: u64, each: &mut impl FnMut(u64, u64)) -> Result<(), String> {
    const INTERNAL: u32 = 1;
    let damaged = |number: u64| format!("block {number} of the pool's metadata makes no sense");
    let mut nodes = vec![(root, 0)];
    let mut count = 0;
    let mut last = None;
    while let Some((number, depth)) = nodes.pop() {
        count += 1;
        if depth > DEPTH_MAX || count > NODES_MAX {
            return Err(damaged(number));
        }
        let node = block(metadata, number, NODE_XOR).await?;
        let (entries, room) = (le32(&node, 16) as usize, le32(&node, 20) as usize);
        let is_possible = entries <= room && room <= BLOCK_BYTES / 16 && le32(&node, 24) == 8;
        if !is_possible || NODE_HEAD_BYTES + 16 * room > BLOCK_BYTES {
            return Err(damaged(number));
        }
        let pair = |index: usize| {
            let at = NODE_HEAD_BYTES + 8 * index;
            (le64(&node, at), le64(&node, at + 8 * room))
        };
        if le32(&node, 4) & INTERNAL != 0 {
            nodes.extend((0..entries).rev().map(|index| (pair(index).1, depth + 1)));
            continue;
        }
        for (key, value) in (0..entries).map(pair) {
            if last.is_some_and(|last| key <= last) {
                return Err(damaged(number));
            }
            last = Some(key);
            each(key, value);
        }
    }
    Ok(())
}

impl ThinMap {
    /// Where byte `at` is in the pool's data (`None`: nowhere, it is a zero), and how many bytes follow in one piece.
    pub fn locate(&self, at: u64) -> (Option<u64>, u64) {
        let (block, skip) = (at / self.block_bytes, at % self.block_bytes);
        let next = self.runs.partition_point(|run| run.first <= block);
        let rest = |blocks: u64| blocks.saturating_mul(self.block_bytes).saturating_sub(skip);
        if let Some(run) = next.checked_sub(1).map(|index| self.runs[index]) {
            let inside = block - run.first;
            if inside < run.count {
                let position = (run.data + inside).saturating_mul(self.block_bytes).saturating_add(skip);
                return (Some(position), rest(run.count - inside));
            }
        }
        (None, self.runs.get(next).map_or(u64::MAX - at, |run| rest(run.first - block)))
    }

    /// Bytes in a block of the pool.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Where its last byte of data ends.
    pub fn reach(&self) -> u64 {
        let end = |run: &Run| run.data.saturating_add(run.count).saturating_mul(self.block_bytes);
        self.runs.iter().map(end).max().unwrap_or(0)
    }
}
