//! Damaged, foreign and inconsistent members: every command that assembles the array refuses them with exit status 2
//! and a message that names the member and the field, and no byte of any member changes.
//!
//! A black-box test of the command. Arrays are RAID-5 of three members with 1.2 superblocks, made by `mdspace create`.
//! This file has its own checksum for forged superblocks. The tests of mdspace-format cover the decoder alone, with
//! many more cases.

use std::fs;
use std::path::PathBuf;

use crate::support::{Run, Workplace};

const MEMBERS: [&str; 3] = ["m0.img", "m1.img", "m2.img"];
const CREATE: &str = "create --level 5 --chunk 64K --size 4M --assume-clean --bitmap internal m0.img m1.img m2.img";

/// The commands that assemble an array. `serve` gets a socket, and would run forever if it were not refused.
const COMMANDS: [&str; 3] = ["read", "write --offset 4096", "serve --nbd unix:nbd.socket --control control.socket"];

/// Position of a 1.2 superblock, and of fields in it.
const SUPERBLOCK: usize = 4096;
const CHECKSUM: usize = 216;
const DEVICES: usize = 220;

/// A forged field: offset in the superblock, and its bytes.
type Edit = (usize, &'static [u8]);

/// Members in a directory of their own.
struct Bench {
    here: Workplace,
}

impl Bench {
    fn new() -> Bench {
        let bench = Bench { here: Workplace::new() };
        bench.here.run(CREATE).ok();
        bench.here.run_with("write m0.img m1.img m2.img", &[0x5a; 300_000]).ok();
        bench
    }

    fn path(&self, member: &str) -> PathBuf {
        self.here.path().join(member)
    }

    fn bytes(&self, member: &str) -> Vec<u8> {
        fs::read(self.path(member)).expect("a member can be read")
    }

    fn replace(&self, member: &str, bytes: &[u8]) {
        fs::write(self.path(member), bytes).expect("a member can be written");
    }

    /// Writes into a member's superblock and corrects its checksum.
    fn forge(&self, member: &str, edits: &[Edit]) {
        let mut bytes = self.bytes(member);
        let superblock = &mut bytes[SUPERBLOCK..SUPERBLOCK + 4096];
        for (at, value) in edits {
            superblock[*at..*at + value.len()].copy_from_slice(value);
        }
        let sum = checksum(superblock);
        superblock[CHECKSUM..CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
        self.replace(member, &bytes);
    }

    /// Every command must refuse `members`, print one of `names` and each of `words`, and change nothing.
    #[track_caller]
    fn refused(&self, what: &str, members: &[&str], names: &[&str], words: &[&str]) {
        let complaints = self.complaints(what, members, names, words);
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }

    /// The commands that do not refuse `members` in that way.
    fn complaints(&self, what: &str, members: &[&str], names: &[&str], words: &[&str]) -> Vec<String> {
        let mut complaints = Vec::new();
        let before = self.files();
        for command in COMMANDS {
            let run = self.run(command, members);
            let mut complain = |about: &str| complaints.push(format!("{what}: {command}: {about}: {}", run.stderr));
            if run.status != 2 {
                complain(&format!("exit status {}", run.status));
            }
            if !names.iter().any(|name| run.stderr.contains(name)) {
                complain(&format!("none of {names:?} is named"));
            }
            if let Some(word) = words.iter().find(|word| !run.stderr.contains(*word)) {
                complain(&format!("no {word:?}"));
            }
            if !run.stdout.is_empty() {
                complain("something is on standard output");
            }
            if self.files() != before {
                complain("files changed");
            }
        }
        complaints
    }

    /// All files but sockets, with their bytes.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = fs::read_dir(self.here.path()).expect("a directory");
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.retain(|path| path.is_file());
        paths.sort();
        paths.into_iter().map(|path| (path.clone(), fs::read(path).expect("a file"))).collect()
    }

    fn run(&self, command: &str, members: &[&str]) -> Run {
        self.here.run_with(&format!("{command} {}", members.join(" ")), b"must not be written")
    }
}

/// md's checksum of a 1.x superblock: 32-bit words, with the checksum itself as zero, folded once.
fn checksum(superblock: &[u8]) -> u32 {
    let devices = u32::from_le_bytes(superblock[DEVICES..DEVICES + 4].try_into().expect("four bytes"));
    let length = 256 + 2 * (devices as usize).min(1920);
    let mut sum = 0_u64;
    for (index, byte) in superblock[..length].iter().enumerate() {
        if !(CHECKSUM..CHECKSUM + 4).contains(&index) {
            sum += u64::from(*byte) << (8 * (index % 4));
        }
    }
    ((sum & 0xffff_ffff) + (sum >> 32)) as u32
}

/// Errors of one member: a description, the forged fields, and the field that the refusal must name.
const LIES_OF_ONE: &[(&str, &[Edit], &str)] = &[
    ("major version 2", &[(4, &[2])], "superblock.major_version"),
    ("an unknown feature", &[(9, &[0x80])], "superblock.feature_map"),
    ("another array's uuid", &[(16, &[0xee; 16])], "superblock.set_uuid"),
    ("made at another time", &[(64, &[0xee])], "superblock.ctime"),
    ("level 7", &[(72, &[7])], "superblock.level"),
    ("level 4 among level 5", &[(72, &[4]), (76, &[5])], "superblock.level"),
    ("another layout", &[(76, &[0])], "superblock.layout"),
    ("component of 2^63 sectors", &[(80, &[0, 0, 0, 0, 0, 0, 0, 0x80])], "superblock.size"),
    ("chunk of another size", &[(88, &[64, 0, 0, 0])], "superblock.chunksize"),
    ("no slots", &[(92, &[0; 4])], "superblock.raid_disks"),
    ("2^32 - 1 slots", &[(92, &[0xff; 4])], "superblock.raid_disks"),
    ("four slots among three", &[(92, &[4])], "superblock.raid_disks"),
    ("data before the superblock's end", &[(128, &[8, 0, 0, 0, 0, 0, 0, 0])], "superblock."),
    ("data offset of 2^63 sectors", &[(128, &[0, 0, 0, 0, 0, 0, 0, 0x80])], "superblock.data_"),
    ("data size of 2^63 sectors", &[(136, &[0, 0, 0, 0, 0, 0, 0, 0x80])], "superblock.data_size"),
    ("data size of 2^64 - 1 sectors", &[(136, &[0xff; 8])], "superblock.data_size"),
    ("superblock elsewhere", &[(144, &[16])], "superblock.super_offset"),
    ("device number 2^31", &[(160, &[0, 0, 0, 0x80])], "superblock.dev_number"),
    ("more devices than fit", &[(220, &[0xff; 4])], "superblock.max_dev"),
    ("slot 9 of 3", &[(256, &[9, 0]), (258, &[9, 0]), (260, &[9, 0])], "superblock.dev_roles"),
    ("bitmap over the data", &[(96, &[0, 0x10, 0, 0])], "superblock.bitmap_offset"),
    ("bitmap beyond the member", &[(96, &[0, 0, 0, 0x7f])], "superblock.bitmap_offset"),
    ("bitmap before the member", &[(96, &[0, 0, 0, 0x80])], "superblock.bitmap_offset"),
    ("bitmap on the superblock", &[(96, &[0; 4])], "superblock.bitmap_offset"),
];

#[test]
fn a_member_that_lies_with_a_right_checksum_is_refused_by_its_name_and_the_fields() {
    let bench = Bench::new();
    let original = bench.bytes("m1.img");
    let mut complaints = Vec::new();
    for (what, edits, field) in LIES_OF_ONE {
        bench.forge("m1.img", edits);
        complaints.extend(bench.complaints(what, &MEMBERS, &MEMBERS, &[field]));
        bench.replace("m1.img", &original);
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    bench.run("read", &MEMBERS).ok();
}

/// Errors that all members share.
const LIES_OF_ALL: &[(&str, &[Edit], &str)] = &[
    ("chunk 0", &[(88, &[0; 4])], "superblock.chunksize"),
    ("chunk of 1 sector", &[(88, &[1, 0, 0, 0])], "superblock.chunksize"),
    ("chunk of 3 pages", &[(88, &[24, 0, 0, 0])], "superblock.chunksize"),
    ("chunk of 2^32 - 1 sectors", &[(88, &[0xff; 4])], "superblock.chunksize"),
    ("layout 6", &[(76, &[6])], "superblock.layout"),
    ("layout 2^32 - 1", &[(76, &[0xff; 4])], "superblock.layout"),
    ("level 6 with three slots", &[(72, &[6])], "superblock.raid_disks"),
    ("RAID-10 without copies", &[(72, &[10]), (76, &[0, 0, 0, 0])], "superblock.layout"),
    ("component of no sectors", &[(80, &[0; 8])], "superblock.size"),
    ("component larger than the data", &[(80, &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0])], "superblock.size"),
    ("a reshape under way", &[(8, &[5])], "superblock."),
    ("a journal", &[(9, &[2])], "superblock."),
];

#[test]
fn members_that_agree_on_a_lie_are_refused_by_the_fields_name() {
    let bench = Bench::new();
    let originals = MEMBERS.map(|member| bench.bytes(member));
    let mut complaints = Vec::new();
    for (what, edits, field) in LIES_OF_ALL {
        MEMBERS.iter().for_each(|member| bench.forge(member, edits));
        complaints.extend(bench.complaints(what, &MEMBERS, &MEMBERS, &[field]));
        MEMBERS.iter().zip(&originals).for_each(|(member, bytes)| bench.replace(member, bytes));
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    bench.run("read", &MEMBERS).ok();
}

#[test]
fn a_flipped_bit_in_a_superblock_is_refused_by_the_checksum() {
    let bench = Bench::new();
    let original = bench.bytes("m2.img");
    for (at, bit) in [(40, 0), (72, 1), (89, 3), (200, 7), (216, 0), (256, 2)] {
        let mut flipped = original.clone();
        flipped[SUPERBLOCK + at] ^= 1 << bit;
        bench.replace("m2.img", &flipped);
        bench.refused(&format!("bit {bit} of byte {at}"), &MEMBERS, &["m2.img"], &["superblock.sb_csum"]);
    }
}

#[test]
fn a_member_that_was_cut_short_is_refused() {
    let bench = Bench::new();
    let original = bench.bytes("m0.img");
    let table = [
        (0, "superblock"),
        (1, "superblock"),
        (4096, "superblock"),
        (4096 + 255, "superblock"),
        (1 << 20, "superblock.data_size"),
        (original.len() - 512, "superblock.data_size"),
    ];
    for (length, field) in table {
        bench.replace("m0.img", &original[..length]);
        bench.refused(&format!("{length} bytes"), &MEMBERS, &["m0.img"], &[field]);
    }
}

#[test]
fn what_is_no_member_of_the_array_is_refused() {
    let bench = Bench::new();
    bench.replace("zeros.img", &vec![0; 4 << 20]);
    bench.replace(
        "noise.img",
        &(0..4 << 18).flat_map(|n: u32| n.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect::<Vec<_>>(),
    );
    bench.refused("zeros", &["m0.img", "m1.img", "zeros.img"], &["zeros.img"], &["superblock.magic"]);
    bench.refused("noise", &["m0.img", "m1.img", "noise.img"], &["noise.img"], &["superblock.magic"]);

    bench.here.run("create --level 5 --chunk 64K --size 4M --assume-clean f0.img f1.img f2.img").ok();
    let foreign = ["m0.img", "m1.img", "f2.img"];
    bench.refused("another array's member", &foreign, &foreign, &["superblock.set_uuid"]);
    let both = ["m0.img", "f1.img", "m2.img", "m1.img"];
    bench.refused("a stranger beside a complete array", &both, &both, &["superblock.set_uuid"]);
}

/// The order of members does not decide which of them is refused.
#[test]
fn the_odd_one_out_is_named_wherever_it_stands() {
    let bench = Bench::new();
    for liar in MEMBERS {
        let honest = bench.bytes(liar);
        let lies: [(Edit, &str); 7] = [
            ((16, &[0xee; 16]), "superblock.set_uuid"),
            ((64, &[0xee]), "superblock.ctime"),
            ((76, &[0]), "superblock.layout"),
            ((80, &[0, 8]), "superblock.size"),
            ((88, &[64]), "superblock.chunksize"),
            ((92, &[4]), "superblock.raid_disks"),
            ((160, &[200]), "superblock.dev_number"),
        ];
        for (edit, field) in lies {
            bench.forge(liar, &[edit]);
            bench.refused(field, &MEMBERS, &[&format!("refused: {liar}: {field}: ")], &[]);
            bench.replace(liar, &honest);
        }
    }
}

#[test]
fn a_raid0_that_does_not_say_how_it_is_striped_is_read_as_it_is_told() {
    let bench = Bench { here: Workplace::new() };
    // The longer members continue alone after an odd number of chunks, where the two layouts differ.
    for (name, bytes) in [("a.img", (4 << 20) + (64 << 10)), ("b.img", 8 << 20), ("c.img", 8 << 20)] {
        bench.replace(name, &vec![0; bytes]);
    }
    let members = ["a.img", "b.img", "c.img"];
    bench.here.run("create --level 0 --chunk 64K a.img b.img c.img").ok();
    let bytes: Vec<u8> = (0..10_u32 << 20).map(|index| (index % 251) as u8 ^ (index >> 16) as u8).collect();
    bench.here.run_with("write a.img b.img c.img", &bytes).ok();
    let said = bench.bytes("a.img")[SUPERBLOCK + 76];
    members.iter().for_each(|member| bench.forge(member, &[(8, &[0, 0]), (76, &[0])]));
    bench.refused("an old array", &members, &["a.img: superblock.layout"], &["--raid0-layout original"]);
    let read = |layout: &str| bench.run(&format!("read --raid0-layout {layout} --length {}", bytes.len()), &members);
    let (right, wrong) = if said == 2 { ("alternate", "original") } else { ("original", "alternate") };
    assert!(read(right).ok().stdout == bytes, "{right}");
    assert!(read(wrong).ok().stdout != bytes, "{wrong}");
}

#[test]
fn a_member_that_is_there_twice_is_refused() {
    let bench = Bench::new();
    bench.replace("copy.img", &bench.bytes("m1.img"));
    let copied = ["m0.img", "m1.img", "copy.img", "m2.img"];
    bench.refused("a copy", &copied, &["m1.img", "copy.img"], &["superblock.dev_number"]);
    bench.refused("a name given twice", &["m0.img", "m1.img", "m1.img", "m2.img"], &["m1.img"], &["same member"]);
    std::os::unix::fs::symlink(bench.path("m1.img"), bench.path("link.img")).expect("a link can be made");
    bench.refused("a link", &["m0.img", "m1.img", "link.img", "m2.img"], &["link.img", "m1.img"], &["same member"]);
}

#[test]
fn exchanged_superblocks_are_refused_where_the_member_can_tell() {
    let bench = Bench::new();
    let (mut one, two) = (bench.bytes("m1.img"), bench.bytes("m2.img"));
    one[SUPERBLOCK..SUPERBLOCK + 4096].copy_from_slice(&two[SUPERBLOCK..SUPERBLOCK + 4096]);
    bench.replace("m1.img", &one);
    bench.refused("m2's superblock on m1", &MEMBERS, &["m1.img", "m2.img"], &["superblock.dev_number"]);
}

#[test]
fn too_few_members_are_refused_and_the_missing_slots_named() {
    let bench = Bench::new();
    for (present, missing) in [("m0.img", "1, 2"), ("m1.img", "0, 2"), ("m2.img", "0, 1")] {
        bench.refused("one of three", &[present], &[missing], &["too few members"]);
    }
}

#[test]
fn a_dirty_and_degraded_array_is_refused_unless_forced() {
    let bench = Bench::new();
    let dirty: &[Edit] = &[(208, &[0; 8])];
    MEMBERS.iter().for_each(|member| bench.forge(member, dirty));
    bench.refused("dirty and degraded", &["m0.img", "m2.img"], &["write hole"], &["dirty and degraded", "--force"]);
    let current = bench.bytes("m1.img");
    bench.forge("m1.img", &[(200, &[0; 8])]);
    bench.refused("one is stale", &MEMBERS, &["missing: 1; m1.img was left out: stale"], &["dirty and degraded"]);
    bench.replace("m1.img", &current);
    bench.run("read", &MEMBERS).ok(); // dirty, but whole
    bench.run("read --force", &["m0.img", "m2.img"]).ok();
}

#[test]
fn the_order_of_members_does_not_matter() {
    let bench = Bench::new();
    let expected = bench.run("read", &MEMBERS).ok().stdout.clone();
    assert!(expected.starts_with(&[0x5a; 300_000]));
    for order in [["m2.img", "m0.img", "m1.img"], ["m1.img", "m2.img", "m0.img"], ["m2.img", "m1.img", "m0.img"]] {
        assert!(bench.run("read", &order).ok().stdout == expected, "{order:?}");
    }
}

#[test]
fn a_write_past_the_end_is_refused() {
    let bench = Bench::new();
    let size = bench.run("read", &MEMBERS).ok().stdout.len();
    bench.replace("input", b"must not be written");
    let before = bench.files();
    for offset in [size - 5, size, size + 1, usize::MAX] {
        bench.run(&format!("write --offset {offset} --input input"), &MEMBERS).expect(2, &["end"]);
        assert!(before == bench.files(), "offset {offset}: bytes changed");
    }
}

#[test]
fn a_bitmap_that_writers_refuse_is_reported_by_examine() {
    let bench = Bench::new();
    bench.run("examine", &MEMBERS).ok();
    let mut bytes = bench.bytes("m1.img");
    let at = SUPERBLOCK + 4096; // eight sectors behind the superblock, as in mdadm
    assert_eq!(&bytes[at..at + 4], b"bitm");
    bytes[at + 4] = 99;
    bench.replace("m1.img", &bytes);
    bench.run("write", &MEMBERS).expect(2, &["m1.img: bitmap.version"]);
    let run = bench.run("examine", &MEMBERS);
    run.expect(1, &["m1.img: bitmap.version"]);
    assert!(run.text().contains("cannot be written to: m1.img: bitmap.version"), "{}", run.text());
}

#[test]
fn a_bitmap_file_of_an_array_that_is_refused_stays_as_it_is() {
    let bench = Bench::new();
    bench.here.run("create --level 5 --chunk 64K --size 4M --assume-clean a b c").ok();
    let file = bench.path("bits");
    let server = crate::support::Server::of(&bench.here, "serve a b c");
    bench.here.run(&format!("set bitmap={}:4K", file.display())).ok();
    bench.here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    // Like mdadm's file, which ends with its last bit.
    const SUPER_BYTES: u64 = 256;
    let whole = fs::metadata(&file).expect("it was made").len();
    let long = SUPER_BYTES + (4 << 20 >> 12 >> 3);
    assert!(long < whole, "{whole} bytes");
    fs::File::options().write(true).open(&file).and_then(|file| file.set_len(long)).expect("it can be cut");
    let before = bench.files();
    for command in &COMMANDS[1..] {
        bench.run(command, &["a", "--bitmap", "bits"]).expect(2, &["too few members", "missing: 1, 2"]);
        let foreign = ["m0.img", "m1.img", "m2.img", "--bitmap", "bits"];
        bench.run(command, &foreign).expect(2, &["bits: superblock.feature_map"]);
        assert!(bench.files() == before, "{command}: files changed");
    }
    let array = ["a", "b", "c", "--bitmap", "bits"];
    bench.run("write", &array).ok();
    assert_eq!(fs::metadata(&file).expect("it is there").len(), whole, "whole blocks were written");
    let expected: &[u8] = b"must not be written";
    assert!(bench.run("read", &["a", "b", "c"]).ok().stdout.starts_with(expected));
}
