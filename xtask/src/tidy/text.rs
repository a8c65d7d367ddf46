//! Rules on the text of a file: head, length, markers, walls around the pure crates, `unsafe`, systems, links.
//!
//! The rules read lines without their comments, not syntax trees: in code that rustfmt has formatted, a forbidden name
//! is in one piece. `use` lists in braces are expanded.

use crate::root;

use super::Violation;

/// A longer file has to be split.
const LINES_MAX: usize = 1000;

/// Names that must not occur in the crates that run under virtual time, their tests included.
const OUTSIDE_WORLD: &[&str] = &[
    "std::fs",
    "std::net",
    "std::thread",
    "std::process",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::os::unix::net",
    "tokio",
    "io_uring",
];

/// The sources of these crates: arithmetic and formats do no input or output; the engine knows no clock, thread or
/// file.
const PURE_SOURCES: &[&str] = &["crates/parity/src/", "crates/format/src/", "crates/engine/src/"];

/// Where `unsafe` is allowed, and for what.
const UNSAFE_SOURCES: &[&str] = &[
    "crates/parity/",                                 // SIMD intrinsics
    "crates/engine/src/base/join.rs",                 // futures in a pinned slice
    "crates/engine/src/base/buffer.rs",               // aligned memory that the kernel reads and writes
    "crates/io/",                                     // io_uring, mapped memory
    "crates/c/",                                      // functions for C, whose pointers cannot be checked
    "crates/export/tests/support/virtual_machine.rs", // completions of a C interface
];

/// Where code may ask for the operating system, and for what. Everything else is the same on all.
const SYSTEM_SOURCES: &[&str] = &[
    "crates/io/src/system/",                               // what each system does its own way
    "crates/io/src/lib.rs",                                // ublk
    "crates/io/src/operation.rs",                          // its commands
    "crates/export/src/lib.rs",                            // the exports that are Linux's own
    "crates/mdspace/src/command/server/exports/mod.rs",    // their options
    "crates/mdspace/src/command/measure/bench/members.rs", // files without a name
    "crates/engine/tests/memory.rs",                       // memory in use, by /proc
];

/// Spelled so that this file does not break its own rules.
const MARKERS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/fa", "rm")];
const IGNORED_TEST: &str = concat!("#[ign", "ore");

/// All violations in the file at `path`, which is relative to the root.
pub(super) fn check(path: &str, contents: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut report = |line: Option<usize>, what: String| {
        let place = line.map_or(path.to_owned(), |line| format!("{path}:{line}"));
        found.push(Violation { place, what });
    };
    for (number, line) in (1..).zip(contents.lines()) {
        for marker in MARKERS.iter().filter(|marker| has_unnumbered_marker(line, marker)) {
            report(Some(number), format!("{marker} without the number of an issue (#n)"));
        }
        for part in MACHINE_PATHS.iter().filter(|part| line.contains(**part)) {
            report(Some(number), format!("a path of one machine: {part}"));
        }
    }
    if path.ends_with(".md") {
        for (line, link) in broken_links(path, contents) {
            report(Some(line), format!("the link leads nowhere: {link}"));
        }
    }
    if path.ends_with(".rs") {
        if !contents.starts_with("//!") {
            report(Some(1), "the file does not begin with //! and its purpose".into());
        }
        let lines = contents.lines().count();
        if lines > LINES_MAX {
            report(None, format!("{lines} lines, more than {LINES_MAX}: split it by meaning"));
        }
        let pure = PURE_SOURCES.iter().any(|source| path.starts_with(source));
        let may_ask = !path.starts_with("crates/") || SYSTEM_SOURCES.iter().any(|source| path.starts_with(source));
        let may_be_unsafe = UNSAFE_SOURCES.iter().any(|source| path.starts_with(source));
        for (number, line) in (1..).zip(contents.lines()) {
            let code = without_strings(without_comment(line));
            if code.contains(IGNORED_TEST) {
                report(Some(number), "an ignored test: fix it or remove it".into());
            }
            if !may_ask && words(&code).any(|word| word == "target_os") {
                report(Some(number), "`target_os` outside the files listed for it in xtask/src/tidy/text.rs".into());
            }
            if !may_be_unsafe && words(&code).any(|word| word == "unsafe") {
                report(Some(number), "`unsafe` outside the files listed for it in xtask/src/tidy/text.rs".into());
            }
        }
        if pure {
            for (number, name) in outside_world(contents) {
                report(Some(number), format!("`{name}` behind the wall: this crate also runs under virtual time"));
            }
        }
    }
    found
}

/// Whether `line` holds `marker` as a word, not followed by the number of an issue such as `(#12)`.
fn has_unnumbered_marker(line: &str, marker: &str) -> bool {
    let numbered = || line.split('#').skip(1).any(|after| after.starts_with(|c: char| c.is_ascii_digit()));
    words(line).any(|word| word == marker) && !numbered()
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The line up to a `//` that is not part of an address.
pub(super) fn without_comment(line: &str) -> &str {
    let comment = line.match_indices("//").find(|(at, _)| !line[..*at].ends_with(':'));
    comment.map_or(line, |(at, _)| &line[..at])
}

/// The line without the contents of string literals.
fn without_strings(line: &str) -> String {
    line.replace("\\\"", "").replace("'\"'", "").split('"').step_by(2).collect()
}

/// Names of the outside world in `source`, with their lines.
fn outside_world(source: &str) -> Vec<(usize, &'static str)> {
    let code: String = source.lines().map(|line| format!("{}\n", without_comment(line))).collect();
    let mut found = Vec::new();
    for (number, path) in paths(&code) {
        let hit = OUTSIDE_WORLD.iter().find(|name| path == **name || path.starts_with(&format!("{name}::")));
        found.extend(hit.map(|name| (number, *name)));
    }
    found
}

/// All paths `a::b::c` in `code` with their lines; a list in braces after `::` gives a path for each item.
pub(super) fn paths(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut prefixes: Vec<String> = Vec::new(); // one for each open brace
    let mut path = String::new();
    let mut line = 1;
    let mut rest = code.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        match c {
            c if c.is_alphanumeric() || c == '_' => path.push(c),
            ':' if code[at..].starts_with("::") => {
                rest.next();
                path.push_str("::");
            }
            '{' => {
                let inside_list = path.ends_with("::");
                let prefix = if inside_list { prefixed(&prefixes, &path) } else { String::new() };
                prefixes.push(prefix);
                path.clear();
            }
            _ => {
                if !path.is_empty() {
                    found.push((line, prefixed(&prefixes, &path)));
                    path.clear();
                }
                if c == '}' {
                    prefixes.pop();
                }
            }
        }
        line += usize::from(c == '\n');
    }
    found
}

fn prefixed(prefixes: &[String], path: &str) -> String {
    format!("{}{path}", prefixes.last().map_or("", String::as_str))
}

/// Links `[text](target)` of a Markdown file that name a file which does not exist, with their lines.
fn broken_links(path: &str, contents: &str) -> Vec<(usize, String)> {
    let directory = root().join(path).parent().expect("a file has a directory").to_owned();
    let mut broken = Vec::new();
    for (number, line) in (1..).zip(contents.lines()) {
        for (at, _) in line.match_indices("](") {
            let Some(target) = line[at + 2..].split(')').next() else { continue };
            let file = target.split('#').next().unwrap_or_default();
            let elsewhere = target.contains("://") || target.starts_with("mailto:") || file.is_empty();
            if !elsewhere && !directory.join(file).exists() {
                broken.push((number, target.to_owned()));
            }
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, contents: &str) -> Vec<String> {
        check(path, contents).iter().map(Violation::to_string).collect()
    }

    #[test]
    fn each_rule_catches_what_breaks_it_and_nothing_else() {
        let (marker, path, ignored) = (MARKERS[0], MACHINE_PATHS[0], IGNORED_TEST);
        let long = format!("//! Long.\n{}", "\n".repeat(LINES_MAX));
        #[rustfmt::skip]
        let table: &[(&str, String, Option<&str>)] = &[
            ("xtask/a.rs", "//! Fine.\n".into(), None),
            ("xtask/a.rs", "fn main() {}\n".into(), Some("xtask/a.rs:1: the file does not begin with")),
            ("xtask/a.rs", long, Some("xtask/a.rs: 1001 lines")),
            ("a.sh", format!("# {marker}: later\n"), Some("a.sh:1: ")),
            ("a.sh", format!("# {marker}(#12): later\n"), None),
            ("a.sh", format!("cd {path}x\n"), Some("a.sh:1: a path of one machine")),
            ("xtask/a.rs", format!("//! A.\n{ignored}]\n"), Some("xtask/a.rs:2: an ignored test")),
            ("xtask/a.rs", "//! A.\nunsafe fn f() {}\n".into(), Some("xtask/a.rs:2: `unsafe` outside")),
            ("xtask/a.rs", "//! A.\n#![forbid(unsafe_code)] // no unsafe\n".into(), None),
            ("crates/parity/src/a.rs", "//! A.\nunsafe fn f() {}\n".into(), None),
            ("crates/io/src/a.rs", "//! A.\n#[cfg(target_os = \"linux\")]\n".into(), Some("crates/io/src/a.rs:2: `target_os` outside")),
            ("crates/io/src/system/a.rs", "//! A.\n#[cfg(target_os = \"linux\")]\n".into(), None),
            ("README.md", "[here](Cargo.toml) [there](https://x.y/z) [top](#top)\n".into(), None),
            ("README.md", "\n[gone](no/such.md#part)\n".into(), Some("README.md:2: the link leads nowhere: no/such.md#part")),
        ];
        for (path, contents, expected) in table {
            let found = complaints(path, contents);
            match expected {
                None => assert!(found.is_empty(), "{contents:?}: {found:?}"),
                Some(start) => assert!(found.len() == 1 && found[0].starts_with(start), "{contents:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn names_of_the_outside_world_are_found_in_every_spelling() {
        #[rustfmt::skip]
        let table: &[(&str, &[(usize, &str)])] = &[
            ("use std::fs::File;", &[(1, "std::fs")]),
            ("use std::{fmt, fs};", &[(1, "std::fs")]),
            ("use std::{\n    time::{Duration, Instant},\n};", &[(2, "std::time::Instant")]),
            ("fn f() { let t = std::time::SystemTime::now(); }", &[(1, "std::time::SystemTime")]),
            ("use std::time::Duration;", &[]),
            ("// std::fs is for others\nfn fs() {}", &[]),
            ("use io_uring::IoUring;", &[(1, "io_uring")]),
            ("fn std() { fs::read() }", &[]),
        ];
        for (source, expected) in table {
            assert_eq!(outside_world(source), *expected, "{source}");
        }
    }
}
