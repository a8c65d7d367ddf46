//! `mdspace update`: the identity of a stopped array changes, and nothing else; what is refused changes nothing.

use crate::support::{Server, Workplace, parsed};
use serde_json::Value;
use std::os::unix::fs::FileExt;

const MEMBERS: [&str; 3] = ["a", "b", "c"];

/// Where a 1.2 superblock begins, and where the bitmap's superblock does.
const SUPERBLOCK: usize = 4096;
const BITMAP: usize = 8192;

fn examined(here: &Workplace) -> Value {
    parsed(&here.run("examine --json a b c").ok().text())
}

/// Asserts that a line is refused with `words`, and that no byte of a member changes.
#[track_caller]
fn refused(here: &Workplace, line: &str, words: &[&str]) {
    let before = here.contents(&MEMBERS);
    here.run(line).expect(2, words);
    assert!(here.contents(&MEMBERS) == before, "{line}: it changed something");
}

#[test]
fn an_array_gets_another_name_and_uuid_and_keeps_all_else() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M --name host:data --bitmap internal a b c").ok();
    let payload: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
    here.run_with("write a b c", &payload).ok();
    let (first, contents) = (examined(&here), here.contents(&MEMBERS));
    let uuid = first["arrays"][0]["uuid"].as_str().expect("text").to_owned();

    let text = here.run("update --name music c a b").ok().text();
    assert!(text.starts_with(&format!("array \"music\" {uuid}: 3 members changed\nbefore: \"host:data\"")), "{text}");
    here.run("update a b c --homehost here").ok();
    assert_eq!(examined(&here)["arrays"][0]["status"]["name"], "here:music");
    here.run("update a b c --homehost there").ok();
    here.run("update a b c --homehost other --name \u{e9}").ok();
    assert_eq!(examined(&here)["arrays"][0]["status"]["name"], "other:\u{e9}");
    let given = "01234567:89abcdef:00000000:00000001";
    let report = parsed(&here.run(&format!("update a b c --json --uuid {given}")).ok().text());
    assert_eq!((&report["before"]["uuid"], &report["after"]["uuid"]), (&uuid.into(), &given.into()));
    here.run("update a b c --uuid random").ok();
    let last = examined(&here);
    let random = last["arrays"][0]["uuid"].as_str().expect("text").to_owned();
    assert_ne!(random, given);

    assert_eq!(last["arrays"][0]["status"]["events"], first["arrays"][0]["status"]["events"]);
    assert_eq!(last["arrays"][0]["write_refusal"], Value::Null, "the bitmap belongs to it");
    for (before, after) in contents.iter().zip(here.contents(&MEMBERS)) {
        let changed = (0..before.len()).filter(|&at| before[at] != after[at]);
        let places = [SUPERBLOCK..SUPERBLOCK + 512, BITMAP..BITMAP + 256];
        let elsewhere: Vec<usize> = changed.filter(|at| !places.iter().any(|place| place.contains(at))).collect();
        assert!(elsewhere.is_empty(), "{elsewhere:?}");
    }
    assert!(here.run(&format!("read . --uuid {random} --length 1M")).ok().stdout == payload);
    let server = Server::of(&here, "serve a b c");
    refused(&here, "update a b c --name x", &["in use"]);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_change_of_the_uuid_that_was_interrupted_is_completed_by_the_same_command() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M --name data --bitmap internal a b c").ok();
    here.run("create --level 5 --chunk 64K --size 8M --name other x y z").ok();
    let uuid = "01234567:89abcdef:00000000:00000001";
    // As after a power loss behind the second member.
    here.run(&format!("update a b --uuid {uuid}")).expect(0, &["1 members are missing"]);
    refused(&here, "read a b c", &["superblock.set_uuid"]);
    refused(&here, "update a b c --uuid random", &["superblock.set_uuid"]);
    refused(&here, &format!("update a b x --uuid {uuid}"), &["x: superblock.set_uuid: belongs to another array"]);
    refused(&here, "update a b c --name more", &["superblock.set_uuid"]);
    here.run(&format!("update c b a --uuid {uuid}")).ok();
    assert_eq!(examined(&here)["arrays"][0]["status"]["in_sync"], 3);
    here.run("read a b c").ok();
}

/// md's checksum of a 1.x superblock: 32-bit words, with the checksum itself as zero, folded once.
fn checksum(superblock: &[u8]) -> u32 {
    let devices = u32::from_le_bytes(superblock[220..224].try_into().expect("four bytes"));
    let mut own = superblock[..256 + 2 * devices as usize].to_vec();
    own[216..220].fill(0);
    own.resize(own.len().next_multiple_of(4), 0);
    let words = own.chunks(4).map(|word| u64::from(u32::from_le_bytes(word.try_into().expect("four bytes"))));
    let sum: u64 = words.sum();
    (sum & 0xffff_ffff) as u32 + (sum >> 32) as u32
}

#[test]
fn bad_block_logs_are_removed_while_they_are_empty() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M --name data a b c").ok();
    let log = examined(&here)["members"][0]["bad_blocks_at"].as_u64().expect("a place");
    let before = here.contents(&["a"]).remove(0);
    let file = std::fs::File::options().write(true).open(here.path().join("a")).expect("a member");
    // Eight sectors are bad: the log's entry, and the feature bit for a log in use.
    let mut superblock = before[SUPERBLOCK..SUPERBLOCK + 4096].to_vec();
    superblock[8] |= 8;
    let sum = checksum(&superblock);
    superblock[216..220].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&(4096_u64 << 10 | 8).to_le_bytes(), log).expect("it is long enough");
    file.write_all_at(&superblock, SUPERBLOCK as u64).expect("it is long enough");
    assert_eq!(examined(&here)["members"][0]["bad_blocks"]["bytes"], 4096);
    refused(&here, "update b c a --no-bad-block-log", &["a: bad-block log: it names bad blocks"]);

    file.write_all_at(&before[log as usize..log as usize + 8], log).expect("it is long enough");
    file.write_all_at(&before[SUPERBLOCK..SUPERBLOCK + 4096], SUPERBLOCK as u64).expect("it is long enough");
    let text = here.run("update a b c --no-bad-block-log").ok().text();
    assert!(text.contains("bad-block logs: removed") && !text.contains("before:"), "{text}");
    let members = examined(&here)["members"].clone();
    assert!((0..3).all(|index| members[index]["bad_blocks_at"].is_null()), "{members}");
    let again = parsed(&here.run("update a b c --no-bad-block-log --json").ok().text());
    assert_eq!((&again["before"]["bad_block_log"], &again["after"]["bad_block_log"]), (&false.into(), &false.into()));
}

#[test]
fn the_record_of_a_logical_block_is_removed_where_the_members_blocks_are_the_arrays() {
    let here = Workplace::new();
    let line = "create --force --level 5 --chunk 64K --size 8M --name data --logical-block-size";
    here.run(&format!("{line} 512 a b c")).ok();
    let before = here.contents(&MEMBERS);
    // As if it had been interrupted behind the first member.
    here.run("update a b --clear-logical-block-size").expect(0, &["1 members are missing"]);
    assert_eq!(examined(&here)["members"][0]["logical_block_bytes"], 0);
    assert_eq!(examined(&here)["members"][2]["logical_block_bytes"], 512);
    let text = here.run("update c a b --clear-logical-block-size").ok().text();
    assert!(text.ends_with("logical block of 512 bytes: no longer recorded\n"), "{text}");
    for (before, after) in before.iter().zip(here.contents(&MEMBERS)) {
        let changed: Vec<usize> = (0..before.len()).filter(|&at| before[at] != after[at]).collect();
        let fields = [SUPERBLOCK + 216..SUPERBLOCK + 220, SUPERBLOCK + 224..SUPERBLOCK + 228];
        assert!(changed.iter().all(|at| fields.iter().any(|field| field.contains(at))), "{changed:?}");
        assert_eq!(after[SUPERBLOCK + 224..SUPERBLOCK + 228], [0; 4]);
    }
    let again = parsed(&here.run("update a b c --clear-logical-block-size --json").ok().text());
    assert_eq!(
        (&again["before"]["logical_block_bytes"], &again["after"]["logical_block_bytes"]),
        (&0.into(), &0.into())
    );
    here.run("read a b c").ok();

    here.run(&format!("{line} 4K a b c")).ok();
    let words = ["a: superblock.logical_block_size: the array's blocks have 4096 bytes", "they would have 512"];
    refused(&here, "update a b c --clear-logical-block-size", &words);
}

#[test]
fn what_cannot_be_changed_is_refused_by_its_field_before_a_byte_is_written() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M --integrity --name data a b c").ok();
    for (line, words) in [
        ("update a b c", &["--uuid", "--name", "--homehost"] as &[&str]),
        ("update --name x", &["<MEMBER>"]),
        ("update a b c --uuid 12", &["32 hexadecimal digits"]),
        ("update a b c --uuid 00000000:00000000:00000000:00000000", &["no uuid"]),
        ("update a b c --name 0123456789012345678901234567890x", &["superblock.set_name", "31 bytes"]),
        ("update a b c --homehost 0123456789012345678901234567890", &["superblock.set_name", "31 bytes"]),
        ("update a b c none --name x", &["none: no such file"]),
        ("update a --name x", &["too few members"]),
        ("update a b c --uuid random", &["checksums are bound to"]),
    ] {
        refused(&here, line, words);
    }
    here.run("update a b c --name x").ok();
    here.run("write a b").expect(0, &[]);
    here.run_with("write a b", b"later").ok();
    refused(&here, "update a b c --name y", &["c: not used: ", "current members alone"]);
    here.run("update a b --name y").ok();
}

#[test]
fn metadata_0_90_becomes_1_0_with_its_uuid_and_its_data() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M --metadata 0.90 --preferred-minor 7 a b c").ok();
    let payload: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
    here.run_with("write a b c", &payload).ok();
    let before = here.contents(&MEMBERS);
    let report = parsed(&here.run("update --metadata 1.0 --json c a b").ok().text());
    assert_eq!((&report["before"]["metadata"], &report["after"]["metadata"]), (&"0.90".into(), &"1.0".into()));
    assert_eq!(report["after"]["name"], "7");
    for (before, after) in before.iter().zip(here.contents(&MEMBERS)) {
        let (old, new) = (before.len() - (64 << 10), before.len() - (8 << 10));
        assert!(before[..old] == after[..old] && before[new + 4096..] == after[new + 4096..], "data changed");
        assert!(after[old..old + 4096].iter().all(|byte| *byte == 0), "the old superblock is left");
    }
    assert!(here.run("read a b c --length 1M").ok().stdout == payload);
    refused(&here, "update --metadata 1.0 a b c", &["metadata 1.0 already"]);

    // As after a power loss behind the second member: the array goes on, and the command is repeated.
    std::fs::write(here.path().join("c"), &before[2]).expect("written");
    assert!(here.run("read a b c --length 1M").ok().stdout == payload);
    let text = here.run("update --metadata 1.0 a b c").ok().text();
    assert!(text.contains("3 members have metadata 1.0"), "{text}");
    assert_eq!(examined(&here)["arrays"][0]["status"]["in_sync"], 3);
    std::fs::write(here.path().join("c"), &before[2]).expect("written");
    here.run_with("write a b c", b"more").ok();
    here.run("read a b c").ok();
    assert_eq!(examined(&here)["arrays"][0]["status"]["metadata"], "1.0");

    for (member, contents) in MEMBERS.into_iter().zip(&before) {
        std::fs::write(here.path().join(member), contents).expect("written");
    }
    let file = std::fs::File::options().write(true).open(here.path().join("b")).expect("a member");
    file.write_all_at(b"EFI PART", before[1].len() as u64 - (8 << 10)).expect("it is long enough");
    refused(&here, "update --metadata 1.0 a b c", &["b: superblock.super_offset", "is not empty", "--force"]);
    refused(&here, "update --metadata 1.0 a", &["too few members"]);
    refused(&here, "update --metadata 1.2 a b c", &["1.0"]);
    refused(&here, "update --metadata 1.0 --name x a b c", &["cannot be used with"]);
    refused(&here, "update --name x --force a b c", &["cannot be used with"]);
    here.run("update --metadata 1.0 --force a b c").ok();
    assert!(here.run("read a b c --length 1M").ok().stdout == payload);
}

/// A superblock 0.90 as a machine of the other byte order writes it.
pub(crate) fn turned(mut member: Vec<u8>) -> Vec<u8> {
    let at = member.len() - (64 << 10);
    let (words, _) = member[at..at + 4096].as_chunks_mut::<4>();
    words.iter_mut().for_each(|word| word.reverse());
    [39, 41, 44].into_iter().for_each(|first| words.swap(first, first + 1));
    member
}

#[test]
fn superblocks_of_the_other_byte_order_are_written_in_this_machines() {
    let here = Workplace::new();
    for (bitmap, words) in [("none", "in this machine's byte order"), ("internal", "bitmap: removed")] {
        let line = format!("create --force --level 5 --chunk 64K --size 8M --metadata 0.90 --bitmap {bitmap} a b c");
        here.run(&line).ok();
        let before = here.contents(&MEMBERS);
        refused(&here, "update --byteorder a b c", &["byte order already"]);
        for (member, contents) in MEMBERS.into_iter().zip(&before) {
            std::fs::write(here.path().join(member), turned(contents.clone())).expect("written");
        }
        refused(&here, "update --resync a b c", &["superblock.md_magic", "`mdspace update --byteorder` first"]);
        refused(&here, "update --metadata 1.0 a b c", &["superblock.md_magic", "`mdspace update --byteorder` first"]);
        // As if it had been interrupted behind the second member.
        here.run("update --byteorder a b").ok();
        let text = here.run("update --byteorder a b c").ok().text();
        assert!(text.contains(words), "{text}");
        assert!(bitmap == "internal" || here.contents(&MEMBERS) == before, "other bytes than before the turn");
        let report = examined(&here);
        assert_eq!(report["arrays"][0]["status"]["bitmap"], Value::Null);
        assert_eq!(report["arrays"][0]["status"]["in_sync"], 3);
        here.run("write a b c --offset 1M").ok();
    }
    here.run("create --force --level 5 --chunk 64K --size 8M a b c").ok();
    refused(&here, "update --byteorder a b c", &["superblock.md_magic", "only version 0.90 has a byte order"]);
}
