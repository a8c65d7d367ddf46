//! Finds out what a file or block device supports and prefers. It never changes data.
//!
//! Facts come from the file's status (its alignment from Linux 6.1 on), the block layer's ioctls, and `/sys/dev/block/*/queue`.
//! Where none of them tells, the conservative value is used.

use super::status::{Status, status};
use super::{Direct, OpenOptions, Part};
use engine::Limits;
use rustix::fs::{OFlags, SeekFrom};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The unit of md's format, in bytes, and the block size of a file without an alignment.
const SECTOR_BYTES: u32 = 512;

/// The alignment of buffers, in bytes. A file that needs more is not opened for direct I/O.
const BUFFER_ALIGNMENT: u32 = engine::buffer::ALIGNMENT as u32;

#[derive(Debug)]
pub(super) struct Probed {
    pub(super) limits: Limits,
    pub(super) is_direct: bool,
    /// The file's own length, if it is treated as longer.
    pub(super) short_end: Option<u64>,
    /// Where the member begins, if it is a part.
    pub(super) part_at: Option<u64>,
}

/// Determines the limits, and turns `O_DIRECT` on where possible.
pub(super) fn probe(fd: &OwnedFd, is_block_device: bool, options: &OpenOptions) -> io::Result<Probed> {
    let status = status(fd)?;
    let mut limits = if is_block_device { device_limits(fd, &status, options)? } else { file_limits(&status, options) };
    let mut short_end = None;
    if !is_block_device && options.whole_bytes > 0 {
        let end = std::mem::replace(&mut limits.bytes, status.bytes.next_multiple_of(options.whole_bytes));
        short_end = (end < limits.bytes).then_some(end);
    }
    let part_at = options.part.map(|part| part.at);
    if let Some(part) = options.part {
        limits.bytes = part_bytes(part, &limits)?;
    }
    let alignment = if is_block_device { Some(limits.logical_block_bytes) } else { file_alignment(&status) };
    // A partition of an old disk begins at sector 63; in an image on a file system that aligns to 4096, it is not direct.
    let is_aligned = |bytes: u32| part_at.unwrap_or(0).is_multiple_of(bytes.into());
    let alignment =
        alignment.filter(|bytes| bytes.is_power_of_two() && *bytes <= BUFFER_ALIGNMENT && is_aligned(*bytes));
    match (options.direct, alignment) {
        (Direct::Auto, Some(alignment)) if set_direct(fd) => {
            let logical_block_bytes = alignment.max(SECTOR_BYTES);
            let physical_block_bytes = limits.physical_block_bytes.max(logical_block_bytes);
            Ok(Probed {
                limits: Limits { logical_block_bytes, physical_block_bytes, ..limits },
                is_direct: true,
                short_end,
                part_at,
            })
        }
        _ => Ok(Probed { limits, is_direct: false, short_end, part_at }),
    }
}

/// The length of a part of a file or device with these limits.
fn part_bytes(part: Part, limits: &Limits) -> io::Result<u64> {
    let Part { at, bytes } = part;
    let unit = u64::from(limits.logical_block_bytes.max(SECTOR_BYTES));
    let refused = |reason: String| Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    if !at.is_multiple_of(unit) {
        return refused(format!("the part begins at byte {at}, inside a block of {unit} bytes"));
    }
    match limits.bytes.checked_sub(at) {
        None | Some(0) => refused(format!("the part begins at byte {at}, past the end at byte {}", limits.bytes)),
        Some(rest) => Ok(rest.min(bytes)),
    }
}

/// The current length of a file or device. Nothing in this crate uses the descriptor's position.
pub(super) fn length(fd: &impl AsFd) -> io::Result<u64> {
    Ok(rustix::fs::seek(fd, SeekFrom::End(0))?)
}

fn set_direct(fd: &OwnedFd) -> bool {
    rustix::fs::fcntl_getfl(fd).and_then(|flags| rustix::fs::fcntl_setfl(fd, flags | OFlags::DIRECT)).is_ok()
}

/// A regular file's limits without `O_DIRECT`.
fn file_limits(status: &Status, options: &OpenOptions) -> Limits {
    Limits {
        bytes: status.bytes,
        logical_block_bytes: SECTOR_BYTES,
        // The unit in which the file system writes. Some report no power of two.
        physical_block_bytes: (status.block_bytes.clamp(SECTOR_BYTES.into(), 1 << 20) as u32).next_power_of_two(),
        optimal_bytes: 0,
        longest_bytes: 0,
        synchronous: false,
        // Nearly every file system can punch holes. Any other reports that when asked.
        discards: !options.read_only,
        // fallocate(2): a hole reads as zeros, also one that is punched in a block device.
        discards_to_zeros: !options.read_only,
        volatile_cache: true,
    }
}

/// The alignment that `O_DIRECT` on a regular file needs, in bytes. `None` when it is unsupported or unknown.
fn file_alignment(status: &Status) -> Option<u32> {
    if let Some(direct) = status.direct {
        // Zero means that the file does not support it.
        return (direct.offset != 0).then_some(direct.offset.max(direct.memory));
    }
    // Before Linux 6.1: the block size of the underlying device, if there is just one.
    queue_number(status.device.0, status.device.1, "logical_block_size")?.try_into().ok()
}

fn device_limits(fd: &OwnedFd, status: &Status, options: &OpenOptions) -> io::Result<Limits> {
    let (major, minor) = status.own_device;
    let number = |name| queue_number(major, minor, name).unwrap_or(0);
    let logical_block_bytes = rustix::fs::ioctl_blksszget(fd)?.max(SECTOR_BYTES);
    // A hole is punched by write-zeroes (`blkdev_fallocate`), never by a discard without a guarantee.
    let discards = !options.read_only && number("write_zeroes_max_bytes") > 0;
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
