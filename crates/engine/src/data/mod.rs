//! The data path: reads and writes of requests, from the array's bytes to transfers of devices.
//!
//! Calls upwards through `core::Authority` alone; never writes a superblock or a bitmap.

pub(crate) mod cache;
pub(crate) mod cached_stripes;
pub(crate) mod coalesce;
pub(crate) mod debts;
pub(crate) mod fast_path;
pub(crate) mod full_stripe;
pub(crate) mod in_place;
pub(crate) mod mirror;
pub(crate) mod parity;
pub(crate) mod read_ahead;
pub(crate) mod rebuild;
pub(crate) mod reconstruct;
pub(crate) mod request;
pub(crate) mod rmw;
pub(crate) mod runs;
pub(crate) mod stripe;
pub(crate) mod stripe_size;
pub(crate) mod zeros;
