//! `bench`: the engine on this machine, beside the speed of its members without RAID in the same run.
//!
//! The limit moves the same bytes between the same pool and the same members, on the same executor, with as many
//! requests under way. It leaves out all of RAID: mapping, locks, parity, superblocks.
//!
//! The bench overwrites the array's data. So its members are created for it, or are block devices that belong to no
//! array.

mod counts;
mod measure;
mod members;
mod scrub;
mod sweeps;
mod workload;

use crate::command::measure::arguments::{BenchArguments, BenchPolicy};
use crate::command::measure::html::{Bar, Page};
use crate::command::text::failure::Failure;
use crate::command::text::output::{columns, print, print_json};
use crate::command::text::progress::Steps;
use crate::command::text::size::Size;
use crate::machine::{Arena, Array, Machine};
use counts::{Count, count_all};
use engine::create::{Contents, Newcomer, Newcomers, Recipe, create_announced};
use engine::inspect::find_superblock;
use engine::status::level_name;
use engine::{AssembleOptions, Candidate, Durability, Member};
use format::geometry::{Geometry, Level, Role, Shape, default_layout};
use format::placement::BitmapChoice;
use format::units::MemberByte;
use io::AnyMember;
use measure::{Bench, Figure, measure};
use parity::Kernel;
use serde::Serialize;
use std::rc::Rc;
use std::time::Duration;
use sweeps::{Sweep, measure_sweeps};

/// Largest number of parity chunks in a stripe.
const PARITIES_MAX: u64 = Role::PARITIES.len() as u64;

/// All measurements. Their fields are a stable interface (docs/json.md).
#[derive(Serialize)]
struct Report {
    /// The kind of members, as on the command line.
    member: String,
    /// Requests under way at a time.
    depth: usize,
    levels: Vec<LevelReport>,
}

#[derive(Serialize)]
struct LevelReport {
    level: &'static str,
    members: usize,
    chunk_bytes: u64,
    array_bytes: u64,
    kernel: &'static str,
    /// Measurements of time; empty with `--count`.
    figures: Vec<Figure>,
    /// Sweeps over the idle array; empty with `--count`.
    sweeps: Vec<Sweep>,
    /// Counted transfers; only with `--count`.
    counts: Vec<Count>,
}

/// Runs `mdspace bench`.
pub(crate) fn run(arguments: &BenchArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let time = Duration::try_from_secs_f64(arguments.seconds)
        .ok()
        .filter(|time| (Duration::from_millis(1)..=Duration::from_secs(3600)).contains(time))
        .ok_or_else(|| Failure::refused("--seconds: expected 0.001 to 3600"))?;
    if arguments.depth == 0 {
        return Err(Failure::refused("--depth: expected 1 or more"));
    }
    let has_journal = arguments.consistency_policy == BenchPolicy::Journal;
    if has_journal && arguments.count {
        return Err(Failure::refused("--count: transfers are not counted with a write journal")
            .advise("leave it out: speeds are measured"));
    }
    if let Some(words) = &arguments.only
        && !arguments
            .level
            .iter()
            .flat_map(|level| names(*level, has_journal))
            .any(|name| name.contains(words.as_str()))
    {
        return Err(Failure::refused(format!("--only: no workload has `{words}` in its name")));
    }
    let machine = Machine::start(kernel, Arena::Huge)?;
    let words: Vec<_> = arguments.member.iter().map(|path| path.display().to_string()).collect();
    let mut report = Report { member: words.join(" "), depth: arguments.depth, levels: Vec::new() };
    machine.run(async {
        let members = members::make(arguments)?;
        let mut steps = Steps::start("bench", arguments.level.iter().map(|level| parts(arguments, *level)).sum());
        for (index, level) in arguments.level.iter().enumerate() {
            report
                .levels
                .push(bench_level(&machine, &members, *level, index > 0, (arguments, time), &mut steps).await?);
        }
        Ok::<(), Failure>(())
    })?;
    if arguments.json {
        print_json(&report)?
    } else {
        print(&report.text())?
    }
    arguments.report.as_deref().map_or(Ok(()), |path| report.page().write(path))
}

/// The names of a level's measurements, computed for a small array before anything is written.
fn names(level: Level, has_journal: bool) -> Vec<&'static str> {
    const SLOTS: u16 = 4;
    const COMPONENT_BYTES: u64 = 4 << 20;
    let shape = Shape {
        level,
        layout: default_layout(level),
        chunk_bytes: 64 << 10,
        slots: SLOTS,
        component_bytes: COMPONENT_BYTES,
        member_bytes: vec![COMPONENT_BYTES; SLOTS.into()],
    };
    let geometry = Geometry::new(&shape).expect("every level can have four members of that length");
    let mut workloads = workload::healthy(&geometry);
    let mut names = Vec::new();
    if level.is_redundant() && !has_journal {
        workloads.extend(workload::degraded(&geometry));
        names.extend([scrub::CHECK_NAME, scrub::BESIDE_A_CHECK].into_iter().chain(sweeps::NAMES));
    }
    names.extend(workloads.iter().map(|workload| workload.name));
    names
}

/// Whether `arguments` select the measurement of this name.
fn is_meant(arguments: &BenchArguments, name: &str) -> bool {
    arguments.only.as_ref().is_none_or(|words| name.contains(words.as_str()))
}

/// Number of steps for a level: the creation, each measurement, and the sweeps together.
fn parts(arguments: &BenchArguments, level: Level) -> usize {
    if arguments.count {
        return 2;
    }
    let has_journal = arguments.consistency_policy == BenchPolicy::Journal;
    let meant: Vec<_> = names(level, has_journal).into_iter().filter(|name| is_meant(arguments, name)).collect();
    let sweeps = meant.iter().filter(|name| sweeps::NAMES.contains(name)).count();
    1 + meant.len() - sweeps.saturating_sub(1)
}

async fn bench_level(
    machine: &Machine,
    members: &[AnyMember],
    level: Level,
    overwrite: bool,
    (arguments, time): (&BenchArguments, Duration),
    steps: &mut Steps,
) -> Result<LevelReport, Failure> {
    let mut begin = |part: &str| steps.begin(&format!("{}: {part}", level_name(level)));
    begin("creating and filling the array");
    let chunk_bytes = if level.has_chunks() { arguments.chunk.0 } else { 0 };
    let has_journal = arguments.consistency_policy == BenchPolicy::Journal;
    let (members, journal) = match members.split_last() {
        Some((last, members)) if has_journal => (members, Some(last).filter(|_| level.has_parity())),
        _ => (members, None),
    };
    let kept = Kept {
        journal,
        integrity: arguments.integrity && level.is_redundant(),
        bitmap: match arguments.consistency_policy {
            BenchPolicy::Bitmap if level.is_redundant() => BitmapChoice::DefaultChunk,
            _ => BitmapChoice::None,
        },
        parity_log: arguments.consistency_policy == BenchPolicy::Ppl,
        stripe_log: arguments.consistency_policy == BenchPolicy::Log && level.has_parity(),
    };
    // The whole array is written before the first measurement.
    make_array(machine, members, level, chunk_bytes, kept, overwrite, Contents::Consistent).await?;
    let (geometry, data_at) = geometry(machine, members).await?;
    let devices = candidates(members).into_iter().chain(journal.map(candidate_for_journal)).collect();
    let array = Array::assemble(devices, options(machine), machine.pool.clone(), machine.clock.clone());
    let array = array.await?;
    let with_parity = array.preferred_bytes() + PARITIES_MAX * chunk_bytes;
    let longest = with_parity.max(counts::REQUEST_BYTES_MAX as u64) as usize;
    let template = machine.pool.zeroed(longest).freeze();
    fill(&array, &template).await?;
    let mut report = LevelReport {
        level: level_name(level),
        members: members.len(),
        chunk_bytes,
        array_bytes: array.bytes(),
        kernel: array.status().kernel,
        figures: Vec::new(),
        sweeps: Vec::new(),
        counts: Vec::new(),
    };
    if arguments.count {
        begin("counting transfers");
        array.stop().await?;
        report.counts = count_all(machine, members, &geometry, &template, arguments.cache.answers()).await?;
        forget_array(machine, members).await?;
        return Ok(report);
    }
    let (pool, clock, depth) = (machine.pool.clone(), machine.clock.clone(), arguments.depth);
    let bench = Bench { array, whole: None, members: members.to_vec(), data_at, pool, clock, depth, template };
    let bench = Rc::new(bench);
    let is_meant = |name: &str| is_meant(arguments, name);
    for workload in workload::healthy(&geometry).into_iter().filter(|workload| is_meant(workload.name)) {
        begin(workload.name);
        report.figures.push(measure(&bench, workload, time).await?);
    }
    let is_swept = level.is_redundant() && !has_journal;
    if is_swept && is_meant(scrub::CHECK_NAME) {
        begin(scrub::CHECK_NAME);
        report.figures.push(scrub::check(&bench, &geometry).await?);
    }
    if is_swept && is_meant(scrub::BESIDE_A_CHECK) {
        begin(scrub::BESIDE_A_CHECK);
        let reads = workload::healthy(&geometry).swap_remove(0);
        report.figures.push(scrub::beside_a_check(&bench, reads, time).await?);
    }
    bench.array.stop().await?;
    if is_swept {
        let degraded = degraded(machine, &bench).await?;
        for workload in workload::degraded(&geometry).into_iter().filter(|workload| is_meant(workload.name)) {
            begin(workload.name);
            report.figures.push(measure(&degraded, workload, time).await?);
        }
    }
    if is_swept && sweeps::NAMES.into_iter().any(is_meant) {
        begin("sweeps");
        report.sweeps = measure_sweeps(machine, members, level, chunk_bytes, kept, &bench, &geometry).await?;
    }
    forget_array(machine, members).await?;
    if let Some(journal) = journal {
        forget(machine, JOURNAL, journal).await?;
    }
    Ok(report)
}

/// The array of a stopped bench without its first member, and the whole array. Both are read-only.
async fn degraded(machine: &Machine, bench: &Bench) -> Result<Rc<Bench>, Failure> {
    let assemble = async |candidates| {
        let options = AssembleOptions { read_only: true, ..options(machine) };
        Array::assemble(candidates, options, machine.pool.clone(), machine.clock.clone()).await
    };
    let mut survivors = candidates(&bench.members);
    survivors.remove(0);
    let (array, whole) = (assemble(survivors).await?, assemble(candidates(&bench.members)).await?);
    Ok(Rc::new(Bench { array, whole: Some(whole), ..bench.clone() }))
}

fn options(machine: &Machine) -> AssembleOptions {
    AssembleOptions { kernel: machine.kernel, ..AssembleOptions::default() }
}

fn name(index: usize) -> String {
    format!("member {index}")
}

/// The name of the device for a write journal.
const JOURNAL: &str = "journal";

fn candidate_for_journal(journal: &AnyMember) -> Candidate<AnyMember> {
    Candidate { name: JOURNAL.to_owned(), member: journal.clone() }
}

fn candidates(members: &[AnyMember]) -> Vec<Candidate<AnyMember>> {
    let candidate = |(index, member): (usize, &AnyMember)| Candidate { name: name(index), member: member.clone() };
    members.iter().enumerate().map(candidate).collect()
}

/// What an array keeps beside data and parity.
#[derive(Clone, Copy)]
struct Kept<'a> {
    integrity: bool,
    bitmap: BitmapChoice,
    parity_log: bool,
    stripe_log: bool,
    /// The device for a write journal.
    journal: Option<&'a AnyMember>,
}

async fn make_array(
    machine: &Machine,
    members: &[AnyMember],
    level: Level,
    chunk_bytes: u64,
    kept: Kept<'_>,
    overwrite: bool,
    contents: Contents,
) -> Result<(), Failure> {
    let recipe = Recipe {
        chunk_bytes,
        name: "bench".to_owned(),
        contents,
        integrity: kept.integrity,
        bitmap: kept.bitmap,
        parity_log: kept.parity_log,
        stripe_log: kept.stripe_log,
        overwrite,
        ..Recipe::new(level, *b"mdspace's bench.")
    };
    let newcomer =
        |(candidate, number): (Candidate<AnyMember>, u8)| Some(Newcomer { candidate, device_uuid: [number; 16] });
    let slots: Vec<_> = candidates(members).into_iter().zip(1..).map(newcomer).collect();
    let journal = kept.journal.and_then(|journal| newcomer((candidate_for_journal(journal), u8::MAX)));
    let newcomers = Newcomers { slots: &slots, spares: &[], journal: journal.as_ref() };
    Ok(create_announced(&recipe, newcomers, &machine.pool, &machine.clock, &|_, _| {}, &|| {}).await?)
}

/// The array's geometry, and where data begins on each member.
async fn geometry(machine: &Machine, members: &[AnyMember]) -> Result<(Geometry, Vec<u64>), Failure> {
    let mut found = Vec::new();
    for (index, member) in members.iter().enumerate() {
        found.push(find_superblock(&name(index), member, &machine.pool).await?.superblock);
    }
    let data_bytes: Vec<u64> = found.iter().map(|superblock| superblock.data_bytes()).collect();
    let data_at = found.iter().map(|superblock| superblock.data_at().0).collect();
    let refused = |defect: format::Defect| Failure::refused(defect.to_string());
    Ok((Geometry::new(&found[0].shape(&data_bytes)).map_err(refused)?, data_at))
}

/// Writes the whole array once, so that no file has holes and all memory is mapped.
async fn fill(array: &Array, template: &engine::Block) -> Result<(), Failure> {
    let piece = array.preferred_bytes().min(template.len() as u64);
    for at in (0..array.bytes()).step_by(piece as usize) {
        let bytes = piece.min(array.bytes() - at) as usize;
        array.write(at, template.slice(0..bytes), Durability::Ordinary).await?;
    }
    Ok(array.flush().await?)
}

/// Erases the superblocks.
async fn forget_array(machine: &Machine, members: &[AnyMember]) -> Result<(), Failure> {
    for (index, member) in members.iter().enumerate() {
        forget(machine, &name(index), member).await?;
    }
    Ok(())
}

async fn forget(machine: &Machine, name: &str, member: &AnyMember) -> Result<(), Failure> {
    let found = find_superblock(name, member, &machine.pool).await?;
    let at = MemberByte(found.superblock.super_at().0);
    let written = member.write(at, machine.pool.zeroed(4096).freeze()).await;
    written.map_err(|error| Failure::unwell(format!("{name}: {error}")))
}

impl LevelReport {
    fn headline(&self) -> String {
        let (chunk, size) = (Size(self.chunk_bytes), Size(self.array_bytes));
        format!("{}, {} members, chunk {chunk}, {size}, parity by {}", self.level, self.members, self.kernel)
    }

    /// The tables, each with a row of headings.
    fn tables(&self) -> Vec<Vec<Vec<String>>> {
        let heading = ["", "array", "limit", "array/limit", "degraded/whole"].map(str::to_owned).to_vec();
        let tables = [
            (Count::heading(), self.counts.iter().map(Count::row).collect::<Vec<_>>()),
            (heading, self.figures.iter().map(Figure::row).collect()),
            (Sweep::heading(), self.sweeps.iter().map(Sweep::row).collect()),
        ];
        let filled = tables.into_iter().filter(|(_, rows)| !rows.is_empty());
        filled.map(|(heading, rows)| std::iter::once(heading).chain(rows).collect()).collect()
    }
}

impl Figure {
    fn row(&self) -> Vec<String> {
        let side = |per_second: f64| amount(per_second, self.request_bytes);
        let of_whole = self.of_whole.map_or(String::new(), |share| format!("{share:.2}"));
        let (array, limit) = (side(self.array_per_second), side(self.limit_per_second));
        vec![self.workload.to_owned(), array, limit, format!("{:.2}", self.ratio), of_whole]
    }

    /// The ratio of the array to its limit.
    fn bar(&self) -> Bar {
        Bar { label: self.workload.to_owned(), here: (self.ratio, format!("{:.2}", self.ratio)), there: None }
    }
}

impl Report {
    fn about(&self) -> String {
        format!("members: {}; {} requests under way", self.member, self.depth)
    }

    fn text(&self) -> String {
        let mut text = self.about() + "\n";
        for level in &self.levels {
            text += &format!("\n{}\n", level.headline());
            level.tables().iter().for_each(|table| text += &columns(table));
        }
        text
    }

    fn page(&self) -> Page {
        let mut page = Page::new("mdspace bench", &self.about());
        for level in &self.levels {
            page.section(level.level, &level.headline());
            level.tables().iter().for_each(|table| page.table(table, 1));
            let bars: Vec<Bar> = level.figures.iter().map(Figure::bar).collect();
            if !bars.is_empty() {
                page.bars("array / limit", "", &bars);
            }
        }
        page
    }
}

/// A rate: requests per second for small requests, bytes per second for large ones.
fn amount(per_second: f64, request_bytes: usize) -> String {
    if request_bytes <= 4096 {
        return format!("{:.0} k/s", per_second / 1e3);
    }
    format!("{:.2} GB/s", per_second * request_bytes as f64 / 1e9)
}
