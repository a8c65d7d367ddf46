//! The tables of docs/policies.md, made of records. The words between them are the page's own.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::records::Records;
use crate::root;

/// A policy's name in records, and on the page.
const POLICIES: [(&str, &str); 5] =
    [("resync", "none (`resync`)"), ("bitmap", "`bitmap`"), ("ppl", "`ppl`"), ("journal", "journal"), ("log", "`log`")];

const LEVELS: [(&str, &str, &str); 3] = [("raid4", "4", "RAID-4"), ("raid5", "5", "RAID-5"), ("raid6", "6", "RAID-6")];
const ENGINES: [&str; 2] = ["mdspace", "md"];
const STATES: [(&str, &str); 2] = [("whole", "none"), ("lacking", "as many as the level bears")];

/// What stands where an engine has no such policy.
const WITHOUT: &str = "not there";

pub(super) fn path() -> PathBuf {
    root().join("docs/policies.md")
}

/// The page with new tables.
pub(super) fn renewed(page: &str, records: &Records) -> Result<String> {
    let tables = [
        ("summary", summary(records)),
        ("starts", starts(records)),
        ("crashes", crashes(records)),
        ("counts", counts(records)?),
        ("speeds", speeds(records)?),
    ];
    tables.into_iter().try_fold(page.to_owned(), |page, (name, table)| with_table(&page, name, &table))
}

const END: &str = "<!-- end -->\n";

/// The page with the table of that name between its marks.
fn with_table(page: &str, name: &str, table: &str) -> Result<String> {
    let mark = format!("<!-- made by cargo xtask policies: {name} -->\n");
    let (before, rest) = page.split_once(&mark).with_context(|| format!("the mark of {name}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("the end of {name}"))?;
    Ok(format!("{before}{mark}\n{table}\n{END}{after}"))
}

/// A row of a table.
fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// What starts after a crash have lost.
struct Loss {
    starts: u64,
    refused: u64,
    lossy: u64,
}

impl Loss {
    fn text(&self) -> String {
        let Self { starts, refused, lossy } = self;
        match (refused, lossy) {
            (0, 0) => format!("nothing in {starts} starts"),
            (0, _) => format!("data in {lossy} of {starts} starts"),
            _ => format!("{refused} of {starts} starts refused; by `--force` {lossy} of {starts} lose data"),
        }
    }
}

/// In the simulator, at all levels; the lines have the level, histories, and four counts for each state.
fn simulated(records: &Records, policy: &str, is_whole: bool) -> Option<Loss> {
    let sums = records.sums(&["starts", policy], 1);
    let counts = sums.get(if is_whole { 1..5 } else { 5..9 })?;
    Some(Loss { starts: counts[0], refused: counts[1], lossy: counts[2] })
}

/// In the guest, at all levels.
fn crashed(records: &Records, engine: &str, policy: &str, state: &str) -> Option<Loss> {
    let mut all: Option<Loss> = None;
    for level in ["5", "6"] {
        let sums = records.sums(&["crashes", state, engine, level, policy], 0);
        let [lives, forced, lossy, ..] = sums[..] else { continue };
        let sum = all.get_or_insert(Loss { starts: 0, refused: 0, lossy: 0 });
        *sum = Loss { starts: sum.starts + lives, refused: sum.refused + forced, lossy: sum.lossy + lossy };
    }
    all
}

fn summary(records: &Records) -> String {
    let mut table = String::from(
        "| policy | a crash: mdspace | md | a crash, and members missing: mdspace | md | each write of 4 KiB: mdspace | md |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for (policy, name) in POLICIES {
        let mut cells = vec![name.to_owned()];
        for (state, _) in STATES {
            let losses = [simulated(records, policy, state == "whole"), crashed(records, "md", policy, state)];
            cells.extend(losses.map(|loss| loss.map_or(WITHOUT.to_owned(), |loss| loss.text())));
        }
        cells.extend(ENGINES.map(|engine| cost(records, engine, policy).unwrap_or(WITHOUT.to_owned())));
        table += &row(&cells);
    }
    table
}

/// Writes, flushes and the speed's share, in a cell.
fn cost(records: &Records, engine: &str, policy: &str) -> Option<String> {
    let [_, writes, flushes, ..] = transfers(records, engine, policy)?;
    let share = share(records, &["speed", engine], policy).map_or(String::new(), |share| format!("; {share}"));
    Some(format!("{writes} writes, {flushes} flushes{share}"))
}

/// A speed by the speed without a policy.
fn share(records: &Records, keys: &[&str], policy: &str) -> Option<String> {
    let speed = |policy| records.sums(&[keys, &[policy]].concat(), 0).first().copied();
    Some(format!("{:.0} % of the speed", 100.0 * speed(policy)? as f64 / speed("resync")? as f64))
}

/// Reads, writes, flushes and bytes written for each request at level 5.
fn transfers(records: &Records, engine: &str, policy: &str) -> Option<[String; 4]> {
    if engine == "mdspace" {
        let keys = ["cost", policy, "raid5"];
        let fields = records.of(&keys).next()?;
        return Some([0, 1, 2, 3].map(|field| fields[field].to_owned()));
    }
    let sums = records.sums(&["counts", engine, policy], 0);
    let [requests, reads, writes, flushes, sectors] = sums[..] else { return None };
    let each = |count: u64| count as f64 / requests as f64;
    let [reads, writes, flushes] = [reads, writes, flushes].map(|count| format!("{:.2}", each(count)));
    Some([reads, writes, flushes, format!("{:.0}", each(sectors * 512))])
}

fn starts(records: &Records) -> String {
    let mut table = String::from(
        "| policy | level | histories | members missing | starts | refused without `--force` | lose data | sectors |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for (policy, name) in POLICIES {
        for (level, _, title) in LEVELS {
            let sums = records.sums(&["starts", policy, level], 0);
            let [histories, counts @ ..] = &sums[..] else { continue };
            for ((_, missing), counts) in STATES.into_iter().zip(counts.chunks(4)) {
                let missing = if missing == "none" { missing } else { "before, while or after" };
                let numbers = counts.iter().map(u64::to_string);
                let head = [name.to_owned(), title.to_owned(), histories.to_string(), missing.to_owned()];
                table += &row(&head.into_iter().chain(numbers).collect::<Vec<_>>());
            }
        }
    }
    table
}

fn crashes(records: &Records) -> String {
    let kernels: BTreeSet<&str> = records.of(&["kernel"]).filter_map(|fields| fields.last().copied()).collect();
    let mut table = format!(
        "Linux {}.\n\n| members missing | level | policy | | panics | refused without `--force` | lose data | blocks lost | \
         being written | of those neither |\n|---|---|---|---|---|---|---|---|---|---|\n",
        kernels.into_iter().collect::<Vec<_>>().join(" and ")
    );
    for (state, missing) in STATES {
        for (_, level, title) in LEVELS {
            for (policy, name) in POLICIES {
                for engine in ENGINES {
                    let sums = records.sums(&["crashes", state, engine, level, policy], 0);
                    let [lives, forced, lossy, lost, torn, under_way] = sums[..] else { continue };
                    let head = [missing, title, name, engine].map(str::to_owned);
                    let numbers = [lives, forced, lossy, lost, under_way, torn].map(|number| number.to_string());
                    table += &row(&head.into_iter().chain(numbers).collect::<Vec<_>>());
                }
            }
        }
    }
    table
}

fn counts(records: &Records) -> Result<String> {
    let mut table = String::from(
        "| policy | level | | reads | writes | flushes | bytes written | simulated time |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (level, _, title) in LEVELS {
        for (policy, name) in POLICIES {
            for fields in records.of(&["cost", policy, level]) {
                ensure!(fields.len() == 5, "a cost has five figures");
                let mut cells: Vec<String> = [name, title, "mdspace"].map(str::to_owned).into();
                cells.extend(fields[..4].iter().map(ToString::to_string));
                cells.push(format!("{} us", fields[4]));
                table += &row(&cells);
            }
            if let (Some(figures), "raid5") = (transfers(records, "md", policy), level) {
                let head = [name, title, "md"].map(str::to_owned);
                table += &row(&head.into_iter().chain(figures).chain([String::new()]).collect::<Vec<_>>());
            }
        }
    }
    Ok(table)
}

fn speeds(records: &Records) -> Result<String> {
    let mut table = String::from(
        "| policy | md, guest | | mdspace, guest | | mdspace, memory | |\n|---|---|---|---|---|---|---|\n",
    );
    for (policy, name) in POLICIES {
        let mut cells = vec![name.to_owned()];
        for keys in [&["speed", "md"][..], &["speed", "mdspace"], &["bench"]] {
            let speed = records.sums(&[keys, &[policy]].concat(), 0).first().copied();
            let per_second = speed.map(|speed| format!("{:.1} k/s", speed as f64 / 1000.0));
            cells.push(per_second.unwrap_or_default());
            cells.push(share(records, keys, policy).unwrap_or_default().replace(" of the speed", ""));
        }
        table += &row(&cells);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::super::records;
    use super::*;
    use std::fs;

    #[test]
    fn the_tables_are_what_the_records_say() {
        let all = Records::parse(&fs::read_to_string(root().join(records::PATH)).expect("it is there"));
        let page = fs::read_to_string(path()).expect("it is there");
        let renewed = renewed(&page, &all).expect("all marks are there");
        assert!(renewed == page, "`cargo xtask policies --page` makes the tables of docs/policies.md");
    }

    #[test]
    fn a_cell_says_what_is_lost() {
        for (starts, refused, lossy, expected) in [
            (7, 0, 0, "nothing in 7 starts"),
            (7, 0, 2, "data in 2 of 7 starts"),
            (7, 5, 2, "5 of 7 starts refused; by `--force` 2 of 7 lose data"),
        ] {
            assert_eq!(Loss { starts, refused, lossy }.text(), expected);
        }
    }

    #[test]
    fn starts_at_all_levels_are_added_up() {
        let records = Records::parse(
            "starts\tlog\traid4\t9\t3\t0\t0\t0\t20\t1\t2\t5\nstarts\tlog\traid5\t9\t4\t0\t0\t0\t30\t0\t1\t5\n",
        );
        let (whole, lacking) = (simulated(&records, "log", true), simulated(&records, "log", false));
        let numbers = |loss: Option<Loss>| loss.map(|loss| [loss.starts, loss.refused, loss.lossy]);
        assert_eq!((numbers(whole), numbers(lacking)), (Some([7, 0, 0]), Some([50, 1, 3])));
        assert!(simulated(&records, "ppl", true).is_none());
    }
}
