//! Maps of rescued images: what programs write is read, what contradicts itself is refused, and marks are what a plain
//! array of sectors would say.

use mdspace_disk::map::{Region, RescueMap, Status};
use std::ops::Range;

/// The example of ddrescue's manual.
const DDRESCUE: &str = "\
# Mapfile. Created by GNU ddrescue version 1.27
# Command line: ddrescue -d -c18 /dev/fd0 fdimage mapfile
# Start time:   2015-07-21 09:37:44
# Copying non-tried blocks... Pass 1 (forwards)
# current_pos  current_status  current_pass
0x00120000     ?               1
#      pos        size  status
0x00000000  0x00117000  +
0x00117000  0x00000200  -
0x00117200  0x00001000  /
0x00118200  0x00007E00  *
0x00120000  0x00048000  ?
";

/// HDDSuperClone's own log, as its source writes it.
const HDDSUPERCLONE: &str = "\
# Disk progress log file created by HDDSuperClone version 2.3.3
# startconfig
# source  \t/dev/sdb
# sectorsize  \t512
# inputoffset  \t0
# outputoffset  \t0
#
# current position  \t \tstatus
0x000000        \t \t0x0
#
# position \tsize     \tstatus \tinfo \terr/status/time
0x000000 \t0x000100 \t0x7f \t0x0 \t0x0
0x000100 \t0x000010 \t0x40 \t0x0 \t0x51
0x000110 \t0x000010 \t0xff \t0x0 \t0x0
0x000120 \t0x0000e0 \t0x30 \t0x0 \t0x0
0x000200 \t0x000100 \t0x7f \t0x0 \t0x0
";

/// The holes within a range, each with its start and end.
fn holes(map: &RescueMap, range: Range<u64>) -> Vec<(u64, u64)> {
    map.holes(&range).into_iter().map(|hole| (hole.start, hole.end)).collect()
}

#[test]
fn maps_of_ddrescue_and_hddsuperclone_say_what_is_not_in_the_image() {
    let export = "# Disk progress log file created by HDDSuperClone version 2\n# ddrescue export\n\
                  # current_pos  current_status\n0x00000000     ?\n0x00000000  0x00000200  +\n0x00000200  0x400  -\n";
    let by_hand = "0 + # done\n\n 0 010 +\n8 8 - # decimal, and octal before\n\t16 0x10 +\r\n";
    let gap = "0 ? 1\n0x1000 0x1000 +\n0x4000 0x1000 +\n";
    for (name, text, expected) in [
        ("ddrescue", DDRESCUE, vec![(0x117000, 0x168000)]),
        ("HDDSuperClone's export", export, vec![(0x200, 0x600)]),
        ("HDDSuperClone's log", HDDSUPERCLONE, vec![(0x20000, 0x40000)]),
        ("by hand", by_hand, vec![(8, 16)]),
        ("what no line mentions", gap, vec![(0, 0x1000), (0x2000, 0x4000)]),
        ("nothing but a status", "0 ? 1\n", Vec::new()),
    ] {
        let map = RescueMap::decode(text.as_bytes()).unwrap_or_else(|defect| panic!("{name}: {defect}"));
        assert_eq!(holes(&map, 0..map.end()), expected, "{name}");
    }
    let map = RescueMap::decode(DDRESCUE.as_bytes()).expect("a map");
    assert_eq!((map.end(), map.finished_end(), map.regions().count()), (0x168000, 0x117000, 5));
    assert_eq!(holes(&map, 0x168000..0x169000), [(0x168000, 0x169000)], "past its end nothing is known");
    assert_eq!(holes(&map, 0x1000..0x117200), [(0x117000, 0x117200)]);
}

#[test]
fn a_text_that_is_no_map_or_contradicts_itself_is_refused_with_its_line() {
    for (text, line, what) in [
        ("", 1, "no line"),
        ("# a comment\n\n", 1, "no line"),
        ("hello\n", 1, "no map"),
        ("0 ! 1\n", 1, "no status"),
        ("0 ? one\n", 1, "no number of a pass"),
        ("0 ? 1 2\n", 1, "no number of a pass"),
        ("-1 ? 1\n", 1, "no number"),
        ("0x ? 1\n", 1, "no number"),
        ("09 ? 1\n", 1, "no number"),
        ("0x+1 ? 1\n", 1, "no number"),
        ("0 ? 1\n0 1\n", 2, "2 words"),
        ("0 ? 1\n0 1 + +\n", 2, "4 words"),
        ("0 ? 1\n0 1 F\n", 2, "no status of ddrescue"),
        ("0 ? 1\n0 8 +\n7 8 +\n", 3, "begins before"),
        ("0 ? 1\n8 8 +\n0 8 +\n", 3, "begins before"),
        ("0 ? 1\n1 0x7fffffffffffffff +\n", 2, "beyond any disk"),
        ("0 ? 1\n0xffffffffffffffff 0xffffffffffffffff +\n", 2, "beyond any disk"),
        ("0 ? 1\n0 18446744073709551616 +\n", 2, "no number"),
        ("0 ? 1\n\u{fffd}\n", 2, "1 words"),
        ("0x0 0x1000 +\n0x1000 0x200 -\n", 1, "the file's start is gone"),
        ("0x0 0x0\n0x0 0x1 0x7f 0x0 0x0\n", 1, "without a comment \"sectorsize\""),
        ("# sectorsize 500\n0x0 0x0\n", 2, "without a comment \"sectorsize\""),
        ("# sectorsize x\n0x0 0x0\n", 1, "no number"),
        ("# sectorsize 512\n# outputoffset 8\n0x0 0x0\n", 2, "does not begin where its disk does"),
        ("# sectorsize 512\n0x0 0x0\n0x0 0x0080000000000000 0x7f\n", 3, "beyond any disk"),
    ] {
        let defect = RescueMap::decode(text.as_bytes()).expect_err(text);
        assert!(defect.line == line && defect.reason.contains(what), "{text:?}: {defect}");
    }
    let binary = RescueMap::decode(b"0 ? 1\n\xff\xfe +\n").expect_err("no text");
    assert!(binary.to_string().contains("line 2: neither a comment nor text"), "{binary}");
    let long = format!("0 ? 1\n{} 1 +\n", "0".repeat(5000));
    assert!(RescueMap::decode(long.as_bytes()).expect_err("long").reason.contains("longer than"));
}

/// A pseudorandom number below `limit`.
fn below(state: &mut u64, limit: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % limit
}

#[test]
fn marks_leave_what_a_list_of_units_would_say_and_survive_a_file() {
    const UNITS: u64 = 40;
    let all = [Status::NonTried, Status::NonTrimmed, Status::NonScraped, Status::Bad, Status::Finished];
    for seed in 0..200 {
        let mut state = seed;
        let (mut map, mut model) = (RescueMap::untried(UNITS), [Status::NonTried; UNITS as usize]);
        for step in 0..30 {
            let start = below(&mut state, UNITS);
            let end = start + below(&mut state, UNITS - start + 1);
            let status = all[below(&mut state, 5) as usize];
            map.mark(start..end, status);
            model[start as usize..end as usize].fill(status);
            let told: Vec<Status> =
                map.regions().flat_map(|Region { range, status }| range.map(move |_| status)).collect();
            assert_eq!(told, model, "seed {seed}, step {step}");
            let wanted = (start..UNITS).find(|unit| model[*unit as usize] == status);
            assert_eq!(map.next(status, start).map(|next| next.start), wanted, "seed {seed}, step {step}");
            let regions: Vec<Region> = map.regions().collect();
            let differ = |pair: &[Region]| pair[0].range.end == pair[1].range.start && pair[0].status != pair[1].status;
            let is_short = regions.windows(2).all(differ);
            assert!(is_short, "seed {seed}, step {step}: neighbours of the same status");
        }
        let is_hole = |unit: &u64| model[*unit as usize] != Status::Finished;
        let expected: Vec<u64> = (3..UNITS - 3).filter(is_hole).collect();
        assert_eq!(map.holes(&(3..UNITS - 3)).into_iter().flatten().collect::<Vec<_>>(), expected, "seed {seed}");
        let text = map.encode(&["made by a test\nin two lines".to_owned()]);
        assert_eq!(RescueMap::decode(text.as_bytes()), Ok(map), "seed {seed}: {text}");
    }
}
