//! Silent corruption of every kind, and what a scrub makes of it.
//!
//! A case is an array with contents of its own, on whose members a few bytes
//! change without anybody being told; then a check, which must write nothing and
//! explain everything, and a repair; with checksums on the members or without. What is compared is every block of 4 KiB of
//! every member: with what it held before, and with what the scrub said of it.
//! The same seed makes the same case.
//!
//! What must hold, whatever the level: a wrong block is named, or its row is
//! called undecidable; no healthy block is named, and none is changed; what was
//! named is healed; what is undecidable, or lost for want of others, is as it was found. One thing nothing
//! but checksums can see: blocks of RAID-5 that were exchanged within their row.

mod case;
mod kinds;
pub mod regions;

pub use kinds::Kind;

pub use case::{run, run_case};

use engine::{FindingVerdict, ScrubReport};
use format::geometry::Level;
use std::collections::BTreeSet;
use std::ops::{AddAssign, Range};

/// The unit in which blocks are compared.
pub const BLOCK_BYTES: u64 = 4096;

/// An array to be corrupted.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// For people.
    pub name: &'static str,
    /// The level.
    pub level: Level,
    /// In the level's own coding.
    pub layout: u32,
    /// Number of members.
    pub slots: u16,
    /// 0 for RAID-1.
    pub chunk_bytes: u64,
    /// Whether checksums are kept.
    pub integrity: bool,
}

impl Shape {
    /// Bytes used of each member.
    pub const COMPONENT_BYTES: u64 = 192 << 10;
}

const fn shape(name: &'static str, level: Level, layout: u32, slots: u16, chunk_bytes: u64) -> Shape {
    Shape { name, level, layout, slots, chunk_bytes, integrity: false }
}

/// The arrays in which members can be convicted by what the others hold, and RAID-5, in which none can.
pub const SHAPES: [Shape; 5] = [
    shape("RAID-1, 3 copies", Level::Raid1, 0, 3, 0),
    shape("RAID-5", Level::Raid5, 2, 5, 8 << 10),
    shape("RAID-6", Level::Raid6, 2, 6, 8 << 10),
    shape("RAID-10, 3 near copies", Level::Raid10, 0x103, 4, 8 << 10),
    shape("RAID-10, 3 far copies", Level::Raid10, 0x301, 5, 8 << 10),
];

const fn sure(name: &'static str, level: Level, layout: u32, slots: u16, chunk_bytes: u64) -> Shape {
    Shape { integrity: true, ..shape(name, level, layout, slots, chunk_bytes) }
}

/// The arrays in which checksums convict, so that two copies or one parity are enough.
pub const SURE_SHAPES: [Shape; 4] = [
    sure("RAID-1, 2 copies", Level::Raid1, 0, 2, 0),
    sure("RAID-5", Level::Raid5, 2, 5, 8 << 10),
    sure("RAID-6", Level::Raid6, 2, 6, 8 << 10),
    sure("RAID-10, 2 near copies", Level::Raid10, 0x102, 4, 8 << 10),
];

/// What came of cases, in blocks of 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Cases.
    pub cases: u64,
    /// Blocks that were made wrong.
    pub wrong: u64,
    /// Of these, named as wrong.
    pub named: u64,
    /// Named as wrong, and as beyond what the others can make good.
    pub lost: u64,
    /// Not named, but in a row that was called undecidable.
    pub undecidable: u64,
    /// Neither.
    pub missed: u64,
    /// Healthy blocks that were named as wrong.
    pub accused: u64,
    /// Wrong blocks that a repair made right.
    pub healed: u64,
    /// Healthy blocks that it changed.
    pub damaged: u64,
    /// Wrong blocks that it changed into something else that is wrong.
    pub botched: u64,
    /// Cases in which the check wrote to a member.
    pub touched: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.cases += other.cases;
        self.wrong += other.wrong;
        self.named += other.named;
        self.lost += other.lost;
        self.undecidable += other.undecidable;
        self.missed += other.missed;
        self.accused += other.accused;
        self.healed += other.healed;
        self.damaged += other.damaged;
        self.botched += other.botched;
        self.touched += other.touched;
    }
}

impl Tally {
    /// Whether all that must hold did: see the head of this module.
    pub fn is_honest(&self) -> bool {
        self.missed + self.accused + self.damaged + self.botched + self.touched == 0 && self.healed == self.named
    }

    /// Whether all that must hold did, and as much was decided as such an array allows of such cases.
    pub fn is_as_good_as_can_be(mut self, shape: &Shape, kind: Kind) -> bool {
        if !shape.integrity && (shape.level, kind) == (Level::Raid5, Kind::Exchanged) {
            // The sum of blocks does not know where they are: nothing but checksums can.
            if self.missed != self.wrong {
                return false;
            }
            (self.wrong, self.missed) = (0, 0);
        }
        let is_alone = !matches!(kind, Kind::Exchanged | Kind::Everywhere);
        let is_lost = kind == Kind::Everywhere || (kind == Kind::Exchanged && shape.level == Level::Raid5);
        let decided = (self.named, self.lost, self.undecidable);
        let is_decided = match (shape.integrity, shape.level) {
            (true, _) if is_lost => decided == (0, self.wrong, 0),
            (true, _) => decided == (self.wrong, 0, 0),
            (false, Level::Raid5) => decided == (0, 0, self.wrong),
            (false, _) => !is_alone || self.named == self.wrong,
        };
        self.is_honest() && is_decided
    }
}

/// A block of a member: slot, and the block's number in its data.
pub(crate) type Place = (u16, u64);

/// The data areas of all members.
pub type Images = Vec<Vec<u8>>;

/// What a check said of blocks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Said {
    decided: BTreeSet<Place>,
    lost: BTreeSet<Place>,
    undecidable: BTreeSet<Place>,
}

impl Said {
    /// Takes in a report on members whose data begins at `data_at`.
    ///
    /// # Panics
    /// When it does not list all that it found.
    pub fn add(&mut self, report: &ScrubReport, data_at: u64) {
        assert_eq!(report.found.findings_omitted, 0, "a report must list everything to be judged");
        for finding in &report.found.findings {
            let places = match finding.verdict {
                FindingVerdict::Decided(_) => &mut self.decided,
                FindingVerdict::Lost => &mut self.lost,
                FindingVerdict::Undecidable => &mut self.undecidable,
            };
            for part in &finding.members {
                let start = (part.member_at - data_at) / BLOCK_BYTES;
                places.extend((start..start + part.bytes / BLOCK_BYTES).map(|number| (part.slot, number)));
            }
        }
    }

    /// What it said of a range of blocks, counted from there.
    fn within(&self, range: Range<u64>) -> Self {
        let of = |places: &BTreeSet<Place>| {
            let is_within = |(_, number): &&Place| range.contains(number);
            places.iter().filter(is_within).map(|&(slot, number)| (slot, number - range.start)).collect()
        };
        Self { decided: of(&self.decided), lost: of(&self.lost), undecidable: of(&self.undecidable) }
    }
}

/// Blocks in which two images differ.
fn different(a: &Images, b: &Images) -> BTreeSet<Place> {
    let block = BLOCK_BYTES as usize;
    let of_member = |(slot, (a, b)): (u16, (&Vec<u8>, &Vec<u8>))| {
        let pairs = a.chunks(block).zip(b.chunks(block)).enumerate();
        pairs.filter(|(_, (a, b))| a != b).map(|(number, _)| (slot, number as u64)).collect::<Vec<_>>()
    };
    (0..).zip(a.iter().zip(b)).flat_map(of_member).collect()
}

/// Holds what was said and healed against what was right and what was spoiled.
fn judge(right: &Images, spoiled: &Images, said: &Said, after_check: &Images, healed: &Images) -> Tally {
    let wrong = different(right, spoiled);
    let Said { decided, lost, undecidable } = said;
    let is_accused = |place: &Place| decided.contains(place) || lost.contains(place);
    let (still_wrong, changed) = (different(right, healed), different(spoiled, healed));
    let count =
        |places: &BTreeSet<Place>, is: &dyn Fn(&Place) -> bool| places.iter().filter(|place| is(place)).count() as u64;
    Tally {
        cases: 1,
        wrong: wrong.len() as u64,
        named: count(&wrong, &|place| decided.contains(place)),
        lost: count(&wrong, &|place| !decided.contains(place) && lost.contains(place)),
        undecidable: count(&wrong, &|place| !is_accused(place) && undecidable.contains(place)),
        missed: count(&wrong, &|place| !is_accused(place) && !undecidable.contains(place)),
        accused: count(&decided.union(lost).copied().collect(), &|place| !wrong.contains(place)),
        healed: count(&wrong, &|place| !still_wrong.contains(place)),
        damaged: count(&changed, &|place| !wrong.contains(place)),
        botched: count(&changed, &|place| wrong.contains(place) && still_wrong.contains(place)),
        touched: u64::from(after_check != spoiled),
    }
}
