//! Misc mode, and monitor mode: actions on one device after the other.
//!
//! Facts: mdadm 4.2's `mdadm.c` (`misc_list`), `Query.c` and `Manage.c`.

use super::arrays::{Array, all, find, wanted};
use super::detail;
use super::examine::{self, reason};
use super::own::{Line, absolute};
use super::text::human_binary;
use super::words::{Device, Words};
use super::{Trouble, note, tell};
use crate::command::text::output::print;
use crate::machine::{Arena, Machine};
use engine::status::level_name;
use serde_json::json;
use std::path::Path;

/// Runs misc mode.
pub(super) fn run(words: &Words) -> Result<u8, Trouble> {
    match words.action().or_else(|| words.devices.first().and_then(|device| device.action)) {
        Some("detail") => detail::run(words),
        Some("examine") => examine::examine(words),
        Some("examine-bitmap") => examine::examine_bitmap(words),
        Some("examine-badblocks") => examine::examine_bad_blocks(words),
        Some("query") => each(words, query),
        Some("zero-superblock") => zero(words),
        Some(action @ ("stop" | "wait" | "wait-clean" | "action" | "run")) => on_arrays(words, action),
        _ => Err(Trouble::usage("No action given in --misc mode")),
    }
}

/// Does `work` for each device. The last failure decides the exit status.
fn each(words: &Words, work: impl Fn(&Device) -> Result<u8, Trouble>) -> Result<u8, Trouble> {
    if words.devices.is_empty() {
        return Err(Trouble::usage("No devices given."));
    }
    let mut status = 0;
    for device in &words.devices {
        match work(device) {
            Ok(done) => status = status.max(done),
            Err(trouble) => {
                tell(&trouble);
                status = status.max(trouble.status);
            }
        }
    }
    Ok(status)
}

/// Does the action on each named array; with `--scan` on all.
fn on_arrays(words: &Words, action: &str) -> Result<u8, Trouble> {
    let arrays = all();
    let act = |name: &str, array: &Array| match action {
        "stop" => stop(name, array, words),
        "action" => {
            let wanted = words.value("action").unwrap_or_default();
            array.post("/v1/set", &json!({ "sync-action": wanted })).map(|_| 0)
        }
        "run" => Ok(0),
        state => wait(array, state),
    };
    if action == "action" {
        check_action(&words.value("action").unwrap_or_default())?;
    }
    if words.devices.is_empty() && words.has("scan") {
        let mut status = 0;
        for array in &arrays {
            status = status.max(act(&array.path, array)?);
        }
        return Ok(status);
    }
    each(words, |device| act(&device.name(), wanted(&device.word.to_string_lossy(), &arrays)?))
}

fn check_action(action: &str) -> Result<(), Trouble> {
    match action {
        "idle" | "frozen" | "check" | "repair" => Ok(()),
        _ => Err(Trouble::usage("action must be one of idle, frozen, check, repair")),
    }
}

/// Stops an array that nothing uses.
pub(super) fn stop(name: &str, array: &Array, words: &Words) -> Result<u8, Trouble> {
    if array.status.is_in_use() {
        return Err(Trouble::failed(format!(
            "Cannot get exclusive access to {name}: Perhaps a running process, mounted filesystem or active volume \
             group?\nA client uses the array; `mdspace stop` disconnects it"
        )));
    }
    Line::of("stop").option("--control", Some(&array.socket)).run()?;
    if !words.is_quiet() {
        note(&format!("stopped {name}"));
    }
    Ok(0)
}

/// Waits for the end of a sweep, or for the clean mark. As with mdadm, 1 says that there was nothing to wait for.
fn wait(array: &Array, state: &str) -> Result<u8, Trouble> {
    let is_sync = state == "wait";
    // A member that was just added waits for its recovery to begin.
    let is_joining = array.status.count(&["recovering", "replacement"]) > 0;
    let is_under_way = array.status.sweep.is_some() || !array.status.in_agreement || is_joining;
    if is_sync && (!is_under_way || array.status.sync_action == "frozen") {
        return Ok(1);
    }
    let line = Line::of("wait").option("--control", Some(&array.socket));
    let state = if is_sync { "sync" } else { "clean" };
    line.words([state.into()]).run().map(|_| 0)
}

/// Removes superblocks, all or none.
fn zero(words: &Words) -> Result<u8, Trouble> {
    if words.devices.is_empty() {
        return Err(Trouble::usage("No devices given."));
    }
    for device in &words.devices {
        if let Err(error) = std::fs::metadata(Path::new(&device.word)) {
            return Err(Trouble::failed(format!(
                "Couldn't open {} for write - not zeroing: {}",
                device.name(),
                reason(&error)
            )));
        }
    }
    let members = words.devices.iter().map(|device| absolute(&device.word));
    Line::of("wipe").flag("--force", words.has("force")).words(members).run().map(|_| 0)
}

/// Says what a device is: an array, a member, or neither.
fn query(device: &Device) -> Result<u8, Trouble> {
    let (word, name) = (device.word.to_string_lossy(), device.name());
    let arrays = all();
    if let Some(array) = find(&word, &arrays) {
        let status = &array.status;
        let spares = status.count(&["spare", "recovering", "replacement"]);
        let (size, plural) = (human_binary(status.array_bytes), if spares == 1 { "" } else { "s" });
        let what = format!("{size} {} {} devices, {spares} spare{plural}", status.level, status.raid_disks);
        print(&format!("{name}: {what}. Use mdadm --detail for more detail.\n"))?;
        return Ok(0);
    }
    if let Err(error) = std::fs::File::open(Path::new(&device.word)) {
        return Err(Trouble::failed(format!("cannot open {name}: {}", reason(&error))));
    }
    print(&format!("{name}: is not an md array\n"))?;
    let machine = Machine::start(None, Arena::Small)?;
    if let Ok(member) = examine::read(&machine, Path::new(&device.word)) {
        let superblock = &member.found.superblock;
        let uuid = examine::array_uuid(superblock);
        let (activity, of) = match arrays.iter().find(|array| array.status.uuid == uuid) {
            Some(array) => ("active", &*array.path),
            None => ("inactive", "array"),
        };
        let (number, slots) = (superblock.device_number.0, superblock.raid_disks);
        let level = level_name(superblock.level);
        let what = format!("device {number} in {slots} device {activity} {level} {of}");
        print(&format!("{name}: {what}.  Use mdadm --examine for more detail.\n"))?;
    }
    Ok(0)
}

/// Runs monitor mode: `mdspace monitor` of the one array.
pub(super) fn monitor(words: &Words) -> Result<u8, Trouble> {
    let arrays = all();
    let array = match &words.devices[..] {
        [device] => wanted(&device.word.to_string_lossy(), &arrays)?,
        [_, _, ..] => return Err(Trouble::refused("--monitor: not yet for several arrays: run one for each")),
        [] if !words.has("scan") => return Err(Trouble::usage("give --scan, or an md device")),
        [] => match &arrays[..] {
            [array] => array,
            [] => return Err(Trouble::failed("No array with redundancy detected, stopping")),
            _ => return Err(Trouble::refused("--scan: not yet for several arrays: run a monitor for each device")),
        },
    };
    let line = Line::of("monitor").option("--control", Some(&array.socket));
    let line = line.option("--mail", words.word("mail")).option("--program", words.word("program"));
    let line = line.option("--interval", words.word("delay"));
    line.flag("--once", words.has("oneshot")).flag("--test", words.has("test")).become_it()
}
