//! Errors of the library, as exceptions of the class that the package defines (python/mdspace/_error.py).

use mdspace::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The exception for `error`.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let kind = match error.kind() {
        ErrorKind::Refused => "refused",
        ErrorKind::OutOfRange => "out-of-range",
        ErrorKind::ReadOnly => "read-only",
        ErrorKind::NoSpace => "no-space",
        ErrorKind::Stopped => "stopped",
        // A kind that this package does not know yet is a failure, too.
        _ => "io",
    };
    let parts = (error.member(), error.field(), error.reason(), error.changed(), error.advice());
    let made = CLASS
        .import(py, "mdspace._error", "Error")
        .and_then(|class| class.call1((kind, error.to_string(), parts.0, parts.1, parts.2, parts.3, parts.4)));
    made.map_or_else(|other| other, PyErr::from_value)
}

/// The value of a call, or its exception.
pub(crate) fn value<T>(py: Python<'_>, result: Result<T, Error>) -> PyResult<T> {
    result.map_err(|error| exception(py, &error))
}
