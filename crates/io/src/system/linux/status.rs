//! The status of an open file, by statx(2), or by fstat(2) where that is missing (before Linux 4.11) or refused by a
//! filter that is older than it. It reads no data.

use crate::system::wide;
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// The status of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Status {
    /// Its length; 0 for a device.
    pub(crate) bytes: u64,
    /// Its names.
    pub(crate) links: u64,
    /// The unit in which its file system writes.
    pub(crate) block_bytes: u64,
    /// The file system's device number, as major and minor.
    pub(crate) device: (u32, u32),
    /// The number of the device that it is.
    pub(crate) own_device: (u32, u32),
    /// What direct transfers need, where the system tells.
    pub(crate) direct: Option<DirectAlignment>,
}

/// What direct transfers must be aligned to, in bytes; 0 if the file does not support them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirectAlignment {
    pub(crate) memory: u32,
    pub(crate) offset: u32,
}

/// The status, as the file system knows it.
pub(crate) fn status(fd: impl AsFd) -> rustix::io::Result<Status> {
    let direct = StatxFlags::from_bits_retain(libc::STATX_DIOALIGN);
    by_statx(&fd, AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | direct)
}

/// Length and names as the system has them in memory. It never waits for a file system that hangs or is on another
/// machine (except where statx is missing).
pub(crate) fn cached_status(fd: impl AsFd) -> rustix::io::Result<Status> {
    by_statx(&fd, AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::SIZE | StatxFlags::NLINK)
}

fn by_statx(fd: &impl AsFd, flags: AtFlags, wanted: StatxFlags) -> rustix::io::Result<Status> {
    match rustix::fs::statx(fd, c"", flags, wanted) {
        Ok(status) => Ok(Status {
            bytes: status.stx_size,
            links: status.stx_nlink.into(),
            block_bytes: status.stx_blksize.into(),
            device: (status.stx_dev_major, status.stx_dev_minor),
            own_device: (status.stx_rdev_major, status.stx_rdev_minor),
            direct: (status.stx_mask & libc::STATX_DIOALIGN != 0)
                .then_some(DirectAlignment { memory: status.stx_dio_mem_align, offset: status.stx_dio_offset_align }),
        }),
        Err(Errno::NOSYS | Errno::PERM) => by_fstat(fd),
        Err(error) => Err(error),
    }
}

/// The status by fstat, which says nothing about direct transfers.
fn by_fstat(fd: &impl AsFd) -> rustix::io::Result<Status> {
    let status = rustix::fs::fstat(fd)?;
    let numbers = |device| (rustix::fs::major(device), rustix::fs::minor(device));
    Ok(Status {
        bytes: wide(status.st_size),
        links: wide(status.st_nlink),
        block_bytes: wide(status.st_blksize),
        device: numbers(status.st_dev),
        own_device: numbers(status.st_rdev),
        direct: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_calls_tell_the_same() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(12_345).expect("it can be long");
        let null = std::fs::File::open("/dev/null").expect("it is there");
        for file in [file.as_file(), &null] {
            let told =
                |status: Status| (status.bytes, status.links, status.block_bytes, status.device, status.own_device);
            let (new, old) = (status(file).expect("open"), by_fstat(&file).expect("open"));
            assert_eq!(told(new), told(old));
            let cached = cached_status(file).expect("open");
            assert_eq!((cached.bytes, cached.links), (new.bytes, new.links));
        }
    }
}
