//! `--assemble`: serves arrays in the background, by `mdspace serve`.
//!
//! As with mdadm, an array of listed members that has fewer than last time starts only with `--run` or `--force`.
//! `--update=` changes the members by `mdspace update` before the array is served. Facts: mdadm 4.2's `Assemble.c`.

use super::arrays::{Array, Status, all, find, read as status_in};
use super::examine::{check_version, config, read};
use super::map::{self, Entry};
use super::own::{Line, absolute};
use super::text::without_host;
use super::words::{Device, Words};
use super::{Trouble, host_of, note};
use crate::command::opening::mdadm_conf::{ArrayLine, Config, block_devices};
use crate::command::opening::members::{ArrayChoice, ArrayUuid};
use crate::machine::{Arena, Machine};
use format::superblock::DeviceRole;
use std::ffi::OsString;
use std::path::Path;

/// The device with which the kernel makes ublk's block devices.
const UBLK: &str = "/dev/ublk-control";

/// What is to be served.
#[derive(Debug, Default)]
pub(super) struct Start {
    /// `/dev/md0`, as it was typed; none if the array's name is to give it.
    pub(super) device: Option<String>,
    /// Paths and globs.
    pub(super) members: Vec<OsString>,
    pub(super) uuid: Option<String>,
    pub(super) name: Option<String>,
    pub(super) bitmap: Option<OsString>,
    pub(super) backup: Option<OsString>,
    pub(super) force: bool,
    pub(super) is_read_only: bool,
}

impl Start {
    /// The array of these members, at this device.
    pub(super) fn of(device: String, members: Vec<OsString>) -> Self {
        Self { device: Some(device), members, ..Self::default() }
    }

    fn with_options(self, words: &Words) -> Self {
        let path = |option: &str| words.word(option).map(absolute);
        // mdadm says of these words that there is no need to give them.
        let bitmap = words.word("bitmap").filter(|bitmap| *bitmap != "internal" && *bitmap != "clustered");
        Self {
            bitmap: bitmap.map(absolute).or(self.bitmap),
            backup: path("backup-file"),
            force: words.has("force"),
            is_read_only: words.has("readonly"),
            ..self
        }
    }
}

/// Serves the array in the background, and notes its device.
pub(super) fn start(start: &Start) -> Result<Status, Trouble> {
    let served = all();
    let taken: Vec<u32> = served.iter().map(|array| array.number).collect();
    let number = start.device.as_deref().and_then(map::number_in).unwrap_or_else(|| map::free_number(&taken));
    let line = Line::of("serve")
        .flag("--json", true)
        .flag("--force", start.force)
        .flag("--read-only", start.is_read_only)
        .flag("--ublk", has_ublk())
        .option("--uuid", start.uuid.as_ref())
        .option("--name", start.name.as_ref())
        .option("--bitmap", start.bitmap.as_ref())
        .option("--backup-file", start.backup.as_ref())
        .words(start.members.iter().cloned());
    let status = status_in(&line.serve(&format!("md{number}.log"))?)?;
    let Status { uuid, metadata, .. } = &status;
    let named = || match without_host(&status.name) {
        "" => format!("/dev/md{number}"),
        name => format!("/dev/md/{name}"),
    };
    let path = start.device.clone().unwrap_or_else(named);
    let entry = Entry { number, metadata: metadata.clone(), uuid: uuid.clone(), path };
    let uuids: Vec<String> = served.iter().map(|array| array.status.uuid.clone()).collect();
    map::add(&entry, &uuids)?;
    Ok(status)
}

/// Whether a block device can be made: the kernel has ublk, and lets this user use it.
fn has_ublk() -> bool {
    cfg!(feature = "ublk") && std::fs::OpenOptions::new().read(true).write(true).open(UBLK).is_ok()
}

/// Runs assemble mode.
pub(super) fn run(words: &Words) -> Result<u8, Trouble> {
    if words.has("backup-file") && !words.has("readonly") {
        return Err(Trouble::refused("--backup-file: not yet without --readonly: no reshape is continued"));
    }
    if words.has("update") {
        check_update(words)?;
    }
    if words.has("metadata") && words.has("scan") {
        return Err(Trouble::refused("--metadata: not yet with --scan"));
    }
    let given = words.devices.split_first();
    let is_chosen = words.has("uuid") || words.has("name");
    match given {
        None if words.has("scan") => scan(words, None),
        None => Err(Trouble::usage("an md device must be given in this mode")),
        Some(_) if words.has("scan") && !is_chosen => scan(words, Some(&words.devices)),
        Some((device, [])) if !is_chosen => {
            let config = config(words)?;
            let device = device.word.to_string_lossy().into_owned();
            let line = config
                .array(Some(&device))
                .map_err(|_| Trouble::failed(format!("{device} not identified in config file.")))?;
            one(words, start_of_line(&config, line, Some(device)))
        }
        Some((device, members)) => {
            let device = device.word.to_string_lossy().into_owned();
            let mut members: Vec<OsString> = members.iter().map(|member| absolute(&member.word)).collect();
            let is_listed = !members.is_empty();
            if !is_listed {
                members = config(words).map(|config| config.all_places()).unwrap_or_else(|_| block_devices());
            }
            let uuid = words.value("uuid").filter(|_| !words.has("update"));
            let start = Start { uuid, name: words.value("name"), ..Start::of(device, members) };
            if words.has("metadata") && !is_listed {
                return Err(Trouble::refused("--metadata: not yet without the members"));
            }
            if is_listed {
                check_count(words, &start)?;
            }
            one(words, start)
        }
    }
}

fn start_of_line(config: &Config, line: &ArrayLine, device: Option<String>) -> Start {
    Start {
        device: device.or_else(|| line.device.clone().filter(|device| map::name_in(device).is_some())),
        members: config.places(line),
        uuid: line.uuid.map(|uuid| uuid.to_string()),
        bitmap: line.bitmap.as_ref().map(|bitmap| absolute(bitmap.as_os_str())),
        ..Start::default()
    }
}

/// Assembles the arrays of mdadm.conf, or those of them that `devices` name.
fn scan(words: &Words, devices: Option<&[Device]>) -> Result<u8, Trouble> {
    if words.has("update") {
        return Err(Trouble::refused("--update: not yet with --scan: give the members"));
    }
    let config = config(words)?;
    let served = all();
    let is_served = |line: &ArrayLine| {
        line.uuid.is_some_and(|uuid| served.iter().any(|array| array.status.uuid == uuid.to_string()))
    };
    let mut lines: Vec<(&ArrayLine, Option<String>)> = Vec::new();
    match devices {
        None => {
            let uuid = words.value("uuid").map(|uuid| parse_uuid(&uuid)).transpose()?;
            let name = words.value("name");
            let is_wanted = |line: &&ArrayLine| {
                uuid.is_none_or(|uuid| line.uuid == Some(uuid)) && name.as_ref().is_none_or(|name| is_named(line, name))
            };
            lines.extend(config.arrays().iter().filter(is_wanted).map(|line| (line, None)));
        }
        Some(devices) => {
            for device in devices {
                let name = device.word.to_string_lossy().into_owned();
                lines.push((config.array(Some(&name))?, Some(name)));
            }
        }
    }
    if lines.is_empty() {
        return Err(Trouble::failed("No arrays found in config file"));
    }
    let mut status = 0;
    for (line, device) in lines.into_iter().filter(|(line, _)| !is_served(line)) {
        if let Err(trouble) = one(words, start_of_line(&config, line, device)) {
            super::tell(&trouble);
            status = 1;
        }
    }
    Ok(status)
}

/// The host in a name may be left out.
fn is_named(line: &ArrayLine, name: &str) -> bool {
    line.name.as_deref().is_some_and(|own| own == name || without_host(own) == name)
}

fn parse_uuid(text: &str) -> Result<ArrayUuid, Trouble> {
    text.parse().map_err(|_| Trouble::usage(format!("Bad uuid: {text}")))
}

/// Assembles one array.
fn one(words: &Words, wanted: Start) -> Result<u8, Trouble> {
    let wanted = wanted.with_options(words);
    if let Some(uuid) = &wanted.uuid {
        parse_uuid(uuid)?;
    }
    if let Some(device) = &wanted.device {
        if map::name_in(device).is_none() {
            let reason = format!("{device}: unexpected name for a device; give /dev/mdN or /dev/md/NAME");
            return Err(Trouble::usage(reason));
        }
        if let Some(Array { status, .. }) = find(device, &all()) {
            return Err(Trouble::failed(format!("{device} is already in use by the array {}.", status.uuid)));
        }
    }
    update(words, &wanted)?;
    let status = start(&wanted)?;
    if !words.is_quiet() {
        let device = wanted.device.as_deref().unwrap_or(&status.name);
        note(&started(device, &status));
        if let Some(block) = status.block_device() {
            note(&format!("{device} is the block device {block}"));
        }
    }
    Ok(0)
}

/// mdadm's words for a start.
fn started(device: &str, status: &Status) -> String {
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let (up, slots) = (usize::from(status.in_sync), usize::from(status.raid_disks));
    let mut text = format!("{device} has been started with {up} drive{}", plural(up));
    if up < slots {
        text += &format!(" (out of {slots})");
    }
    match status.count(&["recovering", "replacement"]) {
        0 => {}
        count => text += &format!(" and {count} rebuilding"),
    }
    match status.count(&["spare"]) {
        0 => {}
        count => text += &format!(" and {count} spare{}", plural(count)),
    }
    text + "."
}

/// Refuses an array that would start with fewer members than last time, unless the user insists.
fn check_count(words: &Words, start: &Start) -> Result<(), Trouble> {
    let machine = Machine::start(None, Arena::Small)?;
    let mut found = Vec::new();
    let choice = match (&start.uuid, &start.name) {
        (Some(uuid), _) => Some(ArrayChoice::Uuid(parse_uuid(uuid)?)),
        (None, name) => name.clone().map(ArrayChoice::Name),
    };
    for member in &start.members {
        let member = match read(&machine, Path::new(member)) {
            // Among members that were not chosen one by one, what is no member is left out.
            Err(_) if choice.is_some() => continue,
            member => member?,
        };
        if choice.as_ref().is_some_and(|choice| !choice.is_of(&member.found.superblock)) {
            continue;
        }
        check_version(words, &member)?;
        found.push(member.found.superblock);
    }
    if words.has("run") || (words.has("force") && !words.has("no-degraded")) {
        return Ok(());
    }
    let Some(freshest) = found.iter().max_by_key(|superblock| superblock.events) else { return Ok(()) };
    let slots = |roles: &mut dyn Iterator<Item = DeviceRole>| {
        let mut slots: Vec<u16> = roles
            .filter_map(|role| match role {
                DeviceRole::Active(slot) => Some(slot.0),
                DeviceRole::Spare | DeviceRole::Faulty | DeviceRole::Journal => None,
            })
            .collect();
        slots.sort_unstable();
        slots.dedup();
        slots.len()
    };
    let needed = slots(&mut freshest.roles.iter().copied());
    // One event behind is what a power cut leaves.
    let is_current = |events: u64| events + 1 >= freshest.events;
    let current = found.iter().filter(|superblock| is_current(superblock.events));
    let there = slots(&mut current.map(|superblock| freshest.role(superblock.device_number)));
    if there >= needed {
        return Ok(());
    }
    let device = start.device.as_deref().unwrap_or_default();
    let drives = if there == 1 { "drive" } else { "drives" };
    Err(Trouble::failed(format!(
        "{device} assembled from {there} {drives} - need all {needed} to start it (use --run to insist)."
    )))
}

/// What `--update=` can change here.
const UPDATES: [&str; 4] = ["uuid", "name", "homehost", "no-bbl"];

fn check_update(words: &Words) -> Result<(), Trouble> {
    let update = words.value("update").unwrap_or_default();
    if !UPDATES.contains(&&*update) {
        return Err(Trouble::refused(format!("--update={update}: not yet: {} can be updated", UPDATES.join(", "))));
    }
    if words.devices.len() < 2 {
        return Err(Trouble::usage("--update: give the members"));
    }
    Ok(())
}

/// Changes the members' superblocks, if `--update` says so.
fn update(words: &Words, start: &Start) -> Result<(), Trouble> {
    let Some(update) = words.value("update") else { return Ok(()) };
    let line = Line::of("update");
    let line = match &*update {
        "uuid" => line.option("--uuid", Some(words.value("uuid").unwrap_or_else(|| "random".to_owned()))),
        "name" => {
            match words.value("name").or_else(|| start.device.as_deref().and_then(map::name_in).map(str::to_owned)) {
                Some(name) => line.option("--name", Some(with_host(words, name))),
                None => return Err(Trouble::usage("--update=name: give --name=")),
            }
        }
        "homehost" => match host_of(words) {
            Some(host) => line.option("--homehost", Some(host)),
            None => return Err(Trouble::usage("--update=homehost: give --homehost=")),
        },
        _ => line.flag("--no-bad-block-log", true),
    };
    line.words(start.members.iter().cloned()).run().map(drop)
}

fn with_host(words: &Words, name: String) -> String {
    match host_of(words) {
        Some(host) if !name.contains(':') => format!("{host}:{name}"),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_told_in_mdadms_words() {
        let status = |in_sync: u16, states: &[&str]| {
            let members: Vec<_> = states
                .iter()
                .map(|state| serde_json::json!({"name": "a", "slot": null, "device_number": 0, "state": state}))
                .collect();
            let status = serde_json::json!({
                "uuid": "", "name": "", "metadata": "1.2", "level": "raid5", "layout": null, "chunk_bytes": 0,
                "array_bytes": 0, "component_bytes": 0, "created": 0, "updated": 0, "raid_disks": 3, "in_sync": in_sync,
                "state": "clean", "broken": null, "read_only": false, "events": 0, "in_agreement": true,
                "consistency_policy": "resync", "sync_action": "idle", "sweep": null, "bitmap": null,
                "members": members, "served": {},
            });
            serde_json::from_value::<Status>(status).expect("a status")
        };
        for (in_sync, states, expected) in [
            (3, &["in_sync"][..], "/dev/md0 has been started with 3 drives."),
            (2, &[], "/dev/md0 has been started with 2 drives (out of 3)."),
            (3, &["spare"], "/dev/md0 has been started with 3 drives and 1 spare."),
            (2, &["recovering"], "/dev/md0 has been started with 2 drives (out of 3) and 1 rebuilding."),
        ] {
            assert_eq!(started("/dev/md0", &status(in_sync, states)), expected);
        }
    }
}
