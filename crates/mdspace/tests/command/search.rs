//! `detect --search`: the shape of arrays whose superblocks are gone, from the ext4 on them.
//!
//! A black-box test. What is found is right if `read --geometry` gives the bytes that were written. tests/search makes
//! many more arrays, with other file systems.

use crate::support::{Workplace, parsed};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// An ext4 with files of many lengths.
fn ext4(here: &Workplace, bytes: usize) -> Vec<u8> {
    let (tree, image) = (here.path().join("tree"), here.path().join("image"));
    for directory in 0..4 {
        let place = tree.join(directory.to_string());
        std::fs::create_dir_all(&place).expect("of our own");
        for file in 0..60_usize {
            let text = format!("{directory} {file} of the files\n").repeat(file * 71 + 1);
            std::fs::write(place.join(file.to_string()), text).expect("of our own");
        }
    }
    std::fs::File::create(&image).expect("of our own").set_len(bytes as u64).expect("it is sparse");
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-d"])
        .args([&tree, &image])
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .status();
    assert!(made.expect("mke2fs starts (Debian's package e2fsprogs)").success());
    std::fs::read(image).expect("of our own")
}

/// Zeros the superblocks, which are at 4096.
fn wipe(here: &Workplace, member: &str) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().write(true).open(here.path().join(member)).expect("a member");
    file.write_all_at(&[0; 8192], 4096).expect("room");
}

fn bytes_of(place: &Path, names: &[&str]) -> Vec<Vec<u8>> {
    names.iter().map(|name| std::fs::read(place.join(name)).expect("a member")).collect()
}

/// The report for `members`, which do not change, and the exit status.
fn searched(here: &Workplace, members: &[&str]) -> (Value, i32) {
    let before = bytes_of(here.path(), members);
    let run = here.run(&format!("detect --search --json {}", members.join(" ")));
    assert!(bytes_of(here.path(), members) == before, "the search changed a member");
    (parsed(&run.text()), run.status)
}

#[test]
fn a_shape_is_found_with_all_members_and_with_one_missing() {
    for (create, mut given) in [
        ("--level 5 --chunk 16K --layout rs --data-offset 1M", vec!["d", "a", "c", "b"]),
        ("--level 5 --chunk 64K --data-offset 2M", vec!["c", "d", "a"]),
        ("--level 6 --chunk 8K --layout la --data-offset 136K", vec!["b", "d", "c", "a"]),
        ("--level 10 --chunk 32K --data-offset 1M", vec!["c", "a", "b"]),
        ("--level 10 --layout o2 --chunk 32K --data-offset 1M", vec!["c", "d", "a", "b"]),
        ("--level 10 --layout f2 --chunk 32K --data-offset 1M", vec!["c", "d", "a", "b"]),
        ("--level 10 --layout f2 --chunk 4K --data-offset 1M", vec!["c", "b", "d"]),
        ("--level 0 --chunk 32K --data-offset 1M", vec!["c", "a", "d", "b"]),
        ("--level 1 --data-offset 1M", vec!["d", "b", "c"]),
    ] {
        let here = Workplace::new();
        here.run(&format!("create {create} --size 32M a b c d")).ok();
        let image = ext4(&here, 24 << 20);
        here.run_with("write a b c d", &image).ok();
        given.iter().for_each(|member| wipe(&here, member));
        let (report, status) = searched(&here, &given);
        assert_eq!((&report["verdict"], status), (&"found".into(), 0), "{create}: {report}");
        assert_eq!(report["file_system"], "ext4");
        let next = report["shapes"][0]["geometry"].as_str().expect("a text");
        let read = here.run(&format!("read --geometry {next} --length 24M"));
        assert!(read.ok().stdout == image, "{create}: {next}");
        given.clear();
    }
}

/// The bytes that a shape of the report reads.
fn read_by(here: &Workplace, shape: &Value) -> Vec<u8> {
    let geometry = shape["geometry"].as_str().expect("a text");
    here.run(&format!("read --geometry {geometry} --length 24M")).ok().stdout.clone()
}

#[test]
fn without_proof_a_stale_member_is_left_out_of_a_proposal_alone() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 16K --data-offset 1M --size 32M a b c d").ok();
    let image = ext4(&here, 24 << 20);
    here.run_with("write a b c d", &image).ok();
    std::fs::write(here.path().join("tree/0/later"), "later\n".repeat(9000)).expect("of our own");
    let image = ext4(&here, 24 << 20);
    here.run_with("write a b d", &image).ok();
    ["a", "b", "c", "d"].iter().for_each(|member| wipe(&here, member));
    let (report, status) = searched(&here, &["d", "c", "b", "a"]);
    assert_eq!((&report["verdict"], status), (&"undecided".into(), 1), "{report}");
    assert_eq!(report["shapes"][0]["left_out"], serde_json::json!(["c"]), "{report}");
    assert!(read_by(&here, &report["shapes"][0]) == image, "{report}");
}

/// The ext4 in `image` with one more file, as if it was written much later.
fn later(here: &Workplace, image: &[u8]) -> Vec<u8> {
    let (file, text) = (here.path().join("image"), here.path().join("text"));
    std::fs::write(&file, image).expect("of our own");
    std::fs::write(&text, "later\n".repeat(9000)).expect("of our own");
    let written = Command::new("debugfs")
        .args(["-w", "-R", &format!("write {} later", text.display())])
        .arg(&file)
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .env("E2FSPROGS_FAKE_TIME", "2000000000")
        .output();
    assert!(written.expect("debugfs starts (Debian's package e2fsprogs)").status.success());
    std::fs::read(file).expect("of our own")
}

#[test]
fn both_copies_of_a_mirror_that_differ_are_listed_with_what_differs_and_neither_is_chosen() {
    for given in [["a", "b"], ["b", "a"]] {
        let here = Workplace::new();
        here.run("create --level 1 --data-offset 1M --size 32M a b").ok();
        let old = ext4(&here, 24 << 20);
        here.run_with("write a b", &old).ok();
        let new = later(&here, &old);
        here.run_with("write a", &new).ok();
        ["a", "b"].iter().for_each(|member| wipe(&here, member));
        let (report, status) = searched(&here, &given);
        assert_eq!((&report["verdict"], status), (&"undecided".into(), 1), "{report}");
        let shapes = report["shapes"].as_array().expect("a list");
        let mut listed: Vec<(Vec<u8>, &Value)> =
            shapes.iter().map(|shape| (read_by(&here, shape), &shape["file_system_is"])).collect();
        listed.sort_by_key(|(bytes, _)| *bytes == old);
        assert!(listed == [(new.clone(), &"newer".into()), (old.clone(), &"older".into())], "{report}");
        let differs: Vec<usize> =
            (0..new.len()).step_by(4096).filter(|at| new[*at..][..4096] != old[*at..][..4096]).collect();
        let expected = serde_json::json!({ "at": differs[0], "bytes": differs.len() * 4096 });
        assert_eq!((&shapes[0]["differs"], &shapes[1]["differs"]), (&Value::Null, &expected), "{report}");
        let bytes = differs.len() * 4096;
        let told = format!("reads {bytes} bytes otherwise than the first shape, from {} on", differs[0]);
        let run = here.run("detect --search a b");
        let is_told = [told.as_str(), "its file system is the newer one"].iter().all(|told| run.text().contains(told));
        assert!(run.status == 1 && is_told, "{}", run.text());
    }
}

#[test]
fn a_stale_member_of_far_copies_does_not_make_them_stripes_without_copies() {
    let here = Workplace::new();
    here.run("create --level 10 --layout f2 --chunk 4K --data-offset 1M --size 32M a b c d").ok();
    let old = ext4(&here, 24 << 20);
    here.run_with("write a b c d", &old).ok();
    let new = later(&here, &old);
    here.run_with("write a b d", &new).ok();
    ["a", "b", "c", "d"].iter().for_each(|member| wipe(&here, member));
    let (report, status) = searched(&here, &["d", "a", "c", "b"]);
    assert_eq!((&report["verdict"], status), (&"undecided".into(), 1), "{report}");
    let shapes = report["shapes"].as_array().expect("a list");
    let truth = shapes.iter().find(|shape| shape["left_out"] == serde_json::json!(["c"]));
    assert!(truth.is_some_and(|truth| read_by(&here, truth) == new), "{report}");
}

#[test]
fn a_member_that_is_stale_in_a_file_alone_never_gives_wrong_bytes_as_the_answer() {
    for (level, names) in [("5", "a b c d"), ("6", "a b c d e")] {
        let here = Workplace::new();
        here.run(&format!("create --level {level} --chunk 16K --data-offset 1M --size 32M {names}")).ok();
        let mut image = ext4(&here, 24 << 20);
        here.run_with(&format!("write {names}"), &image).ok();
        let word = b"3 59 of the files";
        let at = image.windows(word.len()).position(|bytes| bytes == word).expect("a file has it");
        image[at..at + (64 << 10)].iter_mut().filter(|byte| **byte == b'f').for_each(|byte| *byte = b'F');
        here.run_with(&format!("write {}", names.replace(" c", "")), &image).ok();
        let given: Vec<&str> = names.split(' ').collect();
        given.iter().for_each(|member| wipe(&here, member));
        let (report, status) = searched(&here, &given);
        if report["verdict"] == "found" {
            assert!(read_by(&here, &report["shapes"][0]) == image, "RAID-{level}, status {status}: {report}");
        }
        assert!(level == "6" || status == 1, "nothing proves which member is stale: {report}");
    }
}

#[test]
fn superblocks_of_a_later_array_are_neither_data_nor_evidence() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 4K --metadata 1.0 --size 32M a b c d").ok();
    let image = ext4(&here, 24 << 20);
    here.run_with("write a b c d", &image).ok();
    here.run("create --level 5 --chunk 64K --assume-clean --force d b a c").ok();
    let (report, status) = searched(&here, &["c", "d", "b", "a"]);
    assert_eq!((&report["verdict"], status), (&"found".into(), 0), "{report}");
    let shape = &report["shapes"][0];
    let lost = shape["overwritten"].as_array().expect("a list");
    let bytes: u64 = lost.iter().map(|lost| lost["bytes"].as_u64().expect("a number")).sum();
    let read = read_by(&here, shape);
    let differ = read.chunks(4096).zip(image.chunks(4096)).filter(|(read, written)| read != written).count() as u64;
    assert!(lost.iter().all(|lost| lost["at"] != 0) && bytes >= 4 * 4096, "a superblock on each: {report}");
    assert!(0 < differ && differ * 4096 <= bytes, "{differ} blocks differ: {report}");
    assert!(here.run("detect --search a b c d").ok().text().contains("where md has written a superblock since"));
}

#[test]
fn members_without_a_known_file_system_are_a_failure_and_not_a_guess() {
    let here = Workplace::new();
    for name in ["a", "b", "c"] {
        std::fs::write(here.path().join(name), name.repeat(3 << 20)).expect("of our own");
    }
    let (report, status) = searched(&here, &["a", "b", "c"]);
    assert_eq!((&report["verdict"], status), (&"nothing".into(), 1));
    here.run("detect --search a b c").expect(1, &["no superblock of ext4, XFS or Btrfs", "next: "]);
    here.run("detect --search a absent").expect(2, &["absent: no such file"]);
    here.run("detect --search-bytes 1G a").expect(2, &["--search"]);
}
