//! `mdspace grow`: its refusals, with exit status 2 and no byte changed, and its messages.
//!
//! A black-box test of the command, on files. Members in states that the command does not leave are forged, or come
//! from the real driver (`crates/format/tests/fixtures`). The simulator tests that the array stays valid at every step,
//! and `tests/kernel/grow.sh` that md accepts the result.

use crate::support::{Server, Workplace, parsed};
use format::bad_blocks::{self, BadRange};
use format::bitmap::BitmapSuper;
use format::superblock::{PLACE_BYTES, Superblock, Version, decode};
use format::units::{MemberByte, Sectors};
use std::fs::File;
use std::os::unix::fs::FileExt;

const MEMBERS: [&str; 4] = ["a.img", "b.img", "c.img", "d.img"];

/// A sample of the real driver's metadata.
macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../../../format/tests/fixtures/", $name))
    };
}

/// How the array is created, on members of 4 MiB that are then enlarged to 8 MiB; the arguments of `grow`; words of the
/// refusal.
const REFUSED: [(&str, &str, &[&str]); 20] = [
    ("--level 0 --chunk 64K", "--size max", &["a.img: superblock.level"]),
    ("--level linear", "--size max", &["superblock.level"]),
    ("--level 10 --chunk 64K --layout f2", "--size max", &["superblock.layout", "far copies"]),
    (
        "--level 5 --chunk 64K",
        "--size 1M",
        &["superblock.size", "--size 1048576B --shrink", "end at byte 3145728 is lost", "file system"],
    ),
    ("--level 5 --chunk 64K", "--size 1K", &["superblock.size", "at least one chunk"]),
    ("--level 5 --chunk 64K", "--size 1M --shrink --raid-devices 4", &["cannot be used with"]),
    ("--level 5 --chunk 64K", "--size max --shrink", &["--size"]),
    ("--level 5 --chunk 64K", "--size 1000K --shrink", &["superblock.size", "next smaller one is 983040"]),
    ("--level 5 --chunk 64K", "--size 0 --shrink", &["superblock.size"]),
    ("--level 5 --chunk 64K", "--size 7M --shrink", &["superblock.size", "3145728 bytes of each member are in use"]),
    ("--level 5 --chunk 64K --integrity", "--size 1M --shrink", &["a.img: superblock.size", "keeps checksums"]),
    ("--level 10 --chunk 64K --layout f2", "--size 1M --shrink", &["superblock.layout", "far copies"]),
    ("--level 10 --chunk 64K --layout o2", "--size 64K --shrink", &["superblock.size"]),
    ("--level 5 --chunk 64K", "--size 8M", &["superblock.size", "has room for only 7340032"]),
    ("--level 5 --chunk 64K --integrity", "--size max", &["a.img: superblock.size", "keeps checksums"]),
    ("--level 10 --chunk 64K", "--raid-devices 5", &["superblock.level", "only RAID-1"]),
    ("--level 1", "--raid-devices 3", &["superblock.raid_disks", "4 copies are in use"]),
    ("--level 1", "--raid-devices 1", &["superblock.raid_disks", "not from 2"]),
    ("--level 1", "--raid-devices 4 --size max", &["cannot be used with"]),
    ("--level 1", "", &["--size"]),
];

fn make(here: &Workplace, how: &str) {
    make_long(here, how, 8 << 20);
}

/// Creates the array, and enlarges its members to `bytes`.
fn make_long(here: &Workplace, how: &str, bytes: u64) {
    here.run(&format!("create {how} --size 4M {}", MEMBERS.join(" "))).ok();
    for member in MEMBERS {
        open(here, member).set_len(bytes).expect("it can be longer");
    }
}

/// A member, or the file of a new one.
fn open(here: &Workplace, member: &str) -> File {
    let options = File::options().read(true).write(true).create(true).truncate(false).open(here.path().join(member));
    options.expect("a file in a directory of our own")
}

fn read_at(file: &File, at: MemberByte) -> Vec<u8> {
    let mut bytes = vec![0; PLACE_BYTES as usize];
    file.read_exact_at(&mut bytes, at.0).expect("it is as long");
    bytes
}

/// The superblock of a member with metadata 1.2.
fn superblock(file: &File) -> Superblock {
    let (at, bytes) = (MemberByte(4096), file.metadata().expect("it is open").len());
    decode(Version::V1_2, at, &read_at(file, at), bytes).expect("ours are right").expect("it was made")
}

#[track_caller]
fn refused(here: &Workplace, members: &[&str], asked: &str, words: &[&str]) {
    let before = here.contents(members);
    here.run(&format!("grow {} {asked}", members.join(" "))).expect(2, words);
    assert!(here.contents(members) == before, "{asked}: members changed");
}

#[test]
fn what_cannot_grow_is_refused_with_its_field_and_nothing_changed() {
    for (how, asked, words) in REFUSED {
        let here = Workplace::new();
        make(&here, how);
        refused(&here, &MEMBERS, asked, words);
    }
}

#[test]
fn an_array_that_is_degraded_served_or_not_in_agreement_does_not_grow() {
    let here = Workplace::new();
    make(&here, "--level 5 --chunk 64K --bitmap internal");
    refused(&here, &MEMBERS[1..], "--size max", &["degraded"]);
    let server = Server::of(&here, &format!("serve {} --control control.socket", MEMBERS.join(" ")));
    refused(&here, &MEMBERS, "--size max", &["a.img"]);
    here.run("stop --control control.socket").ok();
    server.wait();
    here.run(&format!("grow {} --size 5M", MEMBERS.join(" "))).ok();
    refused(&here, &MEMBERS, "--size max", &["superblock.resync_offset"]);
}

/// A superblock 1.0 is found only at the end of its member. So it must move with the end, or the array is lost.
#[test]
fn metadata_1_0_moves_to_the_new_end_of_members_that_were_made_longer_while_they_are_served() {
    for how in
        ["--level 5 --chunk 64K", "--level 1", "--level 6 --chunk 64K --bitmap internal", "--level 10 --chunk 64K"]
    {
        // By the whole component, and by less than a chunk.
        for bytes in [9 << 20, (4 << 20) + (8 << 10)] {
            let here = Workplace::new();
            here.run(&format!("create --metadata 1.0 {how} --size 4M {}", MEMBERS.join(" "))).ok();
            let server = Server::of(&here, &format!("serve {} --control control.socket", MEMBERS.join(" ")));
            let component = || {
                let status = parsed(&here.run("status --json --control control.socket").ok().text());
                status["component_bytes"].as_u64().expect("a number")
            };
            // An array does not grow before the end of its first resync.
            while parsed(&here.run("status --json --control control.socket").ok().text())["in_agreement"] == false {
                std::thread::yield_now();
            }
            let before = component();
            MEMBERS.iter().for_each(|member| open(&here, member).set_len(bytes).expect("it can be longer"));
            here.run("grow --size max --control control.socket").ok();
            assert_eq!(component() > before + (3 << 20), bytes == 9 << 20, "{how}: {before} and then {}", component());
            while parsed(&here.run("status --json --control control.socket").ok().text())["in_agreement"] == false {
                std::thread::yield_now();
            }
            here.run("stop --control control.socket").ok();
            assert_eq!(server.wait(), Some(0), "{how}");
            let report = parsed(&here.run(&format!("examine --json {}", MEMBERS.join(" "))).ok().text());
            assert_eq!(report["arrays"][0]["status"]["state"], "clean", "{how} {bytes}: {report}");
            assert_eq!(report["arrays"][0]["status"]["in_sync"], 4, "{how} {bytes}");
            let without = |lost: usize| MEMBERS.iter().enumerate().filter(move |(n, _)| *n != lost).map(|(_, m)| *m);
            for lost in 0..MEMBERS.len() {
                here.run(&format!("read {}", without(lost).collect::<Vec<_>>().join(" "))).ok();
            }
        }
    }
}

#[test]
fn what_lies_before_its_new_end_is_there_in_an_array_that_was_made_smaller() {
    for (how, mebibytes) in [
        ("--level 1", 1),
        ("--level 4 --chunk 64K", 3),
        ("--level 6 --chunk 64K", 2),
        ("--level 10 --chunk 64K --layout o2", 2),
    ] {
        for bitmap in ["none", "internal"] {
            let here = Workplace::new();
            make(&here, &format!("{how} --bitmap {bitmap}"));
            let members = MEMBERS.join(" ");
            let data: Vec<u8> = (0..3 << 18).flat_map(|number: u32| (number ^ 0x5a5a).to_le_bytes()).collect();
            here.run_with(&format!("write {members}"), &data).ok();
            let line = format!("grow {members} --size 1M --shrink");
            let said = here.run(&line).ok().text();
            assert!(said.starts_with(&format!("{mebibytes} MiB, 1 MiB of each")), "{how}: {said}");
            let before = here.contents(&MEMBERS);
            assert!(here.run(&line).ok().text().starts_with("unchanged"), "{how} {bitmap}");
            assert!(here.contents(&MEMBERS) == before, "{how} {bitmap}: members changed");
            here.run(&format!("scrub {members}")).ok();
            let left = here.run(&format!("read {members}"));
            left.ok();
            assert!(left.stdout == data[..left.stdout.len()], "{how} {bitmap}: other bytes");
        }
    }
}

#[test]
fn the_refusal_of_checksums_names_the_command_that_makes_room_for_them() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --data-offset 16K --size 8208K a b c").ok();
    let serve = |words: &[&str]| {
        let server = Server::of(&here, "serve a b c --control control.socket");
        let said = here.run("set integrity=on --control control.socket");
        said.expect(if words.is_empty() { 0 } else { 2 }, words);
        here.run("stop --control control.socket").ok();
        server.wait();
        said.stderr
    };
    let said = serve(&["a: superblock.data_offset", "65536 bytes less of each member", "at byte 16646144"]);
    let command = said.split('`').find(|part| part.starts_with("mdspace grow")).expect("it names one");
    assert_eq!(command, "mdspace grow --size 8323072B --shrink a b c");
    here.run(&command["mdspace ".len()..]).ok();
    serve(&[]);
    here.run("read a b c").ok();
    let found = parsed(&here.run("examine --json a b c").ok().text());
    assert_eq!(found["arrays"][0]["status"]["checksums"]["members"], 3);
    here.run("grow --size max a b c").expect(2, &["keeps checksums"]);
}

#[test]
fn an_array_that_has_the_size_already_is_left_alone() {
    let here = Workplace::new();
    make(&here, "--level 1 --bitmap internal");
    for asked in ["--size max", "--raid-devices 4"] {
        let line = format!("grow {} {asked}", MEMBERS.join(" "));
        here.run(&line).ok();
        let before = here.contents(&MEMBERS);
        assert!(here.run(&line).ok().text().starts_with("unchanged"), "{asked}");
        assert!(here.contents(&MEMBERS) == before, "{asked}: members changed");
    }
}

#[test]
fn a_member_with_bad_blocks_is_refused_by_its_name() {
    // Sectors from the start of the data; 6144 are in use.
    for (first, count) in [(0, 8), (6136, 9), (6144, 1), (10000, 600)] {
        let here = Workplace::new();
        make(&here, "--level 5 --chunk 64K");
        let member = open(&here, MEMBERS[1]);
        let mut changed = superblock(&member);
        assert_eq!(changed.component, Sectors(6144));
        let log = changed.bad_blocks.as_mut().expect("it has room for one");
        log.in_use = true;
        let bad = BadRange { first: Sectors(changed.data_offset.0 + first), count: Sectors(count) };
        let entries = bad_blocks::encode(&[bad], log.shift, usize::from(log.sectors) * 512).expect("one entry");
        let log_at = changed.bad_blocks_at().expect("it has one");
        member.write_all_at(&entries, log_at.0).expect("it can be written");
        member.write_all_at(&changed.encode(), changed.super_at().0).expect("it can be written");
        refused(&here, &MEMBERS, "--size max", &["b.img: bad-block log: names bad blocks"]);
    }
}

#[test]
fn an_array_with_a_successor_on_its_way_is_refused_by_the_successors_name() {
    let here = Workplace::new();
    let members = ["old.img", "new.img"];
    let superblocks = [fixture!("raid1-replacing/0.superblock"), fixture!("raid1-replacing/2.superblock")];
    for (member, superblock) in members.into_iter().zip(superblocks) {
        let member = open(&here, member);
        member.set_len(40 << 20).expect("longer than md's, which were used whole");
        member.write_all_at(superblock, 4096).expect("it can be written");
    }
    for asked in ["--size max", "--raid-devices 3"] {
        refused(&here, &members, asked, &["new.img: is replacing another member"]);
    }
}

/// On members that were made longer no superblock of 0.90 is found; in use it moves (`tests/kernel/old.sh`).
#[test]
fn an_array_of_metadata_0_90_uses_more_of_its_members() {
    let here = Workplace::new();
    let members = MEMBERS.join(" ");
    here.run(&format!(
        "create --level 5 --chunk 64K --metadata 0.90 --bitmap internal --component-size 1M --size 4M {members}"
    ))
    .ok();
    here.run(&format!("grow {members} --size max")).ok();
    for member in MEMBERS {
        let file = open(&here, member);
        let at = Version::V0_90.place(4 << 20).expect("there is room");
        let superblock = decode(Version::V0_90, at, &read_at(&file, at), 4 << 20).expect("right").expect("it is there");
        assert_eq!(superblock.component, superblock.super_offset, "{member}");
    }
    here.run(&format!("scrub {members} --repair")).ok();
    here.run(&format!("scrub {members}")).ok();
}

/// The command has no option for a bitmap file, so it meets none. The simulator tests the engine's refusal.
#[test]
fn a_bitmap_in_a_file_is_of_no_use_after_a_growth_without_it() {
    let here = Workplace::new();
    make(&here, "--level 5 --chunk 64K --bitmap ./bits");
    here.run(&format!("grow {} --size max", MEMBERS.join(" "))).ok();
    let before = here.contents(&MEMBERS);
    let serve = "serve --nbd unix:nbd.socket --control control.socket --bitmap bits";
    here.run(&format!("{serve} {}", MEMBERS.join(" "))).expect(2, &["bits: bitmap.sync_size"]);
    assert!(here.contents(&MEMBERS) == before, "members changed");
}

#[test]
fn a_bitmaps_chunk_doubles_until_its_bits_fit_the_room_they_had() {
    // 4 KiB less 256 bytes hold 30720 bits, and md keeps one more than it needs.
    for (how, size, chunk_bytes, old_covered_bytes) in [
        ("--level 1", "122816K", 4096, 3 << 20),
        ("--level 1", "120M", 8192, 3 << 20),
        ("--level 1", "240M", 16384, 3 << 20),
        ("--level 5 --chunk 64K", "120M", 8192, 3 << 20),
        ("--level 10 --chunk 64K", "60M", 8192, 6 << 20), // which covers twice the array
    ] {
        let here = Workplace::new();
        make_long(&here, &format!("{how} --bitmap internal --bitmap-chunk 4K"), 256 << 20);
        let grow = format!("grow {} --size {size}", MEMBERS.join(" "));
        here.run(&grow).ok();
        for name in MEMBERS {
            let member = open(&here, name);
            let bitmap_at = superblock(&member).bitmap_at().expect("it has one still");
            let page = read_at(&member, bitmap_at);
            let header = BitmapSuper::decode(&page, page.len() as u64).expect("it fits");
            assert_eq!(header.chunk_bytes, chunk_bytes, "{how} {size}: {name}");
            // Only the added space needs a resync.
            let old_bits = (old_covered_bytes / chunk_bytes) as usize;
            let bits = &page[256..];
            assert!(bits[..old_bits / 8].iter().all(|byte| *byte == 0), "{how} {size}: {name}: what was there is");
            let set: u64 = bits.iter().map(|byte| u64::from(byte.count_ones())).sum();
            assert_eq!(set, header.bits() - old_bits as u64, "{how} {size}: {name}");
        }
        // Assembly accepts the bitmap; the refusal concerns something else.
        let examine = format!("examine {}", MEMBERS.join(" "));
        let before = here.run(&examine).ok().text();
        here.run(&grow.replace(size, "max")).expect(2, &["superblock.resync_offset"]);
        assert_eq!(here.run(&examine).ok().text(), before, "{how} {size}: the refusal changed it");
    }
}
