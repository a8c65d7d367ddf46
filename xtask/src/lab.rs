//! docs/lab.md shows the output of `mdspace lab`. The laboratory's time is virtual and its figures are exact, so the
//! page is compared byte for byte; `cargo xtask lab` rewrites it.
//!
//! A block that begins with `$ mdspace lab ...` holds the output of that command. Everything else on the page stays as
//! it is.
//!
//! The tests here check claims about the figures (md's columns are as published, the default gains) on the page,
//! without another simulation. The step `lab` checks that the page has the engine's figures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::root;

const FENCE: &str = "```console\n$ mdspace lab";
const END: &str = "\n```";

/// The page.
pub(crate) fn page() -> PathBuf {
    root().join("docs/lab.md")
}

/// `text` with new output of each of its commands, and the number of commands.
pub(crate) fn renewed(text: &str, mdspace: &Path) -> Result<(String, usize)> {
    renew(text, |arguments| {
        let output = Command::new(mdspace).arg("lab").args(arguments).output()?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "mdspace lab {}: {complaint}", arguments.join(" "));
        Ok(String::from_utf8(output.stdout)?)
    })
}

fn renew(text: &str, run: impl Fn(&[&str]) -> Result<String>) -> Result<(String, usize)> {
    let mut parts = text.split(FENCE);
    let mut new = parts.next().unwrap_or_default().to_owned();
    let mut count = 0;
    for part in parts {
        let (block, after) = part.split_once(END).context("a block without its end")?;
        let command = block.lines().next().unwrap_or_default();
        let output = run(&command.split_whitespace().collect::<Vec<_>>())?;
        new += &format!("{FENCE}{command}\n{}{END}{after}", output.trim_end());
        count += 1;
    }
    Ok((new, count))
}

/// A description of the first line that differs.
pub(crate) fn difference(old: &str, new: &str) -> Option<String> {
    let differs = old.lines().zip(new.lines()).position(|(old, new)| old != new);
    let line = differs.or_else(|| (old != new).then(|| old.lines().count().min(new.lines().count())))?;
    let of = |text: &str| text.lines().nth(line).unwrap_or("(the end)").to_owned();
    Some(format!("line {}:\n  docs/lab.md: {}\n  mdspace lab: {}", line + 1, of(old), of(new)))
}

/// `cargo xtask lab`: rewrites the page.
pub(crate) fn write(mdspace: &Path) -> Result<usize> {
    let old = fs::read_to_string(page())?;
    let (new, count) = renewed(&old, mdspace)?;
    fs::write(page(), new)?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cells of the output of this command on the page.
    fn printed(command: &str) -> Vec<Vec<String>> {
        let text = fs::read_to_string(page()).expect("the page is there");
        let block = text.split(FENCE).find_map(|part| part.strip_prefix(&format!(" {command}\n")));
        let block = block.and_then(|block| block.split_once(END)).expect("the command is on the page").0;
        let cells =
            |line: &str| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(Into::into).collect();
        block.lines().map(cells).collect()
    }

    /// For each figure its setting, the published value if there is one, and the measured value.
    fn figures(experiment: &str) -> Vec<(String, Option<f64>, f64)> {
        let figure = |cells: Vec<String>| {
            let [before @ .., here, _unit] = &cells[..] else { return None };
            if before.len() > 3 {
                return None; // a line of a trace
            }
            let published = before.last().and_then(|cell| cell.parse().ok());
            let setting = before.iter().rfind(|cell| cell.parse::<f64>().is_err())?;
            Some((setting.clone(), published, here.parse().ok()?))
        };
        printed(experiment).into_iter().filter_map(figure).collect()
    }

    /// The measured values with this setting.
    fn of(figures: &[(String, Option<f64>, f64)], setting: &str) -> Vec<f64> {
        figures.iter().filter(|figure| figure.0.starts_with(setting)).map(|figure| figure.2).collect()
    }

    #[test]
    fn mds_columns_are_as_published_and_the_default_equals_the_better_of_both() {
        let mut compared = 0;
        for (experiment, share) in [("e1", 0.02), ("e2", 0.01)] {
            for (setting, published, here) in figures(experiment) {
                let Some(published) = published.filter(|_| !setting.starts_with("default")) else { continue };
                assert!(
                    (here / published - 1.0).abs() < share,
                    "{experiment}, {setting}: {here}, published {published}"
                );
                compared += 1;
            }
        }
        assert_eq!(compared, 2 * 4 + 2);
        let [random, linear, by_host, linear_too] = of(&figures("e1"), "default")[..] else { panic!("four workloads") };
        assert!(random >= 100.0 && by_host >= random, "{random} and {by_host} MB/s");
        assert!(linear >= 1000.0 && linear_too >= 1000.0, "{linear} and {linear_too} MB/s");
    }

    #[test]
    fn the_default_bitmap_policy_costs_less_than_a_fiftieth() {
        let shares = of(&figures("e2"), "default, of no bitmap");
        assert_eq!(shares.len(), 2);
        assert!(shares.iter().all(|share| *share >= 98.0), "{shares:?} %");
    }

    #[test]
    fn once_its_bits_are_set_the_default_bitmap_costs_a_hundredth_on_drives_with_a_tail() {
        let figures = figures("e6");
        let [raid_1, raid_10, raid_5] = of(&figures, "default, from then on, of no bitmap")[..] else {
            panic!("three levels")
        };
        assert!(raid_1 >= 99.0 && raid_10 >= 99.0 && raid_5 >= 99.0, "{raid_1}, {raid_10}, {raid_5} %");
        // The one published figure that the model does not give: RAID-5 with the old bitmap.
        let fitted = figures
            .iter()
            .filter(|figure| !figure.0.starts_with("default"))
            .filter(|figure| figure.1.is_some_and(|published| (figure.2 / published - 1.0).abs() <= 0.02));
        assert_eq!(fitted.count(), 5);
    }

    /// The rows of the tables of `lab e3`, those of the default first: MB/s and bytes read for each byte written, for
    /// each queue.
    fn linear_writes() -> Vec<(String, Vec<(f64, f64)>)> {
        let row = |cells: Vec<String>| {
            let [size, numbers @ ..] = &cells[..] else { return None };
            let numbers: Vec<f64> = numbers.iter().filter_map(|cell| cell.parse().ok()).collect();
            let is_row = size.ends_with("KiB") && numbers.len() == 2 * 5;
            is_row.then(|| (size.clone(), numbers.chunks(2).map(|pair| (pair[0], pair[1])).collect()))
        };
        printed("e3").into_iter().filter_map(row).collect()
    }

    #[test]
    fn linear_writes_read_nothing_once_four_stripes_are_in_the_queue() {
        let rows = linear_writes();
        assert_eq!(rows.len(), 4 * 4);
        for (size, row) in rows {
            let (speed, read) = row[4];
            assert!(read == 0.0 && speed >= 665.0, "{size}: {speed} MB/s, {read}");
        }
    }

    #[test]
    fn linear_writes_answered_from_memory_read_nothing_with_any_queue() {
        let rows = linear_writes();
        for (size, row) in &rows[2 * 4..] {
            for (queue, &(speed, read)) in row.iter().enumerate() {
                let least = if size == "4 KiB" && queue == 0 { 360.0 } else { 665.0 };
                assert!(read == 0.0 && speed >= least, "{size}, queue {queue}: {speed} MB/s, {read}");
            }
        }
    }

    /// The numbers of the rows of a table that have as many as this.
    fn rows<const COLUMNS: usize>(experiment: &str) -> Vec<[f64; COLUMNS]> {
        let numbers = |cells: Vec<String>| {
            let numbers: Vec<f64> = cells.iter().skip(1).filter_map(|cell| cell.parse().ok()).collect();
            numbers.try_into().ok()
        };
        printed(experiment).into_iter().filter_map(numbers).collect()
    }

    #[test]
    fn a_degraded_array_streams_faster_than_both_of_mds_ways_but_for_the_shortest_requests() {
        let rows = rows::<10>("e4");
        assert_eq!(rows.len(), 2 * 9);
        for (row, values) in rows.iter().take(9).enumerate() {
            let &[optimal, here, degraded, _, changed, cache, default, share, ..] = values;
            assert!((here / optimal - 1.0).abs() <= 0.04 && (cache / changed - 1.0).abs() <= 0.05, "{values:?}");
            let is_lost = row == 8;
            assert_eq!(default >= changed.max(degraded), !is_lost, "{values:?}");
            assert!(share >= 0.88, "{values:?}");
        }
    }

    #[test]
    fn a_scrub_is_as_fast_as_slow_drives_and_on_fast_ones_as_the_host() {
        let figures = figures("e5");
        for sweep in ["check", "repair", "replace"] {
            let free = of(&figures, &format!("{sweep} on a host without cost"));
            assert!(free.len() == 3 && free.iter().all(|share| *share >= 95.0), "{sweep}: {free:?} %");
            let here = of(&figures, &format!("default, {sweep}, of what"));
            assert!(here[1] >= 95.0 && here[2] >= 95.0, "{sweep}: {here:?} %");
        }
    }

    #[test]
    fn behind_mds_thread_a_long_request_is_as_fast_as_pieces_that_end_at_stripes() {
        let figures = figures("e7");
        let md = of(&figures, "md, pieces that end at stripes")[0];
        assert!((md / 1100.0 - 1.0).abs() <= 0.02, "{md}");
        assert!((of(&figures, "md, pieces of 1 MiB")[0] / 782.0 - 1.0).abs() <= 0.1);
        assert!(of(&figures, "default, behind md's thread")[0] >= 0.99 * md);
    }

    #[test]
    fn beside_a_resync_reads_are_faster_than_beside_mds_and_the_resync_is_slower() {
        let rows = rows::<9>("e8");
        assert_eq!(rows.len(), 3);
        for row @ [_, _, _, _, changed, _, md, default, here] in rows {
            assert!(default > changed && here < md, "{row:?}");
        }
    }

    #[test]
    fn beside_writes_a_rebuild_is_faster_than_mds_and_slower_than_the_vendors() {
        let [md, model, _, vendor, default, kept] = rows::<6>("e9")[0];
        assert!((model / md - 1.0).abs() <= 0.2, "{model}, published {md}");
        assert!(default > 10.0 * model && default < vendor && kept >= 75.0, "{default} MB/s, {kept} %");
    }

    #[test]
    fn small_writes_of_raid_6_are_as_fast_as_with_mds_better_way() {
        let rows = rows::<6>("e10");
        assert_eq!(rows.len(), 5);
        for row @ [_, _, published, modify, default, _] in rows {
            assert!((modify / published - 1.0).abs() <= 0.15 && default >= 0.99 * modify, "{row:?}");
        }
    }

    #[test]
    fn with_checksums_random_writes_cost_at_most_one_more_member_write_for_every_four() {
        let loads: Vec<_> =
            printed("checksums").into_iter().filter(|cells| cells.len() > 3 && cells[0].starts_with("RAID-")).collect();
        assert_eq!(loads.len(), 6);
        for load in loads {
            let times: f64 = load[3].parse().expect("a number");
            assert!((1.0..=1.25).contains(&times), "{load:?}");
            // Checksums that do not fit into memory cost member writes.
            assert!(times > 1.0 || load[0] == "RAID-5, SSDs of 64 GiB, within a sixteenth", "{load:?}");
        }
    }

    #[test]
    fn a_stripe_log_costs_no_full_stripe_and_small_writes_no_more_than_these() {
        let cells = printed("logs");
        let numbers =
            |cells: &[String]| cells.iter().skip(1).filter_map(|cell| cell.parse().ok()).collect::<Vec<f64>>();
        let arrays: Vec<_> =
            cells.iter().filter(|cells| cells.first().is_some_and(|name| name.starts_with("RAID-"))).collect();
        assert_eq!(arrays.len(), 12);
        let (small, large) = arrays.split_at(6);
        for (cells, least) in small.iter().zip([84.0, 70.0, 52.0, 85.0, 73.0, 57.0]) {
            let [.., share, writes] = numbers(cells)[..] else { panic!("{cells:?}") };
            let without = if cells[0].starts_with("RAID-5") { 2.0 } else { 3.0 };
            assert!(share >= least && writes <= 1.28 * without, "{cells:?}");
        }
        for cells in large {
            let of = numbers(cells);
            let (without, with) = (of[0], of[of.len() - 2]);
            assert!(with >= 0.999 * without, "{cells:?}");
        }
    }

    #[test]
    fn sweeps_go_at_a_members_speed_and_keep_the_floor_under_load() {
        let figures = figures("sweep");
        let one = |setting: &str| *of(&figures, setting).first().expect(setting);
        for (drive, speed) in [("SATA SSD", 100.0), ("SAS disk", 214.6)] {
            for sweep in ["resync", "recovery"] {
                let here = one(&format!("{sweep}, {drive}"));
                assert!(here >= 0.95 * speed, "{sweep}, {drive}: {here} MB/s");
            }
        }
        assert!(one("the resync beside it") >= 0.95 * 10.24);
        assert!(one("of no recovery") >= 80.0 && one("the recovery beside it") >= 1.0);
    }

    #[test]
    fn beside_a_recovery_requests_keep_their_rate_and_the_recovery_is_as_fast_as_mds_within_the_same_bounds() {
        /// The one row in which the recovery is slower.
        const SLOWER: &str = "SATA SSD, 333 MB/s: 128 KiB linear reads, 4 under way";
        let mut compared = 0;
        for cells in printed("sweep") {
            let [name, numbers @ ..] = &cells[..] else { continue };
            let numbers: Vec<f64> = numbers.iter().filter_map(|cell| cell.parse().ok()).collect();
            let [_, _, md_kept, md_p99, md_rate, kept, p99, rate] = numbers[..] else { continue };
            assert!(kept >= 80.0 && p99 <= 2.0, "{name}: {kept} %, {p99} times");
            let is_md_within = md_kept >= 80.0 && md_p99 <= 2.0;
            assert!(!is_md_within || rate >= md_rate || name == SLOWER, "{name}: {rate}, md {md_rate} MB/s");
            compared += 1;
        }
        assert_eq!(compared, 5 * 3);
    }

    #[test]
    fn only_the_output_of_commands_is_replaced() {
        let page = "# A\n\n```console\n$ mdspace lab e2\nold\n```\n\n```sh\nother\n```\n```console\n$ mdspace lab e1 --json\n```\nB\n";
        let (new, count) =
            renew(page, |arguments| Ok(format!("<{}>\n", arguments.join("+")))).expect("it is well formed");
        assert_eq!(count, 2);
        assert_eq!(
            new,
            "# A\n\n```console\n$ mdspace lab e2\n<e2>\n```\n\n```sh\nother\n```\n```console\n$ mdspace lab e1 --json\n<e1+--json>\n```\nB\n"
        );
        assert_eq!(difference(&new, &new), None);
        assert!(difference(page, &new).expect("it differs").starts_with("line 5:"));
    }
}
