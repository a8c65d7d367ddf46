//! The public face of the crate against a slow oracle.

mod common;
mod kernels;
mod recovery;
