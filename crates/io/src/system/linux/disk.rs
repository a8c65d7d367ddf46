//! What a block device supports, by the block layer's ioctls and `/sys/dev/block/*/queue`, and direct transfers of files.
//! Where nothing tells, the conservative value is used. It never changes data. Sources: blkdev's ioctls
//! (`linux/fs.h`), `Documentation/ABI/stable/sysfs-block`, open(2) for `O_DIRECT`.

use super::status::Status;
use crate::file::SECTOR_BYTES;
use engine::Limits;
use rustix::fs::{FallocateFlags, FileType, OFlags, SeekFrom};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How a disk is opened by a program that uses it: the kernel's own users of block devices respect this claim.
pub(crate) const CLAIM: OFlags = OFlags::EXCL;

/// Whether a file of this type may be a disk. Its opening tells.
pub(crate) fn may_be_disk(kind: FileType) -> bool {
    kind == FileType::BlockDevice
}

/// Whether the type alone says that a file is a disk.
pub(crate) const TYPE_TELLS: bool = true;

/// Whether the open file of such a type is a disk.
pub(crate) fn is_disk(_: &OwnedFd) -> bool {
    true
}

/// The current length of a file or device. Nothing in this crate uses the descriptor's position.
pub(crate) fn length(fd: impl AsFd) -> io::Result<u64> {
    Ok(rustix::fs::seek(fd, SeekFrom::End(0))?)
}

/// Reads bytes at any position.
pub(crate) fn read_exact_at(file: &File, into: &mut [u8], at: u64) -> io::Result<()> {
    file.read_exact_at(into, at)
}

/// Turns direct transfers on, for a file or device whose alignment is known. False if it has none.
pub(crate) fn set_direct(fd: &OwnedFd) -> bool {
    rustix::fs::fcntl_getfl(fd).and_then(|flags| rustix::fs::fcntl_setfl(fd, flags | OFlags::DIRECT)).is_ok()
}

/// Whether transfers of the open file are direct.
pub(crate) fn is_direct(fd: impl AsFd) -> bool {
    rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::DIRECT))
}

/// `TMPFS_MAGIC` of `linux/magic.h`.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// Whether a regular file is of a file system in memory, whose transfers wait for no device. Not asked of a device: its
/// name is on one, too (`/dev`).
pub(crate) fn is_in_memory(fd: impl AsFd) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|system| system.f_type == TMPFS_MAGIC)
}

/// Keeps transfers that are not direct out of the cache, where the system can do that: not here.
pub(crate) fn spare_cache(_: &OwnedFd) {}

/// Whether files can have holes punched. Nearly every file system can. Any other reports that when asked.
///
/// fallocate(2): a hole reads as zeros, also one that is punched in a block device.
pub(crate) const FILES_HAVE_HOLES: bool = true;

/// Allocates space for a new file, whose length becomes `bytes`. False if the file system cannot.
pub(crate) fn preallocate(file: &File, bytes: u64) -> io::Result<bool> {
    allocate(file, FallocateFlags::empty(), 0, bytes)
}

/// Allocates space for a range of a file, whose length stays. False if the file system cannot.
pub(crate) fn reserve(file: &File, at: u64, bytes: u64) -> io::Result<bool> {
    allocate(file, FallocateFlags::KEEP_SIZE, at, bytes)
}

fn allocate(file: &File, mode: FallocateFlags, at: u64, bytes: u64) -> io::Result<bool> {
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, mode, at, bytes)) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(false),
        allocated => Ok(allocated.map(|()| true)?),
    }
}

/// The alignment that `O_DIRECT` on a regular file needs, in bytes. `None` when it is unsupported or unknown.
pub(crate) fn file_alignment(status: &Status) -> Option<u32> {
    if let Some(direct) = status.direct {
        // Zero means that the file does not support it.
        return (direct.offset != 0).then_some(direct.offset.max(direct.memory));
    }
    // Before Linux 6.1: the block size of the underlying device, if there is just one.
    queue_number(status.device.0, status.device.1, "logical_block_size")?.try_into().ok()
}

/// The limits of a block device.
pub(crate) fn device_limits(fd: &OwnedFd, status: &Status, read_only: bool) -> io::Result<Limits> {
    let (major, minor) = status.own_device;
    let number = |name| queue_number(major, minor, name).unwrap_or(0);
    let logical_block_bytes = rustix::fs::ioctl_blksszget(fd)?.max(SECTOR_BYTES);
    // A hole is punched by write-zeroes (`blkdev_fallocate`), never by a discard without a guarantee.
    let discards = !read_only && number("write_zeroes_max_bytes") > 0;
    let optimal_bytes = u32::try_from(number("optimal_io_size")).unwrap_or(0);
    Ok(Limits {
        bytes: length(fd)?,
        logical_block_bytes,
        physical_block_bytes: rustix::fs::ioctl_blkpbszget(fd)?.max(logical_block_bytes),
        optimal_bytes: if optimal_bytes % logical_block_bytes == 0 { optimal_bytes } else { 0 },
        longest_bytes: 0,
        synchronous: false,
        discards,
        discards_to_zeros: discards,
        volatile_cache: queue_text(major, minor, "write_cache").is_none_or(|text| text != "write through"),
    })
}

/// An attribute of a device's request queue. A partition has that of its disk.
fn queue_text(major: u32, minor: u32, name: &str) -> Option<String> {
    let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // `canonicalize` first, because `..` of the link is the directory of links.
    let device = device.canonicalize().ok()?;
    let read = |device: &Path| std::fs::read_to_string(device.join("queue").join(name)).ok();
    let text = read(&device).or_else(|| read(device.parent()?))?;
    Some(text.trim_end().to_owned())
}

fn queue_number(major: u32, minor: u32, name: &str) -> Option<u64> {
    queue_text(major, minor, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_tmpfs_are_in_memory_and_others_are_not() {
        assert!(is_in_memory(tempfile::tempfile_in("/dev/shm").expect("tmpfs is there")));
        assert!(!is_in_memory(File::open("/proc/self/stat").expect("it is there")));
    }
}
