//! Levels and layouts by the names that mdadm's users know.
//!
//! The geometry checks whether a layout fits the number of members.

use format::geometry::{self, Level};

/// Reads `--level`.
pub(crate) fn parse_level(text: &str) -> Result<Level, String> {
    let lower = text.to_ascii_lowercase();
    match lower.strip_prefix("raid").map_or(&*lower, |rest| rest.trim_start_matches('-')) {
        "linear" => Ok(Level::Linear),
        "0" | "stripe" => Ok(Level::Raid0),
        "1" | "mirror" => Ok(Level::Raid1),
        "4" => Ok(Level::Raid4),
        "5" => Ok(Level::Raid5),
        "6" => Ok(Level::Raid6),
        "10" => Ok(Level::Raid10),
        _ => Err("expected linear, 0, 1, 4, 5, 6 or 10".to_owned()),
    }
}

/// A level's name for users: `RAID-5`.
pub(crate) fn level_name(level: Level) -> &'static str {
    match level {
        Level::Linear => "linear",
        Level::Raid0 => "RAID-0",
        Level::Raid1 => "RAID-1",
        Level::Raid4 => "RAID-4",
        Level::Raid5 => "RAID-5",
        Level::Raid6 => "RAID-6",
        Level::Raid10 => "RAID-10",
    }
}

/// The code of `text`, a layout of `level`, by mdadm's names.
pub(crate) fn parse_layout(level: Level, text: &str) -> Result<u32, String> {
    geometry::parse_layout(level, text)
        .ok_or_else(|| format!("{} has no layout `{text}`; {}", level_name(level), layouts_of(level)))
}

/// mdadm's word for a layout, which [`parse_layout`] takes; `None` where the level has only one, and for RAID-10's
/// layouts that have no word.
pub(crate) fn layout_word(level: Level, layout: u32) -> Option<String> {
    const RAID5: [&str; 6] = ["la", "ra", "ls", "rs", "parity-first", "parity-last"];
    const RAID6: [&str; 8] =
        ["la-6", "ra-6", "ls-6", "rs-6", "parity-first-6", "ddf-zero-restart", "ddf-N-restart", "ddf-N-continue"];
    let words: Vec<String> = match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => Vec::new(),
        Level::Raid0 => ["original", "alternate"].map(str::to_owned).into(),
        Level::Raid5 => RAID5.map(str::to_owned).into(),
        Level::Raid6 => RAID5.iter().chain(&RAID6).map(|word| (*word).to_owned()).collect(),
        Level::Raid10 => {
            let copies = (layout & 0xff).max(layout >> 8 & 0xff);
            ["n", "f", "o"].map(|letter| format!("{letter}{copies}")).into()
        }
    };
    words.into_iter().find(|word| geometry::parse_layout(level, word) == Some(layout))
}

/// The layouts of `level`, as advice.
fn layouts_of(level: Level) -> &'static str {
    match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => "it has only one",
        Level::Raid0 => "choose original or alternate",
        Level::Raid5 => {
            "choose left-symmetric (ls), left-asymmetric (la), right-symmetric (rs), right-asymmetric (ra), \
             parity-first or parity-last"
        }
        Level::Raid6 => {
            "choose one of RAID-5's, one of RAID-5's followed by -6 (Q on the last member), \
             ddf-zero-restart, ddf-N-restart or ddf-N-continue"
        }
        Level::Raid10 => "choose n, f or o (near, far, offset) and the number of copies, such as n2",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_go_by_number_and_by_name() {
        for (text, level) in [
            ("5", Level::Raid5),
            ("raid5", Level::Raid5),
            ("RAID-6", Level::Raid6),
            ("10", Level::Raid10),
            ("mirror", Level::Raid1),
            ("stripe", Level::Raid0),
            ("linear", Level::Linear),
            ("4", Level::Raid4),
        ] {
            assert_eq!(parse_level(text), Ok(level), "{text}");
        }
        for text in ["", "2", "3", "7", "raid", "-5", "5x"] {
            parse_level(text).expect_err(text);
        }
    }

    #[test]
    fn every_layout_that_the_advice_names_is_accepted_and_no_other() {
        for (level, names) in [
            (Level::Raid0, "original alternate"),
            (Level::Raid5, "left-symmetric ls la rs ra right-asymmetric parity-first parity-last"),
            (Level::Raid6, "ls ls-6 left-symmetric-6 parity-first-6 ddf-zero-restart ddf-N-restart ddf-N-continue"),
            (Level::Raid10, "n2 f2 o3"),
        ] {
            for name in names.split(' ') {
                parse_layout(level, name).unwrap_or_else(|error| panic!("{error}"));
            }
        }
        for (level, text, reason) in [
            (Level::Raid1, "n2", "only one"),
            (Level::Raid4, "ls", "only one"),
            (Level::Raid5, "ddf-zero-restart", "left-symmetric (ls)"),
            (Level::Raid6, "n2", "ddf-N-continue"),
            (Level::Raid10, "ls", "n2"),
            (Level::Raid10, "", "n2"),
            (Level::Raid0, "n2", "original"),
        ] {
            let error = parse_layout(level, text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
