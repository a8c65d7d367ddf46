//! The place of a partial parity log on a member that is in use.
//!
//! md finds the log by its superblock, anywhere on the member outside the data. mdadm puts it behind the superblock, where a
//! new array's bad-block log leaves it a megabyte. On a member of another policy that log is nearer, so the partial
//! parity log takes the first gap that is large enough, or the largest.
//!
//! Nothing here writes it. Facts: `super_1_load` in `drivers/md/md.c`, `ppl_validate_rdev` in `drivers/md/raid5-ppl.c`;
//! `docs/format.md`.

use super::{PplPlace, Superblock, area};
use crate::Defect;
use crate::partial_parity::HEADER_BYTES;
use crate::placement::{PARITY_LOG_SECTORS, PARITY_LOGS_SECTORS};
use crate::units::SECTOR_BYTES;

impl Superblock {
    /// The same superblock without a partial parity log.
    pub fn without_parity_log(&self) -> Self {
        Self { ppl: None, ..self.clone() }
    }

    /// The same superblock with a partial parity log instead of a bitmap.
    ///
    /// # Errors
    /// When no gap on the superblock's side of the data holds a chunk's log.
    pub fn with_parity_log(&self, member_bytes: u64) -> Result<Self, Defect> {
        let without = Self { bitmap: None, ppl: None, ..self.clone() };
        let gaps = area::gaps(&without);
        let length = |gap: &std::ops::Range<u64>| gap.end - gap.start;
        let enough = gaps.iter().find(|gap| length(gap) >= PARITY_LOG_SECTORS);
        let gap = enough.or_else(|| gaps.iter().max_by_key(|gap| length(gap)));
        let sectors = gap.map_or(0, length).min(PARITY_LOG_SECTORS);
        let least = (HEADER_BYTES as u64 + self.chunk.bytes()) / SECTOR_BYTES;
        let refused = |reason| Err(Defect::new("superblock.data_offset", reason));
        let Some(gap) = gap.filter(|_| sectors >= least) else {
            return refused(format!("room for {sectors} sectors beside the data, and a chunk's log takes {least}"));
        };
        // With 1.0 as near to the superblock as there is room.
        let start = if self.version.is_at_end() { gap.end - sectors } else { gap.start };
        let Ok(sectors_from_superblock) = i16::try_from(start as i64 - self.super_offset.0 as i64) else {
            return refused(format!("sector {start} is farther from the superblock than a superblock can say"));
        };
        let place =
            PplPlace { sectors_from_superblock, sectors: sectors as u16, multiple: sectors >= PARITY_LOGS_SECTORS };
        let changed = Self { ppl: Some(place), ..without };
        area::check(&changed, member_bytes)?;
        Ok(changed)
    }
}
