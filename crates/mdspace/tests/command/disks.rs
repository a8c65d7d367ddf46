//! Whole disks where members are expected: images with partition tables that sfdisk wrote, as of a NAS with three disks
//! and three arrays.

use crate::support::disks::{DISK_BYTES, DISKS, MIB, content, disk, nas};
use crate::support::{Server, Workplace, parsed};
use std::os::unix::fs::FileExt;

fn uuid_of(here: &Workplace, member: &str) -> String {
    let report = parsed(&here.run(&format!("examine --json {member}")).text());
    report["members"][0]["array_uuid"].as_str().expect("it has one").to_owned()
}

#[test]
fn a_part_of_an_image_is_a_member_by_number_and_by_range() {
    for label in ["gpt", "dos"] {
        let here = Workplace::new();
        let data = nas(&here, label);
        for members in [
            "disk3.img:3 disk1.img:3 disk2.img:3",
            "disk1.img:3 disk2.img:3",
            "disk?.img:3",
            "disk1.img@17M disk2.img@17M+20M disk3.img@34816s+40960s",
        ] {
            let run = here.run(&format!("read {members} --length 8M"));
            assert!(run.ok().stdout == data, "{label}: {members}");
        }
        for (member, words) in [
            ("disk1.img:4", "has the partitions 1, 2, 3"),
            ("disk1.img@100G", "past the end"),
            ("disk1.img@100", "inside a block"),
            ("disk1.img@17M+20M", "of 3 slots, missing: 1, 2"),
            ("disk9.img:1", "no such file"),
            ("disk1.img:3 disk1.img@17M+20M", "same member"),
        ] {
            here.run(&format!("read {member}")).expect(2, &[words]);
        }
    }
}

#[test]
fn a_whole_disk_stands_for_the_members_on_it_and_one_of_several_arrays_is_chosen() {
    let here = Workplace::new();
    let data = nas(&here, "gpt");
    let before = here.contents(&DISKS);
    let uuids = [1, 2, 3].map(|number| uuid_of(&here, &format!("disk1.img:{number}")));
    let refused = here.run("read disk1.img disk2.img disk3.img");
    refused.expect(2, &["3 arrays", &uuids[0], &uuids[1], &uuids[2], "nas:2", "(raid5): disk1.img:3 disk2.img:3"]);
    for choice in [format!("--uuid {}", uuids[2]), "--name 2".to_owned(), "--name nas:2".to_owned()] {
        let run = here.run(&format!("read disk?.img {choice} --length 8M"));
        assert!(run.ok().stdout == data, "{choice}");
        let run = here.run(&format!("read . {choice} --length 8M"));
        assert!(run.ok().stdout == data, "{choice}, in a directory");
    }
    // One disk of the NAS is enough for its copies, and too few for the rest.
    assert!(here.run("read disk2.img --name 0 --length 1M").ok().stdout == content(MIB, 0));
    here.run("read disk2.img --name 2").expect(2, &["of 3 slots, missing: 0, 2"]);
    let report = parsed(&here.run("examine --json disk?.img").ok().text());
    assert_eq!(report["members"].as_array().map(Vec::len), Some(9), "{report}");
    assert_eq!(report["arrays"].as_array().map(Vec::len), Some(3), "{report}");
    assert!(here.contents(&DISKS) == before, "reading changed a disk");
}

#[test]
fn a_disk_of_one_array_needs_no_choice() {
    let here = Workplace::new();
    for name in DISKS {
        disk(&here, name, DISK_BYTES, "label: dos\nstart=63, size=20000, type=83\nstart=20063, size=40000, type=fd\n");
    }
    let data = content(4 * MIB, 3);
    here.run("create --level 5 disk1.img:2 disk2.img:2 disk3.img:2").ok();
    here.run_with("write disk1.img disk2.img disk3.img", &data).ok();
    assert!(here.run("read disk1.img disk3.img --length 4M").ok().stdout == data);
    here.run("scrub disk1.img disk2.img disk3.img").ok();
    let text = here.run("examine disk1.img disk2.img disk3.img").ok().text();
    assert!(text.contains("disk1.img:2\n") && text.contains("clean"), "{text}");
    let server = Server::of(&here, "serve disk1.img disk2.img disk3.img --nbd unix:nbd --control control");
    // A new member may be a part too.
    here.run("fail disk2.img:2 --control control").ok();
    here.run("remove disk2.img:2 --control control").ok();
    disk(&here, "new.img", DISK_BYTES, "label: gpt\nstart=2MiB, size=30MiB, type=R\n");
    here.run("add new.img:1 --control control").ok();
    here.run("stop --control control").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn update_changes_the_one_array_on_whole_disks_and_asks_which_of_several() {
    let here = Workplace::new();
    nas(&here, "gpt");
    let before = here.contents(&DISKS);
    let several = ["3 arrays", "name the partitions of one of them"];
    for change in ["--name other", "--metadata 1.0", "--write-journal none"] {
        here.run(&format!("update disk?.img {change}")).expect(2, &several);
    }
    assert!(here.contents(&DISKS) == before, "refused, and a disk was changed");
    pair(&here);
    here.run("update one.img two.img --name x").expect(2, &["one.img: superblock.magic: none of the 2 partitions"]);
    here.run("create --level 1 --name old one.img:2 two.img:2").ok();
    let (start, end) = (10 * MIB as usize, 18 * MIB as usize);
    let around = |here: &Workplace| {
        PAIR.map(|name| {
            let bytes = std::fs::read(here.path().join(name)).expect("of our own");
            (bytes[..start].to_vec(), bytes[end..].to_vec())
        })
    };
    let before = around(&here);
    here.run("update one.img two.img --name new").ok();
    assert!(around(&here) == before, "bytes beside the partitions were changed");
    here.run("wipe one.img").expect(2, &["name these, such as"]);
    let report = parsed(&here.run("examine --json one.img two.img").ok().text());
    let names: Vec<_> = (0..2).map(|index| &report["members"][index]["array_name"]).collect();
    assert_eq!(names, ["new", "new"], "{report}");
}

const PAIR: [&str; 2] = ["one.img", "two.img"];

/// Two disks with two partitions each: from 2 MiB on, and from 10 MiB on, of 8 MiB.
fn pair(here: &Workplace) {
    for name in PAIR {
        disk(here, name, DISK_BYTES, "label: gpt\nstart=2MiB, size=8MiB, type=R\nstart=10MiB, size=8MiB, type=R\n");
    }
}

#[test]
fn an_interrupted_change_of_the_uuid_is_completed_on_whole_disks() {
    let here = Workplace::new();
    pair(&here);
    here.run("create --level 1 --name old one.img:2 two.img:2").ok();
    let old = std::fs::read(here.path().join("two.img")).expect("of our own");
    let line = "update one.img two.img --uuid 01234567:89abcdef:01234567:89abcdef";
    here.run(line).ok();
    std::fs::write(here.path().join("two.img"), old).expect("of our own");
    here.run("update one.img two.img --name x").expect(2, &["2 arrays", "name the partitions of one of them"]);
    here.run(line).ok();
    assert_eq!(uuid_of(&here, "one.img:2"), uuid_of(&here, "two.img:2"));
}

#[test]
fn update_refuses_disks_with_a_superblock_that_cannot_be_used() {
    let here = Workplace::new();
    pair(&here);
    here.run("create --level 1 --metadata 1.0 --name a one.img:1 two.img:1").ok();
    here.run("create --level 1 --metadata 1.0 --name b one.img:2 two.img:2").ok();
    let spoil = |at: u64| {
        let file = std::fs::File::options().write(true).open(here.path().join("two.img")).expect("of our own");
        file.write_all_at(&[0xff; 8], at + 216).expect("it is that long"); // sb_csum and max_dev
    };
    // The first partition's superblock: in its last 8 KiB.
    spoil(10 * MIB - (8 << 10));
    let before = here.contents(&PAIR);
    let words = ["two.img:1: superblock", "it may be a member; name the partitions"];
    here.run("update one.img two.img --name x").expect(2, &words);
    assert!(here.contents(&PAIR) == before, "refused, and a disk was changed");
    here.run("update one.img:2 two.img:2 --name x").ok();
}

#[test]
fn update_changes_metadata_and_journal_on_whole_disks() {
    let here = Workplace::new();
    let names = ["one.img", "two.img", "three.img"];
    for name in names {
        disk(&here, name, DISK_BYTES, "label: gpt\nstart=2MiB, size=24MiB, type=R\n");
    }
    here.run("create --level 1 --metadata 0.90 one.img:1 two.img:1").ok();
    here.run("update one.img two.img --metadata 1.0").ok();
    assert!(here.run("examine one.img two.img").ok().text().contains("metadata    1.0"));
    here.run("create --force --level 5 --chunk 64K one.img:1 two.img:1 three.img:1").ok();
    std::fs::File::create(here.path().join("journal")).and_then(|file| file.set_len(8 * MIB)).expect("of our own");
    here.run("update one.img two.img three.img --write-journal journal").ok();
    assert!(here.run("examine one.img two.img three.img journal").text().contains("journal"));
}

#[test]
fn writes_stay_within_the_partition() {
    let here = Workplace::new();
    nas(&here, "gpt");
    let before = here.contents(&DISKS);
    here.run("create --level 1 --force --name again disk1.img:2 disk2.img:2").ok();
    here.run_with("write disk1.img disk2.img --name again", &content(6 * MIB, 9)).ok();
    let (start, end) = (9 * MIB as usize, 17 * MIB as usize);
    for (before, after) in before.iter().zip(here.contents(&DISKS)).take(2) {
        assert!(before[..start] == after[..start] && before[end..] == after[end..], "written beside the partition");
        assert!(before[start..end] != after[start..end]);
    }
}

#[test]
fn two_arrays_on_the_same_disks_are_in_use_at_once_and_the_whole_disk_is_not_free() {
    let here = Workplace::new();
    nas(&here, "gpt");
    let first = Server::of(&here, "serve disk?.img --name 2 --nbd unix:n1 --control c1");
    let second = Server::of(&here, "serve disk?.img --name 0 --nbd unix:n2 --control c2");
    here.run("serve disk?.img --name 2 --nbd unix:n3 --control c3").expect(2, &["disk1.img", "in use by process"]);
    here.run("create --level 1 --force disk1.img x --size 40M").expect(2, &["disk1.img", "in use"]);
    for (server, control) in [(first, "c1"), (second, "c2")] {
        here.run(&format!("stop --control {control}")).ok();
        assert_eq!(server.wait(), Some(0));
    }
}

#[test]
fn a_damaged_table_or_member_is_noted_and_the_rest_is_used() {
    let here = Workplace::new();
    let data = nas(&here, "gpt");
    let open = |name: &str| std::fs::File::options().write(true).open(here.path().join(name)).expect("of our own");
    // The first disk lost its first sectors, the second its end, within the RAID-5's member.
    open("disk1.img").write_all_at(&[0; 17_408], 0).expect("of our own");
    open("disk2.img").set_len(30 * MIB).expect("of our own");
    let run = here.run("read disk?.img --name 2 --length 8M");
    run.expect(
        0,
        &["the first copy of the GPT has no signature", "partition 3 ends at byte", "disk2.img:3: passed over"],
    );
    assert!(run.stdout == data);
    here.run("examine disk?.img").expect(2, &["disk2.img:3"]);
    // A write would make it stale, and it may be a member of this array.
    let before = here.contents(&DISKS);
    here.run("write disk?.img --name 2").expect(2, &["disk2.img:3", "one of the 1 missing members"]);
    assert!(here.contents(&DISKS) == before);
    here.run_with("write disk1.img:3 disk3.img:3", b"all the same").ok();
}

#[test]
fn a_disk_without_members_is_refused_by_name() {
    let here = Workplace::new();
    disk(&here, "disk.img", DISK_BYTES, "label: gpt\nstart=1MiB, size=8MiB, type=L\n");
    let refused = here.run("read disk.img");
    refused.expect(2, &["disk.img: superblock.magic", "none of the 1 partitions in its GPT", "mdspace detect"]);
    here.run("examine disk.img").expect(2, &["none of the 1 partitions"]);
}

#[test]
fn a_member_that_is_a_whole_disk_stays_one_under_an_old_table() {
    let here = Workplace::new();
    for name in ["a.img", "b.img"] {
        disk(&here, name, DISK_BYTES, "label: gpt\nstart=1MiB, size=8MiB, type=R\n");
    }
    here.run("create --level 1 --metadata 1.0 --force a.img b.img").ok();
    here.run_with("write a.img b.img", b"the whole disk").ok();
    // The array's data is now where the table was, so that this one lies inside of the array.
    let run = here.run("read a.img b.img --length 14");
    assert_eq!(run.ok().stdout, b"the whole disk");
}

#[test]
fn a_superblock_at_the_end_of_the_disk_is_that_of_its_last_partition() {
    let here = Workplace::new();
    for name in ["a.img", "b.img"] {
        let sectors = (DISK_BYTES - MIB) / 512;
        disk(&here, name, DISK_BYTES, &format!("label: dos\nstart=2048, size={sectors}, type=fd\n"));
    }
    here.run("create --level 1 --metadata 1.0 a.img:1 b.img:1").ok();
    here.run_with("write a.img:1 b.img:1", b"the partition").ok();
    let run = here.run("read a.img b.img --length 13");
    assert_eq!(run.ok().stdout, b"the partition");
}

#[test]
fn a_program_opens_parts_and_whole_disks_through_the_library() {
    let here = Workplace::new();
    let data = nas(&here, "gpt");
    let path = |name: &str| here.path().join(name);
    let array = mdspace::Array::open(["disk1.img:3", "disk3.img@17M+20M"].map(path)).expect("two of three");
    let mut read = vec![0; data.len()];
    array.read_exact_at(&mut read, 0).expect("it is there");
    assert!(read == data);
    let error = mdspace::Array::open(DISKS.map(path)).expect_err("three arrays");
    assert_eq!((error.kind(), error.field()), (mdspace::ErrorKind::Refused, Some("superblock.set_uuid")), "{error}");
    let error = mdspace::Array::open([path("disk1.img:7")]).expect_err("no such partition");
    assert!(error.to_string().contains("the partitions 1, 2, 3"), "{error}");
    disk(&here, "none.img", DISK_BYTES, "label: gpt\nstart=1MiB, size=8MiB, type=L\n");
    let error = mdspace::Array::open([path("none.img")]).expect_err("no member");
    assert!(error.to_string().contains("none of the 1 partitions"), "{error}");
}
