//! Advice about memory. It never changes what a caller's memory holds, except that [`renew`] makes it zeros. Source:
//! madvise(2).

use rustix::mm::{Advice, MapFlags};

/// How members in memory are mapped: no page is promised before it is written.
pub(crate) const ANONYMOUS: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);

/// Asks for huge pages. Where there are none, this has no effect.
///
/// # Safety
/// The range is memory of the caller's, mapped as a whole.
pub(crate) unsafe fn prefer_huge_pages(base: *mut u8, bytes: usize) {
    // SAFETY: promised by the caller; the contents stay.
    let _ = unsafe { rustix::mm::madvise(base.cast(), bytes, Advice::LinuxHugepage) };
}

/// Gives whole pages back to the system, which provides zeros at the next access. False if it does not.
///
/// # Safety
/// The range is whole pages of a private anonymous mapping of the caller's, without references to them.
pub(crate) unsafe fn renew(base: *mut u8, bytes: usize) -> bool {
    // SAFETY: promised by the caller.
    unsafe { rustix::mm::madvise(base.cast(), bytes, Advice::LinuxDontNeed) }.is_ok()
}
