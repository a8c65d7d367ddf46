//! Plays histories by the thousand, and shrinks one that fails.
//!
//! A history follows from its seed alone. A panic of the engine counts as a failure.

use crate::history::{History, Tally, run};
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::Tracer;

/// A history that failed.
#[derive(Debug)]
pub struct Failure {
    /// The history as its seed makes it.
    pub history: History,
    /// The reason of its failure.
    pub reason: String,
    /// A smaller history that fails too.
    pub smaller: History,
    /// The reason of that failure.
    pub smaller_reason: String,
}

/// Plays a history.
///
/// # Errors
/// The history that failed, shrunk, and the reasons.
pub fn try_out(history: History, tally: &Tally) -> Result<(), Box<Failure>> {
    let Err(reason) = attempt(&history, tally) else { return Ok(()) };
    let (smaller, smaller_reason) = shrink(&history, &reason);
    Err(Box::new(Failure { history, reason, smaller, smaller_reason }))
}

/// Plays a history, without shrinking it.
///
/// # Errors
/// The reason of the failure, in words.
pub fn attempt(history: &History, tally: &Tally) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(|| run(history, tally, None))) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(format!("a panic: {}", text.unwrap_or_default()))
        }
    }
}

/// Plays a history again, and passes a trace of it to `tracer`.
pub fn trace(history: &History, tracer: Tracer) {
    // The outcome is known already.
    drop(catch_unwind(AssertUnwindSafe(|| run(history, &Tally::default(), Some(tracer)))));
}

/// Shrinks a history: drops steps as long as it still fails, halves first, then ever smaller parts.
fn shrink(history: &History, reason: &str) -> (History, String) {
    let (mut smallest, mut reason) = (history.clone(), reason.to_owned());
    let mut length = smallest.steps.len().div_ceil(2);
    while length > 0 {
        let mut shrunk = false;
        let mut start = 0;
        while start < smallest.steps.len() {
            let mut candidate = smallest.clone();
            candidate.steps.drain(start..(start + length).min(smallest.steps.len()));
            match attempt(&candidate, &Tally::default()) {
                Err(wrong) => {
                    (smallest, reason) = (candidate, wrong);
                    shrunk = true;
                }
                Ok(()) => start += length,
            }
        }
        if !shrunk || length > 1 {
            length /= 2;
        }
    }
    (smallest, reason)
}
