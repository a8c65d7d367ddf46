//! Misc mode, and monitor mode: actions on one device after the other.
//!
//! Facts: mdadm 4.2's `mdadm.c` (`misc_list`), `Query.c` and `Manage.c`.

use super::arrays::{Array, all, find, wanted};
use super::assemble::{self, Start};
use super::detail;
use super::examine::{self, reason};
use super::incremental;
use super::own::{Line, absolute};
use super::text::human_binary;
use super::words::{Device, Words};
use super::{Trouble, say, tell};
use crate::command::opening::mdadm_conf::Config;
use crate::command::text::output::print;
use crate::machine::{Arena, Machine};
use crate::names::path_of;
use engine::status::level_name;
use serde_json::json;
use std::ffi::{OsStr, OsString};
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
        Some(action @ ("stop" | "wait" | "wait-clean" | "action" | "run" | "readonly" | "readwrite")) => {
            on_arrays(words, action)
        }
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
        "readonly" => make_read_only(name, array),
        "readwrite" => make_writable(name, array),
        state => wait(array, state),
    };
    if action == "action" {
        check_action(&words.value("action").unwrap_or_default())?;
    }
    let waiting = incremental::waiting(&arrays)?;
    if words.devices.is_empty() && words.has("scan") {
        let mut status = 0;
        if action == "stop" {
            waiting.iter().try_for_each(|one| incremental::forget(&one.uuid))?;
        }
        for array in &arrays {
            status = status.max(act(&array.path, array)?);
        }
        return Ok(status);
    }
    each(words, |device| {
        let word = device.word.to_string_lossy();
        match (find(&word, &arrays), incremental::find(&word, &waiting), action) {
            (None, Some(one), "stop") => {
                incremental::forget(&one.uuid)?;
                if !words.is_quiet() {
                    say(&format!("stopped {word}"))?;
                }
                Ok(0)
            }
            (None, Some(one), "run") => one.start(Some(word.into_owned())).map(|()| 0),
            _ => act(&device.name(), wanted(&word, &arrays)?),
        }
    })
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
        say(&format!("stopped {name}"))?;
    }
    Ok(0)
}

/// Makes an array read-only that nothing uses. One that is read-only already stays as it is.
pub(super) fn make_read_only(name: &str, array: &Array) -> Result<u8, Trouble> {
    match &array.status {
        status if status.read_only => Ok(0),
        status if status.is_in_use() => Err(busy("readonly", name)),
        _ => array.post("/v1/set", &json!({ "read-only": "on" })).map(|_| 0),
    }
}

/// Makes an array writable. One that was started read-only is served anew, if nothing uses it.
fn make_writable(name: &str, array: &Array) -> Result<u8, Trouble> {
    match &array.status {
        status if !status.read_only => Ok(0),
        status if status.made_read_only => array.post("/v1/set", &json!({ "read-only": "off" })).map(|_| 0),
        status if status.is_in_use() => Err(busy("writable", name)),
        _ => serve_anew(name, array),
    }
}

fn busy(wanted: &str, name: &str) -> Trouble {
    Trouble::failed(format!("failed to set {wanted} for {name}: Device or resource busy"))
}

/// Stops a server that was started read-only, and starts one that takes writes.
fn serve_anew(name: &str, array: &Array) -> Result<u8, Trouble> {
    let status = &array.status;
    let in_use = status.members.iter().filter(|member| member.state != "faulty");
    let again = Start {
        bitmap: status.bitmap.as_ref().and_then(|bitmap| bitmap.file.as_ref()).map(|file| path_of(file).into()),
        is_read_only: false,
        ..Start::of(array.path.clone(), in_use.map(|member| path_of(&member.name).into()).collect())
    };
    Line::of("stop").option("--control", Some(&array.socket)).run()?;
    let failed = |trouble: Trouble| Trouble {
        message: format!("{}\n{name} was stopped, and is not served again: assemble it", trouble.message),
        ..trouble
    };
    assemble::start_as(&again, Some(array.number)).map(|_| 0).map_err(failed)
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
    let members: Vec<_> = words.devices.iter().map(|device| absolute(&device.word)).collect();
    let is_outdated = || members.iter().all(|member| is_outdated(Path::new(member)));
    let force = words.has("force") || is_outdated();
    Line::of("wipe").flag("--force", force).words(members.clone()).run().map(|_| 0)
}

/// Whether the member's array is served, without it, and has moved on since: nothing will ever need its superblock.
fn is_outdated(member: &Path) -> bool {
    let Ok(machine) = Machine::start(None, Arena::Small) else { return false };
    let Ok(found) = examine::read(&machine, member) else { return false };
    let superblock = &found.found.superblock;
    let uuid = examine::array_uuid(superblock);
    let is_by_others = |array: &Array| {
        let is_member = array.status.members.iter().any(|own| path_of(&own.name) == member);
        array.status.uuid == uuid && !is_member && array.status.events > superblock.events
    };
    all().iter().any(is_by_others)
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

/// Runs monitor mode: `mdspace monitor` of the devices, or of all arrays. Reports and spares go where
/// mdadm.conf says.
pub(super) fn monitor(words: &Words) -> Result<u8, Trouble> {
    let arrays = all();
    let mut chosen = Vec::new();
    for device in &words.devices {
        chosen.push(OsString::from(&wanted(&device.word.to_string_lossy(), &arrays)?.status.uuid));
    }
    if chosen.is_empty() && !words.has("scan") {
        return Err(Trouble::usage("give --scan, or an md device"));
    }
    let (is_daemon, pid_file) = (words.has("daemonise"), words.word("pid-file"));
    if pid_file.is_some() && !is_daemon {
        return Err(Trouble::failed("Cannot write a pid file when not in daemon mode"));
    }
    if arrays.is_empty() {
        return Err(Trouble::failed("No array with redundancy detected, stopping"));
    }
    let is_told = words.word("config").is_some() || Config::is_there();
    let config = if is_told { examine::config(words)? } else { Config::default() };
    let mail = words.word("mail").or(config.mail.as_deref().map(OsStr::new));
    let program = words.word("program").or(config.program.as_deref().map(OsStr::new));
    let mut line = Line::of("monitor").option("--mail", mail).option("--program", program);
    line = line.option("--interval", words.word("delay")).option("--increment", words.word("increment"));
    line = line.flag("--once", words.has("oneshot")).flag("--test", words.has("test"));
    line = line.flag("--syslog", words.has("syslog"));
    let groups = if words.has("no-sharing") { Vec::new() } else { config.spare_groups() };
    for group in groups {
        line = line.option("--spare-group", Some(group.join(",")));
    }
    if !is_daemon {
        return line.words(chosen).become_it();
    }
    let pid = line.flag("--detached", true).option("--pid-file", pid_file).words(chosen).detach()?;
    if pid_file.is_none() {
        print(&format!("{pid}\n"))?;
    }
    Ok(0)
}
