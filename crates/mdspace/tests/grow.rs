//! `mdspace grow`: what it refuses, with exit status 2 and no byte changed, and what it says.
//!
//! A black box over the command, on files. That what it makes is an array at every moment is the simulated world's
//! matter, and that md takes it, the kernel's (`tests/kernel/grow.sh`).

mod support;

use support::{Server, Workplace};

const MEMBERS: [&str; 4] = ["a.img", "b.img", "c.img", "d.img"];

/// What makes the array, on members of 4 MiB that are 8 MiB long afterwards; what is asked; what the refusal says.
const REFUSED: [(&str, &str, &[&str]); 11] = [
    ("--level 0 --chunk 64K", "--size max", &["a.img: superblock.level"]),
    ("--level linear", "--size max", &["superblock.level"]),
    ("--level 10 --chunk 64K --layout f2", "--size max", &["superblock.layout", "far copies"]),
    ("--level 5 --chunk 64K", "--size 1M", &["superblock.size", "not made smaller"]),
    ("--level 5 --chunk 64K", "--size 8M", &["superblock.size", "has room for only 7340032"]),
    ("--level 5 --chunk 64K --integrity", "--size max", &["a.img: superblock.size", "keeps checksums"]),
    ("--level 5 --chunk 64K", "--raid-devices 5", &["superblock.level", "only RAID-1"]),
    ("--level 1", "--raid-devices 3", &["superblock.raid_disks", "4 copies are in use"]),
    ("--level 1", "--raid-devices 1", &["superblock.raid_disks", "not from 2"]),
    ("--level 1", "--raid-devices 4 --size max", &["cannot be used with"]),
    ("--level 1", "", &["--size"]),
];

fn make(here: &Workplace, how: &str) {
    here.run(&format!("create {how} --size 4M {}", MEMBERS.join(" "))).ok();
    for member in MEMBERS {
        let file = std::fs::File::options().write(true).open(here.path().join(member)).expect("it was made");
        file.set_len(8 << 20).expect("it can be longer");
    }
}

#[track_caller]
fn refused(here: &Workplace, members: &[&str], asked: &str, words: &[&str]) {
    let before = here.contents(&MEMBERS);
    here.run(&format!("grow {} {asked}", members.join(" "))).expect(2, words);
    assert!(here.contents(&MEMBERS) == before, "{asked}: members changed");
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
