//! New superblocks of version 0.90, against those that mdadm and the real driver made with the same arguments.
//!
//! `fixtures/` holds them ([`metadata.rs`](metadata.rs) says more); no test changes one. `tests/kernel/superblocks.sh` has
//! the driver take what this crate makes.

use std::fs;
use std::path::Path;

use mdspace_format::geometry::Level;
use mdspace_format::placement::{BitmapChoice, Request, place};
use mdspace_format::superblock::{self, Blueprint, DeviceRole, Resync, SetName, Superblock, Timestamp, Version};
use mdspace_format::units::{DeviceNumber, Sectors, Slot};

const TIB: u64 = 1 << 40;

/// Recorded members of new arrays without failures: array, member, slots, spares.
const MEMBERS: [(&str, &str, u16, usize); 3] =
    [("raid5-0.90", "2", 3, 0), ("raid1-0.90-bitmap", "0", 2, 1), ("raid1-0.90-bitmap", "2", 2, 1)];

fn request(level: Level, slots: u16) -> Request {
    Request {
        version: Version::V0_90,
        level,
        layout: 0,
        raid_disks: slots,
        chunk_bytes: 0,
        data_offset: None,
        component: None,
        bitmap: BitmapChoice::None,
        bad_block_log: true,
        parity_log: false,
        integrity: false,
    }
}

fn blueprint(level: Level, slots: u16) -> Blueprint {
    Blueprint {
        version: Version::V0_90,
        set_uuid: [1; 16],
        set_name: SetName::default(),
        created: Timestamp { seconds: 1_795_000_000, micros: 0 },
        level,
        layout: 0,
        raid0_layout: false,
        chunk: Sectors(0),
        raid_disks: slots,
        roles: (0..slots).map(|slot| DeviceRole::Active(Slot(slot))).collect(),
        resync: Resync::Clean,
        logical_block_bytes: 0,
    }
}

/// Leaves out what the driver stamps, and a program that makes a superblock need not: times, events, device numbers, and a
/// checkpoint, which has no meaning in a clean array. Numbers are words of `md_p.h`.
fn without_stamps(bytes: &[u8]) -> Vec<u8> {
    const UTIME: usize = 32;
    const CHECKSUM: usize = 38;
    const EVENTS_AND_CHECKPOINT: std::ops::Range<usize> = 39..44;
    const DISKS: std::ops::RangeInclusive<usize> = 4..=31;
    let devices = DISKS.flat_map(|entry| [entry * 32 + 1, entry * 32 + 2]);
    let mut bytes = bytes.to_vec();
    for word in [UTIME, CHECKSUM].into_iter().chain(EVENTS_AND_CHECKPOINT).chain(devices) {
        bytes[word * 4..word * 4 + 4].fill(0);
    }
    bytes
}

/// The words in which a new superblock differs from the recorded one of the same member.
fn differing_words(array: &str, member: &str, slots: u16, spares: usize) -> Vec<usize> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(array).join(member);
    let theirs = fs::read(path.with_extension("superblock")).expect("a fixture");
    let text = fs::read_to_string(path.with_extension("examine")).expect("beside it");
    let member_bytes = text.lines().next().and_then(|line| line.strip_suffix(" bytes")?.parse().ok());
    let member_bytes = member_bytes.expect("its length comes first");
    let at = Version::V0_90.place(member_bytes).expect("it is long enough");
    let found = superblock::decode(Version::V0_90, at, &theirs, member_bytes).expect("valid").expect("there");
    let request = Request {
        layout: found.layout,
        chunk_bytes: found.chunk.bytes(),
        bitmap: if found.bitmap.is_some() { BitmapChoice::DefaultChunk } else { BitmapChoice::None },
        ..request(found.level, slots)
    };
    let mut blueprint = Blueprint {
        set_uuid: found.set_uuid,
        created: found.created,
        layout: found.layout,
        chunk: found.chunk,
        ..blueprint(found.level, slots)
    };
    blueprint.roles.extend(std::iter::repeat_n(DeviceRole::Spare, spares));
    let placement = place(&request, &[member_bytes]).expect("it was placed so").remove(0);
    let made = Superblock::new(&blueprint, &placement, found.device_number, [0; 16], member_bytes).expect("it fits");
    let ours = made.encode();
    let read = superblock::decode(Version::V0_90, at, &ours, member_bytes).expect("valid").expect("there");
    assert_eq!(read.encode(), ours, "{array}/{member} is read back");
    let (ours, theirs) = (without_stamps(&ours), without_stamps(&theirs[..ours.len()]));
    let differ = |word: &usize| ours[word * 4..word * 4 + 4] != theirs[word * 4..word * 4 + 4];
    (0..ours.len() / 4).filter(differ).collect()
}

#[test]
fn a_new_superblock_of_0_90_is_that_of_mdadm_and_the_driver() {
    for (array, member, slots, spares) in MEMBERS {
        assert_eq!(differing_words(array, member, slots, spares), Vec::<usize>::new(), "{array}/{member}: words");
    }
}

#[test]
fn what_0_90_has_no_field_for_is_refused() {
    type Spoil = fn(&mut Blueprint, &mut Request, &mut Vec<u64>);
    let cases: [(Spoil, &str); 7] = [
        (|blueprint, _, _| blueprint.set_name = SetName::new("nas:data").expect("short"), "superblock.set_name"),
        (|blueprint, _, _| blueprint.raid0_layout = true, "superblock.layout"),
        (|blueprint, _, _| blueprint.logical_block_bytes = 512, "superblock.logical_block_size"),
        (|blueprint, _, _| blueprint.roles.resize(28, DeviceRole::Spare), "superblock.max_dev"),
        (|_, request, _| request.data_offset = Some(Sectors(2048)), "placement.data_offset"),
        (|_, request, _| request.integrity = true, "placement.version"),
        (|_, _, lengths| lengths.fill(4 * TIB + (1 << 20)), "placement.component"),
    ];
    let make = |spoil: Spoil| {
        let (mut request, mut blueprint) = (request(Level::Raid1, 2), blueprint(Level::Raid1, 2));
        let mut lengths = vec![4 * TIB; 2];
        spoil(&mut blueprint, &mut request, &mut lengths);
        let placement = place(&request, &lengths)?.remove(0);
        Superblock::new(&blueprint, &placement, DeviceNumber(0), [0; 16], lengths[0])
    };
    let longest = make(|_, _, _| ()).expect("members of 4 TiB have less than that for data");
    assert_eq!(longest.component, Sectors((4 << 31) - 128));
    for (spoil, field) in cases {
        assert_eq!(make(spoil).expect_err(field).field, field);
    }
}
