//! What `examine` shows of one member's bitmap, bad-block log and reshape: plain, serializable values. Their
//! fields are a stable interface (`docs/json.md`).
//!
//! It only reads. A log that cannot be read is left out: assembly names it and says why.

use crate::base::buffer::Pool;
use crate::control::inspect::{Found, read_bad_blocks};
use crate::control::status::{Examination, level_name};
use crate::metadata::bitmap::load::read_bitmap;
use crate::seam::member::Member;
use format::bitmap::SUPER_BYTES;
use format::superblock::Reshape;
use format::units::Sectors;
use serde::Serialize;

/// The contents of a member's write-intent bitmap.
#[derive(Debug, Clone, Serialize)]
pub struct BitmapExamined {
    /// Chunks noted as written to.
    pub set: u64,
    /// Chunks in all.
    pub bits: u64,
    /// Bytes that a bit stands for.
    pub chunk_bytes: u64,
    /// The event count up to which the bitmap is current.
    pub events: u64,
}

/// The contents of a member's bad-block log.
#[derive(Debug, Clone, Serialize)]
pub struct BadBlocksExamined {
    /// Ranges in the log.
    pub ranges: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// How far a reshape has come, and the shape that it leads to.
#[derive(Debug, Clone, Serialize)]
pub struct ReshapeExamined {
    /// Position in the array: bytes before it have the new shape, or those behind it when the reshape runs
    /// backwards.
    pub position_bytes: u64,
    /// Whether it runs from the end to the start.
    pub backwards: bool,
    /// `raid6`; or md's number, where md has no name for it.
    pub new_level: String,
    /// Slots that it adds; negative where it removes some.
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
    /// Adds what the member's bitmap and bad-block log hold. A log that cannot be read is left out.
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
