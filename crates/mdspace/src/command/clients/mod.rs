//! Commands that talk to a server through its control socket: they ask, change and print, and open no
//! member, except to look which files something hits ([`files`]).

pub(crate) mod arguments;
pub(crate) mod choice;
pub(crate) mod control;
mod figures;
pub(crate) mod files;
mod interval;
pub(crate) mod iostat;
pub(crate) mod list;
pub(crate) mod monitor;
mod on_disks;
mod report;
pub(crate) mod scrub;
pub(crate) mod served;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod wait;
