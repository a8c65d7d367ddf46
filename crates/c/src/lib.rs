//! The C library: the Rust library behind C functions.
//!
//! It adds nothing to the Rust library but the border. Invariants of the border:
//! - No panic crosses it: `error::attempt` makes an error of a panic.
//! - A handle is a `Box` that C owns, and that its `close` or `free` takes back.
//! - A null pointer in place of a handle or a string is an error, not a crash. Other wrong pointers cannot be noticed.
//!
//! `cbindgen.toml` has the head of the header, with the contract of all functions. `unsafe` of the project's bindings is
//! in this crate alone.
#![expect(clippy::missing_safety_doc, reason = "the head of the header has the contract of all functions")]
#![expect(non_camel_case_types, reason = "types have their names in C")]

pub mod array;
pub mod error;
mod foreign;
pub mod options;
