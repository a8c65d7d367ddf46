//! Placement against real mdadm. `fixtures/placements.txt` holds mdadm 4.2's positions for many lengths, versions and
//! options (`tests/kernel/placements.sh` creates it again). `place` must return the same positions. No test changes the
//! fixture.

use std::fs;
use std::path::Path;

use mdspace_format::bitmap::Kind;
use mdspace_format::geometry::Level;
use mdspace_format::placement::{BitmapChoice, BitmapPlacement, Placement, Request, place};
use mdspace_format::superblock::Version;
use mdspace_format::units::Sectors;

/// One creation by mdadm.
struct Case {
    line: String,
    request: Request,
    members_bytes: Vec<u64>,
    /// mdadm's description of the first member, or of each. Empty: mdadm refused.
    described: Vec<String>,
}

fn cases() -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/placements.txt");
    let mut cases: Vec<Case> = Vec::new();
    for line in fs::read_to_string(path).expect("made by the kernel's script").lines() {
        if line.starts_with(char::is_numeric) {
            cases.push(Case::parse(line));
            continue;
        }
        let described = &mut cases.last_mut().expect("a request comes first").described;
        if line.trim() == "refused" {
            continue;
        }
        if described.is_empty() || line.starts_with("  /dev/loop") && !described.iter().all(String::is_empty) {
            described.push(String::new());
        }
        if !line.starts_with("  /dev/loop") {
            let last = described.last_mut().expect("just pushed");
            last.push_str(line);
            last.push('\n');
        }
    }
    cases
}

impl Case {
    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let [version, level, chunk_kib, bitmap, data_offset, sizes] = words[..] else { panic!("{line}") };
        let sectors = sizes.split(',').map(|size| size.parse::<u64>().expect("sectors"));
        let members_bytes: Vec<u64> = sectors.map(|sectors| sectors * 512).collect();
        let version: Version = version.parse().expect("a version");
        let request = Request {
            version,
            level: match level {
                "linear" => Level::Linear,
                "0" => Level::Raid0,
                "1" => Level::Raid1,
                "5" => Level::Raid5,
                "10" => Level::Raid10,
                other => panic!("{other}"),
            },
            layout: if level == "10" { 0x102 } else { 0 },
            raid_disks: members_bytes.len() as u16,
            chunk_bytes: chunk_kib.parse::<u64>().expect("KiB") * 1024,
            data_offset: data_offset.parse().ok().map(|kib: u64| Sectors(kib * 2)),
            component: None,
            bitmap: match bitmap {
                "none" => BitmapChoice::None,
                "auto" => BitmapChoice::Auto,
                "internal" => BitmapChoice::DefaultChunk,
                kib => BitmapChoice::Chunk(kib.parse::<u64>().expect("KiB") * 1024),
            },
            parity_log: false,
            bad_block_log: true,
            integrity: false,
        };
        Self { line: line.to_owned(), request, members_bytes, described: Vec::new() }
    }
}

/// The number after `label : `.
fn printed(text: &str, label: &str) -> Option<i64> {
    let rest = text.lines().find_map(|line| line.trim_start().strip_prefix(label)?.trim_start().strip_prefix(':'))?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(rest.len());
    Some(rest[..end].parse().expect("a number"))
}

/// The placement in mdadm's terms: super offset, data offset, data size, component, log, bitmap.
fn in_mdadms_terms(placement: &Placement, level: Level) -> [Option<i64>; 6] {
    let meaningful = !matches!(level, Level::Linear | Level::Raid0);
    [
        Some(placement.super_offset.0 as i64),
        (placement.data_offset.0 != 0).then_some(placement.data_offset.0 as i64),
        Some(placement.data_size.0 as i64),
        meaningful.then_some(placement.component.0 as i64),
        placement.bad_blocks.map(|log| log.sectors_from_superblock.into()),
        placement.bitmap.map(|bitmap| bitmap.place.sectors_from_superblock.into()),
    ]
}

fn expected(text: &str, level: Level) -> [Option<i64>; 6] {
    let meaningful = !matches!(level, Level::Linear | Level::Raid0);
    let data_size = printed(text, "Avail Dev Size");
    // The log's line is "512 entries available at offset N sectors".
    let log = text.lines().find_map(|line| line.trim_start().strip_prefix("Bad Block Log : "));
    let log = log.and_then(|line| line.split("offset ").nth(1)?.split(' ').next()?.parse().ok());
    let bitmap = printed(text, "Internal Bitmap");
    // With a bitmap, and a data offset without further space, mdadm 4.2 puts the log over the bitmap. This crate
    // creates no log there.
    let log = log.filter(|log| Some(*log) != bitmap);
    [
        printed(text, "Super Offset"),
        printed(text, "Data Offset"),
        data_size,
        printed(text, "Used Dev Size").or(data_size).filter(|_| meaningful),
        log,
        bitmap,
    ]
}

#[test]
fn everything_goes_where_mdadm_puts_it() {
    let mut compared = 0;
    for case in cases() {
        let line = &case.line;
        let Ok(placements) = place(&case.request, &case.members_bytes) else {
            assert!(case.described.is_empty(), "{line}: mdadm created it");
            continue;
        };
        for (member, (described, placement)) in case.described.iter().zip(&placements).enumerate() {
            let level = case.request.level;
            assert_eq!(in_mdadms_terms(placement, level), expected(described, level), "{line}: member {member}");
            if let Some(bitmap) = placement.bitmap {
                let bits = bitmap.sync_size.bytes().div_ceil(bitmap.chunk_bytes);
                assert_eq!(Some(bits as i64), printed(described, "Bitmap"), "{line}");
                assert_eq!(Some(bitmap.sync_size.0 as i64 / 2), printed(described, "Sync Size"), "{line}");
            }
            compared += 1;
        }
    }
    assert!(compared > 150, "only {compared} members");
}

/// The bitmap of a RAID-1 with this many sectors of data.
fn bitmap(version: Version, component: u64, bitmap: BitmapChoice) -> Option<BitmapPlacement> {
    let request = Request {
        version,
        level: Level::Raid1,
        layout: 0,
        raid_disks: 2,
        chunk_bytes: 0,
        data_offset: None,
        component: Some(Sectors(component)),
        bitmap,
        parity_log: false,
        bad_block_log: true,
        integrity: false,
    };
    place(&request, &[200 << 30, 200 << 30]).expect("it fits")[0].bitmap
}

#[test]
fn a_bitmap_is_made_unasked_above_100_gib() {
    let gib = 1 << 21;
    for version in [Version::V1_0, Version::V1_2] {
        assert!(bitmap(version, 100 * gib, BitmapChoice::Auto).is_none());
        assert!(bitmap(version, 100 * gib + 128, BitmapChoice::Auto).is_some());
    }
}

#[test]
fn a_bitmap_takes_whole_blocks() {
    // A block of 4 KiB holds the superblock and 30720 bits.
    for (bits, bytes) in [(30_720, 4096), (30_721, 8192), (2 * 32_768 - 2048, 8192)] {
        let bitmap = bitmap(Version::V1_2, bits * 2048, BitmapChoice::Chunk(1 << 20)).expect("asked for");
        assert_eq!((bitmap.sync_size.0 / 2048, bitmap.bytes), (bits, bytes));
    }
}

#[test]
fn a_lockless_bitmap_has_mds_chunk_and_at_most_128_kib() {
    // 624 chunks; as many as fit 128 KiB behind the first one; one more.
    let most = 131_072 - 1024;
    for (chunks, chunk_kib, bytes) in [(624, 64, 4096), (3072, 64, 4096), (most, 64, 131_072), (most + 1, 128, 69_632)]
    {
        for version in [Version::V1_1, Version::V1_2] {
            let bitmap = bitmap(version, chunks * 128, BitmapChoice::Lockless(None)).expect("asked for");
            assert_eq!((bitmap.kind, bitmap.chunk_bytes >> 10, bitmap.bytes), (Kind::Lockless, chunk_kib, bytes));
        }
    }
    let bitmap = bitmap(Version::V1_2, 624 * 128, BitmapChoice::Lockless(Some(4 << 20))).expect("asked for");
    assert_eq!((bitmap.chunk_bytes, bitmap.bytes), (4 << 20, 4096));
}

#[test]
fn what_mdadm_refuses_is_refused() {
    let refused: Vec<Case> = cases().into_iter().filter(|case| case.described.is_empty()).collect();
    assert!(!refused.is_empty());
    for case in refused {
        assert!(place(&case.request, &case.members_bytes).is_err(), "{}", case.line);
    }
}
