//! The names of served arrays as devices: `/dev/md0`, `/dev/md/data`.
//!
//! A file beside the control sockets says which device an array is, in lines like those of mdadm's own map
//! (`md0 1.2 UUID /dev/md/data`). An array that it does not name has the number that is its name, or one from 127 down, as
//! with mdadm. Whatever it is called first it keeps, as long as it has a server: a number never comes to mean another array
//! that is served. Facts: mdadm 4.2's `mapfile.c`; its naming of devices (`mdopen.c`).

use super::text::without_host;
use crate::command::opening::sockets::own_directory;
use crate::command::text::failure::Failure;
use rustix::fs::{FlockOperation, flock};
use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The first number that an array without one gets.
const LAST_NUMBER: u32 = 127;

/// A line of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// `md0`
    pub(super) number: u32,
    pub(super) metadata: String,
    pub(super) uuid: String,
    /// `/dev/md/data`
    pub(super) path: String,
}

impl Entry {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let number = words.next()?.strip_prefix("md")?.parse().ok()?;
        let (metadata, uuid) = (words.next()?.to_owned(), words.next()?.to_owned());
        Some(Self { number, metadata, uuid, path: words.collect::<Vec<_>>().join(" ") })
    }

    fn line(&self) -> String {
        let Self { number, metadata, uuid, path } = self;
        format!("md{number} {metadata} {uuid} {path}\n")
    }
}

fn parse(text: &str) -> Vec<Entry> {
    text.lines().filter_map(Entry::parse).collect()
}

/// The lines of the map; none if there is no map.
pub(super) fn read() -> Vec<Entry> {
    let path = crate::command::opening::sockets::own_place("mdadm.map");
    path.and_then(|path| std::fs::read_to_string(path).ok()).map(|text| parse(&text)).unwrap_or_default()
}

/// The device of each served array, given by uuid, metadata and name. It keeps what it is called now.
pub(super) fn assign(arrays: &[[String; 3]], has_server: &dyn Fn(&str) -> bool) -> Vec<(u32, String)> {
    let named: Vec<(String, String)> = arrays.iter().map(|[uuid, _, name]| (uuid.clone(), name.clone())).collect();
    let kept = |map: Vec<Entry>| map.into_iter().filter(|entry| has_server(&entry.uuid)).collect::<Vec<_>>();
    let map = kept(read());
    let found = devices(&named, &map);
    if arrays.iter().all(|[uuid, ..]| map.iter().any(|entry| entry.uuid == *uuid)) {
        return found;
    }
    let mut assigned = found.clone();
    let noted = rewrite("mdadm.map", |text| {
        let map = kept(parse(text)); // another process may have assigned some meanwhile
        assigned = devices(&named, &map);
        let entries = arrays.iter().zip(&assigned).map(|([uuid, metadata, _], (number, path))| Entry {
            number: *number,
            metadata: metadata.clone(),
            uuid: uuid.clone(),
            path: path.clone(),
        });
        let new = entries.filter(|entry| !map.iter().any(|old| old.uuid == entry.uuid));
        map.iter().cloned().chain(new).map(|entry| entry.line()).collect()
    });
    match noted {
        Ok(()) => assigned,
        Err(error) => {
            tracing::debug!("{}", error.reason());
            found
        }
    }
}

/// Adds a line, and leaves out those of arrays without a server and of the same device.
pub(super) fn add(entry: &Entry, has_server: &dyn Fn(&str) -> bool) -> Result<(), Failure> {
    let is_kept = |old: &Entry| old.uuid != entry.uuid && old.number != entry.number && has_server(&old.uuid);
    rewrite("mdadm.map", |text| {
        let kept: String = parse(text).iter().filter(|old| is_kept(old)).map(Entry::line).collect();
        format!("{kept}{}", entry.line())
    })
}

/// Changes the text of a file beside the control sockets, which may not be there yet. One process after the other.
pub(super) fn rewrite(file: &str, change: impl FnOnce(&str) -> String) -> Result<(), Failure> {
    let path = own_directory()?.join(file);
    let failed = |error: std::io::Error| Failure::unwell(format!("{}: {error}", path.display()));
    let mut options = OpenOptions::new();
    let mut file =
        options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(failed)?;
    flock(&file, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    file.seek(SeekFrom::Start(0)).and_then(|_| file.set_len(0)).map_err(failed)?;
    file.write_all(change(&text).as_bytes()).map_err(failed)
}

/// The path of the device that a new or assembled array is called by: a bare word is a name below /dev/md, if a file name
/// may have its characters everywhere. A file of that name is more likely a member before which the device was forgotten.
pub(super) fn path_of(word: &str) -> String {
    let is_portable = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_name = !word.is_empty() && word.chars().all(is_portable) && !Path::new(word).exists();
    if is_name { format!("/dev/md/{word}") } else { word.to_owned() }
}

/// The number in `/dev/md5`, `md5`, `/dev/md/5`; `None` for another word.
pub(super) fn number_in(word: &str) -> Option<u32> {
    let rest = word.strip_prefix("/dev/").unwrap_or(word);
    let digits = rest.strip_prefix("md/").or_else(|| rest.strip_prefix("md"))?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// The name in `/dev/md/data` or `/dev/md_data`, or the number in `/dev/md5`: what an array made there is called.
pub(super) fn name_in(word: &str) -> Option<&str> {
    let rest = word.strip_prefix("/dev/").unwrap_or(word);
    let name = rest.strip_prefix("md/").or_else(|| rest.strip_prefix("md_"));
    let name = name.or_else(|| rest.strip_prefix("md").filter(|_| number_in(word).is_some()));
    name.filter(|name| !name.is_empty() && !name.contains('/'))
}

/// The device of each of `arrays`, given by uuid and name: its number, and its path. `map` is of arrays that have a server.
pub(super) fn devices(arrays: &[(String, String)], map: &[Entry]) -> Vec<(u32, String)> {
    let mapped = |uuid: &str| map.iter().rev().find(|entry| entry.uuid == uuid);
    let mut taken: Vec<u32> = map.iter().map(|entry| entry.number).collect();
    let named = |name: &str| number_in(&format!("/dev/md{}", without_host(name)));
    let mut numbers: Vec<Option<u32>> = Vec::new();
    for (uuid, name) in arrays {
        let number = mapped(uuid).map(|entry| entry.number);
        let own = || named(name).filter(|number| !taken.contains(number));
        let number = number.or_else(own);
        taken.extend(number);
        numbers.push(number);
    }
    let mut paths: Vec<String> = map.iter().map(|entry| entry.path.clone()).collect();
    let pairs = arrays.iter().zip(numbers).map(|((uuid, name), number)| {
        let number = number.unwrap_or_else(|| {
            let free = free_number(&taken);
            taken.push(free);
            free
        });
        let path = mapped(uuid).map(|entry| entry.path.clone()).unwrap_or_else(|| {
            let path = free_path(number, without_host(name), &paths);
            paths.push(path.clone());
            path
        });
        (number, path)
    });
    pairs.collect()
}

/// The path of an array with this name that is not taken: a second `data` is `data_0`, as with mdadm.
fn free_path(number: u32, name: &str, taken: &[String]) -> String {
    if name.is_empty() {
        return format!("/dev/md{number}");
    }
    let is_kept = |c: char| c.is_alphanumeric() || "._-+:".contains(c);
    let name: String = name.chars().map(|c| if is_kept(c) { c } else { '_' }).collect();
    let others = (0..).map(|other| format!("/dev/md/{name}_{other}"));
    let mut paths = std::iter::once(format!("/dev/md/{name}")).chain(others);
    paths.find(|path| !taken.contains(path)).expect("there are more paths than arrays")
}

/// The highest number from 127 down that is not taken; above that, if all are.
pub(super) fn free_number(taken: &[u32]) -> u32 {
    let free = (0..=LAST_NUMBER).rev().find(|number| !taken.contains(number));
    free.unwrap_or_else(|| taken.iter().max().map_or(0, |most| most + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_devices_have_numbers_and_names() {
        for (word, number, name) in [
            ("/dev/md0", Some(0), Some("0")),
            ("md127", Some(127), Some("127")),
            ("/dev/md/5", Some(5), Some("5")),
            ("/dev/md/data", None, Some("data")),
            ("/dev/md_data", None, Some("data")),
            ("/dev/md", None, None),
            ("/dev/mdx", None, None),
            ("/dev/md/a/b", None, None),
            ("a.img", None, None),
        ] {
            assert_eq!((number_in(word), name_in(word)), (number, name), "{word}");
        }
    }

    #[test]
    fn a_bare_word_is_a_name_below_dev_md() {
        for (word, path) in [("films", "/dev/md/films"), ("md0", "/dev/md/md0"), ("/dev/md0", "/dev/md0")] {
            assert_eq!(path_of(word), path);
        }
        for word in ["", "<ignore>", "a b", "Cargo.toml", "src"] {
            assert_eq!(path_of(word), word, "no name, or a file of this crate");
        }
    }

    #[test]
    fn every_array_has_one_device_and_those_of_the_map_keep_theirs() {
        let map = parse("md5 1.2 u1 /dev/md/data\nnonsense\nmd127 1.0 u2 /dev/md/a b\n");
        assert_eq!(map[1].path, "/dev/md/a b");
        let arrays = [
            ("u1", "host:0"),
            ("u3", "host:0"),
            ("u4", "music"),
            ("u5", ""),
            ("u2", "b"),
            ("u6", "host:5"),
            ("u7", "music"),
            ("u8", "my films\u{e4}/x"),
        ];
        let arrays: Vec<(String, String)> =
            arrays.iter().map(|(uuid, name)| ((*uuid).into(), (*name).into())).collect();
        let expected = [
            (5, "/dev/md/data"),
            (0, "/dev/md/0"),
            (126, "/dev/md/music"),
            (125, "/dev/md125"),
            (127, "/dev/md/a b"),
            (124, "/dev/md/5"),
            (123, "/dev/md/music_0"),
            (122, "/dev/md/my_films\u{e4}_x"),
        ];
        let expected: Vec<(u32, String)> = expected.iter().map(|(number, path)| (*number, (*path).into())).collect();
        assert_eq!(devices(&arrays, &map), expected);
    }
}
