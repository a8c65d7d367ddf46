//! `mdspace wipe`: which superblocks it removes, what it refuses, and that it changes nothing else.

use crate::support::{Server, Workplace, parsed};
use std::os::unix::fs::FileExt;

/// Members are as long as this.
const BYTES: usize = 8 << 20;

/// Asserts that a line is refused with `words`, and that no byte of `members` changes.
#[track_caller]
fn refused(here: &Workplace, line: &str, words: &[&str], members: &[&str]) {
    let before = here.contents(members);
    here.run(line).expect(2, words);
    assert!(here.contents(members) == before, "{line}: it changed something");
}

#[test]
fn a_spare_goes_without_a_question_a_member_by_force_and_each_loses_only_its_superblock() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M --name host:data --bitmap internal a b c --spare d").ok();
    std::fs::write(here.path().join("letter"), vec![b'x'; BYTES]).expect("a file");
    let uuid =
        parsed(&here.run("examine --json a").text())["members"][0]["array_uuid"].as_str().expect("it").to_owned();
    let names = ["a", "b", "c", "d", "letter"];
    let before = here.contents(&names);

    let dry = here.run("wipe --dry-run a d").ok().text();
    assert!(here.contents(&names) == before, "--dry-run changes nothing");
    assert!(dry.contains("a: would remove the superblock of array \"host:data\""), "{dry}");
    assert!(dry.contains("a: needs --force: it calls itself member in slot 0") && !dry.contains("d: needs"), "{dry}");
    // The array would start without it, but without redundancy.
    let words = ["a: it calls itself member in slot 0 of array", &uuid, "--dry-run", "--force removes them"];
    refused(&here, "wipe a d", &words, &names);
    let spare = here.run("wipe d").ok().text();
    assert!(
        spare.starts_with("d: removed the superblock of array") && spare.contains("(raid5): spare; 1.2"),
        "{spare}"
    );
    let text = here.run("wipe --force a").ok().text();
    let expected =
        format!("a: removed the superblock of array \"host:data\" {uuid} (raid5): member in slot 0; 1.2 at byte 4096");
    assert!(text.starts_with(&expected), "{text}");
    let after = here.contents(&names);
    for (index, name) in names.iter().enumerate() {
        let is_wiped = matches!(*name, "a" | "d");
        let place = 4096..8192;
        assert_eq!(after[index][place.clone()].iter().all(|byte| *byte == 0), is_wiped, "{name}");
        assert!(after[index][..place.start] == before[index][..place.start], "{name}");
        assert!(after[index][place.end..] == before[index][place.end..], "{name}");
    }
    here.run("examine a").expect(2, &["no md superblock"]);
    here.run("examine b c").ok();

    refused(&here, "wipe b c", &["b: it calls itself member in slot 1"], &names);
    refused(&here, "wipe a", &["a: superblock.magic", "no md superblock"], &names);
    refused(&here, "wipe --force b letter", &["letter: superblock.magic"], &names);
    refused(&here, "wipe b b", &["given before"], &names);
    refused(&here, "wipe none", &["none: no such file"], &names);
    here.run("wipe --force b").ok();
    here.run("wipe --force *").expect(2, &["no md superblock"]);
    assert_eq!(here.run("wipe --force c").ok().text().lines().count(), 1);
}

#[test]
fn superblocks_of_every_version_go_and_each_is_named() {
    for (metadata, at) in [("1.0", BYTES as u64 - 8192), ("1.1", 0), ("1.2", 4096)] {
        let here = Workplace::new();
        here.run(&format!("create --level 1 --size 8M --metadata {metadata} --name one a b")).ok();
        let wiped = parsed(&here.run("wipe --json --force a b").ok().text());
        for (index, name) in ["a", "b"].iter().enumerate() {
            let superblock = &wiped[index]["superblocks"][0];
            assert_eq!((&wiped[index]["name"], &wiped[index]["removed"]), (&(*name).into(), &true.into()), "{wiped}");
            assert_eq!((&superblock["metadata"], &superblock["at"]), (&metadata.into(), &at.into()), "{wiped}");
            assert_eq!(superblock["role"], format!("member in slot {index}"), "{wiped}");
            assert_eq!((&superblock["array_name"], &superblock["damage"]), (&"one".into(), &serde_json::Value::Null));
        }
        here.run("examine a b").expect(2, &["no md superblock"]);
        here.run("create --level 1 a b").ok();
    }

    // One of an older array, left at the end.
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --metadata 1.0 --name old c missing").ok();
    here.run("create --level 1 --size 8M --name new a b").ok();
    let old = here.contents(&["c"]).remove(0);
    let file = std::fs::File::options().write(true).open(here.path().join("a")).expect("a member");
    file.write_all_at(&old[BYTES - 8192..BYTES - 4096], BYTES as u64 - 8192).expect("it is long enough");
    // Both may be of the same second, so either may be the one that counts.
    let text = here.run("wipe --force a").ok().text();
    assert!(text.contains("array \"old\"") && text.contains("array \"new\"") && text.lines().count() == 2, "{text}");
    here.run("examine a").expect(2, &["no md superblock"]);
}

#[test]
fn what_an_array_may_need_is_kept_without_force() {
    let here = Workplace::new();
    here.run("create --level 0 --chunk 64K --size 8M a b").ok();
    refused(&here, "wipe a", &["it calls itself member in slot 0"], &["a", "b"]);
    here.run("wipe --force a").ok();

    here.run("create --level 1 --size 8M c d").ok();
    let file = std::fs::File::options().write(true).open(here.path().join("c")).expect("a member");
    file.write_all_at(&[7], 4096 + 100).expect("it is long enough");
    refused(
        &here,
        "wipe c",
        &["c: byte 4096: what may be a 1.2 superblock is damaged: superblock.sb_csum"],
        &["c", "d"],
    );
    let wiped = parsed(&here.run("wipe --dry-run --json c").ok().text());
    assert!(wiped[0]["needs_force"].is_string() && wiped[0]["superblocks"][0]["damage"].is_string(), "{wiped}");
    assert_eq!(wiped[0]["removed"], false);
    let text = here.run("wipe --force c").ok().text();
    assert!(text.contains("c: removed what may be a superblock; 1.2 at byte 4096: "), "{text}");
    here.run("examine c").expect(2, &["no md superblock"]);
}

#[test]
fn a_member_in_use_is_refused_and_one_that_was_removed_is_not() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --name data a b").ok();
    let server = Server::of(&here, "serve a b");
    here.run("wait").ok();
    for line in ["wipe a", "wipe --force a b", "wipe --dry-run b"] {
        here.run(line).expect(2, &["in use", "mdspace status"]);
    }
    here.run("fail b").ok();
    here.run("remove b").ok();
    here.run("wipe b").expect(2, &[]); // it still calls itself a member
    let text = loop {
        let run = here.run("wipe --force b");
        if run.status == 0 {
            break run.text();
        }
        run.expect(2, &["in use"]); // until its last transfers have ended
    };
    assert!(text.starts_with("b: removed the superblock of array \"data\""), "{text}");
    here.run("add b").ok();
    here.run("wait healthy").ok();
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}
