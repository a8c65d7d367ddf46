//! Registers of the instruction sets, each no more than a translation of
//! [`Vector`](crate::vector::Vector) into intrinsics.

pub(crate) mod portable;

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod gfni;
#[cfg(target_arch = "x86_64")]
pub(crate) mod ssse3;
#[cfg(target_arch = "x86_64")]
pub(crate) mod streaming;
