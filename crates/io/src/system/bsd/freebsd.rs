//! What FreeBSD alone has. Sources: disk(4), fsync(2), fcntl(2), the system's `sys/disk.h`.

use crate::system::repeat;
use rustix::fs::OFlags;
use rustix::ioctl::{Getter, NoArg, ioctl, opcode};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

/// `DIOCGSECTORSIZE`, `DIOCGMEDIASIZE`, `DIOCGFLUSH` and `DIOCGSTRIPESIZE`.
const SECTOR: rustix::ioctl::Opcode = opcode::read::<u32>(b'd', 128);
const MEDIA: rustix::ioctl::Opcode = opcode::read::<i64>(b'd', 129);
const FLUSH: rustix::ioctl::Opcode = opcode::none(b'd', 135);
const STRIPE: rustix::ioctl::Opcode = opcode::read::<i64>(b'd', 139);

/// Holes need a call that only FreeBSD 14 has, and whose number kills programs on older ones.
pub(crate) const FILES_HAVE_HOLES: bool = false;

/// # Safety
/// The descriptor is open.
pub(super) unsafe fn punch_hole(_: RawFd, _at: u64, _bytes: u64) -> i32 {
    -libc::EOPNOTSUPP
}

/// Puts data, and the metadata needed to read it, on stable storage: a file by fdatasync, a disk by a flush of its own
/// cache, which fdatasync does not reach.
///
/// # Safety
/// The descriptor is open.
pub(crate) unsafe fn sync_data(fd: RawFd) -> i32 {
    // SAFETY: promised by the caller.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    // A file has no media.
    if media_bytes(file).is_ok() {
        // SAFETY: the request has no argument.
        let flush = || unsafe { ioctl(file, NoArg::<FLUSH>::new()) };
        return rustix::io::retry_on_intr(flush).map_or_else(|error| -error.raw_os_error(), |()| 0);
    }
    // SAFETY: promised by the caller.
    repeat(|| unsafe { libc::fdatasync(fd) as isize })
}

/// The size of a disk.
pub(super) fn media_bytes(fd: impl AsFd) -> rustix::io::Result<u64> {
    // SAFETY: the request writes one number of this type.
    unsafe { ioctl(fd, Getter::<MEDIA, i64>::new()) }.map(i64::cast_unsigned)
}

pub(super) fn logical_block_bytes(fd: impl AsFd) -> rustix::io::Result<u32> {
    // SAFETY: the request writes one number of this type.
    unsafe { ioctl(fd, Getter::<SECTOR, u32>::new()) }
}

/// The stripe, which a disk of larger physical blocks reports as their size.
pub(super) fn physical_block_bytes(fd: &OwnedFd) -> Option<u32> {
    // SAFETY: the request writes one number of this type.
    let stripe = unsafe { ioctl(fd, Getter::<STRIPE, i64>::new()) }.ok()?;
    u32::try_from(stripe).ok().filter(|bytes| bytes.is_power_of_two() && *bytes <= 1 << 20)
}

/// Keeps transfers out of the cache as far as the file system can.
pub(crate) fn spare_cache(fd: &OwnedFd) {
    // It is a wish.
    let _ = rustix::fs::fcntl_getfl(fd).and_then(|flags| rustix::fs::fcntl_setfl(fd, flags | OFlags::DIRECT));
}
