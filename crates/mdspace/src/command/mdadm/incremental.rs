//! Incremental mode: members are named one by one, as udev finds them, and their array is served once all that were in use
//! last time are there.
//!
//! Until then a member is only noted, in a file beside the control sockets: lines with the array's uuid and the member's
//! path. Nothing holds or writes to it. `--run` starts with those that are there, `--stop` forgets them. Facts: mdadm 4.2's
//! `Incremental.c`.

use super::arrays::{Array, all};
use super::assemble::{Counted, Start, start_as};
use super::examine::{Examined, array_uuid, check_version, config, read};
use super::own::absolute;
use super::text::without_host;
use super::words::Words;
use super::{Trouble, host_of, map, note};
use crate::command::opening::members::ArrayChoice;
use crate::command::opening::sockets::own_place;
use crate::command::text::failure::Failure;
use crate::machine::{Arena, Machine};
use crate::names::name_of;
use engine::examined::Examination;
use format::superblock::Superblock;
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;

/// The file of the notes.
const NOTES: &str = "mdadm.incremental";

/// The members of an array that is not served yet.
pub(super) struct Waiting {
    pub(super) uuid: String,
    /// N of `/dev/mdN`, and the path, that the array would have.
    pub(super) number: u32,
    pub(super) path: String,
    members: Vec<Examined>,
}

/// The notes: uuid and path of each member.
fn notes() -> Vec<(String, String)> {
    let text = own_place(NOTES).and_then(|path| std::fs::read_to_string(path).ok());
    parse(&text.unwrap_or_default())
}

fn parse(text: &str) -> Vec<(String, String)> {
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.map(|(uuid, path)| (uuid.to_owned(), path.to_owned())).collect()
}

fn lines(notes: &[(String, String)]) -> String {
    notes.iter().map(|(uuid, path)| format!("{uuid} {path}\n")).collect()
}

/// Forgets the members of an array: it is served, or is not to be.
pub(super) fn forget(uuid: &str) -> Result<(), Failure> {
    if notes().iter().all(|(noted, _)| noted != uuid) {
        return Ok(());
    }
    map::rewrite(NOTES, |text| lines(&parse(text).into_iter().filter(|(noted, _)| noted != uuid).collect::<Vec<_>>()))
}

/// The arrays that wait for more members. A noted member that has gone, or is another array's by now, counts for nothing.
pub(super) fn waiting(served: &[Array]) -> Result<Vec<Waiting>, Trouble> {
    let notes = notes();
    let mut arrays: Vec<(String, Vec<Examined>)> = Vec::new();
    if notes.is_empty() {
        return Ok(Vec::new());
    }
    let machine = Machine::start(None, Arena::Small)?;
    for (uuid, path) in notes {
        let Ok(member) = read(&machine, Path::new(&path)) else { continue };
        let is_served = served.iter().any(|array| array.status.uuid == uuid);
        if is_served || array_uuid(&member.found.superblock) != uuid {
            continue;
        }
        match arrays.iter_mut().find(|(of, _)| *of == uuid) {
            Some((_, members)) => members.push(member),
            None => arrays.push((uuid, vec![member])),
        }
    }
    let named = served.iter().map(|array| (array.status.uuid.clone(), array.status.name.clone()));
    let names = arrays.iter().map(|(uuid, members)| (uuid.clone(), members[0].examination.array_name.clone()));
    // What an array was called when it was served last counts for nothing.
    let is_served = |entry: &map::Entry| served.iter().any(|array| array.status.uuid == entry.uuid);
    let map: Vec<map::Entry> = map::read().into_iter().filter(is_served).collect();
    let devices = map::devices(&named.chain(names).collect::<Vec<_>>(), &map);
    let pairs = arrays.into_iter().zip(devices.into_iter().skip(served.len()));
    Ok(pairs.map(|((uuid, members), (number, path))| Waiting { uuid, number, path, members }).collect())
}

/// The waiting array that `word` names: by its device, its number, or its name.
pub(super) fn find<'a>(word: &str, waiting: &'a [Waiting]) -> Option<&'a Waiting> {
    let is_it = |one: &&Waiting| {
        let name = &one.members[0].examination.array_name;
        one.path == word
            || (map::number_in(word) == Some(one.number) && !word.contains("md/"))
            || map::name_in(word).is_some_and(|wanted| wanted == name || wanted == without_host(name))
    };
    waiting.iter().find(is_it)
}

/// Runs incremental mode.
pub(super) fn run(words: &Words) -> Result<u8, Trouble> {
    if words.has("scan") {
        return match (words.has("run"), &words.devices[..]) {
            (true, []) => start_all(),
            (true, _) => Err(Trouble::usage("--incremental --scan does not support devices")),
            (false, _) => Err(Trouble::usage("--incremental --scan meaningless without --run.")),
        };
    }
    let [device] = &words.devices[..] else {
        return Err(Trouble::usage("--incremental requires exactly one device"));
    };
    let path = absolute(&device.word);
    let machine = Machine::start(None, Arena::Small)?;
    let member = read(&machine, Path::new(&path))?;
    check_version(words, &member)?;
    drop(machine);
    let (uuid, name) = (array_uuid(&member.found.superblock), name_of(Path::new(&path)));
    let served = all();
    if let Some(array) = served.iter().find(|array| array.status.uuid == uuid) {
        return join(words, array, &name);
    }
    map::rewrite(NOTES, |text| {
        let mut notes: Vec<_> = parse(text).into_iter().filter(|(_, noted)| *noted != name).collect();
        notes.push((uuid.clone(), name.clone()));
        lines(&notes)
    })?;
    let waiting = waiting(&served)?;
    let one = waiting.iter().find(|one| one.uuid == uuid).expect("it was just noted");
    let device = device_of(words, &member.found.superblock, &member.examination, &served);
    let shown = device.clone().unwrap_or_else(|| one.path.clone());
    let counted = one.counted();
    if counted.there < counted.needed || !counted.has_journal {
        if !words.has("run") {
            tell(words, &format!("{name} attached to {shown}, not enough to start ({}).", one.members.len()));
            return Ok(0);
        }
    } else if words.has("no-degraded") && counted.there < usize::from(member.found.superblock.raid_disks) {
        tell(words, &format!("{name} attached to {shown}, not enough to start safely."));
        return Ok(0);
    }
    one.start(device)?;
    tell(words, &format!("{name} attached to {shown}, which has been started."));
    Ok(0)
}

fn tell(words: &Words, text: &str) {
    if !words.is_quiet() {
        note(text);
    }
}

/// The device that mdadm.conf gives the array, or that its name is: the number in the name of an array of this machine.
fn device_of(words: &Words, superblock: &Superblock, told: &Examination, served: &[Array]) -> Option<String> {
    let config = config(words).unwrap_or_default();
    let is_line = |uuid| ArrayChoice::Uuid(uuid).is_of(superblock);
    let line = config.arrays().iter().find(|line| line.uuid.is_some_and(is_line));
    if let Some(device) = line.and_then(|line| line.device.as_deref()) {
        return Some(map::path_of(device)).filter(|device| map::name_in(device).is_some());
    }
    let own = match told.array_name.split_once(':') {
        Some((host, own)) => (host_of(words).as_deref() == Some(host)).then_some(own)?,
        None => &told.array_name,
    };
    let device = format!("/dev/md{own}");
    let number = map::number_in(&device)?;
    served.iter().all(|array| array.number != number).then_some(device)
}

/// A member of an array that is served already.
fn join(words: &Words, array: &Array, name: &str) -> Result<u8, Trouble> {
    if array.status.members.iter().any(|member| member.name == name && member.state != "faulty") {
        return Ok(0);
    }
    if !words.has("run") {
        let reason = format!("not adding {name} to active array (without --run) {}", array.path);
        return Err(Trouble::failed(reason).with_status(2));
    }
    array.post("/v1/members/re-add", &json!({ "member": name }))?;
    tell(words, &format!("{name} attached to {} which is already active.", array.path));
    Ok(0)
}

/// Starts all arrays that wait, with the members that they have.
fn start_all() -> Result<u8, Trouble> {
    let mut status = 0;
    for one in waiting(&all())? {
        if let Err(trouble) = one.start(None) {
            super::tell(&trouble);
            status = 1;
        }
    }
    Ok(status)
}

impl Waiting {
    fn counted(&self) -> Counted {
        let found: Vec<Superblock> = self.members.iter().map(|member| member.found.superblock.clone()).collect();
        Counted::of(&found).expect("it has a member")
    }

    /// Serves the array with the members that are there. Without its journal it is only read.
    pub(super) fn start(&self, device: Option<String>) -> Result<(), Trouble> {
        let members: Vec<OsString> = self.members.iter().map(|member| OsString::from(&member.name)).collect();
        let uuid = Some(self.uuid.clone());
        let is_read_only = !self.counted().has_journal;
        if is_read_only {
            note("Trying to run with missing journal device");
        }
        let start = Start::of(device.unwrap_or_else(|| self.path.clone()), members);
        let start = Start { uuid, is_read_only, force: is_read_only, ..start };
        start_as(&start, Some(self.number)).map(drop)
    }

    /// Its lines in /proc/mdstat.
    pub(super) fn text(&self) -> String {
        let mut text = format!("md{} : inactive", self.number);
        for member in self.members.iter().rev() {
            let last = member.name.rsplit('/').next().unwrap_or_default();
            text += &format!(" {last}[{}](S)", member.found.superblock.device_number.0);
        }
        let sectors: u64 = self.members.iter().map(|member| member.found.superblock.data_size.0).sum();
        let version = self.members[0].found.superblock.version;
        format!("{text}\n      {} blocks super {version}\n       \n", sectors / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_lines_of_a_uuid_and_a_path_that_may_have_spaces() {
        let notes = [("u1".to_owned(), "/dev/sda 1".to_owned()), ("u2".to_owned(), "/dev/sdb".to_owned())];
        assert_eq!(parse(&lines(&notes)), notes);
        assert_eq!(parse("nonsense\n\n"), []);
    }
}
