//! Lives through histories: `cargo xtask sim` runs this.

use clap::Parser;
use mdspace_sim::history::{History, Tally};
use mdspace_sim::swarm::{attempt, trace, try_out};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

/// Simulated histories of arrays, each from its seed.
#[derive(Parser)]
struct Arguments {
    /// Only the history of this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// How many histories.
    #[arg(long, default_value_t = 10_000)]
    count: u64,
    /// The first seed; by chance when it is not given.
    #[arg(long)]
    from: Option<u64>,
    /// As many histories as these minutes allow, instead of a count.
    #[arg(long)]
    minutes: Option<f64>,
    /// Go on after a failure, and say of each only what went wrong.
    #[arg(long)]
    keep_going: bool,
    /// Say of the first that fails only what went wrong.
    #[arg(long)]
    brief: bool,
    /// Say of a history that fails, shrunk, what happens in it.
    #[arg(long)]
    trace: bool,
    /// Say what happened in them all.
    #[arg(long)]
    tally: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    std::panic::set_hook(Box::new(|_| {})); // told with the history in which it came
    let from = arguments.seed.or(arguments.from).unwrap_or_else(by_chance);
    let count = match (arguments.seed, arguments.minutes) {
        (Some(_), _) => 1,
        (None, Some(_)) => u64::MAX - from,
        (None, None) => arguments.count,
    };
    let limit = arguments.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    let (start, tally) = (Instant::now(), Tally::default());
    let (mut done, mut failed) = (0, 0);
    for seed in from..from.saturating_add(count) {
        if limit.is_some_and(|limit| start.elapsed() >= limit) {
            break;
        }
        done += 1;
        let history = History::random(seed);
        if arguments.keep_going || arguments.brief {
            if let Err(reason) = attempt(&history, &tally) {
                failed += 1;
                println!("seed {seed}: {reason}");
                if arguments.brief {
                    break;
                }
            }
        } else if let Err(failure) = try_out(history, &tally) {
            println!("{}", failure.history);
            println!("seed {seed}: {}\n", failure.reason);
            println!("a smaller history that fails:\n{}", failure.smaller);
            if arguments.trace {
                trace(&failure.smaller, Rc::new(|line| println!("{line}")));
            }
            println!("{}\n", failure.smaller_reason);
            println!("failed after {done} histories from seed {from} on\nagain: cargo xtask sim --seed {seed}");
            return ExitCode::FAILURE;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    if arguments.tally {
        println!("{tally}");
    }
    println!("{done} histories from seed {from} on in {seconds:.1} s, {:.0} a minute", done as f64 / seconds * 60.0);
    if failed > 0 {
        println!("{failed} failed of {done}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// A seed that leaves room for as many histories as anybody tries.
fn by_chance() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_nanos()) * 1_000_000 + now.as_secs() % 1_000_000
}
