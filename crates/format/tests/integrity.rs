//! Checksums: positions, round trips, and refusals with the field's name. Damaged pages, and pages of another member or
//! epoch, are unknown and never trusted.

use mdspace_format::geometry::Level;
use mdspace_format::integrity::{
    BLOCK_BYTES, Binding, Checksum, Header, Layout, Open, PAGE_BYTES, PAGE_ENTRIES, Page, REGIONS_IN_AREA, Touched,
    bytes_for,
};
use mdspace_format::placement::{BitmapChoice, Request, place};
use mdspace_format::stamp::Stamp;
use mdspace_format::superblock::{
    BadBlockPlace, BitmapPlace, Blueprint, DeviceRole, Resync, SetName, Superblock, Timestamp, Version,
};
use mdspace_format::units::{DeviceNumber, MemberByte, Sectors, Slot};
use proptest::prelude::*;

fn request(version: Version, level: Level) -> Request {
    Request {
        version,
        level,
        layout: 0x102,
        raid_disks: 4,
        chunk_bytes: if level == Level::Raid1 { 0 } else { 64 << 10 },
        data_offset: None,
        component: None,
        bitmap: BitmapChoice::None,
        parity_log: false,
        bad_block_log: true,
        integrity: true,
    }
}

fn superblocks(request: &Request, member_bytes: u64) -> Superblock {
    let placement = place(request, &[member_bytes; 4]).expect("it fits").remove(0);
    let blueprint = Blueprint {
        version: request.version,
        set_uuid: *b"a set of members",
        set_name: SetName::new("sums").expect("short"),
        created: Timestamp { seconds: 1_700_000_000, micros: 5 },
        level: request.level,
        layout: request.layout,
        raid0_layout: false,
        chunk: Sectors(request.chunk_bytes / 512),
        raid_disks: 4,
        roles: (0..4).map(|slot| DeviceRole::Active(Slot(slot))).collect(),
        resync: Resync::Clean,
        logical_block_bytes: 0,
    };
    Superblock::new(&blueprint, &placement, DeviceNumber(1), [9; 16], member_bytes).expect("it fits")
}

fn superblock() -> Superblock {
    superblocks(&request(Version::V1_2, Level::Raid5), 1 << 30)
}

fn header() -> Header {
    let superblock = superblock();
    Header::new(&superblock, &Layout::of(&superblock).expect("room"), 77)
}

#[test]
fn a_created_array_has_room_for_checksums_and_for_what_md_may_put_there() {
    let levels = [Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10];
    let lengths = [8 << 20, 100 << 20, (1 << 30) + 4096, 9 << 30, 150 << 30, 8 << 40, 1 << 50];
    for version in [Version::V1_1, Version::V1_2] {
        for (level, member_bytes) in levels.into_iter().flat_map(|level| lengths.map(|bytes| (level, bytes))) {
            let superblock = superblocks(&request(version, level), member_bytes);
            let layout = Layout::of(&superblock).unwrap_or_else(|defect| panic!("{level:?} {member_bytes}: {defect}"));
            let component = superblock.data_bytes();
            assert_eq!(layout.blocks(), component / BLOCK_BYTES);
            let [first, second] = layout.headers_at();
            assert_eq!(first.0 + PAGE_BYTES as u64, superblock.data_at().0);
            assert_eq!(superblock.data_at().0 - second.0, bytes_for(component));
            assert_eq!(layout.page_at(0).0, second.0 + PAGE_BYTES as u64);
            assert_eq!(layout.page_at(layout.pages() - 1).0, layout.open_at().0 - PAGE_BYTES as u64);
            assert!(layout.regions() <= Open::REGIONS_MAX);
            // A bitmap that is added later, and the log, end before it.
            assert!(superblock.bitmap_room_max(member_bytes) + superblock.super_at().0 + 4096 <= second.0);
            assert!(superblock.bad_blocks_at().is_none_or(|MemberByte(at)| at + 4096 <= second.0));
        }
    }
}

/// A superblock with too little space before its data: 32 KiB, of which md reserves 16 at this size.
fn tight(level: Level, member_bytes: u64) -> Superblock {
    let data_offset = Some(Sectors(64));
    superblocks(&Request { integrity: false, data_offset, ..request(Version::V1_2, level) }, member_bytes)
}

#[test]
fn where_there_is_too_little_room_before_the_data_checksums_are_at_the_end_of_the_data_area() {
    for (level, member_bytes) in [(Level::Raid1, (1 << 30) + 1536), (Level::Raid5, 100 << 20), (Level::Raid10, 9 << 30)]
    {
        let mut superblock = tight(level, member_bytes);
        let used = superblock.component;
        let refused = Layout::of(&superblock).expect_err("all is used");
        assert_eq!(refused.field, "superblock.data_offset");
        let component = Layout::component_with_room(&superblock).expect("some of it would do");
        let unit = 128; // sectors: of level 1, and of the chunk
        assert!(component < used && component.0.is_multiple_of(unit), "{level:?}: {component:?} of {used:?}");
        superblock.component = Sectors(component.0 + unit);
        assert!(Layout::of(&superblock).is_err(), "{level:?}: {component:?} is not the largest");
        superblock.component = component;
        let layout = Layout::of(&superblock).expect("room");
        let [first, second] = layout.headers_at();
        assert_eq!(first.0 + PAGE_BYTES as u64, member_bytes / 4096 * 4096, "{level:?}");
        assert!(second.0 >= superblock.data_at().0 + superblock.data_bytes(), "{level:?}");
        assert_eq!(first.0 + PAGE_BYTES as u64 - second.0, bytes_for(superblock.data_bytes()), "{level:?}");
        // No area of md may be there.
        let mut with_bitmap = superblock.clone();
        with_bitmap.bitmap = Some(BitmapPlace { sectors_from_superblock: ((second.0 >> 9) + 8) as i32 });
        assert_eq!(Layout::of(&with_bitmap).expect_err("over a bitmap").field, "superblock.data_offset");
        // A component that covers them leaves no checksums.
        let header = Header::new(&superblock, &layout, 77);
        superblock.component = used;
        assert!(Layout::of(&superblock).is_err(), "{level:?}");
        // A component that changes a little makes them invalid, or moves them.
        superblock.component = Sectors(component.0 - unit);
        let other = Layout::of(&superblock).expect("room");
        assert_eq!(header.check(&superblock, &other).expect_err("of another size").field, "checksums.blocks");
        superblock.component = component;
        superblock.data_size = Sectors(superblock.data_size.0 - 8);
        assert!(Layout::of(&superblock).ok().is_none_or(|other| other.headers_at() != layout.headers_at()));
    }
}

proptest! {
    /// A shrink asks for exactly the space that checksums then take, wherever they are.
    #[test]
    fn the_largest_component_with_room_has_room_and_a_larger_one_has_not(
        offset in 4_u64..600,
        member_bytes in 8_u64 << 20..1 << 40,
        level in prop::sample::select(vec![Level::Raid1, Level::Raid5, Level::Raid6]),
    ) {
        let asked = Request {
            integrity: false,
            data_offset: Some(Sectors(offset * 8)),
            ..request(Version::V1_2, level)
        };
        let mut superblock = superblocks(&asked, member_bytes);
        let unit = 128; // sectors: of level 1, and of the chunk
        let component = Layout::component_with_room(&superblock).expect("a large member");
        for (sectors, fits) in [(component.0, true), (component.0 - unit, true), (component.0 + unit, false)] {
            superblock.component = Sectors(sectors);
            if sectors <= superblock.data_size.0 {
                prop_assert_eq!(Layout::of(&superblock).is_ok(), fits, "{} of {}", sectors, component.0);
            }
        }
    }
}

#[test]
fn an_array_that_cannot_have_checksums_is_told_so_by_the_field() {
    let sound = superblock();
    fn log(sectors: i32) -> Option<BadBlockPlace> {
        Some(BadBlockPlace { sectors_from_superblock: sectors, sectors: 8, shift: 0, in_use: false })
    }
    type Change = fn(&mut Superblock);
    let changes: [(&str, Change); 7] = [
        ("superblock.level", |sb| sb.level = Level::Raid0),
        ("superblock.level", |sb| sb.level = Level::Linear),
        ("superblock.super_offset", |sb| sb.version = Version::V1_0),
        ("superblock.data_offset", |sb| sb.data_offset = Sectors(sb.data_offset.0 + 1)),
        ("superblock.data_offset", |sb| sb.data_offset = Sectors(1024)),
        ("superblock.data_offset", |sb| sb.bad_blocks = log(sb.data_offset.0 as i32 - 24)),
        ("superblock.size", |sb| sb.component = Sectors(sb.component.0 - 2)),
    ];
    for (field, change) in changes {
        let mut superblock = sound.clone();
        change(&mut superblock);
        assert_eq!(Layout::of(&superblock).expect_err(field).field, field);
    }
    let mut with_bitmap = sound.clone();
    with_bitmap.bitmap = Some(BitmapPlace { sectors_from_superblock: 8 });
    assert_eq!(Layout::of(&with_bitmap), Layout::of(&sound), "room for it was left");
}

#[test]
fn a_wrong_header_is_refused_by_field_and_the_other_copy_counts() {
    let (sound, superblock) = (header(), superblock());
    let layout = Layout::of(&superblock).expect("room");
    assert_eq!(Header::decode(&sound.encode()), Ok(Some(sound.clone())));
    assert_eq!(Header::decode(&[0; 4096]), Ok(None));
    assert_eq!(Header::decode(&sound.encode()[..511]).expect_err("short").field, "checksums");
    for at in 8..512 {
        let mut damaged = sound.encode();
        damaged[at] ^= 0x10;
        assert_eq!(Header::decode(&damaged).expect_err("damaged").field, "checksums.checksum", "byte {at}");
        let pair = Header::decode_pair([&damaged, &sound.encode()]);
        assert_eq!(pair, Ok(Some(sound.clone())));
        assert!(Header::decode_pair([&damaged, &damaged]).is_err());
    }
    let newer = Header { generation: 2, epoch: 78, ..sound.clone() };
    for pair in [[sound.encode(), newer.encode()], [newer.encode(), sound.encode()]] {
        assert_eq!(Header::decode_pair([&pair[0], &pair[1]]), Ok(Some(newer.clone())));
    }
    let strangers: [(&str, Header); 6] = [
        ("checksums.set_uuid", Header { set_uuid: [0; 16], ..sound.clone() }),
        ("checksums.device_uuid", Header { device_uuid: [0; 16], ..sound.clone() }),
        ("checksums.device_number", Header { device_number: 2, ..sound.clone() }),
        ("checksums.data_offset", Header { data_offset: 8, ..sound.clone() }),
        ("checksums.blocks", Header { blocks: 1, ..sound.clone() }),
        ("checksums.pages_in_region", Header { pages_in_region: 4, ..sound.clone() }),
    ];
    for (field, stranger) in strangers {
        assert_eq!(stranger.check(&superblock, &layout).expect_err(field).field, field);
    }
    assert_eq!(sound.check(&superblock, &layout), Ok(()));
}

/// The header of a blank member of which the second area is touched.
fn blank_header() -> Header {
    let mut touched = Layout::of(&superblock()).expect("room").blank();
    touched.insert(1..2);
    Header { touched, ..header() }
}

#[test]
fn a_header_with_blank_areas_has_a_version_that_older_programs_refuse_and_one_without_has_the_first() {
    let version = |header: &Header| header.encode()[8];
    let (sound, blank) = (header(), blank_header());
    assert_eq!((version(&sound), version(&blank)), (1, 2));
    assert!(sound.encode()[512..].iter().all(|byte| *byte == 0), "as the first version wrote it");
    assert_eq!(Header::decode(&blank.encode()), Ok(Some(blank.clone())));
    let areas = Layout::of(&superblock()).expect("room").regions().div_ceil(REGIONS_IN_AREA);
    assert!(
        (0..areas + 9)
            .map(|area| blank.touched.contains(area))
            .eq((0..areas + 9).map(|area| area == 1 || area >= areas))
    );
    let mut whole = blank.clone();
    whole.touched.insert(0..areas);
    assert_eq!(version(&whole), 1, "no blank area is left");
    let mut third = blank.encode();
    third[8] = 3;
    third[12..16].fill(0);
    let checksum = crc32c::crc32c(&third[..512]);
    third[12..16].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(Header::decode(&third).expect_err("of a newer program").field, "checksums.version");
}

#[test]
fn only_an_area_that_every_sound_copy_calls_blank_is_blank() {
    let blank = blank_header();
    let is_blank = |header: &Header, area| !header.touched.contains(area);
    for at in (512..512 + Touched::BYTES).step_by(61) {
        let mut damaged = blank.encode();
        damaged[at] ^= 0x10;
        let found = Header::decode(&damaged).expect("the header is sound").expect("a header");
        let sector = (at / 512 - 1) as u64 * 4064..(at / 512) as u64 * 4064;
        assert!(sector.clone().all(|area| !is_blank(&found, area)), "byte {at}");
        assert_eq!(is_blank(&found, 0), sector.start > 0, "byte {at}");
    }
    let mut other_epoch = Header { epoch: 78, ..blank.clone() }.encode();
    other_epoch[512..].copy_from_slice(&blank.encode()[512..]);
    let found = Header::decode(&other_epoch).expect("sound").expect("a header");
    assert_eq!(found.touched, Touched::all(), "sealed in another epoch");
    let mut later = Header { generation: 2, ..blank.clone() };
    later.touched.insert(0..1);
    for pair in [[blank.encode(), later.encode()], [later.encode(), blank.encode()]] {
        assert_eq!(Header::decode_pair([&pair[0], &pair[1]]), Ok(Some(later.clone())));
    }
    let earlier = Header { generation: 0, touched: later.touched.clone(), ..blank.clone() };
    let found = Header::decode_pair([&earlier.encode(), &blank.encode()]).expect("sound").expect("a header");
    assert!(!is_blank(&found, 0), "the older copy says so");
    assert_eq!(Header::decode(&blank.encode()[..512]).expect("sound").expect("a header").touched, Touched::all());
}

#[test]
fn a_superblock_of_another_program_is_not_vouched_for() {
    let superblock = superblock();
    let mut header = header();
    assert!(header.vouches_for(&superblock));
    let later = |events, micros| {
        let mut later = superblock.clone();
        (later.events, later.updated) = (events, Timestamp { seconds: 1_700_000_009, micros });
        later
    };
    let next = later(1, 1);
    assert!(!header.vouches_for(&next));
    header.stamps = [Stamp::of(&superblock), Stamp::of(&next)];
    assert!(header.vouches_for(&superblock) && header.vouches_for(&next), "whichever a power loss leaves");
    // The kernel writes whole seconds, and may revert the event that it added.
    let kernels = later(1, 0);
    header.stamps = [Stamp::of(&kernels); 2];
    assert!(!header.vouches_for(&kernels), "even if one of ours had been the same");
    assert!(!header.vouches_for(&later(2, 1)));
}

fn binding() -> Binding {
    header().binding()
}

fn page(entries: &[(usize, u8)]) -> Page {
    let mut page = Page::unknown();
    entries.iter().for_each(|&(at, fill)| page.entries_mut()[at] = Some(Checksum::of(&[fill; 4096])));
    page
}

#[test]
fn a_page_is_accepted_only_at_its_position_and_in_its_epoch() {
    let page = page(&[(0, 1), (500, 2), (1019, 3)]);
    let mut bytes = vec![0; PAGE_BYTES];
    page.encode(&binding(), 5, &mut bytes);
    assert_eq!(Page::decode(&bytes, &binding(), 5), Ok(page));
    assert!(Page::decode(&bytes, &binding(), 6).is_err(), "at another page's place");
    let other_member = Header { device_number: 2, ..header() }.binding();
    assert!(Page::decode(&bytes, &other_member, 5).is_err(), "on another member");
    let later = Binding { epoch: 78, ..binding() };
    assert_eq!(Page::decode(&bytes, &later, 5), Ok(Page::unknown()), "of an earlier epoch");
    assert_eq!(Page::decode(&vec![0; PAGE_BYTES], &binding(), 5), Ok(Page::unknown()), "never written");
    for bit in (0..PAGE_BYTES * 8).step_by(37) {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Page::decode(&damaged, &binding(), 5).is_err(), "bit {bit}");
    }
}

#[test]
fn a_damaged_sector_of_open_regions_opens_them_all() {
    let mut open = Open::none();
    open.insert(3..5);
    open.insert(Open::REGIONS_MAX - 1..Open::REGIONS_MAX);
    let bytes = open.encode(binding().seed);
    assert_eq!(Open::decode(&bytes, binding().seed), open);
    open.remove(4);
    assert!(open.contains(3) && !open.contains(4));
    let in_sector = Open::REGIONS_MAX / 8;
    for sector in 0..8 {
        let mut damaged = bytes.clone();
        damaged[sector * 512 + 77] ^= 1;
        let found = Open::decode(&damaged, binding().seed);
        let all = |index: u64| (index * in_sector..(index + 1) * in_sector).all(|region| found.contains(region));
        assert_eq!((0..8).filter(|&index| all(index)).collect::<Vec<_>>(), [sector as u64]);
    }
    let swapped: Vec<u8> = bytes.chunks(512).rev().flatten().copied().collect();
    assert!((0..Open::REGIONS_MAX).all(|region| Open::decode(&swapped, binding().seed).contains(region)));
}

#[test]
fn a_crc_of_zero_is_still_a_checksum() {
    // The last four bytes determine the CRC linearly, so they are solved for a CRC of 0.
    let nearly = |tail: u32| {
        let mut block = vec![0; 4096];
        block[4092..].copy_from_slice(&tail.to_le_bytes());
        block
    };
    let crc = |block: &[u8]| crc32c::crc32c(block);
    let base = crc(&nearly(0));
    let columns: Vec<u32> = (0..32).map(|bit| crc(&nearly(1 << bit)) ^ base).collect();
    let mut rows: Vec<(u32, u32)> = columns.iter().enumerate().map(|(bit, column)| (*column, 1 << bit)).collect();
    let (mut target, mut solution) = (base, 0);
    for bit in 0..32 {
        let pivot = rows.iter().position(|(column, _)| column >> bit & 1 == 1).expect("CRC is a bijection here");
        let (column, inputs) = rows.swap_remove(pivot);
        for row in rows.iter_mut().filter(|row| row.0 >> bit & 1 == 1) {
            *row = (row.0 ^ column, row.1 ^ inputs);
        }
        if target >> bit & 1 == 1 {
            (target, solution) = (target ^ column, solution ^ inputs);
        }
    }
    let block = nearly(solution);
    assert_eq!(crc(&block), 0);
    let mut page = Page::unknown();
    page.entries_mut()[0] = Some(Checksum::of(&block));
    let mut bytes = vec![0; PAGE_BYTES];
    page.encode(&binding(), 0, &mut bytes);
    assert_eq!(Page::decode(&bytes, &binding(), 0).expect("sound").entries()[0], Some(Checksum::of(&block)));
}

proptest! {
    #[test]
    fn any_page_reads_back(entries in prop::collection::vec((0..PAGE_ENTRIES as usize, any::<u8>()), 0..50), number in 0_u64..1 << 32) {
        let page = page(&entries);
        let mut bytes = vec![0xee; PAGE_BYTES];
        page.encode(&binding(), number, &mut bytes);
        prop_assert_eq!(Page::decode(&bytes, &binding(), number), Ok(page));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 4096), number in any::<u64>()) {
        let _ = Header::decode(&bytes);
        let _ = Page::decode(&bytes, &binding(), number);
        let open = Open::decode(&bytes, binding().seed);
        prop_assert!((0..Open::REGIONS_MAX).all(|region| open.contains(region)), "nothing of it is sealed");
    }
}
