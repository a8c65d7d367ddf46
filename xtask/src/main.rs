//! The project's chores: `cargo xtask quick`, `test`, `long`, `tidy`, `matrix`, `bench`, `figures`, `lab`, `kernel`,
//! `package`, `dist`.
//!
//! xtask is not part of the product, and nothing in the product depends on it. A chore runs the same commands that a
//! person would type, and prints how to repeat one that failed.

mod apt;
mod cases;
mod catalogue;
mod cross;
mod dist;
mod fetched;
mod figures;
mod fuzz;
mod guest;
mod kernels;
mod lab;
mod layers;
mod lockless;
mod loops;
mod matrix;
mod mutants;
mod newcomer;
mod package;
#[cfg(test)]
mod pages;
mod policies;
mod programs;
mod release;
mod rot;
mod setup;
mod sim;
mod steps;
mod suite;
mod systems;
mod tidy;

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use guest::{Guest, Outcome};
use kernels::Kernel;
use layers::Layer;

/// The project's chores.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Run the checks that find most mistakes, in less than a minute once everything is built
    Quick(Steps),
    /// Run all checks, or the steps named; installs what they need if that is permitted
    Test(Steps),
    /// Run for hours: fresh histories, a soak, and fuzzing with a corpus that is kept
    Long {
        #[command(flatten)]
        steps: Steps,
        /// Minutes for each step
        #[arg(long, default_value_t = 60)]
        minutes: u64,
    },
    /// Check the rules of the project that neither the compiler nor clippy checks
    Tidy(tidy::Arguments),
    /// Run the interop matrix against the real md driver, or some of its cells
    Matrix(matrix::Arguments),
    /// Play simulated histories of arrays, each from its seed
    ///
    /// The arguments are those of crates/sim/examples/swarm.rs: --seed N, --count N, --from SEED, --minutes M, --trace,
    /// --tally.
    Sim {
        /// Arguments for the swarm
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Break the engine on purpose, in one way after the other, and check that a test notices
    Mutants(mutants::Arguments),
    /// Run the benchmarks
    Bench {
        /// Arguments for `cargo bench`, such as `--package mdspace-parity`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measure everything in docs/bench.md and rewrite it; as root with loop devices too
    Figures(figures::Arguments),
    /// Try the reported situations, and write their outcomes into docs/cases.md
    Cases,
    /// Make the tables of systems from what the steps of the last runs recorded
    Systems,
    /// Measure what each consistency policy loses and costs, beside md, and write docs/policies.md
    Policies(policies::Arguments),
    /// Run the laboratory, and write its figures into docs/lab.md
    Lab,
    /// Build the release and a Debian package with man pages, completions and units, in target/dist
    Package,
    /// Make the files of a release in target/dist/VERSION, and try them: static commands, packages, a container's image
    Dist,
    /// Run mdadm's own suite of tests against `mdspace mdadm`, and make docs/mdadm-suite.md of the results
    Suite(suite::SuiteArguments),
    /// Run a shell script under the real md driver, in a User Mode Linux guest
    Kernel(KernelArguments),
}

/// The requested steps of a layer.
#[derive(Args)]
struct Steps {
    /// Steps to run, in the order of the list; all by default
    steps: Vec<String>,
    /// List the steps
    #[arg(long)]
    list: bool,
}

impl Steps {
    fn run(&self, layer: Layer) -> Result<ExitCode> {
        if self.list {
            steps::list(layer);
            return Ok(ExitCode::SUCCESS);
        }
        steps::run(layer, &self.steps)
    }
}

/// The guest sees this machine's file system, read-write, and each IMAGE as /dev/ubda, /dev/ubdb, ... in the order
/// given (also in $DISKS). `modprobe` in the guest loads md's personalities, nbd, loop, brd and dm targets; $SCRATCH is
/// a directory of the guest. The exit status is the script's; 124 if the script ran too long; 125 if the guest did not
/// boot or stopped early, with its console on standard error.
#[derive(Args)]
struct KernelArguments {
    /// The guest's memory
    #[arg(short, long, default_value = "512M")]
    memory: String,
    /// Seconds after which the guest is killed
    #[arg(short, long, default_value_t = 300)]
    timeout: u64,
    /// Run Debian 13's kernel instead of Debian 12's; `cargo xtask test setup` fetches the one that this system lacks
    #[arg(short, long)]
    newer: bool,
    /// Run this system in emulation, which `cargo xtask long newest pages pages-64k` fetches; it sees only the workspace
    #[arg(long, conflicts_with = "newer")]
    system: Option<systems::System>,
    /// Image to attach as a disk; can be repeated
    #[arg(short, long = "disk", value_name = "IMAGE")]
    disks: Vec<PathBuf>,
    /// Script, run by bash in the current directory
    script: PathBuf,
    /// Arguments of the script
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// The workspace's directory.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace's directory")
}

/// Runs xtask again without cargo's variables about the package. Build scripts of other packages depend on them, so a
/// build from here and a build from a terminal would each discard the other's results.
fn forget_who_runs_this() {
    let is_of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    let told = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(|name| is_of_package(name));
    let told: Vec<_> = told.collect();
    if let (false, Ok(program)) = (told.is_empty(), std::env::current_exe()) {
        let mut again = Command::new(program);
        for name in &told {
            again.env_remove(name);
        }
        let error = again.args(std::env::args_os().skip(1)).exec();
        eprintln!("cannot begin again: {error}");
    }
}

/// The time that `cargo xtask dist` has beyond that of other builds, as it builds for two machines.
const DIST_MINUTES: u64 = 60;

fn main() -> ExitCode {
    forget_who_runs_this();
    let result = match Cli::parse().chore {
        Chore::Quick(steps) => steps.run(Layer::Quick),
        Chore::Test(steps) => steps.run(Layer::Test),
        Chore::Long { steps, minutes } => steps.run(Layer::Long(minutes)),
        Chore::Tidy(arguments) => tidy::run(&arguments).map(|()| ExitCode::SUCCESS),
        Chore::Matrix(arguments) => matrix::run(&arguments).map(|summary| {
            print!("{summary}");
            ExitCode::SUCCESS
        }),
        Chore::Sim { arguments } => sim::run(&arguments),
        Chore::Mutants(arguments) => mutants::run(&arguments),
        Chore::Bench { arguments } => bench(&arguments),
        Chore::Figures(arguments) => figures::run(&arguments),
        Chore::Cases => cases(),
        Chore::Systems => systems::table::write().map(|count| {
            println!("docs/systems.md and README.md: {count} new records");
            ExitCode::SUCCESS
        }),
        Chore::Policies(arguments) => policies::run(&arguments),
        Chore::Lab => lab(),
        Chore::Package => package(),
        Chore::Dist => steps::run(Layer::Long(DIST_MINUTES), &["setup".into(), "dist".into()]),
        Chore::Kernel(arguments) => kernel(&arguments),
        Chore::Suite(arguments) => suite::run(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn bench(arguments: &[String]) -> Result<ExitCode> {
    let mut cargo = Command::new(env!("CARGO"));
    let status = cargo.arg("bench").arg("--locked").args(arguments).current_dir(root()).status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn build_release() -> Result<bool> {
    let status = Command::new(env!("CARGO")).args(["build", "--locked", "--release"]).current_dir(root()).status()?;
    Ok(status.success())
}

fn package() -> Result<ExitCode> {
    if !build_release()? {
        return Ok(ExitCode::FAILURE);
    }
    let package = package::make_of_release()?;
    println!("{}, its binary of {:.1} MB", package.path.display(), package.binary_bytes as f64 / 1e6);
    Ok(ExitCode::SUCCESS)
}

fn cases() -> Result<ExitCode> {
    if !build_release()? {
        return Ok(ExitCode::FAILURE);
    }
    let place = catalogue::Scratch::create("cases")?;
    let count = cases::write(&root().join("target/release/mdspace"), &place.path)?;
    println!("docs/cases.md: {count} situations");
    Ok(ExitCode::SUCCESS)
}

fn lab() -> Result<ExitCode> {
    if !build_release()? {
        return Ok(ExitCode::FAILURE);
    }
    let count = lab::write(&root().join("target/release/mdspace"))?;
    println!("docs/lab.md: {count} tables");
    Ok(ExitCode::SUCCESS)
}

fn kernel(arguments: &KernelArguments) -> Result<ExitCode> {
    let guest = Guest::default().memory(&arguments.memory).limit(Duration::from_secs(arguments.timeout));
    let guest = guest.kernel(match arguments.system {
        Some(system) => Kernel::System(system),
        None if arguments.newer => Kernel::Newer,
        None => Kernel::Older,
    });
    let guest = arguments.disks.iter().fold(guest, |guest, image| guest.disk(image));
    Ok(match guest.run(&arguments.script, &arguments.arguments)? {
        Outcome::Finished { status, output } => {
            print!("{output}");
            ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX))
        }
        Outcome::OverTime { output, console } => {
            print!("{output}");
            eprintln!("{console}xtask: the guest ran longer than {} s", arguments.timeout);
            ExitCode::from(124)
        }
        Outcome::Died { output, console } => {
            print!("{output}");
            eprintln!("{console}xtask: the guest stopped before the script's end");
            ExitCode::from(125)
        }
    })
}
