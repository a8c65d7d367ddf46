//! Checks that an array's parts fall on the logical blocks of its members, so that every transfer is of whole
//! blocks.
//!
//! An image made on 512-byte blocks may be moved to a device with blocks of 4096 bytes. Data that begins or
//! ends within a block then needs a read-modify-write of the block, and a superblock that shares a block with
//! the bitmap would overwrite it. Such arrays are refused.
//!
//! It is pure: sizes in, a refusal out. Facts: the members' limits, and `logical_block_size` of the
//! superblock (Linux 6.19).

use crate::seam::error::Refusal;
use crate::seam::member::{Limits, Member};
use format::geometry::{Geometry, Level};
use format::superblock::{PLACE_BYTES, Superblock};

/// A member's name, limits and superblock.
pub(crate) type Party<'a> = (&'a str, &'a Limits, Superblock);

/// The unit of all data transfers: the largest logical block of any member.
pub(crate) fn largest_block<'a, M: Member>(members: impl Iterator<Item = &'a M>) -> u64 {
    members.map(|member| u64::from(member.limits().logical_block_bytes)).max().unwrap_or(512).max(512)
}

/// The array's logical block as its superblock gives it, in bytes; 1 where it gives none.
///
/// # Errors
/// A size that Linux refuses: it takes powers of two from 512 bytes to a page.
pub(crate) fn noted_block(superblock: &Superblock) -> Result<u64, String> {
    match superblock.logical_block_bytes {
        0 => Ok(1),
        bytes if bytes.is_power_of_two() && (512..=PLACE_BYTES as u32).contains(&bytes) => Ok(bytes.into()),
        bytes => Err(format!("{bytes} is not a power of two from 512 to {PLACE_BYTES}")),
    }
}

/// Refuses data that does not fall on `block_bytes`, the largest block, and metadata that does not fall on
/// the member's own. Metadata is checked only when it will be written.
pub(crate) fn check_blocks<'a>(
    geometry: &Geometry,
    block_bytes: u64,
    parties: impl Iterator<Item = Party<'a>>,
    is_written: bool,
) -> Result<(), Refusal> {
    let advice = "open the members without direct I/O, or make the array with larger units";
    if block_bytes > PLACE_BYTES {
        return Err(Refusal::new(format!("logical blocks of {block_bytes} bytes, more than {PLACE_BYTES}")));
    }
    for (name, limits, superblock) in parties {
        let own = u64::from(limits.logical_block_bytes);
        let mut places = vec![
            ("superblock.data_offset", superblock.data_at().0, block_bytes),
            ("superblock.size", joint(&superblock), block_bytes),
        ];
        if is_written {
            places.push(("superblock.super_offset", superblock.super_at().0, own));
            places.extend(superblock.bitmap_at().map(|at| ("superblock.bitmap_offset", at.0, own)));
        }
        if let Some((field, bytes, unit)) = places.into_iter().find(|(_, bytes, unit)| !bytes.is_multiple_of(*unit)) {
            let reason = format!("byte {bytes} is not a multiple of the members' {unit}-byte blocks");
            return Err(Refusal::new(reason).of(name).field(field).advice(advice));
        }
    }
    if !geometry.array_bytes().is_multiple_of(block_bytes) {
        let reason = format!("{} bytes of array are not whole {block_bytes}-byte blocks", geometry.array_bytes());
        return Err(Refusal::new(reason).field("superblock.size").advice(advice));
    }
    Ok(())
}

/// The unit after which the array's data goes on at the next member.
fn joint(superblock: &Superblock) -> u64 {
    let chunk = superblock.chunk.bytes();
    match superblock.level {
        Level::Linear => superblock.data_bytes() / chunk.max(1) * chunk.max(1),
        Level::Raid1 => 0,
        Level::Raid0 | Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => chunk,
    }
}
