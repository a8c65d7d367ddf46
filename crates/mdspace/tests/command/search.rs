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
    made_by_mke2fs(here, bytes, &["-t", "ext4"])
}

/// A file system of mke2fs with these options, and files of many lengths.
fn made_by_mke2fs(here: &Workplace, bytes: usize, options: &[&str]) -> Vec<u8> {
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
        .args(["-q", "-F", "-b", "4096"])
        .args(options)
        .arg("-d")
        .args([&tree, &image])
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .output();
    assert!(made.expect("mke2fs starts (Debian's package e2fsprogs)").status.success());
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

#[test]
fn a_shape_is_found_without_checksums_too() {
    // What Linux 2.6.32 to 3.x made; the same without checksums of descriptors; and ext3.
    let descriptors = ["-t", "ext4", "-O", "^metadata_csum,^64bit,uninit_bg"];
    let none = ["-t", "ext4", "-O", "^metadata_csum,^64bit,^uninit_bg", "-I", "128"];
    let ext3 = ["-t", "ext3"];
    for (create, given, options) in [
        ("--level 5 --chunk 64K", "d a c b", &descriptors[..]),
        ("--level 5 --chunk 64K", "d a c", &descriptors[..]),
        ("--level 6 --chunk 16K", "b d a e", &descriptors[..]),
        ("--level 10 --chunk 32K", "c a d e b", &none[..]),
        ("--level 5 --chunk 64K --layout la", "e b d c a", &ext3[..]),
        ("--level 0 --chunk 64K", "e b d c a", &ext3[..]),
    ] {
        let here = Workplace::new();
        let names = if given.contains('e') { "a b c d e" } else { "a b c d" };
        here.run(&format!("create {create} --data-offset 1M --size 32M {names}")).ok();
        let image = made_by_mke2fs(&here, 24 << 20, options);
        here.run_with(&format!("write {names}"), &image).ok();
        let given: Vec<&str> = given.split(' ').collect();
        given.iter().for_each(|member| wipe(&here, member));
        let (report, status) = searched(&here, &given);
        assert_eq!((&report["verdict"], status), (&"found".into(), 0), "{create} {options:?}: {report}");
        assert!(read_by(&here, &report["shapes"][0]) == image, "{create} {options:?}: {report}");
    }
}

#[test]
fn what_an_image_lacks_by_its_map_is_no_data_and_says_nothing_against_a_shape() {
    let here = Workplace::new();
    let members = ["d", "b", "a", "c"];
    for (create, given) in [
        ("--level 5 --chunk 16K --layout rs --data-offset 1M", &members[..]),
        ("--level 6 --chunk 8K --data-offset 1M", &members[..3]),
        ("--level 10 --chunk 32K --data-offset 1M", &members[..]),
        ("--level 1 --data-offset 1M", &members[..]),
    ] {
        here.run(&format!("create {create} --size 32M --force a b c d")).ok();
        let image = ext4(&here, 24 << 20);
        here.run_with("write a b c d", &image).ok();
        // At most one member of each row lacks a block, so that all of the array can be read.
        for (number, member) in given.iter().enumerate() {
            use std::os::unix::fs::FileExt;
            wipe(&here, member);
            let file = std::fs::File::options().write(true).open(here.path().join(member)).expect("a member");
            let mut map = "0x0 ? 1\n".to_owned();
            let mut end = 0;
            for hole in 0..24 {
                let (at, length) = ((1 << 20) + ((hole * 4 + number as u64) << 18), (1 + hole % 5) << 12);
                map += &format!("{end:#x} {:#x} +\n{at:#x} {length:#x} -\n", at - end);
                file.write_all_at(&vec![0xa5; length as usize], at).expect("room");
                end = at + length;
            }
            map += &format!("{end:#x} {:#x} +\n", file.metadata().expect("ours").len() - end);
            std::fs::write(here.path().join(format!("{member}.map")), map).expect("of our own");
        }
        let before = bytes_of(here.path(), given);
        let report = here.run(&format!("detect --search --json --maps {}", given.join(" ")));
        assert!(bytes_of(here.path(), given) == before, "the search changed a member");
        assert_eq!(report.status, 0, "{create}: {}", report.text().replace("\n", ""));
        let report = parsed(&report.text());
        assert!(report["unreadable_bytes"].as_u64() > Some(0), "{report}");
        let next = report["shapes"][0]["next"][0].as_str().expect("a line").replace('\'', "");
        assert!(next.contains("--maps --salvage"), "{next}");
        here.run(next.strip_prefix("mdspace ").expect("our own command")).ok();
        let read = std::fs::read(here.path().join("array.img")).expect("it was written");
        assert!(read[..image.len()] == image, "{create}: {next}");
        std::fs::remove_file(here.path().join("array.img")).expect("ours");
        std::fs::remove_file(here.path().join("array.map")).expect("ours");
    }
}

/// Says by its map that nothing of `member` was read from its data on, which begins at 1 MiB.
fn kill(here: &Workplace, member: &str) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().write(true).open(here.path().join(member)).expect("a member");
    let rest = file.metadata().expect("ours").len() - (1 << 20);
    file.write_all_at(&vec![0xa5; rest as usize], 1 << 20).expect("room");
    let map = format!("0x0 ? 1\n0x0 0x100000 +\n0x100000 {rest:#x} -\n");
    std::fs::write(here.path().join(format!("{member}.map")), map).expect("of our own");
}

#[test]
fn beside_a_disk_that_died_early_a_shape_is_proposed_and_not_found() {
    for (create, members, expected) in [
        ("--level 0 --chunk 64K", "a b", "level=0,chunk=64K,offset=1M,order=a,b"),
        ("--level 0 --chunk 64K", "b a", "level=0,chunk=64K,offset=1M,order=a,b"),
        ("--level 5 --chunk 16K", "c b a", "level=5,layout=ls,chunk=16K,offset=1M,order=a,b,c"),
    ] {
        let here = Workplace::new();
        let mut sorted: Vec<&str> = members.split(' ').collect();
        sorted.sort_unstable();
        here.run(&format!("create {create} --data-offset 1M --size 16M {}", sorted.join(" "))).ok();
        here.run_with(&format!("write {}", sorted.join(" ")), &ext4(&here, 24 << 20)).ok();
        sorted.iter().for_each(|member| wipe(&here, member));
        kill(&here, "b");
        let run = here.run(&format!("detect --search --json --maps {members}"));
        let report = parsed(&run.text());
        assert_eq!((&report["verdict"], run.status), (&"undecided".into(), 1), "{report}");
        let mut shapes = report["shapes"].as_array().expect("a list").iter();
        assert!(shapes.any(|shape| shape["geometry"] == expected), "{report}");
    }
}

#[test]
fn q_refutes_a_member_that_is_stale_in_a_file_also_beside_one_that_cannot_be_read() {
    let here = Workplace::new();
    here.run("create --level 6 --layout ls-6 --chunk 16K --data-offset 1M --size 16M a b c d e").ok();
    let image = ext4(&here, 24 << 20);
    here.run_with("write a b c d e", &image).ok();
    ["a", "b", "c", "d", "e"].iter().for_each(|member| wipe(&here, member));
    kill(&here, "b");
    let search = || {
        let run = here.run("detect --search --json --maps e d c b a");
        (parsed(&run.text()), run.status)
    };
    let (report, status) = search();
    assert_eq!((&report["verdict"], status), (&"found".into(), 0), "{report}");
    let mut member = std::fs::read(here.path().join("c")).expect("a member");
    let text = b"1 55 of the files";
    let at = member.windows(text.len()).position(|own| own == text).expect("a file has many blocks, also on it");
    member[at..at + text.len()].fill(b'x');
    std::fs::write(here.path().join("c"), member).expect("a member");
    let (report, status) = search();
    assert_eq!((&report["verdict"], status), (&"undecided".into(), 1), "{report}");
}

/// The text for a RAID-6 of four members in order.
macro_rules! of_six {
    ($layout:literal, $chunk:literal) => {
        concat!("level=6,layout=", $layout, ",chunk=", $chunk, ",offset=1M,order=a,b,c,d")
    };
}

#[test]
fn ciphertext_is_put_in_order_by_copies_or_by_q_and_what_these_leave_open_is_listed() {
    // No member ends with a whole chunk of 2 MiB, which is tried too. Left and right layouts differ from their symmetric
    // ones in the order of data alone: P and Q are in the same slots.
    for (create, expected) in [
        ("--level 1", &["level=1,offset=1M,order=d,b,a,c"][..]),
        ("--level 6 --chunk 16K", &[of_six!("la", "16K"), of_six!("ls", "16K")]),
        ("--level 6 --chunk 8K --layout ra", &[of_six!("ra", "8K"), of_six!("rs", "8K")]),
    ] {
        let here = Workplace::new();
        here.run(&format!("create {create} --data-offset 1M --size 5184K a b c d")).ok();
        let bytes =
            parsed(&here.run("examine --json a b c d").ok().text())["arrays"][0]["status"]["array_bytes"].as_u64();
        let mut state = 7_u64;
        let mut image: Vec<u8> = (0..bytes.expect("a length"))
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as u8
            })
            .collect();
        image[..8].copy_from_slice(b"LUKS\xba\xbe\0\x02");
        here.run_with("write a b c d", &image).ok();
        ["a", "b", "c", "d"].iter().for_each(|member| wipe(&here, member));
        let (report, status) = searched(&here, &["d", "b", "a", "c"]);
        assert_eq!((report["file_system"].as_str(), status), (Some("LUKS"), i32::from(expected.len() > 1)), "{create}");
        let shapes = report["shapes"].as_array().expect("a list").iter().map(|shape| shape["geometry"].as_str());
        let mut shapes: Vec<&str> = shapes.map(|shape| shape.expect("a text")).collect();
        shapes.sort_unstable();
        assert_eq!(shapes, expected, "{create}");
        let read = |geometry: &str| here.run(&format!("read --geometry {geometry} --length {}", image.len()));
        assert!(expected.iter().any(|geometry| read(geometry).ok().stdout == image), "{create}");
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
    here.run("detect --search a b c")
        .expect(1, &["no superblock of ext4, XFS or Btrfs with blocks of 4 KiB", "next: "]);
    here.run("detect --search a absent").expect(2, &["absent: no such file"]);
    here.run("detect --search-bytes 1G a").expect(2, &["--search"]);
}
