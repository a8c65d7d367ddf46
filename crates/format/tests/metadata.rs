//! Metadata written by the real driver and mdadm, decoded here.
//!
//! `fixtures/` holds superblocks, bitmaps and logs as the kernel wrote them. Beside each is the output of `mdadm
//! --examine`: an oracle that shares no code with this crate. `tests/kernel/fixtures.sh` creates them again. No test
//! changes a fixture.

use std::fs;
use std::path::{Path, PathBuf};

use mdspace_format::bad_blocks::{self, BadRange};
use mdspace_format::bitmap::{self, BitmapSuper};
use mdspace_format::geometry::Level;
use mdspace_format::partial_parity::{self, Entry, Header, signature};
use mdspace_format::superblock::{self, DeviceFlags, DeviceRole, Resync, Superblock, Version};
use mdspace_format::units::{DeviceNumber, MemberByte, Sectors, Slot};

/// A member with recorded metadata.
struct Sample {
    /// `array/member`, for messages.
    name: String,
    path: PathBuf,
    examine: String,
    member_bytes: u64,
    bytes: Vec<u8>,
}

impl Sample {
    fn open(path: &Path) -> Self {
        let examine = fs::read_to_string(path.with_extension("examine")).expect("each superblock has its text");
        let member_bytes = examine.lines().next().and_then(|line| line.strip_suffix(" bytes")).expect("length first");
        let name = path.strip_prefix(fixtures()).expect("below it").with_extension("").display().to_string();
        Self {
            name,
            path: path.to_path_buf(),
            member_bytes: member_bytes.parse().expect("a length"),
            bytes: fs::read(path).expect("readable"),
            examine,
        }
    }

    /// mdadm's text after `label : `, if it printed that label.
    fn said(&self, label: &str) -> Option<&str> {
        said(&self.examine, label)
    }

    fn version(&self) -> Version {
        let text = self.said("Version").expect("always printed");
        text.strip_suffix(".00").unwrap_or(text).parse().expect("a version")
    }

    fn at(&self) -> MemberByte {
        self.version().place(self.member_bytes).expect("long enough")
    }

    fn superblock(&self) -> Superblock {
        superblock::decode(self.version(), self.at(), &self.bytes, self.member_bytes)
            .unwrap_or_else(|defect| panic!("{}: {defect}", self.name))
            .unwrap_or_else(|| panic!("{}: no superblock", self.name))
    }

    /// Another of the member's files, with mdadm's text about it.
    fn beside(&self, extension: &str) -> Option<(Vec<u8>, String)> {
        let bytes = fs::read(self.path.with_extension(extension)).ok()?;
        let text = fs::read_to_string(self.path.with_extension(format!("examine-{extension}"))).unwrap_or_default();
        Some((bytes, text))
    }
}

fn said<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix(label)?.trim_start().strip_prefix(':').map(str::trim))
}

/// The number at the start of a text.
fn number(text: &str) -> i64 {
    let end = text.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().unwrap_or_else(|_| panic!("{text:?} does not begin with a number"))
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Every recorded member, in order of name.
fn samples() -> Vec<Sample> {
    let mut paths: Vec<PathBuf> = fs::read_dir(fixtures())
        .expect("fixtures are there")
        .filter_map(|array| fs::read_dir(array.expect("readable").path()).ok())
        .flat_map(|files| files.map(|file| file.expect("readable").path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "superblock"))
        .collect();
    paths.sort();
    assert!(paths.len() >= 40, "only {} samples", paths.len());
    paths.iter().map(|path| Sample::open(path)).collect()
}

fn sample(name: &str) -> Sample {
    Sample::open(&fixtures().join(name).with_extension("superblock"))
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::Linear => "linear",
        Level::Raid0 => "raid0",
        Level::Raid1 => "raid1",
        Level::Raid4 => "raid4",
        Level::Raid5 => "raid5",
        Level::Raid6 => "raid6",
        Level::Raid10 => "raid10",
    }
}

/// A uuid as mdadm prints it: four groups of eight digits.
fn uuid_text(uuid: [u8; 16]) -> String {
    uuid.chunks(4)
        .map(|group| group.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        .collect::<Vec<_>>()
        .join(":")
}

/// A uuid of 0.90, printed as four numbers.
fn uuid_words_text(uuid: [u8; 16]) -> String {
    let words = uuid.chunks(4).map(|word| format!("{:08x}", u32::from_le_bytes(word.try_into().expect("four"))));
    words.collect::<Vec<_>>().join(":")
}

#[test]
fn a_member_holds_a_superblock_only_where_its_version_stands() {
    for sample in samples() {
        for (version, at) in superblock::places(sample.member_bytes) {
            assert!(at.0 + superblock::PLACE_BYTES <= sample.member_bytes, "{}: {version}", sample.name);
            if version == sample.version() {
                sample.superblock();
            } else if version != Version::V0_90 && sample.version() != Version::V0_90 {
                let found = superblock::decode(version, at, &sample.bytes, sample.member_bytes);
                let field = found.expect_err("it says where it belongs").field;
                assert_eq!(field, "superblock.super_offset", "{}: {version}", sample.name);
            }
        }
    }
}

#[test]
fn encoding_gives_the_kernels_bytes_again() {
    for sample in samples() {
        let written = sample.superblock().encode();
        assert!(written.len().is_multiple_of(512), "{}", sample.name);
        for (at, (ours, theirs)) in written.iter().zip(&sample.bytes).enumerate() {
            assert_eq!(ours, theirs, "{}: byte {at}", sample.name);
        }
    }
}

#[test]
fn the_array_is_as_mdadm_describes_it() {
    for sample in samples() {
        let superblock = sample.superblock();
        let name = &sample.name;
        let old = superblock.version == Version::V0_90;
        let expected = |label| sample.said(label).unwrap_or_else(|| panic!("{name}: mdadm did not say {label}"));
        let uuid = if old { uuid_words_text(superblock.set_uuid) } else { uuid_text(superblock.set_uuid) };
        assert_eq!(uuid, expected(if old { "UUID" } else { "Array UUID" }), "{name}");
        assert_eq!(level_name(superblock.level), expected("Raid Level"), "{name}");
        assert_eq!(i64::from(superblock.raid_disks), number(expected("Raid Devices")), "{name}");
        assert_eq!(superblock.events as i64, number(expected("Events")), "{name}");
        assert_eq!(superblock.resync == Resync::Clean, expected("State") == "clean", "{name}");
        if let Some(chunk) = sample.said("Chunk Size") {
            assert_eq!(superblock.chunk.bytes() as i64 / 1024, number(chunk), "{name}");
        }
        let layout = match (superblock.level, superblock.layout) {
            (Level::Raid0, _) if !superblock.raid0_layout => None,
            (Level::Raid0, 2) => Some("-unknown-"),
            (Level::Raid5, 1) => Some("right-asymmetric"),
            (Level::Raid5 | Level::Raid6, 2) => Some("left-symmetric"),
            (Level::Raid6, 8) => Some("ddf-zero-restart"),
            (Level::Raid10, 0x102) => Some("near=2"),
            (Level::Raid10, 0x201) => Some("far=2"),
            (Level::Raid10, 0x1_0201) => Some("offset=2"),
            _ => None,
        };
        if superblock.level != Level::Raid0 {
            assert_eq!(layout, sample.said("Layout"), "{name}");
        }
        if old {
            assert_eq!(superblock.component.0 as i64 / 2, number(expected("Used Dev Size")), "{name}");
        } else {
            assert_eq!(
                superblock.features().0,
                u32::from_str_radix(&expected("Feature Map")[2..], 16).unwrap(),
                "{name}"
            );
            assert_eq!(superblock.set_name.to_string(), expected("Name"), "{name}");
            assert_eq!(superblock.data_size.0 as i64, number(expected("Avail Dev Size")), "{name}");
            assert_eq!(superblock.data_offset.0 as i64, sample.said("Data Offset").map_or(0, number), "{name}");
            let used = sample.said("Used Dev Size").or(sample.said("Avail Dev Size")).map(number);
            if !matches!(superblock.level, Level::Linear | Level::Raid0) {
                assert_eq!(Some(superblock.component.0 as i64), used, "{name}");
            }
        }
    }
}

#[test]
fn each_member_is_as_mdadm_describes_it() {
    for sample in samples() {
        let superblock = sample.superblock();
        let name = &sample.name;
        assert_eq!(
            superblock.recovery_offset.map(|at| at.0 as i64),
            sample.said("Recovery Offset").map(number),
            "{name}"
        );
        assert_eq!(
            superblock.reshape.map(|r| r.position.0 as i64 / 2),
            sample.said("Reshape pos'n").map(number),
            "{name}"
        );
        let Some(device_uuid) = superblock.device_uuid else { continue };
        assert_eq!(Some(uuid_text(device_uuid).as_str()), sample.said("Device UUID"), "{name}");
        let role = match (superblock.own_role(), superblock.replacement) {
            (DeviceRole::Active(slot), false) => format!("Active device {slot}"),
            (DeviceRole::Active(slot), true) => format!("Replacement device {slot}"),
            (DeviceRole::Spare, _) => "spare".to_owned(),
            (DeviceRole::Faulty, _) => "Faulty".to_owned(),
            (DeviceRole::Journal, _) => "Journal".to_owned(),
        };
        assert_eq!(Some(role.as_str()), sample.said("Device Role"), "{name}");
        let flags = [(DeviceFlags::WRITE_MOSTLY, "write-mostly"), (DeviceFlags::FAIL_FAST, "failfast")];
        let set = flags.iter().filter(|(flag, _)| superblock.device_flags.contains(*flag)).map(|(_, text)| *text);
        assert_eq!(set.collect::<Vec<_>>().join(" "), sample.said("Flags").unwrap_or_default(), "{name}");
        let bitmap = superblock.bitmap.map(|place| i64::from(place.sectors_from_superblock));
        assert_eq!(bitmap, sample.said("Internal Bitmap").map(number), "{name}");
        let log = superblock.bad_blocks.map(|place| {
            format!(
                "512 entries available at offset {} sectors{}",
                place.sectors_from_superblock,
                if place.in_use { " - bad blocks present." } else { "" }
            )
        });
        assert_eq!(log.as_deref(), sample.said("Bad Block Log"), "{name}");
    }
}

#[test]
fn every_slot_is_held_as_mdadm_describes_it() {
    for sample in samples() {
        let superblock = sample.superblock();
        let Some(state) = sample.said("Array State") else { continue };
        let slots = (0..superblock.raid_disks).map(|slot| {
            match superblock.roles.iter().filter(|role| **role == DeviceRole::Active(Slot(slot))).count() {
                0 => '.',
                1 => 'A',
                _ => 'R',
            }
        });
        assert_eq!(slots.collect::<String>(), state.split(' ').next().expect("letters first"), "{}", sample.name);
    }
}

#[test]
fn every_device_of_0_90_is_as_mdadm_describes_it() {
    let mut seen = 0;
    for sample in samples().into_iter().filter(|sample| sample.version() == Version::V0_90) {
        let superblock = sample.superblock();
        let own = sample.examine.lines().find_map(|line| line.strip_prefix("this")).expect("always printed");
        let own = own.split_whitespace().next().expect("its number").parse().expect("a number");
        assert_eq!(superblock.device_number, DeviceNumber(own), "{}", sample.name);
        for line in sample.examine.lines().skip_while(|line| !line.starts_with("this")).skip(2) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [number, _, _, _, slot, state @ ..] = words.as_slice() else { continue };
            let number = DeviceNumber(number.parse().expect("a number"));
            let expected = match state {
                ["active", "sync", ..] => DeviceRole::Active(Slot(slot.parse().expect("a slot"))),
                ["faulty", ..] => DeviceRole::Faulty,
                ["spare", ..] => DeviceRole::Spare,
                other => panic!("{}: {other:?}", sample.name),
            };
            assert_eq!(superblock.role(number), expected, "{}: {number:?}", sample.name);
            seen += 1;
        }
    }
    assert!(seen > 20, "only {seen} devices");
}

/// The superblock as a machine of the other byte order writes it: each word swapped, and the words of a 64-bit number
/// in that machine's order.
fn of_the_other_byte_order(bytes: &[u8]) -> Vec<u8> {
    let mut words: Vec<u32> = bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().expect("four"))).collect();
    for low in [39, 41, 44] {
        words.swap(low, low + 1);
    }
    words.into_iter().flat_map(u32::to_be_bytes).collect()
}

#[test]
fn a_superblock_of_the_other_byte_order_says_the_same_and_is_kept_as_it_is() {
    let mut seen = 0;
    for sample in samples().into_iter().filter(|sample| sample.version() == Version::V0_90) {
        let known = sample.superblock();
        let bytes = of_the_other_byte_order(&sample.bytes);
        let other = superblock::decode(Version::V0_90, sample.at(), &bytes, sample.member_bytes);
        let other =
            other.unwrap_or_else(|defect| panic!("{}: {defect}", sample.name)).expect("its magic number is known");
        assert!(other.other_byte_order, "{}", sample.name);
        assert_eq!(
            (other.events, other.level, &other.roles, other.resync, other.device_number, other.component),
            (known.events, known.level, &known.roles, known.resync, known.device_number, known.component),
            "{}",
            sample.name
        );
        assert_eq!(other.encode(), bytes, "{}", sample.name);
        seen += 1;
    }
    assert!(seen > 2, "only {seen} samples");
}

#[test]
fn a_role_with_a_makers_flag_is_the_slot_below_it() {
    let sample = samples().into_iter().find(|sample| sample.name.starts_with("raid5-1.2")).expect("it is there");
    let mut flagged = sample.superblock();
    let own = flagged.device_number;
    flagged.disk_errors = vec![own];
    let bytes = flagged.encode();
    let at = 256 + 2 * usize::from(own.0);
    let role = u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    assert_eq!(DeviceRole::Active(Slot(role & 0x7fff)), sample.superblock().own_role());
    assert_eq!(role & 0x8000, 0x8000);
    let mut place = sample.bytes.clone();
    place[..bytes.len()].copy_from_slice(&bytes);
    let again = superblock::decode(Version::V1_2, sample.at(), &place, sample.member_bytes);
    assert_eq!(again.expect("every field is right"), Some(flagged));
}

#[test]
fn bitmaps_are_as_mdadm_describes_them() {
    let mut seen = 0;
    for sample in samples() {
        let superblock = sample.superblock();
        let Some((bytes, text)) = sample.beside("bitmap") else {
            assert_eq!(superblock.bitmap, None, "{}", sample.name);
            continue;
        };
        seen += 1;
        let name = &sample.name;
        let room = superblock.bitmap_room(sample.member_bytes).expect("it has one");
        let bitmap = BitmapSuper::decode(&bytes, room).unwrap_or_else(|defect| panic!("{name}: {defect}"));
        assert_eq!(bitmap.encode(), bytes[..bitmap::SUPER_BYTES], "{name}");
        assert_eq!(bitmap.uuid, superblock.set_uuid, "{name}");
        let expected = |label| said(&text, label).unwrap_or_else(|| panic!("{name}: mdadm did not say {label}"));
        assert_eq!(bitmap.events as i64, number(expected("Events")), "{name}");
        assert_eq!(bitmap.events_cleared as i64, number(expected("Events Cleared")), "{name}");
        assert_eq!(bitmap.sync_size.0 as i64 / 2, number(expected("Sync Size")), "{name}");
        assert_eq!(bitmap.daemon_sleep_seconds as i64, number(expected("Daemon")), "{name}");
        let (chunk, unit) = expected("Chunksize").split_once(' ').expect("a unit");
        let unit = if unit == "KB" { 1024 } else { 1 << 20 };
        assert_eq!(bitmap.chunk_bytes as i64, number(chunk) * unit, "{name}");
        let map = &bytes[bitmap::SUPER_BYTES..];
        let set = (0..bitmap.bits()).filter(|bit| bitmap::is_set(map, *bit)).count();
        let (bits, dirty) = expected("Bitmap").split_once(", ").expect("two counts");
        assert_eq!((bitmap.bits() as i64, set as i64), (number(bits), number(dirty)), "{name}");
    }
    assert!(seen >= 8, "only {seen} bitmaps");
}

/// Two descriptions of the chunk's unit exist. The array was written at 5 chunks of this many KiB, and the kernel set a
/// bit: number 5 if the field counts bytes.
#[test]
fn a_bitmaps_chunk_counts_bytes() {
    for kib in [4_u64, 64, 1024] {
        let sample = sample(&format!("bitmap-{kib}k-bit-5/0"));
        let (bytes, _) = sample.beside("bitmap").expect("it has one");
        let bitmap = BitmapSuper::decode(&bytes, 4096).expect("the kernel made it");
        let map = &bytes[bitmap::SUPER_BYTES..];
        let set: Vec<u64> = (0..bitmap.bits()).filter(|bit| bitmap::is_set(map, *bit)).collect();
        let written = 5 * kib * 1024..6 * kib * 1024;
        assert_eq!(set, [5], "{kib} KiB");
        assert_eq!(bitmap.bits_of(written.clone()).collect::<Vec<_>>(), set, "{kib} KiB");
        assert_eq!(bitmap.bytes_of(5), written, "{kib} KiB");
    }
}

#[test]
fn bad_blocks_are_as_mdadm_describes_them() {
    let sample = sample("raid5-bad-blocks/1");
    let place = sample.superblock().bad_blocks.expect("it has a log");
    let (bytes, text) = sample.beside("bad_blocks").expect("it is in use");
    let found = bad_blocks::decode(&bytes, place.shift).expect("the kernel made it");
    let expected: Vec<BadRange> = text
        .lines()
        .filter_map(|line| line.trim().strip_suffix(" sectors")?.split_once(" for "))
        .map(|(first, count)| BadRange { first: Sectors(number(first) as u64), count: Sectors(number(count) as u64) })
        .collect();
    assert_eq!(found, expected);
    assert_eq!(found.iter().map(|range| range.count.0).sum::<u64>(), 604);
    assert_eq!(bad_blocks::encode(&found, place.shift, bytes.len()), Ok(bytes));
}

#[test]
fn partial_parity_logs_of_the_kernel_are_accepted() {
    let mut seen = 0;
    for sample in samples() {
        let superblock = sample.superblock();
        let Some((bytes, _)) = sample.beside("ppl") else {
            assert_eq!(superblock.ppl, None, "{}", sample.name);
            continue;
        };
        seen += 1;
        let log_bytes = Sectors(superblock.ppl.expect("it has one").sectors.into()).bytes();
        let header = Header::decode(&bytes, &superblock.set_uuid, log_bytes)
            .unwrap_or_else(|defect| panic!("{}: {defect}", sample.name));
        assert_eq!(header.signature, signature(&superblock.set_uuid), "{}", sample.name);
        assert_eq!(header.encode(), bytes, "{}", sample.name);
    }
    assert!(seen >= 3, "only {seen} logs");
}

/// The array was written with 4 KiB of zeros at its start; stripe 0 has its parity in slot 2.
#[test]
fn the_kernels_partial_parity_entry_names_the_write() {
    let sample = sample("raid5-ppl-active/2");
    let (bytes, _) = sample.beside("ppl").expect("it has one");
    let header = Header::decode(&bytes, &sample.superblock().set_uuid, 1 << 20).expect("the kernel made it");
    let entry = Entry {
        data_sector: 0,
        partial_parity_bytes: 4096,
        data_bytes: 4096,
        parity_slot: 2,
        checksum: partial_parity::checksum(&[0; 4096]),
    };
    assert_eq!((header.generation, header.entries), (1, vec![entry]));
}

#[test]
fn a_journal_and_the_members_that_need_it_say_so() {
    let member = sample("raid5-journal/0").superblock();
    assert!(member.journal && member.journal_tail.is_none());
    let journal = sample("raid5-journal/3").superblock();
    assert!(journal.journal && journal.own_role() == DeviceRole::Journal);
    assert_eq!(journal.recovery_offset, None);
    assert!(journal.journal_tail.is_some());
}
