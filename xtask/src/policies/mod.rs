//! `cargo xtask policies`: what each consistency policy loses and costs, measured and written into docs/policies.md.
//!
//! Each part of a run replaces its lines in records.tsv, beside this file, and the page's tables are made of all lines. So a
//! part may be measured alone. A test compares the tables with the lines; the simulator's tests compare its exact counts.

pub(crate) mod crashes;
mod page;
mod records;

use std::fs;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::guest::Guest;
use crate::kernels::Kernel;
use crate::{catalogue, root, sim};
use crashes::State;
use records::Records;

/// What is to be measured.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measure only this part; keep the others as they are
    #[arg(long)]
    only: Option<Part>,
    /// Simulated histories of each log; those of the stripe log are also lived without it
    #[arg(long, default_value_t = 50_000)]
    histories: u64,
    /// Lives of arrays that a guest's panic ends, with members missing; with every member a third of that
    #[arg(long, default_value_t = 100)]
    lives: u64,
    /// Only make the page anew, from what was measured before
    #[arg(long, conflicts_with = "only")]
    page: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Simulated loss of power, with members missing before, while and after
    Histories,
    /// The members' transfers, in the simulator
    Cost,
    /// Arrays of md and of mdspace, with members missing, in a guest whose kernel panics
    Lacking,
    /// The same with every member there
    Whole,
    /// The members' transfers of md, and speeds of md and mdspace, in a guest
    Kernel,
    /// The speed of mdspace on this machine, on members in memory
    Speed,
}

const PARTS: [Part; 6] = [Part::Cost, Part::Speed, Part::Kernel, Part::Whole, Part::Lacking, Part::Histories];

/// Runs the chore.
///
/// # Errors
///
/// A part cannot be built or run, or an array with a log has lost something.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let path = root().join(records::PATH);
    let mut all = Records::parse(&fs::read_to_string(&path)?);
    let is_meant = |part: &Part| !arguments.page && arguments.only.is_none_or(|only| only == *part);
    for part in PARTS.into_iter().filter(is_meant) {
        for (kind, lines) in measure(part, arguments)? {
            all.replace(kind, lines);
        }
        fs::write(&path, all.text())?;
        fs::write(page::path(), page::renewed(&fs::read_to_string(page::path())?, &all)?)?;
    }
    fs::write(page::path(), page::renewed(&fs::read_to_string(page::path())?, &all)?)?;
    if is_meant(&Part::Cost) {
        simulated("log_cost", 0)?; // against the new lines
    }
    println!("docs/policies.md");
    Ok(ExitCode::SUCCESS)
}

/// New lines by what they begin with.
type Measured = Vec<(&'static str, Vec<String>)>;

fn measure(part: Part, arguments: &Arguments) -> Result<Measured> {
    Ok(match part {
        Part::Histories => {
            let logs = simulated("a_loss_of_power_and_of", arguments.histories)?;
            let without = simulated("without_a_log_the_same_histories", arguments.histories)?;
            vec![("starts", logs.into_iter().chain(without).collect())]
        }
        // The test fails where the page is old.
        Part::Cost => vec![("cost", printed(&simulator("log_cost", 0).output()?.stdout)?)],
        Part::Lacking => crashed("crashes\tlacking", State::Lacking, arguments.lives)?,
        Part::Whole => crashed("crashes\twhole", State::Whole, arguments.lives.div_ceil(3))?,
        Part::Kernel => {
            build_released()?;
            by_the_kernel()?
        }
        Part::Speed => {
            build_released()?;
            vec![("bench", BENCHED.iter().map(|policy| bench(policy)).collect::<Result<_>>()?)]
        }
    })
}

/// What panics leave of arrays in that state.
fn crashed(kind: &'static str, state: State, lives: u64) -> Result<Measured> {
    build_released()?;
    let lines = crashes::run(state, lives)?.iter().map(ToString::to_string).collect();
    let kernel = match state {
        State::Lacking => "kernel\tlacking",
        State::Whole => "kernel\twhole",
    };
    Ok(vec![(kind, lines), (kernel, vec![format!("{kernel}\t{}", Kernel::Newer.release()?)])])
}

fn build_released() -> Result<()> {
    let status = catalogue::cargo(&["build", "--locked", "--release"]).status()?;
    ensure!(status.success(), "mdspace does not build");
    Ok(())
}

/// The simulator's tests with this in their name.
fn simulator(test: &str, histories: u64) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--quiet", "--locked"]).args(sim::HISTORIES).args(["--test", "sim", "--", "--nocapture", test]);
    cargo.env("MDSPACE_LOG_HISTORIES", histories.to_string()).current_dir(root());
    cargo
}

/// The lines that they print, if they pass.
fn simulated(test: &str, histories: u64) -> Result<Vec<String>> {
    let output = simulator(test, histories).output()?;
    ensure!(output.status.success(), "the simulator's {test}: {}", String::from_utf8_lossy(&output.stdout));
    printed(&output.stdout)
}

/// The lines that the simulator's tests mark; a test's name may stand before them.
fn printed(output: &[u8]) -> Result<Vec<String>> {
    let text = String::from_utf8_lossy(output);
    let marked = text.lines().filter_map(|line| line.split_once("record\t"));
    let lines: Vec<String> = marked.map(|(_, line)| line.to_owned()).collect();
    ensure!(!lines.is_empty(), "the simulator's tests have printed no record: {text}");
    Ok(lines)
}

/// Seconds of a measurement in the guest, and rounds, of which the median counts.
const GUEST_SECONDS: &str = "3";
const GUEST_ROUNDS: usize = 5;

/// The driver's counts, and speeds of both on its RAM disks.
fn by_the_kernel() -> Result<Measured> {
    let guest = Guest::default().kernel(Kernel::Newer).memory("1G").limit(Duration::from_secs(1800));
    let mdspace = root().join(catalogue::RELEASED);
    let words = [mdspace.as_os_str(), GUEST_SECONDS.as_ref(), GUEST_ROUNDS.to_string().as_ref()].map(ToOwned::to_owned);
    let output = guest.run(&root().join("tests/kernel/policy_costs.sh"), &words)?.success()?;
    let lines =
        |kind: &str| output.lines().filter(|line| line.starts_with(kind)).map(str::to_owned).collect::<Vec<_>>();
    Ok(vec![("counts", lines("counts\t")), ("speed", medians(&lines("speed\t"))?)])
}

/// A line for each of those that differ in their last field, which is a number.
fn medians(lines: &[String]) -> Result<Vec<String>> {
    let mut all: Vec<(&str, Vec<u64>)> = Vec::new();
    for line in lines {
        let (key, number) = line.rsplit_once('\t').context("a speed")?;
        let number = number.parse()?;
        match all.iter_mut().find(|(other, _)| *other == key) {
            Some((_, numbers)) => numbers.push(number),
            None => all.push((key, vec![number])),
        }
    }
    let median = |(key, mut numbers): (&str, Vec<u64>)| {
        numbers.sort_unstable();
        format!("{key}\t{}", numbers[numbers.len() / 2])
    };
    Ok(all.into_iter().map(median).collect())
}

/// The policies that `bench` measures.
const BENCHED: [&str; 5] = ["resync", "bitmap", "ppl", "journal", "log"];

fn bench(policy: &str) -> Result<String> {
    let mut command = Command::new(root().join(catalogue::RELEASED));
    command.args([
        "bench",
        "--json",
        "--level",
        "5",
        "--members",
        "8",
        "--chunk",
        "64K",
        "--depth",
        "32",
        "--seconds",
        "3",
    ]);
    let output = command.args(["--only", "write 4 KiB random", "--consistency-policy", policy]).output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout)?;
    let figure = &found["levels"][0]["figures"][0];
    let number = |name: &str| figure[name].as_f64().with_context(|| format!("{name} is missing in what bench printed"));
    Ok(format!("bench\t{policy}\t{:.0}\t{:.0}", number("array_per_second")?, number("limit_per_second")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_after_a_tests_name_too() {
        let output = "running 1 test\ntest a::b ... record\tcost\tppl\n1 of 2\nrecord\tcost\tlog\nok\n";
        assert_eq!(printed(output.as_bytes()).expect("there are some"), ["cost\tppl", "cost\tlog"]);
        assert!(printed(b"ok\n").is_err());
    }

    #[test]
    fn of_several_rounds_the_median_counts() {
        let lines =
            ["speed\tmd\tppl\t3", "speed\tmd\tlog\t9", "speed\tmd\tppl\t1", "speed\tmd\tppl\t2"].map(str::to_owned);
        assert_eq!(medians(&lines).expect("numbers"), ["speed\tmd\tppl\t2", "speed\tmd\tlog\t9"]);
    }
}
