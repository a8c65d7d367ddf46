//! The tables of small writes in docs/bench.md: writes that meet in a small area at each depth, and arrays of each width.
//!
//! It runs `mdspace bench`; it measures nothing itself.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{bench, number};

pub(super) const HEADING: &str = "
## Small writes

Writes of 4 KiB to members in memory. The first table compares places: anywhere in the array, in 512 KiB of it, and by
Zipf's law (the place of rank n is written 1/n times as often as the first). Neither the number of requests in flight
nor their meeting should cost anything. The second table is the speed of random writes in arrays of each width, 8
requests in flight, as a fraction of the same transfers without RAID.

";

/// Requests in flight.
const DEPTHS: [u16; 6] = [1, 4, 16, 32, 64, 256];

/// The workloads of the first table.
const PLACES: [&str; 3] = ["write 4 KiB random", "write 4 KiB random in 512 KiB", "write 4 KiB by Zipf's law"];

/// Numbers of members in the second table.
const WIDTHS: [u16; 9] = [3, 4, 5, 6, 8, 10, 12, 16, 32];

/// Both tables.
pub(super) fn tables(seconds: f64) -> Result<String> {
    let mut text = "| RAID-5 of 4, in flight | anywhere | in 512 KiB | Zipf | in 512 KiB / anywhere |\n\
                    |---|---|---|---|---|\n"
        .to_owned();
    for depth in DEPTHS {
        let result = measured("5", 4, depth, seconds)?;
        let [all, busy, zipf] = PLACES.map(|name| figure(&result, name, "array_per_second"));
        let (all, busy, zipf) = (all? / 1e3, busy? / 1e3, zipf? / 1e3);
        writeln!(text, "| {depth} | {all:.0} k/s | {busy:.0} k/s | {zipf:.0} k/s | {:.2} |", busy / all)?;
    }
    text += "\n| members | RAID-5 | RAID-6 |\n|---|---|---|\n";
    for members in WIDTHS {
        let ratio = |level: &str| figure(&measured(level, members, 8, seconds)?, PLACES[0], "ratio");
        let of_six = if members < 4 { String::new() } else { format!("{:.2}", ratio("6")?) };
        writeln!(text, "| {members} | {:.2} | {of_six} |", ratio("5")?)?;
    }
    Ok(text)
}

fn measured(level: &str, members: u16, depth: u16, seconds: f64) -> Result<Value> {
    let (members, depth, seconds) = (members.to_string(), depth.to_string(), seconds.to_string());
    let shape = ["--level", level, "--members", &members, "--depth", &depth];
    bench(&[&shape[..], &["--seconds", &seconds, "--only", "write 4 KiB"]].concat(), &[])
}

fn figure(result: &Value, workload: &str, field: &str) -> Result<f64> {
    let figures = result["levels"][0]["figures"].as_array().context("no figures")?;
    let found = figures.iter().find(|figure| figure["workload"] == workload);
    number(&found.with_context(|| format!("`{workload}` was not measured"))?[field])
}
