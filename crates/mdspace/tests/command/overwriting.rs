//! Protection from overwriting: `create`, `add` and `replace` need `--force` for members with a superblock, a possible
//! superblock or other data, and `read --output` refuses files with data. Also the messages of commands that fail after
//! a change.
//!
//! A black-box test of the command. The simulator tests unreadable blocks and power cuts.

use crate::support::{Server, Workplace, parsed};
use std::os::unix::fs::FileExt;
use std::process::Stdio;

/// md's magic, as on disk.
const MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();

const MEMBER_BYTES: u64 = 8 << 20;

/// Positions of superblocks on such a member, by version.
const PLACES: [(&str, u64); 4] =
    [("0.90", MEMBER_BYTES - (64 << 10)), ("1.0", MEMBER_BYTES - (8 << 10)), ("1.1", 0), ("1.2", 4096)];

/// The content of a member: a superblock of this version, if there is one; bytes at a position; and the field that the
/// refusal names.
type Claim = (&'static str, Option<&'static str>, u64, &'static [u8], &'static str);

const CLAIMS: [Claim; 11] = [
    ("a sound one", Some("1.2"), 0, &[], "superblock.magic"),
    ("a flipped bit", Some("1.2"), 4096 + 40, &[0xff], "superblock.sb_csum"),
    ("a flipped bit, 1.0", Some("1.0"), MEMBER_BYTES - (8 << 10) + 200, &[0xff], "superblock.sb_csum"),
    ("a flipped bit, 1.1", Some("1.1"), 72, &[0xff], "superblock.sb_csum"),
    ("major version 2", Some("1.2"), 4096 + 4, &[2], "superblock.major_version"),
    ("more devices than fit", Some("1.2"), 4096 + 220, &[0xff; 4], "superblock.max_dev"),
    ("magic alone, 0.90", None, PLACES[0].1, &MAGIC, "superblock.minor_version"),
    (
        "magic alone, 0.90, of the other byte order",
        None,
        PLACES[0].1,
        &[0xa9, 0x2b, 0x4e, 0xfc],
        "superblock.minor_version",
    ),
    ("magic alone, 1.0", None, PLACES[1].1, &MAGIC, "superblock.major_version"),
    ("magic alone, 1.1", None, PLACES[2].1, &MAGIC, "superblock.major_version"),
    ("magic alone, 1.2", None, PLACES[3].1, &MAGIC, "superblock.major_version"),
];

/// Creates the file anew.
fn member(here: &Workplace, name: &str, bytes: u64) -> std::fs::File {
    let file = std::fs::File::create(here.path().join(name)).expect("a directory of our own");
    file.set_len(bytes).expect("a file can be long");
    file
}

/// A member with a superblock or a part of one.
fn claim(here: &Workplace, name: &str, version: Option<&str>, at: u64, bytes: &[u8]) {
    let file = member(here, name, MEMBER_BYTES);
    if let Some(version) = version {
        member(here, "other", MEMBER_BYTES);
        here.run(&format!("create --level 1 --assume-clean --metadata {version} {name} other")).ok();
    }
    file.write_all_at(bytes, at).expect("it is long enough");
}

/// A rehearsal has the checks of a creation, and changes no byte of a member. New files are gone again.
#[test]
fn a_dry_run_says_what_a_creation_would_be_and_changes_nothing() {
    let here = Workplace::new();
    claim(&here, "claimed", Some("1.2"), 0, &[]);
    member(&here, "free", MEMBER_BYTES);
    let before = here.contents(&["claimed", "free"]);
    let table = [
        ("--level 1 claimed free", 2, "belongs to an array already"),
        ("--level 1 --force claimed free", 0, "would create RAID-1 of 2 members, 7"),
        ("--level 5 --size 8M free n1 n2", 0, "would create RAID-5 of 3 members, 1"),
        ("--level 6 --size 8M free n1 missing n2 --integrity --spare n3", 0, "would create RAID-6 of 4 members"),
        ("--level 5 --size 8M free n1 n2 --write-journal n4", 0, "would create RAID-5"),
        ("--level 1 --size 8M free n1 --bitmap ./bitmap", 0, "would create RAID-1"),
        ("--level 1 --size 8M free n1 --bitmap ./none/bitmap", 2, "bitmap: cannot create"),
        ("--level 1 free n1", 2, "n1: no such file"),
        ("--level 5 --overlay there free claimed", 2, "--dry-run"),
    ];
    for (words, status, said) in table {
        let run = here.run(&format!("create --dry-run {words}"));
        run.expect(status, if status == 0 { &[] } else { std::slice::from_ref(&said) });
        assert!(status != 0 || run.text().contains(said), "{words}: {}", run.text());
        assert!(here.contents(&["claimed", "free"]) == before, "{words}: bytes changed");
        for name in ["n1", "n2", "n3", "n4", "bitmap", "there"] {
            assert!(!here.path().join(name).exists(), "{words}: {name} was left");
        }
    }
    here.run("create --dry-run --level 1 --force claimed free").expect(0, &["claimed: holds", "--force overwrites"]);
    let status = parsed(&here.run("create --dry-run --json --level 5 --size 8M free n1 n2").ok().text());
    assert_eq!((&status["level"], &status["raid_disks"]), (&"raid5".into(), &3.into()));
}

#[test]
fn a_claimed_member_is_made_into_a_new_array_only_by_force() {
    let here = Workplace::new();
    for (what, version, at, bytes, field) in CLAIMS {
        claim(&here, "claimed", version, at, bytes);
        member(&here, "free", MEMBER_BYTES);
        let before = here.contents(&["claimed", "free"]);
        for contents in ["", "--assume-clean"] {
            let line = format!("create --level 1 {contents} --size 8M free claimed new");
            here.run(&line).expect(2, &["claimed: ", field, "--force"]);
            assert!(here.contents(&["claimed", "free"]) == before, "{what}: bytes changed");
            assert!(!here.path().join("new").exists(), "{what}: a file was left");
        }
        here.run("create --level 1 --assume-clean --force --size 8M free claimed new").ok();
        let report = parsed(&here.run("examine --json free claimed new").ok().text());
        assert_eq!(report["arrays"][0]["status"]["in_sync"], 3, "{what}");
        std::fs::remove_file(here.path().join("new")).expect("it was made");
    }
}

#[test]
fn a_claimed_member_joins_an_array_only_by_force() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M a b").ok();
    let server = Server::of(&here, "serve a b");
    for (number, (what, version, at, bytes, field)) in CLAIMS.into_iter().enumerate() {
        claim(&here, "claimed", version, at, bytes);
        let before = here.contents(&["claimed"]);
        for line in ["add claimed", "replace b claimed"] {
            here.run(line).expect(2, &["claimed: ", field, "--force"]);
            assert!(here.contents(&["claimed"]) == before, "{what}: {line}: bytes changed");
        }
        let new = format!("new{number}");
        std::fs::rename(here.path().join("claimed"), here.path().join(&new)).expect("a new name");
        here.run(&format!("add --force {new}")).ok();
        here.run(&format!("remove {new}")).ok();
    }
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

/// Data of other programs on a member of [`MEMBER_BYTES`]: words of its name, its bytes and their position.
const OTHERS: [(&str, &[u8], u64); 14] = [
    ("ext4", b"\x53\xef", 1080),
    ("XFS", b"XFSB", 0),
    ("Btrfs", b"_BHRfS_M", 65_600),
    ("NTFS", b"NTFS    ", 3),
    ("FAT", b"FAT32   ", 82),
    ("LUKS", b"LUKS\xba\xbe", 0),
    ("LVM", b"LABELONE", 512),
    ("swap", b"SWAPSPACE2", 4086),
    ("ZFS", b"\x0c\xb1\xba\0\0\0\0\0", 128 << 10),
    ("ZFS", b"\x0c\xb1\xba\0\0\0\0\0", MEMBER_BYTES - (128 << 10)),
    ("second copy of a GPT", b"EFI PART", MEMBER_BYTES - 512),
    ("DDF", b"\xde\x11\xde\x11", MEMBER_BYTES - 512),
    ("IMSM", b"Intel Raid ISM Cfg Sig. ", MEMBER_BYTES - 1024),
    ("unknown kind", b"shopping list: milk", 0),
];

/// A member with data of another program.
fn hold(here: &Workplace, name: &str, bytes: &[u8], at: u64) {
    member(here, name, MEMBER_BYTES).write_all_at(bytes, at).expect("it is long enough");
}

#[test]
fn what_others_left_on_a_member_is_made_into_a_new_array_only_by_force() {
    let here = Workplace::new();
    for (what, bytes, at) in OTHERS {
        hold(&here, "held", bytes, at);
        member(&here, "free", MEMBER_BYTES);
        let before = here.contents(&["held", "free"]);
        for line in ["create --level 5 free held new --size 8M", "create --level 1 --size 8M free new --spare held"] {
            let said = here.run(line);
            assert!(!said.expect(2, &["held: holds ", what, "--force"]).stderr.contains("note:"), "{what}");
            assert!(here.contents(&["held", "free"]) == before, "{what}: bytes changed");
            assert!(!here.path().join("new").exists(), "{what}: a file was left");
        }
        let said = here.run("create --level 1 --force free held");
        said.expect(0, &["note: held: holds ", what, "note: the data of free is copied over the other members"]);
    }
}

#[test]
fn what_a_new_array_overwrites_is_told_before() {
    const ZEROS: &str = "note: the members in slots are overwritten with zeros";
    const PARITY: &str = "note: parity is computed over a part of each member in a slot";
    let table = [
        ("--level 5 a b c", ZEROS, PARITY),
        ("--level 5 --resync-later a b c", PARITY, ZEROS),
        // These rely on parity from the start.
        ("--level 5 --resync-later a b missing", ZEROS, PARITY),
        ("--level 5 --resync-later --consistency-policy log a b c", ZEROS, PARITY),
        ("--level 5 --resync-later --write-journal d a b c", ZEROS, PARITY),
        ("--level 5 --bitmap lockless a b c", "note: what the members hold counts as never written", ZEROS),
        ("--level 1 --resync-later a b", "note: the data of a is copied over the other members", ZEROS),
    ];
    for (line, told, not_told) in table {
        let here = Workplace::new();
        for name in ["a", "b", "c", "d"] {
            member(&here, name, 4 * MEMBER_BYTES);
        }
        let said = here.run(&format!("create {line}"));
        assert!(!said.expect(0, &[told]).stderr.contains(not_told), "{line}");
    }
}

#[test]
fn what_others_left_on_a_member_joins_an_array_only_by_force() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M a b").ok();
    let server = Server::of(&here, "serve a b");
    for (number, (what, bytes, at)) in OTHERS.into_iter().enumerate() {
        let held = format!("held{number}");
        hold(&here, &held, bytes, at);
        let before = here.contents(&[&held]);
        for line in [format!("add {held}"), format!("replace b {held}")] {
            here.run(&line).expect(2, &[&format!("{held}: holds "), what, "--force"]);
            assert!(here.contents(&[&held]) == before, "{what}: {line}: bytes changed");
        }
        here.run(&format!("add --force {held}")).ok();
        here.run(&format!("remove {held}")).ok();
    }
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn what_real_programs_make_is_known_by_name_and_what_they_never_touched_is_free() {
    let here = Workplace::new();
    let sfdisk = |label: &str| format!("echo label: {label} | sfdisk --quiet made");
    let table = [
        ("ext2, ext3 or ext4", "mkfs.ext4 -q -F made".to_owned()),
        ("swap space", "mkswap made".to_owned()),
        ("a GPT partition table", sfdisk("gpt")),
        // The first copy is erased.
        (
            "the second copy of a GPT",
            format!("{} && dd if=/dev/zero of=made bs=4k count=9 conv=notrunc", sfdisk("gpt")),
        ),
        ("a partition table (MBR)", sfdisk("dos")),
    ];
    for (what, script) in table {
        member(&here, "made", MEMBER_BYTES);
        let mut shell = std::process::Command::new("sh");
        shell.args(["-e", "-c", &script]).current_dir(here.path()).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
        let made = shell.stdin(Stdio::null()).output().expect("a shell");
        assert!(made.status.success(), "{script}: {}", String::from_utf8_lossy(&made.stderr));
        let before = here.contents(&["made"]);
        here.run("create --level 1 made missing").expect(2, &["made: holds ", what]);
        assert!(here.contents(&["made"]) == before, "{what}: bytes changed");
    }
    std::fs::write(here.path().join("notes.txt"), "a letter to a friend, of some length. ".repeat(1000))
        .expect("a file");
    here.run("create --level 1 notes.txt missing").expect(2, &["notes.txt: holds data of an unknown kind"]);
    member(&here, "free", MEMBER_BYTES);
    here.run("create --level 1 free missing").ok();
}

#[test]
fn read_writes_over_nothing_that_is_not_to_be_lost() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M a b").ok();
    here.run("create --level 1 --size 8M other missing").ok();
    here.run("create --level 1 --size 8M --metadata 1.0 last missing").ok();
    std::fs::hard_link(here.path().join("b"), here.path().join("alias")).expect("a name");
    std::fs::write(here.path().join("notes"), "a letter").expect("a file");
    hold(&here, "image", b"\x53\xef", 1080);
    hold(&here, "late", b"x", 4 << 20);
    member(&here, "empty", 0);
    member(&here, "sparse", MEMBER_BYTES);
    let names = ["a", "b", "other", "last", "notes", "image", "late"];
    let before = here.contents(&names);
    for (output, words) in [
        ("a", "a: a member of this array"),
        ("alias", "alias: a member of this array"),
        ("other", "other: a member of the array"),
        ("last", "last: a member of the array"),
    ] {
        for option in ["", " --overwrite", " --overwrite --force"] {
            here.run(&format!("read a b --length 4096 --output {output}{option}")).expect(2, &[words]);
        }
    }
    for (output, words) in [
        ("notes", "notes: exists already, and holds data"),
        ("image", "image: exists already, and holds an ext2"),
        ("late", "late: exists already, and holds data"),
    ] {
        for option in ["", " --force"] {
            let line = format!("read a b --length 4096 --output {output}{option}");
            here.run(&line).expect(2, &[words, "--overwrite"]);
        }
    }
    assert!(here.contents(&names) == before, "bytes changed");
    let held = std::fs::File::open(here.path().join("notes")).expect("it is there");
    held.lock().expect("it is not locked");
    here.run("read a b --length 4096 --output notes --overwrite").expect(2, &["notes: in use by another program"]);
    drop(held);
    for output in ["new", "empty", "sparse", "notes --overwrite", "image --overwrite", "/dev/null"] {
        here.run(&format!("read a b --length 4096 --output {output}")).ok();
    }
    for bytes in here.contents(&["new", "empty", "sparse", "notes", "image"]) {
        assert_eq!(bytes.len(), 4096);
    }
}

#[test]
fn no_superblock_of_another_version_is_left_beside_a_new_one() {
    let here = Workplace::new();
    for old in ["1.0", "1.1", "1.2"] {
        for new in ["1.0", "1.1", "1.2"] {
            for name in ["a", "b"] {
                let file = member(&here, name, MEMBER_BYTES);
                file.write_all_at(&MAGIC, PLACES[0].1).expect("it is long enough");
            }
            here.run(&format!("create --level 1 --assume-clean --force --metadata {old} a b")).ok();
            here.run(&format!("create --level 1 --assume-clean --force --metadata {new} a b")).ok();
            for bytes in here.contents(&["a", "b"]) {
                let found = PLACES.iter().filter(|(_, at)| bytes[*at as usize..].starts_with(&MAGIC));
                let found: Vec<&str> = found.map(|(version, _)| *version).collect();
                assert_eq!(found, [new], "{new} over {old}");
            }
        }
    }
}

/// The command with a limit on the length of files: writes behind it fail, as on a failing disk.
fn limited(here: &Workplace, kib: u64, line: &str) -> std::process::Command {
    let own = here.command(&[]);
    let mut command = std::process::Command::new("bash");
    let script = format!("trap '' XFSZ; ulimit -f {kib}; exec \"$0\" {line}");
    command.arg("-c").arg(script).arg(own.get_program()).current_dir(here.path());
    command.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

#[test]
fn a_member_that_fails_while_an_array_is_made_is_not_well_and_what_was_changed_is_said() {
    let here = Workplace::new();
    member(&here, "short", 2 << 20);
    member(&here, "long", MEMBER_BYTES);
    let line = "create --level linear --metadata 1.0 short long";
    let output = limited(&here, 4096, line).stdin(Stdio::null()).output().expect("bash starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for words in ["error: long: write of", "; the array is incomplete: ", "next: give another member", "--force"] {
        assert!(said.contains(words), "{said}");
    }
    assert!(here.contents(&["short"])[0].iter().any(|byte| *byte != 0), "the first member was written to");

    // The new files are removed, so nothing was changed.
    let line = "create --level linear --metadata 1.0 --size 8M new newer";
    let output = limited(&here, 4096, line).stdin(Stdio::null()).output().expect("bash starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("refused: new: ") && !here.path().join("new").exists(), "{said}");
}

#[test]
fn what_up_cannot_make_leaves_no_directory_behind() {
    let here = Workplace::new();
    let output = limited(&here, 4096, "up").stdin(Stdio::null()).output().expect("bash starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("member0.img: cannot create: ") && !here.path().join("mdspace-data").exists(), "{said}");
}

#[test]
fn a_member_that_fails_while_it_joins_is_not_well_and_what_was_changed_is_said() {
    let here = Workplace::new();
    here.run("create --level 1 --metadata 1.0 --size 2M a b").ok();
    member(&here, "long", MEMBER_BYTES);
    let server = Server::start(limited(&here, 4096, "serve a b"));
    let run = here.run("add long");
    run.expect(1, &["long: write of", "it is not a member", "next: "]);
    let status = parsed(&here.run("status --json").ok().text());
    assert_eq!(status["members"].as_array().map(Vec::len), Some(2));
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_setting_that_is_refused_after_another_was_made_says_so() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M --integrity a b c").ok();
    let server = Server::of(&here, "serve a b c");
    here.run("set integrity=on").expect(2, &["refused: ", "has checksums already"]);
    here.run("set bitmap=internal integrity=on")
        .expect(1, &["has checksums already", "settings changed before: bitmap"]);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}
