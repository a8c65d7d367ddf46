//! The one table of kernels, and their safe interface.
//!
//! The default, tests, benches and the override by name all use [`kernels`]. The processor's features alone determine
//! the default, never timing: a machine must compute the same way after every start.
//!
//! The `-stream` kernels store without the cache. They win for large, cold blocks whose results are not read soon, and
//! cost up to three quarters of the speed for hot blocks. So they must be selected by name (figures in docs/decisions/0203).

#[cfg(target_arch = "aarch64")]
use std::arch::is_aarch64_feature_detected as is_detected;
#[cfg(target_arch = "x86_64")]
use std::arch::is_x86_feature_detected as is_detected;
use std::fmt;
use std::sync::LazyLock;

use crate::isa;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::routines::combine_by_products;
#[cfg(target_arch = "aarch64")]
use crate::routines::pq_by_fours;
use crate::routines::{Start, Term, combine_by_bits, pq, xor};

/// Parity arithmetic on blocks with one instruction set.
///
/// Every method takes blocks of one length, any length from 0, at any alignment. The results are the same with every
/// kernel.
///
/// # Panics
/// Every method that takes blocks panics when they differ in length, and when
/// this processor [lacks the kernel's instructions](Kernel::is_supported).
pub struct Kernel {
    name: &'static str,
    is_supported: &'static LazyLock<bool>,
    routines: Routines,
}

/// The routines of a kernel.
///
/// Safety of each: the kernel is supported; all blocks have the same length.
struct Routines {
    xor: unsafe fn(&mut [u8], &[&[u8]], Start),
    pq: unsafe fn(&mut [u8], &mut [u8], &[&[u8]]),
    combine: CombineRoutine<u8, 1>,
    combine_two: CombineRoutine<[u8; 2], 2>,
}

type CombineRoutine<C, const T: usize> = unsafe fn([&mut [u8]; T], &[Term<'_, C>], Start);

/// An entry of the table: name, register, registers in a span of one combination and in one of two at once, the routines
/// for P+Q and for combinations, and the processor features, which are both enabled and detected.
macro_rules! kernel {
    ($name:literal, $register:ty, [$span:literal, $span_of_two:literal], $pq:ident, $combine:ident, [$($feature:tt),*]) => {{
        $(#[target_feature(enable = $feature)])*
        unsafe fn xor_with(target: &mut [u8], sources: &[&[u8]], start: Start) {
            // SAFETY: the features are on; the lengths are the caller's promise.
            unsafe { xor::<$register, $span>(target, sources, start) }
        }

        $(#[target_feature(enable = $feature)])*
        unsafe fn pq_with(p: &mut [u8], q: &mut [u8], data: &[&[u8]]) {
            // SAFETY: as above.
            unsafe { $pq::<$register, $span>(p, q, data) }
        }

        $(#[target_feature(enable = $feature)])*
        unsafe fn combine_with(target: [&mut [u8]; 1], terms: &[Term<'_, u8>], start: Start) {
            // SAFETY: as above.
            unsafe { $combine::<$register, u8, $span, 1>(target, terms, start) }
        }

        $(#[target_feature(enable = $feature)])*
        unsafe fn combine_two_with(targets: [&mut [u8]; 2], terms: &[Term<'_, [u8; 2]>], start: Start) {
            // SAFETY: as above.
            unsafe { $combine::<$register, [u8; 2], $span_of_two, 2>(targets, terms, start) }
        }

        static IS_SUPPORTED: LazyLock<bool> =
            LazyLock::new(|| true $(&& is_detected!($feature))*);

        Kernel {
            name: $name,
            is_supported: &IS_SUPPORTED,
            routines: Routines {
                xor: xor_with,
                pq: pq_with,
                combine: combine_with,
                combine_two: combine_two_with,
            },
        }
    }};
}

/// Best first: the default is the first supported one.
static KERNELS: &[Kernel] = &[
    #[cfg(target_arch = "x86_64")]
    kernel!("gfni-avx512", isa::gfni::Affine64, [4, 4], pq, combine_by_products, ["avx512f", "avx512bw", "gfni"]),
    #[cfg(target_arch = "x86_64")]
    kernel!("avx512", isa::avx512::Bytes64, [4, 4], pq, combine_by_products, ["avx512f", "avx512bw"]),
    #[cfg(target_arch = "x86_64")]
    kernel!("gfni-avx2", isa::gfni::Affine32, [4, 4], pq, combine_by_products, ["avx2", "gfni"]),
    #[cfg(target_arch = "x86_64")]
    kernel!("avx2", isa::avx2::Bytes32, [4, 4], pq, combine_by_products, ["avx2"]),
    #[cfg(target_arch = "x86_64")]
    kernel!("ssse3", isa::ssse3::Bytes16, [4, 4], pq, combine_by_products, ["ssse3"]),
    #[cfg(target_arch = "aarch64")]
    kernel!("neon-sha3", isa::neon::WithSha3, [8, 4], pq_by_fours, combine_by_products, ["neon", "sha3"]),
    #[cfg(target_arch = "aarch64")]
    kernel!("neon", isa::neon::Bytes16, [8, 4], pq_by_fours, combine_by_products, ["neon"]),
    kernel!("portable", isa::portable::Words, [4, 4], pq, combine_by_bits, []),
    // Never the default; see the module.
    #[cfg(target_arch = "x86_64")]
    kernel!(
        "gfni-avx512-stream",
        isa::streaming::Streaming<isa::gfni::Affine64>,
        [4, 4],
        pq,
        combine_by_products,
        ["avx512f", "avx512bw", "gfni"]
    ),
    #[cfg(target_arch = "x86_64")]
    kernel!("avx2-stream", isa::streaming::Streaming<isa::avx2::Bytes32>, [4, 4], pq, combine_by_products, ["avx2"]),
];

/// All compiled kernels, best first, including those that this processor does not support.
pub fn kernels() -> &'static [Kernel] {
    KERNELS
}

impl Kernel {
    /// Its name, for [`Kernel::by_name`].
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether this processor, under this operating system, can run it.
    pub fn is_supported(&self) -> bool {
        **self.is_supported
    }

    /// The first supported kernel of the table. A call costs a few loads, because the detected features are cached.
    pub fn best() -> &'static Kernel {
        let found = kernels().iter().find(|kernel| kernel.is_supported());
        found.expect("the portable kernel is supported everywhere")
    }

    /// The kernel of this name, if it is supported.
    ///
    /// # Errors
    /// There is no such kernel, or this processor lacks its instructions.
    pub fn by_name(name: &str) -> Result<&'static Kernel, UnknownOrUnsupported> {
        match kernels().iter().find(|kernel| kernel.name == name) {
            Some(kernel) if kernel.is_supported() => Ok(kernel),
            Some(kernel) => Err(UnknownOrUnsupported::Unsupported(kernel.name)),
            None => Err(UnknownOrUnsupported::Unknown(name.to_owned())),
        }
    }

    /// Sets `target` to the exclusive or of `sources`; zeros if there are none.
    pub fn xor(&self, target: &mut [u8], sources: &[&[u8]]) {
        self.check(target.len(), sources.iter().copied());
        // SAFETY: checked above.
        unsafe { (self.routines.xor)(target, sources, Start::Afresh) }
    }

    /// Sets `target` to the exclusive or of itself and `sources`.
    pub fn xor_assign(&self, target: &mut [u8], sources: &[&[u8]]) {
        self.check(target.len(), sources.iter().copied());
        // SAFETY: checked above.
        unsafe { (self.routines.xor)(target, sources, Start::Onto) }
    }

    /// Sets `p` to the sum of `data`, and `q` to the sum of each `data[k]` times 2^k.
    ///
    /// For stripes with gaps in their exponents, see [`Kernel::combine_two`].
    pub fn pq(&self, p: &mut [u8], q: &mut [u8], data: &[&[u8]]) {
        self.check(p.len(), data.iter().copied().chain([&*q]));
        // SAFETY: checked above.
        unsafe { (self.routines.pq)(p, q, data) }
    }

    /// Sets `target` to the sum of each source times its coefficient, in GF(2^8). With all coefficients 1, this is
    /// [`Kernel::xor`], and as fast.
    pub fn combine(&self, target: &mut [u8], terms: &[(u8, &[u8])]) {
        self.combine_onto(target, terms, Start::Afresh);
    }

    /// Sets `target` to the sum of itself and of each source times its coefficient.
    pub fn combine_assign(&self, target: &mut [u8], terms: &[(u8, &[u8])]) {
        self.combine_onto(target, terms, Start::Onto);
    }

    /// Does the same as [`Kernel::combine`] twice, with a coefficient of each source for each target, but reads the
    /// sources once. For two lost blocks at once, or for P and Q of data with gaps in the exponents (coefficients `[1,
    /// gf::pow2(e)]`).
    pub fn combine_two(&self, targets: [&mut [u8]; 2], terms: &[([u8; 2], &[u8])]) {
        self.combine_two_onto(targets, terms, Start::Afresh);
    }

    /// Does the same as [`Kernel::combine_assign`] twice, but reads the sources once. For an update of P and Q with the
    /// change of some data.
    pub fn combine_two_assign(&self, targets: [&mut [u8]; 2], terms: &[([u8; 2], &[u8])]) {
        self.combine_two_onto(targets, terms, Start::Onto);
    }

    fn combine_onto(&self, target: &mut [u8], terms: &[Term<'_, u8>], start: Start) {
        self.check(target.len(), terms.iter().map(|(_, source)| *source));
        // SAFETY: checked above.
        unsafe { (self.routines.combine)([target], terms, start) }
    }

    fn combine_two_onto(&self, targets: [&mut [u8]; 2], terms: &[Term<'_, [u8; 2]>], start: Start) {
        self.check(targets[0].len(), terms.iter().map(|(_, source)| *source).chain([&*targets[1]]));
        // SAFETY: checked above.
        unsafe { (self.routines.combine_two)(targets, terms, start) }
    }

    /// Checks the requirements of all routines.
    #[inline]
    fn check<'a>(&self, bytes: usize, mut others: impl Iterator<Item = &'a [u8]>) {
        assert!(self.is_supported(), "this processor cannot run the kernel {}", self.name);
        if let Some(other) = others.find(|other| other.len() != bytes) {
            panic!("blocks of {bytes} and of {} bytes in one computation", other.len());
        }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({})", self.name)
    }
}

/// Why [`Kernel::by_name`] found no kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownOrUnsupported {
    /// There is no kernel of this name.
    #[error("no kernel is named {0:?}; there are: {list}", list = names(|_| true))]
    Unknown(String),
    /// This processor lacks the kernel's instructions.
    #[error("this processor cannot run the kernel {0}; it can run: {list}", list = names(Kernel::is_supported))]
    Unsupported(&'static str),
}

/// The names of some kernels of the table, for messages.
fn names(which: impl Fn(&Kernel) -> bool) -> String {
    let names: Vec<_> = kernels().iter().filter(|kernel| which(kernel)).map(Kernel::name).collect();
    names.join(", ")
}
