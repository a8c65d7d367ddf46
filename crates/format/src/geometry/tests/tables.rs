//! md's layouts, sizes and refusals, written out.

use super::*;

/// A stripe as drawn: `0 1 P`; with Q, data as `index^exponent`.
fn drawn(parity: &Parity, number: u64) -> String {
    let stripe = parity.stripe(number);
    let word = |slot| match stripe.role_of(Slot(slot)) {
        Role::Data(index) if parity.parities() == 2 => format!("{index}^{}", stripe.q_exponent(index)),
        Role::Data(index) => index.to_string(),
        Role::P => "P".to_owned(),
        Role::Q => "Q".to_owned(),
    };
    (0..parity.slots()).map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn raid4_and_raid5_lay_out_stripes_as_md_draws_them() {
    let cases: [(Level, u32, [&str; 4]); 8] = [
        (Level::Raid4, 0, ["0 1 P", "0 1 P", "0 1 P", "0 1 P"]),
        (Level::Raid4, 77, ["0 1 P", "0 1 P", "0 1 P", "0 1 P"]),
        (Level::Raid5, 0, ["0 1 P", "0 P 1", "P 0 1", "0 1 P"]),
        (Level::Raid5, 1, ["P 0 1", "0 P 1", "0 1 P", "P 0 1"]),
        (Level::Raid5, 2, ["0 1 P", "1 P 0", "P 0 1", "0 1 P"]),
        (Level::Raid5, 3, ["P 0 1", "1 P 0", "0 1 P", "P 0 1"]),
        (Level::Raid5, 4, ["P 0 1", "P 0 1", "P 0 1", "P 0 1"]),
        (Level::Raid5, 5, ["0 1 P", "0 1 P", "0 1 P", "0 1 P"]),
    ];
    for (level, layout, rows) in cases {
        let parity = parity(&shape(level, layout, 3, 4 * K, 16 * K));
        for (number, row) in (0..).zip(rows) {
            assert_eq!(drawn(&parity, number), row, "{level:?} layout {layout} stripe {number}");
        }
    }
}

#[test]
fn raid6_lays_out_stripes_and_weighs_data_as_md_does() {
    let cases: [(u32, [&str; 4]); 14] = [
        (0, ["Q 0^0 1^1 P", "0^0 1^1 P Q", "0^1 P Q 1^0", "P Q 0^0 1^1"]),
        (1, ["P Q 0^0 1^1", "0^1 P Q 1^0", "0^0 1^1 P Q", "Q 0^0 1^1 P"]),
        (2, ["Q 0^0 1^1 P", "0^0 1^1 P Q", "1^1 P Q 0^0", "P Q 0^0 1^1"]),
        (3, ["P Q 0^0 1^1", "1^1 P Q 0^0", "0^0 1^1 P Q", "Q 0^0 1^1 P"]),
        (4, ["P Q 0^0 1^1", "P Q 0^0 1^1", "P Q 0^0 1^1", "P Q 0^0 1^1"]),
        (5, ["0^0 1^1 P Q", "0^0 1^1 P Q", "0^0 1^1 P Q", "0^0 1^1 P Q"]),
        (8, ["P Q 0^2 1^3", "0^0 P Q 1^3", "0^0 1^1 P Q", "Q 0^1 1^2 P"]),
        (9, ["0^0 1^1 P Q", "0^0 P Q 1^3", "P Q 0^2 1^3", "Q 0^1 1^2 P"]),
        (10, ["0^0 1^1 Q P", "1^0 Q P 0^3", "Q P 0^2 1^3", "P 0^1 1^2 Q"]),
        (16, ["0^0 1^1 P Q", "0^0 P 1^1 Q", "P 0^0 1^1 Q", "0^0 1^1 P Q"]),
        (17, ["P 0^0 1^1 Q", "0^0 P 1^1 Q", "0^0 1^1 P Q", "P 0^0 1^1 Q"]),
        (18, ["0^0 1^1 P Q", "1^0 P 0^1 Q", "P 0^0 1^1 Q", "0^0 1^1 P Q"]),
        (19, ["P 0^0 1^1 Q", "1^0 P 0^1 Q", "0^0 1^1 P Q", "P 0^0 1^1 Q"]),
        (20, ["P 0^0 1^1 Q", "P 0^0 1^1 Q", "P 0^0 1^1 Q", "P 0^0 1^1 Q"]),
    ];
    for (layout, rows) in cases {
        let parity = parity(&shape(Level::Raid6, layout, 4, 4 * K, 16 * K));
        for (number, row) in (0..).zip(rows) {
            assert_eq!(drawn(&parity, number), row, "layout {layout} stripe {number}");
        }
    }
}

/// The rows of a mapping's members, side by side, `.` for an empty cell.
fn rows(mapping: &Mapping, cell: u64) -> Vec<String> {
    let drawing = drawing(mapping, cell);
    let deepest = drawing.iter().map(Vec::len).max().unwrap_or(0);
    let word = |column: &Vec<Option<u64>>, row: usize| match column.get(row) {
        Some(Some(cell)) => cell.to_string(),
        _ => ".".to_owned(),
    };
    (0..deepest).map(|row| drawing.iter().map(|column| word(column, row)).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn raid10_places_copies_as_md_draws_them() {
    let cases: [(u32, u16, &[&str]); 10] = [
        (0x102, 2, &["0 0", "1 1", "2 2", "3 3"]),
        (0x102, 3, &["0 0 1", "1 2 2", "3 3 4", "4 5 5"]),
        (0x103, 4, &["0 0 0 1", "1 1 2 2", "2 3 3 3", "4 4 4 ."]),
        (0x201, 3, &["0 1 2", "3 4 5", "2 0 1", "5 3 4"]),
        (0x10201, 3, &["0 1 2", "2 0 1", "3 4 5", "5 3 4"]),
        (0x202, 5, &["0 0 1 1 2", "2 3 3 4 4", "1 2 0 0 1", "4 4 2 3 3"]),
        (0x40201, 4, &["0 1 2 3", "4 5 6 7", "1 0 3 2", "5 4 7 6"]),
        (0x40201, 5, &["0 1 2 3 4", "5 6 7 8 9", "1 0 4 2 3", "6 5 9 7 8"]),
        (0x50201, 4, &["0 1 2 3", "1 0 3 2", "4 5 6 7", "5 4 7 6"]),
        // The flaw: sets of one member, which holds both copies.
        (0x20201, 3, &["0 1 2", "3 4 5", "0 1 2", "3 4 5"]),
    ];
    for (layout, slots, expected) in cases {
        let mapping = mapping(&shape(Level::Raid10, layout, slots, 4 * K, 4 * 4 * K));
        assert_eq!(rows(&mapping, 4 * K), expected, "layout {layout:#x}, {slots} members");
    }
}

#[test]
fn raid0_stripes_unequal_members_by_zones() {
    let cases: [(u32, &[u64], &[&str]); 6] = [
        (0, &[2, 2], &["0 1", "2 3"]),
        (2, &[1, 3, 3], &["0 1 2", ". 3 4", ". 5 6"]),
        (1, &[1, 3, 3], &["0 1 2", ". 4 3", ". 6 5"]),
        (1, &[3, 1, 2], &["0 1 2", "4 . 3", "5 . ."]),
        (0, &[1, 3, 1], &["0 1 2", ". 3 .", ". 4 ."]),
        (2, &[0, 1, 2, 2], &[". 0 1 2", ". . 3 4"]),
    ];
    for (layout, chunks, expected) in cases {
        // A little more than whole chunks, to be rounded down.
        let members: Vec<u64> = chunks.iter().map(|chunks| chunks * 64 * K + 512).collect();
        let mapping = mapping(&striped(Level::Raid0, layout, 64 * K, &members));
        assert_eq!(rows(&mapping, 64 * K), expected, "layout {layout}, {chunks:?} chunks");
    }
}

#[test]
fn linear_is_one_member_after_another_each_rounded_down() {
    let members = [3 * K + 512, K, 2 * K];
    assert_eq!(rows(&mapping(&striped(Level::Linear, 0, 0, &members)), 512).len(), 7);
    let rounded = mapping(&striped(Level::Linear, 0, 2 * K, &members));
    assert_eq!(rows(&rounded, 2 * K), ["0 . 1"]);
    let piece = rounded.piece_at(ArrayByte(2 * K + 512));
    assert_eq!((piece.bytes, &piece.copies[..]), (2 * K - 512, &[(Slot(2), ComponentByte(512))][..]));
}

#[test]
fn sizes_are_rounded_as_md_rounds_them() {
    #[rustfmt::skip]
    let cases = [
        // (shape, bytes of the array, bytes used on slot 0)
        (shape(Level::Raid1, 0, 2, 0, 333 * K + 512), 333 * K + 512, 333 * K + 512),
        (shape(Level::Raid4, 0, 3, 64 * K, 1000 * K), 2 * 960 * K, 960 * K),
        (shape(Level::Raid5, 2, 5, 64 * K, 1000 * K), 4 * 960 * K, 960 * K),
        (shape(Level::Raid6, 2, 5, 64 * K, 1000 * K), 3 * 960 * K, 960 * K),
        (shape(Level::Raid10, 0x102, 3, 64 * K, 1000 * K), 22 * 64 * K, 960 * K), // 15 rows of 3 hold 22.5
        (shape(Level::Raid10, 0x201, 3, 64 * K, 1000 * K), 21 * 64 * K, 14 * 64 * K), // strides of 7 rows
        (striped(Level::Raid0, 0, 64 * K, &[1000 * K, 970 * K]), 2 * 960 * K, 960 * K),
        // md's mask cuts 16 sectors from members of 2040 sectors, but none from a member of 2088.
        (striped(Level::Raid0, 1, 12 * K, &[1024 * K, 1028 * K, 1048 * K]), 3068 * K, 1020 * K),
    ];
    for (shape, array_bytes, used_bytes) in cases {
        let geometry = Geometry::new(&shape).expect("acceptable");
        assert_eq!(geometry.array_bytes(), array_bytes, "{shape:?}");
        assert_eq!(geometry.used_bytes(Slot(0)), used_bytes, "{shape:?}");
    }
}

#[test]
fn what_md_cannot_run_is_refused_by_the_name_of_the_field() {
    let (chunk, size, disks, layout, data_size) = (
        "superblock.chunksize",
        "superblock.size",
        "superblock.raid_disks",
        "superblock.layout",
        "superblock.data_size",
    );
    let big = 1 << 62;
    let mut cases = vec![
        (disks, shape(Level::Raid1, 0, 0, 0, K)),
        (disks, shape(Level::Raid5, 2, 1, 64 * K, 64 * K)),
        (disks, shape(Level::Raid6, 2, 3, 64 * K, 64 * K)),
        (disks, shape(Level::Raid6, 2, 258, 64 * K, 64 * K)),
        (disks, shape(Level::Raid6, 8, 256, 64 * K, 64 * K)),
        (disks, shape(Level::Raid0, 0, 3, 64 * K, 64 * K)),
        (chunk, striped(Level::Raid0, 0, 0, &[K])),
        (chunk, striped(Level::Raid0, 0, 1000, &[K])),
        (chunk, striped(Level::Raid0, 0, 1 << 31, &[big])),
        (chunk, striped(Level::Linear, 0, 100, &[K])),
        (size, shape(Level::Raid1, 0, 2, 0, 0)),
        (size, shape(Level::Raid1, 0, 2, 0, 1000)),
        (size, shape(Level::Raid1, 0, 2, 0, 1 << 63)),
        (size, shape(Level::Raid5, 2, 3, 64 * K, 63 * K)),
        (size, shape(Level::Raid5, 2, 3, 64 * K, big)),
        (size, shape(Level::Raid10, 0x102, 9, 64 * K, big)),
        (size, shape(Level::Raid10, 0x201, 3, 64 * K, 127 * K)),
        (data_size, striped(Level::Raid0, 0, 64 * K, &[K, K])),
        (data_size, striped(Level::Linear, 0, 64 * K, &[K, K])),
        (data_size, striped(Level::Linear, 0, 0, &[u64::MAX, u64::MAX])),
        (data_size, striped(Level::Raid0, 0, 4 * K, &[big, big])),
        (layout, striped(Level::Raid0, 0, K, &[K, 2 * K, 2 * K])),
        (layout, striped(Level::Raid0, 3, K, &[K, 2 * K, 2 * K])),
    ];
    for level in [Level::Raid5, Level::Raid6, Level::Raid10] {
        for bytes in [0, 512, 2 * K, 12 * K, 64 * K + 1, 1 << 31, u64::MAX] {
            cases.push((chunk, shape(level, if level == Level::Raid10 { 0x102 } else { 2 }, 4, bytes, big)));
        }
    }
    for number in [6, 7, 8, 9, 10, 16, u32::MAX] {
        cases.push((layout, shape(Level::Raid5, number, 5, 64 * K, 64 * K)));
    }
    for number in [6, 7, 11, 15, 21, u32::MAX] {
        cases.push((layout, shape(Level::Raid6, number, 5, 64 * K, 64 * K)));
    }
    // No redundancy, none of one kind, more copies than members, an unknown variant, and some in which md overwrites.
    for number in [0, 1, 2, 0x101, 0x200, 0x106, 0x203, 0x20001, 0x60201, 0xffff_ffff, 0x10202, 0x50202] {
        cases.push((layout, shape(Level::Raid10, number, 5, 64 * K, 256 * K)));
    }
    cases.push((layout, shape(Level::Raid10, 0x40202, 9, 64 * K, 256 * K)));
    for (field, shape) in cases {
        match Geometry::new(&shape) {
            Err(defect) => assert_eq!(defect.field, field, "{shape:?}: {defect}"),
            Ok(_) => panic!("accepted {shape:?}"),
        }
    }
}

#[test]
fn layouts_have_mdadms_names() {
    let cases = [
        (Level::Raid5, "ls", 2, "left-symmetric"),
        (Level::Raid5, "parity-last", 5, "parity-last"),
        (Level::Raid6, "ra-6", 17, "right-asymmetric-6"),
        (Level::Raid6, "ddf-zero-restart", 8, "ddf-zero-restart"),
        (Level::Raid6, "ddf-N-restart", 9, "ddf-N-restart"),
        (Level::Raid6, "ddf-N-continue", 10, "ddf-N-continue"),
        (Level::Raid10, "n2", 0x102, "near=2"),
        (Level::Raid10, "f3", 0x301, "far=3"),
        (Level::Raid10, "o2", 0x10201, "offset=2"),
    ];
    for (level, given, layout, name) in cases {
        assert_eq!(parse_layout(level, given), Some(layout), "{given}");
        let geometry = Geometry::new(&shape(level, layout, 5, 64 * K, 64 * 60 * K)).expect("acceptable");
        assert_eq!(geometry.layout_name().as_deref(), Some(name));
    }
    for (level, layout) in [(Level::Raid0, 1), (Level::Raid0, 2)] {
        let geometry = Geometry::new(&striped(level, layout, K, &[K, 2 * K, 2 * K])).expect("acceptable");
        assert_eq!(parse_layout(level, &geometry.layout_name().expect("a choice")), Some(layout));
    }
    for (level, name) in [(Level::Raid5, "left"), (Level::Raid5, "ls-6"), (Level::Raid10, "n0"), (Level::Raid10, "é2")]
    {
        assert_eq!(parse_layout(level, name), None, "{name}");
    }
}
