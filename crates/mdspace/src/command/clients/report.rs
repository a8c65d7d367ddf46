//! The status of a served array as text, in the words of its JSON fields.

use crate::command::clients::figures::{Figures, Pace, time};
use crate::command::clients::served::{LastScrubView, margin};
use crate::command::text::screen::{table, width};
use crate::command::text::size::Size;
use crate::command::text::wording::{describe, minutes, utc};
use serde::Deserialize;

/// Ranks of the columns of the members' table (see [`table`]), and the column of their names.
const RANKS: [u8; 9] = [1, 0, 0, 3, 3, 2, 5, 5, 4];
const NAMES: usize = 1;

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
    /// Older servers do not send this.
    #[serde(default)]
    may_fail: Option<u16>,
    state: String,
    /// Why the array refuses writes; `None` if it accepts them.
    pub(crate) broken: Option<String>,
    read_only: bool,
    /// Older servers do not send this.
    #[serde(default)]
    made_read_only: bool,
    /// Older servers do not send this.
    #[serde(default)]
    consistency_policy: Option<String>,
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
    /// What `--force` accepted. Older servers do not send this.
    #[serde(default)]
    warnings: Vec<String>,
    /// Older servers do not send this.
    #[serde(default)]
    pub(crate) last_scrub: Option<LastScrubView>,
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
    /// Whether nothing but its members holds the sweep.
    fn is_held_by_members(&self) -> bool {
        !self.paused && self.held_by.is_none()
    }

    /// A line as in /proc/mdstat. `pace` counts for a sweep that nothing else holds.
    fn text(&self, pace: Option<&Pace>) -> String {
        let Self { action, percent, .. } = self;
        let (done, total, rate) = (Size(self.done_bytes), Size(self.total_bytes), Size(self.bytes_per_second));
        if self.paused {
            return format!("  {action}: {percent:.1} % ({done} of {total}), paused\n");
        }
        let left = self.seconds_left.map(|seconds| format!(", finish in {}", minutes(seconds))).unwrap_or_default();
        let held = match self.held_by.as_deref() {
            Some("requests") => ", yields to requests (faster: set sync-speed-min)".to_owned(),
            Some(setting) => format!(", held by {setting}"),
            None => match pace {
                Some(Pace::Member { name, busy, others }) => {
                    format!(", held by {name} (busy {busy:.0} % of the time, the others {others:.0} % at most)")
                }
                Some(Pace::AllMembers) => ", held by its members, which are all busy".to_owned(),
                None => String::new(),
            },
        };
        format!("  {action}: {percent:.1} % ({done} of {total}), {rate}/s{left}{held}\n")
    }
}

#[derive(Debug, Deserialize)]
struct BitmapView {
    set: u64,
    bits: u64,
    unwritten_bytes: Option<u64>,
    chunk_bytes: u64,
    pages: u64,
    file: Option<String>,
}

impl BitmapView {
    /// In the words of mdadm's `--examine-bitmap` and of /proc/mdstat.
    fn text(&self) -> String {
        let Self { set, bits, pages, .. } = self;
        let place = self.file.as_ref().map_or("internal".to_owned(), |file| format!("file: {file}"));
        let unwritten = self.unwritten_bytes.map_or(String::new(), |bytes| format!("{} never written, ", Size(bytes)));
        let chunk = Size(self.chunk_bytes);
        format!("bitmap: {bits} bits (chunks), {set} dirty, {unwritten}{chunk} chunk, {pages} pages, {place}")
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
    /// A server of before knows nothing of it.
    #[serde(default)]
    write_back: Option<String>,
}

/// What is on the label of a drive, in words; `None` if nothing is known.
fn label(model: &Option<String>, serial: &Option<String>) -> Option<String> {
    let serial = serial.as_ref().map(|serial| format!("serial {serial}"));
    let parts: Vec<String> = model.iter().cloned().chain(serial).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// What smartd noted of a drive.
#[derive(Debug, Deserialize)]
struct SmartView {
    failing: bool,
    reallocated_sectors: Option<u64>,
    pending_sectors: Option<u64>,
    uncorrectable_sectors: Option<u64>,
    media_errors: Option<u64>,
    used_percent: Option<u64>,
}

impl SmartView {
    fn text(&self) -> String {
        let counts = [
            (self.reallocated_sectors, " sectors reallocated"),
            (self.pending_sectors, " sectors pending"),
            (self.uncorrectable_sectors, " sectors uncorrectable"),
            (self.media_errors, " media errors"),
            (self.used_percent, " % of its life used"),
        ];
        let counts = counts.iter().filter_map(|(count, what)| Some(format!("{}{what}", count.filter(|n| *n > 0)?)));
        let parts: Vec<String> = self.failing.then(|| "failing".to_owned()).into_iter().chain(counts).collect();
        if parts.is_empty() { "SMART: nothing".to_owned() } else { format!("SMART: {}", parts.join(", ")) }
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
    #[serde(default)]
    corrupt_blocks: u64,
    #[serde(default)]
    healed_bytes: u64,
    #[serde(default)]
    to_heal_bytes: u64,
    /// Older servers do not send these.
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    serial: Option<String>,
    #[serde(default)]
    smart: Option<SmartView>,
}

impl MemberView {
    /// Its drive; `None` if that has no label.
    fn drive(&self) -> Option<String> {
        let smart = self.smart.as_ref().map(|smart| format!(", {}", smart.text())).unwrap_or_default();
        Some(label(&self.model, &self.serial)? + &smart)
    }

    /// The wrong blocks that reads found and their repair; `None` without wrong blocks.
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
    /// Older servers do not send these.
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    serial: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ServedView {
    nbd: String,
    clients: usize,
    /// Older servers do not send this.
    io: Option<IoView>,
}

#[derive(Debug, Deserialize)]
struct IoView {
    backend: String,
    refusal: Option<String>,
    cost: Option<String>,
}

impl IoView {
    /// What the backend costs and why it is in use, if that is to be said.
    fn line(&self) -> Option<String> {
        let cost = self.cost.as_ref()?;
        let refusal = self.refusal.as_ref().map(|error| format!(" (io_uring is refused: {error})"));
        Some(format!("  {}{}: {cost}\n", self.backend, refusal.unwrap_or_default()))
    }
}

impl StatusView {
    /// The array's name, or its uuid if it has no name.
    pub(crate) fn array_name(&self) -> &str {
        if self.name.is_empty() { &self.uuid } else { &self.name }
    }

    /// The file that holds the write-intent bitmap, if there is one.
    pub(crate) fn bitmap_file(&self) -> Option<&str> {
        self.bitmap.as_ref()?.file.as_deref()
    }

    /// Whether any slot is without a current member.
    pub(crate) fn is_degraded(&self) -> bool {
        self.in_sync < self.raid_disks
    }

    /// The members' names and states.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &str)> {
        self.members.iter().map(|member| (&*member.name, &*member.state))
    }

    /// The drive of the member with this name; `None` if it has no label.
    pub(crate) fn drive(&self, name: &str) -> Option<String> {
        self.members.iter().find(|member| member.name == name)?.drive()
    }

    /// The array's name, level, size and state in one line.
    pub(crate) fn headline(&self) -> String {
        describe(&self.name, &self.level, self.array_bytes, &self.state)
    }

    /// Slots in their order, each with its member's name and state, and members without a slot.
    pub(crate) fn places(&self) -> impl Iterator<Item = (Option<u16>, &str, &str)> {
        let missing = self.missing.iter().map(|slot| (Some(*slot), "", "missing"));
        let members = self.members.iter().map(|member| (member.slot, &*member.name, &*member.state));
        let mut places: Vec<_> = missing.chain(members).collect();
        places.sort_by_key(|(slot, ..)| slot.unwrap_or(u16::MAX));
        places.into_iter()
    }

    /// The running sweep, as /proc/mdstat prints it.
    pub(crate) fn sweep_line(&self) -> Option<String> {
        self.sweep.as_ref().map(|sweep| sweep.text(None))
    }

    /// The running sweep and the percentage done.
    pub(crate) fn sweep(&self) -> Option<(&str, f64)> {
        self.sweep.as_ref().map(|sweep| (&*sweep.action, sweep.percent))
    }

    /// The whole report, without measures.
    pub(crate) fn text(&self) -> String {
        self.lines(None, None)
    }

    /// The whole report, with measures, and with how members limit the sweep.
    pub(crate) fn report(&self, figures: &Figures, pace: Option<&Pace>) -> String {
        self.lines(Some(figures), pace)
    }

    /// Whether a sweep is under way that nothing but its members holds.
    pub(crate) fn is_held_by_members(&self) -> bool {
        self.sweep.as_ref().is_some_and(SweepView::is_held_by_members)
    }

    fn lines(&self, figures: Option<&Figures>, pace: Option<&Pace>) -> String {
        let mut text = self.headline();
        let chunk = if self.chunk_bytes > 0 { format!(", chunk {}", Size(self.chunk_bytes)) } else { String::new() };
        let unit = self.stripe_size_bytes.map(|bytes| format!(", stripe size {}", Size(bytes))).unwrap_or_default();
        let layout = self.layout.as_ref().map(|layout| format!(", {layout}")).unwrap_or_default();
        let read_only = match (self.read_only, self.made_read_only) {
            (true, true) => ", read-only (end it: set read-only=off)",
            (true, false) => ", read-only",
            (false, _) => "",
        };
        text += &format!("{read_only}\n  uuid {}, metadata {}{chunk}{layout}{unit}\n", self.uuid, self.metadata);
        let (in_sync, slots) = (self.in_sync, self.raid_disks);
        let may_fail = self.may_fail.filter(|_| self.is_degraded() && self.broken.is_none());
        let margin = may_fail.map(|may_fail| format!(", {}", margin(may_fail))).unwrap_or_default();
        text += &format!("  {in_sync} of {slots} members in sync {}{margin}, events {}", self.slots(), self.events);
        text += &format!(", parity by {}", self.kernel);
        let io = self.served.io.as_ref();
        text += &io.map_or("\n".to_owned(), |io| format!(", io by {}\n", io.backend));
        text.extend(io.and_then(IoView::line));
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
            Some(sweep) => text += &sweep.text(pace),
            None if self.sync_action == "frozen" => text += "  sweeps are frozen (continue: set sync-action=idle)\n",
            None => {}
        }
        if let Some(reason) = &self.sweep_failure {
            text += &format!("  the last sweep could not be finished: {reason}\n");
        }
        if let Some(last) = &self.last_scrub {
            text += &format!("  {}\n", last.text());
        }
        text += &figures.map(Figures::requests_text).unwrap_or_default();
        text += &table(&self.rows(figures), &RANKS, NAMES, width());
        text.extend(self.members.iter().filter_map(MemberView::healing));
        // A drive that has failed is to be found among others.
        for member in self.members.iter().filter(|member| figures.is_some() || member.state == "faulty") {
            text.extend(member.drive().map(|drive| format!("{}: {drive}\n", member.name)));
        }
        for LeftOutView { name, reason, model, serial } in &self.left_out {
            let drive = label(model, serial).map(|drive| format!(" ({drive})")).unwrap_or_default();
            text += &format!("not used: {name}{drive}: {reason}\n");
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

    /// Further lines, as in `mdadm --detail`.
    fn details(&self) -> String {
        let count = |states: &[&str]| self.members.iter().filter(|member| states.contains(&&*member.state)).count();
        let used = if self.component_bytes > 0 { Size(self.component_bytes).to_string() } else { "all".to_owned() };
        let policy = self.consistency_policy.as_deref().unwrap_or("unknown");
        let mut text = format!("  created {}, updated {}\n", utc(self.created), utc(self.updated));
        text += &format!(
            "  members: {} active, {} spare, {} faulty; {used} used of each; consistency policy {policy}\n",
            count(&["in_sync", "recovering"]),
            count(&["spare"]),
            count(&["faulty"]),
        );
        let CacheView { bytes_max, bytes, recalled_bytes, waiting_bytes, write_back } = &self.cache;
        let (held, most) = (Size(*bytes), Size(*bytes_max));
        text += &format!("  cache: {held} of {most}, saved {} of reads", Size(*recalled_bytes));
        text += &format!("; writes waiting for their stripes: {}\n", Size(*waiting_bytes));
        match write_back.as_deref() {
            Some("streams") => text += "  answered from memory: linear writes, until a flush\n",
            Some(_) => text += "  answered from memory: all writes, until a flush\n",
            None => {}
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_sweep_says_what_holds_it_and_what_changes_that() {
        let slow = Pace::Member { name: "c".to_owned(), busy: 98.6, others: 41.0 };
        for (held_by, paused, pace, expected) in [
            (None, false, None, "10 MiB/s, finish in 0:05 min"),
            (None, false, Some(&slow), "held by c (busy 99 % of the time, the others 41 % at most)"),
            (None, false, Some(&Pace::AllMembers), "held by its members, which are all busy"),
            (None, true, Some(&slow), "paused"),
            (Some("requests"), false, Some(&slow), "yields to requests (faster: set sync-speed-min)"),
            (Some("sync-speed-max"), false, Some(&slow), "held by sync-speed-max"),
        ] {
            let sweep: SweepView = serde_json::from_value(json!({
                "action": "recover", "done_bytes": 50 << 20, "total_bytes": 100 << 20, "percent": 50.0,
                "bytes_per_second": 10 << 20, "seconds_left": 5, "paused": paused, "held_by": held_by,
            }))
            .expect("the fields of a sweep");
            assert_eq!(sweep.is_held_by_members(), held_by.is_none() && !paused);
            let text = sweep.text(pace);
            assert_eq!(
                text.trim_end().rsplit_once("), ").map(|(_, rest)| rest.ends_with(expected)),
                Some(true),
                "{text}"
            );
        }
    }
}
