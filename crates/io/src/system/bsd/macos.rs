//! What macOS alone has. Sources: fcntl(2), fsync(2), the system's `sys/disk.h`.

use crate::system::repeat;
use rustix::fs::FileType;
use rustix::ioctl::{Getter, NoArg, ioctl, opcode};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

/// `DKIOCSYNCHRONIZECACHE`, `DKIOCGETBLOCKSIZE`, `DKIOCGETBLOCKCOUNT` and `DKIOCGETPHYSICALBLOCKSIZE`.
const SYNCHRONIZE: rustix::ioctl::Opcode = opcode::none(b'd', 22);
const BLOCK_BYTES: rustix::ioctl::Opcode = opcode::read::<u32>(b'd', 24);
const BLOCKS: rustix::ioctl::Opcode = opcode::read::<u64>(b'd', 25);
const PHYSICAL_BYTES: rustix::ioctl::Opcode = opcode::read::<u32>(b'd', 77);

/// APFS and HFS+ have them.
pub(crate) const FILES_HAVE_HOLES: bool = true;

/// Punches a hole (`F_PUNCHHOLE`), which reads as zeros. A range that is not whole blocks of the file system is refused
/// as unsupported, and nothing changes.
///
/// # Safety
/// The descriptor is open.
pub(super) unsafe fn punch_hole(fd: RawFd, at: u64, bytes: u64) -> i32 {
    let range =
        libc::fpunchhole_t { fp_flags: 0, reserved: 0, fp_offset: at.cast_signed(), fp_length: bytes.cast_signed() };
    // SAFETY: promised by the caller; the structure is ours, and valid during the call.
    match repeat(|| unsafe { libc::fcntl(fd, libc::F_PUNCHHOLE, &raw const range) as isize }) {
        refused if matches!(-refused, libc::ENOTSUP | libc::EINVAL | libc::ENOTTY) => -libc::EOPNOTSUPP,
        result => result,
    }
}

/// Puts data on stable storage. fsync leaves it in the drive's cache. So a file takes `F_FULLFSYNC`, and a disk a flush of
/// that cache behind fsync. A file system that has no `F_FULLFSYNC` gets no answer but its error: a flush that may not
/// hold is none.
///
/// # Safety
/// The descriptor is open.
pub(crate) unsafe fn sync_data(fd: RawFd) -> i32 {
    // SAFETY: promised by the caller.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let kind = rustix::fs::fstat(file).map(|status| FileType::from_raw_mode(status.st_mode));
    if kind == Ok(FileType::RegularFile) {
        // SAFETY: promised by the caller.
        return repeat(|| unsafe { libc::fcntl(fd, libc::F_FULLFSYNC) as isize });
    }
    // SAFETY: promised by the caller.
    let synced = repeat(|| unsafe { libc::fsync(fd) as isize });
    if synced < 0 {
        return synced;
    }
    // SAFETY: the request has no argument.
    let flush = || unsafe { ioctl(file, NoArg::<SYNCHRONIZE>::new()) };
    rustix::io::retry_on_intr(flush).map_or_else(|error| -error.raw_os_error(), |()| 0)
}

/// The size of a disk.
pub(super) fn media_bytes(fd: impl AsFd) -> rustix::io::Result<u64> {
    // SAFETY: each request writes one number of its type.
    let (blocks, bytes) =
        unsafe { (ioctl(&fd, Getter::<BLOCKS, u64>::new())?, ioctl(&fd, Getter::<BLOCK_BYTES, u32>::new())?) };
    blocks.checked_mul(bytes.into()).ok_or(rustix::io::Errno::OVERFLOW)
}

pub(super) fn logical_block_bytes(fd: impl AsFd) -> rustix::io::Result<u32> {
    // SAFETY: the request writes one number of this type.
    unsafe { ioctl(fd, Getter::<BLOCK_BYTES, u32>::new()) }
}

pub(super) fn physical_block_bytes(fd: &OwnedFd) -> Option<u32> {
    // SAFETY: the request writes one number of this type.
    let bytes = unsafe { ioctl(fd, Getter::<PHYSICAL_BYTES, u32>::new()) }.ok()?;
    Some(bytes).filter(|bytes| bytes.is_power_of_two() && *bytes <= 1 << 20)
}

/// Keeps transfers out of the cache (`F_NOCACHE`).
pub(crate) fn spare_cache(fd: &OwnedFd) {
    // It is a wish.
    let _ = rustix::fs::fcntl_nocache(fd, true);
}
