//! Overlays, by the command: whatever is tried in one, the members stay as they are; discarded, nothing is left; committed,
//! it is what it would have been without one. Also what refuses an overlay, and a commit that is killed.
//!
//! A black-box test of the command. The engine's crash-safety over such members is tested in crates/io/tests/stored.rs, a
//! commit that fails at each of its writes in src/overlay/commit/tests.rs, and killed servers in tests/killed.py.

use crate::support::nbd::Nbd;
use crate::support::{Server, Workplace, parsed};
use serde_json::Value;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

const MEMBERS: [&str; 3] = ["a", "b", "c"];

/// A RAID-5 of a, b and c with data.
fn raid5() -> Workplace {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --bitmap internal --size 8M a b c").ok();
    here.run_with("write a b c", &data(3_000_000)).ok();
    here
}

fn data(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 512 * 7 + at % 251) as u8).collect()
}

/// What `examine` says of the members, without times and random identities.
fn examined(here: &Workplace, overlay: &str) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let is_time = |field: &str| ["updated", "created", "seconds"].contains(&field);
                fields.retain(|field, _| !field.ends_with("uuid") && !is_time(field));
                fields.values_mut().for_each(strip);
            }
            Value::Array(values) => values.iter_mut().for_each(strip),
            Value::String(text) if text.ends_with(" s later") => text.truncate(text.rfind(", ").expect("a time")),
            _ => {}
        }
    }
    let mut examined = parsed(&here.run(&format!("examine --json a b c {overlay}")).text());
    strip(&mut examined);
    examined
}

#[test]
fn every_command_that_writes_leaves_the_members_alone_and_a_commit_makes_up_for_it() {
    // Before each line, c is damaged or removed as its flag says; with --uuid random two runs would differ.
    let lines = [
        ("write a b c --offset 100000", false),
        ("write a b --offset 100000", false),
        ("scrub --repair=parity a b c", true),
        ("update --name other --homehost here a b c", false),
        ("wipe --force c", false),
        ("grow a b c --size 4M --shrink", false),
        ("create --force --level 5 --chunk 32K --name new a b c", false),
    ];
    for (line, is_damaged) in lines {
        let (with, without) = (raid5(), Workplace::new());
        if is_damaged {
            let file = std::fs::File::options().write(true).open(with.path().join("c")).expect("a member");
            file.write_all_at(&[0xee; 4096], 5 << 20).expect("it is long enough");
        }
        for name in MEMBERS {
            std::fs::copy(with.path().join(name), without.path().join(name)).expect("copied");
        }
        let before = with.contents(&MEMBERS);
        let status = without.run_with(line, &data(50_000)).status;
        let tried = with.run_with(&format!("{line} --overlay try"), &data(50_000));
        assert_eq!(tried.status, status, "{line}: {}", tried.stderr);
        assert!(with.contents(&MEMBERS) == before, "{line}: a member was written to");
        let (inside, plainly) = (examined(&with, "--overlay try"), examined(&without, ""));
        assert!(inside == plainly, "{line}, in the overlay: {inside}, and without: {plainly}");
        let shown = parsed(&with.run("overlay show try --json").ok().text());
        let changed: u64 =
            shown["members"].as_array().expect("a list").iter().filter_map(|one| one["bytes"].as_u64()).sum();
        assert!(changed > 0 && shown["half_committed"] == false, "{line}: {shown}");

        with.run("overlay commit try").ok();
        assert!(!with.path().join("try").exists(), "{line}");
        assert!(examined(&with, "") == plainly, "{line}, committed");
        let read = |here: &Workplace| here.run("read a b c --output read").status;
        assert_eq!(read(&with), read(&without), "{line}");
        if read(&with) == 0 {
            assert!(with.contents(&["read"]) == without.contents(&["read"]), "{line}: other data");
        }
    }
}

#[test]
fn a_forced_assembly_that_went_wrong_is_undone() {
    let here = raid5();
    // c misses a write, then a and b lose their superblocks' agreement with it: only --force takes it.
    here.run_with("write a b --offset 0", &[9; 4096]).ok();
    here.run("wipe --force b").ok();
    here.run("read a c --output refused").expect(2, &[]);
    let before = here.contents(&MEMBERS);
    here.run("read a c --output refused --overlay nothing").expect(2, &["nothing: there is no overlay"]);
    let written = here.run_with("write --force a c --overlay try", &[1; 100_000]);
    written.expect(0, &["note: every write goes to try, and the members stay as they are"]);
    here.run("read a c --overlay try --output new --length 100000").ok();
    assert!(here.contents(&["new"])[0] == [1; 100_000]);
    let shown = here.run("overlay show try").ok().text();
    for words in
        ["/a: ", "/c: ", "  events ", " -> ", "next: mdspace overlay commit try, or mdspace overlay discard try"]
    {
        assert!(shown.contains(words), "no `{words}` in {shown}");
    }
    assert!(!shown.contains("/b: "), "{shown}");
    let discarded = here.run("overlay discard try").ok().text();
    assert_eq!(discarded, "try: discarded; the members are as they were\n");
    assert!(here.contents(&MEMBERS) == before && !here.path().join("try").exists());
}

#[test]
fn a_file_system_is_checked_and_repaired_in_an_overlay_through_nbd_and_the_repair_is_undone() {
    let here = raid5();
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(here.path()).output();
        let output = output.unwrap_or_else(|error| panic!("{program} (packages e2fsprogs, libnbd-bin): {error}"));
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // A file system with a directory that nothing leads to any more.
    run("truncate", &["--size", "6M", "fs"]);
    assert_eq!(run("mkfs.ext4", &["-q", "-F", "fs"]).0, Some(0));
    assert_eq!(run("debugfs", &["-w", "-R", "mkdir lost", "fs"]).0, Some(0));
    assert_eq!(run("debugfs", &["-w", "-R", "unlink lost", "fs"]).0, Some(0));
    here.run_with("write a b c", &std::fs::read(here.path().join("fs")).expect("a file")).ok();
    let before = here.contents(&MEMBERS);

    let server = Server::of(&here, "serve a b c --overlay try --nbd unix:nbd.sock");
    let uri = "nbd+unix:///?socket=nbd.sock";
    assert_eq!(run("nbdcopy", &[uri, "copy"]).0, Some(0));
    assert_eq!(run("e2fsck", &["-f", "-n", "copy"]).0, Some(4), "errors are left");
    assert_eq!(run("e2fsck", &["-f", "-y", "copy"]).0, Some(1), "errors are corrected");
    assert_eq!(run("nbdcopy", &["copy", uri]).0, Some(0));
    assert_eq!(run("nbdcopy", &["--flush", "copy", uri]).0, Some(0));
    // The members are locked shared, and the overlay exclusively.
    here.run("read a b c --output meanwhile").ok();
    here.run("write a b c").expect(2, &["in use"]);
    here.run("read a b c --overlay try --output refused").expect(2, &["another process uses the overlay"]);
    here.run("overlay discard try").expect(2, &["another process uses the overlay"]);
    here.run("overlay show try").ok();
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));

    assert!(here.contents(&MEMBERS) == before, "a member was written to");
    here.run("read a b c --overlay try --length 6M --output repaired").ok();
    assert_eq!(run("e2fsck", &["-f", "-n", "repaired"]).0, Some(0));
    here.run("overlay discard try").ok();
    here.run("read a b c --length 6M --output again").ok();
    assert_eq!(run("e2fsck", &["-f", "-n", "again"]).0, Some(4));
}

#[test]
fn a_killed_server_keeps_what_was_flushed() {
    let here = raid5();
    let before = here.contents(&MEMBERS);
    let socket = here.path().join("nbd.sock").display().to_string();
    for round in 0..3_u8 {
        let mut server = Server::of(&here, "serve a b c --overlay try --nbd unix:nbd.sock");
        let mut client = Nbd::connect(&socket);
        if round > 0 {
            assert!(client.read(1 << 20, 65_536).iter().all(|byte| *byte == round - 1), "round {round}");
        }
        client.request(1, 1 << 20, 65_536, &[round; 65_536]);
        client.reply();
        client.request(3, 0, 0, &[]);
        client.reply();
        server.child.kill().expect("it runs");
        server.child.wait().expect("it was a child");
    }
    assert!(here.contents(&MEMBERS) == before, "a member was written to");
}

#[test]
fn a_commit_that_is_killed_is_repeated_and_until_then_the_members_are_no_array() {
    let here = raid5();
    here.run("create --level 5 --chunk 64K --size 24M --assume-clean x y z").ok();
    here.run_with("write x y z --overlay try", &data(40_000_000)).ok();
    here.run("read x y z --overlay try --output expected").ok();
    let mut commit = here.command(&["overlay", "commit", "try"]);
    let mut commit = commit.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("mdspace starts");
    let magic = |name: &str| {
        let file = std::fs::File::open(here.path().join(name)).expect("a member");
        let mut magic = [0; 4];
        file.read_exact_at(&mut magic, 4096).expect("it is long enough");
        magic
    };
    // The superblocks go first, and return last.
    while magic("z") != [0; 4] {
        assert!(commit.try_wait().expect("a child").is_none(), "it ended without removing a superblock");
    }
    commit.kill().expect("it runs");
    commit.wait().expect("a child");
    here.run("read x y z --output refused").expect(2, &["superblock.magic"]);
    here.run("write x y z --overlay try").expect(2, &["the commit of the overlay was interrupted"]);
    here.run("overlay discard try").expect(2, &["interrupted", "mdspace overlay commit"]);
    let shown = here.run("overlay show try").ok().text();
    assert!(shown.contains("its commit was interrupted: mdspace overlay commit try"), "{shown}");
    here.run("read x y z --overlay try --output still").ok();
    here.run("overlay commit try").ok();
    here.run("read x y z --output now").ok();
    let [expected, still, now] = ["expected", "still", "now"].map(|name| here.contents(&[name]));
    assert!(expected == still && expected == now);
    assert!(!here.path().join("try").exists());
}

#[test]
fn an_overlay_that_does_not_fit_is_refused_with_the_reason_and_nothing_changes() {
    let here = raid5();
    here.run_with("write a b c --overlay try", &[5; 9000]).ok();
    let place = |name: &str| here.path().join("try").join(name);
    let saved =
        |names: &[&str]| names.iter().map(|name| std::fs::read(place(name)).expect("a file")).collect::<Vec<_>>();
    let names = ["member-0.index", "member-0.data", "overlay"];
    let before = (here.contents(&MEMBERS), saved(&names));
    let refused = |words: &[&str]| {
        for line in ["read a b c --overlay try --output refused", "write a b c --overlay try", "overlay commit try"] {
            here.run(line).expect(2, words);
        }
        assert!(here.contents(&MEMBERS) == before.0);
    };
    let restore = |name: &str| {
        let index = names.iter().position(|one| *one == name).expect("one of them");
        std::fs::write(place(name), &before.1[index]).expect("written");
    };

    let change = |path: &Path, at: u64, bytes: &[u8]| {
        std::fs::File::options().write(true).open(path).expect("a file").write_all_at(bytes, at).expect("written");
    };
    for (at, words) in [
        (0, ["member-0.index: overlay.magic", "not the index of an overlay"]),
        (8, ["member-0.index: overlay.version", "this mdspace knows 3"]),
        (20, ["member-0.index: overlay.checksum", "but the header gives"]),
    ] {
        change(&place("member-0.index"), at, &[0xff]);
        refused(&words);
        restore("member-0.index");
    }
    let records = 104 + here.path().join("a").canonicalize().expect("a path").as_os_str().len().next_multiple_of(8);
    // There are several records: one for each flush that had something new.
    change(&place("member-0.index"), records as u64 + 24, &[0xff]);
    refused(&["overlay.record", "is damaged, and one at byte"]);
    restore("member-0.index");
    change(&place("member-0.data"), 0, &[]);
    std::fs::File::options().write(true).open(place("member-0.data")).expect("a file").set_len(4096).expect("shorter");
    refused(&["member-0.data: has 4096 bytes, but its member has 8388608"]);
    restore("member-0.data");
    std::fs::copy(place("member-0.index"), place("member-7.index")).expect("copied");
    here.run("write a b c --overlay try").expect(2, &["two entries of the member"]);
    std::fs::remove_file(place("member-7.index")).expect("removed");

    // The member changes underneath.
    here.run_with("write a b c", &[6; 100]).ok();
    let changed = here.contents(&MEMBERS);
    for line in ["read a b c --overlay try --output refused", "write a b c --overlay try", "overlay commit try"] {
        here.run(line)
            .expect(2, &["the member has changed since the overlay was made: superblock.events is", "discard"]);
    }
    here.run("overlay show try").expect(1, &["the member has changed"]);
    assert!(here.contents(&MEMBERS) == changed);
    here.run("overlay discard try").ok();

    // What is not an overlay is not used for one, and a refusal leaves none behind.
    std::fs::create_dir(here.path().join("photos")).expect("a directory");
    std::fs::write(here.path().join("photos/1.jpg"), "a photo").expect("written");
    for (line, words) in [
        ("write a b c --overlay photos", ["photos: --overlay: holds other files", "name a new directory"]),
        ("write a b c --overlay a", ["a: --overlay: cannot be used", "Not a directory"]),
        ("overlay show photos", ["photos", "holds other files"]),
        ("overlay show none", ["none: there is no overlay", ""]),
        ("overlay commit none", ["none: there is no overlay", ""]),
        ("create --level 1 --size 8M new other --overlay none", ["new: no such file", "--overlay none is made"]),
        ("write a --overlay none", ["too few", ""]),
        ("scrub --overlay none", ["MEMBER", ""]),
        ("grow --size max --overlay none", ["--overlay", "give the members"]),
    ] {
        here.run(line).expect(2, &words);
        assert!(!here.path().join("none").exists(), "`{line}` left an overlay");
    }
    assert!(here.contents(&MEMBERS) == changed && !here.path().join("new").exists());
}

/// Two members of a RAID-1 with an overlay of 4 KiB in `ov`.
fn mirror() -> Workplace {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M p q").ok();
    here.run_with("write p q", &data(3_000_000)).ok();
    here.run_with("write p q --offset 1M --overlay ov", &[5; 4096]).ok();
    here
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = directory
        .read_dir()
        .expect("a directory")
        .map(|file| file.expect("a file").file_name().into_string().expect("plain"))
        .collect();
    names.sort();
    names
}

#[test]
fn a_directory_with_a_file_of_the_marks_name_is_no_overlay() {
    let here = mirror();
    for (name, text, others) in [("d", "precious", &[][..]), ("e", "", &["photo"][..])] {
        let directory = here.path().join(name);
        std::fs::create_dir(&directory).expect("a directory");
        std::fs::write(directory.join("overlay"), text).expect("written");
        others.iter().for_each(|other| std::fs::write(directory.join(other), "x").expect("written"));
        let before = names(&directory);
        for line in ["overlay discard", "overlay show", "overlay commit", "write p q --overlay"] {
            here.run(&format!("{line} {name}")).expect(2, &["holds other files"]);
            assert_eq!(names(&directory), before, "{line}");
        }
        assert_eq!(std::fs::read_to_string(directory.join("overlay")).expect("it stays"), text);
    }
    // What a process leaves that is killed before the first byte of the mark.
    std::fs::create_dir(here.path().join("f")).expect("a directory");
    std::fs::write(here.path().join("f/overlay"), "").expect("written");
    here.run_with("write p q --overlay f", &[5; 4096]).ok();
    here.run("overlay discard f").ok();
}

/// Kills a commit of `ov` after it has removed the superblock of q.
fn half_committed() -> Workplace {
    let here = Workplace::new();
    here.run("create --level 1 --size 24M p q").ok();
    here.run_with("write p q --overlay ov", &data(16_000_000)).ok();
    let mut commit = here.command(&["overlay", "commit", "ov"]);
    let mut commit = commit.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("mdspace starts");
    let magic = || {
        let file = std::fs::File::open(here.path().join("q")).expect("a member");
        let mut magic = [0; 4];
        file.read_exact_at(&mut magic, 4096).expect("it is long enough");
        magic
    };
    while magic() != [0; 4] {
        assert!(commit.try_wait().expect("a child").is_none(), "it ended without removing a superblock");
    }
    commit.kill().expect("it runs");
    commit.wait().expect("a child");
    assert!(here.path().join("ov/committing").exists());
    here
}

#[test]
fn a_commit_is_completed_on_its_own_members_and_on_nothing_else() {
    let here = half_committed();
    let at = |name: &str| here.path().join(name);
    let refused = |words: &str| {
        let before = here.contents(&["p", "q"]);
        here.run("overlay commit ov").expect(2, &[words, "a commit to it was interrupted"]);
        assert!(here.contents(&["p", "q"]) == before, "{words}: a member was written to");
    };
    // Another file in the place of a member.
    std::fs::rename(at("p"), at("x")).expect("moved");
    std::fs::write(at("p"), vec![0x5a; 24 << 20]).expect("written");
    refused("another file is in its place");
    std::fs::rename(at("x"), at("p")).expect("moved");
    // An array on what looks blank. The commit wrote no superblock of version 1.0 there, nor its place.
    let member = std::fs::read(at("q")).expect("a member");
    here.run("create --force --level 1 --metadata 1.2 --size 20M q y").ok();
    refused("another superblock was written there since");
    std::fs::OpenOptions::new().write(true).open(at("q")).expect("a member").write_all_at(&member, 0).expect("back");
    std::fs::File::options()
        .write(true)
        .open(at("q"))
        .expect("q")
        .write_all_at(&[7; 512], (24 << 20) - 512)
        .expect("w");
    refused("its other bytes have changed since");
    std::fs::OpenOptions::new().write(true).open(at("q")).expect("a member").write_all_at(&member, 0).expect("back");
    // A record that cannot be read.
    let record = std::fs::read(at("ov/committing")).expect("a record");
    std::fs::write(at("ov/committing"), "").expect("written");
    here.run("overlay commit ov").expect(2, &["committing: ", "cannot be told"]);
    std::fs::write(at("ov/committing"), record).expect("written");

    here.run("overlay commit ov").ok();
    here.run("read p q --length 16000000 --output read").ok();
    assert!(here.contents(&["read"])[0] == data(16_000_000));
}

#[test]
fn a_member_is_never_shown_without_its_overlay_because_it_has_another_name() {
    let here = mirror();
    let at = |name: &str| here.path().join(name);
    let read = |line: &str| {
        here.run(&format!("read {line} --overlay ov --offset 1M --length 4096 --overwrite --output read")).ok();
        assert!(here.contents(&["read"])[0] == [5; 4096], "{line}");
    };
    std::fs::hard_link(at("p"), at("p2")).expect("linked");
    read("p2 q");
    read("p@0 q@0+8M");
    for line in ["read p@0+7M q --output refused", "examine p@0+7M"] {
        here.run(&format!("{line} --overlay ov")).expect(2, &["begins at the same byte", "give the member that name"]);
    }
    std::fs::remove_file(at("p2")).expect("removed");

    std::fs::create_dir(at("moved")).expect("a directory");
    std::fs::rename(at("p"), at("moved/p")).expect("moved");
    for line in ["read moved/p q --output refused", "examine moved/p", "write moved/p q"] {
        here.run(&format!("{line} --overlay ov")).expect(2, &["/p, which held the same", "give the member that name"]);
    }
    assert_eq!(names(&at("ov")).len(), 5, "a second entry was made");
    // Moved and changed.
    here.run_with("write --force moved/p", &[1; 4096]).ok();
    here.run("read moved/p q --overlay ov --output refused").expect(2, &["/p is not there"]);
    assert!(!at("refused").exists());
}

#[test]
fn a_member_that_changed_between_its_ends_is_refused() {
    let here = mirror();
    let before = here.contents(&["p", "q"]);
    let file = std::fs::File::options().write(true).open(here.path().join("p")).expect("a member");
    file.write_all_at(&[0xee; 4096], 5 << 20).expect("it is long enough");
    for line in ["read p q --overlay ov --output refused", "write p q --overlay ov", "overlay commit ov"] {
        here.run(line).expect(2, &["the member has changed since the overlay was made: the time of the last write"]);
    }
    assert!(here.contents(&["q"])[0] == before[1]);
}

/// A RAID-5 of a, b and c, all of its bytes, and holes in b with a map: one of these sizes at each of these MiB.
fn with_holes(holes: &[(u64, u64)]) -> (Workplace, Vec<u8>) {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M a b c").ok();
    here.run_with("write a b c", &data(14_000_000)).ok();
    let whole = here.run("read a b c").ok().stdout.clone();
    let file = std::fs::File::options().write(true).open(here.path().join("b")).expect("a member");
    let (mut map, mut at) = ("0 - 1\n".to_owned(), 0);
    for (start, bytes) in holes {
        file.write_all_at(&vec![0; *bytes as usize], *start).expect("there is room");
        map += &format!("{at} {} +\n{start} {bytes} -\n", start - at);
        at = start + bytes;
    }
    map += &format!("{at} {} +\n", (8 << 20) - at);
    std::fs::write(here.path().join("b.map"), map).expect("of our own");
    (here, whole)
}

const MIB: u64 = 1 << 20;

/// What `read` gives without member a, with zeros where it fails, and whether it failed.
fn without_a(here: &Workplace, options: &str) -> (Vec<u8>, bool) {
    let run = here.run(&format!("read b c {options} --salvage --overwrite --output read"));
    assert!(run.status < 2, "{}", run.stderr);
    (here.contents(&["read"]).remove(0), run.status == 0)
}

#[test]
fn what_is_written_over_a_hole_is_read_back_and_a_discard_brings_the_hole_back() {
    // Holes of odd sectors, within one block of 4 KiB, and across rows.
    let (here, mut whole) = with_holes(&[(3 * MIB + 1536, 512), (3 * MIB + 9 * 512, 70_144), (6 * MIB, 4096)]);
    let before = here.contents(&["a", "b", "c", "b.map"]);
    let (with_holes, is_whole) = without_a(&here, "--map b=b.map");
    assert!(!is_whole && with_holes != whole, "the holes matter");
    here.run("write a b c --map b=b.map").expect(2, &["only for reading", "--overlay DIR"]);
    // A single sector at a time over a part of the first two holes, then everything from there to the third.
    for at in (2 * MIB..7 * MIB).step_by(65_536 + 512) {
        here.run_with(&format!("write a b c --map b=b.map --overlay try --offset {at}"), &[9; 512])
            .expect(0, &["b is an image that is only read"]);
        whole[at as usize..at as usize + 512].fill(9);
    }
    assert!(here.run("read a b c --overlay try").ok().stdout == whole);
    let (partly, is_whole) = without_a(&here, "--overlay try");
    assert!(!is_whole, "the third hole is still there");
    let differ = |found: &[u8]| found.iter().zip(&whole).filter(|(found, whole)| found != whole).count();
    // Each byte of a hole loses one of b, and one of a, which is missing.
    assert!(differ(&partly) <= 2 * (4096 + 70_144 + 512), "{}", differ(&partly));
    let here_and_there = partly.chunks(512).zip(whole.chunks(512));
    assert!(
        here_and_there.clone().all(|(found, whole)| found == whole || found == [0; 512]),
        "a byte of a hole is wrong"
    );
    here.run_with("write a b c --overlay try --offset 2M", &whole[2 * MIB as usize..9 * MIB as usize]).ok();
    let (mostly, _) = without_a(&here, "--overlay try");
    assert!(
        differ(&mostly) <= 2 * 4096
            && mostly[2 * MIB as usize..9 * MIB as usize] == whole[2 * MIB as usize..][..7 << 20]
    );
    assert!(here.contents(&["a", "b", "c", "b.map"]) == before, "a member was written to");
    here.run("overlay discard try").ok();
    assert!(without_a(&here, "--map b=b.map").0 == with_holes, "the holes are not what they were");
}

#[test]
fn a_repair_in_an_overlay_fills_all_holes_of_an_image_however_many() {
    let holes: Vec<_> = (0..60).map(|number| (2 * MIB + number * 90_112, 512 + number % 3 * 1024)).collect();
    let (here, whole) = with_holes(&holes);
    // What lies past the end of the image is a hole, too.
    std::fs::File::options()
        .write(true)
        .open(here.path().join("b"))
        .expect("b")
        .set_len(8 * MIB - 200_704)
        .expect("cut");
    std::fs::write(here.path().join("b.map"), {
        let map = std::fs::read_to_string(here.path().join("b.map")).expect("a map");
        let (rest, last) = map.trim_end().rsplit_once('\n').expect("lines");
        let at: u64 = last.split(' ').next().expect("a place").parse().expect("a number");
        format!("{rest}\n{at} {} +\n{} 200704 -\n", 8 * MIB - 200_704 - at, 8 * MIB - 200_704)
    })
    .expect("written");
    here.run("scrub --repair a b c --maps --overlay try").expect(1, &["0 not corrected"]);
    let status = parsed(&here.run("examine --json a b c --overlay try").ok().text());
    assert_eq!(status["arrays"][0]["status"]["missing"], serde_json::json!([]), "the image was ejected for its holes");
    let (found, is_whole) = without_a(&here, "--overlay try");
    assert!(is_whole && found == whole);
}

#[test]
fn the_overlay_of_an_image_keeps_its_map_and_is_not_committed() {
    let (here, _) = with_holes(&[(3 * MIB, 65_536)]);
    let before = here.contents(&["a", "b", "c"]);
    std::fs::write(here.path().join("other.map"), "0 - 1\n0 0x300000 +\n0x300000 512 -\n0x300200 0x4ffe00 +\n")
        .expect("w");
    here.run_with("write a b c --overlay blind", &[1; 512]).ok();
    here.run_with("write a b c --maps --overlay try", &[1; 512]).ok();
    for (line, words) in [
        ("read a b c --map b=other.map --overlay try --output refused", ["b: cannot use its overlay", "another map"]),
        ("write a b c --map b=b.map --overlay blind", ["b: cannot use its overlay", "made without a map"]),
        ("overlay commit try", ["b: the overlay was made with its map", "next: use the array with --overlay"]),
    ] {
        here.run(line).expect(2, &words);
    }
    assert!(!here.path().join("refused").exists());
    here.run("read b c --overlay try --output refused").expect(1, &["not in the image, by its map"]);
    let shown = here.run("overlay show try").ok().text();
    assert!(
        shown.contains("b: the overlay was made with its map") && shown.ends_with("overlay discard try\n"),
        "{shown}"
    );
    assert!(parsed(&here.run("overlay show --json try").ok().text())["only_discarded"].is_string());
    assert!(parsed(&here.run("overlay show --json blind").ok().text())["only_discarded"].is_null());
    assert!(here.contents(&["a", "b", "c"]) == before);
}

#[test]
fn a_commit_without_room_changes_no_member_and_is_repeated_when_there_is_room() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M p q").ok();
    // The members are sparse, on a file system that has less room than the overlay has changes. A namespace of its own
    // holds it, so that no root is needed. p is copied out again, as the file system ends with the namespace.
    let binary = env!("CARGO_BIN_EXE_mdspace");
    let script = format!(
        "set -e; mkdir small; mount -t tmpfs -o size=3m small small; cp --sparse=always p q small; cd small
         mkdir ../made; {binary} write p q --overlay ../made/ov < ../input; cp -p p q ..
         if {binary} overlay commit ../made/ov; then exit 99; else status=$?; fi
         cmp p ../p; cmp q ../q; {binary} read p q --overlay ../made/ov --length 6000000 --output ../read
         mount -o remount,size=30m small; {binary} overlay commit ../made/ov
         {binary} read p q --length 6000000 --output ../now; exit $status"
    );
    std::fs::write(here.path().join("input"), data(6_000_000)).expect("written");
    let output = Command::new("unshare").args(["-rm", "bash", "-c", &script]).current_dir(here.path()).output();
    let output = output.expect("unshare of util-linux");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("no room for the changes") && said.contains("no member has changed"), "{said}");
    assert!(here.contents(&["read"]) == here.contents(&["now"]) && here.contents(&["now"])[0] == data(6_000_000));
}

#[test]
fn what_is_left_of_an_overlay_is_named_and_removed() {
    let here = mirror();
    let at = |name: &str| here.path().join(name);
    let again = || {
        here.run_with("write p q --offset 1M --overlay ov", &[5; 4096]).ok();
    };
    // Killed when all was on the members.
    std::fs::write(at("ov/committed"), "").expect("written");
    let shown = here.run("overlay show ov").ok().text();
    assert!(shown.contains("it was committed to its members: mdspace overlay discard ov removes it"), "{shown}");
    let said = here.run("overlay discard ov").ok().text();
    assert!(said.contains("was committed to its members before") && !said.contains("as they were"), "{said}");
    assert!(!at("ov").exists());
    again();
    std::fs::write(at("ov/committed"), "").expect("written");
    here.run("overlay commit ov").ok();
    assert!(!at("ov").exists());
    // A file of another program, and what a process left that was killed while it made an entry.
    again();
    std::fs::write(at("ov/photo"), "x").expect("written");
    std::fs::write(at("ov/member-7.data"), "").expect("written");
    std::fs::write(at("ov/member-7.new"), "x").expect("written");
    here.run("overlay commit ov").expect(0, &["note: ", "the directory itself stays"]);
    assert_eq!(names(&at("ov")), ["photo"]);
    // A link to the directory.
    std::fs::create_dir(at("elsewhere")).expect("a directory");
    std::os::unix::fs::symlink(at("elsewhere"), at("link")).expect("linked");
    here.run_with("write p q --overlay link", &[5; 4096]).ok();
    here.run("overlay discard link").expect(0, &["note: ", "the directory itself stays"]);
    assert_eq!(names(&at("elsewhere")), Vec::<String>::new());
    std::fs::remove_dir_all(at("ov")).expect("removed");
    // An index that is gone, or damaged.
    again();
    std::fs::remove_file(at("ov/member-0.index")).expect("removed");
    for line in ["overlay show ov", "overlay commit ov", "read p q --overlay ov --output refused"] {
        here.run(line).expect(2, &["member-0.index: is missing", "holds changes of a member"]);
    }
    here.run("overlay discard ov").ok();
    again();
    std::fs::write(at("ov/member-0.index"), "damaged").expect("written");
    here.run("overlay show ov").expect(2, &["member-0.index: overlay.header"]);
    here.run("overlay discard ov").ok();
    assert!(!at("ov").exists());
}

#[test]
fn a_refused_command_leaves_no_overlay_where_no_file_can_be_written() {
    let here = mirror();
    let binary = env!("CARGO_BIN_EXE_mdspace");
    for blocks in [0, 1] {
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec {binary} write p q --overlay none");
        let output = Command::new("bash").args(["-c", &script]).current_dir(here.path()).output().expect("bash");
        assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(!here.path().join("none").exists(), "{blocks} blocks");
    }
}
