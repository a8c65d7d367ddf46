//! `cargo xtask figures`: measures everything in docs/bench.md and rewrites it.
//!
//! There are two kinds of figures. Counts are exact: the member transfers of user writes, counted by the engine for
//! mdspace and by the members' statistics in a guest for the real driver. Speeds depend on the machine and the moment,
//! so each stands beside the speed of the same members without RAID in the same run.

mod small_writes;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::catalogue::Scratch;
use crate::guest::Guest;
use crate::loops::{HELD_BYTES_PER_SECOND, Held, Loops};
use crate::setup::is_there;
use crate::{root, rot};

/// What is to be measured.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Seconds for each measurement of a speed
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Only print the document, and leave docs/bench.md as it is
    #[arg(long)]
    print: bool,
    /// Measure only sections with this text in their heading; keep the others as they are
    #[arg(long, value_name = "WORDS")]
    only: Option<String>,
    /// Measure only what other programs of the distribution do beside mdspace
    #[arg(long, conflicts_with = "only")]
    peers: bool,
}

/// Levels and numbers of members for the counts.
const COUNTED: [(&str, u16); 2] = [("5", 8), ("6", 10)];

/// Level, number of members, chunk, kind of members, and requests in flight, for the measurements of speed.
const TIMED: [(&str, u16, &str, Kind, u16); 7] = [
    ("5", 8, "64K", Kind::Memory, 8),
    ("6", 10, "128K", Kind::Memory, 8),
    ("5", 32, "64K", Kind::Memory, 8),
    ("0", 8, "64K", Kind::Memory, 8),
    ("5", 8, "64K", Kind::Loop, 8),
    ("0", 8, "64K", Kind::Loop, 8),
    ("0", 8, "64K", Kind::Files, 8),
];

/// The kind of members.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Memory,
    /// Loop devices over files in tmpfs.
    Loop,
    /// Files on the file system of the project's directory.
    Files,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Loop => "loop",
            Self::Files => "files",
        }
    }
}

/// The level and number of members whose sweeps are compared with the driver's.
const SWEPT: (&str, u16) = ("5", 8);

/// The length of a loop device: long enough that the first and last windows of a sweep matter little.
const LOOP_BYTES: u64 = 256 << 20;

/// MiB of a RAM disk in the guest.
const DRIVER_MIB: u64 = 64;

/// Levels and numbers of members of the scrubs compared with btrfs.
const BESIDE_BTRFS: [(&str, u16); 2] = [("raid5", 8), ("raid10", 8)];

/// Runs the chore.
///
/// # Errors
///
/// A program that is measured cannot be built or run.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let only = if arguments.peers { Some(PEERS_TITLE.to_owned()) } else { arguments.only.clone() };
    // A section alone may need none of them; if it does, it says so.
    let missing = ["linux.uml", "mdadm", "fio"].into_iter().find(|program| !is_there(program));
    if let (Some(program), None) = (missing, &only) {
        bail!("{program} is not installed: `cargo xtask test setup` installs what figures need too");
    }
    let status = Command::new(env!("CARGO"))
        .args(["build", "--locked", "--release", "--package", "mdspace"])
        .current_dir(root())
        .status()?;
    if !status.success() {
        bail!("mdspace does not build");
    }
    let path = root().join("docs/bench.md");
    let day = String::from_utf8(Command::new("date").args(["--utc", "+%F"]).output()?.stdout)?.trim().to_owned();
    let page = fs::read_to_string(&path)?;
    let mut document = Document { text: String::new(), page, day, only };
    if document.begin(HEAD) {
        for (level, members) in COUNTED {
            let members_text = members.to_string();
            let shape = ["--count", "--level", level, "--members", &members_text, "--size", "32M"];
            let ours = bench(&shape, &[])?;
            let of = |cache| bench(&[&shape[..], &["--cache", cache]].concat(), &[]);
            let (streams, back) = (of("streams")?, of("writeback")?);
            let theirs = driver_counts(level, members, &ours["levels"][0])?;
            document.add(counts_table([&ours, &streams, &back].map(|counted| &counted["levels"][0]), &theirs)?);
        }
    }
    if document.begin(TIMES) {
        add_times(&mut document, arguments.seconds)?;
    }
    if document.begin(small_writes::HEADING) {
        document.add(small_writes::tables(arguments.seconds / 2.0)?);
    }
    if document.begin(ARITHMETIC) {
        document.add(arithmetic_table()?);
    }
    if document.begin(CHECKSUMS) {
        for (level, members) in COUNTED {
            document.add(checksums_table(level, members, arguments.seconds / 2.0)?);
        }
    }
    if document.begin(CHECKS) {
        for (level, members) in COUNTED {
            document.add(checks_table(level, members)?);
        }
    }
    if document.begin(BTRFS) {
        for (level, members) in BESIDE_BTRFS {
            document.add(btrfs_rows(level, members)?);
        }
    }
    if document.begin(PEERS) {
        document.add(peer_rows(arguments.seconds)?);
    }
    if document.begin(FAULTS) {
        document.add(fault_rows(&faults()?)?);
    }
    if document.begin(ROT) {
        document.add(rot::table(ROT_CASES.0, ROT_CASES.1)?);
    }
    if !arguments.print {
        fs::write(path, document.text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The document, which is also printed while it is written: all of it takes half an hour.
struct Document {
    text: String,
    /// The old document.
    page: String,
    /// Today.
    day: String,
    only: Option<String>,
}

impl Document {
    /// Begins a section whose text begins with its heading. Returns false if the old section is kept.
    fn begin(&mut self, text: &str) -> bool {
        let heading = text.lines().find(|line| line.starts_with("## ")).expect("a section has a heading");
        if self.only.as_ref().is_none_or(|words| heading.contains(words)) {
            let (before, after) = text.split_once(heading).expect("the heading is there");
            self.add(format!("{before}{heading}\n\n{}{after}", stamp(&heading[3..], &self.day, &processor())));
            return true;
        }
        self.text += section(&self.page, heading);
        false
    }

    fn add(&mut self, part: impl AsRef<str>) {
        print!("{}", part.as_ref());
        self.text += part.as_ref();
    }
}

/// When, where and how a section was measured.
fn stamp(section: &str, day: &str, processor: &str) -> String {
    format!("*{day}, {processor}: `cargo xtask figures --only '{section}'`*")
}

/// This machine's processor, and what matters most of its instructions.
fn processor() -> String {
    let told = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| told.lines().find(|line| line.starts_with(name))?.split_once(": ");
    let model = field("model name").map_or(std::env::consts::ARCH, |(_, model)| model);
    let flags = field("flags").map_or("", |(_, flags)| flags);
    let has = |flag: &str| flags.split(' ').any(|own| own == flag);
    let vectors = [("avx512f", " with AVX-512"), ("avx2", " with AVX2")];
    let vectors = vectors.iter().find(|(flag, _)| has(flag)).map_or("", |(_, words)| words);
    format!("{model}{vectors}")
}

/// The measurements of speed, with the driver's sweeps beside those of mdspace.
fn add_times(document: &mut Document, seconds: f64) -> Result<()> {
    let load = fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or("?");
    document.add(format!("Mean number of runnable threads in the minute before the run: {load}.\n"));
    let mut swept = Vec::new();
    let seconds = seconds.to_string();
    for (level, members, chunk, kind, depth) in TIMED {
        let (members, depth) = (members.to_string(), depth.to_string());
        let common =
            ["--level", level, "--members", &members, "--chunk", chunk, "--depth", &depth, "--seconds", &seconds];
        let result = match kind {
            Kind::Memory => bench(&common, &[])?,
            Kind::Files => bench(&common, &[root().join("target")])?,
            Kind::Loop => match Loops::create(members.parse()?, LOOP_BYTES) {
                Ok(loops) => bench(&common, &loops.devices)?,
                Err(error) => {
                    document.add(format!("\nNot measured, {}: {error:#}\n", kind.name()));
                    continue;
                }
            },
        };
        document.add(times_table(&result["levels"][0], kind, &depth)?);
        if let (SWEPT, Some(sweeps)) = ((level, members.parse()?), result["levels"][0]["sweeps"].as_array()) {
            swept.extend(sweeps.iter().map(|sweep| (kind.name(), sweep.clone())));
        }
    }
    document.add(sweeps_table(&swept, &driver_sweeps()?)?);
    document.add(held_sweeps(&swept_while_held()));
    Ok(())
}

const HEAD: &str = "\
# Figures

`cargo xtask figures` writes this page; do not edit it. The chunk is 64 KiB unless a heading says otherwise.

## What members do for writes

These are exact counts and not times: bytes that all members read and write for each byte written to the array, and
transfers for each request. For mdspace the engine counts the transfers that it gives to members. For md (Linux 6.1 in
User Mode Linux, over loop devices) they are the members' statistics for the same writes by fio. \"Streams\" and
\"writeback\" are values of `serve --cache` ([write modes](tuning.md#write-modes)); the first row has the default.
\"Least\" is the cost of full stripes, data and parity.
";

const TIMES: &str = "
## Times

These figures are of one core of a machine with other work, so only the ratios have a meaning. The limit moves the same
bytes between the same buffers and members without RAID. Array and limit are measured in turn in one run.
";

const ARITHMETIC: &str = "
## Arithmetic

GB of data a second on one core, 8 data blocks, the best sample of each. `cargo bench -p mdspace-parity` shows all
kernels and medians. Hot blocks lie in the processor's cache; cold blocks come from memory. ISA-L is measured if its
library is installed. ISA-L stores past the cache, as the kernel `-stream` does. That kernel is used only when it is
named, because a write to members reads P and Q soon after they are computed.

The kernels for aarch64 were emulated, where only instructions can be counted
([decision 0205](decisions/0205-neon-kernels.md)). On such a machine `cargo xtask figures --print --only Arithmetic`
measures them.

| | | 4 KiB, hot | 64 KiB, hot | 4 KiB, cold | 64 KiB, cold |
|---|---|---|---|---|---|
";

/// The parity kernels: the one in use here, beside memory and ISA-L.
fn arithmetic_table() -> Result<String> {
    let counted = bench(&["--count", "--level", "5", "--members", "4", "--size", "4M"], &[])?;
    let kernel = counted["levels"][0]["kernel"].as_str().context("no kernel")?.to_owned();
    let mut command = Command::new(env!("CARGO"));
    command.args(["bench", "--quiet", "--locked", "--package", "mdspace-parity", "--", "--kernel", &kernel]);
    let output = command.current_dir(root()).output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    arithmetic_rows(&String::from_utf8(output.stdout)?)
}

/// Widths in the benchmark's output: of the column of groups, and of this column and the contenders' names.
const GROUP_WIDTH: usize = 23;
const NAMES_WIDTH: usize = GROUP_WIDTH + 18;

/// A row for each contender, from the benchmark's output, which lists one scenario after the other.
fn arithmetic_rows(printed: &str) -> Result<String> {
    let mut rows: Vec<(String, Vec<&str>)> = Vec::new();
    for line in printed.lines().filter_map(|line| line.strip_prefix("  ")) {
        let wrong = || format!("the benchmark printed {line:?}");
        let (names, [best, _median]) = line
            .split_at_checked(NAMES_WIDTH)
            .and_then(|(names, figures)| Some((names, figures.split_whitespace().collect::<Vec<_>>().try_into().ok()?)))
            .with_context(wrong)?;
        let (group, name) = names.split_at_checked(GROUP_WIDTH).with_context(wrong)?;
        let title = format!("| {} | {} |", group.trim(), name.trim());
        match rows.iter_mut().find(|(other, _)| *other == title) {
            Some((_, figures)) => figures.push(best),
            None => rows.push((title, vec![best])),
        }
    }
    ensure!(rows.iter().all(|(_, figures)| figures.len() == 4), "the benchmark printed\n{printed}");
    Ok(rows.into_iter().map(|(title, figures)| format!("{title} {} |\n", figures.join(" | "))).collect())
}

const CHECKSUMS: &str = "
## What checksums cost

Members in memory. Each array with checksums (`--integrity`; every read is verified) is measured in turn with the same
array without them, and each with its own limit. The cost is the loss in the ratio to the limit. Slower members would
hide a part of it.

| | | without | with | cost |
|---|---|---|---|---|
";

/// Rounds of each kind of array.
const CHECKSUM_ROUNDS: usize = 3;

const CHECKS: &str = "
## Checks

The speed of a check, in bytes read from all members a second. mdspace runs over memory and over loop devices (the row
\"check\" above, measured again). The kernel's md runs over RAM disks in User Mode Linux, in turn on the same machine,
with a stripe cache of 4096 pages; sweeps above have md's default. It computes xor there with SSE, and the syndrome of
RAID-6 without vector instructions. The figures are medians. The limit makes the same transfers and compares nothing.

| | mdspace, memory | of its limit | mdspace, loop | md, RAM disks | mdspace (memory) / md |
|---|---|---|---|---|---|
";

/// Bytes of each member that are checked, and the number of the driver's checks.
const CHECKED_MIB: u16 = 64;
const CHECK_ROUNDS: usize = 5;

fn checks_table(level: &str, members: u16) -> Result<String> {
    let (count, size) = (members.to_string(), format!("{CHECKED_MIB}M"));
    let common = ["--level", level, "--members", &count, "--size", &size, "--seconds", "0.05"];
    let check = |result: &Value| -> Result<(f64, f64)> {
        let figures = result["levels"][0]["figures"].as_array().context("no figures")?;
        let is_check = |figure: &&Value| figure["workload"].as_str().is_some_and(|name| name.starts_with("check,"));
        let figure = figures.iter().find(is_check).context("no check among the figures")?;
        let bytes = number(&figure["request_bytes"])? * number(&figure["array_per_second"])?;
        Ok((bytes / 1e9, number(&figure["ratio"])?))
    };
    let (memory, ratio) = check(&bench(&common, &[])?)?;
    let driver = driver_check(level, members)?;
    let looped = match Loops::create(members, LOOP_BYTES) {
        Ok(loops) => format!("{:.2} GB/s", check(&bench(&common, &loops.devices)?)?.0),
        Err(error) => format!("not measured: {error:#}"),
    };
    let times = memory / driver;
    Ok(format!(
        "| RAID-{level}, {members} members | {memory:.2} GB/s | {ratio:.2} | {looped} | {driver:.2} GB/s | {times:.1} |\n"
    ))
}

/// Workloads of arrays with and without checksums, and their names in the table.
const CHECKSUMMED: [&str; 5] = [
    "read 4 KiB random",
    "read 1 MiB linear",
    "write 4 KiB random",
    "write full stripes",
    "check, bytes of all members",
];

fn checksums_table(level: &str, members: u16, seconds: f64) -> Result<String> {
    let (count, seconds) = (members.to_string(), seconds.to_string());
    let common = ["--level", level, "--members", &count, "--depth", "8", "--seconds", &seconds];
    let with = [&common[..], &["--integrity"]].concat();
    let mut rounds: Vec<[Value; 2]> = Vec::new();
    for _ in 0..CHECKSUM_ROUNDS {
        rounds.push([bench(&common, &[])?, bench(&with, &[])?]);
    }
    let mut text = String::new();
    for workload in CHECKSUMMED {
        let ratio = |result: &Value| -> Result<f64> {
            let figures = result["levels"][0]["figures"].as_array().context("no figures")?;
            let figure = figures.iter().find(|figure| figure["workload"] == workload).context("not measured")?;
            number(&figure["ratio"])
        };
        let median = |side: usize| -> Result<f64> {
            let mut ratios = rounds.iter().map(|round| ratio(&round[side])).collect::<Result<Vec<_>>>()?;
            ratios.sort_by(f64::total_cmp);
            Ok(ratios[ratios.len() / 2])
        };
        let (without, with) = (median(0)?, median(1)?);
        let cost = (1.0 - with / without) * 100.0;
        writeln!(text, "| RAID-{level}, {members} members | {workload} | {without:.2} | {with:.2} | {cost:.0} % |")?;
    }
    Ok(text)
}

const HELD: &str = "
The same sweeps over loop devices that the kernel's block layer (a control group) holds to 200 MB/s each, as slow drives
are. There the members are the bound, and not the processors.

| | of each member | of its speed |
|---|---|---|
";

const BTRFS: &str = "
## Scrubs beside btrfs

`btrfs scrub` and `mdspace scrub` of an array with checksums run in turn over 8 loop devices over tmpfs, 512 MiB each,
filled with the same random bytes (tests/btrfs.sh). The figures are medians of five rounds. \"Verified\" counts bytes of
the file or array; the next column counts the bytes that members read for it. The last column is bytes read for each
second of CPU time of the machine, including the kernel's threads and loop devices.

| | | verified | read of all members | read / verified | read, per processor |
|---|---|---|---|---|---|
";

/// The heading of [`PEERS`].
const PEERS_TITLE: &str = "Beside other programs";

const PEERS: &str = "
## Beside other programs

Operations a second: requests, or copies of the whole volume for NBD through TLS, `read` and `write`. Each pair runs in
turn in five rounds (vhost-user: nine), on members or files in tmpfs (tests/ways.py). The ratio is the median of the
rounds' ratios.

- NBD serves a RAID-5 of four files, so that a small write is two reads and two writes of members. nbdkit's memory
  plugin has no array below it. The client of both is fio.
- FUSE, NBD through TLS and vhost-user serve a linear array of one loop device, and qemu-storage-daemon another such
  device. The clients are fio, nbdcopy and libblkio.
- `read` and `write` copy 512 MiB of a RAID-5 of three files, and dd one plain file.

| way | load | mdspace | beside | | ratio |
|---|---|--:|---|--:|--:|
";

/// The rows of tests/ways.py.
fn peer_rows(seconds: f64) -> Result<String> {
    let place = Scratch::create("figures-peers")?;
    let output = Command::new(root().join("tests/ways.py"))
        .arg(root().join("target/release/mdspace"))
        .arg(&place.path)
        .arg(seconds.to_string())
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Ok(format!("\nNot measured: {}\n", said.lines().last().unwrap_or("tests/ways.py failed")));
    }
    let rows = String::from_utf8(output.stdout)?;
    Ok(rows.lines().filter(|line| line.starts_with('|')).fold(String::new(), |text, row| text + row + "\n"))
}

const FAULTS: &str = "
## Members that fail

Members fail while the array is read or written, in the same way and on the same devices under md and under `mdspace
serve` (dm-dust, dm-error and dm-flakey in a guest, tests/kernel/faults.sh). On both sides every request was answered,
and no byte was lost or wrong, then or later. The kernel's md assembled the remaining members without `--force`. After
the members were repaired, its check found no mismatch. The step `faults` fails unless all this holds and the outcomes
are the ones below.

| array | what fails | md | mdspace |
|---|---|---|---|
";

/// The output of tests/kernel/faults.sh.
pub(crate) fn faults() -> Result<String> {
    let guest = Guest::default().memory("1G").limit(Duration::from_secs(900));
    guest.run(&root().join("tests/kernel/faults.sh"), &[root().join("target/release/mdspace")])?.success()
}

/// The rows of the table, from that output.
fn fault_rows(output: &str) -> Result<String> {
    let rows: Vec<_> = output.lines().filter(|line| line.contains("|md: ")).collect();
    ensure!(!rows.is_empty(), "faults.sh printed no outcome:\n{output}");
    let row = |line: &&str| {
        let words: Vec<_> = line.split('|').collect();
        let [array, fault, md, ours] = words[..] else { bail!("faults.sh printed {line:?}") };
        let (md, ours) = (md.trim_start_matches("md: "), ours.trim_start_matches("ours: "));
        Ok(format!("| {} | {fault} | {md} | {ours} |\n", array.replacen('-', ", ", 1).replace('-', " ")))
    };
    rows.iter().map(row).collect()
}

/// Whether docs/bench.md has these outcomes.
pub(crate) fn check_faults(output: &str) -> Result<()> {
    let page = fs::read_to_string(root().join("docs/bench.md"))?;
    let expected = format!("{FAULTS}{}", fault_rows(output)?);
    let shown = section(&page, "## Members that fail");
    let is_text =
        |line: &&str| !line.is_empty() && !line.ends_with("`cargo xtask figures --only 'Members that fail'`*");
    ensure!(
        shown.lines().filter(is_text).eq(expected.lines().filter(is_text)),
        "docs/bench.md has other outcomes; anew: cargo xtask figures --only 'Members that fail'"
    );
    Ok(())
}

const ROT: &str = "
## What a repair makes of silent corruption

md and `mdspace scrub --repair` repair the same corrupted members: thousands of cases in one array, each in its own
stripes (xtask/src/rot.rs). md then reads both results. The columns count blocks of 4 KiB. \"Wrong\" blocks were
corrupted. A check names them correctly (\"named\"), says that the others cannot restore them (\"lost\"), calls them
undecidable, or misses them. \"Healed\" blocks were repaired. The next column counts healthy blocks that were named or
changed. The last two columns count cases in which all data was right afterwards. md recomputes parity from the data, or
copies the first copy over the others, whichever block was wrong.

| | checksums | what happened | cases | wrong | named | lost | undecidable | missed | healed | healthy, touched | right after ours | right after md's |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
";

/// The total number of cases with checksums, and without.
const ROT_CASES: (u64, u64) = (100_000, 12_800);

/// GB/s of all members that the driver's check reads, from tests/kernel/check_speed.sh.
fn driver_check(level: &str, members: u16) -> Result<f64> {
    let arguments = [level.to_owned(), members.to_string(), CHECKED_MIB.to_string(), CHECK_ROUNDS.to_string()];
    let guest = Guest::default().memory("2G").limit(Duration::from_secs(300));
    let output = guest.run(&root().join("tests/kernel/check_speed.sh"), &arguments)?.success()?;
    let mut rates = Vec::new();
    for line in output.lines() {
        let (bytes, nanos) = line.split_once(' ').context("the guest printed something else")?;
        rates.push(bytes.parse::<f64>()? / nanos.parse::<f64>()?);
    }
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().context("the driver checked nothing")
}

/// `mdspace bench --json` with these arguments and members.
fn bench(arguments: &[&str], members: &[PathBuf]) -> Result<Value> {
    json(&mut bench_command(arguments, members))
}

fn bench_command(arguments: &[&str], members: &[PathBuf]) -> Command {
    let members = members.iter().flat_map(|member| [OsString::from("--member"), member.into()]);
    let mut command = Command::new(root().join("target/release/mdspace"));
    command.args(["bench", "--json"]).args(arguments).args(members);
    command
}

fn json(command: &mut Command) -> Result<Value> {
    let output = command.output()?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// What the driver's members did for the workloads of `ours`, from tests/kernel/counts.sh: reads, sectors read, writes
/// and sectors written.
fn driver_counts(level: &str, members: u16, ours: &Value) -> Result<Vec<[f64; 4]>> {
    let mut arguments = vec![level.to_owned(), members.to_string(), "64".to_owned()];
    for count in ours["counts"].as_array().context("no counts")? {
        let order = count["order"].as_str().context("no order")?;
        arguments.push(format!("{order}:{}:{}:{}", count["request_bytes"], count["depth"], count["requests"]));
    }
    let guest = Guest::default().limit(Duration::from_secs(600));
    let output = guest.run(&root().join("tests/kernel/counts.sh"), &arguments)?.success()?;
    let row = |line: &str| -> Result<[f64; 4]> {
        let numbers = line.split(' ').skip(1).map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        numbers.try_into().map_err(|_| anyhow::anyhow!("the guest printed {line:?}"))
    };
    output.lines().map(row).collect()
}

/// The driver's sweeps, from tests/kernel/sweeps.sh: bytes of each member, and seconds.
fn driver_sweeps() -> Result<Vec<(String, f64, f64)>> {
    let (level, members) = SWEPT;
    let arguments = [level.to_owned(), members.to_string(), "64".to_owned(), DRIVER_MIB.to_string()];
    let guest = Guest::default().memory("1G").limit(Duration::from_secs(600));
    let output = guest.run(&root().join("tests/kernel/sweeps.sh"), &arguments)?.success()?;
    let row = |line: &str| {
        let mut words = line.split(' ');
        let mut next = || words.next().with_context(|| format!("the guest printed {line:?}"));
        Ok((next()?.to_owned(), next()?.parse()?, next()?.parse()?))
    };
    output.lines().filter(|line| !line.starts_with("mdadm:")).map(row).collect()
}

fn sweeps_table(ours: &[(&str, Value)], theirs: &[(String, f64, f64)]) -> Result<String> {
    let (level, members) = SWEPT;
    let mut text = format!(
        "\n### Sweeps of an idle RAID-{level}, {members} members\n\n\
         Bytes of each member a second. The limit makes the same transfers without RAID. md runs in a guest on the same machine,\n\
         over RAM disks, in the same run.\n\n\
         | | members | array | limit | ratio |\n|---|---|---|---|---|\n"
    );
    let speed = |per_second: f64| format!("{:.2} GB/s", per_second / 1e9);
    for (kind, sweep) in ours {
        let action = sweep["action"].as_str().context("no action")?;
        let (array, limit) = (number(&sweep["array_per_second"])?, number(&sweep["limit_per_second"])?);
        let ratio = number(&sweep["ratio"])?;
        writeln!(text, "| {action} | {kind} | {} | {} | {ratio:.2} |", speed(array), speed(limit))?;
    }
    for (action, bytes, seconds) in theirs {
        writeln!(text, "| {action}, md | RAM disks | {} | | |", speed(bytes / seconds))?;
    }
    Ok(text)
}

/// The sweeps of an array whose members are limited to a speed that the processor can keep up with.
fn swept_while_held() -> Result<Vec<Value>> {
    let (level, members) = SWEPT;
    let loops = Loops::create(members, LOOP_BYTES)?;
    let held = Held::start(&loops)?;
    let count = members.to_string();
    let arguments = ["--level", level, "--members", &count, "--depth", "8", "--seconds", "0.05"];
    let result = json(&mut held.within(&bench_command(&arguments, &loops.devices)))?;
    Ok(result["levels"][0]["sweeps"].as_array().context("no sweeps")?.clone())
}

fn held_sweeps(sweeps: &Result<Vec<Value>>) -> String {
    let row = |sweep: &Value| -> Result<String> {
        let rate = number(&sweep["array_per_second"])?;
        let share = rate / HELD_BYTES_PER_SECOND as f64;
        Ok(format!("| {} | {:.0} MB/s | {share:.2} |\n", sweep["action"].as_str().context("no action")?, rate / 1e6))
    };
    let rows = sweeps
        .as_ref()
        .map_err(|error| format!("{error:#}"))
        .and_then(|sweeps| sweeps.iter().map(row).collect::<Result<String>>().map_err(|error| format!("{error:#}")));
    match rows {
        Ok(rows) => format!("{HELD}{rows}"),
        Err(reason) => format!("\nNot measured, members held to a speed: {reason}\n"),
    }
}

/// Scrubs of mdspace and btrfs, from tests/btrfs.sh, as medians of the rounds.
fn btrfs_rows(level: &str, members: u16) -> Result<String> {
    let output = Command::new(root().join("tests/btrfs.sh"))
        .arg(root().join("target/release/mdspace"))
        .args([level, &members.to_string(), "512"])
        .output()?;
    if !output.status.success() {
        return Ok(format!("\nNot measured, {level}: {}\n", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let mut text = String::new();
    for name in ["btrfs", "mdspace"] {
        let mut rounds: Vec<[f64; 4]> = Vec::new();
        for line in String::from_utf8(output.stdout.clone())?.lines().filter_map(|line| line.strip_prefix(name)) {
            let numbers = line.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
            rounds.push(numbers.try_into().map_err(|_| anyhow::anyhow!("tests/btrfs.sh printed {line:?}"))?);
        }
        rounds.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let [seconds, verified, read, busy] =
            *rounds.get(rounds.len() / 2).context("tests/btrfs.sh printed nothing")?;
        writeln!(
            text,
            "| {level}, {members} members | {name} | {:.2} GB/s | {:.2} GB/s | {:.2} | {:.2} GB/s |",
            verified / seconds / 1e9,
            read / seconds / 1e9,
            read / verified,
            read / busy / 1e9
        )?;
    }
    Ok(text)
}

fn number(value: &Value) -> Result<f64> {
    value.as_f64().context("a number is missing in what mdspace bench printed")
}

fn counts_table([ours, streams, back]: [&Value; 3], theirs: &[[f64; 4]]) -> Result<String> {
    let (name, members) = (title(ours)?, &ours["members"]);
    let mut text = format!(
        "\n### {name}, {members} members\n\n\
         | writes | | read | written | least | reads / request | writes / request |\n|---|---|---|---|---|---|---|\n"
    );
    let counts = |of: &Value| Ok::<_, anyhow::Error>(of["counts"].as_array().context("no counts")?.clone());
    let (ours, streams, back) = (counts(ours)?, counts(streams)?, counts(back)?);
    for (((count, streams), back), driver) in ours.iter().zip(&streams).zip(&back).zip(theirs) {
        let requests = number(&count["requests"])?;
        let bytes = requests * number(&count["request_bytes"])?;
        let order = count["order"].as_str().context("no order")?;
        let kib = number(&count["request_bytes"])? / 1024.0;
        let what = format!("{kib} KiB {order}, {} in flight", count["depth"]);
        let least = number(&count["least_written_bytes"])? / bytes;
        let transfers = |of: &Value| -> Result<[f64; 4]> {
            let field = |name: &str| number(&of[name]);
            Ok([field("read_bytes")?, field("written_bytes")?, field("reads")?, field("writes")?])
        };
        let (ours, streams, back) = (transfers(count)?, transfers(streams)?, transfers(back)?);
        let [reads, read, writes, written] = *driver;
        let theirs = [read * 512.0, written * 512.0, reads, writes];
        let columns = [
            (&*what, "mdspace", ours),
            ("", "mdspace, streams", streams),
            ("", "mdspace, writeback", back),
            ("", "md", theirs),
        ];
        for (what, who, [read, written, reads, writes]) in columns {
            let (read, written) = (read / bytes, written / bytes);
            let (reads, writes) = (reads / requests, writes / requests);
            writeln!(text, "| {what} | {who} | {read:.3} | {written:.3} | {least:.3} | {reads:.3} | {writes:.3} |")?;
        }
    }
    Ok(text)
}

fn times_table(result: &Value, kind: Kind, depth: &str) -> Result<String> {
    let kind = match kind {
        Kind::Memory => "memory".to_owned(),
        Kind::Loop => "loop devices over tmpfs, O_DIRECT".to_owned(),
        Kind::Files => format!("files of {} where this was built, O_DIRECT", file_system()?),
    };
    let mut text = format!(
        "\n### {}, {} members, chunk {} KiB, {kind}, {depth} in flight\n\n\
         | | array | limit | ratio | degraded / healthy |\n|---|---|---|---|---|\n",
        title(result)?,
        result["members"],
        number(&result["chunk_bytes"])? / 1024.0
    );
    for figure in result["figures"].as_array().context("no figures")? {
        let bytes = number(&figure["request_bytes"])?;
        let side = |name: &str| -> Result<String> {
            let rate = number(&figure[name])?;
            Ok(if bytes <= 4096.0 {
                format!("{:.0} k/s", rate / 1e3)
            } else {
                format!("{:.2} GB/s", rate * bytes / 1e9)
            })
        };
        let workload = figure["workload"].as_str().context("no name")?;
        let (array, limit) = (side("array_per_second")?, side("limit_per_second")?);
        let of_whole = figure["of_whole"].as_f64().map_or(String::new(), |share| format!("{share:.2}"));
        writeln!(text, "| {workload} | {array} | {limit} | {:.2} | {of_whole} |", number(&figure["ratio"])?)?;
    }
    Ok(text)
}

/// The file system of the project's directory, as findmnt names it.
fn file_system() -> Result<String> {
    let root = root().join("target");
    let output = Command::new("findmnt").args(["--noheadings", "--output", "FSTYPE", "--target"]).arg(root).output()?;
    ensure!(output.status.success(), "findmnt: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The section of a page with this heading, up to the next heading. The first section includes everything before it.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let starts: Vec<usize> = page.match_indices("\n## ").map(|(at, _)| at).collect();
    let is_it = |at: &&usize| page[**at + 1..].lines().next() == Some(heading);
    let Some(number) = starts.iter().position(|at| is_it(&at)) else { return "" };
    let start = if number == 0 { 0 } else { starts[number] };
    &page[start..starts.get(number + 1).copied().unwrap_or(page.len())]
}

/// `raid5` becomes `RAID-5`.
fn title(level: &Value) -> Result<String> {
    Ok(level["level"].as_str().context("no level")?.replace("raid", "RAID-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Page\n\nMade.\n\n## One\n\na\n\n### Part\n\n## Two\nb\n\n## Twofold\n\nc\n";

    #[test]
    fn the_sections_of_a_page_cover_all_of_it() {
        let sections = ["## One", "## Two", "## Twofold"].map(|heading| section(PAGE, heading));
        assert_eq!(sections, ["# Page\n\nMade.\n\n## One\n\na\n\n### Part\n", "\n## Two\nb\n", "\n## Twofold\n\nc\n"]);
        assert_eq!(sections.concat(), PAGE);
        assert_eq!(section(PAGE, "## Three"), "");
    }

    #[test]
    fn the_benchmarks_scenarios_become_columns() {
        let line = |group, name, best| format!("  {group:22} {name:18} {best:7.1} {:7.1}\n", 1.0);
        let scenario = |speed: f64| {
            let lines = [line("P+Q", "ISA-L pq_gen", speed), line("one of two lost data", "avx2", 9.9)];
            format!("\n4 KiB blocks: GB/s\n{}", lines.concat())
        };
        let printed: String = [1.5, 2.5, 3.5, 4.5].map(scenario).concat();
        let expected =
            "| P+Q | ISA-L pq_gen | 1.5 | 2.5 | 3.5 | 4.5 |\n| one of two lost data | avx2 | 9.9 | 9.9 | 9.9 | 9.9 |\n";
        assert_eq!(arithmetic_rows(&printed).expect("it is as the benchmark prints"), expected);
        assert!(arithmetic_rows(&scenario(1.5)).is_err(), "three scenarios are missing");
    }

    #[test]
    fn only_requested_sections_are_replaced() {
        let mut document = Document {
            text: String::new(),
            page: PAGE.to_owned(),
            day: "2026-11-27".to_owned(),
            only: Some("Two".to_owned()),
        };
        assert!(!document.begin("# Page\n\n## One\n") && document.begin("\n## Two\n\n"));
        document.add("d\n");
        let (kept, new) = document.text.split_once("## Two\n\n*2026-11-27, ").expect("it has a new section");
        assert!(
            kept.ends_with("### Part\n\n") && new.ends_with(": `cargo xtask figures --only 'Two'`*\n\nd\n"),
            "{new:?}"
        );
    }
}
