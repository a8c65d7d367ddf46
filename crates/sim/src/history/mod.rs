//! Histories: an array, the requests to it, and the faults of its members, all from one seed.

mod buffer;
mod changes;
mod life;
mod mishaps;
mod old_superblock;
mod others;
mod requests;
mod run;
mod setup;
mod step;
mod tally;

pub use changes::{BitmapChange, Way};
pub use others::Use;
pub use run::run;
pub use setup::{Consistency, Setup};
pub use step::{Cut, Fault, History, Means, Step};
pub use tally::Tally;
