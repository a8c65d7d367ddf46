//! The crate's public interface against a slow oracle.

mod common;
mod crc32c;
mod kernels;
mod recovery;
