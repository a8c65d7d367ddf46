//! `--geometry`: arrays whose superblocks are lost, wrong, or never were, read by a shape that the user states.
//!
//! A black-box test. Each array is created, filled and read with its superblocks; then they are overwritten, and the
//! same bytes must come out. No member changes.

use crate::support::nbd::Nbd;
use crate::support::{Run, Server, Workplace};
use std::os::unix::fs::FileExt;

const MIB: u64 = 1 << 20;

/// The bytes of a pattern without repetition.
fn pattern(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state ^ state >> 32).to_le_bytes()
    };
    let mut words: Vec<u8> = std::iter::repeat_with(&mut next).take(bytes.div_ceil(8)).flatten().collect();
    words.truncate(bytes);
    words
}

/// Writes over everything before `end` of each member.
fn lose_superblocks(here: &Workplace, members: &[&str], end: u64) {
    for member in members {
        let file = std::fs::File::options().write(true).open(here.path().join(member)).expect("a member");
        file.write_all_at(&vec![0xee; end as usize], 0).expect("room");
    }
}

/// Creates an array of these members, fills it, and returns its bytes.
fn filled(here: &Workplace, create: &str, members: &str) -> Vec<u8> {
    here.run(&format!("create {create} --size 4M {members}")).ok();
    let whole = here.run(&format!("read {members}")).ok().stdout.len();
    here.run_with(&format!("write {members}"), &pattern(whole)).ok();
    let read = here.run(&format!("read {members}")).ok().stdout.clone();
    assert_eq!(read.len(), whole);
    read
}

const MEMBERS: [&str; 4] = ["a.img", "b.img", "c.img", "d.img"];

#[test]
fn every_level_reads_the_same_without_its_superblocks() {
    for (create, geometry, missing) in [
        ("--level linear", "level=linear,offset=1M", None),
        ("--level 0 --chunk 12K", "level=0,chunk=12K,offset=1M", None),
        ("--level 1", "level=1,offset=1M", Some(0)),
        ("--level 4 --chunk 8K", "level=4,chunk=8K,offset=1M", Some(3)),
        ("--level 5 --chunk 64K --layout ra", "level=5,layout=ra,chunk=64K,offset=1M", Some(1)),
        ("--level 5 --chunk 4K", "level=5,chunk=4K,offset=1M", None),
        ("--level 6 --chunk 64K --layout ddf-N-continue", "level=6,layout=ddf-N-continue,chunk=64K,offset=1M", Some(2)),
        ("--level 10 --chunk 64K", "level=10,chunk=64K,offset=1M", Some(1)),
        ("--level 10 --chunk 64K --layout f2", "level=10,layout=f2,chunk=64K,offset=1M,size=3M", Some(1)),
        ("--level 10 --chunk 64K --layout o2", "level=10,layout=o2,chunk=64K,offset=1M,size=3M", Some(3)),
    ] {
        let here = Workplace::new();
        let bytes = filled(&here, &format!("{create} --data-offset 1M"), "a.img b.img c.img d.img");
        lose_superblocks(&here, &MEMBERS, MIB);
        let before = here.contents(&MEMBERS);
        here.run("read a.img b.img c.img d.img").expect(2, &["superblock.magic"]);
        let read = |words: &str| here.run(&format!("read --geometry {geometry}{words}")).ok().stdout.clone();
        assert!(read(" a.img b.img c.img d.img") == bytes, "{geometry}");
        assert!(read(",order=a.img,b.img,c.img,d.img") == bytes, "{geometry}");
        assert!(read(",order=a.img,b.img,c.img,d.img d.img c.img") == bytes, "{geometry}: members named again");
        if let Some(missing) = missing {
            let mut words = MEMBERS;
            words[missing] = "missing";
            assert!(read(&format!(" {}", words.join(" "))) == bytes, "{geometry}: without {missing}");
            let scrubbed = here.run(&format!("scrub --geometry {geometry} a.img b.img c.img d.img"));
            scrubbed.ok();
        }
        assert!(here.contents(&MEMBERS) == before, "{geometry}: a member changed");
    }
}

#[test]
fn data_may_begin_at_another_place_on_each_member_also_at_its_first_byte() {
    let here = Workplace::new();
    let bytes = filled(&here, "--level 5 --chunk 64K --data-offset 1M", "a.img b.img c.img");
    for (member, data_at) in [("a.img", 0), ("b.img", 1536 << 10), ("c.img", 4096)] {
        let old = std::fs::read(here.path().join(member)).expect("a member");
        let mut new = vec![0xee; data_at];
        new.extend_from_slice(&old[MIB as usize..]);
        std::fs::write(here.path().join(member), new).expect("of our own");
    }
    let geometry = "level=5,chunk=64K,offset=0:1536K:4K";
    let run = here.run(&format!("read --geometry {geometry} a.img b.img c.img"));
    assert!(run.ok().stdout == bytes);
    // The same with parts, and on a partition of a disk the offset counts from its beginning.
    let run = here.run("read --geometry level=5,chunk=64K,offset=0,order=a.img,b.img@1536K,c.img@4K");
    assert!(run.ok().stdout == bytes);
    let run = here.run("read --geometry level=5,chunk=64K,offset=512K:1M:0 missing b.img@512K c.img@4K");
    assert!(run.ok().stdout == bytes);
    let run = here.run("read --geometry level=5,chunk=64K,offset=512K,size=2M missing b.img@1M+3M c.img@0");
    run.expect(0, &["nothing says that it fits"]);
    let run = here.run("create --assume-clean --geometry level=5,chunk=64K,offset=0:1536K:4K a.img b.img c.img");
    run.expect(2, &["offset: superblocks are written for one position", "next: copy the data"]);
}

#[test]
fn superblocks_of_another_shape_are_not_in_the_way_also_at_a_members_end() {
    for metadata in ["1.0", "1.1", "1.2"] {
        let here = Workplace::new();
        let offset = if metadata == "1.0" { "" } else { "--data-offset 3M" };
        let create = format!("--level 5 --chunk 64K --metadata {metadata} {offset}");
        let bytes = filled(&here, &create, "a.img b.img c.img");
        let offset = if metadata == "1.0" { "" } else { "--data-offset 1M" };
        let again = format!("create --level 5 --chunk 512K --metadata {metadata} {offset} --assume-clean --force");
        here.run(&format!("{again} b.img c.img a.img")).ok();
        let at = if metadata == "1.0" { "0" } else { "3M" };
        let run = here.run(&format!("read --geometry level=5,chunk=64K,offset={at} a.img b.img c.img"));
        let read = &run.ok().stdout;
        // What lies behind the array, such as a superblock at the end, is read too: no size was stated.
        assert!(read[..bytes.len()] == bytes, "{metadata}");
    }
}

#[test]
fn superblocks_for_a_geometry_are_written_by_create_and_nothing_else_is() {
    let here = Workplace::new();
    let bytes = filled(&here, "--level 6 --chunk 64K --data-offset 2M", "a.img b.img c.img d.img");
    lose_superblocks(&here, &MEMBERS, 64 << 10);
    let text = "level=6,chunk=64K,offset=2M,order=a.img,b.img,missing,d.img";
    let before = here.contents(&MEMBERS);
    here.run(&format!("create --geometry {text}")).expect(2, &["--assume-clean"]);
    here.run(&format!("create --assume-clean --geometry {text}")).expect(2, &["--force"]);
    assert!(here.contents(&MEMBERS) == before, "a refused creation changed a member");
    here.run(&format!("create --assume-clean --force --geometry {text}")).ok();
    assert!(here.run("read a.img b.img d.img").ok().stdout == bytes);
    for (old, new) in before.iter().zip(here.contents(&MEMBERS)) {
        assert!(old[2 << 20..] == new[2 << 20..], "data changed");
    }
}

#[test]
fn an_array_by_hand_is_served_read_only() {
    let here = Workplace::new();
    let bytes = filled(&here, "--level 5 --chunk 64K --data-offset 1M", "a.img b.img c.img");
    lose_superblocks(&here, &MEMBERS[..3], MIB);
    let geometry = "--geometry level=5,chunk=64K,offset=1M,order=a.img,missing,c.img";
    let sockets = "--nbd unix:nbd.socket --control control.socket";
    here.run(&format!("serve {geometry} {sockets}")).expect(2, &["only for reading", "--read-only"]);
    here.run_with(&format!("write {geometry}"), b"x").expect(2, &["only for reading"]);
    let server = Server::of(&here, &format!("serve --read-only {geometry} {sockets}"));
    let socket = here.path().join("nbd.socket");
    let mut client = Nbd::connect(socket.to_str().expect("a temporary directory's name"));
    assert!(client.read(MIB, 4096) == bytes[MIB as usize..][..4096]);
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn each_field_that_does_not_fit_the_members_is_named_and_nothing_changes() {
    let here = Workplace::new();
    filled(&here, "--level 5 --chunk 64K --data-offset 1M", "a.img b.img c.img");
    std::fs::write(here.path().join("short.img"), [1; 1000]).expect("of our own");
    let names = ["a.img", "b.img", "c.img", "short.img"];
    let before = here.contents(&names);
    for (text, words) in [
        ("level=5,chunk=64K,offset=1M", &["order: neither it nor a MEMBER"][..]),
        ("level=9,chunk=64K,offset=1M a.img b.img c.img", &["level: expected linear"]),
        ("level=5,chunk=64K,offset=1M a.img b.img missing missing", &["order: 2 are missing"]),
        ("level=6,chunk=64K,offset=1M a.img b.img", &["order: 2, but"]),
        ("level=0,chunk=64K,offset=1M a.img missing", &["order: RAID-0 of 2 members has no redundancy"]),
        ("level=5,chunk=96K,offset=1M a.img b.img c.img", &["chunk: 98304 bytes, but"]),
        ("level=5,chunk=16M,offset=1M a.img b.img c.img", &["size: 0 bytes on each member is less"]),
        ("level=5,chunk=64K,offset=1M:2M a.img b.img c.img", &["offset: 2 positions for 3 slots"]),
        ("level=5,chunk=64K,offset=1G a.img b.img c.img", &["a.img: --geometry: offset:", "ends at byte 4194304"]),
        ("level=5,chunk=64K,offset=1M,size=1G a.img b.img c.img", &["a.img: --geometry: size:", "4194304"]),
        ("level=5,chunk=64K,offset=0 a.img b.img short.img", &["size: 0 bytes on each member"]),
        ("level=5,chunk=64K,offset=1M a.img b.img absent.img", &["absent.img: no such file"]),
        ("level=5,chunk=64K,offset=1M,order=a.img,b.img,absent.img", &["absent.img: no such file"]),
        ("level=5,chunk=64K,offset=1M,order=a.img,b.img,missing c.img", &["order: does not name c.img"]),
        ("level=5,chunk=64K,offset=1M,order=?.img,missing", &["order: ?.img matches several files"]),
        ("level=5,chunk=64K,offset=1M a.img b.img ./a.img", &["the same member"]),
        ("level=0,chunk=64K,offset=1M:2M:1M a.img b.img c.img", &["layout: is not stated", "layout=alternate"]),
        ("level=10,layout=n9,chunk=64K,offset=1M a.img b.img c.img", &["layout: near=9, far=1 is 9 copies"]),
        ("level=5,chunk=64K,offset=1M a.img b.img c.img --force", &["--force"]),
        ("level=5,chunk=64K,offset=1M a.img b.img c.img --name x", &["--name"]),
    ] {
        refused(&here.run(&format!("read --geometry {text}")), words);
        assert!(here.contents(&names) == before, "{text}: a member changed");
    }
    for (line, words) in [
        ("scrub --repair --geometry level=5,chunk=64K,offset=1M a.img b.img c.img", &["--repair"][..]),
        ("create --assume-clean --level 5 --geometry level=5,chunk=64K,offset=1M a.img b.img c.img", &["--level"]),
        ("create a.img b.img", &["--level"]),
    ] {
        refused(&here.run(line), words);
        assert!(here.contents(&names) == before, "{line}: a member changed");
    }
}

#[track_caller]
fn refused(run: &Run, words: &[&str]) {
    run.expect(2, words);
}
