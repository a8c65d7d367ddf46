//! `locate`: a block of a known file is corrupted or lost, and that file is named, and no other.

use crate::support::disks::{DISKS, MIB, nas, physical_volume};
use crate::support::{Server, Workplace, parsed};
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::process::Command;

/// Runs a program of the system here.
fn said(here: &Workplace, program: &str, arguments: &[&str]) {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(here.path()).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    let output = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Content of a file, with blocks that occur nowhere else.
fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let word = |index: u64| {
        (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed.wrapping_mul(0xd6e8_feb8_6659_fd93)).to_le_bytes()
    };
    (0..bytes as u64 / 8).flat_map(word).collect()
}

/// The files of every file system here, each of 200 KiB.
const FILES: [(&str, u64); 3] = [("/photos/list", 1), ("/photos/2019/summer", 2), ("/winter", 3)];
const FILE_BYTES: usize = 200 << 10;

/// A file system with [`FILES`], in `fs.img`.
fn file_system(here: &Workplace, kind: &str, bytes: u64) -> Vec<u8> {
    for (path, seed) in FILES {
        let path = here.path().join("tree").join(&path[1..]);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("of our own");
        std::fs::write(path, content(seed, FILE_BYTES)).expect("of our own");
    }
    std::fs::File::create(here.path().join("fs.img")).expect("of our own").set_len(bytes).expect("it is sparse");
    match kind {
        "ext4" => said(here, "mke2fs", &["-q", "-F", "-t", "ext4", "-b", "4096", "-d", "tree", "fs.img"]),
        "btrfs" => said(here, "mkfs.btrfs", &["-q", "-f", "--rootdir", "tree", "fs.img"]),
        "xfs" => {
            let lines = "/stand/diag\n0 0\nd--755 0 0\nphotos d--755 0 0\nlist ---644 0 0 tree/photos/list\n\
                         2019 d--755 0 0\nsummer ---644 0 0 tree/photos/2019/summer\n$\n$\nwinter ---644 0 0 tree/winter\n$\n";
            std::fs::write(here.path().join("proto"), lines).expect("of our own");
            said(here, "mkfs.xfs", &["-q", "-f", "-p", "proto", "fs.img"]);
        }
        other => panic!("{other}"),
    }
    std::fs::read(here.path().join("fs.img")).expect("of our own")
}

/// The member that has a block of 4 KiB of a file, and where. `block` counts from the file's start.
fn member_with(here: &Workplace, members: &[&str], seed: u64, block: usize) -> (String, u64) {
    let wanted = &content(seed, FILE_BYTES)[block * 4096..][..4096];
    let mut found = members.iter().flat_map(|name| {
        let bytes = std::fs::read(here.path().join(name)).expect("a member");
        let at = bytes.chunks(4096).position(|part| part == wanted);
        at.map(|at| ((*name).to_owned(), at as u64 * 4096))
    });
    found.next().expect("some member has it")
}

fn corrupt(here: &Workplace, (member, at): &(String, u64)) {
    let file = std::fs::File::options().write(true).open(here.path().join(member)).expect("a member");
    file.write_all_at(&[0x5a; 4096], *at).expect("it is a file");
}

/// The paths that are hit.
fn hit(located: &Value) -> BTreeSet<&str> {
    let files = located["files"].as_array().expect("a list");
    files.iter().map(|file| file["path"].as_str().expect("it has one")).collect()
}

#[test]
fn the_file_of_a_corrupt_block_is_named_and_no_other() {
    const MEMBERS: [&str; 4] = ["a.img", "b.img", "c.img", "d.img"];
    for (kind, bytes, size) in [("ext4", 24 * MIB, "16M"), ("xfs", 304 * MIB, "160M"), ("btrfs", 128 * MIB, "70M")] {
        let here = Workplace::new();
        let image = file_system(&here, kind, bytes);
        here.run(&format!("create --level 6 --chunk 64K --size {size} {}", MEMBERS.join(" "))).ok();
        here.run_with(&format!("write {}", MEMBERS.join(" ")), &image).ok();
        for (path, seed) in FILES {
            corrupt(&here, &member_with(&here, &MEMBERS, seed, 17));
            let found = here.run("scrub --json a.img b.img c.img d.img");
            found.expect(1, &["1 rows were found wrong"]);
            std::fs::write(here.path().join("found"), &found.stdout).expect("of our own");
            let before = here.contents(&MEMBERS);
            let text = here.run("locate ?.img --findings found").ok().text();
            assert!(text.contains(&format!("4096 bytes: {path} (inode ")), "{kind}: {text}");
            assert!(text.contains("from byte 69632 of it on"), "{kind}: {text}");
            // Degraded, and by standard input.
            let located = here.run_with("locate a.img d.img --findings - --json", &found.stdout).ok().text();
            assert_eq!(hit(&parsed(&located)), [path].into(), "{kind}");
            let with = here.run("scrub --files --json a.img b.img c.img d.img");
            with.expect(1, &[]);
            assert_eq!(hit(&parsed(&with.text())["located"]), [path].into(), "{kind}");
            let with = here.run("scrub --files a.img b.img c.img d.img").text();
            assert!(with.contains(&format!("{path} (inode ")), "{kind}: {with}");
            assert!(here.contents(&MEMBERS) == before, "{kind}: looking changed a member");
            here.run("scrub --repair a.img b.img c.img d.img").expect(1, &[]);
        }
    }
}

#[test]
fn an_undecidable_finding_names_every_file_that_it_may_be() {
    let here = Workplace::new();
    let image = file_system(&here, "ext4", 24 * MIB);
    here.run("create --level 5 --chunk 64K --size 16M a.img b.img c.img").ok();
    here.run_with("write a.img b.img c.img", &image).ok();
    corrupt(&here, &member_with(&here, &["a.img", "b.img", "c.img"], 3, 4));
    let found = here.run("scrub --json a.img b.img c.img");
    let report = parsed(&found.expect(1, &[]).text());
    assert_eq!(report["counts"]["undecidable"], 1);
    let located = parsed(&here.run_with("locate a.img b.img c.img --findings - --json", &found.stdout).ok().text());
    let places = located["places"].as_array().expect("a list");
    let asked: u64 = places.iter().map(|place| place["bytes"].as_u64().expect("a number")).sum();
    assert_eq!(asked, 2 * 4096, "{located}");
    assert!(hit(&located).contains("/winter"), "{located}");
}

/// A NAS whose third array has LVM with ext4 in `vg1/files`; its first byte there is 1 MiB.
fn nas_with_files(here: &Workplace) {
    nas(here, "gpt");
    let image = file_system(here, "ext4", 20 * MIB);
    here.run_with("write disk1.img:3 disk2.img:3 disk3.img:3", &physical_volume(36 * MIB, 20, &image)).ok();
}

#[test]
fn files_are_named_through_partitions_and_lvm() {
    let here = Workplace::new();
    nas_with_files(&here);
    let place = member_with(&here, &DISKS, 2, 30);
    let before = here.contents(&DISKS);
    here.run("locate disk1.img disk2.img disk3.img --offset 0").expect(2, &["3 arrays", "--uuid", "--inner"]);
    // Each byte of the file, counted in the volume.
    let all = parsed(&here.run("locate disk?.img --inner vg1/files --offset 0 --length 20M --json").ok().text());
    assert_eq!(hit(&all).into_iter().filter(|path| FILES.iter().any(|(file, _)| path == file)).count(), 3);
    let of_file = |place: &&Value| place["path"] == "/photos/2019/summer" && place["kind"] == "file";
    let at = all["places"].as_array().expect("a list").iter().find(of_file).expect("it is there")["at"].as_u64();
    let at = at.expect("a number");
    // The same, counted in the array.
    for choice in ["--name 2", "--name nas:2"] {
        let line = format!("locate disk?.img {choice} --offset {} --length 4K --json", MIB + at + 30 * 4096);
        let located = parsed(&here.run(&line).ok().text());
        assert_eq!(hit(&located), ["/photos/2019/summer"].into());
        let place = &located["places"][0];
        assert_eq!((&place["volume"], &place["file_at"]), (&"vg1/files".into(), &(30 * 4096).into()), "{located}");
    }
    let text = here.run("locate disk1.img disk3.img --name 2 --offset 4K").ok().text();
    assert!(text.contains("in no logical volume"), "{text}");
    assert!(here.contents(&DISKS) == before, "looking changed a disk");
    corrupt(&here, &place);
    let with = here.run("scrub --files disk1.img:3 disk2.img:3 disk3.img:3");
    assert!(with.expect(1, &[]).text().contains("vg1/files: /photos/2019/summer"), "{}", with.text());
}

#[test]
fn a_hole_of_a_copy_names_its_file() {
    let here = Workplace::new();
    let image = file_system(&here, "ext4", 24 * MIB);
    here.run("create --level 5 --chunk 64K --size 16M a.img b.img c.img").ok();
    here.run_with("write a.img b.img c.img", &image).ok();
    let (member, at) = member_with(&here, &["a.img", "b.img", "c.img"], 1, 9);
    let bytes = std::fs::metadata(here.path().join(&member)).expect("a member").len();
    let (first, behind) = (at + 512, at + 1536);
    let map = format!("0x0 - 1\n0x0 {first:#x} +\n{first:#x} 0x400 -\n{behind:#x} {:#x} +\n", bytes - behind);
    std::fs::write(here.path().join("holes"), map).expect("of our own");
    // The member that has this row's parity is away, so that nothing replaces the hole, and the hole alone is lost.
    let examined = parsed(&here.run(&format!("examine --json {member}")).text());
    let row = (at - examined["members"][0]["data_at"].as_u64().expect("a number")) / (64 << 10);
    let away = ["a.img", "b.img", "c.img"][2 - row as usize % 3];
    let others: Vec<&str> = ["a.img", "b.img", "c.img"].into_iter().filter(|name| *name != member).collect();
    let present = others.iter().find(|name| **name != away).expect("one has data");
    let line = format!("{present} {member} --map {member}=holes");
    here.run(&format!("read {line} --salvage --output copy --map-out part.map")).expect(1, &["1024 bytes"]);
    for line in [format!("{line} --findings part.map"), format!("{} --findings part.map", others.join(" "))] {
        let located = parsed(&here.run(&format!("locate {line} --json")).ok().text());
        assert_eq!(hit(&located), ["/photos/list"].into(), "{located}");
        assert_eq!(located["places"][0]["file_at"], 9 * 4096 + 512, "{located}");
        assert_eq!(located["files"][0]["bytes"], 1024, "{located}");
    }
}

#[test]
fn a_served_array_says_what_its_last_scrub_hit() {
    let here = Workplace::new();
    let image = file_system(&here, "ext4", 24 * MIB);
    here.run("create --level 6 --chunk 64K --size 16M a.img b.img c.img d.img").ok();
    here.run_with("write a.img b.img c.img d.img", &image).ok();
    corrupt(&here, &member_with(&here, &["a.img", "b.img", "c.img", "d.img"], 1, 40));
    let server = Server::of(&here, "serve a.img b.img c.img d.img --nbd unix:nbd --control control");
    here.run("locate --control control").expect(2, &["no findings"]);
    here.run("status --files --control control").expect(2, &["no findings"]);
    let text = here.run("scrub --files --control control").expect(1, &[]).text();
    assert!(text.contains("/photos/list (inode "), "{text}");
    // Names of members are relative to the server's directory.
    let elsewhere = here.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("of our own");
    let mut command = here.command(&["locate", "--control", "../control", "--json"]);
    let output = command.current_dir(&elsewhere).output().expect("it starts");
    let located = parsed(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(hit(&located), ["/photos/list"].into(), "{located}");
    assert!(located["notes"].to_string().contains("in use"), "{located}");
    let status = parsed(&here.run("status --files --json --control control").ok().text());
    assert_eq!(hit(&status["located"]), ["/photos/list"].into());
    assert!(here.run("status --files --control control").ok().text().contains("/photos/list (inode "));
    here.run("stop --control control").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_damaged_array_is_looked_at_and_what_is_lost_is_not_called_free() {
    let here = Workplace::new();
    let image = file_system(&here, "ext4", 24 * MIB);
    here.run("create --level 5 --chunk 64K --size 16M a.img b.img c.img").ok();
    here.run_with("write a.img b.img c.img", &image).ok();
    // Too few members: what they hold is read. The superblock of the file system is there, or says nothing.
    let run = here.run("locate a.img --offset 0 --length 24M --json");
    let located = parsed(&run.text());
    let free: u64 = kinds(&located, "free");
    let whole = parsed(&here.run("locate a.img b.img c.img --offset 0 --length 24M --json").ok().text());
    assert!(free <= kinds(&whole, "free"), "{located}");
    assert!(located["notes"].to_string().contains("--partial"), "{located}");
    run.expect(1, &["could not be told"]);
    for (line, words) in [
        ("a.img b.img c.img", &["no bytes are named", "--offset"][..]),
        ("a.img b.img c.img --offset 1T", &["past the end"]),
        ("a.img b.img c.img --offset 5 --length 0", &["--length"]),
        ("a.img b.img c.img --findings fs.img", &["fs.img: no map"]),
        ("a.img b.img c.img --findings nothing", &["nothing: "]),
        ("a.img b.img c.img --inner vg1/none --offset 0", &["--inner vg1/none"]),
        ("--findings fs.img", &["no array of yours"]),
    ] {
        here.run(&format!("locate {line}")).expect(2, words);
    }
    std::fs::write(here.path().join("other"), "{\"a\": 1}").expect("of our own");
    here.run("locate a.img b.img c.img --findings other").expect(2, &["not the findings of a scrub"]);
}

/// Bytes of one kind.
fn kinds(located: &Value, kind: &str) -> u64 {
    let places = located["places"].as_array().expect("a list");
    places.iter().filter(|place| place["kind"] == kind).map(|place| place["bytes"].as_u64().expect("a number")).sum()
}
