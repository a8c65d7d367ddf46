//! What the state of an array and of its members looks like to a person.
//!
//! The same words as in JSON, so that one can be found in the other.

use crate::output::columns;
use crate::size::Size;
use engine::status::Examination;
use serde::Deserialize;

/// One line about an array.
pub(crate) fn describe(name: &str, level: &str, bytes: u64, state: &str) -> String {
    let name = if name.is_empty() { "array".to_owned() } else { format!("array \"{}\"", name.escape_default()) };
    format!("{name}: {level}, {}, {state}", Size(bytes))
}

/// The fields of a served array's status that are printed.
#[derive(Debug, Deserialize)]
pub(crate) struct StatusView {
    uuid: String,
    name: String,
    metadata: String,
    level: String,
    layout: Option<String>,
    chunk_bytes: u64,
    stripe_size_bytes: Option<u64>,
    array_bytes: u64,
    raid_disks: u16,
    in_sync: u16,
    state: String,
    /// Why the array takes no writes, when it does not.
    pub(crate) broken: Option<String>,
    read_only: bool,
    sync_action: String,
    sweep: Option<SweepView>,
    sweep_failure: Option<String>,
    events: u64,
    kernel: String,
    bitmap: Option<BitmapView>,
    members: Vec<MemberView>,
    missing: Vec<u16>,
    left_out: Vec<LeftOutView>,
    served: ServedView,
}

#[derive(Debug, Deserialize)]
struct SweepView {
    action: String,
    done_bytes: u64,
    total_bytes: u64,
    percent: f64,
    bytes_per_second: u64,
    seconds_left: Option<u64>,
}

impl SweepView {
    /// A line as in /proc/mdstat.
    fn text(&self) -> String {
        let Self { action, percent, .. } = self;
        let (done, total, rate) = (Size(self.done_bytes), Size(self.total_bytes), Size(self.bytes_per_second));
        let left = self.seconds_left.map(|seconds| format!(", finish in {}", minutes(seconds))).unwrap_or_default();
        format!("  {action}: {percent:.1} % ({done} of {total}), {rate}/s{left}\n")
    }
}

fn minutes(seconds: u64) -> String {
    format!("{}:{:02} min", seconds / 60, seconds % 60)
}

#[derive(Debug, Deserialize)]
struct BitmapView {
    set: u64,
    bits: u64,
    chunk_bytes: u64,
    pages: u64,
    file: Option<String>,
}

impl BitmapView {
    /// In the words of mdadm's `--examine-bitmap` and of /proc/mdstat.
    fn text(&self) -> String {
        let Self { set, bits, pages, .. } = self;
        let place = self.file.as_ref().map_or("internal".to_owned(), |file| format!("file: {file}"));
        format!("bitmap: {bits} bits (chunks), {set} dirty, {} chunk, {pages} pages, {place}", Size(self.chunk_bytes))
    }
}

#[derive(Debug, Deserialize)]
struct MemberView {
    name: String,
    slot: Option<u16>,
    state: String,
    read_bytes: u64,
    written_bytes: u64,
    errors: u64,
}

#[derive(Debug, Deserialize)]
struct LeftOutView {
    name: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
struct ServedView {
    nbd: String,
    clients: usize,
}

impl StatusView {
    /// The whole report.
    pub(crate) fn text(&self) -> String {
        let mut text = describe(&self.name, &self.level, self.array_bytes, &self.state);
        let chunk = if self.chunk_bytes > 0 { format!(", chunk {}", Size(self.chunk_bytes)) } else { String::new() };
        let unit = self.stripe_size_bytes.map(|bytes| format!(", stripe size {}", Size(bytes))).unwrap_or_default();
        let layout = self.layout.as_ref().map(|layout| format!(", {layout}")).unwrap_or_default();
        let read_only = if self.read_only { ", read-only" } else { "" };
        text += &format!("{read_only}\n  uuid {}, metadata {}{chunk}{layout}{unit}\n", self.uuid, self.metadata);
        let (in_sync, slots) = (self.in_sync, self.raid_disks);
        text += &format!("  {in_sync} of {slots} members in sync, events {}, parity by {}\n", self.events, self.kernel);
        if let Some(bitmap) = &self.bitmap {
            text += &format!("  {}\n", bitmap.text());
        }
        text += &format!("  {}, clients: {}\n", self.served.nbd, self.served.clients);
        if let Some(reason) = &self.broken {
            text += &format!("  takes no writes: {reason}\n");
        }
        match &self.sweep {
            Some(sweep) => text += &sweep.text(),
            None if self.sync_action == "frozen" => text += "  resync and recovery are frozen\n",
            None => {}
        }
        if let Some(reason) = &self.sweep_failure {
            text += &format!("  cannot go on with resync or recovery: {reason}\n");
        }
        text += &columns(&self.rows());
        for left_out in &self.left_out {
            text += &format!("not used: {}: {}\n", left_out.name, left_out.reason);
        }
        text
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let heading = ["slot", "member", "state", "read", "written", "errors"];
        let missing = self.missing.iter().map(|slot| (Some(*slot), vec![slot.to_string(), "missing".to_owned()]));
        let members = self.members.iter().map(|member| {
            let slot = member.slot.map_or("-".to_owned(), |slot| slot.to_string());
            let (read, written) = (Size(member.read_bytes).to_string(), Size(member.written_bytes).to_string());
            let row = vec![slot, member.name.clone(), member.state.clone(), read, written, member.errors.to_string()];
            (member.slot, row)
        });
        let mut rows: Vec<_> = missing.chain(members).collect();
        rows.sort_by_key(|(slot, _)| slot.unwrap_or(u16::MAX));
        std::iter::once(heading.map(str::to_owned).to_vec()).chain(rows.into_iter().map(|(_, row)| row)).collect()
    }
}

/// What is on one member.
pub(crate) fn examination(member: &Examination) -> String {
    let offset = |at: Option<u64>| at.map_or("none".to_owned(), |at| format!("at byte {at}"));
    let chunk = if member.chunk_bytes > 0 { format!(", chunk {}", Size(member.chunk_bytes)) } else { String::new() };
    let uuid = member.device_uuid.as_deref().unwrap_or("none");
    let features = if member.features.is_empty() { "none".to_owned() } else { member.features.join(", ") };
    let rows = [
        ("array", format!("{} \"{}\"", member.array_uuid, member.array_name.escape_default())),
        ("level", format!("{}, {} slots, layout {}{chunk}", member.level, member.raid_disks, member.layout)),
        ("metadata", format!("{} at byte {}, features: {features}", member.metadata, member.superblock_at)),
        ("role", format!("{}, device number {}, of {}", member.role, member.device_number, member.array_state)),
        ("state", format!("{}, events {}", member.state, member.events)),
        ("device", format!("{uuid}, {}", Size(member.member_bytes))),
        ("data", format!("from byte {}, {}", member.data_at, Size(member.data_bytes))),
        ("bitmap", offset(member.bitmap_at)),
        ("bad blocks", offset(member.bad_blocks_at)),
        ("created", utc(member.created)),
        ("updated", utc(member.updated)),
    ];
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(key, value)| vec![format!("  {key}"), value]).collect();
    format!("{}\n{}", member.name, columns(&rows))
}

/// Seconds since 1970 as a date and time.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3600, rest / 60 % 60, rest % 60)
}

/// The Gregorian date of a day counted from 1970-01-01. Years begin in March
/// here, so that a leap day is the last of its year.
fn civil(days: u64) -> (u64, u64, u64) {
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
