//! What is on disks.

use crate::error::value;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::path::PathBuf;

/// Everything on some disks, as JSON.
#[pyfunction]
pub(crate) fn detect(py: Python<'_>, disks: Vec<PathBuf>) -> PyResult<String> {
    let found = value(py, py.detach(|| mdspace::detect(disks)))?;
    serde_json::to_string(&found).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}
