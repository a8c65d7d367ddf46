//! What must hold of every kind of silent corruption.

use mdspace_sim::rot::{Kind, SHAPES, SURE_SHAPES, Shape, run};

fn every_kind_is_told_as_well_as_can_be(shapes: &[Shape]) {
    for shape in shapes {
        for kind in Kind::ALL {
            let tally = run(shape, kind, 0, 12);
            assert!(tally.is_as_good_as_can_be(shape, kind), "{}, {kind:?}: {tally:?}", shape.name);
            assert!(tally.wrong >= 12 || kind == Kind::Exchanged, "{}, {kind:?}: {tally:?}", shape.name);
        }
    }
}

#[test]
fn whatever_rots_is_named_or_undecidable_and_no_healthy_block_is_touched() {
    every_kind_is_told_as_well_as_can_be(&SHAPES);
}

#[test]
fn checksums_name_and_heal_whatever_rots_and_say_what_is_beyond_healing() {
    every_kind_is_told_as_well_as_can_be(&SURE_SHAPES);
}
