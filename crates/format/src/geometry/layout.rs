//! Layouts by mdadm's names.
//!
//! Names and numbers only; the module of each level gives a layout its meaning. Sources: mdadm(8) under `--layout`,
//! md(4).

use super::Level;
use super::parity::{RAID5_LAYOUTS, RAID6_LAYOUTS};

/// RAID-0: the layout before Linux 3.14.
pub(super) const RAID0_ORIGINAL: u32 = 1;
/// RAID-0: the layout since Linux 3.14.
pub(super) const RAID0_ALTERNATE: u32 = 2;

/// RAID-10: `near_copies | far_copies << 8`, and this bit for offset copies.
pub(super) const RAID10_OFFSET: u32 = 1 << 16;
/// RAID-10: the variant of far sets is in the bits from here on.
pub(super) const RAID10_FAR_SETS_SHIFT: u32 = 17;

/// mdadm's default layout.
pub fn default_layout(level: Level) -> u32 {
    match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => 0,
        Level::Raid0 => RAID0_ORIGINAL,
        Level::Raid5 | Level::Raid6 => 2,
        Level::Raid10 => 0x102,
    }
}

/// The layout with mdadm's `--layout` name `name`, or `None`. Accepts mdadm's abbreviations too: `ls`, `n2`, `f3`,
/// `o2`.
pub fn parse_layout(level: Level, name: &str) -> Option<u32> {
    match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => None,
        Level::Raid0 => match name {
            "original" => Some(RAID0_ORIGINAL),
            "alternate" => Some(RAID0_ALTERNATE),
            _ => None,
        },
        Level::Raid5 => named(&RAID5_LAYOUTS, name),
        Level::Raid6 => named(&RAID6_LAYOUTS, name),
        Level::Raid10 => parse_raid10(name),
    }
}

fn named(layouts: &[super::parity::Layout], name: &str) -> Option<u32> {
    let name = match name {
        "la" => "left-asymmetric",
        "ra" => "right-asymmetric",
        "ls" | "default" => "left-symmetric",
        "rs" => "right-symmetric",
        "la-6" => "left-asymmetric-6",
        "ra-6" => "right-asymmetric-6",
        "ls-6" => "left-symmetric-6",
        "rs-6" => "right-symmetric-6",
        other => other,
    };
    layouts.iter().find(|layout| layout.name == name).map(|layout| layout.number)
}

/// Parses one letter and a number of copies.
fn parse_raid10(name: &str) -> Option<u32> {
    let copies: u8 = name.get(1..)?.parse().ok()?;
    let copies = u32::from(copies);
    match (name.as_bytes()[0], copies) {
        (_, 0) => None,
        (b'n', _) => Some(copies | 1 << 8),
        (b'f', _) => Some(1 | copies << 8),
        (b'o', _) => Some(1 | copies << 8 | RAID10_OFFSET),
        _ => None,
    }
}

/// A RAID-10 layout as mdadm's `--detail` prints it. mdadm has no word for far sets; they are added in md(4)'s words.
pub(super) fn raid10_name(layout: u32) -> String {
    let (near, far) = (layout & 0xff, layout >> 8 & 0xff);
    let mut words = Vec::new();
    if near != 1 {
        words.push(format!("near={near}"));
    }
    if far != 1 {
        let word = if layout & RAID10_OFFSET == 0 { "far" } else { "offset" };
        words.push(format!("{word}={far}"));
    }
    match layout >> RAID10_FAR_SETS_SHIFT {
        0 => {}
        1 => words.push("far sets, flawed".to_owned()),
        _ => words.push("far sets".to_owned()),
    }
    words.join(", ")
}
