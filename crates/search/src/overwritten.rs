//! What md wrote on a member: superblocks at their places, and the areas that they name.
//!
//! `mdadm --create` writes these over whatever an older array had there. So they are neither data nor evidence, and a
//! shape in which they lie inside the data has lost these bytes.

use crate::crc::BLOCK;
use disk::Source;
use format::bitmap::BitmapSuper;
use format::superblock::{PLACE_BYTES, Superblock, decode, places};
use std::ops::Range;

/// Bytes of a bitmap that decide its length.
const BITMAP_HEAD_BYTES: usize = 256;

/// The blocks of `disk` in which superblocks of md, their bitmaps and their logs are.
pub(crate) async fn by_md<S: Source>(disk: &S) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    for (version, at) in places(disk.bytes()) {
        let Ok(bytes) = disk.read(at.0, PLACE_BYTES as usize).await else { continue };
        match decode(version, at, &bytes, disk.bytes()) {
            Ok(None) => {}
            Ok(Some(superblock)) => found.extend(areas(&superblock, disk).await.into_iter().map(in_blocks)),
            // The magic number is there: md wrote it, whatever became of it since.
            Err(_) => found.push(in_blocks(at.0..at.0 + PLACE_BYTES)),
        }
    }
    found
}

/// The bytes of the superblock and of what it names.
async fn areas<S: Source>(superblock: &Superblock, disk: &S) -> Vec<Range<u64>> {
    let from = |at: u64, bytes: u64| at..at.saturating_add(bytes);
    let sectors = |count: u16| u64::from(count) * format::units::SECTOR_BYTES;
    let mut areas = vec![from(superblock.super_at().0, PLACE_BYTES)];
    if let (Some(at), Some(log)) = (superblock.bad_blocks_at(), superblock.bad_blocks) {
        areas.push(from(at.0, sectors(log.sectors)));
    }
    if let (Some(at), Some(log)) = (superblock.ppl_at(), superblock.ppl) {
        areas.push(from(at.0, sectors(log.sectors)));
    }
    if let (Some(at), Some(room)) = (superblock.bitmap_at(), superblock.bitmap_room(disk.bytes())) {
        let head = disk.read(at.0, BITMAP_HEAD_BYTES).await.unwrap_or_default();
        let bytes = BitmapSuper::decode(&head, room).map_or(PLACE_BYTES, |bitmap| bitmap.bytes_on_disk(room));
        areas.push(from(at.0, bytes));
    }
    areas
}

fn in_blocks(bytes: Range<u64>) -> Range<u64> {
    bytes.start / BLOCK as u64..bytes.end.div_ceil(BLOCK as u64)
}
