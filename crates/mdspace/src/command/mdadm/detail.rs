//! `--detail`: a served array in mdadm's lines, its `ARRAY` line, or its keys.
//!
//! It only asks the servers. Members that are files have the device numbers 0 and 0. Facts: mdadm 4.2's `Detail.c` and
//! `super1.c` (`detail_super1`), and its output beside the kernel's driver (tests/kernel/detail.sh).

use super::arrays::{Array, Member, all, wanted};
use super::text::{human, local_time, locality, quoted};
use super::words::Words;
use super::{Trouble, host_of, tell};
use crate::command::text::output::print;
use format::geometry::Level;

/// The exit status of `--detail --test` where no array is.
const NOTHING: u8 = 4;
/// Of an array that is degraded, and of one that cannot be used.
const DEGRADED: u8 = 1;
const FAILED: u8 = 2;

/// Runs `--detail`.
pub(super) fn run(words: &Words) -> Result<u8, Trouble> {
    let arrays = all();
    let is_scan = words.has("scan");
    if words.devices.is_empty() && !is_scan {
        return Err(Trouble::usage("No devices given."));
    }
    let (mut status, mut found) = (0, Vec::new());
    for device in &words.devices {
        match wanted(&device.word.to_string_lossy(), &arrays) {
            Ok(array) => found.push((device.word.to_string_lossy().into_owned(), array)),
            Err(trouble) => {
                tell(&trouble);
                status = if words.has("test") { NOTHING } else { trouble.status };
            }
        }
    }
    if words.devices.is_empty() {
        found.extend(arrays.iter().map(|array| (array.path.clone(), array)));
    }
    let host = host_of(words);
    for (device, array) in found {
        let has_devices = !words.has("no-devices");
        let text = match (words.has("export"), words.has("brief") || is_scan) {
            (true, _) => export(array, has_devices),
            (false, true) => brief(&device, array, words.verbose > 0),
            (false, false) => array.detail(&device, host.as_deref(), has_devices),
        };
        print(&text)?;
        if words.has("test") {
            status = status.max(array.test());
        }
    }
    Ok(status)
}

/// The `ARRAY` line.
fn brief(device: &str, array: &Array, is_verbose: bool) -> String {
    let status = &array.status;
    let mut text = format!("ARRAY {device}");
    if is_verbose {
        text += &format!(" level={} num-devices={}", status.level, status.raid_disks);
    }
    text += &format!(" metadata={}", status.metadata);
    if let Some(file) = status.bitmap.as_ref().and_then(|bitmap| bitmap.file.as_ref()) {
        text += &format!(" bitmap={file}");
    }
    match status.count(&["spare", "recovering", "replacement"]) {
        0 => {}
        spares => text += &format!(" spares={spares}"),
    }
    if !status.name.is_empty() {
        text += &format!(" name={}", quoted(&status.name));
    }
    text += &format!(" UUID={}\n", status.uuid);
    if is_verbose {
        let mut names: Vec<&str> = status.members.iter().map(|member| &*member.name).collect();
        names.sort_unstable();
        text = format!("{}\n   devices={}\n", text.trim_end(), names.join(","));
    }
    text
}

/// Lines of `KEY=value`.
fn export(array: &Array, has_devices: bool) -> String {
    let status = &array.status;
    let mut text = format!("MD_LEVEL={}\nMD_DEVICES={}\n", status.level, status.raid_disks);
    text += &format!("MD_METADATA={}\nMD_UUID={}\n", status.metadata, status.uuid);
    if let Some(name) = array.path.strip_prefix("/dev/md/") {
        text += &format!("MD_DEVNAME={name}\n");
    }
    if !status.name.is_empty() {
        text += &format!("MD_NAME={}\n", status.name);
    }
    for member in status.members.iter().filter(|_| has_devices) {
        let last = member.name.rsplit('/').next().unwrap_or_default();
        let key: String = last.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let role = member.slot.map_or("spare".to_owned(), |slot| slot.to_string());
        text += &format!("MD_DEVICE_dev_{key}_ROLE={role}\nMD_DEVICE_dev_{key}_DEV={}\n", member.name);
    }
    text
}

/// `   Label : value` with the colon where mdadm has it.
fn line(label: &str, value: impl std::fmt::Display) -> String {
    format!("{label:>18} : {value}\n")
}

impl Array {
    /// The exit status of `--test`.
    fn test(&self) -> u8 {
        match &self.status {
            status if status.broken.is_some() => FAILED,
            status if status.in_sync < status.raid_disks => DEGRADED,
            _ => 0,
        }
    }

    fn detail(&self, device: &str, host: Option<&str>, has_devices: bool) -> String {
        let status = &self.status;
        let sized = |bytes: u64| format!("{}{}", bytes >> 10, human(bytes));
        let mut text = format!("{device}:\n");
        text += &line("Version", &status.metadata);
        text += &line("Creation Time", local_time(status.created));
        text += &line("Raid Level", &status.level);
        text += &line("Array Size", sized(status.array_bytes));
        if !matches!(status.level(), Level::Linear | Level::Raid0) {
            text += &line("Used Dev Size", sized(status.component_bytes));
        }
        text += &line("Raid Devices", status.raid_disks);
        text += &line("Total Devices", status.members.len());
        if status.metadata == "0.90" {
            text += &line("Preferred Minor", self.number);
        }
        text += &line("Persistence", "Superblock is persistent");
        text += "\n";
        if let Some(bitmap) = &status.bitmap {
            text += &line("Intent Bitmap", bitmap.file.as_deref().unwrap_or("Internal"));
            text += "\n";
        }
        text += &line("Update Time", local_time(status.updated));
        text += &format!("{:>18} : {} \n", "State", self.state());
        text += &self.counts();
        text += "\n";
        text += &self.shape();
        text += &line("Consistency Policy", &status.consistency_policy);
        text += "\n";
        text += &self.progress();
        text += &self.identity(host);
        if has_devices { text + &self.table() } else { text }
    }

    fn state(&self) -> String {
        let status = &self.status;
        let is_clean = status.state.starts_with("clean") || matches!(status.level(), Level::Linear | Level::Raid0);
        let health = match () {
            () if status.in_sync == status.raid_disks => "",
            () if status.broken.is_some() => ", FAILED",
            () => ", degraded",
        };
        let sweep = match (status.sweep.as_ref().map(|sweep| &*sweep.action), status.in_agreement) {
            (Some("recover"), _) => ", recovering",
            (Some("resync" | "repair"), _) => ", resyncing",
            (Some("check"), _) => ", checking",
            (None, false) => ", resyncing (PENDING)",
            _ => "",
        };
        format!("{}{health}{sweep}", if is_clean { "clean" } else { "active" })
    }

    fn counts(&self) -> String {
        let status = &self.status;
        let active = usize::from(status.in_sync);
        let spare = status.count(&["spare", "recovering", "replacement"]);
        let mut text = line("Active Devices", active);
        text += &line("Working Devices", active + spare);
        text += &line("Failed Devices", status.count(&["faulty"]));
        text + &line("Spare Devices", spare)
    }

    fn shape(&self) -> String {
        let status = &self.status;
        let has_layout = matches!(status.level(), Level::Raid0 | Level::Raid5 | Level::Raid6 | Level::Raid10);
        // The driver gives mdadm a number without a name for a RAID-0 whose superblocks give no layout.
        let layout = status.layout.as_deref().unwrap_or("-unknown-");
        let mut text = if has_layout { line("Layout", layout) } else { String::new() };
        let chunk = format!("{}K", status.chunk_bytes >> 10);
        match status.level() {
            Level::Raid1 => return text,
            Level::Linear => text += &line("Rounding", chunk),
            _ => text += &line("Chunk Size", chunk),
        }
        text + "\n"
    }

    fn progress(&self) -> String {
        let Some(sweep) = &self.status.sweep else { return String::new() };
        let label = match &*sweep.action {
            "recover" => "Rebuild",
            "resync" | "repair" => "Resync",
            "check" => "Check",
            _ => return String::new(),
        };
        let percent = u128::from(sweep.done_bytes) * 100 / u128::from(sweep.total_bytes.max(1));
        format!("    {label:>7} Status : {percent}% complete\n\n")
    }

    fn identity(&self, host: Option<&str>) -> String {
        let status = &self.status;
        if status.metadata == "0.90" {
            let (high, low) = (status.events >> 32, status.events & 0xffff_ffff);
            return format!("{}{}\n", line("UUID", &status.uuid), line("Events", format!("{high}.{low}")));
        }
        let name = format!("{}{}", status.name, locality(&status.name, host));
        format!("{}{}{}\n", line("Name", name), line("UUID", &status.uuid), line("Events", status.events))
    }

    /// Slots, each with its member and the replacement of that; then members without a slot.
    fn table(&self) -> String {
        let status = &self.status;
        let mut text = "    Number   Major   Minor   RaidDevice State\n".to_owned();
        for slot in 0..status.raid_disks {
            let own: Vec<&Member> = status.members.iter().filter(|member| member.slot == Some(slot)).collect();
            if own.is_empty() {
                text += &format!("       -   {:5}    {:5}    {slot:5}      removed\n", 0, 0);
            }
            text.extend(own.iter().map(|member| self.row(member)));
        }
        let mut others: Vec<&Member> = status.members.iter().filter(|member| member.slot.is_none()).collect();
        others.sort_unstable_by_key(|member| member.device_number);
        if !others.is_empty() {
            text.push('\n');
        }
        text.extend(others.iter().map(|member| self.row(member)));
        text
    }

    fn row(&self, member: &Member) -> String {
        let (major, minor) = member.device_numbers();
        let slot = member.slot.map_or("    -".to_owned(), |slot| format!("{slot:5}"));
        let flag = |is_set, word| if is_set { word } else { "" };
        let flags = [flag(member.write_mostly, " writemostly"), flag(member.failfast, " failfast")].concat();
        let state = match &*member.state {
            "in_sync" => format!(" active sync{}{flags}", self.set_of(member)),
            "recovering" | "replacement" => format!("{flags} spare rebuilding"),
            "spare" => format!("{flags} spare"),
            other => format!(" {other}{flags}"),
        };
        let (number, name) = (member.device_number, &member.name);
        format!("   {number:5}   {major:5}    {minor:5}    {slot}     {state}   {name}\n")
    }

    /// ` set-A`: of a RAID-10 of near copies whose members fall into sets, the member's.
    fn set_of(&self, member: &Member) -> String {
        const LETTERS: u16 = 26;
        let status = &self.status;
        if status.level() != Level::Raid10 || status.copies("far").or(status.copies("offset")).is_some() {
            return String::new();
        }
        match (status.copies("near"), member.slot) {
            (Some(near), Some(slot)) if near <= LETTERS && status.raid_disks.is_multiple_of(near) => {
                format!(" set-{}", char::from(b'A' + (slot % near) as u8))
            }
            _ => String::new(),
        }
    }
}
