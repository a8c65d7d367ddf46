//! Control: everything about an array that is not a request. Assembly, creation, membership, change of size,
//! sweeps and read repair.
//!
//! It calls the data path and the metadata; neither calls it. The core reaches it as a
//! [`crate::core::listener::Listener`], for events alone.

pub mod assemble;
mod behind;
pub(crate) mod blocks;
mod build;
pub(crate) mod checksums;
pub mod conversion;
pub(crate) mod copies;
pub mod create;
mod difference;
pub(crate) mod election;
mod events;
pub mod examined;
pub(crate) mod forced;
pub(crate) mod grow;
pub(crate) mod hung;
pub(crate) mod idle;
pub mod inspect;
pub(crate) mod joining;
pub(crate) mod logs;
pub(crate) mod lost_roles;
mod names;
mod new_journal;
pub(crate) mod newcomer;
mod offer;
pub(crate) mod owed;
mod read_only;
pub(crate) mod read_repair;
pub(crate) mod replace;
pub mod reshape;
pub(crate) mod shrink;
pub(crate) mod split;
mod state;
pub mod status;
pub(crate) mod stop;
pub(crate) mod sweep;
pub mod update;
pub mod wipe;

pub(crate) use state::Control;
