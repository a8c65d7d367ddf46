//! Superblocks that are damaged, or hostile with a correct checksum. Each is refused with the name of its field, and
//! nothing panics.

use mdspace_format::Defect;
use mdspace_format::geometry::Level;
use mdspace_format::superblock::{
    self, BitmapPlace, DeviceRole, MAX_DEVICES, PLACE_BYTES, Reshape, Resync, Superblock, Timestamp, Version,
};
use mdspace_format::units::{DeviceNumber, Sectors, Slot};
use proptest::prelude::*;

/// A superblock written by the kernel, and the length of its member.
struct Real {
    version: Version,
    member_bytes: u64,
    bytes: Vec<u8>,
}

macro_rules! real {
    ($version:ident, $mib:literal, $name:literal) => {
        Real {
            version: Version::$version,
            member_bytes: $mib << 20,
            bytes: include_bytes!(concat!("fixtures/", $name, ".superblock")).to_vec(),
        }
    };
}

fn v1() -> Real {
    real!(V1_2, 8, "raid5-bitmap-degraded/0")
}

fn v1_at_end() -> Real {
    real!(V1_0, 8, "raid5-1.0-bitmap/1")
}

fn v0() -> Real {
    real!(V0_90, 8, "raid5-0.90/2")
}

impl Real {
    fn decode(&self) -> Result<Option<Superblock>, Defect> {
        let at = self.version.place(self.member_bytes).expect("long enough");
        superblock::decode(self.version, at, &self.bytes, self.member_bytes)
    }

    fn superblock(&self) -> Superblock {
        self.decode().expect("the kernel's").expect("it is there")
    }

    fn with(mut self, at: usize, bytes: &[u8]) -> Self {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// Corrects the checksum, computed here byte by byte.
    fn summed(mut self) -> Self {
        let (at, length) = match self.version {
            Version::V0_90 => (152, 4096),
            _ => {
                let max_dev = u32::from_le_bytes(self.bytes[220..224].try_into().expect("four"));
                (216, 256 + 2 * (max_dev as usize).min(MAX_DEVICES))
            }
        };
        self.bytes[at..at + 4].fill(0);
        let bytes = self.bytes[..length].iter().enumerate();
        let sum: u64 = bytes.map(|(index, byte)| u64::from(*byte) << (index % 4 * 8)).sum();
        let sum = (sum & 0xffff_ffff) + (sum >> 32);
        self.with(at, &(sum as u32).to_le_bytes())
    }
}

#[test]
fn one_flipped_bit_is_always_noticed() {
    for (real, length, magic) in [(v1(), 512, 0..4), (v1_at_end(), 512, 0..4), (v0(), 4096, 0..4)] {
        let mut real = real;
        for bit in 0..length * 8 {
            real.bytes[bit / 8] ^= 1 << (bit % 8);
            match real.decode() {
                Ok(None) => assert!(magic.contains(&(bit / 8)), "{}: bit {bit}: not found", real.version),
                Ok(Some(_)) => panic!("{}: bit {bit} went unnoticed", real.version),
                Err(_) => {}
            }
            real.bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn what_follows_the_superblock_does_not_count() {
    let real = v1();
    let expected = real.superblock();
    for at in 512..PLACE_BYTES as usize {
        let value = !real.bytes[at];
        assert_eq!(v1().with(at, &[value]).superblock(), expected, "byte {at}");
    }
}

/// A description, the bytes written over a real superblock, and the field that the refusal must name.
type Lie = (&'static str, &'static [(usize, &'static [u8])], &'static str);

fn refused_by_name(real: impl Fn() -> Real, lies: &[Lie]) {
    for (what, edits, field) in lies {
        let edited = edits.iter().fold(real(), |real, (at, bytes)| real.with(*at, bytes)).summed();
        let defect = edited.decode().map(|found| found.map(|_| "accepted")).expect_err(what);
        assert_eq!(defect.field, *field, "{what}: {defect}");
    }
}

#[test]
fn a_wrong_field_of_1_x_is_refused_by_name() {
    let lies: &[Lie] = &[
        ("major version 2", &[(4, &[2])], "superblock.major_version"),
        ("an unknown feature", &[(9, &[0x20])], "superblock.feature_map"),
        ("features of a far future", &[(11, &[0x80])], "superblock.feature_map"),
        ("bitmap and partial parity log", &[(8, &[1, 4])], "superblock.feature_map"),
        ("one log and several", &[(8, &[0, 12])], "superblock.feature_map"),
        ("backwards without reshape", &[(8, &[33])], "superblock.feature_map"),
        ("level 0's layout on level 5", &[(9, &[0x10])], "superblock.feature_map"),
        ("bad blocks without a log", &[(8, &[9]), (186, &[0, 0])], "superblock.bblog_offset"),
        ("level 2", &[(72, &[2])], "superblock.level"),
        ("level multipath", &[(72, &[0xfc, 0xff, 0xff, 0xff])], "superblock.level"),
        ("no slots", &[(92, &[0; 4])], "superblock.raid_disks"),
        ("2^31 slots", &[(95, &[0x80])], "superblock.raid_disks"),
        ("component of 2^63 sectors", &[(87, &[0x80])], "superblock.size"),
        ("component beyond the data area", &[(80, &[1, 0x38])], "superblock.size"),
        ("data size of 2^63 sectors", &[(143, &[0x80])], "superblock.data_size"),
        ("data beyond the member", &[(136, &[1])], "superblock.data_size"),
        ("data offset of 2^64 - 1", &[(128, &[0xff; 8])], "superblock.data_size"),
        ("a number that no list has", &[(160, &[0x80, 0x07])], "superblock.dev_number"),
        ("data over the superblock", &[(128, &[0; 8])], "superblock.data_offset"),
        ("data before the log", &[(128, &[17, 0])], "superblock.bblog_offset"),
        ("data over the log", &[(128, &[25, 0])], "superblock.data_offset"),
        ("super offset elsewhere", &[(144, &[16])], "superblock.super_offset"),
        ("device number beyond 16 bits", &[(162, &[1])], "superblock.dev_number"),
        ("bitmap before the member", &[(96, &[0xf0, 0xff, 0xff, 0xff])], "superblock.bitmap_offset"),
        ("bitmap beyond the member", &[(96, &[0, 0, 0, 0x7f])], "superblock.bitmap_offset"),
        ("bitmap on the superblock", &[(96, &[0, 0, 0, 0])], "superblock.bitmap_offset"),
        ("bitmap in the data", &[(96, &[0, 0x10, 0, 0])], "superblock.bitmap_offset"),
        ("log before the member", &[(188, &[0xf0, 0xff, 0xff, 0xff])], "superblock.bblog_offset"),
        ("log on the bitmap", &[(188, &[8, 0, 0, 0])], "superblock.bblog_offset"),
        ("log of 9 sectors", &[(186, &[9, 0])], "superblock.bblog_size"),
        ("log in units of 2^64 sectors", &[(185, &[64])], "superblock.bblog_shift"),
        ("more devices than fit", &[(220, &[0x81, 7])], "superblock.max_dev"),
        ("a slot that there is not", &[(256, &[3, 0])], "superblock.dev_roles"),
    ];
    refused_by_name(v1, lies);
}

#[test]
fn a_wrong_field_of_1_0_is_refused_by_name() {
    // Superblock at sector 16368, log 8 sectors before it, bitmap 8 more before that.
    let lies: &[Lie] = &[
        ("data size up to the superblock's end", &[(136, &[0xf8, 0x3f])], "superblock.data_size"),
        ("bitmap on the log", &[(96, &[0xf8, 0xff, 0xff, 0xff])], "superblock.bblog_offset"),
        ("bitmap after the member", &[(96, &[16, 0, 0, 0])], "superblock.bitmap_offset"),
        ("component over bitmap and log", &[(80, &[0xf0, 0x3f]), (136, &[0xf0, 0x3f])], "superblock.bitmap_offset"),
    ];
    refused_by_name(v1_at_end, lies);
}

#[test]
fn a_wrong_field_of_0_90_is_refused_by_name() {
    let lies: &[Lie] = &[
        (
            "the magic number alone in the other byte order",
            &[(0, &[0xa9, 0x2b, 0x4e, 0xfc])],
            "superblock.minor_version",
        ),
        ("major version 1", &[(4, &[1])], "superblock.major_version"),
        ("minor version 92", &[(8, &[92])], "superblock.minor_version"),
        ("level 2", &[(28, &[2])], "superblock.level"),
        ("component beyond the superblock", &[(32, &[0, 0x80])], "superblock.size"),
        ("28 slots", &[(40, &[28])], "superblock.raid_disks"),
        ("no slots", &[(40, &[0])], "superblock.raid_disks"),
        ("without superblocks", &[(48, &[1])], "superblock.not_persistent"),
        ("chunk of 513 bytes", &[(260, &[1, 2, 0, 0])], "superblock.chunk_size"),
        ("active in slot 3 of 3", &[(512 + 12, &[3])], "superblock.disks"),
        ("this is device 27", &[(3968, &[27])], "superblock.this_disk"),
        ("this is a device that is not listed", &[(3968, &[5])], "superblock.this_disk"),
    ];
    refused_by_name(v0, lies);
}

#[test]
fn a_member_that_was_cut_short_is_refused() {
    let mut real = v1();
    real.member_bytes -= 512;
    assert_eq!(real.decode().expect_err("one sector is gone").field, "superblock.data_size");
    // With the superblock at the end, none is found at the new end.
    let mut real = v1_at_end();
    real.member_bytes -= 4096;
    assert_eq!(real.decode().expect_err("it says where it belongs").field, "superblock.super_offset");
}

#[test]
fn unknown_padding_is_kept() {
    // pad0, and pad3 from its second word on; the first is the logical block size.
    let real = v1().with(12, b"pad0").with(228, b"of a newer kernel, no doubt.").summed();
    assert_eq!(real.superblock().encode(), real.bytes[..512]);
    let mut superblock = real.superblock();
    assert!(superblock.has_unknown_padding() && !v1().superblock().has_unknown_padding());
    superblock.events += 1;
    assert_eq!(superblock.encode()[228..256], real.bytes[228..256]);
}

#[test]
fn what_follows_the_last_role_is_kept_until_roles_need_it() {
    let tail: Vec<u8> = (0..56).collect();
    let real = v1().with(220, &[100]).with(456, &tail).summed();
    let mut superblock = real.superblock();
    assert_eq!(superblock.encode(), real.bytes[..512]);
    superblock.roles.resize(110, DeviceRole::Faulty);
    assert_eq!(superblock.encode()[476..], tail[20..]);
}

#[test]
fn a_journal_that_is_marked_as_recovering_keeps_the_mark() {
    let real = v1().with(8, &[3, 2]).with(152, &[64]).with(256, &[0xfd, 0xff]).summed();
    let superblock = real.superblock();
    assert_eq!((superblock.journal_tail, superblock.recovery_offset), (Some(Sectors(64)), Some(Sectors(64))));
    assert_eq!(superblock.encode(), real.bytes[..512]);
}

#[test]
fn a_part_may_end_where_the_member_ends() {
    // The 1.0 superblock is 16 sectors before the end.
    let with_bitmap_at = |sectors: u8| v1_at_end().with(96, &[sectors, 0, 0, 0]).summed().decode().map(|_| ());
    assert_eq!(with_bitmap_at(15), Ok(()));
    assert_eq!(with_bitmap_at(16).map_err(|defect| defect.field), Err("superblock.bitmap_offset"));
}

#[test]
fn a_checkpoint_of_0_90_that_does_not_count_is_kept() {
    // Dirty, events 1, checkpoint of events 9.
    let real = v0().with(132, &[0]).with(156, &[1]).with(164, &[9]).with(172, &[0; 4]).summed();
    assert_eq!(real.superblock().resync, Resync::From(Sectors(0)));
    assert!(real.superblock().encode() == real.bytes);
    // Now the checkpoint is valid.
    let real = real.with(164, &[1]).with(172, &[64]).summed();
    assert_eq!(real.superblock().resync, Resync::From(Sectors(64)));
    assert!(real.superblock().encode() == real.bytes);
}

#[test]
fn roles_may_be_added_up_to_the_place_s_end() {
    let mut superblock = v1().superblock();
    for devices in [128, 129, 384, MAX_DEVICES] {
        superblock.roles.resize(devices, DeviceRole::Spare);
        let mut real = v1();
        real.bytes = superblock.encode();
        assert_eq!(real.bytes.len(), (256 + 2 * devices).next_multiple_of(512));
        real.bytes.resize(PLACE_BYTES as usize, 0);
        assert_eq!(real.superblock().roles, superblock.roles, "{devices}");
    }
}

#[test]
fn a_superblock_has_room_for_devices_up_to_the_next_part() {
    let behind = |sectors_from_superblock| BitmapPlace { sectors_from_superblock };
    for (real, bitmap, expected) in [
        (v1(), None, MAX_DEVICES),
        (v1(), Some(behind(8)), MAX_DEVICES),
        (v1(), Some(behind(2)), 384),
        (v1_at_end(), Some(behind(-16)), MAX_DEVICES),
        (v1_at_end(), Some(behind(3)), 640),
        (v0(), None, 27),
    ] {
        let superblock = real.superblock().with_bitmap(bitmap, real.member_bytes).expect("there is room");
        assert_eq!(superblock.devices_max(), expected, "{} {bitmap:?}", real.version);
    }
}

fn resync() -> impl Strategy<Value = Resync> {
    prop_oneof![Just(Resync::Clean), (0..u64::from(u32::MAX)).prop_map(|sectors| Resync::From(Sectors(sectors)))]
}

fn role() -> impl Strategy<Value = DeviceRole> {
    prop_oneof![
        (0..3_u16).prop_map(|slot| DeviceRole::Active(Slot(slot))),
        Just(DeviceRole::Spare),
        Just(DeviceRole::Faulty)
    ]
}

proptest! {
    #[test]
    fn what_is_changed_in_1_x_is_read_back(
        events in any::<u64>(),
        seconds in 0_u64..1 << 40,
        micros in 0_u32..1 << 24,
        resync in resync(),
        roles in prop::collection::vec(role(), 128),
        recovery in prop::option::of(any::<u64>()),
        reshape in prop::option::of((any::<u64>(), any::<i32>(), -3..3_i32, any::<u32>(), any::<u32>(), any::<bool>())),
        (replacement, journal, bitmap) in any::<(bool, bool, bool)>(),
        corrected_reads in any::<u32>(),
    ) {
        let mut superblock = v1().superblock();
        superblock.events = events;
        superblock.updated = Timestamp { seconds, micros };
        superblock.resync = resync;
        superblock.roles = roles;
        superblock.recovery_offset = recovery.map(Sectors);
        superblock.reshape = reshape.map(|(position, new_level, delta_disks, new_layout, new_chunk, backwards)| Reshape {
            position: Sectors(position), new_level, delta_disks, new_layout, new_chunk, backwards,
        });
        superblock.replacement = replacement;
        superblock.journal = journal;
        superblock.bitmap = bitmap.then_some(BitmapPlace { sectors_from_superblock: 8 });
        superblock.corrected_reads = corrected_reads;
        let mut real = v1();
        real.bytes = superblock.encode();
        real.bytes.resize(PLACE_BYTES as usize, 0);
        prop_assert_eq!(real.decode(), Ok(Some(superblock)));
    }

    #[test]
    fn what_is_changed_in_0_90_is_read_back(
        events in any::<u64>(),
        seconds in any::<u32>(),
        resync in resync(),
        roles in prop::collection::vec(role(), 3),
        bitmap in any::<bool>(),
    ) {
        let mut superblock = v0().superblock();
        superblock.events = events;
        superblock.updated = Timestamp { seconds: seconds.into(), micros: 0 };
        superblock.resync = resync;
        superblock.roles[..3].copy_from_slice(&roles);
        superblock.bitmap = bitmap.then_some(BitmapPlace { sectors_from_superblock: 8 });
        let mut real = v0();
        real.bytes = superblock.encode();
        let again = real.superblock();
        prop_assert_eq!(again.encode(), real.bytes);
        prop_assert_eq!((again.events, again.updated, again.resync), (events, superblock.updated, resync));
        prop_assert_eq!((again.roles, again.bitmap), (superblock.roles, superblock.bitmap));
    }

    #[test]
    fn any_bytes_with_a_right_checksum_are_read_or_refused(
        which in 0..3_usize,
        edits in prop::collection::vec((0..512_usize, any::<[u8; 4]>()), 1..6),
        member_bytes in any::<u64>(),
    ) {
        let mut real = [v1, v1_at_end, v0][which]();
        for (at, bytes) in edits {
            real = real.with(at, &bytes);
        }
        let mut real = real.summed();
        if let Ok(Some(superblock)) = real.decode() {
            let written = superblock.encode();
            prop_assert_eq!(superblock.data_bytes() > real.member_bytes, false);
            if real.version != Version::V0_90 {
                prop_assert_eq!(&written[..], &real.bytes[..written.len()]);
            }
        }
        // The same on a member of any length.
        real.member_bytes = member_bytes;
        if let Some(at) = real.version.place(member_bytes) {
            let _ = superblock::decode(real.version, at, &real.bytes, member_bytes);
        }
    }
}

#[test]
fn counts_of_0_90_follow_the_list() {
    let count = |bytes: &[u8], word: usize| u32::from_le_bytes(bytes[4 * word..4 * word + 4].try_into().expect("four"));
    let mut superblock = v0().superblock();
    assert_eq!((superblock.level, superblock.device_number), (Level::Raid5, DeviceNumber(2)));
    superblock.roles[1] = DeviceRole::Faulty;
    let bytes = superblock.encode();
    // active, working, failed, spare.
    assert_eq!([34, 35, 36, 37].map(|word| count(&bytes, word)), [2, 2, 1, 0]);
}
