//! `mdspace iostat`: the load of each member, in the columns of `iostat -x`.
//!
//! The first line shows the array's own requests, as iostat prints an md device. The engine merges no transfers, so the
//! columns of merges are 0. The first report covers the time since the server's start.

use crate::command::clients::arguments::IostatArguments;
use crate::command::clients::control::client;
use crate::command::clients::figures::{Figures, milliseconds};
use crate::command::clients::interval::Intervals;
use crate::command::text::failure::Failure;
use crate::command::text::output::{is_read, print, print_json};
use crate::command::text::screen::{table, width};
use control::Client;
use export::measure::{Done, Measures, Metered};
use serde::Deserialize;

/// The heading of `iostat -x`.
const HEADING: [&str; 23] = [
    "Device", "r/s", "rkB/s", "rrqm/s", "%rrqm", "r_await", "rareq-sz", "w/s", "wkB/s", "wrqm/s", "%wrqm", "w_await",
    "wareq-sz", "d/s", "dkB/s", "drqm/s", "%drqm", "d_await", "dareq-sz", "f/s", "f_await", "aqu-sz", "%util",
];

/// Ranks of its columns on a narrow terminal (see [`table`]). Nothing is merged, so those columns go first.
const RANKS: [u8; 23] = [0, 0, 1, 8, 8, 2, 5, 0, 1, 8, 8, 2, 5, 6, 6, 8, 8, 6, 7, 4, 4, 3, 0];

/// The current measures of the server.
pub(crate) fn measures(client: &Client) -> Result<Measures, Failure> {
    let body = client.get("/v1/measures")?;
    Measures::deserialize(&body)
        .map_err(|error| Failure::unwell(format!("the server's reply is not a set of measures: {error}")))
}

/// Runs `mdspace iostat`.
pub(crate) fn run(arguments: &IostatArguments) -> Result<(), Failure> {
    let client = client(&arguments.control.wanted())?;
    let mut before: Option<Measures> = None;
    for _ in Intervals::new(arguments.interval, arguments.count) {
        let now = measures(&client)?;
        let figures = match &before {
            None => Figures::averages(now.clone()),
            Some(before) => Figures::between(before, &now),
        };
        if arguments.json {
            print_json(&before.as_ref().map_or_else(|| now.clone(), |before| now.since(before)))?;
        } else {
            print(&format!("{}\n", report(&figures, width())))?;
        }
        before = Some(now);
        if !is_read() {
            break;
        }
    }
    Ok(())
}

fn report(figures: &Figures, width: Option<usize>) -> String {
    let devices = std::iter::once(("array", figures.requests())).chain(figures.members());
    let rows = devices.map(|(name, metered)| row(figures, name, metered));
    let heading = HEADING.map(str::to_owned).to_vec();
    table(&std::iter::once(heading).chain(rows).collect::<Vec<_>>(), &RANKS, 0, width)
}

/// Rate, kB a second, merges, mean time, mean size.
fn kind(figures: &Figures, done: &Done) -> [String; 6] {
    let kib = |bytes: f64| format!("{:.2}", bytes / 1024.0);
    let size = done.bytes.checked_div(done.count - done.errors.min(done.count)).unwrap_or(0);
    [
        format!("{:.2}", figures.rate(done.count)),
        kib(figures.rate(done.bytes)),
        "0.00".to_owned(),
        "0.00".to_owned(),
        milliseconds(done.mean_nanos()),
        kib(size as f64),
    ]
}

fn row(figures: &Figures, name: &str, metered: &Metered) -> Vec<String> {
    let kinds = [&metered.read, &metered.write, &metered.discard].into_iter().flat_map(|done| kind(figures, done));
    let flushes = [format!("{:.2}", figures.rate(metered.flush.count)), milliseconds(metered.flush.mean_nanos())];
    let load = [format!("{:.2}", figures.queue(metered)), format!("{:.2}", figures.utilization(metered))];
    std::iter::once(name.to_owned()).chain(kinds).chain(flushes).chain(load).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use export::measure::{Kind, MemberMeasures, Meter};

    #[test]
    fn every_column_of_iostat_has_its_figure() {
        let meter = Meter::default();
        for (kind, bytes, took) in
            [(Kind::Read, 4096, 1_000_000), (Kind::Write, 8192, 3_000_000), (Kind::Flush, 0, 2_000_000)]
        {
            meter.begin(0);
            meter.end(kind, bytes, 0, took, true);
        }
        let metered = meter.snapshot(2_000_000_000);
        let members = vec![MemberMeasures { name: "a.img".to_owned(), metered }];
        let figures = Figures::averages(Measures { nanos: 2_000_000_000, members, ..Measures::default() });
        let text = report(&figures, None);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows.iter().map(Vec::len).collect::<Vec<_>>(), [23; 3]);
        let value = |name: &str| rows[2][HEADING.iter().position(|heading| *heading == name).expect("a column")];
        for (column, expected) in [
            ("Device", "a.img"),
            ("r/s", "0.50"),
            ("rkB/s", "2.00"),
            ("r_await", "1.000"),
            ("rareq-sz", "4.00"),
            ("w/s", "0.50"),
            ("wkB/s", "4.00"),
            ("w_await", "3.000"),
            ("wareq-sz", "8.00"),
            ("d/s", "0.00"),
            ("d_await", "-"),
            ("f/s", "0.50"),
            ("f_await", "2.000"),
            ("aqu-sz", "0.00"),
            ("%util", "0.30"),
        ] {
            assert_eq!(value(column), expected, "{column}");
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        for width in 60..=200 {
            let narrow = report(&figures, Some(width));
            assert!(narrow.lines().all(|line| line.len() <= width), "{width}: {narrow}");
            assert!(narrow.split_whitespace().all(|word| words.contains(&word)), "a number is cut: {narrow}");
            assert!(narrow.contains("%util") && narrow.contains("r/s"), "{width}: {narrow}");
        }
    }
}
