//! The chunks that a returning member's own bitmap names: they were being written to on that member. The array's
//! bitmap may have cleared those bits since, or never had them.
//!
//! A returning member lacks what the array's bitmap names. What only that member has, the array's bitmap cannot name.
//! So both are united before the member takes its slot. If the member's bits cannot be read, or are older than its
//! superblock, everything counts as named, and the recovery is a full one. Nothing is written here.

use crate::core::metadata_lock::MetadataGuard;
use crate::metadata::bitmap::load::read_bitmap;
use crate::metadata::state::Metadata;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use format::bitmap::{BitmapSuper, State};
use format::superblock::Superblock;
use std::ops::Range;

/// Byte ranges of what a bitmap covers.
#[derive(Debug, Clone)]
pub(crate) struct Named(Vec<Range<u64>>);

impl Named {
    /// All that the bitmap on `member` names; nothing if its superblock has no bitmap.
    pub(crate) async fn by<M: Member>(
        name: &str,
        member: &M,
        superblock: &Superblock,
        pool: &crate::base::buffer::Pool,
    ) -> Self {
        match read_bitmap(name, member, superblock, pool).await {
            Ok(None) => Self(Vec::new()),
            Ok(Some((header, map))) => Self::current(&header, &map.set(), superblock).unwrap_or_else(Self::everything),
            Err(_) => Self::everything(),
        }
    }

    fn everything() -> Self {
        Self(std::iter::once(0..u64::MAX).collect())
    }

    /// All that a bitmap names beside this superblock; `None` if everything counts as named.
    pub(crate) fn current(header: &BitmapSuper, map: &[u8], superblock: &Superblock) -> Option<Self> {
        is_current(header, superblock).then(|| Self::of(header, map))
    }

    /// The named ranges, ascending.
    pub(crate) fn ranges(&self) -> &[Range<u64>] {
        &self.0
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
    /// Sets the bits of the named ranges. The next round of superblocks writes them.
    pub(crate) fn note_named(&self, _guard: &MetadataGuard<'_>, named: &Named) {
        for range in &named.0 {
            drop((!mutant!("own-bits-ignored")).then(|| self.note_covered(range.clone())));
        }
    }
}
