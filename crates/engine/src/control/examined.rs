//! What one member's logs and reshape look like from outside: plain values, serializable, for `examine`. Their fields are a
//! stable interface (`docs/json.md`).
//!
//! Only reads. A log that cannot be read is left out: assembly names it and says why.

use crate::base::buffer::Pool;
use crate::control::inspect::{Found, read_bad_blocks};
use crate::control::status::{Examination, level_name};
use crate::metadata::bitmap::load::read_bitmap;
use crate::seam::member::Member;
use format::bitmap::SUPER_BYTES;
use format::superblock::Reshape;
use format::units::Sectors;
use serde::Serialize;

/// What stands in a member's write-intent bitmap.
#[derive(Debug, Clone, Serialize)]
pub struct BitmapExamined {
    /// Chunks noted as written to.
    pub set: u64,
    /// Chunks in all.
    pub bits: u64,
    /// Bytes that a bit stands for.
    pub chunk_bytes: u64,
    /// The count of metadata changes up to which it is kept.
    pub events: u64,
}

/// What stands in a member's bad-block log.
#[derive(Debug, Clone, Serialize)]
pub struct BadBlocksExamined {
    /// Places.
    pub ranges: usize,
    /// Bytes in all of them.
    pub bytes: u64,
}

/// How far a reshape has come, and what the array is to be.
#[derive(Debug, Clone, Serialize)]
pub struct ReshapeExamined {
    /// Bytes of the array that have the new shape; those before this one, or behind it where it runs backwards.
    pub position_bytes: u64,
    /// Whether it runs from the end to the start.
    pub backwards: bool,
    /// `raid6`; md's number where it is no level of md's own.
    pub new_level: String,
    /// Slots that it adds; negative where it takes some away.
    pub delta_disks: i32,
    /// The layout's code.
    pub new_layout: u32,
    /// Bytes in a chunk.
    pub new_chunk_bytes: u64,
}

impl ReshapeExamined {
    pub(crate) fn of(reshape: &Reshape) -> Self {
        let Reshape { position, new_level, delta_disks, new_layout, new_chunk, backwards } = *reshape;
        let level = reshape.level();
        Self {
            position_bytes: position.checked_bytes().unwrap_or(u64::MAX),
            backwards,
            new_level: level.map_or_else(|| new_level.to_string(), |level| level_name(level).to_owned()),
            delta_disks,
            new_layout,
            new_chunk_bytes: Sectors(new_chunk.into()).bytes(),
        }
    }
}

impl Examination {
    /// The same, with what the member's bitmap and bad-block log hold. What cannot be read of them is left out: assembly
    /// says why.
    pub async fn with_logs<M: Member>(mut self, member: &M, found: &Found, pool: &Pool) -> Self {
        let (name, superblock) = (self.name.clone(), &found.superblock);
        if let Ok(Some((header, image))) = read_bitmap(&name, member, superblock, pool).await {
            self.bitmap = Some(BitmapExamined {
                set: header.bits_set(&image[SUPER_BYTES..]),
                bits: header.bits(),
                chunk_bytes: header.chunk_bytes,
                events: header.events,
            });
        }
        if let (Some(_), Ok(bad)) = (superblock.bad_blocks_at(), read_bad_blocks(&name, member, superblock, pool).await)
        {
            let bytes = bad.iter().map(|range| range.end - range.start).sum();
            self.bad_blocks = Some(BadBlocksExamined { ranges: bad.len(), bytes });
        }
        self
    }
}
