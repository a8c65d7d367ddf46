//! The algorithms, written once over [`Vector`].
//!
//! Each makes one pass over the blocks. A span of a few registers of the targets stays in registers while the loop goes
//! over the sources, and is stored once. The last span of a block may be a part of a register.
//!
//! All loops go over the sources from the last to the first. Q requires that. The others are faster with it: where
//! blocks are adjacent in memory, ascending order halved their speed out of the second-level cache (docs/decisions/0201).
//!
//! Invariant, checked by [`Kernel`](crate::Kernel): all blocks of a call have the same length. Nothing here checks it
//! again.

#[cfg(target_arch = "aarch64")]
use crate::vector::Fours;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::vector::Scale;
use crate::vector::{Access, Part, Vector, Whole};

/// How the result relates to the target's previous contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// The result replaces them.
    Afresh,
    /// The result is added to them.
    Onto,
}

/// A source with its coefficients.
pub(crate) type Term<'a, C> = (C, &'a [u8]);

/// A coefficient for each of `T` targets.
pub(crate) trait Coefficients<const T: usize>: Copy {
    fn each(self) -> [u8; T];
}

impl Coefficients<1> for u8 {
    #[inline(always)]
    fn each(self) -> [u8; 1] {
        [self]
    }
}

impl Coefficients<2> for [u8; 2] {
    #[inline(always)]
    fn each(self) -> [u8; 2] {
        self
    }
}

/// A target's address. The routines work on one span at a time, so they cannot hold mutable slices of several targets
/// across spans.
type Target = *mut u8;

/// A computation on the blocks of one call that proceeds span by span.
trait Operation<V: Vector> {
    /// Computes `K` registers of all targets at byte `at`.
    ///
    /// # Safety
    /// The processor has V's instruction set; the span lies within all blocks.
    unsafe fn span<A: Access, const K: usize>(&self, at: usize, access: A);
}

/// Runs an operation on blocks of `bytes`, in spans of `K` registers.
///
/// # Safety
/// The processor has V's instruction set; all blocks have at least `bytes`.
#[inline(always)]
unsafe fn sweep<V: Vector, const K: usize>(bytes: usize, operation: impl Operation<V>) {
    let mut at = 0;
    // SAFETY: each span lies within the blocks by the loop's condition; the instruction set is the caller's promise.
    unsafe {
        while bytes - at >= K * V::BYTES {
            operation.span::<Whole, K>(at, Whole);
            at += K * V::BYTES;
        }
        while bytes - at >= V::BYTES {
            operation.span::<Whole, 1>(at, Whole);
            at += V::BYTES;
        }
        if at < bytes {
            operation.span::<Part, 1>(at, Part(bytes - at));
        }
        V::settle();
    }
}

/// # Safety
/// The same as for [`Operation::span`], for a block that starts at `from`.
#[inline(always)]
unsafe fn load<V: Vector, A: Access, const K: usize>(from: *const u8, at: usize, access: A) -> [V; K] {
    // SAFETY: the span is within the block.
    unsafe {
        let mut registers = [V::zero(); K];
        for (i, register) in registers.iter_mut().enumerate() {
            *register = access.load(from.add(at + i * V::BYTES));
        }
        registers
    }
}

/// # Safety
/// The same as for [`Operation::span`], for a block that starts at `to`.
#[inline(always)]
unsafe fn store<V: Vector, A: Access, const K: usize>(registers: [V; K], to: Target, at: usize, access: A) {
    for (i, register) in registers.into_iter().enumerate() {
        // SAFETY: the span is within the block.
        unsafe { access.store(register, to.add(at + i * V::BYTES)) };
    }
}

/// # Safety
/// The same as for [`Operation::span`], for a block that starts at `target`.
#[inline(always)]
unsafe fn begin<V: Vector, A: Access, const K: usize>(start: Start, target: Target, at: usize, access: A) -> [V; K] {
    // SAFETY: the caller's promise.
    unsafe {
        match start {
            Start::Afresh => [V::zero(); K],
            Start::Onto => load(target, at, access),
        }
    }
}

/// The plain sum of sources, which may be parts of terms.
struct Xor<'a, S> {
    target: Target,
    sources: &'a [S],
    start: Start,
}

/// A source block, or a value that contains one.
trait Source {
    fn address(&self) -> *const u8;
}

impl Source for &[u8] {
    #[inline(always)]
    fn address(&self) -> *const u8 {
        self.as_ptr()
    }
}

impl<C> Source for Term<'_, C> {
    #[inline(always)]
    fn address(&self) -> *const u8 {
        self.1.as_ptr()
    }
}

impl<V: Vector, S: Source> Operation<V> for Xor<'_, S> {
    #[inline(always)]
    unsafe fn span<A: Access, const K: usize>(&self, at: usize, access: A) {
        // SAFETY: the span lies within the target and all sources.
        unsafe {
            let mut sum: [V; K] = begin(self.start, self.target, at, access);
            let (odd, pairs) = self.sources.as_rchunks::<2>();
            for [b, a] in pairs.iter().rev() {
                let (a, b): ([V; K], [V; K]) = (load(a.address(), at, access), load(b.address(), at, access));
                for i in 0..K {
                    sum[i] = sum[i].xor3(a[i], b[i]);
                }
            }
            for source in odd {
                let source: [V; K] = load(source.address(), at, access);
                for i in 0..K {
                    sum[i] = sum[i].xor(source[i]);
                }
            }
            store(sum, self.target, at, access);
        }
    }
}

/// P and Q of data with the exponents 0, 1, 2... By Horner's rule from the last block down, so that Q needs only
/// doubling.
struct Syndrome<'a> {
    p: Target,
    q: Target,
    data: &'a [&'a [u8]],
}

impl<V: Vector> Operation<V> for Syndrome<'_> {
    #[inline(always)]
    unsafe fn span<A: Access, const K: usize>(&self, at: usize, access: A) {
        // SAFETY: the span lies within both targets and all data.
        unsafe {
            let (mut p, mut q) = ([V::zero(); K], [V::pivot(); K]);
            let (odd, pairs) = self.data.as_rchunks::<2>();
            for [low, high] in pairs.iter().rev() {
                let high: [V; K] = load(high.as_ptr(), at, access);
                let low: [V; K] = load(low.as_ptr(), at, access);
                for i in 0..K {
                    p[i] = p[i].xor3(high[i], low[i]);
                    q[i] = q[i].horner2(high[i], low[i]);
                }
            }
            for data in odd {
                let data: [V; K] = load(data.as_ptr(), at, access);
                for i in 0..K {
                    p[i] = p[i].xor(data[i]);
                    q[i] = q[i].horner(data[i]);
                }
            }
            store(p, self.p, at, access);
            store(q.map(|sum| sum.xor(V::pivot())), self.q, at, access);
        }
    }
}

/// P and Q like [`Syndrome`], by four blocks at a time: for instruction sets with many registers.
#[cfg(target_arch = "aarch64")]
struct SyndromeByFours<'a>(Syndrome<'a>);

#[cfg(target_arch = "aarch64")]
impl<V: Fours> Operation<V> for SyndromeByFours<'_> {
    #[inline(always)]
    unsafe fn span<A: Access, const K: usize>(&self, at: usize, access: A) {
        let Syndrome { p: p_target, q: q_target, data } = self.0;
        // SAFETY: the span lies within both targets and all data.
        unsafe {
            let (mut p, mut q) = ([V::zero(); K], [V::zero(); K]);
            let (few, fours) = data.as_rchunks::<4>();
            if let Some((last, fours)) = fours.split_last() {
                let [a, b, c, d] = last;
                let d: [V; K] = load(d.as_ptr(), at, access);
                let c: [V; K] = load(c.as_ptr(), at, access);
                let b: [V; K] = load(b.as_ptr(), at, access);
                let a: [V; K] = load(a.as_ptr(), at, access);
                for i in 0..K {
                    p[i] = d[i].xor(c[i]).xor3(b[i], a[i]);
                    q[i] = V::begin4([d[i], c[i], b[i], a[i]]);
                }
                for [a, b, c, d] in fours.iter().rev() {
                    let d: [V; K] = load(d.as_ptr(), at, access);
                    let c: [V; K] = load(c.as_ptr(), at, access);
                    let b: [V; K] = load(b.as_ptr(), at, access);
                    let a: [V; K] = load(a.as_ptr(), at, access);
                    for i in 0..K {
                        p[i] = p[i].xor3(d[i], c[i]).xor3(b[i], a[i]);
                        q[i] = q[i].horner4([d[i], c[i], b[i], a[i]]);
                    }
                }
            }
            for block in few.iter().rev() {
                let block: [V; K] = load(block.as_ptr(), at, access);
                for i in 0..K {
                    p[i] = p[i].xor(block[i]);
                    q[i] = q[i].horner(block[i]);
                }
            }
            store(p, p_target, at, access);
            store(q, q_target, at, access);
        }
    }
}

/// Sums of sources with arbitrary coefficients, for `T` targets at once.
struct Combination<'a, C, const T: usize> {
    targets: [Target; T],
    terms: &'a [Term<'a, C>],
    start: Start,
}

/// A combination by products of each source and each of its coefficients.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
struct ByProducts<'a, C, const T: usize>(Combination<'a, C, T>);

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl<V: Scale, C: Coefficients<T>, const T: usize> Operation<V> for ByProducts<'_, C, T> {
    #[inline(always)]
    unsafe fn span<A: Access, const K: usize>(&self, at: usize, access: A) {
        let Combination { targets, terms, start } = &self.0;
        // SAFETY: the span lies within all targets and all sources.
        unsafe {
            let mut sums = [[V::zero(); K]; T];
            for (sum, &target) in sums.iter_mut().zip(targets) {
                *sum = begin(*start, target, at, access);
            }
            for (coefficients, source) in terms.iter().rev() {
                let source: [V; K] = load(source.as_ptr(), at, access);
                for (sum, coefficient) in sums.iter_mut().zip(coefficients.each()) {
                    let factor = V::factor(coefficient);
                    for i in 0..K {
                        sum[i] = sum[i].add_product(source[i], factor);
                    }
                }
            }
            for (sum, &target) in sums.into_iter().zip(targets) {
                store(sum, target, at, access);
            }
        }
    }
}

/// A combination without products. By Horner's rule over the coefficients' bits, from the highest: it sums the sources
/// with that bit set. It reads the sources eight times, but from the first-level cache.
struct ByBits<'a, C, const T: usize>(Combination<'a, C, T>);

impl<V: Vector, C: Coefficients<T>, const T: usize> Operation<V> for ByBits<'_, C, T> {
    #[inline(always)]
    unsafe fn span<A: Access, const K: usize>(&self, at: usize, access: A) {
        let Combination { targets, terms, start } = &self.0;
        for (t, &target) in targets.iter().enumerate() {
            // SAFETY: the span lies within all targets and all sources.
            unsafe {
                let mut sum = [V::zero(); K];
                for bit in (0..8).rev() {
                    sum = sum.map(V::double);
                    for (_, source) in terms.iter().rev().filter(|(c, _)| c.each()[t] >> bit & 1 == 1) {
                        let source: [V; K] = load(source.as_ptr(), at, access);
                        for i in 0..K {
                            sum[i] = sum[i].xor(source[i]);
                        }
                    }
                }
                let before: [V; K] = begin(*start, target, at, access);
                for i in 0..K {
                    sum[i] = sum[i].xor(before[i]);
                }
                store(sum, target, at, access);
            }
        }
    }
}

/// Sets `target` to the sum of `sources`, or adds it.
///
/// # Safety
/// The processor has V's instruction set; all blocks have the target's length.
#[inline(always)]
pub(crate) unsafe fn xor<V: Vector, const K: usize>(target: &mut [u8], sources: &[&[u8]], start: Start) {
    let (bytes, target) = (target.len(), target.as_mut_ptr());
    // SAFETY: the caller's promise.
    unsafe { sweep::<V, K>(bytes, Xor { target, sources, start }) }
}

/// Sets `p` and `q` to the parity and the syndrome of `data`.
///
/// # Safety
/// The processor has V's instruction set; all blocks have p's length.
#[inline(always)]
pub(crate) unsafe fn pq<V: Vector, const K: usize>(p: &mut [u8], q: &mut [u8], data: &[&[u8]]) {
    let (bytes, p, q) = (p.len(), p.as_mut_ptr(), q.as_mut_ptr());
    // SAFETY: the caller's promise.
    unsafe { sweep::<V, K>(bytes, Syndrome { p, q, data }) }
}

/// Does the same as [`pq`].
///
/// # Safety
/// The same as for [`pq`].
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) unsafe fn pq_by_fours<V: Fours, const K: usize>(p: &mut [u8], q: &mut [u8], data: &[&[u8]]) {
    let (bytes, p, q) = (p.len(), p.as_mut_ptr(), q.as_mut_ptr());
    // SAFETY: the caller's promise.
    unsafe { sweep::<V, K>(bytes, SyndromeByFours(Syndrome { p, q, data })) }
}

/// Sets each target to the sum of the sources times its coefficients, or adds it.
///
/// # Safety
/// The processor has V's instruction set; all blocks have the same length.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(crate) unsafe fn combine_by_products<V: Scale, C: Coefficients<T>, const K: usize, const T: usize>(
    targets: [&mut [u8]; T],
    terms: &[Term<'_, C>],
    start: Start,
) {
    // SAFETY: the caller's promise.
    unsafe { combine::<V, C, K, T, _>(targets, terms, start, ByProducts) }
}

/// Does the same as [`combine_by_products`], for registers without products.
///
/// # Safety
/// The same as for [`combine_by_products`].
#[inline(always)]
pub(crate) unsafe fn combine_by_bits<V: Vector, C: Coefficients<T>, const K: usize, const T: usize>(
    targets: [&mut [u8]; T],
    terms: &[Term<'_, C>],
    start: Start,
) {
    // SAFETY: the caller's promise.
    unsafe { combine::<V, C, K, T, _>(targets, terms, start, ByBits) }
}

/// Uses xor if all coefficients are 1, and otherwise the given operation.
///
/// # Safety
/// The processor has V's instruction set; all blocks have the same length.
#[inline(always)]
unsafe fn combine<'a, V: Vector, C: Coefficients<T>, const K: usize, const T: usize, O: Operation<V>>(
    targets: [&mut [u8]; T],
    terms: &'a [Term<'a, C>],
    start: Start,
    way: impl FnOnce(Combination<'a, C, T>) -> O,
) {
    let bytes = targets.first().map_or(0, |target| target.len());
    let targets = targets.map(<[u8]>::as_mut_ptr);
    // SAFETY: the caller's promise.
    unsafe {
        match targets[..] {
            [target] if terms.iter().all(|(coefficients, _)| coefficients.each() == [1; T]) => {
                sweep::<V, K>(bytes, Xor { target, sources: terms, start });
            }
            _ => sweep::<V, K>(bytes, way(Combination { targets, terms, start })),
        }
    }
}
