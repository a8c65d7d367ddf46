//! The interop matrix: the real md driver and mdspace read, write and check each other's arrays.
//!
//! Cells (see [`cell`]) are processed in batches. Each batch has four phases, because a guest and the host must not
//! write to the same image at the same time:
//!
//! 1. A guest creates and fills the arrays whose origin is the kernel.
//! 2. On the host, `mdspace` creates the others, reads all of them whole and with members missing, and writes to them,
//!    whole or with members left out.
//! 3. A guest assembles all of them without `--force`, `check`s and compares them, recovers members that were left out
//!    (the kernel must see at assembly that these are stale), and writes to them.
//! 4. On the host, `mdspace` reads them again, whole and with members missing.
//!
//! A cell that fails a phase is left out of the later ones. Batches are independent, and as many run at once as there
//! are processors.

mod cell;
mod cells;
mod host;
pub(crate) mod random;
mod tally;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum as _;

use crate::guest::Guest;
use crate::kernels::Kernel;
use crate::root;
use crate::systems::System;

use cell::{Cell, Level, Origin};
use host::{Pool, Workplace};
use tally::Tally;

/// Cells in a batch, and where the guest is emulated.
const BATCH_CELLS: usize = 40;
const EMULATED_BATCH_CELLS: usize = 12;

/// The time limit of a guest for a batch.
const GUEST_LIMIT: Duration = Duration::from_secs(600);

/// The cells to run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run only the cells with these names
    pub(crate) names: Vec<String>,
    /// List the names of the cells
    #[arg(long)]
    pub(crate) list: bool,
    /// Add random cells, determined by this seed
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Number of random cells
    #[arg(long, default_value_t = 100)]
    pub(crate) random: usize,
    /// Run only so many cells of each level, chosen by the seed, or as without one by 0
    #[arg(long, value_name = "CELLS")]
    pub(crate) sample: Option<usize>,
    /// Keep the images in target/xtask/matrix
    #[arg(long)]
    pub(crate) keep: bool,
    /// Command under test; target/debug/mdspace by default
    #[arg(long)]
    pub(crate) mdspace: Option<PathBuf>,
    /// Let the kernel of this emulated system make and judge all cells, but those of `linear`, which it lacks
    #[arg(long)]
    pub(crate) system: Option<System>,
    /// Run only the guest's phases, as a test of this harness: the kernel creates and checks the arrays
    #[arg(long)]
    pub(crate) kernel_alone: bool,
}

impl Arguments {
    /// The fixed set.
    pub(crate) fn fixed() -> Arguments {
        let names = Vec::new();
        let (seed, sample, mdspace, system) = (None, None, None, None);
        Arguments { names, list: false, seed, random: 0, sample, keep: false, mdspace, system, kernel_alone: false }
    }

    /// So many cells of each level in the fixed set, chosen by `seed`, for the kernel of an emulated system.
    pub(crate) fn of(system: System, sample: usize, seed: u64) -> Arguments {
        Arguments { system: Some(system), sample: Some(sample), seed: Some(seed), ..Self::fixed() }
    }
}

/// Runs the requested cells; returns a summary.
///
/// # Errors
///
/// The cells that failed, each with the reason and the command that runs it alone.
pub(crate) fn run(arguments: &Arguments) -> Result<String> {
    let mut cells = cells::fixed();
    if let Some(seed) = arguments.seed {
        cells.extend(cells::random(seed, arguments.random));
    }
    let mut seen = BTreeSet::new();
    cells.retain(|cell| seen.insert(cell.name()));
    if let Some(unknown) = arguments.names.iter().find(|name| !seen.contains(*name)) {
        bail!("no cell is called {unknown}; --list shows them (those of a --seed with it)");
    }
    cells.retain(|cell| arguments.names.is_empty() || arguments.names.contains(&cell.name()));
    if arguments.system.is_some() {
        cells.retain(|cell| cell.level != Level::Linear);
    }
    if arguments.kernel_alone {
        cells.retain(|cell| cell.origin == Origin::Kernel);
    }
    // A cell that is named runs, whatever the sample had.
    if let Some(count) = arguments.sample.filter(|_| arguments.names.is_empty()) {
        cells = cells::sample(cells, count, arguments.seed.unwrap_or_default());
    }
    if arguments.list {
        return Ok(cells.iter().map(|cell| cell.name() + "\n").collect());
    }

    let directory = root().join("target/xtask/matrix");
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    fs::create_dir_all(&directory)?;
    let directory = fs::canonicalize(directory)?;
    let mdspace = arguments.mdspace.clone().unwrap_or_else(|| root().join("target/debug/mdspace"));
    ensure!(arguments.kernel_alone || mdspace.exists(), "{} is not there: cargo build", mdspace.display());
    let run = Run {
        pool: Pool::create(&directory)?,
        directory,
        mdspace,
        system: arguments.system,
        kernel_alone: arguments.kernel_alone,
        keep: arguments.keep,
        tally: Tally::default(),
        failures: Mutex::default(),
    };
    run.all(&cells)?;
    if !arguments.keep {
        fs::remove_dir_all(&run.directory)?;
    }

    let summary = format!("{}{}", tally::cells_by_kind(&cells), run.tally);
    let failures = run.failures.into_inner().expect("no worker panicked");
    if failures.is_empty() {
        return Ok(summary);
    }
    let system = arguments.system.and_then(|system| system.to_possible_value());
    let system = system.map_or(String::new(), |system| format!(" --system {}", system.get_name()));
    let seed = arguments.seed.map_or(String::new(), |seed| format!(" --seed {seed} --random {}", arguments.random));
    let mut text = String::new();
    for (name, reason) in &failures {
        text += &format!("{name}: {reason}\n  again: cargo xtask matrix --keep{system}{seed} {name}\n");
    }
    bail!("{summary}{text}{} of {} cells failed", failures.len(), cells.len())
}

/// Whether the newer kernel, if there is one, judges this cell: half of the cells, chosen by name, but no `linear`,
/// which it lacks. The older kernel creates them all, as on a NAS.
fn newer_judges(cell: &Cell) -> bool {
    cell.level != Level::Linear && cell.name().bytes().fold(0, u8::wrapping_add) % 2 == 1
}

/// Shared by all batches.
struct Run {
    directory: PathBuf,
    pool: Pool,
    mdspace: PathBuf,
    /// Whose kernel makes and judges all cells.
    system: Option<System>,
    kernel_alone: bool,
    keep: bool,
    tally: Tally,
    failures: Mutex<Vec<(String, String)>>,
}

impl Run {
    /// Runs all cells, in parallel batches.
    ///
    /// # Errors
    ///
    /// A failure that is not a cell's.
    fn all(&self, cells: &[Cell]) -> Result<()> {
        let mut batches = Vec::new();
        for newer in [false, true] {
            let cells: Vec<&Cell> = cells.iter().filter(|cell| newer_judges(cell) == newer).collect();
            let count = cells.len().div_ceil(if self.system.is_some() { EMULATED_BATCH_CELLS } else { BATCH_CELLS });
            // Neighbours in the list are similar, so they are dealt out to different batches, which then take about the
            // same time.
            let deal = |batch: usize| cells.iter().copied().skip(batch).step_by(count).collect::<Vec<_>>();
            let judge = if newer { Kernel::newer() } else { None };
            let judge = self.system.map(Kernel::System).or(judge).unwrap_or_default();
            batches.extend((0..count).map(|batch| (judge, deal(batch))));
        }
        let workers = std::thread::available_parallelism()?.get().min(batches.len());
        let queue = Mutex::new(batches.into_iter());
        std::thread::scope(|scope| {
            let work = || -> Result<()> {
                loop {
                    let next = queue.lock().expect("no worker panicked").next();
                    let Some((judge, cells)) = next else { return Ok(()) };
                    self.batch(judge, &cells)?;
                }
            };
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
        })
    }

    fn batch(&self, judge: Kernel, cells: &[&Cell]) -> Result<()> {
        let places: Vec<Workplace> = cells.iter().map(|cell| self.workplace(cell)).collect();
        for place in &places {
            place.prepare().with_context(|| place.cell.name())?;
        }
        let (from_kernel, from_here): (Vec<&Workplace>, Vec<&Workplace>) =
            places.iter().partition(|place| place.cell.origin == Origin::Kernel);
        let maker = self.system.map_or(Kernel::Older, Kernel::System);
        let mut alive = self.guest(maker, "make", from_kernel)?;
        self.tally.made_by_kernel.add(alive.len() as u64);
        alive.extend(from_here);
        if self.kernel_alone {
            alive = self.here(alive, Workplace::pretend_use);
            self.guest(judge, "check", alive)?;
        } else {
            alive = self.here(alive, Workplace::use_array);
            alive = self.guest(judge, "check", alive)?;
            self.tally.taken_by_kernel.add(alive.len() as u64);
            if matches!(judge, Kernel::Newer) {
                self.tally.taken_by_newer.add(alive.len() as u64);
            }
            self.here(alive, Workplace::read_back);
        }
        if !self.keep {
            places.iter().try_for_each(|place| fs::remove_dir_all(&place.directory))?;
        }
        Ok(())
    }

    fn workplace<'a>(&'a self, cell: &'a Cell) -> Workplace<'a> {
        let directory = self.directory.join(cell.name());
        Workplace { cell, directory, pool: &self.pool, mdspace: &self.mdspace, tally: &self.tally }
    }

    /// Runs a phase on the host; returns the cells that passed.
    fn here<'a>(
        &self,
        places: Vec<&'a Workplace<'a>>,
        phase: fn(&Workplace<'a>) -> Result<()>,
    ) -> Vec<&'a Workplace<'a>> {
        let pass = |place: &&Workplace<'a>| phase(place).map_err(|error| self.fail(place.cell, &format!("{error:#}")));
        places.into_iter().filter(|place| pass(place).is_ok()).collect()
    }

    /// Runs a phase in a guest; returns the cells that passed.
    fn guest<'a>(&self, kernel: Kernel, phase: &str, places: Vec<&'a Workplace<'a>>) -> Result<Vec<&'a Workplace<'a>>> {
        if places.is_empty() {
            return Ok(places);
        }
        let mut arguments = vec![phase.to_owned(), text(&self.directory), text(&self.pool.path)];
        arguments.extend(places.iter().map(|place| place.cell.name()));
        let guest = Guest::default().kernel(kernel).limit(GUEST_LIMIT);
        let outcome = guest.run(&root().join("tests/kernel/matrix.sh"), &arguments)?;
        let output = match outcome.success() {
            Ok(output) => output,
            Err(error) => {
                places.iter().for_each(|place| self.fail(place.cell, "its guest failed"));
                bail!("{error:#}");
            }
        };
        let mut passed = Vec::new();
        let mut before = String::new(); // output of the script since the last verdict
        for line in output.lines() {
            let verdict = line.split_once(' ').and_then(|(word, name)| {
                let place = places.iter().find(|place| place.cell.name() == name)?;
                Some((word, *place))
            });
            match verdict {
                Some(("ok", place)) => passed.push(place),
                Some(("failed", place)) => self.fail(place.cell, &format!("the kernel's {phase} failed:\n{before}")),
                _ => {
                    before += &format!("  | {line}\n");
                    continue;
                }
            }
            before.clear();
        }
        Ok(passed)
    }

    fn fail(&self, cell: &Cell, reason: &str) {
        self.failures.lock().expect("no worker panicked").push((cell.name(), reason.to_owned()));
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
