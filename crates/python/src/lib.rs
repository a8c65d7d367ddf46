//! The native part of the Python package: the Rust library behind a class of Python.
//!
//! The package's own part (python/mdspace) makes a file object of it. Invariants:
//! - The interpreter's lock is released while a call waits: for the array, or for another call on the handle.
//! - No `unsafe`. Memory of Python's that another thread may change meanwhile is copied, with the lock held; `bytes`, which
//!   nothing changes, are read and filled in place.
//! - pyo3 makes an exception of a panic.
#![forbid(unsafe_code)]

mod create;
mod detect;
mod error;
mod handle;

use pyo3::prelude::*;

/// The module `mdspace._mdspace`.
#[pymodule]
fn _mdspace(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<handle::Handle>()?;
    module.add_function(wrap_pyfunction!(handle::open, module)?)?;
    module.add_function(wrap_pyfunction!(detect::detect, module)?)?;
    module.add_function(wrap_pyfunction!(create::create, module)?)
}
