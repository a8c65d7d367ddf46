//! mdadm's ways to write sizes, times, names and layouts.
//!
//! Pure, except for the time zone. Facts: mdadm 4.2's `util.c` (`human_size`), `lib.c` (`print_quoted`), `maps.c`,
//! and its output.

use crate::command::text::wording::civil;
use format::geometry::Level;

/// Below this, mdadm prints no size for people.
const HUMAN_MIN: u64 = 5000 * 1024;

/// Units of a size for people: bytes of the binary and of the decimal one, and their letter. The last column is the
/// limit from which the next unit is used.
const UNITS: [(u64, u64, char, u64); 3] = [
    (1 << 20, 1_000_000, 'M', 2 << 30),
    (1 << 30, 1_000_000_000, 'G', 2 << 40),
    (1 << 40, 1_000_000_000_000, 'T', u64::MAX),
];

fn unit(bytes: u64) -> (u64, u64, char) {
    let (binary, decimal, letter, _) =
        UNITS.into_iter().find(|(.., limit)| bytes < *limit).expect("the last unit has no limit");
    (binary, decimal, letter)
}

/// Hundredths of a binary unit, as mdadm rounds them.
fn binary(bytes: u64, unit: u64) -> String {
    hundredths((u128::from(bytes) * 200 / u128::from(unit)).div_ceil(2))
}

/// Hundredths of a decimal unit, as mdadm rounds them.
fn decimal(bytes: u64, unit: u64) -> String {
    hundredths(u128::from(bytes / (unit / 200)).div_ceil(2))
}

fn hundredths(number: u128) -> String {
    format!("{}.{:02}", number / 100, number % 100)
}

/// ` (28.00 MiB 29.36 MB)`; nothing for a small size.
pub(super) fn human(bytes: u64) -> String {
    if bytes < HUMAN_MIN {
        return String::new();
    }
    let (of_1024, of_1000, letter) = unit(bytes);
    format!(" ({} {letter}iB {} {letter}B)", binary(bytes, of_1024), decimal(bytes, of_1000))
}

/// `29.36MB`; nothing for a small size.
pub(super) fn human_decimal(bytes: u64) -> String {
    let (_, of_1000, letter) = unit(bytes);
    if bytes < HUMAN_MIN { String::new() } else { format!("{}{letter}B", decimal(bytes, of_1000)) }
}

/// `28.00MiB`; nothing for a small size.
pub(super) fn human_binary(bytes: u64) -> String {
    let (of_1024, _, letter) = unit(bytes);
    if bytes < HUMAN_MIN { String::new() } else { format!("{}{letter}iB", binary(bytes, of_1024)) }
}

/// `64 KB`: a bitmap's chunk.
pub(super) fn chunk_text(bytes: u64) -> String {
    let mut units = ["B", "KB", "MB", "GB", "TB"].into_iter();
    let (mut rest, mut unit) = (bytes, units.next().expect("there are units"));
    while rest >= 1024
        && let Some(next) = units.next()
    {
        (rest, unit) = (rest / 1024, next);
    }
    format!("{rest} {unit}")
}

/// Seconds since 1970 as ctime(3) writes them, in the local time zone.
pub(super) fn local_time(seconds: u64) -> String {
    let offset = tz::TimeZone::local().ok().and_then(|zone| {
        let kind = zone.find_local_time_type(seconds.cast_signed()).ok()?;
        Some(i64::from(kind.ut_offset()))
    });
    time_text(seconds.saturating_add_signed(offset.unwrap_or(0)))
}

fn time_text(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (weekday, month) = (DAYS[(days % 7) as usize], MONTHS[month as usize - 1]);
    format!("{weekday} {month} {day:2} {:02}:{:02}:{:02} {year}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// A name in quotes, if it needs them, as in mdadm.conf.
pub(super) fn quoted(name: &str) -> String {
    if !name.contains([' ', '\t', '\'', '"']) {
        return name.to_owned();
    }
    let quote = if name.contains('"') { '\'' } else { '"' };
    format!("{quote}{name}{quote}")
}

/// The name of a layout, where `--examine` and `--detail` print one.
pub(super) fn layout_name(level: Level, layout: u32, raid0_layout: bool) -> Option<String> {
    const ORDERS: [&str; 6] =
        ["left-asymmetric", "right-asymmetric", "left-symmetric", "right-symmetric", "parity-first", "parity-last"];
    let order = || ORDERS.get(layout as usize).map(|name| (*name).to_owned());
    let name = match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => return None,
        Level::Raid0 if !raid0_layout => return None,
        Level::Raid0 => ["dangerous", "original", "alternate"].get(layout as usize).map(|name| (*name).to_owned()),
        Level::Raid5 => order(),
        Level::Raid6 => order().or_else(|| {
            let name = match layout {
                8 => "ddf-zero-restart",
                9 => "ddf-N-restart",
                10 => "ddf-N-continue",
                16 => "left-asymmetric-6",
                17 => "right-asymmetric-6",
                18 => "left-symmetric-6",
                19 => "right-symmetric-6",
                20 => "parity-first-6",
                _ => return None,
            };
            Some(name.to_owned())
        }),
        Level::Raid10 => Some(raid10_layout(layout)),
    };
    Some(name.unwrap_or_else(|| "-unknown-".to_owned()))
}

/// `near=2, far=2`
fn raid10_layout(layout: u32) -> String {
    let (near, far) = (layout & 255, layout >> 8 & 255);
    let word = if layout & 0x1_0000 == 0 { "far" } else { "offset" };
    let parts = [(near != 1).then(|| format!("near={near}")), (far != 1).then(|| format!("{word}={far}"))];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "NO REDUNDANCY".to_owned() } else { parts.join(", ") }
}

/// Bytes of the array, by the number of slots and bytes used of each member; `None` where the superblock does not say.
pub(super) fn array_bytes(level: Level, slots: u64, component_bytes: u64, layout: u32) -> Option<u64> {
    let (members, copies) = match level {
        Level::Linear | Level::Raid0 => return None,
        Level::Raid1 => (1, 1),
        Level::Raid4 | Level::Raid5 => (slots.checked_sub(1)?, 1),
        Level::Raid6 => (slots.checked_sub(2)?, 1),
        Level::Raid10 => (slots, u64::from((layout & 255) * (layout >> 8 & 255))),
    };
    let bytes = u128::from(component_bytes) * u128::from(members) / u128::from(copies.max(1));
    u64::try_from(bytes).ok().filter(|_| members > 0)
}

/// `  (local to host HOST)`, if the name begins with this host.
pub(super) fn locality(name: &str, host: Option<&str>) -> String {
    match (host, name.split_once(':')) {
        (Some(host), Some((of, _))) if !host.is_empty() && of == host => format!("  (local to host {host})"),
        _ => String::new(),
    }
}

/// The part of an array's name behind the host.
pub(super) fn without_host(name: &str) -> &str {
    name.split_once(':').map_or(name, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_mdadm() {
        for (bytes, expected) in [
            (5000 * 1024 - 1, ""),
            (14_680_064, " (14.00 MiB 14.68 MB)"),
            (8_128 * 1024, " (7.94 MiB 8.32 MB)"),
            (2 << 30, " (2.00 GiB 2.15 GB)"),
            (2 << 40, " (2.00 TiB 2.20 TB)"),
        ] {
            assert_eq!(human(bytes), expected);
        }
        assert_eq!(
            (human_decimal(29_360_128), human_binary(29_360_128)),
            ("29.36MB".to_owned(), "28.00MiB".to_owned())
        );
        for (bytes, expected) in [(512, "512 B"), (65_536, "64 KB"), (64 << 20, "64 MB"), (2 << 30, "2 GB")] {
            assert_eq!(chunk_text(bytes), expected);
        }
    }

    #[test]
    fn times_are_those_of_ctime() {
        for (seconds, expected) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (1_795_249_848, "Sat Nov 21 08:30:48 2026"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
        ] {
            assert_eq!(time_text(seconds), expected);
        }
    }

    #[test]
    fn names_are_quoted_only_where_they_must_be() {
        for (name, expected) in [("host:0", "host:0"), ("my data", "\"my data\""), ("a\"b", "'a\"b'")] {
            assert_eq!(quoted(name), expected);
        }
        assert_eq!(locality("nas:0", Some("nas")), "  (local to host nas)");
        assert_eq!((locality("nas:0", Some("na")), locality("0", Some(""))), (String::new(), String::new()));
    }
}
