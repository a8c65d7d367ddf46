//! Creation of an array.

use crate::error::value;
use mdspace::{Create, Level};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::path::PathBuf;

fn level_of(name: &str) -> PyResult<Level> {
    Ok(match name {
        "linear" => Level::Linear,
        "raid0" => Level::Raid0,
        "raid1" => Level::Raid1,
        "raid4" => Level::Raid4,
        "raid5" => Level::Raid5,
        "raid6" => Level::Raid6,
        "raid10" => Level::Raid10,
        _ => return Err(PyValueError::new_err(format!("no level is called {name:?}; one is \"raid5\""))),
    })
}

/// Creates an array; its options are those of the Rust library. Returns the status as JSON.
#[pyfunction]
#[pyo3(signature = (level, members, *, layout, chunk_bytes, name, member_bytes, bitmap, integrity, overwrite))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
pub(crate) fn create(
    py: Python<'_>,
    level: &str,
    members: Vec<PathBuf>,
    layout: Option<String>,
    chunk_bytes: Option<u64>,
    name: String,
    member_bytes: Option<u64>,
    bitmap: bool,
    integrity: bool,
    overwrite: bool,
) -> PyResult<String> {
    let mut create = Create::new(level_of(level)?).name(name).bitmap(bitmap).integrity(integrity).overwrite(overwrite);
    if let Some(layout) = layout {
        create = create.layout(layout);
    }
    if let Some(bytes) = chunk_bytes {
        create = create.chunk_bytes(bytes);
    }
    if let Some(bytes) = member_bytes {
        create = create.member_bytes(bytes);
    }
    let status = value(py, py.detach(|| create.create(members)))?;
    serde_json::to_string(&status).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}
