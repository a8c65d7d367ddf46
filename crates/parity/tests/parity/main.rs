//! The public face of the crate against a slow oracle.

mod common;
mod crc32c;
mod kernels;
mod recovery;
