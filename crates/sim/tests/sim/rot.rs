//! What must hold of every kind of silent corruption.

use format::geometry::Level;
use mdspace_sim::rot::{Kind, SHAPES, SURE_SHAPES, run};

#[test]
fn whatever_rots_is_named_or_undecidable_and_no_healthy_block_is_touched() {
    for shape in &SHAPES {
        for kind in Kind::ALL {
            let mut tally = run(shape, kind, 0, 12);
            if (shape.level, kind) == (Level::Raid5, Kind::Exchanged) {
                // The sum of blocks does not know where they are: nothing but checksums can.
                assert_eq!(tally.missed, tally.wrong, "{tally:?}");
                (tally.wrong, tally.missed) = (0, 0);
            }
            assert!(tally.is_honest(), "{}, {kind:?}: {tally:?}", shape.name);
            let is_alone = !matches!(kind, Kind::Exchanged | Kind::Everywhere);
            match shape.level {
                Level::Raid5 => assert_eq!((tally.named, tally.undecidable), (0, tally.wrong), "{kind:?}"),
                _ if is_alone => assert_eq!(tally.named, tally.wrong, "{}, {kind:?}", shape.name),
                _ => {}
            }
            assert!(tally.wrong >= 12 || kind == Kind::Exchanged, "{}, {kind:?}: {tally:?}", shape.name);
        }
    }
}

#[test]
fn checksums_name_and_heal_whatever_rots_and_say_what_is_beyond_healing() {
    for shape in &SURE_SHAPES {
        for kind in Kind::ALL {
            let tally = run(shape, kind, 0, 12);
            assert!(tally.is_honest(), "{}, {kind:?}: {tally:?}", shape.name);
            assert_eq!(tally.undecidable, 0, "{}, {kind:?}", shape.name);
            let is_lost = kind == Kind::Everywhere || (kind == Kind::Exchanged && shape.level == Level::Raid5);
            let expected = if is_lost { (0, tally.wrong) } else { (tally.wrong, 0) };
            assert_eq!((tally.named, tally.lost), expected, "{}, {kind:?}", shape.name);
            assert!(tally.wrong >= 12 || kind == Kind::Exchanged, "{}, {kind:?}: {tally:?}", shape.name);
        }
    }
}
