//! Members with fewer events than the others: how far each is behind, and where its data may differ.
//!
//! While an array lacks a member, the bitmap of the others keeps its bits, so that the member can come back with the
//! marked chunks alone. A bitmap says where two members differ if its bits were last cleared before either went on
//! without the other. The member's own bitmap adds what was being written when it left.
//!
//! It is pure: examinations in, values out. Their fields are a stable interface (`docs/json.md`).
//!
//! Facts: `drivers/md/md.c` (`super_1_validate` compares with `events_cleared`), `md-bitmap.c` (`need_sync`).

use crate::base::range_set::Ranges;
use crate::control::examined::Examination;
use crate::control::forced::duration;
use serde::Serialize;

/// The most ranges listed.
const RANGES_MAX: usize = 100;

/// A member with fewer events than another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Behind {
    /// Its name.
    pub name: String,
    /// Events that it lacks.
    pub events: u64,
    /// Seconds from the last update of its superblock to that of the freshest.
    pub seconds: u64,
    /// Where its data may differ; `None` where no bitmap says.
    pub differs: Option<Differs>,
}

/// Where a member's data may differ from the others'. Everything else is the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Differs {
    /// The member whose bitmap says it.
    pub by: String,
    /// The bytes that may differ: of each member, or of the array for RAID-10.
    pub bytes: u64,
    /// The first ranges, in whole chunks of the bitmap.
    pub ranges: Vec<Differing>,
    /// Ranges that are not listed.
    pub ranges_omitted: usize,
}

/// A range that may differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Differing {
    /// Its first byte.
    pub at: u64,
    /// Its length.
    pub bytes: u64,
}

impl Behind {
    /// The members of one array that lack more than one event, which older kernels accept.
    pub fn among(members: &[&Examination]) -> Vec<Self> {
        let active = || members.iter().filter(|member| member.role.starts_with("active"));
        let Some(best) = active().max_by_key(|member| member.events) else { return Vec::new() };
        let behind = active().filter(|own| best.events - own.events > 1);
        behind
            .map(|own| Self {
                name: own.name.clone(),
                events: best.events - own.events,
                seconds: best.updated.saturating_sub(own.updated),
                differs: Differs::find(own, best),
            })
            .collect()
    }

    /// `5 events and 3 d 4 h`
    pub fn distance(&self) -> String {
        format!("{} events and {}", self.events, duration(self.seconds))
    }
}

impl Differs {
    fn find(own: &Examination, best: &Examination) -> Option<Self> {
        let (mine, bitmap) = (own.bitmap.as_ref()?, best.bitmap.as_ref()?);
        let (mine, others) = (mine.dirty.as_ref()?, bitmap.dirty.as_ref()?);
        if bitmap.events_cleared > own.events {
            return None;
        }
        let all = Ranges::of(mine.ranges().iter().chain(others.ranges()).cloned());
        let listed = all.iter().take(RANGES_MAX);
        Some(Self {
            by: best.name.clone(),
            bytes: all.bytes(),
            ranges: listed.map(|range| Differing { at: range.start, bytes: range.end - range.start }).collect(),
            ranges_omitted: all.count().saturating_sub(RANGES_MAX),
        })
    }
}
