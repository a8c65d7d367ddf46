//! The data path: turns reads and writes of the array's bytes into transfers of its devices.
//!
//! It reaches the metadata only through [`crate::core::authority::Authority`], and never writes a superblock or a
//! bitmap itself.

pub(crate) mod cache;
pub(crate) mod cached_stripes;
pub(crate) mod coalesce;
pub(crate) mod fast_path;
pub(crate) mod full_stripe;
pub(crate) mod in_place;
pub(crate) mod logged;
pub(crate) mod mirror;
pub(crate) mod owed;
pub(crate) mod parity;
pub(crate) mod personality;
pub(crate) mod piece_write;
pub(crate) mod plane;
pub(crate) mod read_ahead;
pub(crate) mod reading;
pub(crate) mod rebuild;
pub(crate) mod reconstruct;
pub(crate) mod request;
pub(crate) mod runs;
pub(crate) mod stitched;
pub(crate) mod stripe;
pub(crate) mod stripe_size;
mod unbuilt;
pub(crate) mod zeros;

pub(crate) use plane::{DataOptions, DataPlane};
