//! Silent corruption of every kind, and what a scrub makes of it.
//!
//! A case is an array with random contents, with or without checksums. Some bytes of its members change silently. A
//! check follows, which must write nothing and account for every wrong block; then a repair. Every block of 4 KiB of
//! every member is compared with what it held before the corruption and with the report of the scrub. The same seed
//! makes the same case.
//!
//! At every level these rules must hold. A wrong block is named, or its row is reported as undecidable. No healthy
//! block is named or changed. Every block named as decided is healed. Blocks reported as undecidable, or as lost
//! because too much of the row is wrong, stay as they were found. There is one exception: RAID-5 without checksums
//! cannot see blocks that changed places within a row.

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

/// The array of a case.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The name in tables.
    pub name: &'static str,
    /// The level.
    pub level: Level,
    /// The level's own code.
    pub layout: u32,
    /// The number of members.
    pub slots: u16,
    /// 0 for RAID-1.
    pub chunk_bytes: u64,
    /// Whether the members hold checksums.
    pub integrity: bool,
}

impl Shape {
    /// Bytes used of each member.
    pub const COMPONENT_BYTES: u64 = 192 << 10;
}

const fn shape(name: &'static str, level: Level, layout: u32, slots: u16, chunk_bytes: u64) -> Shape {
    Shape { name, level, layout, slots, chunk_bytes, integrity: false }
}

/// Arrays without checksums. Redundancy can identify the wrong block in all of them but RAID-5.
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

/// Arrays with checksums, which identify the wrong block, so that two copies or one parity are enough.
pub const SURE_SHAPES: [Shape; 4] = [
    sure("RAID-1, 2 copies", Level::Raid1, 0, 2, 0),
    sure("RAID-5", Level::Raid5, 2, 5, 8 << 10),
    sure("RAID-6", Level::Raid6, 2, 6, 8 << 10),
    sure("RAID-10, 2 near copies", Level::Raid10, 0x102, 4, 8 << 10),
];

/// The outcome of cases, in blocks of 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// The number of cases.
    pub cases: u64,
    /// Corrupted blocks.
    pub wrong: u64,
    /// Corrupted blocks that the check named as wrong.
    pub named: u64,
    /// Corrupted blocks that the check named as wrong and as lost, since the rest of the row cannot restore them.
    pub lost: u64,
    /// Corrupted blocks that were not named, in rows reported as undecidable.
    pub undecidable: u64,
    /// Corrupted blocks that the check did not report at all.
    pub missed: u64,
    /// Healthy blocks that the check named as wrong.
    pub accused: u64,
    /// Corrupted blocks that the repair restored.
    pub healed: u64,
    /// Healthy blocks that the repair changed.
    pub damaged: u64,
    /// Corrupted blocks that the repair changed to other wrong contents.
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
    /// Whether the rules at the head of this module were kept.
    pub fn is_honest(&self) -> bool {
        self.missed + self.accused + self.damaged + self.botched + self.touched == 0 && self.healed == self.named
    }

    /// Whether the rules were kept, and as many blocks were decided as the array allows for this kind.
    pub fn is_as_good_as_can_be(mut self, shape: &Shape, kind: Kind) -> bool {
        if !shape.integrity && (shape.level, kind) == (Level::Raid5, Kind::Exchanged) {
            // P is a sum that does not depend on the order of blocks: only checksums can see this.
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

/// A block of a member: the slot, and the block's number in the data area.
pub(crate) type Place = (u16, u64);

/// The data areas of all members.
pub type Images = Vec<Vec<u8>>;

/// The blocks that a check reported.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Said {
    decided: BTreeSet<Place>,
    lost: BTreeSet<Place>,
    undecidable: BTreeSet<Place>,
}

impl Said {
    /// Adds a report on members whose data begins at `data_at`.
    ///
    /// # Panics
    /// If the report omits findings.
    pub fn add(&mut self, report: &ScrubReport, data_at: u64) {
        assert_eq!(report.found.findings_omitted, 0, "a report must list everything to be judged");
        for finding in &report.found.findings {
            let places = match finding.verdict {
                FindingVerdict::Decided(_) => &mut self.decided,
                FindingVerdict::Lost => &mut self.lost,
                FindingVerdict::Undecidable => &mut self.undecidable,
            };
            for part in &finding.members {
                let within = part.member_at.checked_sub(data_at).expect("a finding lies in the data area");
                let start = within / BLOCK_BYTES;
                places.extend((start..start + part.bytes / BLOCK_BYTES).map(|number| (part.slot, number)));
            }
        }
    }

    /// The part about a range of blocks, numbered from the start of the range.
    fn within(&self, range: Range<u64>) -> Self {
        let of = |places: &BTreeSet<Place>| {
            let is_within = |(_, number): &&Place| range.contains(number);
            places.iter().filter(is_within).map(|&(slot, number)| (slot, number - range.start)).collect()
        };
        Self { decided: of(&self.decided), lost: of(&self.lost), undecidable: of(&self.undecidable) }
    }
}

/// The blocks in which two images differ.
fn different(a: &Images, b: &Images) -> BTreeSet<Place> {
    let block = BLOCK_BYTES as usize;
    let of_member = |(slot, (a, b)): (u16, (&Vec<u8>, &Vec<u8>))| {
        let pairs = a.chunks(block).zip(b.chunks(block)).enumerate();
        pairs.filter(|(_, (a, b))| a != b).map(|(number, _)| (slot, number as u64)).collect::<Vec<_>>()
    };
    (0..).zip(a.iter().zip(b)).flat_map(of_member).collect()
}

/// Compares the report and the repair with the data before and after the corruption.
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
