//! Linux software RAID, in user space.
#![forbid(unsafe_code)]

pub mod command;
