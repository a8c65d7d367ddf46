//! Thousands of cases side by side in one array, so that one check and one repair meet them all, also a repair by the
//! real driver.
//!
//! Each case is confined to a region. A region is a range of whole stripes, equally long on every member, so its bytes
//! of the array are contiguous too. This module reads and writes no members: the caller provides their images.

use super::{BLOCK_BYTES, Images, Kind, Said, Shape, Tally, judge};
use format::geometry::Level;
use std::ops::Range;
use world::Random;

/// Bytes of a region on each member. It is a multiple of the stripe for chunks of 8 KiB, also with three copies over
/// four members.
pub const REGION_BYTES: u64 = 48 << 10;

const BLOCKS: u64 = REGION_BYTES / BLOCK_BYTES;

/// The kind of corruption in a region.
pub fn kind_of(region: u64) -> Kind {
    Kind::ALL[region as usize % Kind::ALL.len()]
}

/// Bytes of the array in a region.
pub fn array_bytes(shape: &Shape) -> u64 {
    let slots = u64::from(shape.slots);
    match shape.level {
        Level::Raid5 => REGION_BYTES * (slots - 1),
        Level::Raid6 => REGION_BYTES * (slots - 2),
        Level::Raid10 => REGION_BYTES * slots / u64::from(shape.layout & 0xff),
        _ => REGION_BYTES,
    }
}

fn bytes_of(region: u64) -> Range<usize> {
    (region * REGION_BYTES) as usize..((region + 1) * REGION_BYTES) as usize
}

fn part(images: &Images, region: u64) -> Images {
    images.iter().map(|image| image[bytes_of(region)].to_vec()).collect()
}

/// The region's data on all members after its corruption. `right` is the data before it; `older` the data before the
/// last write.
pub fn spoil(right: &Images, older: &Images, region: u64, seed: u64) -> Images {
    let mut random = Random::new(seed ^ region.rotate_left(32));
    kind_of(region).spoil(&part(right, region), &part(older, region), &mut random)
}

/// Judges a region. `right` is the data before the corruption, `spoiled` after it, and `healed` after the repair; the
/// check changed nothing and `said` is its report.
pub fn judge_region(right: &Images, spoiled: &Images, said: &Said, healed: &Images, region: u64) -> Tally {
    let said = said.within(region * BLOCKS..(region + 1) * BLOCKS);
    let spoiled = part(spoiled, region);
    judge(&part(right, region), &spoiled, &said, &spoiled, &part(healed, region))
}
