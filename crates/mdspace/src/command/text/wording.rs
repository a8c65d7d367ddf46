//! Phrases that several commands print: an array in a line, dates, durations.

use crate::command::text::size::Size;

/// An array in one line.
pub(crate) fn describe(name: &str, level: &str, bytes: u64, state: &str) -> String {
    let name = if name.is_empty() { "array".to_owned() } else { format!("array \"{name}\"") };
    format!("{name}: {level}, {}, {state}", Size(bytes))
}

/// `5:07 min`
pub(crate) fn minutes(seconds: u64) -> String {
    format!("{}:{:02} min", seconds / 60, seconds % 60)
}

/// The date and time of a number of seconds since 1970.
pub(crate) fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3600, rest / 60 % 60, rest % 60)
}

/// The Gregorian date of a day counted from 1970-01-01. The computation uses years that begin in March, so that a leap
/// day is the last day of its year.
pub(crate) fn civil(days: u64) -> (u64, u64, u64) {
    let from_march_of_year_0 = days + 719_468;
    let (era, day_of_era) = (from_march_of_year_0 / 146_097, from_march_of_year_0 % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_of_the_gregorian_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
            (1_795_255_200, "2026-11-21 10:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
