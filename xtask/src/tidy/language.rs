//! Rules of language, which keep pages, comments and messages in plain technical English.
//!
//! - Words: the subject of a sentence is a thing with a name. At most one line in a thousand of a folder may have a word that
//!   stands for a person.
//! - Wrapping: a line of Markdown has at most 120 columns. Tables, code and the targets of links are exempt.
//! - Sentences: a sentence in a page of Markdown has at most 40 words.
//!
//! A folder is the sources of a crate, or a directory of pages. Every rule holds for every folder. The rules do
//! not judge meaning, which takes a reader.

use std::collections::BTreeMap;
use std::fmt;

use super::Violation;

/// Words that stand for persons, and are easily used of members, callers and sweeps.
const PERSONS: &[&str] = &["who", "whoever", "nobody", "somebody", "him", "his"];

/// Contexts in which such a word is right: of persons by name, and of the user `nobody`.
const ALLOWED: &[&str] = &[
    "a person who",
    "persons who",
    "people who",
    "an engineer who",
    "administrators who",
    "user nobody",
    "user `nobody`",
    "\"nobody\"",
];

/// At most this many lines in a thousand may have such a word.
const IN_A_THOUSAND: usize = 1;

/// Most columns of a line of Markdown.
const COLUMNS: usize = 120;

/// Most words of a sentence.
const SENTENCE_WORDS: usize = 40;

/// The rules that a folder can be held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    Words,
    Wrapping,
    Sentences,
}

/// A line or sentence that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    line: usize,
    what: String,
}

/// The findings in a folder, and the extent of what was read.
#[derive(Default)]
struct Folder {
    lines: usize,
    sentences: Vec<usize>,
    found: BTreeMap<Rule, Vec<Finding>>,
}

/// The language of all files that the rules cover.
#[derive(Default)]
pub(super) struct Language {
    folders: BTreeMap<String, Folder>,
}

impl Language {
    /// Reads the file at `path`, which is relative to the root; ignores files that no rule covers.
    pub(super) fn read(&mut self, path: &str, contents: &str) {
        let Some(name) = folder(path) else { return };
        let folder = self.folders.entry(name).or_default();
        folder.lines += contents.lines().count();
        folder.note(Rule::Words, path, persons(contents));
        if path.ends_with(".md") {
            folder.note(Rule::Wrapping, path, long_lines(contents));
            let sentences = sentences(contents);
            folder.sentences.extend(sentences.iter().map(|sentence| sentence.words));
            let long = sentences.into_iter().filter(|sentence| sentence.words > SENTENCE_WORDS);
            let long = long.map(|sentence| (sentence.line, format!("{} words: {}...", sentence.words, sentence.start)));
            folder.note(Rule::Sentences, path, long.collect());
        }
    }

    /// What breaks the rules.
    pub(super) fn violations(&self) -> Vec<Violation> {
        self.folders.values().flat_map(Folder::violations).collect()
    }
}

/// The figures of each folder, one per line.
impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:24} {:>7} {:>13} {:>11} {:>7} {:>14}",
            "", "lines", "persons/1000", "long lines", "median", "long sentences"
        )?;
        for (name, folder) in &self.folders {
            let count = |rule| folder.found.get(&rule).map_or(0, Vec::len);
            let persons = count(Rule::Words) as f64 * 1000.0 / folder.lines.max(1) as f64;
            let (wrapping, median, sentences) = (count(Rule::Wrapping), folder.median(), count(Rule::Sentences));
            writeln!(f, "{name:24} {:7} {persons:13.1} {wrapping:11} {median:7} {sentences:14}", folder.lines)?;
        }
        Ok(())
    }
}

impl Folder {
    fn note(&mut self, rule: Rule, path: &str, found: Vec<(usize, String)>) {
        let findings = found.into_iter().map(|(line, what)| Finding { path: path.to_owned(), line, what });
        self.found.entry(rule).or_default().extend(findings);
    }

    fn violations(&self) -> Vec<Violation> {
        let is_allowed =
            |rule: Rule, found: &[Finding]| rule == Rule::Words && found.len() * 1000 <= IN_A_THOUSAND * self.lines;
        let broken = self.found.iter().filter(|(rule, found)| !is_allowed(**rule, found)).flat_map(|(_, found)| found);
        broken
            .map(|finding| Violation {
                place: format!("{}:{}", finding.path, finding.line),
                what: finding.what.clone(),
            })
            .collect()
    }

    /// The median of the sentences' words.
    fn median(&self) -> usize {
        let mut sentences = self.sentences.clone();
        sentences.sort_unstable();
        sentences.get(sentences.len() / 2).copied().unwrap_or(0)
    }
}

/// The folder that a file belongs to, if a rule covers it.
fn folder(path: &str) -> Option<String> {
    let mut parts = path.split('/');
    match (parts.next()?, parts.next(), parts.next()) {
        ("crates", Some(name), Some("src")) if path.ends_with(".rs") => Some(format!("crates/{name}/src")),
        ("docs", ..) if path.ends_with(".md") => path.rsplit_once('/').map(|(directory, _)| directory.to_owned()),
        (page, None, None) if page.ends_with(".md") => Some(page.to_owned()),
        _ => None,
    }
}

/// Lines with words that stand for persons, outside the allowed contexts.
fn persons(contents: &str) -> Vec<(usize, String)> {
    let of_line = |line: &str| {
        let mut line = line.to_lowercase();
        for allowed in ALLOWED {
            line = line.replace(allowed, "");
        }
        let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        let found: Vec<_> = words.filter(|word| PERSONS.contains(word)).map(|word| format!("\"{word}\"")).collect();
        (!found.is_empty()).then(|| format!("{}: name the thing", found.join(", ")))
    };
    (1..).zip(contents.lines()).filter_map(|(number, line)| Some((number, of_line(line)?))).collect()
}

/// Lines of prose with too many columns, without the targets of links.
fn long_lines(page: &str) -> Vec<(usize, String)> {
    let prose = prose(page).filter(|(_, line)| !is_table(line));
    let columns = prose.map(|(number, line)| (number, without_targets(line).chars().count()));
    let long = columns.filter(|(_, columns)| *columns > COLUMNS);
    long.map(|(number, columns)| (number, format!("{columns} columns, more than {COLUMNS}"))).collect()
}

/// The lines outside fenced blocks, with their numbers.
fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(page.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

fn is_table(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

/// The line without the targets of `[text](target)`, and without bare addresses.
fn without_targets(line: &str) -> String {
    let mut parts = line.split("](");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept += "]";
        kept += part.split_once(')').map_or(part, |(_, rest)| rest);
    }
    kept.split(' ').filter(|word| !word.contains("://")).collect::<Vec<_>>().join(" ")
}

/// A sentence of a page.
struct Sentence {
    /// The number of its first line.
    line: usize,
    words: usize,
    /// Its first words.
    start: String,
}

/// The number of words of a sentence that are shown.
const START_WORDS: usize = 6;

/// The sentences of a page, without those of code, tables and headings.
fn sentences(page: &str) -> Vec<Sentence> {
    let mut found = Vec::new();
    let mut paragraph: Vec<(usize, String)> = Vec::new();
    let mut before = 0;
    for (number, line) in prose(page) {
        let (trimmed, followed) = (line.trim_start(), before + 1 == number);
        let begins = trimmed.is_empty() || trimmed.starts_with('#') || is_table(line) || is_item(trimmed) || !followed;
        if begins {
            split(&mut paragraph, &mut found);
        }
        if !trimmed.starts_with('#') && !is_table(line) {
            let words = without_code(&without_targets(line));
            paragraph.extend(words.split_whitespace().map(|word| (number, word.to_owned())));
        }
        before = number;
    }
    split(&mut paragraph, &mut found);
    found
}

/// Whether a line begins an item of a list.
fn is_item(line: &str) -> bool {
    let number = line.split_once(". ").is_some_and(|(number, _)| number.chars().all(|c| c.is_ascii_digit()));
    number || ["- ", "* ", "> "].iter().any(|mark| line.starts_with(mark))
}

/// The line with each `` `code` `` as one word, which may begin a sentence.
fn without_code(line: &str) -> String {
    let parts = line.split('`').enumerate();
    let parts = parts.map(|(index, part)| if index % 2 == 1 { part.replace(' ', "_") } else { part.to_owned() });
    parts.collect::<Vec<_>>().join("`")
}

/// Splits a paragraph into sentences.
fn split(paragraph: &mut Vec<(usize, String)>, found: &mut Vec<Sentence>) {
    let words = std::mem::take(paragraph);
    let mut begin = 0;
    for index in 0..words.len() {
        let next = words.get(index + 1).map(|(_, word)| word.as_str());
        if !ends_sentence(&words[index].1, next) {
            continue;
        }
        let sentence: Vec<_> = words[begin..=index].iter().filter(|(_, word)| is_word(word)).collect();
        if let Some((line, _)) = sentence.first() {
            let start = sentence.iter().take(START_WORDS).map(|(_, word)| word.as_str()).collect::<Vec<_>>().join(" ");
            found.push(Sentence { line: *line, words: sentence.len(), start });
        }
        begin = index + 1;
    }
}

fn is_word(text: &str) -> bool {
    text.contains(|c: char| c.is_alphanumeric())
}

/// Whether a sentence ends with `word`, when `next` comes after it.
fn ends_sentence(word: &str, next: Option<&str>) -> bool {
    let Some(next) = next else { return true };
    let word = word.trim_end_matches([')', '"', '\'', '*', '_', '`']);
    let abbreviated = ["e.g.", "i.e.", "etc.", "cf.", "vs."].contains(&word.trim_start_matches('('));
    let begins = !next.trim_start_matches(['(', '"', '*', '[']).starts_with(char::is_lowercase);
    word.ends_with(['.', '!', '?']) && !abbreviated && begins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_persons_are_found_where_they_stand_for_things() {
        for (line, count) in [
            ("// The member that fails leaves.", 0),
            ("// Who fails leaves.", 1),
            ("fn whole(whose: &str, history: u64) {}", 0),
            ("let who = nobody_else;", 1),
            ("\"somebody else's, and his\"", 1),
            ("an engineer who knows md", 0),
            ("people who read his page", 1),
            ("as the user `nobody`", 0),
        ] {
            assert_eq!(persons(line).len(), count, "{line}");
        }
    }

    #[test]
    fn one_line_in_a_thousand_may_name_a_person() {
        let read = |lines: usize, persons: usize| {
            let mut language = Language::default();
            let source = format!("{}{}", "// who\n".repeat(persons), "\n".repeat(lines - persons));
            language.read("crates/none/src/a/b.rs", &source);
            language.violations()
        };
        assert_eq!(read(2000, 2), []);
        let found = read(1999, 2);
        assert_eq!(found.len(), 2, "both are listed");
        assert_eq!(found[0].to_string(), "crates/none/src/a/b.rs:1: \"who\": name the thing");
    }

    #[test]
    fn folders_are_crates_and_directories_of_pages() {
        for (path, expected) in [
            ("crates/io/src/a/b.rs", Some("crates/io/src")),
            ("crates/io/tests/a.rs", None),
            ("crates/io/Cargo.toml", None),
            ("docs/tour.md", Some("docs")),
            ("docs/decisions/a.md", Some("docs/decisions")),
            ("README.md", Some("README.md")),
            ("xtask/src/main.rs", None),
            ("fuzz/README.md", None),
        ] {
            assert_eq!(folder(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn lines_are_wrapped_but_for_tables_code_and_targets() {
        let long = "word ".repeat(30);
        for (page, lines) in [
            (format!("short\n{long}\n"), vec![2]),
            (format!("| {long} |\n"), vec![]),
            (format!("```text\n{long}\n```\n{long}\n"), vec![4]),
            (format!("[text](https://{}) and\n", "a".repeat(150)), vec![]),
            (format!("see https://{} and\n", "a".repeat(150)), vec![]),
            (format!("[{long}](there)\n"), vec![1]),
            ("ü".repeat(COLUMNS), vec![]),
        ] {
            let found: Vec<_> = long_lines(&page).into_iter().map(|(line, _)| line).collect();
            assert_eq!(found, lines, "{page}");
        }
    }

    #[test]
    fn sentences_are_counted_as_a_reader_counts_them() {
        let table: &[(&str, &[(usize, usize)])] = &[
            ("One two three. Four five.", &[(1, 3), (1, 2)]),
            ("One two\nthree. Four\n\nfive", &[(1, 3), (2, 1), (4, 1)]),
            ("# Heading of many words\nOne.", &[(2, 1)]),
            ("- one two\n- three four\n  five", &[(1, 2), (2, 3)]),
            ("1. one\n2. two", &[(1, 2), (2, 2)]),
            ("One `two three four` five, e.g. six; version 1.2 too - yes.", &[(1, 9)]),
            ("One two. `three four` five.", &[(1, 2), (1, 2)]),
            ("One [two three](a b c d). (Four.)", &[(1, 3), (1, 1)]),
            ("One:\n```sh\na b c. d\n```\nTwo.", &[(1, 1), (5, 1)]),
            ("| a | b c d |\nOne.", &[(2, 1)]),
        ];
        for (page, expected) in table {
            let found: Vec<_> = sentences(page).iter().map(|sentence| (sentence.line, sentence.words)).collect();
            assert_eq!(found, *expected, "{page}");
        }
    }

    #[test]
    fn a_long_sentence_is_named_with_its_line_and_its_start() {
        let mut language = Language::default();
        language.read("docs/none/a.md", &format!("Short.\n\nAnd {}\n", "on\n".repeat(SENTENCE_WORDS)));
        let found: Vec<_> = language.violations().iter().map(Violation::to_string).collect();
        assert_eq!(found, ["docs/none/a.md:3: 41 words: And on on on on on..."]);
        assert!(language.to_string().contains("docs/none"), "{language}");
    }
}
