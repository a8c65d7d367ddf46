//! The table of mdadm's options: how each is read, in which modes, and what it is here.
//!
//! The parser ([`super::words`]) and the page docs/from-mdadm.md have the same table as their source. A test of this
//! file compares the page with the table, and both with mdadm's manual page where that is installed.
//!
//! Facts: mdadm(8) and `mdadm --help-options` of mdadm 4.2, and mdadm(8) of 4.4; its `ReadMe.c` (`long_options`) and `mdadm.c`.

use super::words::Mode;

/// Whether an option has a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    Value,
    /// Only joined with `=`.
    Perhaps,
}

/// What an option is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Here {
    /// It works; what does the same in mdspace's own words.
    Ours(&'static str),
    /// It is refused; what is missing.
    Later(&'static str),
    /// It is refused, for this reason.
    Never(&'static str),
}

/// An option in some modes.
#[derive(Debug)]
pub(super) struct Opt {
    /// Its long names; the first one is what the program calls it.
    pub(super) names: &'static [&'static str],
    pub(super) short: Option<char>,
    pub(super) takes: Takes,
    /// The modes in which it may be given; none for all.
    pub(super) modes: &'static [Mode],
    pub(super) here: Here,
}

const fn row(
    names: &'static [&'static str],
    short: Option<char>,
    takes: Takes,
    modes: &'static [Mode],
    here: Here,
) -> Opt {
    Opt { names, short, takes, modes, here }
}

use Here::{Later, Never, Ours};
use Mode::{Assemble, Build, Create, Grow, Incremental, Manage, Misc, Monitor};
use Takes::{Nothing, Perhaps, Value};

const RESHAPE: Here = Later("a reshape is only to more members, of an array that is not served: `mdspace grow`");
const CLUSTER: Here = Never("arrays of a cluster are only read");
const CONTAINERS: Here = Never("volumes of firmware RAID are only read: `mdspace read`, `mdspace serve --read-only`");
const BUILD: Here = Never("nothing on the members of such an array says what they are");
const UDEV: Here = Later("mdspace has no map of devices; its rules of udev are 64-mdspace.rules, in its documentation");
const READ_ONLY: Here = Ours("`mdspace set read-only=on`; refused while the array is in use");
const WRITABLE: Here =
    Ours("`mdspace set read-only=off`; of an array that was started read-only, `mdspace stop` and `mdspace serve`");
const ACCEPTED: Here = Ours("accepted: there is no node to make");

/// All options. An option that means different things in different modes has a row for each.
pub(super) const OPTIONS: &[Opt] = &[
    // Modes.
    row(&["assemble"], Some('A'), Nothing, &[], Ours("`mdspace serve`, in the background")),
    row(&["build"], Some('B'), Nothing, &[], BUILD),
    row(&["create"], Some('C'), Nothing, &[], Ours("`mdspace create`, then `mdspace serve` in the background")),
    row(&["monitor", "follow"], Some('F'), Nothing, &[], Ours("`mdspace monitor`")),
    row(&["grow"], Some('G'), Nothing, &[], Ours("`mdspace grow`, `mdspace set bitmap=...`")),
    row(
        &["incremental"],
        Some('I'),
        Nothing,
        &[],
        Ours("`mdspace serve`, in the background, once all members were named"),
    ),
    row(&["auto-detect"], None, Nothing, &[], Never("it asks the kernel's own driver to start arrays")),
    row(&["manage"], None, Nothing, &[], Ours("`mdspace add`, `mdspace fail` and others")),
    row(&["misc"], None, Nothing, &[], Ours("`mdspace status`, `mdspace examine`, `mdspace stop` and others")),
    // In every mode.
    row(&["help"], Some('h'), Nothing, &[], Ours("`mdspace help`")),
    row(&["help-options"], None, Nothing, &[], Ours("prints this table")),
    row(&["version"], Some('V'), Nothing, &[], Ours("the version of mdadm whose words are spoken, then ours")),
    row(&["verbose"], Some('v'), Nothing, &[], Ours("more in `--brief` and `--scan` lines")),
    row(&["quiet"], Some('q'), Nothing, &[], Ours("leaves out what is no error")),
    row(&["brief"], Some('b'), Nothing, &[Misc, Monitor], Ours("`mdspace examine --scan`")),
    row(&["brief"], None, Nothing, &[], Ours("as `-b`")),
    row(&["no-devices"], None, Nothing, &[], Ours("leaves out the members in `--detail`")),
    row(&["export"], Some('Y'), Nothing, &[], Ours("`--json` of `mdspace status` and `mdspace examine`")),
    row(&["homehost"], None, Value, &[], Ours("the host in a new array's name; `<ignore>` is accepted")),
    row(&["prefer"], None, Value, &[], Ours("accepted: members have the names that they were given by")),
    row(&["offroot"], None, Nothing, &[], Ours("accepted, as by mdadm, and without effect")),
    row(
        &["config"],
        Some('c'),
        Value,
        &[Assemble, Misc, Monitor, Incremental],
        Ours("`mdspace serve --scan --config FILE`"),
    ),
    row(&["config"], None, Value, &[Create], Ours("accepted: nothing of it is needed")),
    row(
        &["scan"],
        Some('s'),
        Nothing,
        &[Assemble, Misc, Monitor, Incremental],
        Ours("`mdspace serve --scan`, `mdspace list`"),
    ),
    row(&["metadata"], Some('e'), Value, &[Create], Ours("`mdspace create --metadata`: 0.90, 1.0, 1.1 or 1.2")),
    row(
        &["metadata"],
        Some('e'),
        Value,
        &[Assemble, Misc, Incremental],
        Ours("refuses members of another version; with `--assemble`, listed ones. `--examine` knows `0.swap`"),
    ),
    row(&["force"], Some('f'), Nothing, &[Assemble], Ours("`mdspace serve --force`")),
    row(
        &["force"],
        Some('f'),
        Nothing,
        &[Create],
        Ours("RAID-4 and 5 are resynced; else their last member is recovered"),
    ),
    row(&["force"], Some('f'), Nothing, &[Misc], Ours("`mdspace wipe --force`")),
    row(&["force"], Some('f'), Nothing, &[Grow, Build], Ours("`mdspace add --force`")),
    row(&["force"], None, Nothing, &[Manage], Ours("`mdspace add --force`")),
    row(
        &["run"],
        Some('R'),
        Nothing,
        &[Create],
        Ours("`mdspace create --force`: no question is asked, what is there is overwritten"),
    ),
    row(
        &["run"],
        Some('R'),
        Nothing,
        &[Assemble],
        Ours("starts with fewer members than last time, as `mdspace serve` does"),
    ),
    row(
        &["run"],
        Some('R'),
        Nothing,
        &[Manage, Misc],
        Ours("starts an array of `--incremental` with the members that it has; a served array runs"),
    ),
    row(&["run"], Some('R'), Nothing, &[Incremental], Ours("starts with the members that were named so far")),
    row(&["run"], Some('R'), Nothing, &[Build], BUILD),
    row(&["test"], Some('t'), Nothing, &[Misc], Ours("the exit status of `--detail` says how the array is")),
    row(&["test"], Some('t'), Nothing, &[Monitor], Ours("`mdspace monitor --test`")),
    row(&["test"], Some('t'), Nothing, &[Manage], Ours("accepted")),
    // For create, grow and build.
    row(
        &["raid-devices", "raid-disks"],
        Some('n'),
        Value,
        &[Create, Build],
        Ours("counted: `mdspace create` takes the members"),
    ),
    row(&["raid-devices", "raid-disks"], Some('n'), Value, &[Grow], Ours("`mdspace grow --raid-devices`, of a RAID-1")),
    row(&["spare-devices", "spare-disks"], Some('x'), Value, &[Create], Ours("`mdspace create --spare`")),
    row(&["size"], Some('z'), Value, &[Create], Ours("`mdspace create --component-size`; here a bare number is KiB")),
    row(&["size"], Some('z'), Value, &[Build], BUILD),
    row(&["size"], Some('z'), Value, &[Grow], Ours("`mdspace grow --size`")),
    row(&["array-size"], Some('Z'), Value, &[Grow], Later("the array's end is not hidden")),
    row(
        &["chunk"],
        Some('c'),
        Value,
        &[Create, Build],
        Ours("`mdspace create --chunk 64K`; here a bare number is KiB"),
    ),
    row(&["rounding"], None, Value, &[Create, Build], Ours("the same")),
    row(&["chunk"], Some('c'), Value, &[Grow], RESHAPE),
    row(&["level"], Some('l'), Value, &[Create, Build], Ours("`mdspace create --level`")),
    row(&["level"], Some('l'), Value, &[Grow], RESHAPE),
    row(&["layout", "parity"], Some('p'), Value, &[Create, Build], Ours("`mdspace create --layout`")),
    row(&["layout", "parity"], Some('p'), Value, &[Grow], RESHAPE),
    row(&["bitmap"], Some('b'), Value, &[Create], Ours("`mdspace create --bitmap`")),
    row(&["bitmap"], Some('b'), Value, &[Grow], Ours("`mdspace set bitmap=...`")),
    row(&["bitmap"], Some('b'), Value, &[Assemble], Ours("`mdspace serve --bitmap FILE`")),
    row(&["bitmap"], Some('b'), Value, &[Build], BUILD),
    row(
        &["bitmap-chunk"],
        None,
        Value,
        &[Create, Grow],
        Ours("`mdspace create --bitmap-chunk`, `mdspace set bitmap=internal:64M`"),
    ),
    row(&["write-mostly"], Some('W'), Nothing, &[Create], Ours("`mdspace create --write-mostly MEMBER`")),
    row(&["write-mostly"], Some('W'), Nothing, &[Manage], Ours("`mdspace add --write-mostly`")),
    row(&["write-mostly"], Some('W'), Nothing, &[Build], BUILD),
    row(
        &["write-behind"],
        None,
        Perhaps,
        &[Create],
        Ours("`mdspace create --write-behind`, for the kernel's md: here writes wait for every member"),
    ),
    row(&["write-behind"], None, Perhaps, &[Grow, Build], Later("it is recorded when the array is made")),
    row(&["failfast"], None, Nothing, &[Create], Ours("`mdspace create --failfast MEMBER`")),
    row(&["failfast"], None, Nothing, &[Manage], Ours("`mdspace add --failfast`")),
    row(&["nofailfast"], None, Nothing, &[Manage], Ours("`mdspace set failfast=-MEMBER`")),
    row(&["assume-clean"], None, Nothing, &[Create], Ours("`mdspace create --assume-clean`")),
    row(&["assume-clean"], None, Nothing, &[Grow, Build], Later("added space is resynced")),
    row(&["write-zeroes"], None, Nothing, &[Create], Ours("`mdspace create`: zeros, at the levels 4, 5 and 6")),
    row(&["backup-file"], None, Value, &[Grow], RESHAPE),
    row(
        &["backup-file"],
        None,
        Value,
        &[Assemble],
        Ours("with `--readonly`: `mdspace serve --read-only --backup-file`"),
    ),
    row(&["invalid-backup"], None, Nothing, &[Assemble], RESHAPE),
    row(&["continue"], None, Nothing, &[Grow], RESHAPE),
    row(&["freeze-reshape"], None, Nothing, &[Assemble, Incremental], RESHAPE),
    row(&["data-offset"], None, Value, &[Create], Ours("`mdspace create --data-offset 1M`; here a bare number is KiB")),
    row(&["data-offset"], None, Value, &[Grow], RESHAPE),
    row(
        &["delay"],
        Some('d'),
        Value,
        &[Create, Grow],
        Ours("`mdspace create --bitmap-delay`, `mdspace set bitmap-delay=SECONDS`"),
    ),
    row(&["delay"], Some('d'), Value, &[Build], BUILD),
    row(&["name"], Some('N'), Value, &[Create], Ours("`mdspace create --name HOST:NAME`")),
    row(&["name"], Some('N'), Value, &[Assemble], Ours("`mdspace serve --name`")),
    row(&["name"], Some('N'), Value, &[Misc], CONTAINERS),
    row(&["uuid"], Some('u'), Value, &[Create], Ours("`mdspace create --uuid`")),
    row(&["uuid"], Some('u'), Value, &[Assemble], Ours("`mdspace serve --uuid`")),
    row(&["readonly"], Some('o'), Nothing, &[Assemble, Create], Ours("`mdspace serve --read-only`")),
    row(&["readonly"], Some('o'), Nothing, &[Manage, Misc], READ_ONLY),
    row(&["readwrite"], Some('w'), Nothing, &[Manage], Ours("`mdspace set write-mostly=-MEMBER`")),
    row(&["readwrite"], Some('w'), Nothing, &[Misc], WRITABLE),
    row(&["auto"], Some('a'), Value, &[Assemble, Create, Build, Incremental], ACCEPTED),
    row(&["symlinks"], None, Value, &[Assemble, Create, Build], ACCEPTED),
    row(&["nodes"], None, Value, &[Assemble, Create, Grow], CLUSTER),
    row(&["home-cluster"], None, Value, &[Assemble, Create], CLUSTER),
    row(&["cluster-confirm"], None, Nothing, &[Manage], CLUSTER),
    row(&["write-journal"], None, Value, &[Create], Ours("`mdspace create --write-journal`")),
    row(
        &["add-journal"],
        None,
        Nothing,
        &[Manage],
        Later("stop the array; then `mdspace update --write-journal DEVICE MEMBER...`"),
    ),
    row(&["consistency-policy"], Some('k'), Value, &[Create], Ours("`mdspace create --consistency-policy`")),
    row(
        &["consistency-policy"],
        Some('k'),
        Value,
        &[Grow],
        Ours("`mdspace set consistency-policy=...`: `resync`, `bitmap`, `ppl`, `log`"),
    ),
    // For assemble.
    row(
        &["super-minor"],
        Some('m'),
        Value,
        &[Assemble],
        Ours("`mdspace serve --uuid` of the 0.90 array with that number"),
    ),
    row(
        &["no-degraded"],
        None,
        Nothing,
        &[Assemble, Incremental],
        Ours("refuses to start with fewer members than last time"),
    ),
    row(
        &["update"],
        Some('U'),
        Value,
        &[Assemble],
        Ours(
            "`uuid`, `name`, `homehost`, `no-bbl`, `resync`, `super-minor`, `metadata`, `byteorder`: `mdspace update`; the \
             others: not yet",
        ),
    ),
    row(&["update"], Some('U'), Value, &[Manage], Later("`mdspace update`, while the array is not served")),
    row(&["update"], Some('U'), Value, &[Misc], CONTAINERS),
    // For manage.
    row(
        &["add"],
        Some('a'),
        Nothing,
        &[Manage, Grow],
        Ours("`mdspace re-add`, else `mdspace add`, which takes back what was left behind"),
    ),
    row(&["re-add"], None, Nothing, &[Manage], Ours("`mdspace re-add`; with `missing`: not yet")),
    row(&["add-spare"], None, Nothing, &[Manage], Ours("`mdspace add`")),
    row(&["remove"], Some('r'), Nothing, &[Manage], Ours("`mdspace remove`; also `failed`; `detached`: not yet")),
    row(&["fail", "set-faulty"], Some('f'), Nothing, &[Manage], Ours("`mdspace fail`; `detached`: not yet")),
    row(&["fail"], Some('f'), Nothing, &[Incremental], Later("`mdspace fail`, `mdspace remove`")),
    row(&["replace"], None, Nothing, &[Manage], Ours("`mdspace replace`")),
    row(&["with"], None, Nothing, &[Manage], Ours("the second word of `mdspace replace`")),
    // For misc.
    row(&["query"], Some('Q'), Nothing, &[], Ours("`mdspace list`, `mdspace examine`")),
    row(&["detail"], Some('D'), Nothing, &[], Ours("`mdspace status`; with `--scan`: `mdspace list`")),
    row(&["detail-platform"], None, Nothing, &[], CONTAINERS),
    row(&["examine"], Some('E'), Nothing, &[], Ours("`mdspace examine`")),
    row(&["sparc2.2"], None, Nothing, &[Misc], Never("no such array was made since 1999")),
    row(&["examine-bitmap"], Some('X'), Nothing, &[], Ours("`mdspace examine`")),
    row(&["examine-badblocks"], None, Nothing, &[], Ours("`mdspace examine`")),
    row(&["dump"], None, Value, &[], Later("`mdspace examine --json` has no bytes")),
    row(&["restore"], None, Value, &[], Later("nothing writes superblocks back")),
    row(&["stop"], Some('S'), Nothing, &[], Ours("`mdspace stop`")),
    row(&["zero-superblock"], None, Nothing, &[], Ours("`mdspace wipe`; with `--force` where a member has a slot")),
    row(&["kill-subarray"], None, Value, &[], CONTAINERS),
    row(&["update-subarray"], None, Value, &[], CONTAINERS),
    row(&["wait"], Some('W'), Nothing, &[Misc], Ours("`mdspace wait`")),
    row(&["wait-clean"], None, Nothing, &[], Ours("`mdspace wait clean`")),
    row(&["action"], None, Value, &[], Ours("`mdspace set sync-action=...`, `mdspace scrub`")),
    row(&["udev-rules"], None, Perhaps, &[], UDEV),
    // For incremental.
    row(&["rebuild-map"], Some('r'), Nothing, &[Incremental], UDEV),
    row(&["path"], None, Value, &[Incremental], UDEV),
    // For monitor.
    row(&["mail"], Some('m'), Value, &[Monitor], Ours("`mdspace monitor --mail`")),
    row(&["program", "alert"], Some('p'), Value, &[Monitor], Ours("`mdspace monitor --program`")),
    row(&["syslog"], Some('y'), Nothing, &[Monitor], Ours("`mdspace monitor --syslog`")),
    row(&["delay"], Some('d'), Value, &[Monitor], Ours("`mdspace monitor --interval`")),
    row(&["increment"], Some('r'), Value, &[Monitor], Ours("`mdspace monitor --increment`")),
    row(
        &["daemonise", "daemonize"],
        Some('f'),
        Nothing,
        &[Monitor],
        Ours("in the background, and prints the process id; a service manager runs `mdspace monitor`"),
    ),
    row(
        &["pid-file"],
        Some('i'),
        Value,
        &[Monitor],
        Ours("with `--daemonise`: a file for the process id, which is not printed"),
    ),
    row(&["oneshot"], Some('1'), Nothing, &[Monitor], Ours("`mdspace monitor --once`")),
    row(&["no-sharing"], None, Nothing, &[], Ours("`mdspace monitor` without `--spare-group`")),
];

impl Opt {
    /// Whether it may be given in `mode`. Without a mode, only what is the same in every mode.
    pub(super) fn is_of(&self, mode: Option<Mode>) -> bool {
        self.modes.is_empty() || mode.is_some_and(|mode| self.modes.contains(&mode))
    }

    /// As it is typed: `-f`, `--force`.
    fn spellings(&self) -> Vec<String> {
        let equals = if self.takes == Value { "=" } else { "" };
        let short = self.short.map(|letter| format!("-{letter}"));
        short.into_iter().chain(self.names.iter().map(|name| format!("--{name}{equals}"))).collect()
    }

    /// The modes in words.
    fn modes_text(&self) -> String {
        let names: Vec<&str> = self.modes.iter().map(|mode| mode.name()).collect();
        names.join(", ")
    }

    /// What it is here, in words.
    pub(super) fn here_text(&self) -> String {
        match self.here {
            Ours(text) => text.to_owned(),
            Later(text) => format!("not yet: {text}"),
            Never(text) => format!("not here: {text}"),
        }
    }
}

/// The table as text for `--help-options`.
pub(super) fn help_options() -> String {
    let mut text = String::new();
    for option in OPTIONS {
        let modes = if option.modes.is_empty() { String::new() } else { format!(" ({})", option.modes_text()) };
        let here = option.here_text().replace('`', "");
        text += &format!("  {}{modes}\n      {here}\n", option.spellings().join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::{Command, Stdio};

    const BEGIN: &str = "<!-- made of options.rs -->\n\n";
    const END: &str = "\n<!-- end -->";

    /// The table in Markdown.
    fn table() -> String {
        let mut text = "| mdadm's option | in mode | mdspace |\n|---|---|---|\n".to_owned();
        for option in OPTIONS {
            let spellings: Vec<String> = option.spellings().iter().map(|word| format!("`{word}`")).collect();
            text += &format!("| {} | {} | {} |\n", spellings.join(", "), option.modes_text(), option.here_text());
        }
        text
    }

    fn page() -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/from-mdadm.md");
        std::fs::read_to_string(path).expect("the page is there")
    }

    #[test]
    fn the_page_has_this_table() {
        let page = page();
        let (_, rest) = page.split_once(BEGIN).expect("its beginning is marked");
        let (found, _) = rest.split_once(END).expect("its end is marked");
        assert_eq!(found, table(), "docs/from-mdadm.md is to have this table:\n\n{}", table());
    }

    /// The options that headings of paragraphs in mdadm(8) name: each with its short letter, if it has one there.
    fn in_manual(manual: &str) -> Vec<(Option<char>, Vec<String>)> {
        let lines: Vec<&str> = manual.lines().collect();
        let headings = lines.windows(2).filter(|pair| pair[0].starts_with(".TP") && pair[1].starts_with(".B"));
        let named = headings.filter_map(|pair| {
            let heading = pair[1].replace("\\-", "-").replace('"', "");
            let words = heading.split([' ', ',', '{']).map(|word| word.trim_end_matches('='));
            let words: Vec<&str> = words.filter(|word| word.starts_with('-')).collect();
            let short = words.iter().find(|word| word.len() == 2).and_then(|word| word.chars().nth(1));
            let long = words.iter().filter_map(|word| word.strip_prefix("--")).map(str::to_owned);
            let long: Vec<String> = long.collect();
            (!words.is_empty()).then_some((short, long))
        });
        named.collect()
    }

    /// mdadm(8), where it is installed. `cargo xtask test setup` installs the package with it.
    fn manual() -> Option<String> {
        let path = ["/usr/share/man/man8/mdadm.8.gz"].into_iter().find(|path| Path::new(path).exists())?;
        let unpacked = Command::new("gzip").args(["-dc", path]).stderr(Stdio::null()).output().expect("gzip runs");
        Some(String::from_utf8_lossy(&unpacked.stdout).into_owned()).filter(|text| !text.is_empty())
    }

    fn lacking(manual: &str) -> Vec<String> {
        let mut lacking = Vec::new();
        for (short, names) in in_manual(manual) {
            let has = |name: &str| {
                OPTIONS.iter().any(|option| {
                    option.names.contains(&name) && short.is_none_or(|letter| option.short == Some(letter))
                })
            };
            lacking.extend(names.iter().filter(|name| !has(name)).map(|name| format!("{short:?} --{name}")));
        }
        lacking
    }

    /// The options of the pages of mdadm 4.2 and 4.4, kept for machines without it: made by `in_manual` of this file.
    const RECORDED: &str = include_str!("manual.txt");

    #[test]
    fn every_option_of_mdadms_manual_has_a_row() {
        let recorded: String = RECORDED.lines().map(|line| format!(".TP\n.B {line}\n")).collect();
        assert!(in_manual(&recorded).len() > 90, "{}", in_manual(&recorded).len());
        assert_eq!(lacking(&recorded), Vec::<String>::new());
        if let Some(manual) = manual() {
            assert!(in_manual(&manual).len() > 90, "headings are found in mdadm(8)");
            assert_eq!(lacking(&manual), Vec::<String>::new(), "an option of mdadm(8) has no row");
        }
        assert_eq!(lacking(".TP\n.BR \\-j \", \" \\-\\-new=\n"), ["Some('j') --new"], "a new option is noticed");
    }

    #[test]
    fn a_letter_or_a_name_means_one_thing_in_each_mode() {
        for mode in Mode::ALL {
            let options: Vec<&Opt> = OPTIONS.iter().filter(|option| option.modes.contains(&mode)).collect();
            for (index, option) in options.iter().enumerate() {
                for other in &options[index + 1..] {
                    assert!(option.short.is_none() || option.short != other.short, "{mode:?}: {option:?} {other:?}");
                    assert!(
                        !option.names.iter().any(|name| other.names.contains(name)),
                        "{mode:?}: {option:?} {other:?}"
                    );
                }
            }
        }
    }
}
