//! Images of failing disks with their maps: what redundancy can give is right, everything else is an error and in the
//! map of the result. Also `read --map-out`: what it refuses, and how it continues.

use crate::support::disks::{DATA_BYTES, DISKS, MIB, nas};
use crate::support::{Server, Workplace, parsed};
use mdspace::Options;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Stdio;

const SECTOR: u64 = 512;

/// Random maps of all shapes together.
const MAPS: u64 = 200;

/// A generator of pseudorandom numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length.div_ceil(4)).flat_map(|_| (self.below(1 << 31) as u32).to_le_bytes()).take(length).collect()
    }
}

/// An array whose content names each of its sectors.
struct Known {
    members: Vec<&'static str>,
    /// Members that a row survives without, at levels with parity; 0 where copies are kept.
    parities: usize,
    content: Vec<u8>,
    images: Vec<Vec<u8>>,
    data_at: u64,
    data_bytes: u64,
    /// Where each sector of the array is: slot and sector of the data.
    places: Vec<Vec<(usize, u64)>>,
}

impl Known {
    fn new(here: &Workplace, shape: &str, members: &[&'static str], parities: usize) -> Self {
        let all = members.join(" ");
        here.run(&format!("create {shape} --data-offset 128K --size 512K {all}")).ok();
        let bytes = here.run(&format!("read {all}")).ok().stdout.len();
        let content = Random(7).bytes(bytes);
        here.run_with(&format!("write {all}"), &content).ok();
        let report = parsed(&here.run(&format!("examine --json {all}")).text());
        let number = |field: &str| report["members"][0][field].as_u64().expect("a number");
        let (data_at, data_bytes) = (number("data_at"), number("data_bytes"));
        let images = here.contents(members);
        // The content says where a sector is, with no formula of any geometry.
        let mut found: HashMap<&[u8], Vec<(usize, u64)>> = HashMap::new();
        for (slot, image) in images.iter().enumerate() {
            let data = &image[data_at as usize..(data_at + data_bytes) as usize];
            for (sector, bytes) in data.chunks_exact(SECTOR as usize).enumerate() {
                found.entry(bytes).or_default().push((slot, sector as u64));
            }
        }
        let places = content.chunks_exact(SECTOR as usize).map(|sector| found[sector].clone()).collect();
        Self { members: members.to_vec(), parities, content, images, data_at, data_bytes, places }
    }

    /// Random holes in the data of each member, ascending. Members often lack the same place.
    fn holes(&self, random: &mut Random) -> Vec<Vec<Range<u64>>> {
        let mut holes = vec![Vec::new(); self.members.len()];
        let most = 1 + random.below(6);
        for _ in 0..1 + random.below(most) {
            let unit = [1, SECTOR, SECTOR, SECTOR, 4096][random.below(5) as usize];
            let longest = [3, 20, 100][random.below(3) as usize];
            let length = (1 + random.below(longest)) * unit.max(SECTOR);
            let start = random.below(self.data_bytes / unit) * unit;
            for holes in &mut holes {
                if random.below(5) < 2 {
                    let shift = random.below(3) * SECTOR;
                    let start = (start + shift).min(self.data_bytes - 1);
                    holes.push(start..(start + length).min(self.data_bytes));
                }
            }
        }
        for holes in &mut holes {
            holes.sort_by_key(|hole| hole.start);
            holes.dedup_by(|next, last| {
                let touches = next.start <= last.end;
                last.end = if touches { last.end.max(next.end) } else { last.end };
                touches
            });
        }
        holes
    }

    /// Writes images with foreign bytes in their holes, and their maps.
    fn damage(&self, here: &Workplace, holes: &[Vec<Range<u64>>], random: &mut Random) {
        for ((name, image), holes) in self.members.iter().zip(&self.images).zip(holes) {
            let (mut image, mut map, mut at) = (image.clone(), "# made by a test\n0 ? 1\n".to_owned(), 0);
            for hole in holes {
                let (start, end) = (hole.start + self.data_at, hole.end + self.data_at);
                image[start as usize..end as usize].fill(0x5a);
                let status = ["?", "*", "/", "-"][random.below(4) as usize];
                map += &format!("{at:#x} {:#x} +\n{start} {} {status}\n", start - at, end - start);
                at = end;
            }
            map += &format!("{at:#x} {:#x} +\n", image.len() as u64 - at);
            std::fs::write(here.path().join(name), image).expect("of our own");
            std::fs::write(here.path().join(format!("{name}.map")), map).expect("of our own");
        }
    }

    /// The number of sectors of the array of which a hole has one copy at least.
    fn touched(&self, holes: &[Vec<Range<u64>>]) -> usize {
        let is_touched =
            |places: &&Vec<(usize, u64)>| places.iter().any(|&(slot, sector)| is_lost(holes, slot, sector));
        self.places.iter().filter(is_touched).count()
    }

    /// Whether each sector of the array can be had, by counting what its row or its copies lack.
    fn can_be_had(&self, holes: &[Vec<Range<u64>>]) -> Vec<bool> {
        let is_lost = |slot: usize, sector: u64| is_lost(holes, slot, sector);
        let can_be_had = |places: &Vec<(usize, u64)>| {
            let row = places[0].1;
            let lost = (0..self.members.len()).filter(|&slot| is_lost(slot, row)).count();
            let is_there = places.iter().any(|&(slot, sector)| !is_lost(slot, sector));
            is_there || (self.parities > 0 && lost <= self.parities)
        };
        self.places.iter().map(can_be_had).collect()
    }
}

/// Whether a sector of a member's data lies in one of its holes.
fn is_lost(holes: &[Vec<Range<u64>>], slot: usize, sector: u64) -> bool {
    let range = sector * SECTOR..(sector + 1) * SECTOR;
    holes[slot].iter().any(|hole| hole.start < range.end && range.start < hole.end)
}

/// Whether each sector of a result is finished by its map.
fn finished(map: &str, sectors: usize) -> Vec<bool> {
    let mut finished = vec![false; sectors];
    for line in map.lines().filter(|line| !line.starts_with('#')).skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).expect("a number");
        let (at, bytes) = (number(words[0]), number(words[1]));
        assert!(at.is_multiple_of(SECTOR) && bytes.is_multiple_of(SECTOR), "{line}");
        assert!(words[2] == "+" || words[2] == "-", "the copy was complete: {line}");
        finished[(at / SECTOR) as usize..((at + bytes) / SECTOR) as usize].fill(words[2] == "+");
    }
    finished
}

/// Tries random maps on arrays of one shape. The table in docs/rescue.md has a row of what came of it.
fn try_maps(shape: &str, members: &[&'static str], parities: usize, seeds: Range<u64>) {
    let here = Workplace::new();
    let known = Known::new(&here, shape, members, parities);
    let (mut lossless, mut lossy, mut touched, mut lost_of_all) = (0, 0, 0, 0);
    for seed in seeds {
        let mut random = Random(seed);
        let holes = known.holes(&mut random);
        known.damage(&here, &holes, &mut random);
        let expected = known.can_be_had(&holes);
        let lost = expected.iter().filter(|had| !**had).count();
        *if lost == 0 { &mut lossless } else { &mut lossy } += 1;
        (touched, lost_of_all) = (touched + known.touched(&holes), lost_of_all + lost);
        let names = members.join(" ");
        let run = here.run(&format!("read {names} --maps --salvage --output out --map-out out.map --json"));
        run.expect(i32::from(lost > 0), &[]);
        let map = std::fs::read_to_string(here.path().join("out.map")).expect("a map");
        let told = finished(&map, expected.len());
        let out = std::fs::read(here.path().join("out")).expect("a copy");
        assert_eq!(out.len(), known.content.len());
        for (sector, had) in expected.iter().enumerate() {
            let place = sector * SECTOR as usize..(sector + 1) * SECTOR as usize;
            assert_eq!(told[sector], *had, "{shape}, seed {seed}: sector {sector} in the map; holes {holes:x?}");
            let right = if *had { &known.content[place.clone()] } else { &[0; SECTOR as usize][..] };
            assert!(out[place] == *right, "{shape}, seed {seed}: sector {sector}; holes {holes:x?}");
        }
        let json = parsed(&run.text());
        let bytes: u64 =
            json["lost"].as_array().expect("a list").iter().map(|lost| lost["bytes"].as_u64().unwrap()).sum();
        assert_eq!(bytes, lost as u64 * SECTOR, "{json}");
        // The library, through which clients read: what is lost is an error, and nothing else is.
        if seed % 8 == 0 {
            let paths = members.iter().map(|name| here.path().join(name));
            let options = paths.clone().fold(Options::new(), |options, path| {
                let map = path.with_extension("map");
                options.map(path, map)
            });
            let array = options.open(paths).expect("it opens");
            for (sector, had) in expected.iter().enumerate() {
                let mut bytes = [0; SECTOR as usize];
                let read = array.read_exact_at(&mut bytes, sector as u64 * SECTOR);
                assert_eq!(read.is_ok(), *had, "{shape}, seed {seed}: sector {sector}: {read:?}");
                let place = sector * SECTOR as usize..(sector + 1) * SECTOR as usize;
                assert!(!had || bytes == known.content[place]);
            }
        }
        for name in ["out", "out.map"] {
            std::fs::remove_file(here.path().join(name)).expect("of our own");
        }
    }
    assert!(lossless > 5 && lossy > 5, "{shape}: {lossless} maps without a loss, {lossy} with one");
    let (slots, maps, given) = (members.len(), lossless + lossy, touched - lost_of_all);
    let row = format!("| `{shape}`, {slots} members | {maps} | {lossy} | {touched} | {given} | {lost_of_all} |");
    let page = include_str!("../../../../docs/rescue.md");
    assert!(page.lines().any(|line| line == row), "docs/rescue.md has another row than this one, of this run:\n{row}");
}

#[test]
fn what_raid5_can_give_beside_holes_is_right_and_the_rest_is_an_error_and_in_the_map() {
    try_maps("--level 5 --chunk 16K", &["a", "b", "c", "d"], 1, 0..MAPS / 4);
}

#[test]
fn what_raid6_can_give_beside_holes_is_right_and_the_rest_is_an_error_and_in_the_map() {
    try_maps("--level 6 --chunk 16K", &["a", "b", "c", "d", "e"], 2, MAPS / 4..MAPS / 2);
}

#[test]
fn what_raid10_can_give_beside_holes_is_right_and_the_rest_is_an_error_and_in_the_map() {
    try_maps("--level 10 --layout n2 --chunk 16K", &["a", "b", "c", "d"], 0, MAPS / 2..MAPS * 3 / 4);
    try_maps("--level 10 --layout f2 --chunk 16K", &["a", "b", "c"], 0, MAPS * 3 / 4..MAPS);
}

/// Overwrites a part of an image, as a program does that could not read it.
fn lose(here: &Workplace, image: &str, range: Range<u64>) {
    let file = File::options().write(true).open(here.path().join(image)).expect("an image");
    file.write_all_at(&vec![0; (range.end - range.start) as usize], range.start).expect("there is room");
}

/// Writes a map of `bytes` bytes that lack `hole`.
fn write_map(here: &Workplace, name: &str, bytes: u64, hole: &Range<u64>) {
    let Range { start, end } = hole;
    let text = format!("0 - 1\n0 {start} +\n{start} {} -\n{end} {} +\n", end - start, bytes - end);
    std::fs::write(here.path().join(name), text).expect("of our own");
}

#[test]
fn the_map_of_a_whole_disk_counts_for_the_members_in_its_partitions() {
    let here = Workplace::new();
    let data = nas(&here, "gpt");
    // In the data of each disk's third partition, at places that no row has in common.
    let holes = [19 * MIB..19 * MIB + 70_000, 20 * MIB..20 * MIB + 512, 22 * MIB..23 * MIB];
    for (disk, hole) in DISKS.iter().zip(&holes) {
        lose(&here, disk, hole.clone());
        write_map(&here, &disk.replace(".img", ".map"), 40 * MIB, hole);
    }
    let before = here.contents(&DISKS);
    let length = data.len();
    let without = here.run(&format!("read disk?.img --name 2 --length {length}"));
    assert!(without.ok().stdout != data, "zeros are data to a reader without maps");
    let maps = "--map disk1.img=disk1.map --map disk2.img=disk2.map --map disk3.img=disk3.map";
    for members in ["disk?.img --name 2", "disk1.img:3 disk2.img:3 disk3.img@17M+20M", "disk?.img:3"] {
        for maps in [maps, "--maps"] {
            let run = here.run(&format!("read {members} {maps} --length {length}"));
            run.expect(0, &["note: disk2.img", "512 bytes in 1 place were not read from the disk"]);
            assert!(run.stdout == data, "{members} {maps}");
        }
    }
    let detected = parsed(&here.run("detect --json --maps disk1.img disk2.img disk3.img").ok().text());
    assert_eq!(detected["arrays"].as_array().expect("a list").len(), 3);
    here.run("examine --maps disk1.img:3 disk2.img:3").ok();
    // A map of a longer disk is not that of this image, even if the part is within both.
    write_map(&here, "disk2.map", 41 * MIB, &holes[1]);
    let refused = ["disk2.img", "and the image ends at 41943040: a map of another image"];
    for members in ["disk?.img:3", "disk1.img:3 disk2.img@17M+20M disk3.img:3"] {
        here.run(&format!("read {members} {maps} --length {length}")).expect(2, &refused);
    }
    assert!(here.contents(&DISKS) == before, "something was written");
    assert_eq!(
        parsed(&here.run("examine --json disk?.img:3").ok().text())["arrays"][0]["status"]["array_bytes"],
        DATA_BYTES
    );
}

#[test]
fn an_image_that_ends_before_its_disk_is_a_member_with_a_hole_at_its_end() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M a b c").ok();
    let content = Random(1).bytes(13 << 20);
    here.run_with("write a b c", &content).ok();
    let whole = here.run("read a b c").ok().stdout.clone();
    // ddrescue writes nothing behind the last sector that it could read.
    File::options().write(true).open(here.path().join("b")).expect("a member").set_len(5 * MIB).expect("shorter");
    here.run("read a b c").expect(2, &["b: superblock.data_size"]);
    write_map(&here, "b.map", 8 * MIB, &(5 * MIB..8 * MIB));
    // The map ends with an empty region, and the array is whole.
    assert!(here.run("read a b c --map b=b.map").ok().stdout == whole);
    write_map(&here, "b.map", 8 * MIB, &(4 * MIB..5 * MIB));
    here.run("read a b c --map b=b.map").expect(2, &["b: cannot use its map", "the image ends at 5242880"]);
}

#[test]
fn maps_that_do_not_fit_are_refused_and_change_nothing() {
    let here = Workplace::new();
    here.run("create --level 5 --size 8M a b c").ok();
    here.run_with("write a b c", b"hello").ok();
    write_map(&here, "good.map", 8 * MIB, &(0..0));
    write_map(&here, "long.map", 9 * MIB, &(0..0));
    write_map(&here, "super.map", 8 * MIB, &(4096..8192));
    std::fs::write(here.path().join("text.map"), "0 ? 1\n0 8 +\n4 8 -\n").expect("of our own");
    std::fs::write(here.path().join("d"), "no member").expect("of our own");
    let before = here.contents(&["a", "b", "c", "good.map"]);
    std::fs::write(here.path().join("cut.map"), "0x1000 0x200 -\n0x1200 0x200 +\n").expect("of our own");
    for (line, words) in [
        ("read a b c --map a", &["--map a: not two existing files"][..]),
        ("read a b c --map a=none.map", &["--map a=none.map: not two existing files"]),
        ("read a b c --map d=good.map", &["d: map: it has a map, and is none of the members"]),
        ("examine a b c --map d=good.map", &["none of the members"]),
        ("detect a b c --map d=good.map", &["none of the members"]),
        ("read a b c --map a=good.map --map a=long.map", &["two maps are given for it", "next: give the one"]),
        ("read a b c --map a=cut.map", &["cut.map: line 1", "the file's start is gone"]),
        ("read a b c --map a=text.map", &["text.map: line 3", "begins before", "ddrescue's mapfile"]),
        ("read a b c --map a=b", &["b: line 1"]),
        (
            "read a b c --map a=long.map",
            &["a: cannot use its map: byte 9437184 is read by it", "another image", "next: name"],
        ),
        ("read a b c --map a=super.map", &["a: ", "not in the image, by its map", "next: its map has a hole"]),
        ("examine a b c --map a=super.map", &["a: ", "next: its map has a hole", "leave this image and its map out"]),
        ("detect a b c --search --map d=good.map", &["none of the members"]),
        ("detect a b c --search --map a=long.map", &["a: cannot use its map: byte 9437184 is read by it"]),
        ("write a b c --map a=good.map", &["maps of images are only for reading", "--overlay DIR"]),
        ("serve a b c --map a=good.map", &["maps of images are only for reading"]),
        ("scrub a b c --repair --map a=good.map", &["maps of images are only for reading"]),
        ("scrub --map a=good.map", &["--map", "none is given"]),
        ("read a b c --salvage --output out --map-out out", &["cannot be one file"]),
        ("read a b c --salvage --output out --map-out a", &["a: a member of this array"]),
        ("read a b c --salvage --output b --map-out out.map", &["b: a member of this array"]),
        ("read a b c --salvage --output out --map-out good.map", &["good.map: exists already, as the map of another"]),
        ("read a b c --salvage --output out --map-out text.map", &["text.map: exists already, and is no map"]),
        ("read a b c --salvage --output /dev/null --map-out out.map", &["neither a file nor a block device"]),
    ] {
        let run = here.run(line);
        run.expect(2, words);
        assert!(run.stdout.is_empty() || line.starts_with("examine") || line.starts_with("detect"), "{line}");
        for name in ["out", "out.map"] {
            assert!(!here.path().join(name).exists(), "{line}: made {name}");
        }
    }
    for line in ["read a b c --map-out out.map", "read a b c --map-out out.map --output out"] {
        assert_eq!(here.run(line).status, 2, "{line}");
    }
    assert!(here.contents(&["a", "b", "c", "good.map"]) == before, "something was written");
    let detected = here.run("detect a b c --map a=super.map");
    assert!(detected.ok().stderr.contains("note: a: its map has a hole"), "{}", detected.stderr);
    assert!(!detected.text().contains("super.map"), "the map of an image that is not used: {}", detected.text());
    // Without the member whose superblock is in a hole the rest serves.
    assert_eq!(here.run("read b c --length 5").ok().stdout, b"hello");
}

#[test]
fn the_commands_that_detect_prints_have_the_maps_of_the_members() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M a b c").ok();
    here.run_with("write a b c", &Random(17).bytes(14 << 20)).ok();
    let whole = here.run("read a b c").ok().stdout.clone();
    here.run("create --level 1 --size 8M d e").ok();
    let hole = 3 * MIB..3 * MIB + 8192;
    lose(&here, "b", hole.clone());
    write_map(&here, "b.map", 8 * MIB, &hole);
    write_map(&here, "the other's.map", 8 * MIB, &(0..0));
    let command = |maps: &[&str], expected: &str| {
        let words = [&["detect", "--json", "a", "b", "c", "d", "e"], maps].concat();
        let output = here.command(&words).output().expect("it runs");
        let report = parsed(&String::from_utf8(output.stdout).expect("text"));
        let is_of = |array: &&serde_json::Value| array["level"] == "raid5";
        let array = report["arrays"].as_array().expect("a list").iter().find(is_of).expect("an array");
        let command = array["next"][0]["command"].as_str().expect("a command").to_owned();
        assert!(command.contains(expected), "{command}");
        command
    };
    for (maps, expected) in [
        (&["--maps"][..], "read a b c --maps --output"),
        (&["--map", "b=b.map", "--map", "d=the other's.map"], "read a b c --map b=b.map --output"),
    ] {
        let command = command(maps, expected);
        let words = shlex::split(&command).expect("words of a shell");
        here.run(&words[1..].join(" ")).ok();
        let output = words.last().expect("a file");
        assert!(std::fs::read(here.path().join(output)).expect("a copy") == whole, "{command}");
        std::fs::remove_file(here.path().join(output)).expect("of our own");
    }
    command(&["--map", "b=the other's.map"], r"read a b c --map 'b=the other'\''s.map' --output");
}

#[test]
fn two_maps_beside_an_image_are_refused() {
    let here = Workplace::new();
    here.run("create --level 5 --size 8M a.img b.img c.img").ok();
    write_map(&here, "a.map", 8 * MIB, &(0..0));
    let line = "read a.img b.img c.img --maps --output out";
    here.run(line).ok();
    write_map(&here, "a.img.map", 8 * MIB, &(3 * MIB..4 * MIB));
    std::fs::remove_file(here.path().join("out")).expect("of our own");
    here.run(line).expect(2, &["a.img: cannot use its map: a.img.map and a.map are both beside it", "--map"]);
    assert!(!here.path().join("out").exists());
    here.run(&format!("{line} --map a.img=a.map")).ok();
}

#[test]
fn detect_names_a_reshape_under_way() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M a b c d").ok();
    for name in ["a", "b", "c", "d"] {
        edit_superblock(&here, name, |superblock| {
            superblock[8] |= 4; // MD_FEATURE_RESHAPE_ACTIVE
            superblock[100..104].copy_from_slice(&5_u32.to_le_bytes());
            superblock[104..112].copy_from_slice(&7680_u64.to_le_bytes());
            superblock[112..116].copy_from_slice(&1_u32.to_le_bytes());
            superblock[116..120].copy_from_slice(&2_u32.to_le_bytes());
            superblock[120..124].copy_from_slice(&128_u32.to_le_bytes());
        });
    }
    let run = here.run("detect a b c d --json");
    let report = parsed(&run.ok().text());
    let warnings = report["arrays"][0]["warnings"].to_string();
    assert!(warnings.contains("reshape"), "{report}");
    assert!(here.run("detect a b c d").ok().text().contains("  warning: "));
}

#[test]
fn a_check_finds_holes_with_a_map_as_unreadable_and_without_one_as_wrong() {
    let here = Workplace::new();
    here.run("create --level 6 --chunk 64K --size 8M a b c d").ok();
    here.run_with("write a b c d", &Random(3).bytes(14 << 20)).ok();
    let hole = 3 * MIB..3 * MIB + 8192;
    lose(&here, "b", hole.clone());
    write_map(&here, "b.map", 8 * MIB, &hole);
    // Long runs of zeros that parity contradicts: the member and the range, at the opening and by a check.
    here.run("read a b c d --length 1").expect(0, &["b: bytes 3145728 to 3153919 are zeros"]);
    for maps in ["", "--maps"] {
        let run = here.run(&format!("scrub a b c d {maps} --json"));
        let report = parsed(&run.expect(1, &[]).text());
        assert_eq!(
            report["counts"]["members"],
            serde_json::json!([{ "name": "b", "slot": 1, "blocks": 2 }]),
            "{report}"
        );
        let part = &report["findings"][0]["members"][0];
        assert_eq!((part["name"].as_str(), part["member_at"].as_u64()), (Some("b"), Some(hole.start)), "{report}");
    }
    let read = here.run("read a b c d --maps --length 1");
    assert!(read.ok().stderr.contains("8192 bytes") && !read.stderr.contains("zeros"), "{}", read.stderr);
}

#[test]
fn a_check_without_a_map_names_the_members_with_zeros_where_nothing_says_which_is_wrong() {
    for (level, expected) in [("5 --chunk 64K", vec!["b"]), ("1", vec!["b"])] {
        let here = Workplace::new();
        let members = if level == "1" { "a b" } else { "a b c" };
        here.run(&format!("create --level {level} --size 8M {members}")).ok();
        here.run_with(&format!("write {members}"), &Random(3).bytes(6 << 20)).ok();
        lose(&here, "b", 3 * MIB..3 * MIB + 8192);
        let run = here.run(&format!("scrub {members} --json"));
        let report = parsed(&run.expect(1, &[]).text());
        assert_eq!(report["counts"]["undecidable"], 2, "{report}");
        let parts = report["findings"][0]["members"].as_array().expect("a list");
        let zeros: Vec<_> = parts.iter().filter(|part| part["zeros"] == 8192).map(|part| &part["name"]).collect();
        assert_eq!(zeros, expected, "{report}");
        let text = here.run(&format!("scrub {members}")).expect(1, &[]).text();
        assert!(text.contains("(8 KiB of zeros on b at byte 3145728): undecidable"), "{text}");
        assert!(text.contains("give its map (--map)"), "{text}");
    }
}

#[test]
fn a_copy_with_a_map_continues_with_what_it_lacks_when_another_member_is_there() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M a b c").ok();
    let content = Random(5).bytes(14 << 20);
    here.run_with("write a b c", &content).ok();
    let whole = here.run("read a b c").ok().stdout.clone();
    let images = here.contents(&["a"]);
    for (image, hole) in [("a", 3 * MIB..4 * MIB), ("b", 3 * MIB + 512..3 * MIB + 4096)] {
        lose(&here, image, hole.clone());
        write_map(&here, &format!("{image}.map"), 8 * MIB, &hole);
    }
    let line = "read a b c --maps --salvage --output out --map-out out.map";
    here.run(line).expect(1, &["lost: ", "of the array are zeros", "could not be read"]);
    let path = here.path().join("out");
    let lost = std::fs::read(&path).expect("a copy");
    assert!(lost != whole && lost.len() == whole.len());
    let before = here.contents(&["out.map"]);
    here.run(line).expect(1, &["could not be read"]);
    assert!(here.contents(&["out.map"]) == before, "another try finds the same");
    for (other, words) in [
        ("read a b c --maps --salvage --output other --map-out out.map", &["the map of another copy: `output:"][..]),
        (
            "read a b c --maps --salvage --output out --map-out out.map --length 1M",
            &["the map of another copy: `range:"],
        ),
    ] {
        here.run(other).expect(2, words);
        assert!(!here.path().join("other").exists());
    }
    // A better image of the first disk.
    std::fs::write(here.path().join("a"), &images[0]).expect("of our own");
    std::fs::remove_file(here.path().join("a.map")).expect("of our own");
    let finished = path.metadata().expect("a copy").ino();
    here.run(line).ok();
    assert!(std::fs::read(&path).expect("a copy") == whole, "the copy is complete");
    assert_eq!(path.metadata().expect("a copy").ino(), finished, "it was continued");
    let map = std::fs::read_to_string(here.path().join("out.map")).expect("a map");
    assert!(map.lines().filter(|line| line.ends_with(" -")).count() == 0 && map.contains("  +"), "{map}");
    std::fs::remove_file(&path).expect("of our own");
    here.run(line).expect(2, &["does not exist", "remove the map"]);
}

#[test]
fn an_interrupted_copy_says_in_its_map_what_was_done_and_takes_no_room_for_zeros() {
    let here = Workplace::new();
    here.run("create --level 5 --size 1G a b c").ok();
    here.run_with("write a b c --offset 1500M", b"far behind").ok();
    let words = ["read", "a", "b", "c", "--salvage", "--output", "out", "--map-out", "out.map"];
    let mut command = here.command(&words);
    let child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    while !here.path().join("out.map").exists() {
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("the same command continues"), "{said}");
    let map = std::fs::read_to_string(here.path().join("out.map")).expect("a map");
    assert!(map.lines().any(|line| line.ends_with("?")), "{map}");
    here.run(&words.join(" ")).ok();
    let copy = here.path().join("out").metadata().expect("a copy");
    let bytes = here.run("read a b c --length 0 --output none --json").ok().text();
    assert_eq!(copy.len(), parsed(&bytes)["status"]["array_bytes"], "as long as the array");
    assert!(copy.blocks() * 512 < 1 << 20, "{} blocks", copy.blocks());
    here.run("read a b c --output plain").ok();
    let same = std::process::Command::new("cmp").args(["out", "plain"]).current_dir(here.path()).status();
    assert!(same.expect("cmp runs").success());
    assert!(here.path().join("plain").metadata().expect("a copy").blocks() * 512 < 1 << 20);
}

/// An array that lacks members: its shape, members and parities, and some choices of slots that are too few.
type Short<'a> = (&'a str, &'a [&'static str], usize, &'a [&'a [usize]]);

/// Whether each sector of an array is on one of the members that are here.
fn is_here(known: &Known, here: &[usize]) -> Vec<bool> {
    let lost: Vec<Vec<Range<u64>>> = (0..known.members.len())
        .map(|slot| if here.contains(&slot) { Vec::new() } else { std::iter::once(0..u64::MAX).collect() })
        .collect();
    known.can_be_had(&lost)
}

#[test]
fn fewer_members_than_needed_give_what_they_hold_and_everything_else_is_an_error() {
    let shapes: [Short; 6] = [
        ("--level 0 --chunk 16K", &["a", "b", "c"], 0, &[&[0, 2], &[1]]),
        ("--level linear", &["a", "b", "c"], 0, &[&[0, 2], &[1]]),
        ("--level 4 --chunk 16K", &["a", "b", "c"], 1, &[&[0], &[2]]),
        ("--level 5 --chunk 16K", &["a", "b", "c", "d"], 1, &[&[0, 2], &[3]]),
        ("--level 6 --chunk 16K", &["a", "b", "c", "d", "e"], 2, &[&[0, 4], &[1]]),
        ("--level 10 --layout n2 --chunk 16K", &["a", "b", "c", "d"], 0, &[&[0, 1], &[2]]),
    ];
    for (shape, members, parities, present) in shapes {
        let here = Workplace::new();
        let known = Known::new(&here, shape, members, parities);
        let before = here.contents(members);
        for slots in present {
            let names: Vec<&str> = slots.iter().map(|&slot| members[slot]).collect();
            let names = names.join(" ");
            here.run(&format!("read {names}")).expect(2, &["missing", "--partial"]);
            let mut expected = is_here(&known, slots);
            if shape == "--level linear" {
                // Where the later members' data lies depends on the missing one's length, which nothing tells.
                let first = (0..members.len()).find(|slot| !slots.contains(slot)).expect("one is missing");
                let displaced = expected.len() / members.len() * first;
                expected[displaced..].fill(false);
            }
            let run = here.run(&format!("read {names} --partial --salvage --output out --map-out out.map"));
            run.expect(1, &["warning: what", "cannot be read"]);
            let map = std::fs::read_to_string(here.path().join("out.map")).expect("a map");
            assert_eq!(finished(&map, expected.len()), expected, "{shape} {slots:?}");
            let out = std::fs::read(here.path().join("out")).expect("a copy");
            for (sector, is_here) in expected.iter().enumerate() {
                let place = sector * SECTOR as usize..(sector + 1) * SECTOR as usize;
                let right = if *is_here { &known.content[place.clone()] } else { &[0; SECTOR as usize][..] };
                assert!(out[place] == *right, "{shape} {slots:?}: sector {sector}");
            }
            for name in ["out", "out.map"] {
                std::fs::remove_file(here.path().join(name)).expect("of our own");
            }
        }
        here.run(&format!("write {} --partial", members[0])).expect(2, &["--partial: only for reading"]);
        here.run(&format!("serve {} --partial", members[0])).expect(2, &["--partial: only for reading"]);
        assert!(here.contents(members) == before, "{shape}: something was written");
    }
}

#[test]
fn behind_a_missing_member_of_unknown_length_nothing_is_read_without_force() {
    let here = Workplace::new();
    for (name, mib) in [("a", 12), ("b", 8), ("c", 12), ("d", 12), ("e", 8), ("f", 12)] {
        File::create(here.path().join(name)).and_then(|file| file.set_len(mib * MIB)).expect("a member");
    }
    here.run("create --level linear a b c").ok();
    let content = Random(12).bytes(here.run("read a b c").ok().stdout.len());
    here.run_with("write a b c", &content).ok();
    let run = here.run("read a c --partial --salvage --output out");
    run.expect(1, &["its place depends on how long the missing ones are", "--force"]);
    let out = std::fs::read(here.path().join("out")).expect("a copy");
    assert!(out.iter().zip(&content).all(|(here, right)| here == right || *here == 0), "data at a wrong place");
    let part = 8 * MIB as usize;
    assert!(out[..part] == content[..part], "the first member's data");
    let run = here.run("read a c --partial --salvage --force --output out --overwrite");
    run.expect(1, &["are taken to be as long as the others"]);
    let out = std::fs::read(here.path().join("out")).expect("a copy");
    assert!(out.ends_with(&content[content.len() - part..]), "the last member's data");

    here.run("create --level 0 --chunk 64K d e f").ok();
    here.run("read d f --partial").expect(2, &["not equally long", "superblock.data_size", "give all members"]);
}

#[test]
fn a_dirty_array_without_a_member_gives_what_is_certain() {
    let here = Workplace::new();
    let known = Known::new(&here, "--level 5 --chunk 16K", &["a", "b", "c", "d"], 1);
    // The kernel's mark of an array in use: it was not stopped cleanly. A resync starts from the first sector.
    for name in &known.members {
        make_dirty(&here, name);
    }
    here.run("read a b c").expect(2, &["dirty and degraded"]);
    let run = here.run("read a b c --partial --salvage --output out --map-out out.map");
    run.expect(1, &["was not stopped cleanly", "slot 3"]);
    let map = std::fs::read_to_string(here.path().join("out.map")).expect("a map");
    let expected: Vec<bool> = known.places.iter().map(|places| places.iter().any(|(slot, _)| *slot != 3)).collect();
    assert_eq!(finished(&map, expected.len()), expected);
}

/// Sets the position of a resync in a 1.2 superblock to 0.
fn make_dirty(here: &Workplace, name: &str) {
    edit_superblock(here, name, |superblock| superblock[208..216].fill(0));
}

/// Changes a 1.2 superblock, and sets its checksum right.
fn edit_superblock(here: &Workplace, name: &str, edit: impl Fn(&mut [u8])) {
    let file = File::options().read(true).write(true).open(here.path().join(name)).expect("a member");
    let mut superblock = vec![0; 4096];
    file.read_exact_at(&mut superblock, 4096).expect("a superblock");
    edit(&mut superblock);
    superblock[216..220].fill(0);
    let roles = u32::from_le_bytes(superblock[220..224].try_into().expect("four bytes")) as usize;
    let (words, rest) = superblock[..256 + 2 * roles].as_chunks::<4>();
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum();
    let last = if rest.is_empty() { 0 } else { u64::from(u16::from_le_bytes([rest[0], rest[1]])) };
    let sum = sum + last;
    let sum = (sum as u32).wrapping_add((sum >> 32) as u32);
    superblock[216..220].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&superblock, 4096).expect("a superblock");
}

#[test]
fn a_served_array_with_too_few_members_answers_checks_and_status() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M a b c d").ok();
    here.run_with("write a b c d", &Random(9).bytes(1 << 20)).ok();
    let server = Server::of(&here, "serve a b --read-only --partial --nbd unix:nbd --control control");
    let status = parsed(&here.run("status --control control --json").ok().text());
    assert_eq!(status["missing"], serde_json::json!([2, 3]), "{status}");
    assert!(status["warnings"][0].as_str().expect("a text").contains("slots 2, 3"), "{status}");
    let scrub = here.run("scrub --control control");
    assert!(scrub.status != 101, "{}", scrub.stderr);
    here.run("stop --control control").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn examine_says_how_far_a_stale_member_is_behind_and_where_it_may_differ() {
    let here = Workplace::new();
    let options = "--size 16M --bitmap internal --bitmap-chunk 64K --data-offset 1M";
    here.run(&format!("create --level 1 {options} a b c")).ok();
    let mut random = Random(11);
    here.run_with("write a b c", &random.bytes(14 << 20)).ok();
    // Writes without the third member, in three chunks of the bitmap, two of them neighbours.
    for at in [100, 3 * MIB + 64 * 1024 - 1, 9 * MIB] {
        here.run_with(&format!("write a b --offset {at}"), &random.bytes(3)).ok();
    }
    let report = parsed(&here.run("examine --json a b c").text());
    let behind = &report["arrays"][0]["behind"][0];
    assert_eq!(report["arrays"][0]["behind"].as_array().map(Vec::len), Some(1), "{report}");
    assert!(behind["name"] == "c" && behind["events"].as_u64() > Some(1), "{behind}");
    let ranges: Vec<(u64, u64)> = behind["differs"]["ranges"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|range| (range["at"].as_u64().expect("a number"), range["bytes"].as_u64().expect("a number")))
        .collect();
    assert_eq!(ranges, [(0, 65_536), (3 * MIB, 131_072), (9 * MIB, 65_536)], "{behind}");
    // What lies outside of these ranges is the same, byte for byte; and something in each differs.
    let images = here.contents(&["a", "c"]);
    let data_at = report["members"][0]["data_at"].as_u64().expect("a number");
    let differs = |at: u64| images[0][(data_at + at) as usize] != images[1][(data_at + at) as usize];
    let named = |at: u64| ranges.iter().any(|(start, bytes)| (*start..start + bytes).contains(&at));
    assert!((0..14 * MIB).all(|at| named(at) || !differs(at)), "something else differs");
    assert!(ranges.iter().all(|(start, bytes)| (*start..start + bytes).any(differs)), "nothing differs");
    let text = here.run("examine a b c").text();
    for words in
        ["would not be used: c: stale: its events are", "behind: c: by ", "at most 256 KiB differ, in 3 ranges"]
    {
        assert!(text.contains(words), "no `{words}` in {text}");
    }
    let detected = parsed(&here.run("detect --json a b c").ok().text());
    assert_eq!(detected["arrays"][0]["behind"], report["arrays"][0]["behind"]);
    let text = here.run("detect a b c").text();
    assert!(text.contains("behind: c: by ") && text.contains("at most 256 KiB differ, in 3 ranges"), "{text}");
    // Without a bitmap nothing says what differs; the array that cannot be started says how far each is behind.
    here.run("create --level 5 --size 8M d e f").ok();
    here.run_with("write d e f", b"first").ok();
    here.run_with("write d e", b"later").ok();
    let report = parsed(&here.run("examine --json d f").expect(1, &[]).text());
    let behind = &report["arrays"][0]["behind"][0];
    assert!(behind["name"] == "f" && behind["differs"].is_null(), "{report}");
    assert!(report["arrays"][0]["refusal"].as_str().expect("it lacks two").contains("stale"), "{report}");
}

/// A line that a program prints about a file.
fn said(program: &str, arguments: &[&str], place: &std::path::Path) -> String {
    let mut command = std::process::Command::new(program);
    command.args(arguments).current_dir(place).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    let output = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_files_that_lost_bytes_hit_are_named() {
    let here = Workplace::new();
    let tree = here.path().join("tree/photos");
    std::fs::create_dir_all(&tree).expect("of our own");
    let mut random = Random(13);
    for (name, bytes) in [("first", 200_000), ("hit", 300_000), ("last", 200_000)] {
        std::fs::write(tree.join(name), random.bytes(bytes)).expect("of our own");
    }
    let image = here.path().join("fs.img");
    File::create(&image).expect("of our own").set_len(6 * MIB).expect("it is sparse");
    said("mkfs.ext4", &["-q", "-b", "1024", "-d", "tree", "fs.img"], here.path());
    let blocks = said("debugfs", &["-R", "blocks /photos/hit", "fs.img"], here.path());
    let block: u64 = blocks.split_whitespace().nth(7).expect("a block").parse().expect("its number");
    here.run("create --level 1 --size 8M --data-offset 1M a missing").ok();
    here.run("write a --input fs.img").ok();
    let hole = MIB + block * 1024..MIB + (block + 2) * 1024;
    write_map(&here, "a.map", 8 * MIB, &hole);
    let run = here.run("read a --maps --salvage --output out --name-files --json");
    run.expect(1, &["lost in: /photos/hit: 2 blocks"]);
    let json = parsed(&run.text());
    let files = json["lost_files"].as_array().expect("a list");
    assert!(files.len() == 1 && files[0]["path"] == "/photos/hit" && files[0]["blocks"] == 2, "{json}");
    // Of free blocks and metadata the count is told, and no file is.
    write_map(&here, "a.map", 8 * MIB, &(MIB + 5 * MIB..MIB + 5 * MIB + 512));
    let run = here.run("read a --maps --salvage --output free --name-files");
    run.expect(1, &["1 blocks are in no file"]);
    assert!(!run.stderr.contains("lost in:"), "{}", run.stderr);
    here.run("create --level 1 --size 8M --data-offset 1M b missing").ok();
    write_map(&here, "b.map", 8 * MIB, &(2 * MIB..2 * MIB + 512));
    here.run("read b --maps --salvage --output none --name-files").expect(1, &["does not begin with ext2"]);
}
