//! The command `mdspace`.
//!
//! It turns arguments into calls of the engine, and results into text, JSON and an exit status. It knows nothing about
//! RAID that the engine does not tell it, and never writes to a member itself.
//!
//! Its folders import one way, which `cargo xtask tidy` checks: `text <- opening <- locate`, and
//! `opening <- {server, clients, measure} <- mdadm <- cli`, where `clients` also import `locate`.

mod cli;
mod clients;
mod locate;
mod mdadm;
mod measure;
mod opening;
mod server;
mod text;

pub use cli::run;
