//! Memory of members in memory. It never changes what a caller's memory holds, except that [`renew`] makes it zeros.
//! Source: mmap(2). (No advice of madvise(2) promises zeros here.)

use rustix::mm::{MapFlags, ProtFlags};

/// How members in memory are mapped. Pages that were never written take no memory.
pub(crate) const ANONYMOUS: MapFlags = MapFlags::PRIVATE;

/// The system chooses its pages itself.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn prefer_huge_pages(_base: *mut u8, _bytes: usize) {}

/// Replaces whole pages by new ones, which are zeros. False if the system refuses.
///
/// # Safety
/// The range is whole pages of a private anonymous mapping of the caller's, without references to them.
pub(crate) unsafe fn renew(base: *mut u8, bytes: usize) -> bool {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: promised by the caller; the new mapping replaces exactly these pages.
    unsafe { rustix::mm::mmap_anonymous(base.cast(), bytes, access, ANONYMOUS | MapFlags::FIXED) }.is_ok()
}
