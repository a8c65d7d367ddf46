//! The write buffer of an array: which of its blocks are free, and which superblocks it counts for.
//!
//! A write is put here before it is answered from memory, and freed once the members have it. So a server that starts
//! again after it was killed finds all that was answered. The memory is the caller's ([`WriteBuffer`]); a loss of power
//! may take it. What is found there is written by [`crate::control::assemble`].
//!
//! A write that could not be written is *lost*. It stays, so that a kill does not make its users forget it, until it is
//! written over or the array's stop has reported it. A later write of a part of it changes the same bytes here: what
//! stays never undoes a later write.
//!
//! No I/O, and no waiting: a write that finds no room is not answered from memory.

use crate::base::range_set::Ranges;
use crate::base::write_set::WriteExtent;
use format::stamp::Stamp;
use format::superblock::Superblock;
use format::write_buffer::{BLOCK_BYTES, BufferedWrite, Header, STAMPS, blocks_in};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

/// Memory that outlives the process: a shared mapping of a file in memory.
pub type WriteBuffer = Box<dyn AsMut<[u8]>>;

/// About the most bytes of a found write: writes that follow each other are one.
const FOUND_BYTES: usize = 1 << 20;

/// Blocks of the buffer, in the order of their writes.
pub(crate) type Blocks = SmallVec<[u32; 1]>;

/// A write that was found: its first byte in the array, and its data.
pub(crate) type FoundWrite = (u64, Vec<u8>);

/// What the buffer held when the array was assembled.
pub(crate) enum Found {
    Nothing,
    /// Writes that were answered and that members may lack, oldest first.
    Writes(Vec<FoundWrite>),
    /// So many bytes of writes that do not count: other software has written the members since, or it is the buffer of
    /// another array.
    Void(u64),
}

/// The buffer in use.
pub(crate) struct BufferedWrites(RefCell<State>);

struct State {
    memory: WriteBuffer,
    header: Header,
    free: Vec<u32>,
    /// Writes that could not be written, oldest first.
    lost: Vec<Lost>,
    /// The sequence of the next write.
    next: u64,
    /// Whether the members have superblocks that the header can vouch for: those of the kernel it cannot.
    is_vouched_for: bool,
}

/// A write that members could not take.
struct Lost {
    write: BufferedWrite,
    /// What of it was not written over.
    left: Ranges,
}

impl Lost {
    fn range(&self) -> Range<u64> {
        self.write.at..self.write.at + u64::from(self.write.bytes)
    }
}

/// What `memory` holds for the array of this superblock, as it is before anything is written to its members. Changes
/// nothing.
pub(crate) fn look(memory: &[u8], freshest: &Superblock) -> Found {
    let Some(header) = Header::find(memory) else { return Found::Nothing };
    let writes = header.writes(memory);
    if writes.is_empty() {
        return Found::Nothing;
    }
    if !counts(&header, freshest) {
        return Found::Void(writes.iter().map(|write| u64::from(write.bytes)).sum());
    }
    let mut found: Vec<FoundWrite> = Vec::new();
    for write in &writes {
        let data = header.data(memory, write);
        match found.last_mut() {
            Some((at, before)) if *at + before.len() as u64 == write.at && before.len() < FOUND_BYTES => {
                before.extend_from_slice(data);
            }
            _ => found.push((write.at, data.to_vec())),
        }
    }
    Found::Writes(found)
}

/// Whether no other software has written the members since the buffer was left.
fn counts(header: &Header, freshest: &Superblock) -> bool {
    header.vouches_for(freshest) || mutant!("foreign-buffer-believed")
}

impl BufferedWrites {
    /// Takes the memory for the array of this superblock. What [`look`] found there stays until
    /// [`BufferedWrites::free_all`]; all else is dropped.
    pub(crate) fn take(mut memory: WriteBuffer, freshest: &Superblock) -> Self {
        let bytes = (*memory).as_mut();
        let before = Header::find(bytes);
        let sequence = before.as_ref().map_or(1, |header| header.sequence + 1);
        let vouching = before.filter(|header| counts(header, freshest));
        let kept = vouching.as_ref().map(|header| header.writes(bytes)).unwrap_or_default();
        // Members may still have any of the superblocks that it vouched for.
        let fresh = [Stamp::of(freshest); STAMPS];
        let (blocks, stamps) =
            vouching.map_or((blocks_in(bytes.len()), fresh), |header| (header.blocks, header.stamps));
        let stamps = mutant!("buffer-taken-for-one-superblock" => fresh, else stamps);
        let header = Header { sequence, set_uuid: freshest.set_uuid, blocks, stamps };
        let is_free = |block: &u32| kept.iter().all(|write| write.block != *block);
        let free: Vec<u32> = (0..blocks).rev().filter(is_free).collect();
        free.iter().for_each(|block| header.free(bytes, *block));
        header.store(bytes);
        let next = kept.last().map_or(1, |write| write.sequence + 1);
        let is_vouched_for = freshest.updated.micros != 0;
        Self(RefCell::new(State { memory, header, free, lost: Vec::new(), next, is_vouched_for }))
    }

    /// Names the superblock about to be written, so that the buffer counts whether or not that write is cut short.
    pub(crate) fn announce(&self, next: &Superblock) {
        let State { memory, header, .. } = &mut *self.0.borrow_mut();
        let next = Stamp::of(next);
        if header.stamps.contains(&next) || mutant!("buffer-not-announced") {
            return; // by another member
        }
        header.stamps.rotate_left(1);
        header.stamps[STAMPS - 1] = next;
        header.sequence += 1;
        header.store((**memory).as_mut());
        compiler_fence(Ordering::SeqCst);
    }

    /// All members have a superblock that was announced.
    pub(crate) fn superblocks_written(&self) {
        self.0.borrow_mut().is_vouched_for = true;
    }

    /// How many bytes it can hold.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.0.borrow().header.blocks) * BLOCK_BYTES as u64
    }

    /// Whether it takes a write of so many bytes, cut into `parts`. One block stays free, for [`Self::written_over`].
    pub(crate) fn has_room(&self, bytes: u64, parts: u64) -> bool {
        let state = self.0.borrow();
        let is_vouched_for = state.is_vouched_for || mutant!("buffered-beside-foreign-superblocks");
        is_vouched_for && bytes / BLOCK_BYTES as u64 + parts < state.free.len() as u64
    }

    /// Keeps a write, for which there is room. From now on it outlives the process.
    pub(crate) fn keep(&self, at: u64, data: &[u8], blocks: &mut Blocks) {
        let State { memory, header, free, next, .. } = &mut *self.0.borrow_mut();
        let mut at = at;
        for data in data.chunks(BLOCK_BYTES) {
            let block = free.pop().expect("there is room");
            let write = BufferedWrite { sequence: *next, at, bytes: data.len() as u32, block };
            header.put((**memory).as_mut(), &write, data);
            blocks.push(block);
            *next += 1;
            at += data.len() as u64;
        }
        compiler_fence(Ordering::SeqCst); // before the answer
    }

    /// Frees the blocks of writes that the members have, oldest first: no write outlives one that covers it.
    pub(crate) fn free(&self, blocks: &[u32]) {
        let State { memory, header, free, .. } = &mut *self.0.borrow_mut();
        for block in blocks {
            header.free((**memory).as_mut(), *block);
            compiler_fence(Ordering::SeqCst);
        }
        free.extend(blocks);
    }

    /// The writes in these blocks could not be written: they stay.
    pub(crate) fn keep_lost(&self, blocks: &[u32]) {
        let State { memory, header, lost, .. } = &mut *self.0.borrow_mut();
        let memory = (**memory).as_mut();
        let writes = blocks.iter().filter_map(|block| header.write_in(memory, *block));
        lost.extend(writes.map(|write| {
            let mut lost = Lost { write, left: Ranges::default() };
            lost.left.add(lost.range());
            lost
        }));
        lost.sort_unstable_by_key(|lost| lost.write.sequence);
    }

    /// Whether it holds any lost write.
    pub(crate) fn has_lost(&self) -> bool {
        !self.0.borrow().lost.is_empty()
    }

    /// Whether it holds a lost write to any of a range.
    pub(crate) fn has_lost_in(&self, range: &Range<u64>) -> bool {
        let touches = |lost: &Lost| lost.write.at < range.end && range.start < lost.range().end;
        self.0.borrow().lost.iter().any(touches)
    }

    /// The members have this: lost writes below it take its bytes, and are freed where nothing else of them is left.
    pub(crate) fn written_over(&self, extent: &WriteExtent) {
        let State { memory, header, free, lost, .. } = &mut *self.0.borrow_mut();
        let memory = (**memory).as_mut();
        lost.retain_mut(|lost| {
            let Some(part) = extent.within(lost.range()) else { return true };
            lost.left.remove(&(part.at..part.end()));
            let before = lost.write;
            if !lost.left.is_empty() {
                lost.write.block = free.pop().expect("one block stays free");
                let mut data = header.data(memory, &before).to_vec();
                data[(part.at - before.at) as usize..(part.end() - before.at) as usize].copy_from_slice(&part.block);
                header.put(memory, &lost.write, &data);
                compiler_fence(Ordering::SeqCst);
            }
            header.free(memory, before.block);
            compiler_fence(Ordering::SeqCst);
            free.push(before.block);
            !lost.left.is_empty()
        });
    }

    /// Frees what is lost: the array's stop has reported it.
    pub(crate) fn free_lost(&self) {
        let lost = std::mem::take(&mut self.0.borrow_mut().lost);
        let blocks: Vec<u32> = lost.iter().map(|lost| lost.write.block).collect();
        self.free(&blocks);
    }

    /// Frees all blocks: the members have what was found.
    pub(crate) fn free_all(&self) {
        let blocks: Vec<u32> = {
            let State { memory, header, .. } = &mut *self.0.borrow_mut();
            header.writes((**memory).as_mut()).iter().map(|write| write.block).collect()
        };
        self.free(&blocks);
    }
}
