//! The stripe log: round trips of header and records, refusals with the field's name, and its place on a member. What is
//! torn, foreign or hostile is no record, and nothing reaches beyond the ring.

use mdspace_format::geometry::Level;
use mdspace_format::integrity::{Layout, bytes_for};
use mdspace_format::placement::{BitmapChoice, Placement, Request, place};
use mdspace_format::stamp::Stamp;
use mdspace_format::stripe_log::{Chunks, ENTRIES_MAX, Entry, Header, PAGE_BYTES, Place, Record, checksum};
use mdspace_format::superblock::{Blueprint, DeviceRole, Resync, SetName, Superblock, Timestamp, Version};
use mdspace_format::units::{DeviceNumber, Sectors, Slot};
use proptest::prelude::*;

const PAGE: u64 = PAGE_BYTES as u64;
const HEADER_BYTES: usize = 512;

fn request() -> Request {
    Request {
        version: Version::V1_2,
        level: Level::Raid6,
        layout: 2,
        raid_disks: 5,
        chunk_bytes: 64 << 10,
        data_offset: None,
        component: None,
        bitmap: BitmapChoice::None,
        parity_log: false,
        bad_block_log: true,
        integrity: false,
    }
}

/// A new member; `None` where md's own parts do not fit.
fn created(request: &Request, member_bytes: u64) -> Option<(Superblock, Placement)> {
    let placement = place(request, &[member_bytes; 5]).ok()?.remove(0);
    let blueprint = Blueprint {
        version: request.version,
        set_uuid: *b"a set of members",
        set_name: SetName::new("log").expect("short"),
        created: Timestamp { seconds: 1_700_000_000, micros: 5 },
        level: request.level,
        layout: request.layout,
        raid0_layout: false,
        chunk: Sectors(request.chunk_bytes / 512),
        raid_disks: request.raid_disks,
        roles: (0..request.raid_disks).map(|slot| DeviceRole::Active(Slot(slot))).collect(),
        resync: Resync::Clean,
        logical_block_bytes: 0,
    };
    let superblock = Superblock::new(&blueprint, &placement, DeviceNumber(1), [9; 16], member_bytes).ok()?;
    Some((superblock, placement))
}

fn superblock() -> Superblock {
    created(&request(), 1 << 30).expect("it fits").0
}

fn header() -> Header {
    let superblock = superblock();
    Header::new(&superblock, &Place::of(&superblock).expect("room"), 77)
}

/// `bytes` with the checksum of a header corrected.
fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[12..16].fill(0);
    let sum = checksum(&bytes[..HEADER_BYTES]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// `bytes` with the checksum of a record corrected.
fn sealed(mut bytes: Vec<u8>, seed: u32) -> Vec<u8> {
    bytes[8..12].fill(0);
    let sum = checksum(&bytes[..PAGE_BYTES]) ^ seed;
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn a_wrong_field_of_a_header_is_refused_by_name() {
    let superblock = superblock();
    let place = Place::of(&superblock).expect("room");
    let good = header().encode();
    let verdict = |bytes: &[u8]| {
        let Some(header) = Header::decode(bytes).map_err(|defect| defect.field)? else { return Err("none") };
        let found = Place::found(&superblock, &header).map_err(|defect| defect.field)?;
        assert_eq!(found, place);
        header.check(&superblock, &place).map_err(|defect| defect.field)
    };
    assert_eq!(verdict(&good), Ok(()));
    assert_eq!(verdict(&good[..HEADER_BYTES]), Ok(()), "a header is one sector");
    assert_eq!(verdict(&good[..HEADER_BYTES - 1]), Err("stripe_log"));
    assert_eq!(verdict(&[]), Err("stripe_log"));
    let lies = [
        ("no magic", 0, 0, "none"),
        ("version 2", 8, 2, "stripe_log.version"),
        ("version 2^24 + 1", 11, 1, "stripe_log.version"),
        ("another array's", 16, 1, "stripe_log.set_uuid"),
        ("another member's", 32, 1, "stripe_log.device_uuid"),
        ("another number", 48, 2, "stripe_log.device_number"),
        ("level 5", 52, 5, "stripe_log.level"),
        ("another layout", 56, 3, "stripe_log.layout"),
        ("six members", 60, 6, "stripe_log.raid_disks"),
        ("another chunk", 65, 1, "stripe_log.chunk"),
        ("data elsewhere", 72, 8, "stripe_log.data_offset"),
        ("no whole pages", 80, 1, "stripe_log.bytes"),
        ("beyond the data", 87, 0xff, "stripe_log.bytes"),
        ("an unknown flag", 112, 2, "stripe_log.version"),
        ("padding", 119, 1, "stripe_log.version"),
        ("reserved bytes, the first", 152, 1, "stripe_log.version"),
        ("reserved bytes, the last", 511, 1, "stripe_log.version"),
    ];
    for (what, at, value, field) in lies {
        let mut bytes = good.clone();
        bytes[at] = value;
        let torn = if field == "none" { "none" } else { "stripe_log.checksum" };
        assert_eq!(verdict(&bytes), Err(torn), "{what}");
        assert_eq!(verdict(&summed(bytes)), Err(field), "{what}");
    }
}

#[test]
fn a_header_is_believed_of_its_own_log_only_as_long_as_there_is_room() {
    let superblock = superblock();
    let (start, data_at) = (Place::start(&superblock).expect("room").0, superblock.data_at().0);
    let table = [
        (0, false),
        (PAGE, false),
        (2 * PAGE, true),
        (2 * PAGE + 512, false),
        (data_at - start, true),
        (data_at - start + PAGE, false),
        (4 << 20, false),
        (u64::MAX - PAGE + 1, false),
        (u64::MAX, false),
    ];
    for (bytes, is_right) in table {
        let found = Place::found(&superblock, &Header { bytes, ..header() });
        assert_eq!(found.as_ref().map(|place| place.bytes).ok(), is_right.then_some(bytes), "{bytes}");
        assert!(found.map_or_else(|defect| defect.field == "stripe_log.bytes", |place| place.end().0 <= data_at));
    }
}

#[test]
fn a_header_vouches_for_the_superblocks_that_it_names_and_no_other() {
    let mut superblock = superblock();
    superblock.updated.micros = 7;
    let place = Place::of(&superblock).expect("room");
    let header = Header::new(&superblock, &place, 1);
    assert!(header.vouches_for(&superblock));
    let mut next = superblock.clone();
    next.events += 1;
    assert!(!header.vouches_for(&next), "other events");
    assert!(Header { stamps: [Stamp::of(&superblock), Stamp::of(&next)], ..header.clone() }.vouches_for(&next));
    // The kernel takes events back, and writes whole seconds.
    let mut kernels = superblock.clone();
    kernels.updated.micros = 0;
    assert!(!header.vouches_for(&kernels));
    assert!(!Header { stamps: [Stamp::of(&kernels); 2], ..header }.vouches_for(&kernels), "named, but not our time");
}

fn entry() -> Entry {
    Entry { stripe: 3, rows: 4096..8192, changed: Chunks::from_iter([0, 2]), partial_bytes: 4096, checksum: 5 }
}

#[test]
fn a_wrong_field_of_an_entry_is_refused_by_name() {
    let set = |indexes: &[u16]| indexes.iter().copied().collect::<Chunks>();
    // Of 10 stripes of 3 data chunks of 64 KiB.
    let verdict = |entry: &Entry| entry.check(10, 64 << 10, 3).map_err(|defect| defect.field);
    let right = [
        entry(),
        Entry { rows: 0..65536, partial_bytes: 65536, ..entry() },
        Entry { partial_bytes: 0, changed: Chunks::first(3), stripe: 9, ..entry() },
    ];
    right.iter().for_each(|entry| assert_eq!(verdict(entry), Ok(()), "{entry:?}"));
    let lies = [
        ("stripe_log.stripe", Entry { stripe: 10, ..entry() }),
        ("stripe_log.stripe", Entry { stripe: u64::MAX, ..entry() }),
        ("stripe_log.rows", Entry { rows: 4096..4096, partial_bytes: 0, ..entry() }),
        #[expect(clippy::reversed_empty_ranges, reason = "as an entry may be")]
        ("stripe_log.rows", Entry { rows: 8192..4096, ..entry() }),
        ("stripe_log.rows", Entry { rows: 0..65537, partial_bytes: 65537, ..entry() }),
        ("stripe_log.rows", Entry { rows: 0..u32::MAX, partial_bytes: u32::MAX, ..entry() }),
        ("stripe_log.changed", Entry { changed: set(&[]), ..entry() }),
        ("stripe_log.changed", Entry { changed: set(&[0, 3]), ..entry() }),
        ("stripe_log.changed", Entry { changed: set(&[255]), ..entry() }),
        ("stripe_log.partial_bytes", Entry { partial_bytes: 4095, ..entry() }),
        ("stripe_log.partial_bytes", Entry { partial_bytes: u32::MAX, ..entry() }),
    ];
    for (field, entry) in lies {
        assert_eq!(verdict(&entry), Err(field), "{entry:?}");
    }
    assert_eq!(entry().check(10, 64 << 10, u16::MAX), Ok(()), "more chunks than an entry can name");
}

#[test]
fn a_record_with_too_many_entries_or_beyond_its_ring_is_none() {
    let record = Record { epoch: 1, sequence: 2, tail: 1, offset: 3 * PAGE, entries: vec![entry(); ENTRIES_MAX] };
    let (bytes, seed) = (record.encode(9), 9);
    let end = record.offset + PAGE + ENTRIES_MAX as u64 * 4096;
    let decode = |bytes: &[u8], ring_bytes| Record::decode(bytes, 3 * PAGE, ring_bytes, 1, seed);
    assert_eq!(decode(&bytes, end).as_ref(), Some(&record));
    assert_eq!(decode(&bytes, end - 1), None, "it ends behind the ring");
    assert_eq!(decode(&bytes[..PAGE_BYTES - 1], end), None, "no whole head");
    for count in [ENTRIES_MAX as u32 + 1, u32::MAX] {
        let mut lie = bytes.clone();
        lie[12..16].copy_from_slice(&count.to_le_bytes());
        assert_eq!(decode(&sealed(lie, seed), u64::MAX), None, "{count} entries");
    }
    let longest = Entry { partial_bytes: u32::MAX, ..entry() };
    let long = Record { entries: vec![longest; ENTRIES_MAX], ..record };
    assert_eq!(decode(&long.encode(seed), 4 << 20), None);
    assert_eq!(decode(&long.encode(seed), u64::MAX), Some(long));
}

/// What a member's own parts take, in bytes.
fn parts(superblock: &Superblock, placement: &Placement) -> Vec<(&'static str, u64, u64)> {
    let at = |sectors: i32| ((superblock.super_offset.0 as i64 + i64::from(sectors)) * 512) as u64;
    let mut parts = vec![("superblock", superblock.super_at().0, 4096)];
    parts.extend(placement.bitmap.map(|bitmap| ("bitmap", at(bitmap.place.sectors_from_superblock), bitmap.bytes)));
    let bad_blocks = placement.bad_blocks;
    parts.extend(bad_blocks.map(|log| ("bad blocks", at(log.sectors_from_superblock), u64::from(log.sectors) * 512)));
    let parity_log = placement.ppl;
    parts.extend(parity_log.map(|log| ("ppl", at(log.sectors_from_superblock.into()), u64::from(log.sectors) * 512)));
    if superblock.data_at().0 >= 1 << 20 {
        parts.push(("kept for a bitmap", superblock.super_at().0 + 4096, 128 << 10));
    }
    parts.push(("data", superblock.data_at().0, superblock.data_bytes()));
    parts
}

/// Checks the place of a log on one member; whether there is room for one.
fn check_place(what: &str, superblock: &Superblock, placement: &Placement) -> bool {
    let start = Place::start(superblock).expect("a level with parity").0;
    let room = (superblock.data_at().0 / PAGE * PAGE).saturating_sub(start);
    let least = 2 * PAGE + superblock.chunk.bytes().next_multiple_of(PAGE);
    let place = match Place::of(superblock) {
        Ok(place) => place,
        Err(defect) => {
            assert_eq!(defect.field, "superblock.data_offset", "{what}");
            assert!(room < least, "{what}: {defect}");
            return false;
        }
    };
    assert_eq!(place.at.0, start, "{what}");
    assert!(start.is_multiple_of(PAGE) && place.bytes.is_multiple_of(PAGE), "{what}: {place:?}");
    assert!(place.bytes >= least && place.bytes <= 4 << 20, "{what}: {place:?}");
    assert_eq!((place.in_ring(0).0, place.in_ring(place.ring_bytes()).0), (start + PAGE, place.end().0));
    for (part, at, bytes) in parts(superblock, placement) {
        assert!(at + bytes <= start || place.end().0 <= at, "{what}: {place:?} over {part} at {at}, {bytes} bytes");
    }
    if let Ok(checksums) = Layout::of(superblock) {
        let [end, begin] = checksums.headers_at();
        let apart = end.0 + PAGE <= start || place.end().0 <= begin.0;
        assert_eq!(place.check_apart(&checksums).is_ok(), apart, "{what}: {place:?}");
        let fits_both = room >= least + bytes_for(superblock.data_bytes());
        assert!(apart || !fits_both, "{what}: {place:?} over the checksums' room, without need");
    }
    if let Some(bitmap) = placement.bitmap {
        assert_eq!(place.check_apart_from_bitmap(superblock, bitmap.bytes), Ok(()), "{what}");
        let too_long = place.at.0 - superblock.super_at().0;
        let refused = place.check_apart_from_bitmap(superblock, too_long).expect_err(what);
        assert_eq!(refused.field, "superblock.bitmap_offset", "{what}");
    }
    let header = Header::new(superblock, &place, 1);
    assert_eq!(Place::found(superblock, &header).as_ref(), Ok(&place), "{what}");
    assert_eq!(header.check(superblock, &place), Ok(()), "{what}");
    true
}

#[test]
fn a_log_lies_over_nothing_else_on_the_member() {
    let offsets = [None, Some(64), Some(128), Some(280), Some(640), Some(2040), Some(2048), Some(4096), Some(20480)];
    let bitmaps = [BitmapChoice::None, BitmapChoice::DefaultChunk, BitmapChoice::Chunk(4 << 20)];
    let (mut with, mut without) = (0, 0);
    for version in [Version::V1_1, Version::V1_2] {
        for level in [Level::Raid4, Level::Raid5, Level::Raid6] {
            for (data_offset, bitmap) in offsets.into_iter().flat_map(|at| bitmaps.map(|bitmap| (at, bitmap))) {
                for (chunk, member) in [(4096, 64 << 20), (64 << 10, 1 << 30), (512 << 10, 9 << 30), (1 << 20, 8 << 40)]
                {
                    for (integrity, parity_log) in [(false, false), (true, false), (false, true)] {
                        let request = Request {
                            version,
                            level,
                            layout: if level == Level::Raid4 { 0 } else { 2 },
                            chunk_bytes: chunk,
                            data_offset: data_offset.map(Sectors),
                            bitmap,
                            parity_log,
                            integrity,
                            ..request()
                        };
                        let what = format!("{request:?} {member}");
                        let Some((superblock, placement)) = created(&request, member) else { continue };
                        let has_log = check_place(&what, &superblock, &placement);
                        *if has_log { &mut with } else { &mut without } += 1;
                    }
                }
            }
        }
    }
    assert!(with > 200 && without > 50, "{with} with a log, {without} without room");
}

#[test]
fn an_array_that_cannot_have_a_log_is_refused_by_name() {
    let changed = |change: &dyn Fn(&mut Superblock)| {
        let mut superblock = superblock();
        change(&mut superblock);
        (
            Place::start(&superblock).map_err(|defect| defect.field),
            Place::of(&superblock).map_err(|defect| defect.field),
        )
    };
    type Change = fn(&mut Superblock);
    let table: [(&str, Change, &str); 6] = [
        ("RAID-0", |s| s.level = Level::Raid0, "superblock.level"),
        ("RAID-1", |s| s.level = Level::Raid1, "superblock.level"),
        ("RAID-10", |s| s.level = Level::Raid10, "superblock.level"),
        ("metadata 0.90", |s| s.version = Version::V0_90, "superblock.super_offset"),
        ("metadata 1.0", |s| s.version = Version::V1_0, "superblock.super_offset"),
        ("258 members", |s| (s.level, s.raid_disks) = (Level::Raid5, 258), "superblock.raid_disks"),
    ];
    for (what, change, field) in table {
        assert_eq!(changed(&change), (Err(field), Err(field)), "{what}");
    }
    let (start, place) = changed(&|s| (s.level, s.raid_disks) = (Level::Raid5, 257));
    assert!(start.is_ok() && place.is_ok(), "257 members have 256 data chunks");
}

fn chunks() -> impl Strategy<Value = Chunks> {
    prop::collection::vec(0_u16..256, 0..20).prop_map(Chunks::from_iter)
}

/// Entries that may be anything.
fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let bytes = prop_oneof![Just(0), 0_u32..1 << 20, any::<u32>()];
    let entry = (any::<(u64, u32, u32, u32)>(), chunks(), bytes).prop_map(
        |((stripe, start, end, checksum), changed, bytes)| Entry {
            stripe,
            rows: start..end,
            changed,
            partial_bytes: bytes,
            checksum,
        },
    );
    prop::collection::vec(entry, 0..=ENTRIES_MAX)
}

fn stamp() -> impl Strategy<Value = Stamp> {
    (any::<u64>(), 0_u64..1 << 40, 0_u32..1 << 24)
        .prop_map(|(events, seconds, micros)| Stamp { events, updated: Timestamp { seconds, micros } })
}

proptest! {
    #[test]
    fn headers_read_back(
        (set_uuid, device_uuid, is_built) in any::<([u8; 16], [u8; 16], bool)>(),
        (device_number, level, layout, raid_disks) in any::<(u32, u32, u32, u32)>(),
        (chunk, data_offset, bytes, epoch, first, tail) in any::<(u64, u64, u64, u64, u64, u64)>(),
        stamps in [stamp(), stamp()],
    ) {
        let header = Header {
            set_uuid, device_uuid, device_number, level, layout, raid_disks, chunk, data_offset, bytes, epoch, first, tail,
            is_built, stamps,
        };
        let encoded = header.encode();
        prop_assert_eq!(encoded.len(), PAGE_BYTES);
        // A hostile length reaches nowhere.
        if let Ok(place) = Place::found(&superblock(), &header) {
            prop_assert!(place.end().0 <= superblock().data_at().0);
        }
        prop_assert_eq!(Header::decode(&encoded), Ok(Some(header)));
    }

    #[test]
    fn one_flipped_bit_of_a_header_is_noticed(bit in 0..HEADER_BYTES * 8) {
        let mut bytes = header().encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!matches!(Header::decode(&bytes), Ok(Some(_))));
    }

    #[test]
    fn sets_of_chunks_hold_what_was_put_there(
        indexes in prop::collection::btree_set(0_u16..256, 0..30), others in prop::collection::btree_set(0_u16..256, 0..256),
        count in 0_u16..=256,
    ) {
        let (set, other): (Chunks, Chunks) = (indexes.iter().copied().collect(), others.iter().copied().collect());
        prop_assert_eq!(set.iter().collect::<std::collections::BTreeSet<_>>(), indexes.clone());
        prop_assert!((0..256).all(|index| set.contains(index) == indexes.contains(&index)));
        prop_assert_eq!(set.is_within(other), indexes.is_subset(&others));
        prop_assert!(Chunks::first(count).iter().eq(0..count));
    }

    #[test]
    fn records_read_back_where_they_were_written_and_nowhere_else(
        epoch in any::<u64>(), sequence in any::<u64>(), tail in any::<u64>(), page in 0_u64..1024, seed in any::<u32>(),
        entries in entries(), other in 1_u32.., bit in 0..PAGE_BYTES * 8,
    ) {
        let record = Record { epoch, sequence, tail, offset: page * PAGE, entries };
        let partial: u64 = record.entries.iter().map(|entry| u64::from(entry.partial_bytes)).sum();
        prop_assert_eq!(record.bytes(), PAGE + partial.div_ceil(PAGE) * PAGE);
        let (offset, ring, bytes) = (record.offset, record.offset + record.bytes(), record.encode(seed));
        prop_assert_eq!(bytes.len(), PAGE_BYTES);
        prop_assert_eq!(Record::decode(&bytes, offset, ring - 1, epoch, seed), None);
        prop_assert_eq!(Record::decode(&bytes, offset + PAGE, u64::MAX, epoch, seed), None);
        prop_assert_eq!(Record::decode(&bytes, offset, ring, epoch ^ u64::from(other), seed), None);
        prop_assert_eq!(Record::decode(&bytes, offset, ring, epoch, seed ^ other), None);
        let mut torn = bytes.clone();
        torn[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(Record::decode(&torn, offset, ring, epoch, seed), None);
        prop_assert_eq!(Record::decode(&bytes, offset, ring, epoch, seed), Some(record));
    }

    /// A sector is written as a whole or not at all: those of a torn head are of this record or of what was there.
    #[test]
    fn a_head_of_which_not_all_sectors_were_written_is_none(
        first in entries(), second in entries(), written in 0_u8..255,
    ) {
        let record = |sequence, entries| Record { epoch: 1, sequence, tail: 1, offset: 0, entries };
        let (old, new) = (record(5, first).encode(3), record(6, second).encode(3));
        let is_new = |sector: usize| written >> sector & 1 != 0;
        let torn: Vec<u8> = (0..PAGE_BYTES).map(|at| if is_new(at / 512) { new[at] } else { old[at] }).collect();
        prop_assume!(torn != old && torn != new);
        prop_assert_eq!(Record::decode(&torn, 0, u64::MAX, 1, 3), None);
    }

    #[test]
    fn hostile_bytes_with_a_right_checksum_reach_nowhere_beyond_the_ring(
        mut bytes in prop::collection::vec(any::<u8>(), PAGE_BYTES), count in prop_oneof![0_u32..70, any::<u32>()],
        offset in prop_oneof![0_u64..1 << 22, (u64::MAX - 8192).., any::<u64>()],
        ring_bytes in prop_oneof![0_u64..1 << 22, any::<u64>()], stripes in any::<u64>(), data_chunks in any::<u16>(),
    ) {
        bytes[..8].copy_from_slice(b"md-strec");
        bytes[12..16].copy_from_slice(&count.to_le_bytes());
        bytes[16..24].copy_from_slice(&7_u64.to_le_bytes());
        bytes[40..48].copy_from_slice(&offset.to_le_bytes());
        if let Some(record) = Record::decode(&sealed(bytes, 1), offset, ring_bytes, 7, 1) {
            prop_assert!(offset.checked_add(record.bytes()).is_some_and(|end| end <= ring_bytes));
            for entry in record.entries {
                if entry.check(stripes, 64 << 10, data_chunks).is_ok() {
                    prop_assert!(entry.stripe < stripes && entry.changed.iter().all(|index| index < data_chunks));
                    prop_assert!(entry.rows.start < entry.rows.end && entry.rows.end <= 64 << 10);
                    prop_assert!([0, entry.rows.end - entry.rows.start].contains(&entry.partial_bytes));
                }
            }
        }
    }

    #[test]
    fn the_place_stays_when_the_component_grows(
        first in 1_u64..1 << 40, second in 1_u64..1 << 40, data_offset in 2048_u64..1 << 22, is_1_1 in any::<bool>(),
    ) {
        let version = if is_1_1 { Version::V1_1 } else { Version::V1_2 };
        let data_offset = Some(Sectors(data_offset / 8 * 8));
        let (mut superblock, _) = created(&Request { version, data_offset, ..request() }, 4 << 30).expect("it fits");
        superblock.component = Sectors(first);
        let before = Place::start(&superblock);
        superblock.component = Sectors(second);
        prop_assert_eq!(Place::start(&superblock), before);
    }
}
