//! Finds out what a file or block device supports and prefers. It never changes data.
//!
//! Facts come from the file's status (on Linux its alignment, from 6.1 on), and from what the system says of its disks.
//! Where none of them tells, the conservative value is used.

use super::{Direct, OpenOptions, Part, SECTOR_BYTES};
use crate::system::disk::{FILES_HAVE_HOLES, device_limits, file_alignment, is_in_memory, set_direct, spare_cache};
use crate::system::status::{Status, status};
use engine::Limits;
use std::io;
use std::os::fd::OwnedFd;

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
    /// Whether its file system is in memory.
    pub(super) is_in_memory: bool,
}

/// Determines the limits, and turns `O_DIRECT` on where possible.
pub(super) fn probe(fd: &OwnedFd, is_block_device: bool, options: &OpenOptions) -> io::Result<Probed> {
    let status = status(fd)?;
    let mut limits =
        if is_block_device { device_limits(fd, &status, options.read_only)? } else { file_limits(&status, options) };
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
                is_in_memory: false,
            })
        }
        _ => {
            if options.direct == Direct::Auto {
                spare_cache(fd);
            }
            let is_in_memory = !is_block_device && is_in_memory(fd);
            Ok(Probed { limits, is_direct: false, short_end, part_at, is_in_memory })
        }
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
        discards: FILES_HAVE_HOLES && !options.read_only,
        discards_to_zeros: FILES_HAVE_HOLES && !options.read_only,
        volatile_cache: true,
    }
}
