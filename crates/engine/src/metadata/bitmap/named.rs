//! What the bitmap of a member that returns names by itself: chunks that were being written to on that member, whatever
//! the array's bitmap has forgotten since, or never knew.
//!
//! A member returns to lack what the array's bitmap names; what is on it alone, that bitmap cannot name. So both are united
//! before the member takes its slot. Bits that cannot be had, or are older than their member's superblock, say nothing:
//! then everything is named, and the recovery is a whole one. Nothing is written here.

use crate::metadata::Metadata;
use crate::metadata::bitmap::load::read_bitmap;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use format::bitmap::{BitmapSuper, SUPER_BYTES, State};
use format::superblock::Superblock;
use std::ops::Range;

/// Byte ranges of what a bitmap covers.
pub(crate) struct Named(Vec<Range<u64>>);

impl Named {
    /// All that the bitmap on `member` names; nothing where its superblock has none.
    pub(crate) async fn by<M: Member>(
        name: &str,
        member: &M,
        superblock: &Superblock,
        pool: &crate::base::buffer::Pool,
    ) -> Self {
        match read_bitmap(name, member, superblock, pool).await {
            Ok(None) => Self(Vec::new()),
            Ok(Some((header, image))) if is_current(&header, superblock) => Self::of(&header, &image[SUPER_BYTES..]),
            Ok(Some(_)) | Err(_) => Self(std::iter::once(0..u64::MAX).collect()),
        }
    }

    fn of(header: &BitmapSuper, map: &[u8]) -> Self {
        let end = header.sync_size.bytes();
        let next = |from: &u64| header.first_set(map, *from..end, end);
        let mut at = 0;
        Self(std::iter::from_fn(|| next(&at).inspect(|range| at = range.end)).collect())
    }
}

fn is_current(header: &BitmapSuper, superblock: &Superblock) -> bool {
    let is_out_of_date = header.state.contains(State::STALE) || header.state.contains(State::WRITE_ERROR);
    header.events >= superblock.events && !is_out_of_date
}

impl<M: Member, C: Clock> Metadata<M, C> {
    /// Sets the bits of what is named. The next round of superblocks takes them along; the caller holds the metadata lock.
    pub(crate) fn note_named(&self, named: &Named) {
        for range in &named.0 {
            drop((!mutant!("own-bits-ignored")).then(|| self.note_covered(range.clone())));
        }
    }
}
