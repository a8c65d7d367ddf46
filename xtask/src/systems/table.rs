//! The table of systems, in docs/systems.md and in README: which system, and how it was tested.
//!
//! A step that passes on a system leaves a record of it below `target/`. `cargo xtask systems` takes these records into
//! records.tsv, beside this file, and makes the tables anew from all of its lines. A test compares them. No step changes
//! the tree by itself, as a kernel's release changes with every update of a distribution.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use crate::root;

/// What a step found out about a system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) system: String,
    pub(crate) kernel: String,
    pub(crate) processor: String,
    /// Rust's name of the target.
    pub(crate) target: String,
    /// Begins with `run`, `emulated` or `compiled`.
    pub(crate) tested: String,
}

const BEGIN: &str = "<!-- made by cargo xtask systems -->\n";
const END: &str = "<!-- end -->\n";

/// The lines of records.tsv: a key, the place in the table, and the record's fields.
const RECORDS: &str = "xtask/src/systems/records.tsv";

fn new_records() -> PathBuf {
    root().join("target/xtask/records")
}

impl Record {
    /// Leaves the record for `cargo xtask systems`. The key is one of those in records.tsv, or a new one.
    pub(crate) fn leave(&self, key: &str) -> Result<()> {
        fs::create_dir_all(new_records())?;
        Ok(fs::write(new_records().join(key), self.line())?)
    }

    fn line(&self) -> String {
        [&self.system, &self.kernel, &self.processor, &self.target, &self.tested].map(String::as_str).join("\t")
    }

    fn parse(line: &str) -> Result<Self> {
        let fields: Vec<String> = line.split('\t').map(str::to_owned).collect();
        let [system, kernel, processor, target, tested] = fields.try_into().ok().context("a record has five fields")?;
        let how = ["run", "emulated", "compiled"];
        ensure!(how.iter().any(|how| tested.starts_with(how)), "{tested}: neither run, emulated nor compiled");
        Ok(Self { system, kernel, processor, target, tested })
    }
}

/// All records by their keys, in the order of the keys.
fn records(text: &str) -> Result<BTreeMap<String, Record>> {
    let parse = |line: &str| {
        let (key, rest) = line.split_once('\t').context("a key")?;
        Ok((key.to_owned(), Record::parse(rest).with_context(|| key.to_owned())?))
    };
    text.lines().map(parse).collect()
}

/// The page's table, with targets.
fn page_table(records: &BTreeMap<String, Record>) -> String {
    let mut table = String::from("| System | Kernel | Processor | Target | Tested |\n|---|---|---|---|---|\n");
    for Record { system, kernel, processor, target, tested } in records.values() {
        table += &format!("| {system} | {kernel} | {processor} | `{target}` | {tested} |\n");
    }
    table
}

/// README's table, without.
fn readme_table(records: &BTreeMap<String, Record>) -> String {
    let mut table = String::from("| System | Kernel | Processor | Tested |\n|---|---|---|---|\n");
    for Record { system, kernel, processor, tested, .. } in records.values() {
        let how = tested.split(':').next().unwrap_or(tested);
        table += &format!("| {system} | {kernel} | {processor} | {how} |\n");
    }
    table
}

/// The text with the table between its marks.
fn with_table(text: &str, table: &str) -> Result<String> {
    let (before, rest) = text.split_once(BEGIN).context("the table's first mark")?;
    let (_, after) = rest.split_once(END).context("the table's last mark")?;
    Ok(format!("{before}{BEGIN}\n{table}\n{END}{after}"))
}

/// The pages that have a table, as they should be.
fn pages(records: &BTreeMap<String, Record>) -> Result<Vec<(PathBuf, String)>> {
    let tables = [("docs/systems.md", page_table(records)), ("README.md", readme_table(records))];
    let page = |(name, table): (&str, String)| {
        let path = root().join(name);
        let text = with_table(&fs::read_to_string(&path)?, &table).with_context(|| name.to_owned())?;
        Ok((path, text))
    };
    tables.into_iter().map(page).collect()
}

/// `cargo xtask systems`: takes new records, and makes the tables anew; returns the number of new records.
pub(crate) fn write() -> Result<usize> {
    let path = root().join(RECORDS);
    let mut all = records(&fs::read_to_string(&path)?)?;
    let mut count = 0;
    for entry in fs::read_dir(new_records()).into_iter().flatten() {
        let entry = entry?;
        let key = entry.file_name().to_string_lossy().into_owned();
        all.insert(key, Record::parse(&fs::read_to_string(entry.path())?)?);
        count += 1;
    }
    let lines: String = all.iter().map(|(key, record)| format!("{key}\t{}\n", record.line())).collect();
    fs::write(path, lines)?;
    for (path, text) in pages(&all)? {
        fs::write(path, text)?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_what_the_records_say() {
        let all = records(&fs::read_to_string(root().join(RECORDS)).expect("it is there")).expect("well formed");
        for (path, text) in pages(&all).expect("both have marks") {
            let found = fs::read_to_string(&path).expect("it is there");
            assert!(found == text, "{}: `cargo xtask systems` makes the table", path.display());
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_left() {
        let [system, kernel, processor, target, tested] = ["Debian", "6.1", "x86-64", "t", "run: all"].map(str::to_owned);
        let record = Record { system, kernel, processor, target, tested };
        assert_eq!(Record::parse(&record.line()).expect("well formed"), record);
        assert!(Record::parse("too\tfew").is_err());
        assert!(Record::parse("a\tb\tc\td\tbelieved").is_err());
    }
}
