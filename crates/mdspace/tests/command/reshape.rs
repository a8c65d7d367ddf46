//! `mdspace grow --raid-devices` of arrays with parity: what it refuses, with exit status 2 and no byte changed, and that the
//! array holds its bytes afterwards, with its bitmap.
//!
//! The simulator cuts power at each write (`more_slots.rs`), and `tests/kernel/more_slots.sh` has the real driver judge.

use crate::support::{Run, Server, Workplace, parsed};
use std::fs::{File, write};

const MEMBERS: [&str; 3] = ["a.img", "b.img", "c.img"];
const NEW: &str = "d.img";
const SHORT: &str = "short.img";

fn make(how: &str) -> Workplace {
    let here = Workplace::new();
    here.run(&format!("create {how} --size 8M {}", MEMBERS.join(" "))).ok();
    for (new, bytes) in [(NEW, 8 << 20), (SHORT, 4 << 20)] {
        File::create(here.path().join(new)).expect("a file of our own").set_len(bytes).expect("it can be longer");
    }
    here
}

fn grow(here: &Workplace, members: &[&str], asked: &str) -> Run {
    here.run(&format!("grow {} {asked}", members.join(" ")))
}

#[test]
fn what_cannot_be_reshaped_is_refused_and_nothing_changed() {
    for (how, asked, words) in [
        ("--level 5 --chunk 64K", "--raid-devices 4", &["needs one more spare", "--add"][..]),
        ("--level 5 --chunk 64K", "--raid-devices 5 --add d.img", &["needs 2 more spares", "the array has 1"]),
        ("--level 5 --chunk 64K", "--raid-devices 3", &["superblock.raid_disks", "has 3 slots already"]),
        ("--level 5 --chunk 64K", "--raid-devices 2", &["superblock.raid_disks", "has 3 slots already"]),
        (
            "--level 5 --chunk 1M --data-offset 1M",
            "--raid-devices 4 --add d.img",
            &["superblock.data_offset", "room before the data"],
        ),
        ("--level 5 --chunk 64K --metadata 1.0", "--raid-devices 4 --add d.img", &["superblock.version"]),
        ("--level 5 --chunk 64K --metadata 0.90", "--raid-devices 4 --add d.img", &["superblock.version"]),
        ("--level 5 --chunk 64K --integrity", "--raid-devices 4 --add d.img", &["keeps checksums", "integrity=off"]),
        ("--level 5 --chunk 64K --consistency-policy ppl", "--raid-devices 4 --add d.img", &["superblock.feature_map"]),
        ("--level 5 --chunk 64K --consistency-policy log", "--raid-devices 4 --add d.img", &["stripe log"]),
        ("--level 5 --chunk 64K", "--raid-devices 4 --add a.img", &["a.img"]),
        ("--level 5 --chunk 64K", "--raid-devices 4 --add none.img", &["none.img"]),
        ("--level 5 --chunk 64K", "--raid-devices 4 --add short.img", &["short.img", "smallest"]),
        ("--level 5 --chunk 64K", "--raid-devices 4 --add short.img --dry-run", &["short.img", "smallest"]),
        ("--level 5 --chunk 64K", "--continue", &["no reshape is under way"]),
        ("--level 5 --chunk 64K", "--continue --raid-devices 4", &["cannot be used with"]),
        ("--level 5 --chunk 64K", "--size max --add d.img", &["--raid-devices"]),
        ("--level 1", "--raid-devices 4 --add d.img", &["--add", "RAID-4, 5 or 6"]),
    ] {
        let here = make(how);
        let all = [&MEMBERS[..], &[NEW, SHORT]].concat();
        let before = here.contents(&all);
        let ran = grow(&here, &MEMBERS, asked);
        assert!(here.contents(&all) == before, "{how}: {asked}: changed");
        ran.expect(2, words);
    }
}

#[test]
fn an_array_that_lacks_a_member_is_served_or_has_a_stale_one_is_not_reshaped() {
    let here = make("--level 5 --chunk 64K");
    let before = here.contents(&MEMBERS);
    grow(&here, &MEMBERS[1..], "--raid-devices 4 --add d.img").expect(2, &["degraded"]);
    assert!(here.contents(&MEMBERS) == before);
    let server = Server::of(&here, &format!("serve {} --control control.socket", MEMBERS.join(" ")));
    grow(&here, &MEMBERS, "--raid-devices 4 --add d.img").expect(2, &["a.img"]);
    here.run("grow --raid-devices 4 --control control.socket").expect(2, &["stop it", "mdspace grow --raid-devices 4"]);
    here.run("stop --control control.socket").ok();
    server.wait();
}

#[test]
fn a_new_member_that_holds_something_is_taken_only_by_force() {
    let here = make("--level 5 --chunk 64K");
    write(here.path().join(NEW), vec![0x5a; 8 << 20]).expect("a file of our own");
    let before = here.contents(&[NEW]);
    grow(&here, &MEMBERS, "--raid-devices 4 --add d.img").expect(2, &["d.img", "--force"]);
    assert!(here.contents(&[NEW]) == before);
    grow(&here, &MEMBERS, "--raid-devices 4 --add d.img --force").ok();
    here.run(&format!("scrub {} {NEW}", MEMBERS.join(" "))).ok();
}

#[test]
fn the_array_has_its_bytes_its_bitmap_and_the_room_of_the_new_member() {
    for (how, moved) in [("--level 5 --bitmap internal", "1"), ("--level 6 --layout la", "2"), ("--level 4", "3")] {
        let here = Workplace::new();
        let members = [&MEMBERS[..], &["e.img"]].concat();
        here.run(&format!("create {how} --chunk 64K --size 8M {}", members.join(" "))).ok();
        let data: Vec<u8> = (0..3_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        write(here.path().join("data"), &data).expect("a file of our own");
        here.run(&format!("write --input data {}", members.join(" "))).ok();
        File::create(here.path().join(NEW)).expect("a file of our own").set_len(8 << 20).expect("it can be longer");
        let all = [&members[..], &[NEW]].concat();
        let before = here.contents(&all);
        let asked = format!("--raid-devices 5 --add {NEW}");
        grow(&here, &members, &format!("{asked} --dry-run")).ok();
        assert!(here.contents(&all) == before, "{how}: a dry run changed something");
        grow(&here, &members, &format!("{asked} --overlay try")).ok();
        here.run(&format!("read --overlay try --output tried --length {} {}", data.len(), all.join(" "))).ok();
        assert!(std::fs::read(here.path().join("tried")).expect("it was read") == data, "{how}: other bytes");
        assert!(here.contents(&all) == before, "{how}: a member changed under the overlay");
        here.run("overlay discard try").ok();
        let told = grow(&here, &members, &asked).ok().text();
        assert!(told.contains("5 slots") && told.contains("mdspace serve"), "{how} {moved}: {told}");
        here.run(&format!("read --output got --length {} {}", data.len(), all.join(" "))).ok();
        assert!(std::fs::read(here.path().join("got")).expect("it was read") == data, "{how}: other bytes");
        here.run(&format!("scrub {}", all.join(" "))).ok();
        let examined = parsed(&here.run(&format!("examine --json {}", all.join(" "))).ok().text());
        let member = &examined["members"][4];
        assert_eq!(member["bitmap"].is_object(), how.contains("bitmap"), "{how}: {member}");
        assert!(member["reshape"].is_null() && member["clean"] != false, "{how}: {member}");
    }
}
