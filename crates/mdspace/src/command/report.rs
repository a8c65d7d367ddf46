//! What the state of an array and of its members looks like to a person.
//!
//! The same words as in JSON, so that one can be found in the other.

use crate::command::figures::{Figures, time};
use crate::command::output::columns;
use crate::command::size::Size;
use engine::examined::{BadBlocksExamined, BitmapExamined, ReshapeExamined};
use engine::status::Examination;
use serde::Deserialize;

/// One line about an array.
pub(crate) fn describe(name: &str, level: &str, bytes: u64, state: &str) -> String {
    let name = if name.is_empty() { "array".to_owned() } else { format!("array \"{name}\"") };
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
    component_bytes: u64,
    created: u64,
    updated: u64,
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
    cache: CacheView,
    bitmap: Option<BitmapView>,
    checksums: Option<ChecksumsView>,
    members: Vec<MemberView>,
    missing: Vec<u16>,
    left_out: Vec<LeftOutView>,
    /// What was accepted by `--force`; servers of before do not say.
    #[serde(default)]
    warnings: Vec<String>,
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
    #[serde(default)]
    paused: bool,
    #[serde(default)]
    held_by: Option<String>,
}

impl SweepView {
    /// A line as in /proc/mdstat.
    fn text(&self) -> String {
        let Self { action, percent, .. } = self;
        let (done, total, rate) = (Size(self.done_bytes), Size(self.total_bytes), Size(self.bytes_per_second));
        if self.paused {
            return format!("  {action}: {percent:.1} % ({done} of {total}), paused\n");
        }
        let left = self.seconds_left.map(|seconds| format!(", finish in {}", minutes(seconds))).unwrap_or_default();
        let held = match self.held_by.as_deref() {
            Some("requests") => ", yields to requests (faster: set sync-speed-min)".to_owned(),
            Some(setting) => format!(", held by {setting}"),
            None => String::new(),
        };
        format!("  {action}: {percent:.1} % ({done} of {total}), {rate}/s{left}{held}\n")
    }
}

/// `5:07 min`
pub(crate) fn minutes(seconds: u64) -> String {
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
struct ChecksumsView {
    members: u16,
    current: u16,
    verify: String,
    wrong: u64,
    unknown_bytes: u64,
    uncounted_bytes: u64,
}

impl ChecksumsView {
    fn text(&self) -> String {
        let Self { members, current, verify, wrong, unknown_bytes, uncounted_bytes } = self;
        let unknown = match unknown_bytes {
            0 => String::new(),
            bytes if current < members => format!(", unknown of {} since others wrote", Size(*bytes)),
            bytes => format!(", unknown of {}", Size(*bytes)),
        };
        let uncounted = match uncounted_bytes {
            0 => String::new(),
            bytes => format!(", of {} not looked at yet whether they are known", Size(*bytes)),
        };
        format!("checksums: on {members} members{unknown}{uncounted}, verified: {verify}, wrong blocks found: {wrong}")
    }
}

#[derive(Debug, Deserialize)]
struct CacheView {
    bytes_max: u64,
    bytes: u64,
    recalled_bytes: u64,
    waiting_bytes: u64,
}

#[derive(Debug, Deserialize)]
struct MemberView {
    name: String,
    slot: Option<u16>,
    state: String,
    read_bytes: u64,
    written_bytes: u64,
    errors: u64,
    #[serde(default)]
    corrupt_blocks: u64,
    #[serde(default)]
    healed_bytes: u64,
    #[serde(default)]
    to_heal_bytes: u64,
}

impl MemberView {
    /// What reads found wrong of it, and what became of that; nothing where there was nothing.
    fn healing(&self) -> Option<String> {
        let Self { name, corrupt_blocks, healed_bytes, to_heal_bytes, .. } = self;
        let parts = [
            (*corrupt_blocks > 0).then(|| format!("{corrupt_blocks} blocks wrong by their checksums")),
            (*healed_bytes > 0).then(|| format!("{} healed", Size(*healed_bytes))),
            (*to_heal_bytes > 0).then(|| format!("{} to be healed", Size(*to_heal_bytes))),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("{name}: {}\n", parts.join(", ")))
    }
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
    /// The array's name, or its uuid when it has none.
    pub(crate) fn array_name(&self) -> &str {
        if self.name.is_empty() { &self.uuid } else { &self.name }
    }

    /// The file that holds the write-intent bitmap, where one does.
    pub(crate) fn bitmap_file(&self) -> Option<&str> {
        self.bitmap.as_ref()?.file.as_deref()
    }

    /// Whether any slot is without a current member.
    pub(crate) fn is_degraded(&self) -> bool {
        self.in_sync < self.raid_disks
    }

    /// Members, by name and state.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &str)> {
        self.members.iter().map(|member| (&*member.name, &*member.state))
    }

    /// Its name, level, size and state in a line.
    pub(crate) fn headline(&self) -> String {
        describe(&self.name, &self.level, self.array_bytes, &self.state)
    }

    /// Members in the order of their slots with name and state, empty slots as such.
    pub(crate) fn places(&self) -> impl Iterator<Item = (Option<u16>, &str, &str)> {
        let missing = self.missing.iter().map(|slot| (Some(*slot), "", "missing"));
        let members = self.members.iter().map(|member| (member.slot, &*member.name, &*member.state));
        let mut places: Vec<_> = missing.chain(members).collect();
        places.sort_by_key(|(slot, ..)| slot.unwrap_or(u16::MAX));
        places.into_iter()
    }

    /// The sweep as /proc/mdstat has it.
    pub(crate) fn sweep_line(&self) -> Option<String> {
        self.sweep.as_ref().map(SweepView::text)
    }

    /// What is swept, and how many hundredths of it are done.
    pub(crate) fn sweep(&self) -> Option<(&str, f64)> {
        self.sweep.as_ref().map(|sweep| (&*sweep.action, sweep.percent))
    }

    /// The whole report, without figures.
    pub(crate) fn text(&self) -> String {
        self.written(None)
    }

    /// The whole report, with what was measured.
    pub(crate) fn report(&self, figures: &Figures) -> String {
        self.written(Some(figures))
    }

    fn written(&self, figures: Option<&Figures>) -> String {
        let mut text = self.headline();
        let chunk = if self.chunk_bytes > 0 { format!(", chunk {}", Size(self.chunk_bytes)) } else { String::new() };
        let unit = self.stripe_size_bytes.map(|bytes| format!(", stripe size {}", Size(bytes))).unwrap_or_default();
        let layout = self.layout.as_ref().map(|layout| format!(", {layout}")).unwrap_or_default();
        let read_only = if self.read_only { ", read-only" } else { "" };
        text += &format!("{read_only}\n  uuid {}, metadata {}{chunk}{layout}{unit}\n", self.uuid, self.metadata);
        let (in_sync, slots) = (self.in_sync, self.raid_disks);
        text += &format!("  {in_sync} of {slots} members in sync {}, events {}", self.slots(), self.events);
        text += &format!(", parity by {}\n", self.kernel);
        if figures.is_some() {
            text += &self.details();
        }
        if let Some(bitmap) = &self.bitmap {
            text += &format!("  {}\n", bitmap.text());
        }
        if let Some(checksums) = &self.checksums {
            text += &format!("  {}\n", checksums.text());
        }
        text += &format!("  {}, clients: {}\n", self.served.nbd, self.served.clients);
        if let Some(reason) = &self.broken {
            text += &format!("  takes no writes: {reason}\n");
        }
        match &self.sweep {
            Some(sweep) => text += &sweep.text(),
            None if self.sync_action == "frozen" => text += "  sweeps are frozen\n",
            None => {}
        }
        if let Some(reason) = &self.sweep_failure {
            text += &format!("  the last sweep could not be finished: {reason}\n");
        }
        text += &figures.map(Figures::requests_text).unwrap_or_default();
        text += &columns(&self.rows(figures));
        text.extend(self.members.iter().filter_map(MemberView::healing));
        for left_out in &self.left_out {
            text += &format!("not used: {}: {}\n", left_out.name, left_out.reason);
        }
        for warning in &self.warnings {
            text += &format!("warning: {warning}\n");
        }
        text
    }

    /// As in /proc/mdstat: `U` for each slot whose member is current, `_` for the others.
    pub(crate) fn slots(&self) -> String {
        let is_up = |slot| self.members.iter().any(|member| member.slot == Some(slot) && member.state == "in_sync");
        let letters: String = (0..self.raid_disks).map(|slot| if is_up(slot) { 'U' } else { '_' }).collect();
        format!("[{letters}]")
    }

    /// What `mdadm --detail` has besides.
    fn details(&self) -> String {
        let count = |states: &[&str]| self.members.iter().filter(|member| states.contains(&&*member.state)).count();
        let used = if self.component_bytes > 0 { Size(self.component_bytes).to_string() } else { "all".to_owned() };
        let policy = match (&*self.level, &self.bitmap) {
            ("linear" | "raid0", _) => "none",
            (_, Some(_)) => "bitmap",
            (_, None) => "resync",
        };
        let mut text = format!("  created {}, updated {}\n", utc(self.created), utc(self.updated));
        text += &format!(
            "  members: {} active, {} spare, {} faulty; {used} used of each; consistency policy {policy}\n",
            count(&["in_sync", "recovering"]),
            count(&["spare"]),
            count(&["faulty"]),
        );
        let CacheView { bytes_max, bytes, recalled_bytes, waiting_bytes } = self.cache;
        let (held, most) = (Size(bytes), Size(bytes_max));
        text += &format!("  cache: {held} of {most}, saved {} of reads", Size(recalled_bytes));
        text += &format!("; writes waiting for their stripes: {}\n", Size(waiting_bytes));
        text
    }

    fn rows(&self, figures: Option<&Figures>) -> Vec<Vec<String>> {
        let mut heading = vec!["slot", "member", "state", "read", "written", "errors"];
        if figures.is_some() {
            heading.extend(["r_await", "w_await", "under way"]);
        }
        let missing = self.missing.iter().map(|slot| (Some(*slot), vec![slot.to_string(), "missing".to_owned()]));
        let members = self.members.iter().map(|member| {
            let slot = member.slot.map_or("-".to_owned(), |slot| slot.to_string());
            let (read, written) = (Size(member.read_bytes).to_string(), Size(member.written_bytes).to_string());
            let mut row =
                vec![slot, member.name.clone(), member.state.clone(), read, written, member.errors.to_string()];
            if let Some((figures, metered)) = figures.and_then(|figures| Some((figures, figures.member(&member.name)?)))
            {
                (row[3], row[4]) = (figures.bytes(metered.read.bytes), figures.bytes(metered.write.bytes));
                row.extend([&metered.read, &metered.write].map(|done| done.mean_nanos().map_or("-".to_owned(), time)));
                row.push(metered.in_flight.to_string());
            }
            (member.slot, row)
        });
        let mut rows: Vec<_> = missing.chain(members).collect();
        rows.sort_by_key(|(slot, _)| slot.unwrap_or(u16::MAX));
        std::iter::once(heading.into_iter().map(str::to_owned).collect())
            .chain(rows.into_iter().map(|(_, row)| row))
            .collect()
    }
}

/// What is on one member.
pub(crate) fn examination(member: &Examination) -> String {
    let chunk = if member.chunk_bytes > 0 { format!(", chunk {}", Size(member.chunk_bytes)) } else { String::new() };
    let uuid = member.device_uuid.as_deref().unwrap_or("none");
    let features = if member.features.is_empty() { "none".to_owned() } else { member.features.join(", ") };
    let mut rows = vec![
        ("array", format!("{} \"{}\"", member.array_uuid, member.array_name.escape_default())),
        ("level", format!("{}, {} slots, layout {}{chunk}", member.level, member.raid_disks, member.layout)),
        ("metadata", format!("{} at byte {}, features: {features}", member.metadata, member.superblock_at)),
        ("role", format!("{}, device number {}, of {}", role(member), member.device_number, member.array_state)),
        ("state", format!("{}, events {}", member.state, member.events)),
        ("device", format!("{uuid}, {}", Size(member.member_bytes))),
        ("data", format!("from byte {}, {}", member.data_at, Size(member.data_bytes))),
        ("bitmap", bitmap(member)),
        ("bad blocks", bad_blocks(member)),
        ("created", utc(member.created)),
        ("updated", utc(member.updated)),
    ];
    if member.logical_block_bytes > 0 {
        rows.push(("blocks", format!("logical blocks of {} bytes", member.logical_block_bytes)));
    }
    if let Some(reshape) = &member.reshape {
        rows.push(("reshape", reshape_text(reshape)));
    }
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(key, value)| vec![format!("  {key}"), value]).collect();
    format!("{}\n{}", member.name, columns(&rows))
}

/// What the member calls itself, and how it is used.
fn role(member: &Examination) -> String {
    let mut text = match member.role.strip_prefix("active ") {
        Some(slot) => format!("member in slot {slot}"),
        None => member.role.clone(),
    };
    let hints = [
        (member.write_mostly, ", write-mostly"),
        (member.failfast, ", failfast"),
        (member.disk_error, ", with a NAS maker's flag \"disk error\""),
    ];
    text.extend(hints.iter().filter(|(is_set, _)| *is_set).map(|(_, hint)| *hint));
    text
}

fn bitmap(member: &Examination) -> String {
    match (member.bitmap_at, &member.bitmap) {
        (None, _) => "none".to_owned(),
        (Some(at), None) => format!("at byte {at}, cannot be read"),
        (Some(at), Some(bitmap)) => {
            let BitmapExamined { set, bits, chunk_bytes, events } = bitmap;
            format!("at byte {at}, {bits} bits (chunks), {set} dirty, {} chunk, events {events}", Size(*chunk_bytes))
        }
    }
}

fn bad_blocks(member: &Examination) -> String {
    match (member.bad_blocks_at, &member.bad_blocks) {
        (None, _) => "no log".to_owned(),
        (Some(at), None) => format!("log at byte {at}, cannot be read"),
        (Some(at), Some(BadBlocksExamined { ranges: 0, .. })) => format!("none; log at byte {at}"),
        (Some(at), Some(bad)) => format!("{} places, {} bytes; log at byte {at}", bad.ranges, bad.bytes),
    }
}

fn reshape_text(reshape: &ReshapeExamined) -> String {
    let ReshapeExamined { position_bytes, backwards, new_level, delta_disks, new_layout, new_chunk_bytes } = reshape;
    let direction = if *backwards { "backwards, at" } else { "at" };
    let (at, chunk) = (Size(*position_bytes), Size(*new_chunk_bytes));
    format!("{direction} {at} of the array; to {new_level}, {delta_disks:+} slots, layout {new_layout}, chunk {chunk}")
}

/// Seconds since 1970 as a date and time.
pub(crate) fn utc(seconds: u64) -> String {
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
