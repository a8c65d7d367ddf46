//! Aliases: the same bytes through other paths. The lock of a member also excludes programs that reach its bytes
//! through another device.
//!
//! A hard link, a symbolic link and a bind mount lead to the same inode, which has one lock. A loop device has an inode
//! of its own, so its lock does not cover the file behind it, and the kernel claims neither for the other. Therefore:
//!
//! * For a block device, the backing bytes are locked too: the range of the file or device behind a loop device, also
//!   below a partition. Ranges of one file that do not overlap are different members.
//! * For a file, the whole file is locked, and each loop device over it is claimed, as the kernel's own users claim it.
//!   A claimed loop device makes the open fail. Device-mapper and kernel arrays over a loop device claim it, so they
//!   are covered.
//!
//! When the file behind a loop device is unreachable (deleted, or in another mount namespace), only existing locks are
//! detected. A union of directories (overlayfs) gives one file two inodes, which this module cannot detect. It never
//! changes a byte.
//!
//! Facts: `drivers/block/loop.c` (`LOOP_GET_STATUS64`, `backing_file`), `Documentation/ABI/testing/sysfs-block`.

use super::locks::holder_of;
use crate::file::lock::{lock, lock_range};
use crate::file::{Lock, OpenError, is_block_device};
use crate::foundation::Foundation;
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A device number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Number {
    major: u32,
    minor: u32,
}

/// The identity of a file, whatever its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: Number,
    inode: u64,
}

impl Identity {
    fn of(fd: &OwnedFd) -> Option<Self> {
        rustix::fs::fstat(fd).ok().as_ref().map(Self::of_status)
    }

    fn of_status(status: &Stat) -> Self {
        Self { device: Number::of(status.st_dev), inode: status.st_ino }
    }
}

impl Number {
    fn of(device: rustix::fs::Dev) -> Self {
        Self { major: rustix::fs::major(device), minor: rustix::fs::minor(device) }
    }

    /// Decodes the kernel's internal form (`huge_encode_dev`).
    fn decoded(device: u64) -> Self {
        let device = device as u32;
        Self { major: device >> 8 & 0xfff, minor: device & 0xff | device >> 12 & 0xf_ff00 }
    }
}

/// Locks the same bytes through their aliases. The returned descriptors hold the locks.
///
/// # Errors
/// When an alias is in use; the error names it.
pub(crate) fn lock_aliases(path: &Path, fd: &OwnedFd, wanted: Lock) -> Result<Vec<OwnedFd>, OpenError> {
    if wanted == Lock::None {
        return Ok(Vec::new());
    }
    let status = rustix::fs::fstat(fd).map_err(|source| OpenError::system(path, "stat", source))?;
    let mut held = Vec::new();
    let locked = match is_block_device(path, &status)? {
        true => lock_below(Number::of(status.st_rdev), 0..u64::MAX, wanted, &mut held),
        false => claim_above(fd, wanted, &mut held),
    };
    let of_member = |source| OpenError::Alias { path: path.to_owned(), source: Box::new(source) };
    locked.map(|()| held).map_err(of_member)
}

/// Where byte `at` of the block device with this number is: in the file behind a loop device, in the disk of a partition.
/// A device over an unreachable file is its own foundation.
pub(crate) fn foundation(device: u64, at: u64) -> Foundation {
    let Some(directory) = directory_of(Number::of(device)) else { return Foundation::disk(device, 0, at) };
    if let Some(Number { major, minor }) = disk_of(&directory) {
        let at = at.saturating_add(sectors(&directory.join("start")));
        return foundation(rustix::fs::makedev(major, minor), at);
    }
    let behind = backing_file(&directory).and_then(|file| rustix::fs::stat(&file).ok());
    let expected = node_of(&directory).and_then(|node| identity_behind(&node));
    match behind.filter(|status| expected.is_none_or(|expected| expected == Identity::of_status(status))) {
        Some(status) => Foundation::of_status(&status, at.saturating_add(number_in(&directory.join("loop/offset")))),
        None => Foundation::disk(device, number_in(&directory.join("diskseq")), at),
    }
}

/// The directory of a block device in sysfs.
fn directory_of(device: Number) -> Option<PathBuf> {
    let link = PathBuf::from(format!("/sys/dev/block/{}:{}", device.major, device.minor));
    // `canonicalize`, because `..` of the link is the directory of links.
    link.canonicalize().ok()
}

/// The disk of a partition.
fn disk_of(directory: &Path) -> Option<Number> {
    directory.parent().filter(|_| directory.join("partition").exists()).and_then(number_of)
}

/// Locks the bytes behind `bytes` of the block device with this number.
fn lock_below(device: Number, bytes: Range<u64>, wanted: Lock, held: &mut Vec<OwnedFd>) -> Result<(), OpenError> {
    let Some(directory) = directory_of(device) else { return Ok(()) };
    let end = bytes.end.min(sectors(&directory.join("size")));
    let moved_by = |offset: u64| bytes.start.saturating_add(offset)..end.saturating_add(offset);
    if let Some(file) = backing_file(&directory) {
        let range = moved_by(number_in(&directory.join("loop/offset")));
        return lock_backing(&directory, &file, range, wanted, held);
    }
    match disk_of(&directory) {
        Some(disk) => lock_below(disk, moved_by(sectors(&directory.join("start"))), wanted, held),
        None => Ok(()),
    }
}

/// Locks a range of the file or device behind the loop device of the sysfs `directory`.
fn lock_backing(
    directory: &Path,
    file: &Path,
    range: Range<u64>,
    wanted: Lock,
    held: &mut Vec<OwnedFd>,
) -> Result<(), OpenError> {
    let expected = node_of(directory).and_then(|node| identity_behind(&node));
    let opened = open_backing(file, wanted)?;
    let is_it = |fd: &OwnedFd| expected.is_none_or(|expected| Identity::of(fd) == Some(expected));
    let Some(fd) = opened.filter(is_it) else {
        let holder = expected.and_then(|Identity { device, inode }| holder_of(device.major, device.minor, inode));
        return match holder {
            Some(pid) => Err(OpenError::Locked { path: file.to_owned(), holder: Some(pid) }),
            None => Ok(()),
        };
    };
    let status = rustix::fs::fstat(&fd).map_err(|source| OpenError::system(file, "stat", source))?;
    if is_block_device(file, &status)? {
        lock(file, &fd, wanted)?;
        held.push(fd);
        return lock_below(Number::of(status.st_rdev), range, wanted, held);
    }
    lock_range(file, &fd, range, wanted)?;
    held.push(fd);
    Ok(())
}

/// Opens the file behind a loop device. `None` when it is unreachable.
fn open_backing(path: &Path, wanted: Lock) -> Result<Option<OwnedFd>, OpenError> {
    // Checked before the open: opening a pipe would block, and some devices act on an open.
    let Some(is_block_device) = rustix::fs::stat(path).ok().and_then(|status| is_block_device(path, &status).ok())
    else {
        return Ok(None);
    };
    let claim = if is_block_device { OFlags::EXCL } else { OFlags::empty() };
    let open = |access| rustix::fs::open(path, access | claim | OFlags::CLOEXEC, Mode::empty());
    // NFS grants exclusive locks only on files open for writing.
    let opened = match wanted {
        Lock::Exclusive => open(OFlags::RDWR).or_else(|error| match error {
            Errno::BUSY => Err(error),
            _ => open(OFlags::RDONLY),
        }),
        Lock::Shared | Lock::None => open(OFlags::RDONLY),
    };
    match opened {
        Err(Errno::BUSY) => Err(OpenError::Busy { path: path.to_owned() }),
        opened => Ok(opened.ok()),
    }
}

/// Claims the loop devices over a file.
fn claim_above(fd: &OwnedFd, wanted: Lock, held: &mut Vec<OwnedFd>) -> Result<(), OpenError> {
    let own = Identity::of(fd);
    for directory in entries(Path::new("/sys/block")) {
        let Some(file) = backing_file(&directory) else { continue };
        let Some(node) = node_of(&directory) else { continue };
        let is_over_it = match identity_behind(&node) {
            Some(identity) => Some(identity) == own,
            // This user may not open the device, so it is identified by its path.
            None => rustix::fs::stat(&file).is_ok_and(|status| Some(Identity::of_status(&status)) == own),
        };
        // Readers share.
        if !is_over_it || wanted == Lock::Shared && is_read_only(&directory) {
            continue;
        }
        match rustix::fs::open(&node, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::BUSY) => return Err(OpenError::Busy { path: node }),
            // A claim has one owner, and the file may have several readers.
            Ok(claim) if wanted == Lock::Exclusive => held.push(claim),
            _ => {}
        }
    }
    Ok(())
}

/// The path of the file behind a loop device that is in use.
fn backing_file(directory: &Path) -> Option<PathBuf> {
    let mut path = std::fs::read(directory.join("loop/backing_file")).ok()?;
    path.pop_if(|last| *last == b'\n');
    Some(OsString::from_vec(path).into())
}

fn is_read_only(directory: &Path) -> bool {
    std::fs::read_to_string(directory.join("ro")).is_ok_and(|text| text.trim_end() == "1")
}

/// The device's node.
fn node_of(directory: &Path) -> Option<PathBuf> {
    // In names with a slash, sysfs writes an exclamation mark.
    let name = directory.file_name()?.to_str()?.replace('!', "/");
    Some(Path::new("/dev").join(name))
}

/// A number of sectors in a sysfs file, in bytes.
fn sectors(path: &Path) -> u64 {
    number_in(path).saturating_mul(512)
}

fn number_in(path: &Path) -> u64 {
    std::fs::read_to_string(path).ok().and_then(|text| text.trim_end().parse().ok()).unwrap_or(0)
}

fn number_of(directory: &Path) -> Option<Number> {
    let text = std::fs::read_to_string(directory.join("dev")).ok()?;
    let (major, minor) = text.trim_end().split_once(':')?;
    Some(Number { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = directory.read_dir() else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.path().canonicalize().ok()).collect()
}

/// `struct loop_info64` of `linux/loop.h`; only the first fields are used.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rest: [u64; 27],
}

const LOOP_GET_STATUS64: libc::c_ulong = 0x4c05;

/// The identity of the file behind a loop device.
fn identity_behind(node: &Path) -> Option<Identity> {
    let device = rustix::fs::open(node, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut info = LoopInfo { device: 0, inode: 0, rest: [0; 27] };
    // SAFETY: the descriptor is open, and the call fills a structure of ours that is as long as the kernel's.
    let got = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64 as _, &raw mut info) };
    (got == 0).then(|| Identity { device: Number::decoded(info.device), inode: info.inode })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 232 bytes in `linux/loop.h`.
    const _: () = assert!(size_of::<LoopInfo>() == 232);

    #[test]
    fn a_device_number_is_read_as_the_kernel_writes_it() {
        for (device, major, minor) in [(0xfe00, 254, 0), (0x0801, 8, 1), (0x10_00_00 | 0x25 << 8 | 3, 37, 0x103)] {
            assert_eq!(Number::decoded(device), Number { major, minor }, "{device:#x}");
        }
    }

    #[test]
    fn a_disk_without_a_loop_device_stands_on_nothing() {
        let mut held = Vec::new();
        let ram = Number { major: 1, minor: 0 };
        assert!(lock_below(ram, 0..u64::MAX, Lock::Exclusive, &mut held).is_ok());
        assert!(held.is_empty());
    }
}
