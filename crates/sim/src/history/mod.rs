//! Histories: an array, what is asked of it and what happens to its members, from one seed.

mod run;
mod setup;
mod step;
mod tally;

pub use run::run;
pub use setup::Setup;
pub use step::{Fault, History, Step};
pub use tally::Tally;
