//! `detect`: what it finds on whole disks, and that its commands lead to the files.

use crate::support::disks::{DATA_BYTES, DISKS, MIB, disk, ext4, group_text, nas, physical_volume, physical_volume_of};
use crate::support::{Workplace, parsed};
use serde_json::Value;
use std::os::unix::fs::FileExt;
use std::process::Command;

/// Runs a command that `detect` printed, with this command in its PATH.
fn shell(here: &Workplace, line: &str) -> String {
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_mdspace")).parent().expect("it is in a directory");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").expect("there is a PATH"));
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", line]).env("PATH", path).current_dir(here.path());
    let output = bash.output().expect("bash starts");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn array<'a>(report: &'a Value, name: &str) -> &'a Value {
    let arrays = report["arrays"].as_array().expect("a list");
    arrays.iter().find(|array| array["name"] == name).unwrap_or_else(|| panic!("{name}: {report}"))
}

#[test]
fn three_disks_with_three_arrays_are_a_tree_that_leads_to_the_files() {
    let here = Workplace::new();
    nas(&here, "gpt");
    let image = ext4(&here, DATA_BYTES);
    here.run_with("write disk?.img --name 2", &image).ok();
    let before = here.contents(&DISKS);
    let report = parsed(&here.run("detect --json disk1.img disk2.img disk3.img").ok().text());
    assert_eq!(report["disks"][0]["table"]["kind"], "GPT");
    assert_eq!(report["disks"][2]["partitions"][1]["name"], "disk3.img:2");
    assert_eq!(report["disks"][2]["partitions"][1]["content"]["kind"], "md");
    assert_eq!(report["arrays"].as_array().map(Vec::len), Some(3), "{report}");
    let data = array(&report, "nas:2");
    assert_eq!((&data["level"], &data["state"]), (&"raid5".into(), &"clean".into()));
    assert_eq!((&data["content"]["kind"], &data["content"]["label"]), (&"ext".into(), &"photos".into()));
    assert_eq!(data["content"]["bytes"], DATA_BYTES);
    assert_eq!(data["members"].as_array().map(Vec::len), Some(3));
    // The commands, in order: the copy, and the list.
    let commands: Vec<&str> =
        data["next"].as_array().expect("a list").iter().map(|next| next["command"].as_str().expect("text")).collect();
    assert_eq!(commands[0], "mdspace read disk1.img:3 disk2.img:3 disk3.img:3 --output md-2.img");
    shell(&here, commands[0]);
    assert!(shell(&here, commands[1]).contains("photos"), "{commands:?}");
    let text = here.run("detect disk?.img").ok().text();
    for words in
        ["disk2.img: 40 MiB, GPT", "disk2.img:3", "array \"nas:2\"", "an ext4 file system \"photos\"", "next: mdspace"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(here.contents(&DISKS) == before, "detect changed a disk");
}

#[test]
fn members_that_are_missing_stale_or_too_few_are_named() {
    let here = Workplace::new();
    nas(&here, "dos");
    // The second disk misses a write of the RAID-5, and then the third is away.
    here.run_with("write disk1.img disk3.img --name 2", b"later").ok();
    let before = here.contents(&DISKS);
    let run = here.run("detect --json disk?.img");
    let report = parsed(&run.text());
    let data = array(&report, "nas:2");
    assert_eq!((&data["state"], &data["missing"]), (&"clean, degraded".into(), &serde_json::json!([1])));
    assert!(data["members"][1]["left_out"].as_str().is_some_and(|reason| reason.contains("events")), "{data}");
    assert_eq!(data["members"][0]["left_out"], Value::Null);
    let text = here.run("detect disk?.img").ok().text();
    assert!(text.contains("missing: slot 1") && text.contains("not used"), "{text}");
    assert!(text.contains("  behind: disk2.img:3: by ") && text.contains("no bitmap says what differs"), "{text}");
    assert!(data["behind"][0]["name"] == "disk2.img:3" && data["behind"][0]["differs"].is_null(), "{data}");
    let run = here.run("detect --json disk1.img disk2.img");
    run.expect(1, &["too few"]);
    let report = parsed(&run.text());
    let data = array(&report, "nas:2");
    assert_eq!(data["state"], Value::Null);
    assert!(data["refusal"].as_str().is_some_and(|reason| reason.contains("too few")), "{data}");
    assert_eq!(data["next"], serde_json::json!([]));
    assert!(here.contents(&DISKS) == before, "detect changed a disk");
}

#[test]
fn a_volume_group_on_an_array_has_its_volumes_and_what_they_hold() {
    let here = Workplace::new();
    nas(&here, "gpt");
    let files = ext4(&here, 20 * MIB);
    here.run_with("write disk?.img --name 2", &physical_volume(DATA_BYTES, 20, &files)).ok();
    let report = parsed(&here.run("detect --json disk?.img").ok().text());
    let data = array(&report, "nas:2");
    assert_eq!((&data["content"]["kind"], &data["content"]["label"]), (&"lvm".into(), &"vg1".into()));
    let group = &report["volume_groups"][0];
    assert_eq!((&group["name"], &group["missing"], &group["physical"][0]), (&"vg1".into(), &0.into(), &data["uuid"]));
    let volume = &group["volumes"][0];
    assert_eq!((&volume["name"], &volume["bytes"]), (&"files".into(), &(20 * MIB).into()));
    assert_eq!((&volume["content"]["kind"], &volume["content"]["label"]), (&"ext".into(), &"photos".into()));
    let text = here.run("detect disk?.img").ok().text();
    assert!(text.contains("volume group \"vg1\" on"), "{text}");
    // Two commands to the files.
    let commands: Vec<&str> =
        group["next"].as_array().expect("a list").iter().map(|next| next["command"].as_str().expect("text")).collect();
    shell(&here, commands[0]);
    assert!(here.contents(&["files.img"])[0] == files);
    assert!(shell(&here, commands[1]).contains("photos"), "{commands:?}");
    let run = here.run("read disk?.img --name 2 --inner vg1/files --offset 1M --length 3M");
    assert!(run.ok().stdout == files[MIB as usize..4 * MIB as usize]);
    for (arguments, words) in [
        ("--inner vg1/file", "the logical volumes vg1/files"),
        ("--inner 1", "the logical volumes vg1/files"),
        ("--inner vg1/files --offset 21M", "past the array's end"),
    ] {
        here.run(&format!("read disk?.img --name 2 {arguments}")).expect(2, &[words]);
    }
    here.run("read disk?.img --name 0 --inner 1").expect(2, &["neither partitions nor volumes of LVM"]);
}

#[test]
fn a_volume_group_over_two_arrays_has_its_volumes_or_says_how_many_arrays_are_missing() {
    let here = Workplace::new();
    let files = ext4(&here, 20 * MIB);
    let text = group_text(&[('a', 12), ('b', 8)]);
    let (first, second) = files.split_at(12 * MIB as usize);
    for (name, members, letter, data) in [("one", "a.img b.img", 'a', first), ("two", "c.img d.img", 'b', second)] {
        here.run(&format!("create --level 1 --size 20M --name {name} {members}")).ok();
        here.run_with(&format!("write {members}"), &physical_volume_of(letter, 14 * MIB, &text, data)).ok();
    }
    let report = parsed(&here.run("detect --json a.img b.img c.img d.img").ok().text());
    let group = &report["volume_groups"][0];
    assert_eq!((&group["missing"], group["physical"].as_array().map(Vec::len)), (&0.into(), Some(2)), "{report}");
    assert_eq!(group["volumes"][0]["content"]["label"], "photos");
    let command = group["next"][0]["command"].as_str().expect("text");
    assert_eq!(command, "mdspace read a.img b.img c.img d.img --inner vg1/files --output files.img");
    shell(&here, command);
    assert!(here.contents(&["files.img"])[0] == files);
    let report = parsed(&here.run("detect --json a.img b.img").ok().text());
    let group = &report["volume_groups"][0];
    assert_eq!((&group["missing"], &group["next"]), (&1.into(), &serde_json::json!([])), "{report}");
    here.run("read a.img b.img --inner vg1/files").expect(2, &["other physical volumes too"]);
}

#[test]
fn partitions_and_arrays_inside_of_an_array_are_found() {
    let here = Workplace::new();
    here.run("create --level 1 --size 24M --name outer a.img b.img").ok();
    let bytes =
        parsed(&here.run("examine --json a.img").text())["members"][0]["data_bytes"].as_u64().expect("a number");
    disk(&here, "inner.img", bytes, "label: gpt\nstart=1MiB, size=16MiB, type=R\n");
    here.run("create --level 1 --name inner inner.img:1 missing").ok();
    let inner = here.contents(&["inner.img"]).remove(0);
    here.run_with("write a.img b.img", &inner).ok();
    let report = parsed(&here.run("detect --json a.img b.img").ok().text());
    let content = &array(&report, "outer")["content"];
    assert_eq!(
        (&content["kind"], &content["inside"][0]["content"]["kind"]),
        (&"partitions".into(), &"md".into()),
        "{content}"
    );
    assert_eq!(content["inside"][0]["content"]["label"], "inner");
    let run = here.run("read a.img b.img --inner 1");
    assert!(run.ok().stdout == inner[MIB as usize..17 * MIB as usize]);
    here.run("read a.img b.img --inner 2").expect(2, &["--inner 2: the array has the partitions 1"]);
    // md on md: the copy of the outer array is the member of the inner one.
    let nested = here.contents(&["inner.img"])[0][MIB as usize..17 * MIB as usize].to_vec();
    here.run("create --level 1 --size 24M --name outer2 c.img d.img").ok();
    here.run_with("write c.img d.img", &nested).ok();
    let report = parsed(&here.run("detect --json c.img d.img").ok().text());
    let outer = array(&report, "outer2");
    assert_eq!(outer["content"]["kind"], "md");
    let inner = array(&report, "inner");
    assert_eq!((&inner["inside_of"][0], &inner["state"]), (&outer["uuid"], &"clean, degraded".into()), "{inner}");
    let text = here.run("detect c.img d.img").ok().text();
    assert!(text.contains("array \"inner\"") && text.contains("inside of"), "{text}");
}

#[test]
fn anything_may_be_on_a_disk() {
    let here = Workplace::new();
    let noise: Vec<u8> = (0..2_u32 << 20).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(here.path().join("noise"), &noise).expect("of our own");
    std::fs::write(here.path().join("empty"), "").expect("of our own");
    std::fs::write(here.path().join("zeros"), vec![0; 1 << 20]).expect("of our own");
    let report = parsed(&here.run("detect --json noise empty zeros").ok().text());
    let kinds: Vec<&Value> =
        report["disks"].as_array().expect("a list").iter().map(|disk| &disk["content"]["kind"]).collect();
    assert_eq!(kinds, ["unknown", "empty", "empty"]);
    // A table whose every entry is noise, with right checksums nowhere.
    disk(&here, "disk.img", 4 * MIB, "label: dos\nstart=2048, size=2048, type=5\n5 : start=3072, size=100, type=fd\n");
    let file = std::fs::File::options().write(true).open(here.path().join("disk.img")).expect("of our own");
    file.write_all_at(&noise[..64 * 7], 462).expect("of our own");
    file.write_all_at(b"\x55\xaa", 510).expect("of our own");
    here.run("detect disk.img").ok();
    here.run("detect disk9.img").expect(2, &["disk9.img: no such file"]);
    std::fs::create_dir(here.path().join("nothing")).expect("of our own");
    let listed = here.run("detect noise disk.img:9");
    listed.expect(2, &["disk.img:9"]);
}

/// Several arrays in one glob, with files that are no members.
#[test]
fn a_directory_of_members_is_sorted_into_its_arrays() {
    let here = Workplace::new();
    std::fs::create_dir(here.path().join("images")).expect("of our own");
    here.run("create --level 1 --size 8M --name one images/a images/b").ok();
    here.run("create --level 6 --size 8M --name two images/c images/d images/e images/f").ok();
    std::fs::write(here.path().join("images/letter"), "not a member").expect("of our own");
    for words in ["images", "images/*"] {
        let report = parsed(&here.run(&format!("detect --json {words}")).ok().text());
        assert_eq!(report["arrays"].as_array().map(Vec::len), Some(2), "{report}");
        assert_eq!(array(&report, "two")["members"].as_array().map(Vec::len), Some(4));
    }
}

/// Without what the command adds: containers, and commands that come next.
fn without_commands(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            fields.remove("next");
            fields.remove("containers");
            fields.values_mut().for_each(without_commands);
        }
        serde_json::Value::Array(values) => values.iter_mut().for_each(without_commands),
        _ => {}
    }
}

#[test]
fn the_library_finds_as_data_what_the_command_prints() {
    let here = Workplace::new();
    nas(&here, "gpt");
    let image = ext4(&here, 20 << 20);
    here.run_with("write disk1.img:3 disk2.img:3 disk3.img:3", &physical_volume(DATA_BYTES, 20, &image)).ok();
    let paths = ["disk1.img", "disk3.img", "none"].map(|name| here.path().join(name));
    let words = paths.each_ref().map(|path| path.to_string_lossy().into_owned());
    let before = here.contents(&["disk1.img", "disk3.img"]);
    let found = mdspace::detect(&paths).expect("it looks");
    assert!(here.contents(&["disk1.img", "disk3.img"]) == before, "looking changed a disk");
    let data = found.arrays.iter().find(|array| array.name == "nas:2").expect("it is found");
    assert_eq!((data.level, &data.missing[..], data.members.len()), ("raid5", &[1][..], 2));
    assert_eq!(found.volume_groups[0].volumes[0].content.label.as_deref(), Some("photos"));
    assert!(found.unusable[0].reason.contains("none"), "{:?}", found.unusable);
    let printed = here.run(&format!("detect --json {}", words[..2].join(" "))).ok().text();
    let mut printed = parsed(&printed);
    without_commands(&mut printed);
    let library = mdspace::detect(&paths[..2]).expect("it looks");
    assert_eq!(serde_json::to_value(&library).expect("it is JSON"), printed);
}

#[test]
fn partitions_without_superblocks_lead_to_the_search_and_the_search_to_the_partitions() {
    let here = Workplace::new();
    nas(&here, "gpt");
    let image = ext4(&here, DATA_BYTES);
    here.run_with("write disk?.img --name 2", &image).ok();
    let detect = || parsed(&here.run("detect --json disk1.img disk2.img disk3.img").ok().text());
    assert_eq!(detect()["next"], serde_json::json!([]));
    here.run("wipe --force disk1.img:3").ok();
    assert_eq!(detect()["next"], serde_json::json!([]), "the others still have theirs");
    here.run("wipe --force disk2.img:3 disk3.img:3").ok();
    let before = here.contents(&DISKS);
    let command = "mdspace detect --search disk1.img:3 disk2.img:3 disk3.img:3";
    assert_eq!(detect()["next"][0]["command"], command);
    assert!(here.run("detect disk1.img disk2.img disk3.img").ok().text().contains(&format!("next: {command}\n")));
    let found = here.run(command.strip_prefix("mdspace ").expect("ours"));
    assert!(!found.stderr.contains("note:"), "{}", found.stderr);
    found.expect(1, &["with blocks of 4 KiB"]); // those of a file system this small have 1 KiB
    let whole = here.run("detect --search disk1.img disk2.img disk3.img");
    whole.expect(1, &["note: disk2.img: searched as a whole; it has partitions of Linux RAID: ", "disk2.img:3"]);
    assert!(here.contents(&DISKS) == before, "something was written");
}

#[test]
fn a_superblock_of_an_older_array_beside_the_one_that_counts_is_noted() {
    let here = Workplace::new();
    here.run("create --level 1 --metadata 1.0 --name old --size 8M a b").ok();
    let end = here.contents(&["a", "b"]);
    let older = parsed(&here.run("examine --json a b").ok().text())["members"][0]["array_uuid"].clone();
    here.run("create --force --assume-clean --level 1 --metadata 1.2 --name new a b").ok();
    assert!(!here.run("detect a b").ok().stderr.contains("also has"), "mdspace leaves none behind");
    for (name, bytes) in ["a", "b"].iter().zip(&end) {
        let file = std::fs::File::options().write(true).open(here.path().join(name)).expect("a member");
        file.write_all_at(&bytes[bytes.len() - 8192..], bytes.len() as u64 - 8192).expect("there is room");
    }
    let uuid = older.as_str().expect("a text");
    let note = format!("note: a: also has a superblock of metadata 1.0 of array {uuid} (raid1, 2 slots)");
    here.run("detect a b").expect(0, &[&note]);
}
