//! `--inner`: what is inside of arrays, read and served: over several arrays, and arrays in arrays.

use crate::support::disks::{
    DATA_BYTES, DISKS, MIB, content, disk, ext4, group_text, nas, physical_volume, physical_volume_of,
};
use crate::support::nbd::Nbd;
use crate::support::{Server, Workplace, parsed};

/// Two arrays of two members each, under one group with a volume `files` over both; returns the volume's contents.
fn two_arrays(here: &Workplace) -> Vec<u8> {
    let files = ext4(here, 20 * MIB);
    let text = group_text(&[('a', 12), ('b', 8)]);
    let (first, second) = files.split_at(12 * MIB as usize);
    for (name, members, letter, data) in [("one", "a.img b.img", 'a', first), ("two", "c.img d.img", 'b', second)] {
        here.run(&format!("create --level 1 --size 20M --name {name} {members}")).ok();
        here.run_with(&format!("write {members}"), &physical_volume_of(letter, 14 * MIB, &text, data)).ok();
    }
    files
}

/// A client of the server here.
fn client(here: &Workplace) -> Nbd {
    Nbd::connect(here.path().join("nbd.socket").to_str().expect("a path"))
}

/// The server's volume of `bytes` bytes.
fn served(here: &Workplace, bytes: u64) -> Vec<u8> {
    let mut client = client(here);
    assert_eq!(client.bytes, bytes);
    (0..bytes / MIB).flat_map(|index| client.read(index * MIB, MIB as u32)).collect()
}

#[test]
fn a_volume_over_two_arrays_is_read_and_served_by_one_command() {
    let here = Workplace::new();
    let files = two_arrays(&here);
    let disks = ["a.img", "b.img", "c.img", "d.img"];
    let before = here.contents(&disks);
    assert!(here.run("read a.img b.img c.img d.img --inner vg1/files").ok().stdout == files);
    // One member of each may be missing; a piece over the seam comes from both.
    let seam = here.run("read b.img c.img --inner vg1/files --offset 11M --length 2M");
    assert!(seam.ok().stdout == files[11 * MIB as usize..13 * MIB as usize]);
    for (members, words) in [
        ("a.img b.img", "other physical volumes too"),
        ("a.img b.img c.img d.img --name one", "other physical volumes too"),
    ] {
        here.run(&format!("read {members} --inner vg1/files")).expect(2, &[words]);
    }
    here.run("read a.img b.img c.img d.img --inner vg1/photos").expect(2, &["the logical volumes vg1/files"]);
    here.run("serve a.img b.img c.img d.img --inner vg1/files").expect(2, &["several arrays", "--read-only"]);
    let server = Server::of(&here, "serve a.img b.img c.img d.img --inner vg1/files --read-only --nbd unix:nbd.socket");
    for words in ["inside     vg1/files, 20 MiB, read-only", "also on    array \"two\": raid1"] {
        assert!(server.greeting.contains(words), "{words}: {}", server.greeting);
    }
    assert!(served(&here, 20 * MIB) == files);
    let status = parsed(&here.run("status --json").ok().text());
    let inner = &status["served"]["inner"];
    assert_eq!((&inner["name"], &inner["others"][0]["name"]), (&"vg1/files".into(), &"two".into()), "{status}");
    here.run("write c.img d.img").expect(2, &["in use by"]);
    let mut client = client(&here);
    client.request(1, 0, 512, &[1; 512]);
    assert_eq!(client.outcome(), Err(1), "it takes no writes");
    drop(client);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    assert!(here.contents(&disks) == before, "reading changed a member");
}

#[test]
fn two_copies_of_one_physical_volume_are_refused_by_name() {
    let here = Workplace::new();
    let image = physical_volume_of('a', 14 * MIB, &group_text(&[('a', 8)]), &[7; 1 << 20]);
    for members in ["a.img b.img", "c.img d.img"] {
        here.run(&format!("create --level 1 --size 20M {members}")).ok();
        here.run_with(&format!("write {members}"), &image).ok();
    }
    here.run("read a.img c.img --inner vg1/files").expect(2, &["are the same physical volume"]);
    here.run("read a.img --inner vg1/files --output one.img").ok();
}

#[test]
fn only_the_arrays_that_a_volume_lies_on_are_opened() {
    let here = Workplace::new();
    nas(&here, "gpt");
    let files = ext4(&here, 20 * MIB);
    here.run_with("write disk?.img --name 2", &physical_volume(DATA_BYTES, 20, &files)).ok();
    // The array of the system cannot be started; the volume does not need it.
    for disk in ["disk1.img:1", "disk2.img:1", "disk3.img:1"] {
        here.run(&format!("wipe --force {disk}")).ok();
    }
    let server = Server::of(&here, "serve disk1.img disk2.img disk3.img --inner vg1/files --nbd unix:nbd.socket");
    assert!(server.greeting.contains("serving array \"nas:2\""), "{}", server.greeting);
    // The swap is free.
    here.run_with("write disk1.img:2 disk2.img:2 disk3.img:2", &[9; 4096]).ok();
    let mut writer = client(&here);
    let at = 3 * MIB + 512;
    writer.request(1, at, 4096, &[0x5a; 4096]);
    assert_eq!(writer.reply(), at);
    writer.request(3, 0, 0, &[]);
    assert_eq!(writer.reply(), 0);
    writer.request(6, 8 * MIB, 65536, &[]);
    assert_eq!(writer.reply(), 8 * MIB);
    let mut expected = files;
    expected[at as usize..][..4096].fill(0x5a);
    expected[8 * MIB as usize..][..65536].fill(0);
    assert!(served(&here, 20 * MIB) == expected);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    assert!(here.run("read disk?.img --inner vg1/files").ok().stdout == expected);
    let group = here.run("read disk?.img --name 2 --length 1M").ok().stdout.clone();
    assert!(group == physical_volume(DATA_BYTES, 20, &[])[..MIB as usize], "only the volume was written");
    let report = parsed(&here.run(&format!("examine --json {}", DISKS.join(" "))).text());
    assert!(report.to_string().contains("\"clean\""), "{report}");
}

#[test]
fn an_origin_of_a_snapshot_takes_no_writes() {
    let here = Workplace::new();
    here.run("create --level 1 --size 40M a.img b.img").ok();
    let plain = group_text(&[('a', 8)]);
    let snapshot = "snap0 { status = [\"VISIBLE\"]\nsegment_count = 1\n\
        segment1 { start_extent = 0\nextent_count = 8\ntype = \"snapshot\"\norigin = \"files\"\n } }\n";
    let text = plain.replace("logical_volumes {", &format!("logical_volumes {{ {snapshot}"));
    here.run_with("write a.img b.img", &physical_volume_of('a', 30 * MIB, &text, &[3; 4096])).ok();
    here.run("serve a.img b.img --inner vg1/files").expect(2, &["snapshots", "--read-only"]);
    assert!(here.run("read a.img b.img --inner vg1/files --length 4096").ok().stdout == [3; 4096]);
    here.run("read a.img b.img --inner vg1/snap0").expect(2, &["segments of type snapshot are not read"]);
    // The store of a snapshot is a volume of its own in the metadata.
    let store = "snap { status = [\"READ\", \"WRITE\", \"VISIBLE\"]\nsegment_count = 1\n\
        segment1 { start_extent = 0\nextent_count = 2\ntype = \"striped\"\nstripes = [\"pv0\", 8]\n } }\n";
    let text = text.replace("origin =", "cow_store = \"snap\"\norigin =");
    let text = text.replace("logical_volumes {", &format!("logical_volumes {{ {store}"));
    here.run_with("write a.img b.img", &physical_volume_of('a', 30 * MIB, &text, &[3; 4096])).ok();
    for command in ["read", "serve"] {
        here.run(&format!("{command} a.img b.img --inner vg1/snap")).expect(2, &["type snapshot are not read"]);
    }
}

/// The metadata of a group whose volume `files` is 4 extents from extent `at` of the second physical volume on.
fn remade(sequence: u64, at: u64) -> String {
    let text = group_text(&[('b', 4)]).replace("seqno = 1", &format!("seqno = {sequence}"));
    let first = format!("physical_volumes {{ pv1 {{ id = \"{}\"\npe_start = 2048\npe_count = 8 }}\n", "a".repeat(32));
    text.replace("[\"pv0\", 0]", &format!("[\"pv0\", {at}]")).replace("physical_volumes {", &first)
}

#[test]
fn the_newest_metadata_of_a_group_count_on_whichever_of_its_arrays_they_are() {
    let here = Workplace::new();
    for (name, members) in [("one", "a.img b.img"), ("two", "c.img d.img")] {
        here.run(&format!("create --level 1 --size 20M --name {name} {members}")).ok();
    }
    here.run_with("write a.img b.img", &physical_volume_of('a', 10 * MIB, &remade(6, 8), &[])).ok();
    // The volume was removed and made anew after the second physical volume got its last metadata.
    let (old, new) = (content(4 * MIB, 3), content(4 * MIB, 4));
    let data = [&old[..], &[0; 4 << 20], &new].concat();
    let whole = physical_volume_of('b', 14 * MIB, &remade(3, 0), &data);
    let (mut ignored, mut without) = (whole.clone(), whole.clone());
    ignored[4096 + 60] = 1;
    without[584 + 32..][..16].fill(0);
    for (image, alone) in [(&whole, None), (&ignored, Some(())), (&without, Some(()))] {
        here.run_with("write c.img d.img", image).ok();
        for members in ["a.img c.img", "c.img a.img", "a.img b.img c.img d.img"] {
            assert!(here.run(&format!("read {members} --inner vg1/files")).ok().stdout == new, "{members}");
        }
        if alone.is_some() {
            here.run("read c.img d.img --inner vg1/files").expect(2, &["whose metadata are on others"]);
        }
    }
    here.run_with("write c.img d.img", &whole).ok();
    let server = Server::of(&here, "serve a.img b.img c.img d.img --inner vg1/files --nbd unix:nbd.socket");
    assert!(server.greeting.contains("serving array \"two\""), "{}", server.greeting);
    // The array that was only looked at is free.
    here.run_with("write a.img b.img --offset 12M", &[9; 4096]).ok();
    assert!(served(&here, 4 * MIB) == new);
    let mut writer = client(&here);
    writer.request(1, MIB, 4096, &[0x5a; 4096]);
    assert_eq!(writer.reply(), MIB);
    drop(writer);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    let stored = here.run("read c.img d.img --length 14M").ok().stdout.clone();
    let mut expected = whole;
    expected[10 * MIB as usize..][..4096].fill(0x5a);
    assert!(stored == expected, "only the volume's newest place was written");
}

#[test]
fn a_name_that_two_things_inside_have_is_refused() {
    let here = Workplace::new();
    for (members, letter, byte) in [("a.img b.img", 'a', 1), ("c.img d.img", 'c', 2)] {
        here.run(&format!("create --level 1 --size 20M {members}")).ok();
        let image = physical_volume_of(letter, 14 * MIB, &group_text(&[(letter, 8)]), &[byte; 1 << 20]);
        here.run_with(&format!("write {members}"), &image).ok();
    }
    for members in ["a.img c.img", "c.img b.img"] {
        let run = here.run(&format!("read {members} --inner vg1/files"));
        assert!(run.expect(2, &["several volume groups have this name"]).stdout.is_empty());
    }
    assert!(here.run("read c.img --inner vg1/files --length 4096").ok().stdout == [2; 4096]);
    // An array inside has the number of the partition beside it for a name.
    here.run("create --level 1 --size 24M e.img f.img").ok();
    disk(&here, "in.img", 24 * MIB, "label: gpt\nstart=1MiB, size=10MiB, type=R\nstart=11MiB, size=10MiB, type=R\n");
    here.run("create --level 1 --name host:2 in.img:1 in.img:2").ok();
    here.run_with("write in.img:1 in.img:2", &[7; 4096]).ok();
    let image = std::fs::read(here.path().join("in.img")).expect("of our own");
    here.run_with("write e.img f.img", &image[..22 << 20]).ok();
    std::fs::remove_file(here.path().join("in.img")).expect("of our own");
    here.run("read e.img f.img --inner 2").expect(2, &["an array inside has this name, and so has something else"]);
    assert!(here.run("read e.img f.img --inner host:2 --length 4096").ok().stdout == [7; 4096]);
    assert_eq!(here.run("read e.img f.img --inner 1").ok().stdout.len() as u64, 10 * MIB);
}

#[test]
fn a_partition_that_reaches_past_the_array_is_refused() {
    let here = Workplace::new();
    disk(&here, "table.img", 30 * MIB, "label: dos\nstart=2048, size=4096\nstart=6144, size=50000\n");
    let table = std::fs::read(here.path().join("table.img")).expect("of our own");
    here.run("create --level 1 --size 12M a.img b.img").ok();
    here.run_with("write a.img b.img", &table[..1 << 20]).ok();
    assert_eq!(here.run("read a.img b.img --inner 1").ok().stdout.len() as u64, 2 * MIB);
    for command in ["read", "serve"] {
        let run = here.run(&format!("{command} a.img b.img --inner 2"));
        assert!(run.expect(2, &["25600000 bytes", "reach past the array's"]).stdout.is_empty());
    }
}

#[test]
fn lengths_that_no_image_holds_are_refused() {
    let here = Workplace::new();
    here.run("create --level 1 --size 12M a.img b.img").ok();
    let hidden = |name: &str, extent: u64| {
        format!(
            "{name} {{ status = [\"READ\", \"WRITE\"]\nsegment_count = 1\nsegment1 {{ start_extent = 0\n\
             extent_count = 1\ntype = \"striped\"\nstripes = [\"pv0\", {extent}] }} }}\n"
        )
    };
    let parts = ["m0", "i0", "m1", "i1"].iter().zip(0..).map(|(name, extent)| hidden(name, extent));
    let raid = format!(
        "raid {{ status = [\"READ\", \"VISIBLE\"]\nsegment_count = 1\nsegment1 {{ start_extent = 0\n\
         extent_count = {}\ntype = \"raid5_ls\"\nraids = [\"m0\", \"i0\", \"m1\", \"i1\"] }} }}\n{}",
        u64::MAX / MIB,
        parts.collect::<String>()
    );
    let text = group_text(&[('a', 8)]).replace("logical_volumes {", &format!("logical_volumes {{ {raid}"));
    let superblock = |slot: u32| {
        let mut block = vec![0; 2 * MIB as usize];
        for (at, number) in [(0, 0x6452_6d44), (8, 2), (12, slot), (16, 5), (48, 5), (52, 2), (56, u32::MAX)] {
            block[at..at + 4].copy_from_slice(&u32::to_le_bytes(number));
        }
        block[32..48].fill(0xff);
        block
    };
    let data = [superblock(0), superblock(1)].concat();
    here.run_with("write a.img b.img", &physical_volume_of('a', 10 * MIB, &text, &data)).ok();
    here.run("read a.img b.img --inner vg1/raid").expect(2, &["more than any image holds"]);
    here.run("detect a.img b.img").expect(0, &[]);
}

/// A RAID-0 over the arrays' contents, as files of their size; the outer arrays get them.
fn nested(here: &Workplace, partitioned: bool) -> Vec<u8> {
    here.run("create --level 1 --size 24M --name outer1 a.img b.img").ok();
    here.run("create --level 1 --size 24M --name outer2 c.img d.img").ok();
    let examined = parsed(&here.run("examine --json a.img").text());
    let bytes = examined["members"][0]["data_bytes"].as_u64().expect("a number");
    let members = if partitioned { "in1.img:1 in2.img:1" } else { "in1.img in2.img" };
    for name in ["in1.img", "in2.img"] {
        match partitioned {
            true => disk(here, name, bytes, "label: gpt\nstart=1MiB, size=20MiB, type=R\n"),
            false => std::fs::File::create(here.path().join(name)).expect("of our own").set_len(bytes).expect("sparse"),
        }
    }
    here.run(&format!("create --level 0 --chunk 64K --name host:inner {members}")).ok();
    let files = ext4(here, 16 * MIB);
    here.run_with(&format!("write {members}"), &files).ok();
    for (image, outer) in [("in1.img", "a.img b.img"), ("in2.img", "c.img d.img")] {
        here.run(&format!("write {outer} --input {image}")).ok();
        std::fs::remove_file(here.path().join(image)).expect("of our own");
    }
    files
}

#[test]
fn an_array_inside_of_arrays_is_found_read_and_served() {
    for partitioned in [false, true] {
        let here = Workplace::new();
        let files = nested(&here, partitioned);
        let report = parsed(&here.run("detect --json a.img b.img c.img d.img").ok().text());
        let arrays = report["arrays"].as_array().expect("a list");
        let inner = arrays.iter().find(|array| array["name"] == "host:inner").expect("it is found");
        assert_eq!((&inner["level"], inner["inside_of"].as_array().map(Vec::len)), (&"raid0".into(), Some(2)));
        assert_eq!(inner["content"]["label"], "photos", "{inner}");
        let uuid = inner["uuid"].as_str().expect("text");
        let command = inner["next"][0]["command"].as_str().expect("text");
        assert_eq!(
            command,
            format!("mdspace read a.img b.img c.img d.img --inner {uuid} --output md-inner.img"),
            "{inner}"
        );
        here.run(command.strip_prefix("mdspace ").expect("our own")).ok();
        assert!(here.contents(&["md-inner.img"])[0][..files.len()] == files);
        for name in ["inner", "host:inner", uuid] {
            let run = here.run(&format!("read b.img c.img --inner {name} --offset 64K --length 1M"));
            assert!(run.ok().stdout == files[64 << 10..][..MIB as usize], "{name}");
        }
        here.run("read a.img b.img --inner inner").expect(2, &["slot 1 is missing"]);
        here.run("serve a.img c.img --inner inner").expect(2, &["--read-only"]);
        let server = Server::of(&here, "serve a.img c.img --inner inner --read-only --nbd unix:nbd.socket");
        let bytes = inner["bytes"].as_u64().expect("a number");
        let mut client = client(&here);
        assert_eq!(client.bytes, bytes);
        assert!(client.read(0, 16 << 20) == files);
        here.run("stop").ok();
        assert_eq!(server.wait(), Some(0));
    }
}

#[test]
fn the_library_opens_what_is_inside_by_the_rules_of_the_command() {
    let here = Workplace::new();
    let files = two_arrays(&here);
    let paths = |names: &[&str]| names.iter().map(|name| here.path().join(name)).collect::<Vec<_>>();
    let disks = ["a.img", "b.img", "c.img", "d.img"];
    let before = here.contents(&disks);
    let options = mdspace::Options::new().inner("vg1/files");
    let volume = options.open(paths(&["b.img", "c.img"])).expect("one member of each may be missing");
    assert_eq!((volume.bytes(), volume.is_read_only()), (20 * MIB, true));
    let mut read = vec![0; files.len()];
    volume.read_exact_at(&mut read, 0).expect("all is there");
    assert!(read == files, "over both arrays");
    assert_eq!(
        volume.read_exact_at(&mut [0; 2], 20 * MIB - 1).expect_err("past").kind(),
        mdspace::ErrorKind::OutOfRange
    );
    assert_eq!(volume.write_all_at(&[1], 0).expect_err("reading").kind(), mdspace::ErrorKind::ReadOnly);
    here.run("write a.img b.img").expect(2, &["in use by"]);
    volume.close().expect("nothing was written");
    for (options, names, words) in [
        (options.clone().write(true), &disks[..], "it lies on several arrays"),
        (options.clone(), &disks[..2], "other physical volumes too"),
        (mdspace::Options::new().inner("vg1/photos"), &disks[..], "the logical volumes vg1/files"),
    ] {
        let error = options.open(paths(names)).expect_err(words);
        assert_eq!(error.kind(), mdspace::ErrorKind::Refused);
        assert!(
            error.reason().contains(words) && error.field().is_some_and(|f| f.starts_with("--inner vg1/")),
            "{error}"
        );
    }
    assert!(here.contents(&disks) == before, "a refusal or a read changed a member");
}

#[test]
fn the_library_writes_to_a_volume_on_whole_disks_and_to_nothing_beside_it() {
    let here = Workplace::new();
    nas(&here, "gpt");
    let mut expected = physical_volume(DATA_BYTES, 20, &ext4(&here, 20 * MIB));
    here.run_with("write disk?.img --name 2", &expected).ok();
    let members = || DISKS.map(|name| here.path().join(name));
    let options = mdspace::Options::new().inner("vg1/files");
    let volume = options.clone().write(true).open(members()).expect("a linear volume takes writes");
    let at = 5 * MIB + 100;
    volume.write_all_at(&[7; 100_000], at).expect("written");
    volume.flush().expect("flushed");
    assert_eq!(volume.status().expect("it runs").name, "nas:2");
    // The other arrays on these disks are not in use meanwhile.
    here.run_with("write disk?.img --name 1", b"swap").ok();
    assert_eq!(volume.close().expect("it stops").state, "clean");
    // The volume begins behind the group's metadata, in the first extent.
    expected[(MIB + at) as usize..][..100_000].fill(7);
    let whole = here.run(&format!("read disk?.img --name 2 --length {}", expected.len())).ok().stdout.clone();
    assert!(whole == expected);
    here.run("scrub disk?.img:3").ok();
}
