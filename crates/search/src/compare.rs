//! What is told of shapes that are not decided: where they read other bytes, and which has the newer file system.
//!
//! This is for the eyes of the user, and decides nothing: a file system that was written last may be the wrong one.

use crate::crc::BLOCK;
use crate::judge::{COMPARED_MAX, Candidate};
use crate::scan::Scan;
use std::collections::HashMap;

/// The bytes in which a shape reads something else than the first that is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// Bytes in blocks that differ: of very long arrays only those that were compared.
    pub bytes: u64,
    /// The first of these blocks, counted in bytes from the start of the array.
    pub at: u64,
}

/// How the file systems that a shape reads stand to those of the other shapes, by what their superblocks say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recency {
    /// No other shape has a newer one, and some have an older one.
    Newer,
    /// Another shape has a newer one, and none an older one.
    Older,
}

/// Where `other` reads something else than `first` in the first `blocks` blocks, as far as these were read.
pub(crate) fn difference(first: &Candidate, other: &Candidate, scan: &Scan, blocks: u64) -> Option<Difference> {
    let blocks = blocks.min(first.blocks()).min(other.blocks());
    let step = (blocks / COMPARED_MAX as u64).max(1);
    let differs = |block: &u64| match (first.reads(scan, *block), other.reads(scan, *block)) {
        (Some(first), Some(other)) => first != other,
        _ => false,
    };
    let mut differing = (0..blocks).step_by(step as usize).filter(differs);
    let at = differing.next()? * BLOCK as u64;
    Some(Difference { bytes: (1 + differing.count() as u64) * BLOCK as u64, at })
}

/// For each of `shapes`, how its file systems stand to those of the others.
pub(crate) fn recencies(shapes: &[Candidate], scan: &Scan) -> Vec<Option<Recency>> {
    let ages: Vec<HashMap<[u8; 16], u64>> = shapes.iter().map(|shape| ages(shape, scan)).collect();
    ages.iter()
        .map(|own| {
            let others = ages.iter().flatten();
            let against = others.filter_map(|(id, age)| Some((own.get(id)?, age)));
            let (newer, older) = against
                .fold((false, false), |(newer, older), (own, other)| (newer || own > other, older || own < other));
            match (newer, older) {
                (true, false) => Some(Recency::Newer),
                (false, true) => Some(Recency::Older),
                _ => None,
            }
        })
        .collect()
}

/// The file systems whose first superblock a member of `shape` holds, with the age that it states: greater is newer.
fn ages(shape: &Candidate, scan: &Scan) -> HashMap<[u8; 16], u64> {
    let mut ages = HashMap::new();
    for (id, age, disk) in scan.seen.ages() {
        if shape.order.contains(&Some(disk)) {
            let latest = ages.entry(id).or_insert(age);
            *latest = age.max(*latest);
        }
    }
    ages
}
