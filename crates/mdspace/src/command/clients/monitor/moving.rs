//! Moves a spare from one served array to another: removed from the giver, then added to the needy array, with consent to
//! overwrite the giver's superblock of a spare and nothing else.
//!
//! A file beside the control sockets names the move while it is under way, so that a monitor that was killed in between
//! is followed by one that ends the move. If the needy array does not take the spare, the giver gets it back.

use super::events::Event;
use super::spares::{Refused, wanted};
use crate::command::clients::arguments::SpareGroup;
use crate::command::clients::choice::{Fitting, the_one};
use crate::command::clients::served::{Served, ask_all, is_listening};
use crate::command::opening::sockets::{control_sockets, own_directory, own_place};
use crate::command::text::failure::Failure;
use crate::command::text::output::tell;
use crate::names::{name_of, path_of};
use crate::place::is_uri;
use control::{AddRequest, Client, MemberRequest};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The name of the file.
const UNDER_WAY: &str = "spare-move.json";

/// A spare on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Move {
    /// The member, with a path that every server understands.
    member: String,
    /// The UUIDs of the two arrays.
    giver: String,
    needy: String,
}

/// Moves spares within groups of arrays.
pub(super) struct Mover<'a> {
    groups: &'a [SpareGroup],
    refused: Refused,
}

impl<'a> Mover<'a> {
    /// # Errors
    /// When a word of a group fits several served arrays, or the directory of the sockets cannot be had.
    pub(super) fn of(groups: &'a [SpareGroup]) -> Result<Self, Failure> {
        if !groups.is_empty() {
            own_directory()?;
            let served = served(&|_| false);
            for word in groups.iter().flat_map(|group| &group.0) {
                match the_one(word, &served) {
                    Fitting::One(_) => {}
                    Fitting::None => {
                        tell!("note: --spare-group: {}: no such array is being served yet", name_of(Path::new(word)));
                    }
                    Fitting::Several => {
                        let reason = format!("--spare-group: {}: several served arrays fit", name_of(Path::new(word)));
                        return Err(Failure::refused(reason).advise("name each by its UUID: `mdspace list` shows them"));
                    }
                }
            }
        }
        Ok(Self { groups, refused: Refused::new() })
    }

    /// Ends a move that was begun, or makes one in each group that needs it. Servers that are known to be silent are not
    /// waited for.
    pub(super) fn look(&mut self, is_silent: &dyn Fn(&Path) -> bool) -> Result<Vec<Event>, Failure> {
        if self.groups.is_empty() {
            return Ok(Vec::new());
        }
        let served = served(is_silent);
        if let Some(begun) = Move::begun()? {
            if served.iter().any(|one| begun.is_member_of(one)) {
                Move::forget()?; // the monitor that was killed had added it, or had not yet removed it
                return Ok(Vec::new());
            }
            return Ok(self.end(&begun, &served)?.into_iter().collect());
        }
        let mut events = Vec::new();
        for group in self.groups {
            let arrays: Vec<Option<&Served>> = group
                .0
                .iter()
                .map(|word| match the_one(word, &served) {
                    Fitting::One(one) => Some(one),
                    Fitting::None | Fitting::Several => None,
                })
                .collect();
            let views: Vec<_> = arrays.iter().map(|served| served.and_then(Served::array)).collect();
            let Some(found) = wanted(&views, &self.refused) else { continue };
            let (Some(giver), Some(needy)) = (arrays[found.from], arrays[found.to]) else { continue };
            if let Some(begun) = self.begin(giver, needy, found.spare)? {
                events.extend(self.end(&begun, &served)?);
            }
        }
        Ok(events)
    }

    /// Takes the spare from its array, once the move is on record.
    fn begin(&mut self, giver: &Served, needy: &Served, spare: &str) -> Result<Option<Move>, Failure> {
        let (Some(from), Some(to)) = (giver.array(), needy.array()) else { return Ok(None) };
        let member = absolute(spare, from.served.pid);
        let begun = Move { member, giver: from.uuid.clone(), needy: to.uuid.clone() };
        begun.record()?;
        let removed = post(giver, "remove", &json!(MemberRequest { member: spare.to_owned() }));
        if let Err(error) = removed {
            self.refuse(spare, &begun, &format!("not taken from {}: {error}", giver.name()));
            Move::forget()?;
            return Ok(None);
        }
        Ok(Some(begun))
    }

    /// Adds the spare, which is no member now, to the array that needs it, or to the giver.
    fn end(&mut self, begun: &Move, served: &[Served]) -> Result<Option<Event>, Failure> {
        let of = |uuid: &str| served.iter().find(|one| one.array().is_some_and(|array| array.uuid == uuid));
        let (giver, needy) = (of(&begun.giver), of(&begun.needy));
        if let Some(needy) = needy {
            match begun.add_to(needy) {
                Ok(()) => {
                    Move::forget()?;
                    let from = giver.map_or(begun.giver.clone(), Served::name);
                    return Ok(Some(Event::new("MoveSpare", &needy.name(), Some(&from))));
                }
                Err(error) => self.refuse(&begun.member, begun, &format!("not taken by {}: {error}", needy.name())),
            }
        }
        let Some(giver) = giver else { return Ok(None) }; // neither is being served: later
        if let Err(error) = begun.add_to(giver) {
            let (member, name) = (&begun.member, giver.name());
            tell!("warning: {member}: not taken back by {name}: {error}: add it by hand: `mdspace add {member}`");
        }
        Move::forget()?;
        Ok(None)
    }

    /// Does not try the spare for that array again, whatever name it has.
    fn refuse(&mut self, spare: &str, begun: &Move, why: &str) {
        tell!("note: the spare {spare}: {why}");
        for name in [spare, &begun.member] {
            self.refused.insert((name.to_owned(), begun.needy.clone()));
        }
    }
}

impl Move {
    /// The move that is under way.
    fn begun() -> Result<Option<Self>, Failure> {
        let Some(path) = own_place(UNDER_WAY) else { return Ok(None) };
        match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&path, &error.to_string())),
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(begun) => Ok(Some(begun)),
                Err(error) => Err(failed(&path, &error.to_string())
                    .advise("it names the spare that was being moved; remove it when that is a member again")),
            },
        }
    }

    fn record(&self) -> Result<(), Failure> {
        let path = own_directory()?.join(UNDER_WAY);
        let new = path.with_extension("new");
        let written = std::fs::write(&new, json!(self).to_string()).and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|error| failed(&path, &error.to_string()))
    }

    fn forget() -> Result<(), Failure> {
        let Some(path) = own_place(UNDER_WAY) else { return Ok(()) };
        std::fs::remove_file(&path).map_err(|error| failed(&path, &error.to_string()))
    }

    fn is_member_of(&self, one: &Served) -> bool {
        let Some(array) = one.array() else { return false };
        array.members.iter().any(|member| absolute(&member.name, array.served.pid) == self.member)
    }

    fn add_to(&self, one: &Served) -> Result<(), String> {
        let spare_of = Some(self.giver.clone());
        let member = self.member.clone();
        let request = AddRequest { member, force: false, write_mostly: false, failfast: false, spare_of };
        post(one, "add", &json!(request))
    }
}

fn failed(path: &Path, reason: &str) -> Failure {
    Failure::unwell(format!("{}: {reason}", path.display()))
}

fn served(is_silent: &dyn Fn(&Path) -> bool) -> Vec<Served> {
    let answers = |socket: &PathBuf| !is_silent(socket) && is_listening(socket);
    ask_all(control_sockets().into_iter().filter(answers).collect())
}

/// Returns why the server does not do it.
fn post(one: &Served, route: &str, request: &Value) -> Result<(), String> {
    let answer = Client::connect(&one.socket).and_then(|client| client.post(&format!("/v1/members/{route}"), request));
    answer.map(drop).map_err(|error| Failure::from(error).reason())
}

/// The member's name for every server: names in a status are relative to its server's directory.
fn absolute(name: &str, pid: i32) -> String {
    let path = path_of(name);
    if is_uri(&path) || path.is_absolute() {
        return name.to_owned();
    }
    match std::fs::read_link(format!("/proc/{pid}/cwd")) {
        Ok(directory) => name_of(&directory.join(path)),
        Err(_) => name.to_owned(),
    }
}
