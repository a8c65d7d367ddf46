//! The choice of the server that a command talks to: by `--control`, or by the array's name, the first digits of its
//! uuid, or one of its members; without any of these, the only one.
//!
//! Nothing is guessed: where several arrays fit, the refusal lists each with the line that chooses it.

use crate::command::clients::served::{Answer, ArrayView, Served, ask_all, is_listening};
use crate::command::opening::members::ArrayUuid;
use crate::command::opening::sockets::{control_sockets, harmless};
use crate::command::text::failure::Failure;
use crate::names::{name_of, path_of, shell_word, word_of};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Fewer digits do not name an array by its uuid.
const UUID_DIGITS_MIN: usize = 4;

/// What the user said about the array.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted<'a> {
    /// Its control socket.
    pub(crate) control: Option<&'a Path>,
    /// Its name, the first digits of its uuid, or a member.
    pub(crate) array: Option<&'a OsStr>,
    /// A member that the command is about. It decides only between several arrays.
    pub(crate) member: Option<&'a OsStr>,
}

/// Why no server was chosen.
#[derive(Debug)]
pub(crate) enum NotChosen {
    /// No served array fits.
    None(Failure),
    /// Several arrays fit.
    Several(Failure),
}

impl From<NotChosen> for Failure {
    fn from(not_chosen: NotChosen) -> Self {
        match not_chosen {
            NotChosen::None(failure) | NotChosen::Several(failure) => failure,
        }
    }
}

/// The control socket of the wanted array.
pub(crate) fn socket(wanted: &Wanted<'_>) -> Result<PathBuf, NotChosen> {
    if let Some(path) = wanted.control {
        return Ok(path.to_owned());
    }
    let (mut sockets, killed): (Vec<PathBuf>, Vec<PathBuf>) =
        control_sockets().into_iter().partition(|socket| is_listening(socket));
    if wanted.array.is_none() && sockets.len() == 1 {
        return Ok(sockets.remove(0)); // there is nothing to choose
    }
    let typed: Vec<OsString> = std::env::args_os().skip(1).collect();
    match choose(wanted, ask_all(sockets), &typed) {
        Err(NotChosen::None(failure)) => Err(NotChosen::None(of_killed(wanted, &killed).unwrap_or(failure))),
        chosen => chosen,
    }
}

/// Why there is no server, if a killed one left its socket, and that has the array's name or uuid.
fn of_killed(wanted: &Wanted<'_>, killed: &[PathBuf]) -> Option<Failure> {
    let is_its = |socket: &PathBuf| {
        let one = Served { socket: socket.clone(), answer: Answer::Gone };
        wanted.array.is_none_or(|word| is_named(word, &one) || has_uuid(word, &one))
    };
    let socket = killed.iter().find(|socket| is_its(socket))?;
    let reason = format!("{}: its server was killed: no process listens there", name_of(socket));
    Some(Failure::refused(reason).advise("serve the array again, by `mdspace serve` and its members"))
}

/// The socket of the one array that fits. `typed` is the command line, for the refusal.
fn choose(wanted: &Wanted<'_>, served: Vec<Served>, typed: &[OsString]) -> Result<PathBuf, NotChosen> {
    // A server that ended between the two requests is no longer served.
    let served: Vec<Served> = served.into_iter().filter(|one| !matches!(one.answer, Answer::Gone)).collect();
    let all: Vec<&Served> = served.iter().collect();
    let found = match (wanted.array, wanted.member) {
        (Some(word), _) => fitting(word, &served),
        (None, Some(member)) => Some(served.iter().filter(|one| has_member(member, one)).collect::<Vec<_>>())
            .filter(|found| !found.is_empty())
            .unwrap_or(all),
        (None, None) => all,
    };
    match (&found[..], wanted.array) {
        ([one], _) => Ok(one.socket.clone()),
        ([], Some(word)) => Err(NotChosen::None(none_fits(word, &served))),
        ([], None) => Err(NotChosen::None(none_served())),
        (several, word) => {
            let count = several.len();
            let what = match word {
                Some(word) => format!("{}: {count} served arrays fit", name_of(Path::new(word))),
                None => format!("{count} arrays are being served"),
            };
            let typed = without_choice(typed, word);
            let lines = several.iter().map(|one| format!("\n    {}", line(&typed, one, &served)));
            let advice = format!("choose one:{}", lines.collect::<String>());
            Err(NotChosen::Several(Failure::refused(what).advise(advice)))
        }
    }
}

fn none_served() -> Failure {
    Failure::refused("no array of yours is being served here")
        .advise("start one with `mdspace serve` or `mdspace up`, or name its socket with --control PATH")
}

fn none_fits(word: &OsStr, served: &[Served]) -> Failure {
    let word = name_of(Path::new(word));
    if served.is_empty() {
        return none_served();
    }
    let names: Vec<String> = served.iter().map(|one| selector(one, served)).collect();
    Failure::refused(format!("{word}: no served array has this name, this uuid (4 digits or more) or this member"))
        .advise(format!("`mdspace list` shows the served arrays: {}", names.join(", ")))
}

/// How many served arrays a word fits.
pub(crate) enum Fitting<'a> {
    None,
    One(&'a Served),
    Several,
}

/// The array that `word` fits, as `--array` takes it.
pub(crate) fn the_one<'a>(word: &OsStr, served: &'a [Served]) -> Fitting<'a> {
    match fitting(word, served)[..] {
        [] => Fitting::None,
        [one] => Fitting::One(one),
        _ => Fitting::Several,
    }
}

/// The arrays that `word` fits: by name; if there is none, by a member; if there is none, by the uuid.
fn fitting<'a>(word: &OsStr, served: &'a [Served]) -> Vec<&'a Served> {
    let rules: [fn(&OsStr, &Served) -> bool; 3] = [is_named, has_member, has_uuid];
    let found = rules.iter().map(|rule| served.iter().filter(|one| rule(word, one)).collect::<Vec<_>>());
    found.into_iter().find(|found| !found.is_empty()).unwrap_or_default()
}

/// The host, with which mdadm's names begin, may be left out. Of a server without an answer only the name of the socket
/// is known.
fn is_named(word: &OsStr, served: &Served) -> bool {
    let (word, name) = (name_of(Path::new(word)), served.name());
    if served.array().is_none() {
        return !word.is_empty() && name == harmless(&word);
    }
    !word.is_empty() && (name == word || name.split_once(':').is_some_and(|(_, name)| name == word))
}

fn has_uuid(word: &OsStr, served: &Served) -> bool {
    let digits = |text: &str| text.chars().filter(|c| !matches!(c, ':' | '-')).collect::<String>().to_lowercase();
    let word = digits(&word.to_string_lossy());
    let is_digits = word.len() >= UUID_DIGITS_MIN && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    match served.array() {
        Some(array) => {
            // mdadm prints the four words of such a uuid as numbers.
            let mdadms = array.uuid.parse().ok().filter(|_| array.metadata == "0.90");
            let mdadms = mdadms.map(|uuid: ArrayUuid| digits(&uuid.with_words_reversed().to_string()));
            is_digits && (digits(&array.uuid).starts_with(&word) || mdadms.is_some_and(|uuid| uuid.starts_with(&word)))
        }
        // Only the first digits of its uuid are known.
        None => {
            let short = served.short_uuid();
            is_digits && !short.is_empty() && (short.starts_with(&word) || word.starts_with(&short))
        }
    }
}

fn has_member(word: &OsStr, served: &Served) -> bool {
    served.array().is_some_and(|array| member_of(word, array).is_some())
}

/// The name in the status of the member that `word` means. An existing file is compared by its path, as links to it and other
/// directories have other words for it; any other word with the names.
pub(crate) fn member_of<'a>(word: &OsStr, array: &'a ArrayView) -> Option<&'a str> {
    let mut names = array.members.iter().map(|member| &*member.name);
    let Ok(file) = Path::new(word).canonicalize() else {
        let word = name_of(Path::new(word));
        return names.find(|name| *name == word);
    };
    // Names are relative to the server's directory.
    let directory = PathBuf::from(format!("/proc/{}/cwd", array.served.pid));
    names.find(|name| directory.join(path_of(name)).canonicalize().is_ok_and(|path| path == file))
}

/// The words that choose `one` among `served`.
fn selector(one: &Served, served: &[Served]) -> String {
    let is_only = |is_same: &dyn Fn(&Served) -> bool| served.iter().filter(|other| is_same(other)).count() == 1;
    let (name, uuid) = (one.name(), one.short_uuid());
    let is_member = || served.iter().any(|other| has_member(OsStr::new(&uuid), other));
    if !name.is_empty() && !name.starts_with('-') && is_only(&|other| is_named(OsStr::new(&name), other)) {
        format!("--array {}", shell_word(&name))
    } else if !uuid.is_empty() && is_only(&|other| other.short_uuid() == uuid) && !is_member() {
        format!("--array {uuid}")
    } else {
        format!("--control {}", word_of(&one.socket))
    }
}

/// The command line without the choice of an array.
fn without_choice(typed: &[OsString], word: Option<&OsStr>) -> Vec<OsString> {
    let Some(word) = word else { return typed.to_vec() };
    let joined: OsString = [OsStr::new("--array="), word].into_iter().collect();
    let is_option = |at: usize| typed[at] == "--array" && typed.get(at + 1).is_some_and(|next| next == word);
    let (first, count) = match (0..typed.len()).find(|&at| is_option(at) || typed[at] == joined) {
        Some(at) => (at, if typed[at] == joined { 1 } else { 2 }),
        // An argument, behind the command's name.
        None => (typed.iter().skip(1).position(|other| other == word).map_or(typed.len(), |at| at + 1), 1),
    };
    let others = typed.iter().enumerate().filter(|(at, _)| !(first..first + count).contains(at));
    others.map(|(_, word)| word.clone()).collect()
}

/// The command line, with the words that choose `one`.
fn line(typed: &[OsString], one: &Served, served: &[Served]) -> String {
    let words = typed.iter().map(|word| word_of(Path::new(word)));
    let words: Vec<String> = ["mdspace".to_owned()].into_iter().chain(words).collect();
    format!("{} {}", words.join(" "), selector(one, served))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::clients::served::ArrayView;
    use serde::Deserialize;
    use serde_json::json;

    fn served(name: &str, uuid: &str, members: &[&str]) -> Served {
        let members: Vec<_> = members.iter().map(|name| json!({"name": name, "state": "in_sync"})).collect();
        let array = ArrayView::deserialize(json!({
            "uuid": uuid, "name": name, "level": "raid1", "array_bytes": 1, "raid_disks": 2, "in_sync": 2,
            "state": "clean", "broken": null, "read_only": false, "in_agreement": true, "sync_action": "idle",
            "sweep": null, "sweep_failure": null, "members": members, "served": {"pid": 1},
        }));
        let array = array.expect("a status");
        Served {
            socket: format!("/run/{name}-{}.control.sock", &uuid[..8]).into(),
            answer: Answer::Array(array.into()),
        }
    }

    fn three() -> Vec<Served> {
        vec![
            served("host:data", "0123abcd:00000000:00000000:00000000", &["/nowhere/a", "/nowhere/b"]),
            served("music", "0123ffff:00000000:00000000:00000000", &["/nowhere/c", "data"]),
            served("music", "99999999:00000000:00000000:00000000", &["/nowhere/d", "/nowhere/e f"]),
            Served { socket: "/run/slow-77777777.control.sock".into(), answer: Answer::Silent("no answer".to_owned()) },
            Served { socket: "/run/s_low-66666666.control.sock".into(), answer: Answer::Silent(String::new()) },
            Served { socket: "/run/left-88888888.control.sock".into(), answer: Answer::Gone },
        ]
    }

    fn chosen(array: Option<&str>, member: Option<&str>, served: Vec<Served>) -> Result<String, String> {
        let wanted = Wanted { control: None, array: array.map(OsStr::new), member: member.map(OsStr::new) };
        let typed = ["fail", "a b"].map(OsString::from);
        match choose(&wanted, served, &typed) {
            Ok(socket) => Ok(socket.file_stem().expect("a name").to_string_lossy().into_owned()),
            Err(error) => Err(Failure::from(error).to_string()),
        }
    }

    #[test]
    fn an_array_is_chosen_by_its_name_a_member_or_the_first_digits_of_its_uuid() {
        for (word, expected) in [
            ("host:data", "host:data-0123abcd.control"),
            ("data", "host:data-0123abcd.control"), // its name comes before the member of another
            ("/nowhere/c", "music-0123ffff.control"),
            ("/nowhere/e f", "music-99999999.control"),
            ("9999", "music-99999999.control"),
            ("0123ABCD:0000", "host:data-0123abcd.control"),
            ("slow", "slow-77777777.control"),
            ("s:low", "s_low-66666666.control"),
            ("7777777700000000", "slow-77777777.control"),
        ] {
            assert_eq!(chosen(Some(word), None, three()).as_deref(), Ok(expected), "{word}");
        }
        for word in ["0", "012", "nothing", "left", "low", "8888", "host", ""] {
            let said = chosen(Some(word), None, three()).expect_err(word);
            assert!(said.contains("no served array") && said.contains("mdspace list"), "{said}");
        }
    }

    #[test]
    fn the_uuid_of_an_array_of_metadata_0_90_is_taken_as_mdadm_prints_it_too() {
        let mut old = served("", "0123abcd:00000000:00000000:89abcdef", &[]);
        for (metadata, is_taken) in [("0.90", true), ("1.2", false)] {
            if let Answer::Array(array) = &mut old.answer {
                array.metadata = metadata.to_owned();
            }
            assert_eq!(has_uuid(OsStr::new("cdab2301:00000000:00000000:efcdab89"), &old), is_taken);
            assert!(has_uuid(OsStr::new("0123abcd"), &old));
        }
    }

    #[test]
    fn several_are_listed_each_with_the_line_that_chooses_it() {
        let said = chosen(Some("0123"), None, three()).expect_err("two");
        assert!(said.starts_with("refused: 0123: 2 served arrays fit\n  next: choose one:\n"), "{said}");
        assert!(said.contains("\n    mdspace fail 'a b' --array host:data"), "{said}");
        assert!(said.ends_with("\n    mdspace fail 'a b' --array 0123ffff"), "two arrays have its name: {said}");
        let said = chosen(None, None, three()).expect_err("five");
        assert!(said.starts_with("refused: 5 arrays are being served"), "{said}");
        assert!(said.ends_with("--array slow\n    mdspace fail 'a b' --array s_low"), "{said}");
        let unnamed = served("", "0123abcd:00000000:00000000:00000000", &["77777777"]);
        let other = served("", "77777777:00000000:00000000:00000000", &[]);
        let said = chosen(None, None, vec![unnamed, other]).expect_err("two");
        assert!(said.contains("--array 0123abcd\n"), "{said}");
        assert!(said.contains("--control /run/-77777777.control.sock"), "its digits are the other's member: {said}");
    }

    #[test]
    fn the_line_that_chooses_an_array_does_not_repeat_the_choice_that_fits_several() {
        for typed in ["stop 01 --json", "stop --array 01 --json", "stop --array=01 --json", "stop --json 01"] {
            let typed: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
            assert_eq!(without_choice(&typed, Some(OsStr::new("01"))), ["stop", "--json"], "{typed:?}");
        }
    }

    #[test]
    fn the_member_of_a_command_decides_between_several_arrays() {
        assert_eq!(chosen(None, Some("/nowhere/b"), three()).as_deref(), Ok("host:data-0123abcd.control"));
        assert!(chosen(None, Some("/nowhere/z"), three()).is_err());
        assert!(chosen(None, None, Vec::new()).is_err_and(|said| said.contains("mdspace serve")));
        assert!(chosen(Some("data"), None, Vec::new()).is_err_and(|said| said.contains("mdspace serve")));
    }
}
