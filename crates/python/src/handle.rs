//! An open array, as Python holds it.

use crate::error::value;
use mdspace::{Array, Error, Options};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

/// An array until it is closed. Calls share the lock, and closing waits for them.
#[pyclass(frozen, module = "mdspace._mdspace")]
pub(crate) struct Handle {
    array: RwLock<Option<Array>>,
    #[pyo3(get)]
    size: u64,
    #[pyo3(get)]
    preferred_bytes: u64,
    #[pyo3(get)]
    read_only: bool,
    /// The process that opened it. A fork has copies of the lock and the array, and leaves both alone.
    process: u32,
}

/// Opens an array; its options are those of the Rust library.
#[pyfunction]
#[pyo3(signature = (members, *, write, force, partial, inner, overlay, bitmap, backup_file, maps))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
pub(crate) fn open(
    py: Python<'_>,
    members: Vec<PathBuf>,
    write: bool,
    force: bool,
    partial: bool,
    inner: Option<String>,
    overlay: Option<PathBuf>,
    bitmap: Option<PathBuf>,
    backup_file: Option<PathBuf>,
    maps: Vec<(PathBuf, PathBuf)>,
) -> PyResult<Handle> {
    let mut options = Options::new().write(write).force(force).partial(partial);
    if let Some(name) = inner {
        options = options.inner(name);
    }
    if let Some(directory) = overlay {
        options = options.overlay(directory);
    }
    if let Some(file) = bitmap {
        options = options.bitmap(file);
    }
    if let Some(file) = backup_file {
        options = options.backup_file(file);
    }
    for (image, mapfile) in maps {
        options = options.map(image, mapfile);
    }
    let array = value(py, py.detach(|| options.open(members)))?;
    Ok(Handle {
        size: array.bytes(),
        preferred_bytes: array.preferred_bytes(),
        read_only: array.is_read_only(),
        process: std::process::id(),
        array: RwLock::new(Some(array)),
    })
}

impl Handle {
    /// Runs `work` on the array, without the interpreter's lock.
    fn run<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Array) -> Result<T, Error> + Send) -> PyResult<T> {
        let done = py.detach(|| {
            let array = self.array.read().unwrap_or_else(PoisonError::into_inner);
            array.as_ref().map(work)
        });
        value(py, done.ok_or_else(|| PyValueError::new_err("I/O operation on a closed array"))?)
    }
}

#[pymethods]
impl Handle {
    /// `bytes` bytes from `at` on. The caller has checked that the array is not shorter, as memory is taken first.
    fn read_at<'py>(&self, py: Python<'py>, at: u64, bytes: usize) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, bytes, |into| self.run(py, |array| array.read_exact_at(into, at)))
    }

    /// Fills a buffer of bytes from `at` on.
    fn read_into_at(&self, py: Python<'_>, at: u64, buffer: PyBuffer<u8>) -> PyResult<()> {
        let mut bytes = vec![0; buffer.len_bytes()];
        self.run(py, |array| array.read_exact_at(&mut bytes, at))?;
        buffer.copy_from_slice(py, &bytes)
    }

    /// Writes a buffer of bytes at `at`.
    fn write_at(&self, py: Python<'_>, at: u64, data: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(bytes) = data.cast::<PyBytes>() {
            let bytes = bytes.as_bytes();
            return self.run(py, |array| array.write_all_at(bytes, at));
        }
        let bytes = PyBuffer::<u8>::get(data)?.to_vec(py)?;
        self.run(py, |array| array.write_all_at(&bytes, at))
    }

    /// Discards a range.
    fn discard(&self, py: Python<'_>, at: u64, bytes: u64) -> PyResult<()> {
        self.run(py, |array| array.discard(at, bytes))
    }

    /// Brings completed writes to stable storage.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, Array::flush)
    }

    /// The status as JSON.
    fn status_json(&self, py: Python<'_>) -> PyResult<String> {
        let status = self.run(py, Array::status)?;
        serde_json::to_string(&status).map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// Closes the array, once other calls have returned. A closed one stays closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if std::process::id() != self.process {
            return Ok(());
        }
        let closed = py.detach(|| {
            let array = self.array.write().unwrap_or_else(PoisonError::into_inner).take();
            array.map_or(Ok(()), |array| array.close().map(drop))
        });
        value(py, closed)
    }
}
