//! Tables worked by hand from md(4), and properties against slow oracles.

use super::*;

const K: u64 = 1024;

fn shape(level: Level, layout: u32, slots: u16, chunk_bytes: u64, component_bytes: u64) -> Shape {
    Shape { level, layout, chunk_bytes, slots, component_bytes, member_bytes: Vec::new() }
}

fn parity(level: Level, layout: u32, slots: u16) -> Parity {
    match Geometry::new(&shape(level, layout, slots, 4 * K, 64 * 4 * K)) {
        Ok(Geometry::Parity(parity)) => parity,
        other => panic!("{level:?} layout {layout}: {other:?}"),
    }
}

/// A stripe as the drawings have it: `0 1 P`.
fn drawn(parity: &Parity, number: u64) -> String {
    let stripe = parity.stripe(number);
    let word = |slot| match stripe.role_of(Slot(slot)) {
        Role::Data(index) => index.to_string(),
        Role::P => "P".to_owned(),
        Role::Q => "Q".to_owned(),
    };
    (0..parity.slots()).map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn raid4_and_raid5_lay_out_stripes_as_md_draws_them() {
    let cases: [(Level, u32, [&str; 4]); 7] = [
        (Level::Raid4, 0, ["0 1 P", "0 1 P", "0 1 P", "0 1 P"]),
        (Level::Raid5, 0, ["0 1 P", "0 P 1", "P 0 1", "0 1 P"]),
        (Level::Raid5, 1, ["P 0 1", "0 P 1", "0 1 P", "P 0 1"]),
        (Level::Raid5, 2, ["0 1 P", "1 P 0", "P 0 1", "0 1 P"]),
        (Level::Raid5, 3, ["P 0 1", "1 P 0", "0 1 P", "P 0 1"]),
        (Level::Raid5, 4, ["P 0 1", "P 0 1", "P 0 1", "P 0 1"]),
        (Level::Raid5, 5, ["0 1 P", "0 1 P", "0 1 P", "0 1 P"]),
    ];
    for (level, layout, rows) in cases {
        let parity = parity(level, layout, 3);
        for (number, row) in (0..).zip(rows) {
            assert_eq!(drawn(&parity, number), row, "{level:?} layout {layout} stripe {number}");
        }
    }
}
