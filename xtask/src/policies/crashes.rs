//! Lives of arrays of md and of mdspace, in a guest whose kernel panics while all are written to (tests/kernel/crashes.sh).
//!
//! A series is one life after the other, on disks of its own: each begins by judging what the one before it has left. Two
//! series run at once, as guests mostly wait for their disks. What md loses is counted. What mdspace loses with a log is an
//! error, and so is what it loses with every member there.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::catalogue::{self, RELEASED, Scratch};
use crate::guest::{Guest, Outcome};
use crate::kernels::Kernel;
use crate::root;
use crate::steps::{Log, Verdict};

/// Which members there are while an array is written to, and afterwards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Whole,
    /// As many are missing as the level bears.
    Lacking,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        if self == Self::Whole { "whole" } else { "lacking" }
    }
}

/// What is left of arrays of a kind after all lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Left {
    state: &'static str,
    /// Engine, level and policy, as the script has them.
    array: String,
    lives: u64,
    /// Starts that needed `--force`.
    forced: u64,
    /// Starts that lost a block which nothing was writing, and all such blocks.
    lossy: u64,
    lost: u64,
    /// Blocks being written that are neither as before nor as after.
    torn: u64,
    /// Blocks that were being written.
    under_way: u64,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, array, lives, forced, lossy, lost, torn, under_way } = self;
        let array = array.replace(':', "\t");
        write!(f, "crashes\t{state}\t{array}\t{lives}\t{forced}\t{lossy}\t{lost}\t{torn}\t{under_way}")
    }
}

impl Left {
    /// Adds a line of crashes.py.
    fn add(all: &mut Vec<Self>, state: State, line: &str) -> Result<()> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [array, _life, numbers @ ..] = &fields[..] else { bail!("{line:?} is no result") };
        let numbers: Vec<u64> = numbers.iter().map(|field| field.parse()).collect::<Result<_, _>>()?;
        let [forced, untouched, flushed, torn, under_way, _settled] = numbers[..] else {
            bail!("{line:?} is no result")
        };
        let lost = untouched + flushed;
        let old = all.iter().position(|left| left.array == *array).unwrap_or_else(|| {
            let (state, array) = (state.name(), (*array).to_owned());
            all.push(Self { state, array, lives: 0, forced: 0, lossy: 0, lost: 0, torn: 0, under_way: 0 });
            all.len() - 1
        });
        let left = &mut all[old];
        left.lives += 1;
        left.forced += forced;
        left.lossy += u64::from(lost > 0);
        left.lost += lost;
        left.torn += torn;
        left.under_way += under_way;
        Ok(())
    }

    /// Whether this may not be.
    fn is_bad(&self) -> bool {
        let is_log = ["ppl", "log", "journal"].iter().any(|policy| self.array.ends_with(policy));
        let is_promised = self.state == State::Whole.name() || is_log;
        is_promised && self.lost > 0 && self.array.starts_with("mdspace")
    }
}

/// Disks of a series: five with members, one with journals, one that writers note in.
const DISKS: usize = 7;
const DISK_BYTES: u64 = 64 << 20;

/// Lives that follow each other.
struct Series<'a> {
    place: &'a Path,
    state: State,
    /// The number of the first, which decides what is written.
    first: u64,
    /// All of the script's if there are none.
    arrays: &'a [&'a str],
}

impl Series<'_> {
    /// Runs it until `is_over` says so of the number of lives; returns the lines of what each has left.
    fn run(&self, is_over: impl Fn(u64) -> bool) -> Result<String> {
        fs::create_dir(self.place)?;
        let mut guest = Guest::default().kernel(Kernel::Newer).memory("2G").limit(Duration::from_secs(600));
        for number in 0..DISKS {
            let disk = self.place.join(format!("d{number}"));
            File::create(&disk)?.set_len(DISK_BYTES)?;
            guest = guest.disk(&disk);
        }
        let mut lives = 0;
        loop {
            let which = match lives {
                0 => "first",
                _ if is_over(lives) => "last",
                _ => "next",
            };
            let life = (self.first + lives).to_string();
            let mdspace = root().join(RELEASED);
            let mut words: Vec<&OsStr> = vec![mdspace.as_os_str(), self.place.as_os_str()];
            words.extend([self.state.name(), &life, which].map(OsStr::new));
            words.extend(self.arrays.iter().map(OsStr::new));
            let outcome = guest.run(&root().join("tests/kernel/crashes.sh"), &words)?;
            if which == "last" {
                outcome.success()?;
                return Ok(fs::read_to_string(self.place.join("results"))?);
            }
            match outcome {
                Outcome::Died { output, .. } if output.ends_with("crashing\n") => lives += 1,
                other => bail!("life {life}: the guest was to crash while it wrote: {}", other.success()?),
            }
        }
    }
}

/// So many lives of all arrays in that state, in two series.
pub(super) fn run(state: State, lives: u64) -> Result<Vec<Left>> {
    series(state, &[], |own| own >= lives.div_ceil(2))
}

fn series(state: State, arrays: &[&str], is_over: impl Fn(u64) -> bool + Sync) -> Result<Vec<Left>> {
    let place = Scratch::create(&format!("crashes-{}", state.name()))?;
    let run = |number: u64| {
        // Lives of both differ by what is written in them.
        let series =
            Series { place: &place.path.join(number.to_string()), state, first: 1 + 1_000_000 * number, arrays };
        series.run(&is_over)
    };
    let texts: Vec<Result<String>> = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        vec![run(0), other.join().expect("no thread panics")]
    });
    let mut all = Vec::new();
    for text in texts {
        text?.lines().try_for_each(|line| Left::add(&mut all, state, line))?;
    }
    let idle = all.iter().find(|left| left.under_way == 0);
    ensure!(idle.is_none(), "nothing was being written when the kernel panicked: {}", idle.context("which")?);
    let bad = all.iter().find(|left| left.is_bad());
    ensure!(bad.is_none(), "a block that nothing was writing was lost: {}", bad.context("which")?);
    Ok(all)
}

/// What a step says of all lives.
fn summary(all: &[Left]) -> String {
    let sum = |of: fn(&Left) -> u64| all.iter().map(of).sum::<u64>();
    let (lives, under_way) = (sum(|left| left.lives), sum(|left| left.under_way));
    let logs = all.iter().filter(|left| left.array.starts_with("mdspace") && left.forced == 0);
    format!(
        "{lives} lives of {} arrays ended amid writes, with {under_way} blocks under way; {} of mdspace's needed no force and \
         lost none",
        all.len(),
        logs.count()
    )
}

/// Arrays that the whole test has: those with logs, whose lives are short.
const FEW: &[&str] = &["md:5:ppl", "mdspace:5:ppl", "mdspace:5:log", "mdspace:6:log"];

/// The step of the whole test: one life.
pub(crate) fn few(log: &mut Log) -> Result<Verdict> {
    catalogue::build_released(log)?;
    let all = series(State::Lacking, FEW, |lives| lives >= 1)?;
    Ok(Verdict::Passed(summary(&all)))
}

/// The step of the long layer: all arrays, for as long as it is told.
pub(crate) fn long(log: &mut Log) -> Result<Verdict> {
    catalogue::build_released(log)?;
    let mut all = Vec::new();
    for state in [State::Lacking, State::Whole] {
        let over = Instant::now() + Duration::from_secs(log.minutes() * 60 / 2);
        all.extend(series(state, &[], |_| Instant::now() >= over)?);
    }
    for left in &all {
        log.write(&format!("{left}\n"))?;
    }
    Ok(Verdict::Passed(summary(&all)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_of_an_array_are_added_up() {
        let mut all = Vec::new();
        for line in
            ["md:5:ppl\t1\t0\t0\t0\t1\t7\t50", "md:5:ppl\t2\t1\t2\t1\t0\t3\t40", "mdspace:6:log\t1\t0\t0\t0\t0\t9\t8"]
        {
            Left::add(&mut all, State::Lacking, line).expect("well formed");
        }
        let lines: Vec<String> = all.iter().map(Left::to_string).collect();
        let expected =
            ["crashes\tlacking\tmd\t5\tppl\t2\t1\t1\t3\t1\t10", "crashes\tlacking\tmdspace\t6\tlog\t1\t0\t0\t0\t0\t9"];
        assert_eq!(lines, expected);
        assert!(Left::add(&mut all, State::Lacking, "mdspace:6:log\t1").is_err());
        assert!(!all.iter().any(Left::is_bad), "what md loses is only counted");
        Left::add(&mut all, State::Lacking, "mdspace:6:log\t2\t0\t1\t0\t0\t9\t8").expect("well formed");
        assert!(all[1].is_bad());
    }
}
