//! Manage mode: `--add`, `--re-add`, `--fail`, `--remove` and `--replace` of members of a served array.
//!
//! All words are checked before the first change is requested. Then the changes are made in their order, as mdadm makes
//! them, and the first one that is refused ends the line. Facts: mdadm 4.2's `Manage.c`.

use super::arrays::{Array, Status, all, wanted};
use super::examine::{array_uuid, read};
use super::own::absolute;
use super::words::{Device, Words};
use super::{Trouble, note};
use crate::machine::{Arena, Machine};
use crate::names::{name_of, path_of};
use format::superblock::{DeviceRole, Superblock};
use format::units::Slot;
use serde_json::json;
use std::path::Path;

/// Words of mdadm that stand for members.
const FAILED: [&str; 2] = ["failed", "faulty"];
const NOT_YET: [&str; 2] = ["detached", "missing"];

/// A change, with the members' names.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Add(String, Flags),
    AddSpare(String, Flags),
    ReAdd(String, Flags),
    Remove(String),
    RemoveFailed,
    Fail(String),
    Replace(String, Option<String>),
}

/// The options before a member that set or clear its flags.
type Flags = Vec<&'static str>;

/// Runs manage mode.
pub(super) fn run(words: &Words) -> Result<u8, Trouble> {
    let Some((device, rest)) = words.devices.split_first() else {
        return Err(Trouble::usage("an md device must be given in this mode"));
    };
    let changes = changes(rest)?;
    let arrays = all();
    let array = wanted(&device.word.to_string_lossy(), &arrays)?;
    let name = device.name();
    if words.has("stop") {
        return super::misc::stop(&name, array, words);
    }
    if words.has("readonly") {
        if !changes.is_empty() {
            return Err(Trouble::usage("--readonly: give no other change with it"));
        }
        return super::misc::make_read_only(&name, array);
    }
    if changes.is_empty() && !words.has("run") {
        return Err(Trouble::usage("no action is given for this device"));
    }
    for change in &changes {
        change.make(array, &name, words)?;
    }
    Ok(0)
}

/// The changes that the words ask for, in their order.
fn changes(words: &[Device]) -> Result<Vec<Change>, Trouble> {
    let mut changes = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(device) = words.next() {
        let name = name_in(device);
        let action = device.action.unwrap_or_default();
        if NOT_YET.contains(&&*name) {
            return Err(Trouble::refused(format!("--{action} {name}: not yet: name the members themselves")));
        }
        if FAILED.contains(&&*name) {
            match action {
                "remove" => changes.push(Change::RemoveFailed),
                _ => return Err(Trouble::usage(format!("{name} only meaningful with -r, not --{action}"))),
            }
            continue;
        }
        changes.push(match action {
            "add" => Change::Add(name, device.flags.clone()),
            "add-spare" => Change::AddSpare(name, device.flags.clone()),
            "re-add" => Change::ReAdd(name, device.flags.clone()),
            "remove" => Change::Remove(name),
            "fail" => Change::Fail(name),
            "replace" => Change::Replace(name, words.next_if(|next| next.action == Some("with")).map(name_in)),
            _ => return Err(Trouble::usage(format!("{name}: --with must follow --replace"))),
        });
    }
    Ok(changes)
}

/// A member's name: the absolute path of a file that exists.
fn name_in(device: &Device) -> String {
    match Path::new(&device.word).exists() {
        true => name_of(Path::new(&absolute(&device.word))),
        false => device.name(),
    }
}

impl Change {
    fn make(&self, array: &Array, device: &str, words: &Words) -> Result<(), Trouble> {
        let force = words.has("force");
        let member = |route: &str, name: &str| array.post(&format!("/v1/members/{route}"), &json!({ "member": name }));
        let add = |name: &str, force| array.post("/v1/members/add", &json!({ "member": name, "force": force }));
        let told = match self {
            Self::Fail(name) => {
                member("fail", name)?;
                format!("set {name} faulty in {device}")
            }
            Self::Remove(name) => {
                member("remove", name)?;
                format!("hot removed {name} from {device}")
            }
            Self::RemoveFailed => {
                for faulty in array.status.members.iter().filter(|member| member.state == "faulty") {
                    member("remove", &faulty.name)?;
                    tell_change(words, &format!("hot removed {} from {device}", faulty.name));
                }
                return Ok(());
            }
            Self::ReAdd(name, flags) => {
                member("re-add", name)?;
                set_flags(array, name, flags)?;
                format!("re-added {name}")
            }
            // mdadm takes a recent member back, and any other one as new.
            Self::Add(name, flags) => {
                let kinship = kinship(array, name)?;
                // What cannot be taken back is not even opened for that.
                let is_back = kinship >= Kinship::Member && member("re-add", name).is_ok();
                if !is_back {
                    add(name, force || [Kinship::Spare, Kinship::LeftBehind].contains(&kinship))?;
                }
                set_flags(array, name, flags)?;
                format!("{} {name}", if is_back { "re-added" } else { "added" })
            }
            Self::AddSpare(name, flags) => {
                add(name, force)?;
                set_flags(array, name, flags)?;
                format!("added {name}")
            }
            Self::Replace(old, new) => {
                array.post("/v1/members/replace", &json!({ "member": old, "with": new, "force": force }))?;
                let new = new.as_ref().map(|new| format!("\nMarked {new} in {device} as replacement"));
                format!("Marked {old} in {device} for replacement{}", new.unwrap_or_default())
            }
        };
        tell_change(words, &told);
        Ok(())
    }
}

/// What a member is to an array by its own superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Kinship {
    None,
    /// It holds no data of the array's.
    Spare,
    Member,
    /// All that it holds is an older state of what the others hold.
    LeftBehind,
}

fn kinship(array: &Array, name: &str) -> Result<Kinship, Trouble> {
    let machine = Machine::start(None, Arena::Small)?;
    let found = read(&machine, &path_of(name)).ok().map(|member| member.found.superblock);
    let Some(superblock) = found.filter(|superblock| array_uuid(superblock) == array.status.uuid) else {
        return Ok(Kinship::None);
    };
    // Changes of the same line may have come before.
    let now = array.status_now()?;
    Ok(match superblock.own_role() {
        DeviceRole::Spare => Kinship::Spare,
        DeviceRole::Active(_) if is_left_behind(&superblock, &now) => Kinship::LeftBehind,
        _ => Kinship::Member,
    })
}

/// Whether the array went on without this member, and the member never without one that is current: parts of a mirror
/// that were used apart each have data of their own.
fn is_left_behind(superblock: &Superblock, now: &Status) -> bool {
    let knew = |slot| superblock.roles.contains(&DeviceRole::Active(Slot(slot)));
    let mut current = now.members.iter().filter(|member| member.state == "in_sync");
    now.events > superblock.events && current.all(|member| member.slot.is_some_and(knew))
}

/// Sets and clears the flags of a member of the array.
fn set_flags(array: &Array, name: &str, flags: &Flags) -> Result<(), Trouble> {
    for flag in flags {
        let (key, mark) = match *flag {
            "readwrite" => ("write-mostly", "-"),
            "nofailfast" => ("failfast", "-"),
            set => (set, ""),
        };
        array.post("/v1/set", &json!({ key: format!("{mark}{name}") }))?;
    }
    Ok(())
}

fn tell_change(words: &Words, text: &str) {
    if !words.is_quiet() {
        text.lines().for_each(note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn words_are_changes_in_their_order_and_what_is_not_here_is_refused() {
        let changes_of = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            changes(&Words::of(&words).expect("a line of mdadm").devices[1..])
        };
        let name = str::to_owned;
        assert_eq!(
            changes_of("/dev/md0 -f x1 -r x1 failed -a x2 --re-add x3 --replace x4 --with x5").expect("changes"),
            [
                Change::Fail(name("x1")),
                Change::Remove(name("x1")),
                Change::RemoveFailed,
                Change::Add(name("x2"), vec![]),
                Change::ReAdd(name("x3"), vec![]),
                Change::Replace(name("x4"), Some(name("x5"))),
            ]
        );
        assert_eq!(
            changes_of("/dev/md0 --replace x1 -a x2 -W --failfast x3 -w --nofailfast x4").expect("changes"),
            [
                Change::Replace(name("x1"), None),
                Change::Add(name("x2"), vec![]),
                Change::Add(name("x3"), vec!["write-mostly", "failfast"]),
                Change::Add(name("x4"), vec!["readwrite", "nofailfast"]),
            ]
        );
        for (line, word) in [
            ("/dev/md0 -r detached", "detached"),
            ("/dev/md0 --re-add missing", "missing"),
            ("/dev/md0 -f faulty", "only meaningful with -r"),
            ("/dev/md0 --replace x --with y z", "must follow"),
        ] {
            let trouble = changes_of(line).expect_err(line);
            assert!(trouble.status == 2 && trouble.message.contains(word), "{line}: {}", trouble.message);
        }
    }
}
