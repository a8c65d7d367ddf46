//! Many cases side by side in one array, each confined to a region of its own: so that one check and one repair, also the
//! real driver's, meet thousands at once.
//!
//! A region is as long on every member and holds whole stripes; so its bytes of the array lie together as well. Nothing is
//! read or written here: images come from whoever has the members.

use super::{BLOCK_BYTES, Images, Kind, Said, Shape, Tally, judge};
use format::geometry::Level;
use std::ops::Range;
use world::Random;

/// Bytes of a region on each member: whole stripes with chunks of 8 KiB, and with three copies over four members.
pub const REGION_BYTES: u64 = 48 << 10;

const BLOCKS: u64 = REGION_BYTES / BLOCK_BYTES;

/// What happens to the region of a number.
pub fn kind_of(region: u64) -> Kind {
    Kind::ALL[region as usize % Kind::ALL.len()]
}

/// Bytes of the array that a region holds.
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

/// What becomes of a region of members that hold `right`, and held `older` before.
pub fn spoil(right: &Images, older: &Images, region: u64, seed: u64) -> Images {
    let mut random = Random::new(seed ^ region.rotate_left(32));
    kind_of(region).spoil(&part(right, region), &part(older, region), &mut random)
}

/// What came of a region: of members that held `right` and were `spoiled`, of which a check `said` something without
/// changing anything, and which a repair left as `healed`.
pub fn judge_region(right: &Images, spoiled: &Images, said: &Said, healed: &Images, region: u64) -> Tally {
    let said = said.within(region * BLOCKS..(region + 1) * BLOCKS);
    let spoiled = part(spoiled, region);
    judge(&part(right, region), &spoiled, &said, &spoiled, &part(healed, region))
}
