//! Many histories, and of one that fails a smaller one that fails too.
//!
//! A history follows from its seed alone; a panic of the engine is a failure
//! like any other.

use crate::history::{History, Tally, run};
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::Tracer;

/// A history that went wrong.
#[derive(Debug)]
pub struct Failure {
    /// The history as its seed makes it.
    pub history: History,
    /// What went wrong in it.
    pub reason: String,
    /// A smaller history that goes wrong as well.
    pub smaller: History,
    /// What goes wrong in that.
    pub smaller_reason: String,
}

/// Lives through a history.
///
/// # Errors
/// The history and what went wrong, shrunk.
pub fn try_out(history: History, tally: &Tally) -> Result<(), Box<Failure>> {
    let Err(reason) = attempt(&history, tally) else { return Ok(()) };
    let (smaller, smaller_reason) = shrink(&history, &reason);
    Err(Box::new(Failure { history, reason, smaller, smaller_reason }))
}

/// Lives through one history.
///
/// # Errors
/// What went wrong, in words.
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

/// Lives through one history again, and tells what happens in it.
pub fn trace(history: &History, tracer: Tracer) {
    // How it ends is known.
    drop(catch_unwind(AssertUnwindSafe(|| run(history, &Tally::default(), Some(tracer)))));
}

/// Drops steps as long as something still goes wrong: halves first, then ever fewer at once.
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
