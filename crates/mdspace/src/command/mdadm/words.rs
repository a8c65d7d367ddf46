//! mdadm's command line, read as getopt_long(3) and mdadm read it: modes, clusters of short options, values.
//!
//! An option that has no row in the table, or is not of the mode, is refused by its name; so is one that this program
//! does not have. Nothing is opened here. Facts: mdadm 4.2's `mdadm.c` and `ReadMe.c`.

use super::Trouble;
use super::options::{Here, OPTIONS, Opt, Takes};
use crate::names::name_of;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// What mdadm is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Assemble,
    Build,
    Create,
    Monitor,
    Grow,
    Incremental,
    Manage,
    Misc,
    AutoDetect,
}

impl Mode {
    pub(super) const ALL: [Self; 9] = [
        Self::Assemble,
        Self::Build,
        Self::Create,
        Self::Monitor,
        Self::Grow,
        Self::Incremental,
        Self::Manage,
        Self::Misc,
        Self::AutoDetect,
    ];

    /// mdadm's name of it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Assemble => "assemble",
            Self::Build => "build",
            Self::Create => "create",
            Self::Monitor => "monitor",
            Self::Grow => "grow",
            Self::Incremental => "incremental",
            Self::Manage => "manage",
            Self::Misc => "misc",
            Self::AutoDetect => "auto-detect",
        }
    }

    /// The mode that an option sets, whatever else is there.
    fn set_by(name: &str) -> Option<Self> {
        let by_name = Self::ALL.into_iter().find(|mode| mode.name() == name);
        by_name.or(match name {
            "detail" | "examine" | "examine-bitmap" | "examine-badblocks" | "query" | "dump" | "restore" | "action" => {
                Some(Self::Misc)
            }
            "no-sharing" => Some(Self::Monitor),
            _ => None,
        })
    }

    /// The mode that an option sets if none is set yet.
    fn implied_by(name: &str) -> Option<Self> {
        match name {
            "add" | "add-spare" | "add-journal" | "remove" | "replace" | "with" | "fail" | "re-add"
            | "cluster-confirm" => Some(Self::Manage),
            "run" | "stop" | "readonly" | "readwrite" | "wait" | "wait-clean" | "detail-platform" | "kill-subarray"
            | "update-subarray" | "udev-rules" | "zero-superblock" => Some(Self::Misc),
            _ => None,
        }
    }
}

/// Options of misc mode, and of manage and grow mode, that say what happens to the words after them.
const ACTIONS: [&str; 14] = [
    "query",
    "detail",
    "examine",
    "examine-bitmap",
    "examine-badblocks",
    "stop",
    "zero-superblock",
    "wait",
    "wait-clean",
    "action",
    "run",
    "readonly",
    "readwrite",
    "dump",
];
const CHANGES: [&str; 7] = ["add", "add-spare", "re-add", "remove", "fail", "replace", "with"];

/// Options that are flags of the members after them, and those that clear the flags.
const FLAGS: [(&str, &str); 2] = [("write-mostly", "readwrite"), ("failfast", "nofailfast")];

/// A word that is no option, and the option before it that says what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) word: OsString,
    pub(super) action: Option<&'static str>,
    /// The last one of each of [`FLAGS`] that was given before it: an option that sets a flag, or clears it.
    pub(super) flags: Vec<&'static str>,
}

impl Device {
    /// For messages.
    pub(super) fn name(&self) -> String {
        name_of(Path::new(&self.word))
    }
}

/// A command line that was read.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub(super) mode: Option<Mode>,
    pub(super) devices: Vec<Device>,
    /// How often `-v`, less `-q`.
    pub(super) verbose: i32,
    given: Vec<(&'static str, Option<OsString>)>,
    action: Option<&'static str>,
}

impl Words {
    /// Reads the words behind the program's name.
    pub(super) fn of(words: &[OsString]) -> Result<Self, Trouble> {
        let mut line = Self::default();
        let mut words = words.iter().cloned();
        let mut is_over = false;
        while let Some(word) = words.next() {
            let bytes = word.as_bytes();
            if is_over || bytes == b"-" || !bytes.starts_with(b"-") {
                line.add_device(word)?;
            } else if bytes == b"--" {
                is_over = true;
            } else if let Some(long) = bytes.strip_prefix(b"--") {
                line.read_long(long, &mut words)?;
            } else {
                line.read_cluster(&bytes[1..], &mut words)?;
            }
        }
        if line.mode.is_none() && !line.devices.is_empty() {
            line.mode = Some(Mode::Misc);
            line.devices[0].action = Some("query");
        }
        Ok(line)
    }

    /// Whether the option was given.
    pub(super) fn has(&self, name: &str) -> bool {
        debug_assert!(OPTIONS.iter().any(|option| option.names[0] == name), "{name} is in the table");
        self.given.iter().any(|(given, _)| *given == name)
    }

    /// The value of the option, as it was given.
    pub(super) fn word(&self, name: &str) -> Option<&OsStr> {
        debug_assert!(OPTIONS.iter().any(|option| option.names[0] == name), "{name} is in the table");
        self.given.iter().rev().find(|(given, _)| *given == name).and_then(|(_, value)| value.as_deref())
    }

    /// The value of the option, as text.
    pub(super) fn value(&self, name: &str) -> Option<String> {
        self.word(name).map(|value| value.to_string_lossy().into_owned())
    }

    /// The action of misc mode.
    pub(super) fn action(&self) -> Option<&'static str> {
        self.action
    }

    /// Whether only errors are to be told.
    pub(super) fn is_quiet(&self) -> bool {
        self.verbose < 0
    }

    fn add_device(&mut self, word: OsString) -> Result<(), Trouble> {
        let last =
            |(set, clear)| self.given.iter().rev().map(|(name, _)| *name).find(|name| [set, clear].contains(name));
        let flags = FLAGS.into_iter().filter_map(last).collect();
        let device = Device { word, action: self.action, flags };
        match self.mode {
            None if !self.devices.is_empty() => {
                return Err(Trouble::usage(format!(
                    "An option must be given to set the mode before a second device\n({}) is listed",
                    device.name()
                )));
            }
            Some(Mode::Manage) if !self.devices.is_empty() && self.action.is_none() => {
                let reason = format!("Must give one of -a/-r/-f for subsequent devices at {}", device.name());
                return Err(Trouble::usage(reason));
            }
            Some(Mode::Grow) if !self.devices.is_empty() && self.action.is_none() => {
                return Err(Trouble::usage(format!("Must give -a/--add for devices to add: {}", device.name())));
            }
            _ => {}
        }
        self.devices.push(device);
        Ok(())
    }

    fn read_long(&mut self, text: &[u8], more: &mut impl Iterator<Item = OsString>) -> Result<(), Trouble> {
        let (name, joined) = match text.iter().position(|&byte| byte == b'=') {
            Some(at) => (&text[..at], Some(OsString::from_vec(text[at + 1..].to_vec()))),
            None => (text, None),
        };
        let typed = String::from_utf8_lossy(name).into_owned();
        let option = self.find_long(&typed)?;
        let value = match (option.takes, joined) {
            (Takes::Nothing, Some(_)) => {
                return Err(Trouble::usage(format!("option '--{typed}' doesn't allow an argument")));
            }
            (Takes::Value, None) => Some(self.next_value(&format!("--{typed}"), more)?),
            (_, joined) => joined,
        };
        self.add_option(option, &format!("--{typed}"), value)
    }

    fn read_cluster(&mut self, letters: &[u8], more: &mut impl Iterator<Item = OsString>) -> Result<(), Trouble> {
        let mut rest = letters;
        while let Some((&letter, others)) = rest.split_first() {
            let typed = format!("-{}", char::from(letter).escape_default());
            let option = self.find_short(char::from(letter), &typed)?;
            let value = match option.takes {
                Takes::Value if others.is_empty() => Some(self.next_value(&typed, more)?),
                Takes::Value => Some(OsString::from_vec(others.to_vec())),
                Takes::Nothing | Takes::Perhaps => None,
            };
            rest = if option.takes == Takes::Value { &[] } else { others };
            self.add_option(option, &typed, value)?;
        }
        Ok(())
    }

    fn next_value(&self, typed: &str, more: &mut impl Iterator<Item = OsString>) -> Result<OsString, Trouble> {
        more.next().ok_or_else(|| Trouble::usage(format!("option '{typed}' requires an argument")))
    }

    /// The option `typed`, which may be shortened as far as it remains clear.
    fn find_long(&self, typed: &str) -> Result<&'static Opt, Trouble> {
        let spelled = |fits: &dyn Fn(&str) -> bool| {
            let mut names: Vec<&'static str> = Vec::new();
            for option in OPTIONS.iter().filter(|option| option.names.iter().any(|name| fits(name))) {
                if !names.contains(&option.names[0]) {
                    names.push(option.names[0]);
                }
            }
            names
        };
        let exact = spelled(&|name| name == typed);
        let names = if exact.is_empty() { spelled(&|name| name.starts_with(typed)) } else { exact };
        match &names[..] {
            [] => Err(Trouble::usage(format!("unrecognized option '--{typed}'"))),
            [name] => self.in_mode(&|option| option.names[0] == *name, &format!("--{typed}")),
            several => {
                let all: Vec<String> = several.iter().map(|name| format!("'--{name}'")).collect();
                Err(Trouble::usage(format!("option '--{typed}' is ambiguous; possibilities: {}", all.join(" "))))
            }
        }
    }

    fn find_short(&self, letter: char, typed: &str) -> Result<&'static Opt, Trouble> {
        if !OPTIONS.iter().any(|option| option.short == Some(letter)) {
            return Err(Trouble::usage(format!("invalid option -- '{letter}'")));
        }
        self.in_mode(&|option| option.short == Some(letter), typed)
    }

    /// The row of the mode, among those that fit. It may be the row that sets the mode.
    fn in_mode(&self, fits: &dyn Fn(&Opt) -> bool, typed: &str) -> Result<&'static Opt, Trouble> {
        let rows = || OPTIONS.iter().filter(|option| fits(option));
        if let Some(row) = rows().find(|option| option.is_of(self.mode)) {
            return Ok(row);
        }
        match self.mode {
            Some(mode) => Err(Trouble::usage(format!("{typed}: not valid in {} mode", mode.name()))),
            // Without a mode yet, the option may set it.
            None => {
                let setting = |option: &&Opt| {
                    let name = option.names[0];
                    let mode = Mode::set_by(name).or_else(|| Mode::implied_by(name));
                    mode.is_some() && option.is_of(mode)
                };
                rows().find(setting).ok_or_else(|| {
                    Trouble::usage(format!("{typed} does not set the mode, and so cannot be the first option."))
                })
            }
        }
    }

    fn add_option(&mut self, option: &'static Opt, typed: &str, value: Option<OsString>) -> Result<(), Trouble> {
        if let Here::Later(_) | Here::Never(_) = option.here {
            return Err(Trouble::refused(format!("{typed}: {}", option.here_text().replace('`', ""))));
        }
        let name = option.names[0];
        match name {
            "verbose" => self.verbose += 1,
            "quiet" => self.verbose -= 1,
            _ => {}
        }
        self.set_mode(name, typed)?;
        let is_action = match self.mode {
            Some(Mode::Misc) => ACTIONS.contains(&name),
            Some(Mode::Manage | Mode::Grow) => CHANGES.contains(&name),
            _ => false,
        };
        if is_action {
            let both = [self.action, Some(name)];
            let is_mixed = self.mode == Some(Mode::Misc) && self.action.is_some_and(|before| before != name);
            if is_mixed && both.contains(&Some("examine")) && self.action != Some("query") {
                return Err(Trouble::usage(format!("--examine/-E cannot be given with {typed}")));
            }
            self.action = Some(name);
        }
        let is_repeated = self.given.iter().any(|(given, before)| *given == name && before.is_some());
        if is_repeated && value.is_some() {
            return Err(Trouble::usage(format!("{typed}: given twice")));
        }
        self.given.push((name, value));
        Ok(())
    }

    fn set_mode(&mut self, name: &str, typed: &str) -> Result<(), Trouble> {
        let mode = match (Mode::set_by(name), self.mode) {
            (Some(mode), _) => mode,
            (None, None) => match Mode::implied_by(name) {
                Some(mode) => mode,
                None => return Ok(()),
            },
            (None, Some(_)) => return Ok(()),
        };
        match self.mode {
            Some(before) if before != mode => Err(Trouble::usage(format!(
                "{typed} would set mdadm mode to \"{}\", but it is already set to \"{}\".",
                mode.name(),
                before.name()
            ))),
            None if mode == Mode::Misc && !self.devices.is_empty() => Err(Trouble::usage(format!(
                "No action given for {} in --misc mode\nAction options must come before device names",
                self.devices[0].name()
            ))),
            _ => {
                self.mode = Some(mode);
                Ok(())
            }
        }
    }
}

/// A size as mdadm reads it: KiB, or with K, M, G or T. In bytes.
pub(super) fn size(option: &str, text: &str) -> Result<u64, Trouble> {
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        Some((at, 'T' | 't')) => (&text[..at], 40),
        Some((at, 's')) => (&text[..at], 9),
        _ => (text, 10),
    };
    let number: Option<u64> = digits.parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(1 << shift)).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| Trouble::usage(format!("--{option}: invalid size: {text}")))
}

/// The number of a device.
pub(super) fn number(option: &str, text: &str) -> Result<u32, Trouble> {
    text.parse().map_err(|_| Trouble::usage(format!("--{option}: invalid number: {text}")))
}

/// The value of `--delay`, in seconds. mdadm takes no less than one.
pub(super) fn seconds(text: &str) -> Result<String, Trouble> {
    match text.parse::<u32>() {
        Ok(seconds @ 1..) => Ok(seconds.to_string()),
        _ => Err(Trouble::usage(format!("invalid delay: {text}"))),
    }
}

/// A count, as mdadm reads it.
pub(super) fn count(option: &str, text: &str) -> Result<u16, Trouble> {
    text.parse().map_err(|_| Trouble::usage(format!("--{option}: invalid number: {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Words, Trouble> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        Words::of(&words)
    }

    /// Mode, options with their values, and words with their actions.
    fn shown(line: &str) -> String {
        let words = match read(line) {
            Ok(words) => words,
            Err(trouble) => return format!("{}: {}", trouble.status, trouble.message),
        };
        let mode = words.mode.map_or("none", Mode::name);
        let given = words.given.iter().map(|(name, value)| match value {
            Some(value) => format!(" {name}={}", value.to_string_lossy()),
            None => format!(" {name}"),
        });
        let devices = words.devices.iter().map(|device| {
            let flags = device.flags.iter().map(|flag| format!(" {flag}")).collect::<String>();
            match device.action {
                Some(action) => format!(" [{action} {}{flags}]", device.name()),
                None => format!(" [{}{flags}]", device.name()),
            }
        });
        format!("{mode}:{}{}", given.collect::<String>(), devices.collect::<String>())
    }

    #[test]
    fn lines_are_read_as_mdadm_reads_them() {
        for (line, expected) in [
            ("-Ds", "misc: detail scan"),
            ("-Es", "misc: examine scan"),
            ("-Esv a", "misc: examine scan verbose [examine a]"),
            ("-As", "assemble: assemble scan"),
            ("-A /dev/md0 a b -f", "assemble: assemble force [/dev/md0] [a] [b]"),
            ("-A -c conf -u 0:1 /dev/md0", "assemble: assemble config=conf uuid=0:1 [/dev/md0]"),
            (
                "-C /dev/md0 -l5 -n3 -c 64 a b c",
                "create: create level=5 raid-devices=3 chunk=64 [/dev/md0] [a] [b] [c]",
            ),
            (
                "--create --level=raid6 --raid-disks 4 /dev/md/x a b c missing",
                "create: create level=raid6 raid-devices=4 [/dev/md/x] [a] [b] [c] [missing]",
            ),
            ("-C /dev/md0 -ayes -R", "create: create auto=yes run [/dev/md0]"),
            ("/dev/md0 -f b -r b -a c", "manage: fail remove add [/dev/md0] [fail b] [remove b] [add c]"),
            ("/dev/md0 --replace a --with b", "manage: replace with [/dev/md0] [replace a] [with b]"),
            ("--manage /dev/md0 --add c", "manage: manage add [/dev/md0] [add c]"),
            ("-G /dev/md0 -n3 -a c", "grow: grow raid-devices=3 add [/dev/md0] [add c]"),
            ("-S /dev/md0 /dev/md1", "misc: stop [stop /dev/md0] [stop /dev/md1]"),
            ("-W /dev/md0", "misc: wait [wait /dev/md0]"),
            ("-I a -R", "incremental: incremental run [a]"),
            ("--readonly /dev/md0", "misc: readonly [readonly /dev/md0]"),
            ("--manage /dev/md0 --readonly", "manage: manage readonly [/dev/md0]"),
            ("-ro /dev/md0", "manage: remove readonly [remove /dev/md0]"),
            ("-C /dev/md0 --write-behind -d 2", "create: create write-behind delay=2 [/dev/md0]"),
            ("--misc --action=check /dev/md0", "misc: misc action=check [action /dev/md0]"),
            ("-Q a", "misc: query [query a]"),
            ("/dev/md0", "misc: [query /dev/md0]"),
            ("-F -1 -t --scan", "monitor: monitor oneshot test scan"),
            ("--monitor --mail=root -d 5 /dev/md0", "monitor: monitor mail=root delay=5 [/dev/md0]"),
            ("--que --exp /dev/md0", "misc: query export [query /dev/md0]"),
            ("-E -- -a", "misc: examine [examine -a]"),
            ("-V", "none: version"),
            ("-C /dev/md0 --size=max", "create: create size=max [/dev/md0]"),
            (
                "-C /dev/md0 a --failfast b -W c",
                "create: create failfast write-mostly [/dev/md0] [a] [b failfast] [c write-mostly failfast]",
            ),
        ] {
            assert_eq!(shown(line), expected, "{line}");
        }
    }

    #[test]
    fn what_is_no_line_of_mdadm_or_is_not_here_is_refused_by_its_name() {
        for (line, expected) in [
            ("--nonsense", "2: unrecognized option '--nonsense'"),
            ("-j", "2: invalid option -- 'j'"),
            ("--scan --detail", "2: --scan does not set the mode"),
            ("-A -D", "2: -D would set mdadm mode to \"misc\", but it is already set to \"assemble\"."),
            ("a b", "2: An option must be given"),
            ("-D -l5", "2: -l: not valid in misc mode"),
            ("/dev/md0 -S", "2: No action given for /dev/md0"),
            ("--manage /dev/md0 a", "2: Must give one of -a/-r/-f"),
            ("-C /dev/md0 -n", "2: option '-n' requires an argument"),
            ("--detail=x /dev/md0", "2: option '--detail' doesn't allow an argument"),
            ("-C /dev/md0 -l5 -l6", "2: -l: given twice"),
            ("-ED a", "2: --examine/-E cannot be given with -D"),
            ("--re a", "2: option '--re' is ambiguous"),
            ("-B /dev/md0", "2: -B: not here: "),
            ("-G /dev/md0 --level=6", "2: --level: not yet: "),
            ("/dev/md0 --readonly", "2: No action given for /dev/md0"),
            ("--det a", "2: option '--det' is ambiguous"),
            ("-I a --path=x", "2: --path: not yet: "),
        ] {
            let found = shown(line);
            assert!(found.starts_with(expected), "{line}: {found}");
        }
    }

    #[test]
    fn sizes_are_in_kib_without_a_unit() {
        for (text, expected) in [("64", 65_536), ("64K", 65_536), ("1M", 1 << 20), ("2G", 2 << 30), ("8s", 4096)] {
            assert_eq!(size("chunk", text).ok(), Some(expected), "{text}");
        }
        for text in ["", "0", "K", "-1", "1.5M", "64KB", "99999999999999T"] {
            assert!(size("chunk", text).is_err(), "{text}");
        }
    }
}
