//! Damaged metadata of every kind at several levels: the reaction of each command, and that no byte changes.
//!
//! `bad_input.rs` tests one kind of array in depth. This file covers many: superblocks 0.90, 1.0, 1.1 and 1.2, levels
//! 1, 5, 6 and 10, the bitmap and the bad-block log, and commands that assemble no array. mdspace does not create
//! superblocks 0.90, so the test forges them word by word (`md_p.h`).

use crate::support::Workplace;
use std::fs;

const MEMBERS: [&str; 4] = ["m0.img", "m1.img", "m2.img", "m3.img"];
const MEMBER_BYTES: usize = 4 << 20;
const CHUNK_BYTES: u32 = 64 << 10;

/// The member that is damaged.
const DAMAGED: &str = "m1.img";

#[derive(Debug, Clone, Copy)]
struct Shape {
    metadata: &'static str,
    level: u32,
}

impl Shape {
    fn is_old(self) -> bool {
        self.metadata == "0.90"
    }

    /// The superblock comes after the data.
    fn is_at_end(self) -> bool {
        matches!(self.metadata, "0.90" | "1.0")
    }

    /// Position of the superblock.
    fn place(self) -> usize {
        match self.metadata {
            "0.90" => MEMBER_BYTES - (64 << 10),
            "1.0" => MEMBER_BYTES - (8 << 10),
            "1.1" => 0,
            _ => 4096,
        }
    }

    /// Position of a field in the superblock, by its name.
    fn at(self, field: &str) -> usize {
        let (old, new) = match field {
            "magic" => (0, 0),
            "uuid" => (20, 16),
            "level" => (28, 72),
            "chunk" => (260, 88),
            "raid_disks" => (40, 92),
            "checksum" => (152, 216),
            other => panic!("no field {other}"),
        };
        if self.is_old() { old } else { new }
    }

    /// Creates the members; metadata 1.x with a bitmap and a bad-block log.
    fn make(self, here: &Workplace) {
        if self.is_old() {
            for (slot, member) in MEMBERS.iter().enumerate() {
                let mut bytes = vec![0; MEMBER_BYTES];
                bytes[self.place()..][..4096].copy_from_slice(&self.old_superblock(slot));
                self.seal(&mut bytes);
                fs::write(here.path().join(member), bytes).expect("a directory of our own");
            }
            return;
        }
        let chunk = if self.level == 1 { "" } else { "--chunk 64K" };
        let how = format!("--level {} {chunk} --metadata {} --bitmap internal", self.level, self.metadata);
        here.run(&format!("create {how} --size 4M {}", MEMBERS.join(" "))).ok();
    }

    /// The superblock of a clean array of zeros, without its checksum.
    fn old_superblock(self, slot: usize) -> Vec<u8> {
        let mut words = [0_u32; 1024];
        (words[0], words[2], words[5]) = (0xa92b_4efc, 90, 0x0707_0707);
        (words[6], words[7], words[8]) = (1, self.level, (self.place() / 1024) as u32);
        (words[9], words[10], words[32], words[33], words[39]) = (4, 4, 1, 1, 1);
        words[64] = if self.level == 10 { 0x102 } else { 2 };
        words[65] = if self.level == 1 { 0 } else { CHUNK_BYTES };
        for number in 0..4 {
            let disk = &mut words[128 + 32 * number..];
            (disk[0], disk[3], disk[4]) = (number as u32, number as u32, 6);
        }
        words.copy_within(128 + 32 * slot..160 + 32 * slot, 992);
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Corrects the superblock's checksum.
    fn seal(self, member: &mut [u8]) {
        let superblock = &mut member[self.place()..][..4096];
        let checksum = self.at("checksum");
        superblock[checksum..checksum + 4].fill(0);
        let devices = u32::from_le_bytes(superblock[220..224].try_into().expect("four bytes")) as usize;
        let length = if self.is_old() { 4096 } else { 256 + 2 * devices.min(1920) };
        let sum: u64 = (0_u32..).zip(&superblock[..length]).map(|(at, byte)| u64::from(*byte) << (8 * (at % 4))).sum();
        let sum = (sum as u32).wrapping_add((sum >> 32) as u32);
        superblock[checksum..checksum + 4].copy_from_slice(&sum.to_le_bytes());
    }

    /// The position in a field of 1.x, in sectors from the superblock.
    fn part(self, member: &[u8], field: usize) -> usize {
        let bytes = member[self.place() + field..][..4].try_into().expect("four bytes");
        self.place().checked_add_signed(i32::from_le_bytes(bytes) as isize * 512).expect("on the member")
    }

    fn bitmap(self, member: &[u8]) -> usize {
        self.part(member, 96)
    }
}

/// A command's reaction to damage: exit status, and words on standard error.
type Answer = (i32, Vec<&'static str>);

/// A kind of damage.
struct Damage {
    what: &'static str,
    /// Whether this shape has the damaged part.
    is_in: fn(Shape) -> bool,
    cause: fn(Shape, &mut Vec<u8>),
    field: fn(Shape) -> &'static str,
    /// Whether `read` and `scrub` refuse it, as all commands that write to the array do. (Reading does not need the
    /// bitmap.)
    is_in_readers_way: bool,
    /// The result of `examine`: a refusal for unusable members, a failure for an array that cannot be assembled.
    examine: fn(Shape) -> Answer,
    /// The result of `create` without --force, which accepts a member without a superblock.
    create: fn(Shape) -> Answer,
}

/// Writes a field, and corrects the checksum.
fn forge(shape: Shape, member: &mut [u8], field: &str, value: &[u8]) {
    let at = shape.place() + shape.at(field);
    member[at..at + value.len()].copy_from_slice(value);
    shape.seal(member);
}

/// The member is unusable.
fn unusable(field: &'static str) -> Answer {
    (2, vec![DAMAGED, field])
}

/// The superblock may still belong to an array.
fn claimed(_: Shape) -> Answer {
    (2, vec![DAMAGED, "superblock.magic: belongs to an array already", "--force"])
}

/// The superblock may belong to an array.
fn doubtful(field: &'static str) -> Answer {
    (2, vec![DAMAGED, field, "it may still belong to an array", "--force"])
}

fn done(_: Shape) -> Answer {
    (0, Vec::new())
}

const DAMAGES: [Damage; 14] = [
    Damage {
        what: "a flipped bit",
        is_in: |_| true,
        cause: |shape, member| member[shape.place() + shape.at("uuid")] ^= 1,
        field: |_| "superblock.sb_csum",
        is_in_readers_way: true,
        examine: |_| unusable("superblock.sb_csum"),
        create: |_| doubtful("superblock.sb_csum"),
    },
    Damage {
        what: "level 7",
        is_in: |_| true,
        cause: |shape, member| forge(shape, member, "level", &[7, 0, 0, 0]),
        field: |_| "superblock.level",
        is_in_readers_way: true,
        examine: |_| unusable("superblock.level"),
        create: |_| doubtful("superblock.level"),
    },
    Damage {
        what: "no slots",
        is_in: |_| true,
        cause: |shape, member| forge(shape, member, "raid_disks", &[0; 4]),
        field: |_| "superblock.raid_disks",
        is_in_readers_way: true,
        examine: |_| unusable("superblock.raid_disks"),
        create: |_| doubtful("superblock.raid_disks"),
    },
    Damage {
        what: "another chunk",
        is_in: |shape| shape.level != 1,
        cause: |shape, member| {
            forge(shape, member, "chunk", &if shape.is_old() { 1 << 15 } else { 64_u32 }.to_le_bytes())
        },
        field: |shape| if shape.is_old() { "superblock.chunk" } else { "superblock.chunksize" },
        is_in_readers_way: true,
        examine: |_| (1, vec!["superblock.chunk"]),
        create: claimed,
    },
    Damage {
        what: "another array's",
        is_in: |_| true,
        cause: |shape, member| forge(shape, member, "uuid", &[0xee; 4]),
        field: |_| "superblock.set_uuid",
        // These are two arrays, each with missing members. The level decides which of them can be assembled.
        is_in_readers_way: true,
        examine: |shape| match shape.level {
            // Two arrays, each of which can be assembled; the bitmap belongs to one of them.
            1 if shape.is_old() => (0, Vec::new()),
            1 => (1, vec!["bitmap.uuid"]),
            _ => (1, vec!["too few members"]),
        },
        create: claimed,
    },
    Damage {
        what: "no magic",
        is_in: |_| true,
        cause: |shape, member| member[shape.place()..][..4].fill(0),
        field: |_| "superblock.magic",
        is_in_readers_way: true,
        examine: |_| unusable("superblock.magic"),
        // The rest of a superblock at a member's beginning counts as unknown data.
        create: |shape| if shape.metadata == "1.1" { (2, vec!["holds data", "--force"]) } else { done(shape) },
    },
    Damage {
        what: "cut in half",
        is_in: |_| true,
        cause: |_, member| member.truncate(MEMBER_BYTES / 2),
        field: |shape| {
            if matches!(shape.metadata, "0.90" | "1.0") { "superblock.magic" } else { "superblock.data_size" }
        },
        is_in_readers_way: true,
        examine: |shape| match shape.is_at_end() {
            true => unusable("superblock.magic"),
            false => unusable("superblock.data_size"),
        },
        create: |shape| if shape.is_at_end() { done(shape) } else { doubtful("superblock.data_size") },
    },
    Damage {
        what: "a bitmap without magic",
        is_in: |shape| !shape.is_old(),
        cause: |shape, member| {
            let at = shape.bitmap(member);
            member[at..at + 4].fill(0);
        },
        field: |_| "bitmap.magic",
        is_in_readers_way: false,
        examine: |_| (1, vec!["bitmap.magic"]),
        create: claimed,
    },
    Damage {
        what: "a bitmap of chunks of 3 bytes",
        is_in: |shape| !shape.is_old(),
        cause: |shape, member| {
            let at = shape.bitmap(member) + 52;
            member[at..at + 4].copy_from_slice(&3_u32.to_le_bytes());
        },
        field: |_| "bitmap.chunksize",
        is_in_readers_way: false,
        examine: |_| (1, vec!["bitmap.chunksize"]),
        create: claimed,
    },
    Damage {
        what: "a bitmap of 2^63 sectors",
        is_in: |shape| !shape.is_old(),
        cause: |shape, member| {
            let at = shape.bitmap(member) + 40;
            member[at..at + 8].copy_from_slice(&(1_u64 << 63).to_le_bytes());
        },
        field: |_| "bitmap.sync_size",
        is_in_readers_way: false,
        examine: |_| (1, vec!["bitmap.sync_size"]),
        create: claimed,
    },
    Damage {
        what: "another array's bitmap",
        is_in: |shape| !shape.is_old(),
        cause: |shape, member| {
            let at = shape.bitmap(member) + 8;
            member[at..at + 16].fill(0xee);
        },
        field: |_| "bitmap.uuid",
        is_in_readers_way: false,
        examine: |_| (1, vec!["bitmap.uuid"]),
        create: claimed,
    },
    Damage {
        what: "a bad block behind all sectors",
        is_in: |shape| !shape.is_old(),
        cause: |shape, member| {
            let log = shape.part(member, 188);
            member[log..log + 8].copy_from_slice(&0xffff_ffff_ffff_fe01_u64.to_le_bytes());
            member[shape.place() + 185] = 10; // its unit
            member[shape.place() + 8] |= 8; // in use
            shape.seal(member);
        },
        field: |_| "bad_blocks",
        is_in_readers_way: true,
        examine: |_| (1, vec!["bad_blocks"]),
        create: claimed,
    },
    Damage {
        what: "a bad-block log of 9 sectors",
        is_in: |shape| !shape.is_old(),
        cause: |shape, member| {
            member[shape.place() + 186] = 9;
            shape.seal(member);
        },
        field: |_| "superblock.bblog_size",
        is_in_readers_way: true,
        examine: |_| unusable("superblock.bblog_size"),
        create: |_| doubtful("superblock.bblog_size"),
    },
    Damage {
        what: "a bad-block log over the superblock",
        is_in: |shape| !shape.is_old(),
        cause: |shape, member| {
            member[shape.place() + 188..][..4].copy_from_slice(&(-1_i32).to_le_bytes());
            shape.seal(member);
        },
        field: |_| "superblock.bblog_offset",
        is_in_readers_way: true,
        examine: |_| unusable("superblock.bblog_offset"),
        create: |_| doubtful("superblock.bblog_offset"),
    },
];

/// Commands that write to the array, with all members.
const WRITERS: [&str; 4] = [
    "write --offset 4096",
    "serve --nbd unix:nbd.socket --control control.socket",
    "scrub --repair",
    "grow --size max",
];

/// Commands that only read it.
const READERS: [&str; 2] = ["read", "scrub"];

/// All commands, each with its expected reaction.
fn answers(shape: Shape, damage: &Damage) -> Vec<(String, Answer)> {
    let refused = || unusable((damage.field)(shape));
    let readers = || if damage.is_in_readers_way { refused() } else { done(shape) };
    let writers = WRITERS.iter().map(|command| (*command, refused()));
    let others = READERS.iter().map(|command| (*command, readers())).chain([("examine", (damage.examine)(shape))]);
    let all = writers.chain(others).map(|(command, answer)| (format!("{command} {}", MEMBERS.join(" ")), answer));
    // Last, because it creates an array of the member if nothing prevents that.
    let create = format!("create --level 1 --assume-clean --size 4M {DAMAGED} new.img");
    all.chain([(create, (damage.create)(shape))]).collect()
}

/// The commands that react otherwise than expected.
fn complaints(here: &Workplace, shape: Shape, damage: &Damage) -> Vec<String> {
    let mut complaints = Vec::new();
    let before = here.contents(&MEMBERS);
    for (command, (status, words)) in answers(shape, damage) {
        let run = here.run_with(&command, b"must not be written");
        let mut complain = |about: String| {
            complaints.push(format!("{shape:?}: {}: {command}: {about}: {}", damage.what, run.stderr));
        };
        if run.status != status {
            complain(format!("exit status {}, not {status}", run.status));
        }
        if let Some(word) = words.iter().find(|word| !run.stderr.contains(**word)) {
            complain(format!("no {word:?}"));
        }
        let is_made = status == 0 && command.starts_with("create");
        if !is_made && here.contents(&MEMBERS) != before {
            complain("bytes changed".to_owned());
        }
    }
    complaints
}

/// Inflicts every damage on arrays of these levels.
fn check(metadata: &'static str, levels: [u32; 2]) {
    let mut wrong = Vec::new();
    for shape in levels.map(|level| Shape { metadata, level }) {
        let here = Workplace::new();
        shape.make(&here);
        here.run(&format!("read {}", MEMBERS.join(" "))).ok();
        let sound = fs::read(here.path().join(DAMAGED)).expect("a member");
        for damage in DAMAGES.iter().filter(|damage| (damage.is_in)(shape)) {
            let mut member = sound.clone();
            (damage.cause)(shape, &mut member);
            fs::write(here.path().join(DAMAGED), &member).expect("a member");
            wrong.extend(complaints(&here, shape, damage));
            drop(fs::remove_file(here.path().join("new.img"))); // exists if `create` made it
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn damage_of_metadata_0_90_is_answered_by_member_and_field() {
    check("0.90", [1, 6]);
}

#[test]
fn damage_of_metadata_1_0_is_answered_by_member_and_field() {
    check("1.0", [5, 10]);
}

#[test]
fn damage_of_metadata_1_1_is_answered_by_member_and_field() {
    check("1.1", [1, 6]);
}

#[test]
fn damage_of_metadata_1_2_is_answered_by_member_and_field() {
    check("1.2", [6, 10]);
}
