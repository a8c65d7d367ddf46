//! What every part of the engine may see of an array: geometry, members, health, locks and the gate.
//!
//! Nothing here writes data or metadata. [`crate::data`], [`crate::metadata`] and [`crate::control`] build on it.

pub(crate) mod authority;
pub(crate) mod health;
pub(crate) mod listener;
pub(crate) mod metadata_lock;
mod owed;
pub(crate) mod personality;
mod report;
pub(crate) mod request;
pub(crate) mod roster;
mod state;
pub(crate) mod unbuilt;
mod write_counter;

pub(crate) use state::{ArrayInfo, Core, Health, ParityTrust, Roster};
