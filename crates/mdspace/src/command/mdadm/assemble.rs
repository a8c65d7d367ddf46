//! `--assemble`: serves arrays in the background, by `mdspace serve`.
//!
//! As with mdadm, an array of listed members that has fewer than last time starts only with `--run` or `--force`.
//! `--update=` changes the members by `mdspace update` before the array is served. Facts: mdadm 4.2's `Assemble.c`.

use super::arrays::{Array, Status, all, find, has_server, read as status_in};
use super::examine::{array_uuid, check_version, config, read};
use super::incremental;
use super::map::{self, Entry};
use super::own::{Line, absolute};
use super::text::without_host;
use super::words::{Device, Words, number};
use super::{Trouble, host_of, note, say};
use crate::command::opening::mdadm_conf::{ArrayLine, Config, block_devices};
use crate::command::opening::members::{ArrayChoice, ArrayUuid, expand_with_directories};
use crate::machine::{Arena, Machine};
use format::superblock::{Counts, DeviceRole, Superblock};
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

/// Where the kernel's md has its limits on the speed of sweeps, in KiB/s.
const SPEED_LIMITS: &str = "/proc/sys/dev/raid";

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
            is_read_only: words.has("readonly") || self.is_read_only,
            ..self
        }
    }
}

/// Serves the array in the background, and notes its device.
pub(super) fn start(start: &Start) -> Result<Status, Trouble> {
    start_as(start, None)
}

/// As [`start`], with a number for the device, if its path says none.
pub(super) fn start_as(start: &Start, number: Option<u32>) -> Result<Status, Trouble> {
    all(); // an array that has no number yet gets one
    let taken: Vec<u32> =
        map::read().iter().filter(|entry| has_server(&entry.uuid)).map(|entry| entry.number).collect();
    let of_path = start.device.as_deref().and_then(map::number_in);
    let number = of_path.or(number).unwrap_or_else(|| map::free_number(&taken));
    let line = Line::of("serve")
        .flag("--json", true)
        .flag("--force", start.force)
        .flag("--read-only", start.is_read_only)
        .flag("--ublk", has_ublk())
        .option("--sync-speed-min", speed_limit("speed_limit_min"))
        .option("--sync-speed-max", speed_limit("speed_limit_max"))
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
    map::add(&entry, &has_server)?;
    incremental::forget(uuid)?;
    Ok(status)
}

/// The machine's limit for arrays of md, which an array that mdadm starts has too. None where the driver is not loaded.
fn speed_limit(name: &str) -> Option<String> {
    let text = std::fs::read_to_string(Path::new(SPEED_LIMITS).join(name)).ok()?;
    let kib: u64 = text.trim().parse().ok()?;
    (kib > 0).then(|| format!("{kib}K"))
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
    let is_chosen = ["uuid", "name", "super-minor"].into_iter().any(|option| words.has(option));
    match given {
        None if words.has("scan") => scan(words, None),
        None => Err(Trouble::usage("an md device must be given in this mode")),
        Some(_) if words.has("scan") && !is_chosen => scan(words, Some(&words.devices)),
        Some((device, [])) if !is_chosen => {
            let config = config(words)?;
            let device = map::path_of(&device.word.to_string_lossy());
            let line = config
                .array(Some(&device))
                .map_err(|_| Trouble::failed(format!("{device} not identified in config file.")))?;
            one(words, start_of_line(&config, line, Some(device))?)
        }
        Some((device, members)) => {
            let device = map::path_of(&device.word.to_string_lossy());
            let mut members: Vec<OsString> = members.iter().map(|member| absolute(&member.word)).collect();
            let is_listed = !members.is_empty();
            if !is_listed {
                members = config(words).map(|config| config.all_places()).unwrap_or_else(|_| block_devices());
            }
            let uuid = match words.value("super-minor") {
                Some(minor) => Some(uuid_of_minor(number("super-minor", &minor)?, &members)?),
                None => words.value("uuid").filter(|_| !words.has("update")),
            };
            let start = Start { uuid, name: words.value("name"), ..Start::of(device, members) };
            if words.has("metadata") && !is_listed {
                return Err(Trouble::refused("--metadata: not yet without the members"));
            }
            // Members of the other byte order are counted once they are turned.
            let is_turned = words.value("update").as_deref() == Some("byteorder");
            let start = if is_listed && !is_turned { check_count(words, start)? } else { start };
            one(words, start)
        }
    }
}

/// What an `ARRAY` line asks for. Of its words the surest one chooses the members.
fn start_of_line(config: &Config, line: &ArrayLine, device: Option<String>) -> Result<Start, Trouble> {
    let members = config.places(line);
    let uuid = match (line.uuid, line.super_minor) {
        (None, Some(minor)) if line.name.is_none() => Some(uuid_of_minor(minor, &members)?),
        (uuid, _) => uuid.map(|uuid| uuid.to_string()),
    };
    let of_line = || line.device.as_deref().map(map::path_of).filter(|device| map::name_in(device).is_some());
    Ok(Start {
        device: device.or_else(of_line),
        members,
        name: line.name.clone().filter(|_| uuid.is_none()),
        uuid,
        bitmap: line.bitmap.as_ref().map(|bitmap| absolute(bitmap.as_os_str())),
        ..Start::default()
    })
}

/// The uuid of the array of metadata 0.90 with this number. Two such arrays are refused, as one of them may be another
/// machine's.
fn uuid_of_minor(minor: u32, members: &[OsString]) -> Result<String, Trouble> {
    let machine = Machine::start(None, Arena::Small)?;
    let mut found: Vec<String> = Vec::new();
    for member in expand_with_directories(members)? {
        // Among what was not chosen one by one, what is no member is left out.
        let Ok(member) = read(&machine, &member) else { continue };
        let has_number = Counts::of(&member.found.place).is_some_and(|counts| counts.minor == minor);
        let uuid = array_uuid(&member.found.superblock);
        if has_number && !found.contains(&uuid) {
            found.push(uuid);
        }
    }
    match &found[..] {
        [uuid] => Ok(uuid.clone()),
        [] => Err(Trouble::failed(format!("no array with the super-minor {minor} was found"))),
        several => {
            let all = several.join(", ");
            Err(Trouble::failed(format!("several arrays have the super-minor {minor}: {all}\ngive --uuid=")))
        }
    }
}

/// Assembles the arrays of mdadm.conf, or those of them that `devices` name.
fn scan(words: &Words, devices: Option<&[Device]>) -> Result<u8, Trouble> {
    if words.has("update") {
        return Err(Trouble::refused("--update: not yet with --scan: give the members"));
    }
    let config = config(words)?;
    let served = all();
    let is_served = |line: &ArrayLine| match (line.uuid, &line.device) {
        (Some(uuid), _) => served.iter().any(|array| array.status.uuid == uuid.to_string()),
        (None, Some(device)) => find(&map::path_of(device), &served).is_some(),
        (None, None) => false,
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
                let word = device.word.to_string_lossy();
                lines.push((config.array(Some(&word))?, Some(map::path_of(&word))));
            }
        }
    }
    if lines.is_empty() {
        return Err(Trouble::failed("No arrays found in config file"));
    }
    let mut status = 0;
    for (line, device) in lines.into_iter().filter(|(line, _)| !is_served(line)) {
        let started = start_of_line(&config, line, device).and_then(|start| one(words, start));
        if let Err(trouble) = started {
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
    let is_turned = words.value("update").as_deref() == Some("byteorder");
    let wanted = if is_turned { check_count(words, wanted)? } else { wanted };
    let status = start(&wanted)?;
    if !words.is_quiet() {
        let device = wanted.device.as_deref().unwrap_or(&status.name);
        say(&started(device, &status))?;
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

/// Refuses an array that would start with fewer members than last time, unless the user insists. Without its journal it
/// is only read.
fn check_count(words: &Words, start: Start) -> Result<Start, Trouble> {
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
    let Some(Counted { there, needed, has_journal }) = Counted::of(&found) else { return Ok(start) };
    let is_read_only = start.is_read_only || (!has_journal && words.has("force"));
    if is_read_only && !has_journal {
        note("Journal is missing or stale, starting array read only.");
    }
    let start = Start { is_read_only, ..start };
    if there >= needed || words.has("run") || (words.has("force") && !words.has("no-degraded")) {
        return Ok(start);
    }
    let device = start.device.as_deref().unwrap_or_default();
    let drives = if there == 1 { "drive" } else { "drives" };
    Err(Trouble::failed(format!(
        "{device} assembled from {there} {drives} - need all {needed} to start it (use --run to insist)."
    )))
}

/// How many slots of an array are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    /// By the members at hand that are current.
    pub(super) there: usize,
    /// When the array was used last.
    pub(super) needed: usize,
    /// Whether its journal is at hand, if it has one.
    pub(super) has_journal: bool,
}

impl Counted {
    /// Counts the members of one array; `None` without any.
    pub(super) fn of(found: &[Superblock]) -> Option<Self> {
        let freshest = found.iter().max_by_key(|superblock| superblock.events)?;
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
        // One event behind is what a power cut leaves.
        let is_current = |events: u64| events + 1 >= freshest.events;
        let current = found.iter().filter(|superblock| is_current(superblock.events));
        let roles = current.map(|superblock| freshest.role(superblock.device_number));
        let is_journal = |superblock: &Superblock| superblock.own_role() == DeviceRole::Journal;
        Some(Self {
            there: slots(&mut roles.into_iter()),
            needed: slots(&mut freshest.roles.iter().copied()),
            has_journal: !freshest.journal || found.iter().any(is_journal),
        })
    }
}

/// What `--update=` can change here.
const UPDATES: [&str; 8] = ["uuid", "name", "homehost", "no-bbl", "resync", "super-minor", "metadata", "byteorder"];

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
        "resync" => line.flag("--resync", true),
        "metadata" => line.option("--metadata", Some("1.0")),
        "byteorder" => line.flag("--byteorder", true),
        "super-minor" => match start.device.as_deref().and_then(map::number_in) {
            Some(number) => line.option("--preferred-minor", Some(number.to_string())),
            None => return Err(Trouble::usage("--update=super-minor: give the number, as in /dev/md5")),
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
