//! Memory for I/O: aligned, owned, and writable through one handle at a time.
//!
//! A [`Buffer`] is exclusive to its holder and can be filled. Frozen, it is a
//! [`Block`]: shared, and never written again. Both are ranges of an allocation
//! that lives until the last of them is dropped. So an I/O that owns one can never
//! see it change or disappear. (In md, a page that is rewritten while in flight
//! leaves wrong parity.) A [`Pool`] carves them from one arena, which an
//! executor may register with the kernel once. When the arena is full, buffers
//! come from the heap and are not registered.
//!
//! Apart from `join`, the only module of the engine with `unsafe` code. Its
//! invariant: the ranges of all live `Buffer`s of an allocation are disjoint from
//! each other and from those of its `Block`s.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::rc::Rc;

/// Alignment of every allocation: the most that O_DIRECT requires.
pub const ALIGNMENT: usize = 4096;

/// Alignment of an arena: the largest page of a system, as the kernel pins and
/// joins whole pages.
const ARENA_ALIGNMENT: usize = 64 << 10;

/// Allocates buffers; cheap to clone, and bound to one thread.
#[derive(Clone)]
pub struct Pool(Rc<Arena>);

struct Arena {
    memory: Zeroed,
    bytes: usize,
    /// Offset of the memory that was never allocated.
    fresh: Cell<usize>,
    /// Offsets of freed slots, by size class.
    free: RefCell<Vec<Vec<usize>>>,
}

/// One allocation: a slot of the arena or heap memory.
struct Allocation {
    base: NonNull<u8>,
    origin: Origin,
    pool: Rc<Arena>,
}

enum Origin {
    Arena {
        offset: usize,
        class: usize,
    },
    /// Dropping this frees the memory.
    Heap {
        _memory: Zeroed,
    },
}

impl Pool {
    /// A pool over an arena of `bytes`, rounded up to [`ALIGNMENT`]; its pages
    /// cost nothing until they are used.
    pub fn new(bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        Self(Rc::new(Arena {
            memory: Zeroed::new(bytes, ARENA_ALIGNMENT),
            bytes,
            fresh: Cell::new(0),
            free: RefCell::default(),
        }))
    }

    /// An initialized buffer of exactly `bytes`, with unspecified contents,
    /// aligned to [`ALIGNMENT`].
    #[inline]
    pub fn take(&self, bytes: usize) -> Buffer {
        let allocation = self.allocate(bytes);
        Buffer::new(Part { allocation, start: 0, len: bytes })
    }

    fn allocate(&self, bytes: usize) -> Rc<Allocation> {
        let (class, size) = size_class(bytes);
        let reused = self.0.free.borrow_mut().get_mut(class).and_then(Vec::pop);
        let offset = reused.or_else(|| {
            let fresh = self.0.fresh.get();
            (self.0.bytes - fresh >= size).then(|| self.0.fresh.replace(fresh + size))
        });
        let Some(offset) = offset else {
            let memory = Zeroed::new(size, ALIGNMENT);
            let (base, origin) = (memory.base(), Origin::Heap { _memory: memory });
            return Rc::new(Allocation { base, origin, pool: self.0.clone() });
        };
        // SAFETY: offset + size is within the arena.
        let base = unsafe { self.0.memory.base().add(offset) };
        Rc::new(Allocation { base, origin: Origin::Arena { offset, class }, pool: self.0.clone() })
    }

    /// A buffer of `bytes` zeros.
    pub fn zeroed(&self, bytes: usize) -> Buffer {
        let mut buffer = self.take(bytes);
        buffer.fill(0);
        buffer
    }

    /// A block that holds a copy of `bytes`.
    pub fn copy_of(&self, bytes: &[u8]) -> Block {
        let mut buffer = self.take(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer.freeze()
    }

    /// Address and length of the arena, for registering it. Valid while any
    /// clone of the pool or any of its buffers lives.
    pub fn arena(&self) -> (*mut u8, usize) {
        (self.0.memory.base().as_ptr(), self.0.bytes)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("bytes", &self.0.bytes).field("fresh", &self.0.fresh.get()).finish()
    }
}

/// Rounds up to a quarter of a power of two of pages, which wastes at most a quarter.
fn size_class(bytes: usize) -> (usize, usize) {
    let pages = bytes.div_ceil(ALIGNMENT).max(1);
    if pages <= 8 {
        return (pages - 1, pages * ALIGNMENT);
    }
    let step = pages.next_power_of_two() / 8;
    let quarters = pages.div_ceil(step); // 5..=8 steps make the next power of two
    let octave = step.trailing_zeros() as usize; // from 1, for 9..=16 pages
    (8 + (octave - 1) * 4 + (quarters - 5), quarters * step * ALIGNMENT)
}

/// Zeroed memory. The allocator gets a request for less alignment and one more unit
/// of it. Only then does it take large memory untouched from the system;
/// it clears over-aligned memory by writing.
struct Zeroed {
    raw: NonNull<u8>,
    layout: Layout,
    alignment: usize,
}

impl Zeroed {
    fn new(bytes: usize, alignment: usize) -> Self {
        let layout = Layout::from_size_align(bytes + alignment, 8).expect("the size fits an address space");
        // SAFETY: the layout's size is not zero.
        let raw = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        Self { raw, layout, alignment }
    }

    /// The first aligned address; the requested size fits behind it.
    fn base(&self) -> NonNull<u8> {
        // SAFETY: the offset is less than the extra bytes that were allocated.
        unsafe { self.raw.add(self.raw.align_offset(self.alignment)) }
    }
}

impl Drop for Zeroed {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout. Every part holds a reference
        // to the allocation's owner, so none is left.
        unsafe { dealloc(self.raw.as_ptr(), self.layout) }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Origin::Arena { offset, class } = self.origin {
            let mut free = self.pool.free.borrow_mut();
            if free.len() <= class {
                free.resize_with(class + 1, Vec::new);
            }
            free[class].push(offset);
        }
    }
}

#[derive(Clone)]
struct Part {
    allocation: Rc<Allocation>,
    start: usize,
    len: usize,
}

impl Part {
    fn address(&self) -> *mut u8 {
        // SAFETY: start <= the allocation's size, by construction.
        unsafe { self.allocation.base.as_ptr().add(self.start) }
    }

    fn is_registered(&self) -> bool {
        matches!(self.allocation.origin, Origin::Arena { .. })
    }
}

/// Exclusive bytes, to be filled.
///
/// A reader that verifies the contents may request their checksums. A member that copies the bytes
/// itself computes them on the way ([`Buffer::fill_summed`]), as network cards do for packets.
/// The first change of the contents discards them.
pub struct Buffer {
    part: Part,
    sums: Sums,
}

/// CRC-32Cs of a buffer's contents, one for each [`SUMMED_BYTES`]. The tag is a whole word, because buffers and results
/// are moved many times for each transfer. A tag of one byte would stall the load of the word that it is a part of.
#[repr(u64)]
enum Sums {
    Unwanted,
    Wanted,
    /// Of a buffer of [`SUMMED_BYTES`].
    One(u32),
    Many(Box<[u32]>),
}

/// The bytes that one checksum of a buffer covers.
pub const SUMMED_BYTES: usize = parity::CRC_BLOCK_BYTES;

impl Buffer {
    fn new(part: Part) -> Self {
        Self { part, sums: Sums::Unwanted }
    }

    /// Requests checksums from the next fill of the whole buffer, if its length is a multiple of [`SUMMED_BYTES`].
    pub(crate) fn want_sums(&mut self) {
        let is_whole = self.part.len > 0 && self.part.len.is_multiple_of(SUMMED_BYTES);
        self.sums = if is_whole { Sums::Wanted } else { Sums::Unwanted };
    }

    /// Whether checksums are requested; [`Buffer::fill_summed`] fills and computes them in one pass.
    pub fn wants_sums(&self) -> bool {
        matches!(self.sums, Sums::Wanted)
    }

    /// Fills the buffer. `fill` gets each part with its position, and returns the part's CRC-32C.
    ///
    /// # Panics
    /// When the buffer's length is not a multiple of [`SUMMED_BYTES`].
    pub fn fill_summed(&mut self, mut fill: impl FnMut(usize, &mut [u8; SUMMED_BYTES]) -> u32) {
        let (parts, rest) = self.as_chunks_mut();
        assert!(rest.is_empty(), "checksums cover whole blocks");
        self.sums = match parts {
            [one] => Sums::One(fill(0, one)),
            many => {
                let filled = many.iter_mut().enumerate().map(|(number, part)| fill(number * SUMMED_BYTES, part));
                Sums::Many(filled.collect())
            }
        };
    }

    /// The checksums of the contents; empty when they are not known.
    pub(crate) fn sums(&self) -> &[u32] {
        match &self.sums {
            Sums::Unwanted | Sums::Wanted => &[],
            Sums::One(sum) => std::slice::from_ref(sum),
            Sums::Many(sums) => sums,
        }
    }

    /// Splits off the first `at` bytes as a separate buffer.
    ///
    /// # Panics
    /// When `at` exceeds the length.
    pub fn split_to(&mut self, at: usize) -> Buffer {
        assert!(at <= self.part.len, "split at {at} of a buffer of {}", self.part.len);
        let front = Part { len: at, ..self.part.clone() };
        self.part.start += at;
        self.part.len -= at;
        self.sums = Sums::Unwanted;
        Buffer::new(front)
    }

    /// Whether no other part of the allocation exists.
    pub(crate) fn is_alone(&self) -> bool {
        Rc::strong_count(&self.part.allocation) == 1
    }

    /// Joins with the buffer that was split off right behind this one. If `next` is another buffer, because
    /// a hung I/O has kept the original, both are copied into a new one.
    pub fn join(&mut self, next: Buffer) {
        if Rc::ptr_eq(&self.part.allocation, &next.part.allocation)
            && self.part.start + self.part.len == next.part.start
        {
            self.part.len += next.part.len;
            self.sums = Sums::Unwanted;
            return;
        }
        let mut both = Pool(self.part.allocation.pool.clone()).take(self.len() + next.len());
        both[..self.len()].copy_from_slice(self);
        both[self.len()..].copy_from_slice(&next);
        *self = both;
    }

    /// Makes the bytes shared and immutable.
    pub fn freeze(self) -> Block {
        Block(self.part)
    }

    /// Whether the bytes lie in the pool's arena, which may be registered.
    pub fn is_registered(&self) -> bool {
        self.part.is_registered()
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: in bounds, initialized (arenas are zeroed at birth), and
        // exclusive to self by the module's invariant.
        unsafe { std::slice::from_raw_parts(self.part.address(), self.part.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.sums = Sums::Unwanted;
        // SAFETY: as in `deref`, and self is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.part.address(), self.part.len) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.part.len)
    }
}

/// Shared bytes that never change; cheap to clone and to slice.
#[derive(Clone)]
pub struct Block(Part);

impl Block {
    /// A part of the block that shares its memory.
    ///
    /// # Panics
    /// When the range exceeds the length.
    pub fn slice(&self, range: Range<usize>) -> Block {
        assert!(range.start <= range.end && range.end <= self.0.len, "slice {range:?} of a block of {}", self.0.len);
        Block(Part {
            allocation: self.0.allocation.clone(),
            start: self.0.start + range.start,
            len: range.end - range.start,
        })
    }

    /// The block as a buffer, when this is the only part of its allocation left.
    ///
    /// # Errors
    /// The block itself, when other parts are left.
    pub fn thaw(mut self) -> Result<Buffer, Block> {
        match Rc::get_mut(&mut self.0.allocation) {
            Some(_) => Ok(Buffer::new(self.0)),
            None => Err(self),
        }
    }

    /// Whether the bytes lie in the pool's arena, which may be registered.
    pub fn is_registered(&self) -> bool {
        self.0.is_registered()
    }
}

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: in bounds, initialized, and by the module's invariant no
        // `Buffer` can write here.
        unsafe { std::slice::from_raw_parts(self.0.address(), self.0.len) }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.0.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_class_holds_its_size_and_wastes_at_most_a_quarter() {
        let mut seen = std::collections::HashMap::new();
        for pages in 1..5000 {
            let (class, size) = size_class(pages * ALIGNMENT);
            assert!(size >= pages * ALIGNMENT && size * 4 <= pages * ALIGNMENT * 5, "{pages} pages -> {size}");
            assert_eq!(*seen.entry(class).or_insert(size), size, "class {class} has one size");
        }
        assert_eq!(size_class(0), size_class(1));
    }

    #[test]
    fn parts_of_a_split_buffer_are_disjoint_and_rejoin() {
        let pool = Pool::new(1 << 20);
        let mut rest = pool.take(10_000);
        let mut front = rest.split_to(4096);
        front.fill(1);
        rest.fill(2);
        front.join(rest);
        assert_eq!(front.len(), 10_000);
        assert_eq!((front[4095], front[4096]), (1, 2));
    }

    #[test]
    fn joining_buffers_that_are_not_adjacent_copies_them() {
        let pool = Pool::new(1 << 20);
        let (mut first, mut second) = (pool.take(4096), pool.take(512));
        first.fill(1);
        second.fill(2);
        first.join(second);
        assert_eq!((first.len(), first[4095], first[4096], first[4607]), (4608, 1, 2, 2));
    }

    #[test]
    fn memory_is_reused_only_after_the_last_part_is_dropped() {
        let pool = Pool::new(4096);
        let block = pool.take(4096).freeze();
        let address = block.as_ptr();
        let copy = block.slice(0..10);
        let block = block.thaw().expect_err("a slice still shares it");
        drop(block);
        assert!(!pool.take(4096).is_registered(), "the arena is full, so this is heap");
        drop(copy);
        let again = pool.take(100);
        assert!(again.is_registered() && again.as_ptr() == address);
        assert!(again.freeze().thaw().is_ok());
    }

    #[test]
    fn any_change_of_a_buffer_discards_its_checksums() {
        let pool = Pool::new(1 << 20);
        let summed = || {
            let mut buffer = pool.take(3 * SUMMED_BYTES);
            assert!(!buffer.wants_sums() && buffer.sums().is_empty());
            buffer.want_sums();
            assert!(buffer.wants_sums() && buffer.sums().is_empty());
            buffer.fill_summed(|at, part| {
                part.fill(1);
                at as u32 + 1
            });
            assert_eq!(buffer.sums(), [1, 4097, 8193]);
            buffer
        };
        let mut changed = summed();
        changed[0] = 2;
        let mut asked_again = summed();
        asked_again.want_sums();
        let mut split = summed();
        let mut front = split.split_to(SUMMED_BYTES);
        for buffer in [&changed, &asked_again, &split, &front] {
            assert!(buffer.sums().is_empty());
        }
        front.fill_summed(|_, _| 1);
        front.join(split);
        assert!(front.sums().is_empty());
        assert!(summed().freeze().thaw().expect("the only part").sums().is_empty());
        let mut ragged = pool.take(SUMMED_BYTES + 512);
        ragged.want_sums();
        assert!(!ragged.wants_sums(), "the last block is not whole");
    }

    #[test]
    fn every_buffer_is_aligned_for_direct_io() {
        let pool = Pool::new(64 << 10);
        for bytes in [1, 512, 4096, 5000, 1 << 20] {
            assert_eq!(pool.take(bytes).as_ptr() as usize % ALIGNMENT, 0, "{bytes}");
        }
    }
}
