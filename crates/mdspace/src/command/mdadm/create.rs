//! `--create`: makes an array by `mdspace create`, and serves it in the background.
//!
//! What is on the members is overwritten only with `--run`, mdadm's word against its question. A member must exist.
//! Facts: mdadm 4.2's `Create.c`, and its names of arrays (`super1.c`, `init_super1`).

use super::arrays::{all, find};
use super::assemble::{self, Start};
use super::examine::reason;
use super::map;
use super::own::{Line, absolute};
use super::words::{Device, Words, count, seconds, size};
use super::{Trouble, host_of, say};
use crate::command::opening::members::ArrayUuid;
use crate::command::text::level::parse_level;
use format::geometry::Level;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// A name longer than this has no room for a host's.
const NAME_MAX: usize = 31;

/// mdadm's number for `--write-behind` without one.
const WRITE_BEHIND: &str = "256";

/// Runs create mode.
pub(super) fn run(words: &Words) -> Result<u8, Trouble> {
    let Some((device, members)) = words.devices.split_first() else {
        return Err(Trouble::usage("an md device must be given in this mode"));
    };
    let device_name = map::path_of(&device.word.to_string_lossy());
    let Some(own_name) = map::name_in(&device_name) else {
        return Err(Trouble::usage(format!(
            "{device_name}: unexpected name for a device; give /dev/mdN or /dev/md/NAME"
        )));
    };
    if find(&device_name, &all()).is_some() {
        return Err(Trouble::failed(format!("{device_name} is already in use.")));
    }
    let spares = spares(words, members.len())?;
    let flagged = flagged(members);
    let members: Vec<OsString> = members.iter().map(|member| absolute(&member.word)).collect();
    check_members(&members)?;
    let journal = words.value("write-journal").map(|journal| absolute(OsStr::new(&journal)));
    check_members(journal.as_slice())?;
    let line = line(words, own_name)?;
    let line = flagged.iter().fold(line, |line, (option, member)| line.option(option, Some(member)));
    let is_recovered = recovers_last(words, &members[..members.len() - spares]);
    let (active, extra) = members.split_at(members.len() - spares - usize::from(is_recovered));
    let line = extra.iter().fold(line, |line, spare| line.option("--spare", Some(spare)));
    // What the last slot holds follows from the others, whatever they hold: nothing is left to agree.
    let is_zeroed = writes_zeros(words)?;
    let is_clean = (is_recovered || words.has("assume-clean")) && !is_zeroed;
    let line = line.flag("--assume-clean", is_clean).flag("--resync-later", !is_clean && !is_zeroed);
    line.words(active.iter().cloned().chain(is_recovered.then(|| "missing".into()))).run().map_err(|trouble| {
        match trouble.message.contains("--force") {
            true => Trouble { message: trouble.message.replace("--force", "--run"), ..trouble },
            false => trouble,
        }
    })?;
    let members = members.into_iter().filter(|member| member != OsStr::new("missing")).chain(journal).collect();
    let start = Start {
        bitmap: words.value("bitmap").filter(|bitmap| bitmap.contains('/')).map(|bitmap| absolute(OsStr::new(&bitmap))),
        is_read_only: words.has("readonly"),
        ..Start::of(device_name.clone(), members)
    };
    assemble::start(&start).map_err(|trouble| {
        let message = format!("{}\nthe array was created, and is not served: assemble it", trouble.message);
        Trouble { message, ..trouble }
    })?;
    if !words.is_quiet() {
        say(&format!("array {device_name} started."))?;
    }
    Ok(0)
}

/// The number of spares among `count` members.
fn spares(words: &Words, members: usize) -> Result<usize, Trouble> {
    let Some(slots) = words.value("raid-devices") else {
        return Err(Trouble::usage("number of active devices must be given with --create"));
    };
    let slots = usize::from(count("raid-devices", &slots)?);
    let spares = words.value("spare-devices").map(|spares| count("spare-devices", &spares)).transpose()?;
    let spares = usize::from(spares.unwrap_or(0));
    match members.cmp(&(slots + spares)) {
        std::cmp::Ordering::Equal => Ok(spares),
        std::cmp::Ordering::Less => Err(Trouble::usage(format!(
            "You haven't given enough devices (real or missing) to create this array: {members} of {}",
            slots + spares
        ))),
        std::cmp::Ordering::Greater => Err(Trouble::usage(format!(
            "You have listed more devices ({members}) than are in the array({})!",
            slots + spares
        ))),
    }
}

/// Whether zeros are to be written, so that parity is right and nothing is resynced: what creation does by itself at
/// levels with parity.
fn writes_zeros(words: &Words) -> Result<bool, Trouble> {
    let level = words.value("level").and_then(|level| parse_level(&level).ok());
    match level {
        _ if !words.has("write-zeroes") => Ok(false),
        Some(Level::Raid4 | Level::Raid5 | Level::Raid6) => Ok(true),
        _ => Err(Trouble::usage(
            "--write-zeroes is not supported at this level: mdspace copies the first member instead",
        )),
    }
}

/// Whether a spare is to recover the last slot of a new array, as with mdadm: that writes one member, where a resync reads
/// all. A log is made with whole arrays alone.
fn recovers_last(words: &Words, members: &[OsString]) -> bool {
    let level = words.value("level").and_then(|level| parse_level(&level).ok());
    let is_whole = members.len() > 1 && !members.contains(&"missing".into());
    let has_log =
        words.has("write-journal") || matches!(words.value("consistency-policy").as_deref(), Some("ppl" | "log"));
    matches!(level, Some(Level::Raid4 | Level::Raid5))
        && is_whole
        && !(has_log || ["assume-clean", "force", "write-zeroes"].into_iter().any(|word| words.has(word)))
}

fn check_members(members: &[OsString]) -> Result<(), Trouble> {
    for member in members.iter().filter(|member| *member != OsStr::new("missing")) {
        if let Err(error) = std::fs::metadata(Path::new(member)) {
            let name = member.to_string_lossy();
            return Err(Trouble::usage(format!("cannot open {name}: {}", reason(&error))));
        }
    }
    Ok(())
}

/// `HOST:NAME`, by the option or the device.
fn name(words: &Words, of_device: &str) -> String {
    let name = words.value("name").unwrap_or_else(|| of_device.to_owned());
    match host_of(words) {
        Some(host) if !name.contains(':') && host.len() + 1 + name.len() <= NAME_MAX => format!("{host}:{name}"),
        _ => name,
    }
}

/// The options of mdspace for members with flags.
fn flagged(members: &[Device]) -> Vec<(String, OsString)> {
    let of = |member: &Device| {
        let member_name = absolute(&member.word);
        member.flags.iter().map(move |flag| (format!("--{flag}"), member_name.clone())).collect::<Vec<_>>()
    };
    members.iter().filter(|member| member.word != "missing").flat_map(of).collect()
}

/// What the array's device is called, in the form that its metadata has room for.
fn called(line: Line, words: &Words, own_name: &str, is_old: bool) -> Line {
    match (is_old, own_name.parse::<u32>()) {
        (false, _) => line.option("--name", Some(name(words, own_name))),
        (true, Ok(minor)) => line.option("--preferred-minor", Some(minor.to_string())),
        (true, Err(_)) => line,
    }
}

/// The line of mdspace's own command, but for the members.
fn line(words: &Words, own_name: &str) -> Result<Line, Trouble> {
    let Some(level) = words.value("level") else {
        return Err(Trouble::usage("a RAID level is needed to create an array."));
    };
    parse_level(&level).map_err(|_| Trouble::usage(format!("invalid raid level: {level}")))?;
    let sized = |option: &str| words.value(option).map(|text| size(option, &text)).transpose();
    let chunk = match sized("chunk")? {
        Some(chunk) => Some(chunk),
        None => sized("rounding")?,
    };
    let bytes = |bytes: Option<u64>| bytes.map(|bytes| format!("{bytes}B"));
    let bitmap = words.value("bitmap").map(|bitmap| match bitmap.contains('/') {
        true => absolute(OsStr::new(&bitmap)),
        false => bitmap.into(),
    });
    let metadata = match words.value("metadata").as_deref() {
        None | Some("1" | "default") => None,
        Some("0" | "0.9" | "0.90") => Some("0.90".to_owned()),
        Some(version @ ("1.0" | "1.1" | "1.2")) => Some(version.to_owned()),
        Some(other) => {
            return Err(Trouble::refused(format!("--metadata={other}: not here: 0.90, 1.0, 1.1 and 1.2 are created")));
        }
    };
    if let Some(uuid) = words.value("uuid").filter(|uuid| uuid.parse::<ArrayUuid>().is_err()) {
        return Err(Trouble::usage(format!("Bad uuid: {uuid}")));
    }
    if metadata.as_deref() == Some("0.90") && parse_level(&level) == Ok(Level::Raid0) {
        return Err(Trouble::usage("0.90 metadata does not support layouts for RAID0"));
    }
    let is_old = metadata.as_deref() == Some("0.90");
    let size = match words.value("size").as_deref() {
        None | Some("max" | "0") => None,
        Some(_) => sized("size")?,
    };
    // mdadm takes a delay without a bitmap, and records it nowhere.
    let has_bitmap = words.value("bitmap").is_some_and(|bitmap| bitmap != "none" && !bitmap.contains('/'));
    let delay = words.value("delay").map(|delay| seconds(&delay)).transpose()?.filter(|_| has_bitmap);
    let write_behind = words.has("write-behind").then(|| words.value("write-behind"));
    let write_behind = write_behind.map(|count| count.unwrap_or_else(|| WRITE_BEHIND.to_owned()));
    let line = Line::of("create")
        .option("--level", Some(level))
        .option("--chunk", bytes(chunk))
        .option("--layout", words.value("layout"))
        .option("--component-size", bytes(size))
        .option("--uuid", words.value("uuid"))
        .option("--metadata", metadata)
        .option("--data-offset", bytes(sized("data-offset")?))
        .option("--bitmap", bitmap)
        .option("--bitmap-chunk", bytes(sized("bitmap-chunk")?))
        .option("--bitmap-delay", delay)
        .option("--write-behind", write_behind)
        .option("--consistency-policy", words.value("consistency-policy"))
        .option("--write-journal", words.value("write-journal").map(|journal| absolute(OsStr::new(&journal))))
        .flag("--force", words.has("run"));
    Ok(called(line, words, own_name, is_old))
}
