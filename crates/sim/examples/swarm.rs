//! Plays histories, or one of them again: the program behind `cargo xtask sim`.

use clap::Parser;
use mdspace_sim::history::{History, Tally};
use mdspace_sim::swarm::{attempt, trace, try_out};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

/// Plays simulated histories of arrays, each from its seed
#[derive(Parser)]
struct Arguments {
    /// Play only the history of this seed
    #[arg(long)]
    seed: Option<u64>,
    /// Number of histories
    #[arg(long, default_value_t = 10_000)]
    count: u64,
    /// First seed; random by default
    #[arg(long)]
    from: Option<u64>,
    /// Play as many histories as these minutes allow, instead of a count
    #[arg(long)]
    minutes: Option<f64>,
    /// Go on after a failure; print only the reason of each failure
    #[arg(long)]
    keep_going: bool,
    /// Print only the reason of the first failure
    #[arg(long)]
    brief: bool,
    /// Trace a failing history, after shrinking it
    #[arg(long)]
    trace: bool,
    /// Print counts of what happened in all histories
    #[arg(long)]
    tally: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    std::panic::set_hook(Box::new(|_| {})); // the panic is reported with its history
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

/// A random seed with room for many successors.
fn by_chance() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_nanos()) * 1_000_000 + now.as_secs() % 1_000_000
}
