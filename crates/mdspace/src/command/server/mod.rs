//! An array that is served: its exports, the server's side of the control socket, and what runs beside the requests.

mod activation;
pub(crate) mod arguments;
mod commands;
pub(crate) mod control;
pub(crate) mod exports;
pub(crate) mod grow;
mod metrics;
pub(crate) mod nbd_address;
mod replies;
pub(crate) mod saved_scrub;
pub(crate) mod scrub;
pub(crate) mod serve;
pub(crate) mod settings;
pub(crate) mod smart;
pub(crate) mod socket_access;
mod volume;
pub(crate) mod write_back;
