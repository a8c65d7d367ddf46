//! The served arrays as md devices, and the one that a word names.
//!
//! It asks each server for its array's status, and changes nothing.

use super::examine::reason;
use super::map;
use super::{Trouble, note};
use crate::command::clients::served::{PATIENCE, is_listening};
use crate::command::opening::members::ArrayUuid;
use crate::command::opening::sockets::{control_sockets, named_after};
use crate::command::text::level::{parse_layout, parse_level};
use crate::names::path_of;
use control::Client;
use format::geometry::Level;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The fields of a served array's status that mdadm shows.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Status {
    pub(super) uuid: String,
    pub(super) name: String,
    pub(super) metadata: String,
    pub(super) level: String,
    pub(super) layout: Option<String>,
    pub(super) chunk_bytes: u64,
    pub(super) array_bytes: u64,
    pub(super) component_bytes: u64,
    pub(super) created: u64,
    pub(super) updated: u64,
    pub(super) raid_disks: u16,
    pub(super) in_sync: u16,
    pub(super) state: String,
    pub(super) broken: Option<String>,
    pub(super) read_only: bool,
    /// Older servers do not send this.
    #[serde(default)]
    pub(super) made_read_only: bool,
    pub(super) events: u64,
    pub(super) in_agreement: bool,
    pub(super) consistency_policy: String,
    pub(super) sync_action: String,
    pub(super) sweep: Option<Sweep>,
    pub(super) bitmap: Option<Bitmap>,
    pub(super) members: Vec<Member>,
    served: Server,
}

/// A sweep under way.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Sweep {
    pub(super) action: String,
    pub(super) done_bytes: u64,
    pub(super) total_bytes: u64,
    pub(super) bytes_per_second: u64,
}

/// The write-intent bitmap.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Bitmap {
    pub(super) set: u64,
    pub(super) bits: u64,
    pub(super) chunk_bytes: u64,
    pub(super) file: Option<String>,
}

/// A member.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) slot: Option<u16>,
    pub(super) device_number: u16,
    pub(super) state: String,
    #[serde(default)]
    pub(super) write_mostly: bool,
    #[serde(default)]
    pub(super) failfast: bool,
}

#[derive(Debug, Clone, Deserialize)]
struct Server {
    #[serde(default)]
    ways: Vec<Way>,
}

#[derive(Debug, Clone, Deserialize)]
struct Way {
    kind: String,
    address: String,
    clients: usize,
}

impl Way {
    /// Whether anything uses the array through this export. A block device counts as in use while it is mounted or
    /// belongs to another device: then it cannot be opened exclusively.
    fn is_in_use(&self) -> bool {
        match &*self.kind {
            "ublk" => open(&*self.address, OFlags::RDONLY | OFlags::EXCL, Mode::empty())
                .is_err_and(|error| error == Errno::BUSY),
            _ => self.clients > 0,
        }
    }
}

/// A served array.
#[derive(Debug)]
pub(super) struct Array {
    pub(super) socket: PathBuf,
    pub(super) status: Status,
    /// N of `/dev/mdN`.
    pub(super) number: u32,
    /// `/dev/md/data`
    pub(super) path: String,
}

impl Member {
    /// The numbers of its device; 0 and 0 of a file.
    pub(super) fn device_numbers(&self) -> (u32, u32) {
        io::device_numbers(&path_of(&self.name)).unwrap_or_default()
    }
}

impl Status {
    /// The level.
    pub(super) fn level(&self) -> Level {
        parse_level(&self.level).unwrap_or(Level::Linear)
    }

    /// md's number of the layout of RAID-5 and 6; 0 of RAID-4, as in the superblocks that mdadm makes.
    pub(super) fn layout_code(&self) -> u32 {
        self.layout.as_deref().and_then(|name| parse_layout(self.level(), name).ok()).unwrap_or(0)
    }

    /// Near, far and offset copies of RAID-10, by the layout's name: `near=2, far=2`.
    pub(super) fn copies(&self, kind: &str) -> Option<u16> {
        let layout = self.layout.as_deref().unwrap_or_default();
        layout.split(", ").find_map(|word| word.strip_prefix(kind)?.strip_prefix('=')?.parse().ok())
    }

    /// The number of members in any of `states`.
    pub(super) fn count(&self, states: &[&str]) -> usize {
        self.members.iter().filter(|member| states.contains(&&*member.state)).count()
    }

    /// Whether a client, a file system or another device uses it.
    pub(super) fn is_in_use(&self) -> bool {
        self.served.ways.iter().any(Way::is_in_use)
    }

    /// Its block device, if an export makes one.
    pub(super) fn block_device(&self) -> Option<&str> {
        self.served.ways.iter().find(|way| way.kind == "ublk").map(|way| &*way.address)
    }
}

/// All served arrays, in the order of their sockets.
pub(super) fn all() -> Vec<Array> {
    let asked = control_sockets().into_iter().filter_map(|socket| {
        let client = Client::connect(&socket).ok()?.with_timeout(PATIENCE);
        match client.get("/v1/status").map_err(Trouble::from).and_then(|body| read(&body)) {
            Ok(status) => Some((socket, status)),
            Err(trouble) => {
                note(&format!("{}: {}", socket.display(), trouble.message));
                None
            }
        }
    });
    let asked: Vec<(PathBuf, Status)> = asked.collect();
    let named: Vec<[String; 3]> =
        asked.iter().map(|(_, status)| [status.uuid.clone(), status.metadata.clone(), status.name.clone()]).collect();
    let devices = map::assign(&named, &has_server);
    let arrays = asked.into_iter().zip(devices);
    arrays.map(|((socket, status), (number, path))| Array { socket, status, number, path }).collect()
}

/// Whether a server listens for the array with this uuid, also one that does not answer.
pub(super) fn has_server(uuid: &str) -> bool {
    let plain = |uuid: &str| uuid.replace(':', "");
    // Sockets are called by the uuid as it is on the members; mdadm prints the words of some as numbers.
    let other = uuid.parse().ok().map(|uuid: ArrayUuid| plain(&uuid.with_words_reversed().to_string()));
    let names = [Some(plain(uuid)), other];
    control_sockets().into_iter().any(|socket| {
        let (_, short) = named_after(&socket);
        let is_its = names.iter().flatten().any(|uuid| !short.is_empty() && uuid.starts_with(&short));
        is_its && is_listening(&socket)
    })
}

/// The status in a reply.
pub(super) fn read(body: &Value) -> Result<Status, Trouble> {
    let status = Status::deserialize(body)
        .map_err(|error| Trouble::failed(format!("the server's reply is not a status: {error}")))?;
    match status.uuid.parse() {
        // mdadm prints the four words of such a uuid as numbers.
        Ok(uuid @ ArrayUuid(_)) if status.metadata == "0.90" => {
            Ok(Status { uuid: uuid.with_words_reversed().to_string(), ..status })
        }
        _ => Ok(status),
    }
}

/// The served array that `word` names: by its device, its number, its name, or its uuid.
pub(super) fn find<'a>(word: &str, arrays: &'a [Array]) -> Option<&'a Array> {
    let target = std::fs::canonicalize(word).ok();
    let rules: [&dyn Fn(&Array) -> bool; 5] = [
        &|array| array.path == word,
        &|array| map::number_in(word) == Some(array.number) && !word.contains("md/"),
        &|array| array.status.block_device().is_some_and(|device| target.as_deref() == Some(Path::new(device))),
        &|array| map::name_in(word).is_some_and(|name| array.is_named(name)),
        &|array| {
            let uuid = word.parse().map(|uuid: ArrayUuid| uuid.to_string());
            !word.contains('/') && (array.is_named(word) || uuid.is_ok_and(|uuid| array.status.uuid == uuid))
        },
    ];
    let found = rules.iter().map(|rule| arrays.iter().filter(|array| rule(array)).collect::<Vec<_>>());
    // A word that fits several arrays names none.
    found.into_iter().find(|found| !found.is_empty()).filter(|found| found.len() == 1).map(|found| found[0])
}

/// As [`find`]; the error is mdadm's.
pub(super) fn wanted<'a>(word: &str, arrays: &'a [Array]) -> Result<&'a Array, Trouble> {
    find(word, arrays).ok_or_else(|| match std::fs::metadata(word) {
        Ok(_) => Trouble::failed(format!("{word} does not appear to be an md device")),
        Err(error) => Trouble::failed(format!("cannot open {word}: {}", reason(&error))),
    })
}

impl Array {
    fn is_named(&self, name: &str) -> bool {
        let own = &self.status.name;
        own == name || own.split_once(':').is_some_and(|(_, own)| own == name)
    }

    /// Its status after changes of the same line.
    pub(super) fn status_now(&self) -> Result<Status, Trouble> {
        read(&Client::connect(&self.socket)?.with_timeout(PATIENCE).get("/v1/status")?)
    }

    /// Requests a change from its server, which has just answered.
    pub(super) fn post(&self, route: &str, body: &Value) -> Result<Value, Trouble> {
        Ok(Client::connect(&self.socket)?.post(route, body)?)
    }
}
