//! Manage mode: `--add`, `--re-add`, `--fail`, `--remove` and `--replace` of members of a served array.
//!
//! All words are checked before the first change is requested. Then the changes are made in their order, as mdadm makes
//! them, and the first one that is refused ends the line. Facts: mdadm 4.2's `Manage.c`.

use super::arrays::{Array, all, wanted};
use super::own::absolute;
use super::words::{Device, Words};
use super::{Trouble, note};
use crate::names::name_of;
use serde_json::json;
use std::path::Path;

/// Words of mdadm that stand for members.
const FAILED: [&str; 2] = ["failed", "faulty"];
const NOT_YET: [&str; 2] = ["detached", "missing"];

/// A change, with the members' names.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Add(String),
    AddSpare(String),
    ReAdd(String),
    Remove(String),
    RemoveFailed,
    Fail(String),
    Replace(String, String),
}

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
            "add" => Change::Add(name),
            "add-spare" => Change::AddSpare(name),
            "re-add" => Change::ReAdd(name),
            "remove" => Change::Remove(name),
            "fail" => Change::Fail(name),
            "replace" => match words.next_if(|next| next.action == Some("with")) {
                Some(with) => Change::Replace(name, name_in(with)),
                None => {
                    return Err(Trouble::refused("--replace: not yet without --with: name the new member"));
                }
            },
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
        let add = |name: &str| array.post("/v1/members/add", &json!({ "member": name, "force": force }));
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
            Self::ReAdd(name) => {
                member("re-add", name)?;
                format!("re-added {name}")
            }
            // mdadm takes a recent member back, and any other one as new.
            Self::Add(name) => match member("re-add", name) {
                Ok(_) => format!("re-added {name}"),
                Err(_) => {
                    add(name)?;
                    format!("added {name}")
                }
            },
            Self::AddSpare(name) => {
                add(name)?;
                format!("added {name}")
            }
            Self::Replace(old, new) => {
                array.post("/v1/members/replace", &json!({ "member": old, "with": new, "force": force }))?;
                format!("Marked {old} in {device} for replacement\nMarked {new} in {device} as replacement")
            }
        };
        tell_change(words, &told);
        Ok(())
    }
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
                Change::Add(name("x2")),
                Change::ReAdd(name("x3")),
                Change::Replace(name("x4"), name("x5")),
            ]
        );
        for (line, word) in [
            ("/dev/md0 --replace x", "--with"),
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
