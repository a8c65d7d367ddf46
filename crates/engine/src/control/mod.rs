//! All that is decided about an array beside its requests: assembly, creation, membership, growth, sweeps, read repair.

pub mod assemble;
pub(crate) mod blocks;
pub(crate) mod checksums;
pub(crate) mod copies;
pub mod create;
pub mod examined;
pub(crate) mod forced;
pub(crate) mod grow;
pub(crate) mod hung;
pub mod inspect;
pub(crate) mod joining;
pub(crate) mod logs;
pub(crate) mod lost_roles;
pub(crate) mod newcomer;
pub(crate) mod owed;
pub(crate) mod read_repair;
pub(crate) mod replace;
pub(crate) mod shrink;
pub(crate) mod split;
pub mod status;
pub(crate) mod stop;
pub(crate) mod sweep;
