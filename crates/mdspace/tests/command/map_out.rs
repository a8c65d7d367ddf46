//! `read --map-out`: a copy is continued only if it, its map and the members are those of the earlier run. Whatever else
//! is at one of these paths stays as it is.

use crate::support::{Run, Workplace};
use std::fs::File;
use std::os::unix::fs::FileExt;

const MIB: u64 = 1 << 20;

/// A hole in the data of a member of 8 MiB.
const MAP_WITH_A_HOLE: &str = "0 - 1\n0 0x300000 +\n0x300000 0x1000 -\n0x301000 0x4ff000 +\n";

/// Bytes without zeros or repetition, by `seed`.
fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state ^ state >> 32).to_le_bytes()
    };
    std::iter::repeat_with(&mut next).take(bytes.div_ceil(8)).flatten().take(bytes).collect()
}

/// An array of `members` that is full, and its bytes.
fn filled(here: &Workplace, options: &str, members: &str, seed: u64) -> Vec<u8> {
    here.run(&format!("create {options} --size 8M {members}")).ok();
    let bytes = here.run(&format!("read {members}")).ok().stdout.len();
    here.run_with(&format!("write {members}"), &pattern(seed, bytes)).ok();
    here.run(&format!("read {members}")).ok().stdout.clone()
}

const RAID5: &str = "--level 5 --chunk 64K --data-offset 1M";

/// An array of three members, a copy `out` that lacks one place, and its map. Returns the array's bytes.
fn copied_in_part(here: &Workplace) -> Vec<u8> {
    let whole = filled(here, RAID5, "a b c", 1);
    std::fs::write(here.path().join("a.map"), MAP_WITH_A_HOLE).expect("of our own");
    here.run("read a b --map a=a.map --salvage --output out --map-out out.map").expect(1, &["could not be read"]);
    whole
}

const AGAIN: &str = "read a b c --salvage --output out --map-out out.map";

/// Runs a command that must be refused and change neither the copy nor its map.
fn refused(here: &Workplace, line: &str, words: &[&str]) {
    let before = here.contents(&["out", "out.map"]);
    here.run(line).expect(2, words);
    assert!(here.contents(&["out", "out.map"]) == before, "{line}: something changed");
}

#[test]
fn a_copy_that_was_cut_off_or_replaced_is_not_continued() {
    let here = Workplace::new();
    let whole = copied_in_part(&here);
    let out = here.path().join("out");
    let copy = std::fs::read(&out).expect("a copy");
    let length = copy.len();
    for (other, words) in [
        (Vec::new(), &["out: has 0 bytes, and its map is of", "remove the map"][..]),
        (copy[..length - 512].to_vec(), &["it was replaced"]),
        ([&copy[..], &[0; 512]].concat(), &["it was replaced"]),
        (vec![0; length], &["its map calls byte 0 finished, and the array reads other bytes"]),
        (pattern(2, length), &["the array reads other bytes there"]),
        ([&copy[..length / 2], &pattern(2, length / 2)].concat(), &["the array reads other bytes there"]),
    ] {
        std::fs::write(&out, other).expect("of our own");
        for overwrite in ["", " --overwrite"] {
            refused(&here, &format!("{AGAIN}{overwrite}"), words);
        }
    }
    std::fs::write(&out, copy).expect("of our own");
    here.run(AGAIN).ok();
    assert!(std::fs::read(&out).expect("a copy") == whole, "the true copy is continued");
}

#[test]
fn what_took_the_place_of_a_copy_is_never_written_over() {
    let here = Workplace::new();
    let whole = copied_in_part(&here);
    let out = here.path().join("out");
    filled(&here, RAID5, "d e f", 3);
    let member = std::fs::read(here.path().join("d")).expect("a member");
    std::fs::write(&out, &member).expect("of our own");
    for overwrite in ["", " --overwrite"] {
        refused(&here, &format!("{AGAIN}{overwrite}"), &["out: has 8388608 bytes, and its map is of"]);
    }
    // A map that calls nothing finished says nothing of the file.
    let map = std::fs::read_to_string(here.path().join("out.map")).expect("a map");
    let comments: String = map.lines().take(4).map(|line| format!("{line}\n")).collect();
    let length = whole.len();
    std::fs::write(here.path().join("out.map"), format!("{comments}0 ? 1\n0 {length} ?\n")).expect("of our own");
    let mut longer = member.clone();
    longer.resize(length, 0);
    std::fs::write(&out, &longer).expect("of our own");
    for overwrite in ["", " --overwrite"] {
        refused(&here, &format!("{AGAIN}{overwrite}"), &["out: a member of the array"]);
    }
    std::fs::write(&out, pattern(4, length)).expect("of our own");
    refused(&here, AGAIN, &["out: exists already, and holds data", "--overwrite"]);
    // Neither does one that calls only some bytes finished that happen to be the same.
    let tail = length - 4096;
    std::fs::write(here.path().join("out.map"), format!("{comments}0 ? 1\n0 {tail} ?\n{tail} 4096 +\n"))
        .expect("of our own");
    longer[tail..].copy_from_slice(&whole[tail..]);
    std::fs::write(&out, &longer).expect("of our own");
    refused(&here, &format!("{AGAIN} --overwrite"), &["out: a member of the array"]);
    longer[..2 * MIB as usize].fill(0);
    longer[1080..1082].copy_from_slice(&[0x53, 0xef]);
    std::fs::write(&out, &longer).expect("of our own");
    refused(&here, AGAIN, &["exists already, and holds", "--overwrite"]);
    here.run(&format!("{AGAIN} --overwrite")).ok();
    assert!(std::fs::read(&out).expect("a copy") == whole);
}

#[test]
fn a_copy_by_hand_continues_with_one_more_disk_and_not_with_other_ones() {
    let here = Workplace::new();
    filled(&here, RAID5, "a b c", 5);
    filled(&here, RAID5, "d e f", 6);
    std::fs::write(here.path().join("a.map"), MAP_WITH_A_HOLE).expect("of our own");
    let read = |members: &str, rest: &str| -> Run {
        let shape = "level=5,layout=ls,chunk=64K,offset=1M";
        here.run(&format!("read --geometry {shape} {members} --salvage --output out --map-out out.map {rest}"))
    };
    read("a b missing", "--map a=a.map").expect(1, &["could not be read"]);
    let before = here.contents(&["out", "out.map"]);
    for others in ["d e missing", "a e missing", "d b missing", "d e f", "b a c", "a b f"] {
        read(others, "").expect(2, &["out: its map calls byte", "or these are other members"]);
        assert!(here.contents(&["out", "out.map"]) == before, "{others}: something changed");
    }
}

#[test]
fn a_copy_by_hand_is_completed_by_the_disk_that_was_missing() {
    let here = Workplace::new();
    let whole = filled(&here, RAID5, "a b c", 5);
    std::fs::write(here.path().join("a.map"), MAP_WITH_A_HOLE).expect("of our own");
    let read = "read --geometry level=5,layout=ls,chunk=64K,offset=1M --salvage --output out --map-out out.map";
    here.run(&format!("{read} a b missing --map a=a.map")).expect(1, &["could not be read"]);
    // Under another name, too: the disk is another device today.
    std::fs::rename(here.path().join("b"), here.path().join("other")).expect("of our own");
    here.run(&format!("{read} a other c")).ok();
    assert!(std::fs::read(here.path().join("out")).expect("a copy") == whole);
    refused(&here, &format!("{read} a other c missing"), &["as the map of another copy: `array:"]);
}

#[test]
fn a_map_that_cannot_be_written_is_refused_before_anything_is_copied() {
    let here = Workplace::new();
    filled(&here, RAID5, "a b c", 7);
    here.run("read a b c --salvage --output out --map-out none/out.map")
        .expect(2, &["cannot write the map", "a directory that exists"]);
    assert!(!here.path().join("out").exists(), "a file was made");
}

#[test]
fn files_beside_a_map_stay_as_they_are_and_no_other_is_left() {
    let here = Workplace::new();
    filled(&here, RAID5, "a b c", 8);
    std::fs::write(here.path().join("precious"), "precious").expect("of our own");
    std::fs::write(here.path().join(".out.map.mdspace-new"), "mine").expect("of our own");
    std::os::unix::fs::symlink("precious", here.path().join(".link.mdspace-new")).expect("of our own");
    let names = || {
        let entries = here.path().read_dir().expect("of our own");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("of our own").file_name()).collect();
        names.sort();
        names
    };
    let mut expected = names();
    here.run("read a b c --salvage --output out --map-out out.map").ok();
    here.run("read a b c --salvage --output out2 --map-out link").ok();
    expected.extend(["out", "out.map", "out2", "link"].map(Into::into));
    expected.sort();
    assert_eq!(names(), expected);
    assert_eq!(here.contents(&["precious", ".out.map.mdspace-new"]), [b"precious".to_vec(), b"mine".to_vec()]);
}

#[test]
fn an_inner_member_at_the_start_of_a_copy_does_not_stop_it() {
    let here = Workplace::new();
    // The outer array holds a member of another array.
    here.run("create --level 5 --chunk 64K --size 16M --data-offset 1M a b c").ok();
    let bytes = here.run("read a b c").ok().stdout.len();
    File::create(here.path().join("inner")).expect("of our own").set_len(bytes as u64).expect("it is sparse");
    here.run("create --level 1 inner missing").ok();
    here.run_with("write inner", &pattern(9, 8 << 20)).ok();
    here.run("write a b c --input inner").ok();
    let map = format!("0 - 1\n0 0x300000 +\n0x300000 0x1000 -\n0x301000 {} +\n", 16 * MIB - 0x301000);
    std::fs::write(here.path().join("a.map"), map).expect("of our own");
    here.run("read a b --map a=a.map --salvage --output out --map-out out.map").expect(1, &["could not be read"]);
    here.run(AGAIN).ok();
    let whole = here.run("read a b c").ok().stdout.clone();
    let mut out = vec![0; whole.len()];
    File::open(here.path().join("out")).expect("a copy").read_exact_at(&mut out, 0).expect("as long");
    assert!(out == whole);
}

/// A copy is killed before its map is saved for the first time: the file has bytes that its map does not know.
#[test]
fn a_copy_that_was_killed_early_is_continued_if_it_holds_nothing_else() {
    let here = Workplace::new();
    let whole = copied_in_part(&here);
    let (out, map) = (here.path().join("out"), here.path().join("out.map"));
    let text = std::fs::read_to_string(&map).expect("a map");
    let comments: String = text.lines().take(4).map(|line| format!("{line}\n")).collect();
    let untried = format!("{comments}0 ? 1\n0 {} ?\n", whole.len());
    let mut early = vec![0; whole.len()];
    early[..3 * MIB as usize].copy_from_slice(&whole[..3 * MIB as usize]);
    let another = [&early[..2 * MIB as usize], &[early[2 * MIB as usize] ^ 1], &early[2 * MIB as usize + 1..]].concat();
    std::fs::write(&map, &untried).expect("of our own");
    std::fs::write(&out, another).expect("of our own");
    refused(&here, AGAIN, &["out: exists already, and holds data", "--overwrite"]);
    std::fs::write(&out, early).expect("of our own");
    here.run(AGAIN).ok();
    assert!(std::fs::read(&out).expect("a copy") == whole);
}

#[test]
fn no_new_file_takes_the_name_of_a_part_of_a_disk() {
    let here = Workplace::new();
    filled(&here, RAID5, "a b c", 1);
    File::create(here.path().join("disk.img")).and_then(|file| file.set_len(MIB)).expect("of our own");
    for (name, options) in [("disk.img:1", ""), ("disk.img@1M", ""), ("disk.img:1", "--salvage --map-out m")] {
        let line = format!("read a b c --output {name} {options}");
        here.run(&line).expect(2, &[&format!("{name}: names a part of disk.img"), "--output"]);
        assert!(!here.path().join(name).exists(), "{line}");
    }
    for (line, option) in [
        ("read a b c --output copy --salvage --map-out disk.img:1", "--map-out"),
        ("create --level 1 --size 8M d e --bitmap ./disk.img:1", "name a new file"),
        ("write a b c --overlay disk.img:1", "cannot use its overlay"),
    ] {
        here.run(line).expect(2, &["disk.img:1: names a part of ", option]);
        assert!(["disk.img:1", "copy", "d", "e"].iter().all(|name| !here.path().join(name).exists()), "{line}");
    }
}
