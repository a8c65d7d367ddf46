//! Answers to mdadm's options: the line of this command that does the same. Also answers to options that this command no
//! longer has.
//!
//! It only prints advice. For a line that only reads, it suggests a line that only reads, and never one that changes an
//! array.

use crate::command::mdadm;
use crate::names::name_of;
use clap::error::{ContextKind, ContextValue, Error};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Commands that never change a member, with any options.
const READ_ONLY: [&str; 8] = ["examine", "iostat", "list", "monitor", "status", "top", "trace", "wait"];

/// The answer to mdadm's --zero-superblock: the variant that changes nothing.
const WIPE: &str = "mdspace wipe --dry-run";

/// A reason and advice for `words`, the arguments of the program, if they are mdadm's.
pub(crate) fn answer(words: &[OsString]) -> Option<(String, String)> {
    let typed: Vec<String> = words.iter().map(|word| name_of(Path::new(word))).collect();
    // A line that begins with a command of this program is not mdadm's, except `create`, which takes most of mdadm's
    // words.
    let first = typed.first()?;
    if !first.starts_with('-') && !first.starts_with("/dev/md") && first != "create" {
        return None;
    }
    // What has no words of its own here is typed as mdadm's.
    let is_grow = typed.iter().any(|word| word == "--grow" || word.starts_with("-G"));
    let Some(mode) = Mode::among(&typed).filter(|_| !is_grow) else { return mdadm::answer(words) };
    let line = Line::of(&typed);
    if mode.kind.is_of_one_array() && line.is_known_to_mdadm_alone() {
        return mdadm::answer(words);
    }
    Some((format!("{}: an option of mdadm", mode.word), mode.next(&line)))
}

/// A reason and advice, if `error` is about an option that this command no longer has.
pub(crate) fn answer_to_removed_option(error: &Error) -> Option<(String, String)> {
    let is_removed =
        matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(word)) if word == "--shards");
    is_removed.then(|| {
        ("--shards: this option was removed: one thread serves an array".to_owned(), "leave it out".to_owned())
    })
}

/// A mode of mdadm, and the word that selects it.
struct Mode<'a> {
    word: &'a str,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Create,
    Assemble,
    Detail,
    Examine,
    Stop,
    Zero,
    Monitor,
    Wait(&'static str),
    Member(&'static str),
}

impl Kind {
    /// Whether the line changes an array, or waits for it, so that it must not become another array's.
    fn is_of_one_array(self) -> bool {
        matches!(self, Self::Stop | Self::Wait(_) | Self::Member(_))
    }
}

impl<'a> Mode<'a> {
    /// The mode of a line.
    fn among(typed: &'a [String]) -> Option<Self> {
        let is_create = typed.first().is_some_and(|first| first == "create");
        let of_create = || typed.iter().find(|word| is_create && is_mdadms_of_create(word));
        let mode = typed.iter().find_map(|word| Mode::of(word));
        mode.or_else(|| of_create().map(|word| Self { word, kind: Kind::Create }))
    }

    fn of(word: &'a str) -> Option<Self> {
        // mdadm accepts joined short options: -As, -Es.
        let short =
            |letter: char| word.starts_with('-') && !word.starts_with("--") && word.chars().nth(1) == Some(letter);
        let kind = match word {
            "--create" => Kind::Create,
            "--assemble" => Kind::Assemble,
            "--detail" | "--query" => Kind::Detail,
            "--examine" => Kind::Examine,
            "--stop" => Kind::Stop,
            "--zero-superblock" => Kind::Zero,
            "--monitor" | "--follow" => Kind::Monitor,
            "--wait" => Kind::Wait("sync"),
            "--wait-clean" => Kind::Wait("clean"),
            "--fail" | "--set-faulty" => Kind::Member("fail"),
            "--remove" => Kind::Member("remove"),
            "--add" => Kind::Member("add"),
            "--re-add" => Kind::Member("re-add"),
            // In `mdspace create` with mdadm's other options.
            "--raid-devices" => Kind::Create,
            _ if word.starts_with("--raid-devices=") || short('n') || short('C') => Kind::Create,
            _ if short('A') => Kind::Assemble,
            _ if short('D') || short('Q') => Kind::Detail,
            _ if short('E') => Kind::Examine,
            _ if short('S') => Kind::Stop,
            _ if short('F') => Kind::Monitor,
            _ if short('W') => Kind::Wait("sync"),
            _ => return None,
        };
        Some(Self { word, kind })
    }

    fn next(&self, line: &Line) -> String {
        let members = line.members.join(" ");
        let or = |other: &str| if members.is_empty() { other.to_owned() } else { members.clone() };
        match self.kind {
            Kind::Create => line.create(),
            Kind::Assemble if line.scan => match &line.array {
                Some(array) => format!("mdspace serve --scan {array}"),
                None => "mdspace serve --scan".to_owned(),
            },
            Kind::Assemble => format!("mdspace serve {}", or("MEMBER...")),
            Kind::Detail if line.scan => "mdspace list".to_owned(),
            Kind::Detail if line.array.is_none() && !members.is_empty() => format!("mdspace examine {members}"),
            Kind::Detail => format!("mdspace status{}", line.chosen()),
            Kind::Examine if line.scan => format!("mdspace examine --scan {}", or("MEMBER...")),
            Kind::Examine => format!("mdspace examine {}", or("MEMBER...")),
            Kind::Stop => format!("mdspace stop{}", line.chosen()),
            Kind::Zero => format!("{WIPE} {}    shows what would be removed; without --dry-run it is", or("MEMBER...")),
            Kind::Monitor => format!("mdspace monitor{}", line.chosen()),
            Kind::Wait(state) => format!("mdspace wait{} {state}", line.chosen()),
            Kind::Member(command) => {
                let array = line.name().map(|name| format!(" --array {name}")).unwrap_or_default();
                format!("mdspace {command} {}{array}", or("MEMBER"))
            }
        }
    }
}

/// mdadm's other options, and its other words.
#[derive(Default)]
struct Line {
    /// The md device.
    array: Option<String>,
    members: Vec<String>,
    scan: bool,
    /// Options of `create`, in this command's spelling.
    options: Vec<String>,
    spares: usize,
}

impl Line {
    fn of(typed: &[String]) -> Self {
        let mut line = Self::default();
        let mut words = typed.iter().map(String::as_str).peekable();
        while let Some(word) = words.next() {
            let (option, joined) = split(word);
            let Some(option) = option else {
                line.add_word(word);
                continue;
            };
            line.scan |= word == "--scan" || (!word.starts_with("--") && word.contains('s'));
            if !takes_value(option) {
                line.add_flag(option);
                continue;
            }
            if let Some(value) = joined.or_else(|| words.next()) {
                line.add_option(option, value);
            }
        }
        line
    }

    /// The array's name, if the line has one; a number need not be the name.
    fn name(&self) -> Option<&str> {
        self.array.as_deref().and_then(|array| array.strip_prefix("/dev/md/"))
    }

    fn chosen(&self) -> String {
        self.name().map(|name| format!(" {name}")).unwrap_or_default()
    }

    /// Whether the line is about an array by its number, or about all.
    fn is_known_to_mdadm_alone(&self) -> bool {
        self.scan || self.array.is_some() && self.name().is_none()
    }

    fn add_word(&mut self, word: &str) {
        let is_array = self.array.is_none() && self.members.is_empty() && word.starts_with("/dev/md");
        match word {
            "create" if self.members.is_empty() && self.array.is_none() => {}
            _ if is_array => self.array = Some(word.to_owned()),
            _ => self.members.push(word.to_owned()),
        }
    }

    fn add_flag(&mut self, option: &str) {
        if matches!(option, "--assume-clean" | "--force") {
            self.options.push(option.to_owned());
        }
    }

    fn add_option(&mut self, option: &str, value: &str) {
        let option = match option {
            "-l" | "--level" => format!("--level {}", value.trim_start_matches("raid")),
            // mdadm counts in KiB.
            "-c" | "--chunk" if value.bytes().all(|byte| byte.is_ascii_digit()) => format!("--chunk {value}K"),
            "-c" | "--chunk" => format!("--chunk {value}"),
            "-e" | "--metadata" => format!("--metadata {value}"),
            "-p" | "--layout" => format!("--layout {value}"),
            "-N" | "--name" => format!("--name {value}"),
            "-b" | "--bitmap" => format!("--bitmap {value}"),
            "-x" | "--spare-devices" => {
                self.spares = value.parse().unwrap_or(0);
                return;
            }
            _ => return,
        };
        self.options.push(option);
    }

    fn create(&self) -> String {
        let (members, spares) = self.members.split_at(self.members.len().saturating_sub(self.spares));
        let spares = spares.iter().map(|spare| format!("--spare {spare}"));
        let members = match members {
            [] => vec!["MEMBER...".to_owned()],
            members => members.to_vec(),
        };
        let words = ["mdspace create".to_owned()].into_iter().chain(self.options.iter().cloned()).chain(spares);
        words.chain(members).collect::<Vec<_>>().join(" ")
    }
}

/// Whether `mdspace create` has no such option, but mdadm's has.
fn is_mdadms_of_create(word: &str) -> bool {
    word == "--run"
        || !word.starts_with("--") && ["-e", "-b", "-z", "-p", "-N", "-R", "-x"].iter().any(|o| word.starts_with(o))
}

/// An option, and the value joined to it.
fn split(word: &str) -> (Option<&str>, Option<&str>) {
    if word.starts_with("--") {
        return match word.split_once('=') {
            Some((option, value)) => (Some(option), Some(value)),
            None => (Some(word), None),
        };
    }
    match word.strip_prefix('-').and_then(|rest| rest.chars().next()) {
        Some(letter) => {
            let (option, rest) = word.split_at(1 + letter.len_utf8());
            let rest = rest.strip_prefix('=').unwrap_or(rest);
            (Some(option), (!rest.is_empty()).then_some(rest))
        }
        None => (None, None),
    }
}

fn takes_value(option: &str) -> bool {
    const LONG: [&str; 12] = [
        "--level",
        "--raid-devices",
        "--spare-devices",
        "--chunk",
        "--metadata",
        "--layout",
        "--name",
        "--bitmap",
        "--size",
        "--uuid",
        "--config",
        "--data-offset",
    ];
    LONG.contains(&option) || ["-l", "-n", "-x", "-c", "-e", "-p", "-N", "-b", "-z", "-u"].contains(&option)
}

/// Removes from clap's refusal the suggestions of commands that change something, unless the typed word begins like
/// them.
pub(crate) fn without_changes(mut error: Error) -> Error {
    let typed = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(typed)) => typed.clone(),
        _ => return error,
    };
    let is_meant =
        |name: &String| READ_ONLY.contains(&&**name) || name.starts_with(&typed) || typed.starts_with(&**name);
    match error.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => {
            let names: Vec<String> = names.into_iter().filter(is_meant).collect();
            if !names.is_empty() {
                error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
            }
        }
        Some(ContextValue::String(name)) if is_meant(&name) => {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::String(name));
        }
        _ => {}
    }
    error
}

/// Whether the command line asks for help or the version; then it is not answered as mdadm's.
pub(crate) fn asks_for_help(words: &[OsString]) -> bool {
    let is_one = |word: &OsString| ["--help", "-h", "--version", "-V", "help"].map(OsStr::new).contains(&&**word);
    words.iter().any(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        answer(&words).map(|(_, next)| next)
    }

    #[test]
    fn mdadms_lines_get_the_line_that_does_the_same() {
        for (typed, expected) in [
            ("--detail /dev/md0", "mdspace status"),
            ("-D /dev/md0", "mdspace status"),
            ("--examine a.img b.img", "mdspace examine a.img b.img"),
            ("-E /dev/sda1", "mdspace examine /dev/sda1"),
            ("-Es", "mdspace examine --scan MEMBER..."),
            ("--examine --scan a", "mdspace examine --scan a"),
            ("-A --scan", "mdspace serve --scan"),
            ("-As /dev/md/data", "mdspace serve --scan /dev/md/data"),
            ("--assemble /dev/md0 a b", "mdspace serve a b"),
            ("--stop /dev/md0", "mdspace mdadm --stop /dev/md0"),
            ("-S /dev/md0", "mdspace mdadm -S /dev/md0"),
            ("--stop --scan", "mdspace mdadm --stop --scan"),
            ("-Q a.img", "mdspace examine a.img"),
            ("-C /dev/md0 -l5 -n3 -c 64 a b c", "mdspace create --level 5 --chunk 64K a b c"),
            (
                "--create /dev/md0 --level=raid6 --raid-devices=4 -x1 -e 1.0 a b c d e",
                "mdspace create --level 6 --metadata 1.0 --spare e a b c d",
            ),
            ("create -l5 -n3 -c 64 a b c", "mdspace create --level 5 --chunk 64K a b c"),
            ("create -e 1.2 -b internal -l1 a b", "mdspace create --metadata 1.2 --bitmap internal --level 1 a b"),
            ("create --run -l 1 a b", "mdspace create --level 1 a b"),
            ("/dev/md0 --fail /dev/sdb", "mdspace mdadm /dev/md0 --fail /dev/sdb"),
            ("--manage /dev/md0 --add /dev/sdc", "mdspace mdadm --manage /dev/md0 --add /dev/sdc"),
            ("--fail /dev/md/one a.img", "mdspace fail a.img --array one"),
            ("--monitor", "mdspace monitor"),
            ("--wait /dev/md0", "mdspace mdadm --wait /dev/md0"),
            ("-W /dev/md0", "mdspace mdadm -W /dev/md0"),
            ("--wait-clean --scan", "mdspace mdadm --wait-clean --scan"),
            ("--detail /dev/md/data", "mdspace status data"),
            ("--stop /dev/md/data", "mdspace stop data"),
            ("--wait /dev/md/data", "mdspace wait data sync"),
            ("-Ds", "mdspace list"),
            ("--grow /dev/md0 --size=max", "mdspace mdadm --grow /dev/md0 --size=max"),
            ("--grow /dev/md0 -n4", "mdspace mdadm --grow /dev/md0 -n4"),
            ("-X a.img", "mdspace mdadm -X a.img"),
            ("--action=check /dev/md0", "mdspace mdadm --action=check /dev/md0"),
            ("/dev/md0 --replace a --with b", "mdspace mdadm /dev/md0 --replace a --with b"),
            ("--incremental a", "mdspace mdadm --incremental a"),
            ("--build /dev/md0 a", "`mdspace mdadm --help-options` says what each option of mdadm is here"),
        ] {
            assert_eq!(next(typed).as_deref(), Some(expected), "{typed}");
        }
        let zero = next("--zero-superblock /dev/sdb").expect("a line of mdadm");
        assert!(zero.starts_with("mdspace wipe --dry-run /dev/sdb "), "{zero}");
        for typed in ["status", "examine a.img", "serv a b", "", "a -", "status -n", "grow --raid-devices 3 -D"] {
            assert_eq!(next(typed), None, "{typed}");
        }
    }

    #[test]
    fn a_line_that_only_reads_gets_a_line_that_only_reads() {
        for word in
            ["--detail", "-D", "-Q", "--query", "--examine", "-E", "-Es", "--monitor", "-F", "--zero-superblock"]
        {
            let line = format!("{word} /dev/md0 a b -l5 -n3");
            let next = next(&line).expect("a line of mdadm");
            let command = next.split_whitespace().nth(1).expect("a command");
            assert!(READ_ONLY.contains(&command) || next.starts_with(WIPE), "{line}: {next}");
        }
    }
}
