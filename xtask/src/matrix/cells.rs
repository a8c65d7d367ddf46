//! The cells of the matrix: a fixed set that combines every value of every property with every layout, and random ones.
//!
//! The full product would have a hundred thousand cells. In the fixed set, each layout is combined with every number of
//! members left out that it survives. At a level with few layouts, each layout is also combined with every chunk size
//! of its origin; at a level with many, the level as a whole is (the step `geometry` checks where chunks are placed).
//! Metadata version, number of members, bitmap and members left out are chosen to cover the most pairs of values that
//! the level has not had yet. A level with many layouts continues until every pair is covered.

use std::collections::BTreeSet;

use super::cell::{Cell, Level, Origin, SHAPES, Shape};
use super::random::Random;

/// Metadata versions that the kernel creates. mdspace reads all of them, and creates those of version 1.
const METADATA: &[&str] = &["1.2", "1.0", "0.90", "1.1"];
const METADATA_MADE_HERE: &[&str] = &["1.2", "1.1", "1.0"];

/// Chunk sizes in KiB. Both sides create the smallest and the largest.
const CHUNKS_MADE_BY_KERNEL: &[u64] = &[4, 16, 64, 256, 1024];
const CHUNKS_MADE_HERE: &[u64] = &[4, 8, 32, 128, 512, 1024];

/// Version 0.90 has room for 27 devices. One stays free, because md gives a returning member a new number.
const MEMBERS_MAX_0_90: usize = 26;
const MEMBERS_MAX: usize = 32;

/// The fixed set.
pub(crate) fn fixed() -> Vec<Cell> {
    let levels: Vec<&[Shape]> = SHAPES.chunk_by(|one, other| one.level == other.level).collect();
    let origins = [Origin::Kernel, Origin::Here];
    let covering = levels.iter().flat_map(|shapes| origins.into_iter().flat_map(|origin| covering(origin, shapes)));
    let mut cells: Vec<Cell> = covering.chain(origins.into_iter().flat_map(extremes)).collect();
    // Without chunks, two turns may give the same cell.
    let mut seen = BTreeSet::new();
    cells.retain(|cell| seen.insert(cell.name()));
    cells
}

/// The cells of a level with these shapes: in each turn one of each shape. With few shapes there are as many turns as
/// chunk sizes. With many shapes, a cell that adds no pair is left out, and the turns end when every cell is.
fn covering(origin: Origin, shapes: &[Shape]) -> Vec<Cell> {
    let chunks = if origin == Origin::Kernel { CHUNKS_MADE_BY_KERNEL } else { CHUNKS_MADE_HERE };
    let are_few = shapes.len() < chunks.len();
    let (mut cells, mut met) = (Vec::new(), BTreeSet::new());
    for turn in 0.. {
        let before = cells.len();
        for (number, shape) in shapes.iter().enumerate() {
            let mut candidates = candidates(origin, shape, chunks[(number + turn) % chunks.len()]);
            // One of the equally good cells, not the same each time.
            let first = (number + turn) % candidates.len();
            candidates.rotate_left(first);
            let news = |cell: &Cell| pairs(cell).iter().filter(|pair| !met.contains(*pair)).count();
            let most = candidates.iter().map(news).max();
            let best = candidates.into_iter().find(|cell| Some(news(cell)) == most).expect("there are some");
            if are_few || most > Some(0) {
                met.extend(pairs(&best));
                cells.push(best);
            }
        }
        let is_last = if are_few { turn + 1 == chunks.len() } else { cells.len() == before };
        if is_last {
            break;
        }
    }
    cells
}

/// All cells of a shape with few members.
fn candidates(origin: Origin, shape: &Shape, chunk: u64) -> Vec<Cell> {
    let versions = if origin == Origin::Kernel { METADATA } else { METADATA_MADE_HERE };
    let mut cells = Vec::new();
    for (turn, members) in
        (0..versions.len()).flat_map(|turn| (shape.members.0..=shape.members.1).map(move |n| (turn, n)))
    {
        for (bitmap, absent) in [false, true].into_iter().flat_map(|bitmap| (0..=2).map(move |absent| (bitmap, absent)))
        {
            let metadata = metadata_at(origin, shape, turn);
            cells.push(Cell::new(origin, shape, chunk, metadata, members, bitmap, absent));
        }
    }
    cells
}

/// A pair of values in a cell of a level and origin: the pairs to be covered.
type Pair = (Origin, Level, String, String);

fn pairs(cell: &Cell) -> Vec<Pair> {
    let values = [
        format!("metadata {}", cell.metadata),
        format!("{} members", cell.members),
        format!("bitmap {}", cell.bitmap),
        format!("less {}", cell.absent),
    ];
    let pair = |one: &str, other: &str| (cell.origin, cell.level, one.to_owned(), other.to_owned());
    let [layout, chunk] = [format!("layout {:?}", cell.layout), format!("chunk {:?}", cell.chunk_kib)];
    let mut pairs = vec![pair(&layout, &format!("less {}", cell.absent)), pair(&chunk, "this level")];
    for (index, one) in values.iter().enumerate() {
        pairs.extend(values[index + 1..].iter().map(|other| pair(one, other)));
    }
    pairs
}

/// Cells outside this scheme: many members, two members, a chunk that is no power of two.
fn extremes(origin: Origin) -> Vec<Cell> {
    let find = |level: Level, layout: Option<&str>| {
        SHAPES.iter().find(|shape| shape.level == level && shape.layout == layout).expect("the shape is in the table")
    };
    let ls = Some("left-symmetric");
    let mut cells = vec![
        Cell::new(origin, find(Level::Raid0, None), 12, "1.2", 3, false, 0),
        Cell::new(origin, find(Level::Raid0, None), 64, "1.2", MEMBERS_MAX, false, 0),
        Cell::new(origin, find(Level::Raid1, None), 64, "1.2", 8, true, 2),
        Cell::new(origin, find(Level::Raid5, ls), 64, "1.2", 2, false, 1),
        Cell::new(origin, find(Level::Raid5, ls), 64, "1.2", MEMBERS_MAX, true, 0),
        Cell::new(origin, find(Level::Raid5, ls), 16, "1.0", MEMBERS_MAX, false, 1),
        Cell::new(origin, find(Level::Raid6, ls), 64, "1.2", MEMBERS_MAX, false, 2),
        Cell::new(origin, find(Level::Raid6, ls), 4, "1.1", MEMBERS_MAX, true, 0),
        Cell::new(origin, find(Level::Raid10, Some("n2")), 64, "1.2", MEMBERS_MAX, false, 1),
        Cell::new(origin, find(Level::Raid10, Some("f2")), 64, "1.2", MEMBERS_MAX - 1, false, 0),
        Cell::new(origin, find(Level::Raid10, Some("o2")), 64, "1.2", MEMBERS_MAX - 1, false, 1),
    ];
    if origin == Origin::Kernel {
        cells.push(Cell::new(origin, find(Level::Raid6, ls), 64, "0.90", MEMBERS_MAX_0_90, false, 1));
    }
    cells
}

/// `count` cells of the full product, determined by `seed`.
pub(crate) fn random(seed: u64, count: usize) -> Vec<Cell> {
    let mut random = Random::new(seed);
    (0..count)
        .map(|_| {
            let origin = *random.choose(&[Origin::Kernel, Origin::Here]);
            let shape = random.choose(SHAPES);
            let metadata = metadata_at(origin, shape, random.below(64) as usize);
            let most = if metadata == "0.90" { MEMBERS_MAX_0_90 } else { MEMBERS_MAX };
            // Most cells have few members; one in eight has any number.
            let (least, most) = if random.below(8) == 0 { (shape.members.0, most) } else { (shape.members.0, 8) };
            let members = least + random.below((most - least + 1) as u64) as usize;
            let chunk = if members > 8 { 64 } else { 4 << random.below(9) };
            let (bitmap, absent) = (random.below(2) == 0, random.below(3) as usize);
            Cell::new(origin, shape, chunk, metadata, members, bitmap, absent)
        })
        .collect()
}

/// `count` cells of each level, or as many as there are, determined by `seed`.
pub(crate) fn sample(mut cells: Vec<Cell>, count: usize, seed: u64) -> Vec<Cell> {
    let mut random = Random::new(seed);
    cells.sort_by_key(|cell| cell.level);
    let mut chosen = Vec::new();
    for level in cells.chunk_by(|one, other| one.level == other.level) {
        let places = random.subset(count.min(level.len()), level.len());
        chosen.extend(places.into_iter().map(|place| level[place].clone()));
    }
    chosen
}

fn metadata_at(origin: Origin, shape: &Shape, turn: usize) -> &'static str {
    let versions = if origin == Origin::Kernel { METADATA } else { METADATA_MADE_HERE };
    let version = versions[turn % versions.len()];
    // Version 0.90 cannot record which of RAID-0's two layouts an array has, and mdadm refuses to create one.
    if shape.level == Level::Raid0 && version == "0.90" { "1.2" } else { version }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn the_fixed_cells_cover_every_value() {
        let cells = fixed();
        for origin in [Origin::Kernel, Origin::Here] {
            let mine: Vec<&Cell> = cells.iter().filter(|cell| cell.origin == origin).collect();
            for shape in SHAPES {
                let of_this = |cell: &&&Cell| (cell.level, cell.layout) == (shape.level, shape.layout);
                let met: BTreeSet<usize> = mine.iter().filter(of_this).map(|cell| cell.absent).collect();
                let can_be = candidates(origin, shape, 64).iter().map(|cell| cell.absent).collect();
                assert_eq!(met, can_be, "{origin:?} {:?} {:?}", shape.level, shape.layout);
            }
            let chunks = if origin == Origin::Kernel { CHUNKS_MADE_BY_KERNEL } else { CHUNKS_MADE_HERE };
            for shape in SHAPES.iter().filter(|shape| matches!(shape.level, Level::Raid0 | Level::Raid4)) {
                let of_this = |cell: &&&Cell| (cell.level, cell.layout) == (shape.level, shape.layout);
                let met: BTreeSet<Option<u64>> = mine.iter().filter(of_this).map(|cell| cell.chunk_kib).collect();
                assert!(chunks.iter().all(|chunk| met.contains(&Some(*chunk))), "{origin:?} {:?}", shape.layout);
            }
            for members in 2..=7 {
                assert!(mine.iter().any(|cell| cell.members == members));
            }
            assert!(mine.iter().any(|cell| cell.members == MEMBERS_MAX));
        }
        for version in METADATA {
            assert!(cells.iter().any(|cell| cell.metadata == *version));
        }
    }

    #[test]
    fn every_pair_of_values_occurs_at_levels_with_many_layouts_and_so_does_each_chunk_size() {
        let cells = fixed();
        let met: BTreeSet<Pair> = cells.iter().flat_map(pairs).collect();
        for origin in [Origin::Kernel, Origin::Here] {
            let chunks = if origin == Origin::Kernel { CHUNKS_MADE_BY_KERNEL } else { CHUNKS_MADE_HERE };
            for level in [Level::Raid5, Level::Raid6, Level::Raid10] {
                let shapes = SHAPES.iter().filter(|shape| shape.level == level);
                let can_be = shapes.flat_map(|shape| candidates(origin, shape, 64)).flat_map(|cell| pairs(&cell));
                let missing: BTreeSet<Pair> = can_be.filter(|pair| !met.contains(pair)).collect();
                assert!(missing.is_empty(), "never together: {missing:?}");
                let is_there = |chunk: &u64| {
                    cells.iter().any(|cell| (cell.origin, cell.level, cell.chunk_kib) == (origin, level, Some(*chunk)))
                };
                assert!(chunks.iter().all(is_there), "{origin:?} {level:?}");
            }
        }
    }

    #[test]
    fn a_sample_has_cells_of_each_level_and_any_cell_may_be_in_one() {
        let all = fixed();
        let names = |seed| sample(all.clone(), 2, seed).iter().map(Cell::name).collect::<Vec<_>>();
        assert_eq!(names(1), names(1));
        let levels: BTreeSet<Level> = SHAPES.iter().map(|shape| shape.level).collect();
        assert_eq!(names(1).len(), 2 * levels.len());
        let mut met = BTreeSet::new();
        let seeds = (0..1000).take_while(|seed| {
            met.extend(names(*seed));
            met.len() < all.len()
        });
        assert!(seeds.count() < 1000, "each cell is in one of 1000 samples");
        assert_eq!(sample(all.clone(), usize::MAX, 1).len(), all.len());
    }

    #[test]
    fn one_seed_gives_the_same_random_cells_and_another_seed_others() {
        let names = |seed| random(seed, 20).iter().map(Cell::name).collect::<Vec<_>>();
        assert_eq!(names(1), names(1));
        assert_ne!(names(1), names(2));
    }
}
