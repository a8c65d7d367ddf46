//! Overlays, by the command: whatever is tried in one, the members stay as they are; discarded, nothing is left; committed,
//! it is what it would have been without one. Also what refuses an overlay, and a commit that is killed.
//!
//! A black-box test of the command. The engine's crash-safety over such members is tested in crates/io/tests/stored.rs, a
//! commit that fails at each of its writes in src/overlay/commit/tests.rs, and killed servers in tests/killed.py.

mod support;

use serde_json::Value;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use support::nbd::Nbd;
use support::{Server, Workplace, parsed};

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
                fields.retain(|field, _| !field.ends_with("uuid") && field != "updated" && field != "created");
                fields.values_mut().for_each(strip);
            }
            Value::Array(values) => values.iter_mut().for_each(strip),
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
        (8, ["member-0.index: overlay.version", "this mdspace knows 1"]),
        (20, ["member-0.index: overlay.checksum", "but the header gives"]),
    ] {
        change(&place("member-0.index"), at, &[0xff]);
        refused(&words);
        restore("member-0.index");
    }
    let records = 40 + here.path().join("a").canonicalize().expect("a path").as_os_str().len().next_multiple_of(8);
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
        here.run(line).expect(2, &["the member has changed since the overlay was made", "discard"]);
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
