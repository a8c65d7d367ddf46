//! Registers of the instruction sets. Each only translates [`Vector`](crate::vector::Vector) into intrinsics, and
//! contains no algorithm.

pub(crate) mod portable;

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod gfni;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
#[cfg(target_arch = "x86_64")]
pub(crate) mod ssse3;
#[cfg(target_arch = "x86_64")]
pub(crate) mod streaming;
