//! What a disk supports, and files without the cache. Where nothing tells, the conservative value is used. It never
//! changes data. Sources: disk(4) of FreeBSD, `sys/disk.h` and fcntl(2) of macOS.

use super::own;
use super::status::Status;
use crate::file::SECTOR_BYTES;
use engine::Limits;
use rustix::fs::{FallocateFlags, FileType, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

pub(crate) use own::{FILES_HAVE_HOLES, spare_cache};

/// Mounted disks refuse to be opened for writing by themselves.
pub(crate) const CLAIM: OFlags = OFlags::empty();

/// Whether a file of this type may be a disk. FreeBSD has no block devices, and macOS has both kinds of each disk.
pub(crate) fn may_be_disk(kind: FileType) -> bool {
    matches!(kind, FileType::BlockDevice | FileType::CharacterDevice)
}

/// Whether the type alone says that a file is a disk.
pub(crate) const TYPE_TELLS: bool = false;

/// Whether the open file of such a type is a disk: it has a size.
pub(crate) fn is_disk(fd: &OwnedFd) -> bool {
    own::media_bytes(fd).is_ok()
}

/// The current length of a file or disk.
pub(crate) fn length(fd: impl AsFd) -> io::Result<u64> {
    let status = rustix::fs::fstat(&fd)?;
    match may_be_disk(FileType::from_raw_mode(status.st_mode)) {
        true => Ok(own::media_bytes(fd)?),
        false => Ok(status.st_size.cast_unsigned()),
    }
}

/// Reads bytes at any position. Of a disk only whole blocks can be read.
pub(crate) fn read_exact_at(file: &File, into: &mut [u8], at: u64) -> io::Result<()> {
    let status = rustix::fs::fstat(file)?;
    if !may_be_disk(FileType::from_raw_mode(status.st_mode)) {
        return file.read_exact_at(into, at);
    }
    let block = u64::from(own::logical_block_bytes(file)?.max(SECTOR_BYTES));
    let skipped = (at % block) as usize;
    let bytes = (skipped + into.len()).next_multiple_of(block as usize);
    let mut blocks = vec![0; bytes];
    file.read_exact_at(&mut blocks, at - at % block)?;
    into.copy_from_slice(&blocks[skipped..skipped + into.len()]);
    Ok(())
}

/// Transfers of a disk are direct, or as good as that.
pub(crate) fn set_direct(fd: &OwnedFd) -> bool {
    spare_cache(fd);
    true
}

/// Transfers need a thread, whichever kind they are.
pub(crate) fn is_direct(_: impl AsFd) -> bool {
    false
}

/// Whether a file is of a file system in memory: not known.
pub(crate) fn is_in_memory(_: impl AsFd) -> bool {
    false
}

/// Allocates space for a new file, whose length becomes `bytes`. False if the file system cannot.
pub(crate) fn preallocate(file: &File, bytes: u64) -> io::Result<bool> {
    use rustix::io::Errno;
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)) {
        // ZFS says EINVAL.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
        allocated => Ok(allocated.map(|()| true)?),
    }
}

/// No call allocates space for a part of a file and leaves its length.
pub(crate) fn reserve(_: &File, _at: u64, _bytes: u64) -> io::Result<bool> {
    Ok(false)
}

/// Transfers of a regular file go through the cache, and need no alignment.
pub(crate) fn file_alignment(_: &Status) -> Option<u32> {
    None
}

/// The limits of a disk. None of its discards promises zeros, so it has none.
pub(crate) fn device_limits(fd: &OwnedFd, _: &Status, _read_only: bool) -> io::Result<Limits> {
    let logical_block_bytes = own::logical_block_bytes(fd)?.max(SECTOR_BYTES);
    let physical_block_bytes = own::physical_block_bytes(fd).unwrap_or(0).max(logical_block_bytes);
    Ok(Limits {
        bytes: own::media_bytes(fd)?,
        logical_block_bytes,
        physical_block_bytes,
        optimal_bytes: 0,
        longest_bytes: 0,
        synchronous: false,
        discards: false,
        discards_to_zeros: false,
        volatile_cache: true,
    })
}
