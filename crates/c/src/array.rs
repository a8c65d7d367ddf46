//! Arrays: open, read, write, status, close.

use crate::error::{attempt, code, mdspace_error, string};
use crate::foreign;
use crate::options::from_flags;
use mdspace::{Array, Options};
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::ptr;

/// An open array.
pub struct mdspace_array(Array);

impl mdspace_array {
    /// Opens the array of `count` members; returns null on an error.
    pub(crate) unsafe fn open(
        options: impl FnOnce() -> Result<Options, mdspace_error>,
        members: *const *const c_char,
        count: usize,
        error: *mut *mut mdspace_error,
    ) -> *mut Self {
        // SAFETY: as for the caller.
        let array = unsafe { attempt(error, || Ok(options()?.open(foreign::paths(members, count)?)?)) };
        array.map_or(ptr::null_mut(), |array| Box::into_raw(Box::new(Self(array))))
    }
}

/// Runs `work` on an array; returns its code.
unsafe fn with(
    array: *const mdspace_array,
    error: *mut *mut mdspace_error,
    work: impl FnOnce(&Array) -> Result<(), mdspace_error>,
) -> c_int {
    // SAFETY: as for the caller.
    code(unsafe { attempt(error, || work(&foreign::handle(array)?.0)) })
}

/// The version of the library, such as "0.2.0".
#[no_mangle]
pub extern "C" fn mdspace_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("the version has a zero byte"),
    };
    VERSION.as_ptr()
}

/// Opens the array of `count` members: files, block devices, or disks with members in their partitions, in any order. As
/// many may be missing as the level allows. `flags` are 0 for reading, or MDSPACE_WRITE, MDSPACE_FORCE, MDSPACE_PARTIAL.
///
/// The array is to be closed with mdspace_close(). On an error no byte of any member was changed.
#[no_mangle]
pub unsafe extern "C" fn mdspace_open(
    members: *const *const c_char,
    count: usize,
    flags: u32,
    error: *mut *mut mdspace_error,
) -> *mut mdspace_array {
    // SAFETY: as for the caller.
    unsafe { mdspace_array::open(|| from_flags(flags), members, count, error) }
}

/// The length of the array in bytes; 0 for NULL.
#[no_mangle]
pub unsafe extern "C" fn mdspace_size(array: *const mdspace_array) -> u64 {
    // SAFETY: as for the caller.
    unsafe { foreign::handle(array) }.map_or(0, |array| array.0.bytes())
}

/// The unit for fast large requests: multiples of this length, aligned to it; 0 for NULL.
#[no_mangle]
pub unsafe extern "C" fn mdspace_preferred_bytes(array: *const mdspace_array) -> u64 {
    // SAFETY: as for the caller.
    unsafe { foreign::handle(array) }.map_or(0, |array| array.0.preferred_bytes())
}

/// Whether writes are refused.
#[no_mangle]
pub unsafe extern "C" fn mdspace_is_read_only(array: *const mdspace_array) -> bool {
    // SAFETY: as for the caller.
    unsafe { foreign::handle(array) }.map_or(true, |array| array.0.is_read_only())
}

/// Fills `bytes` bytes of memory from byte `at` of the array on, at any position and length. A range that runs past the
/// end is refused. After an error the memory has any contents.
#[no_mangle]
pub unsafe extern "C" fn mdspace_read_at(
    array: *const mdspace_array,
    into: *mut c_void,
    bytes: usize,
    at: u64,
    error: *mut *mut mdspace_error,
) -> c_int {
    // SAFETY: as for the caller.
    unsafe { with(array, error, |array| Ok(array.read_exact_at(foreign::memory_to_fill(into, bytes)?, at)?)) }
}

/// Writes `bytes` bytes at byte `at`, at any position and length. A range that runs past the end is refused, with nothing
/// written. After mdspace_flush() the data survives a loss of power.
#[no_mangle]
pub unsafe extern "C" fn mdspace_write_at(
    array: *const mdspace_array,
    from: *const c_void,
    bytes: usize,
    at: u64,
    error: *mut *mut mdspace_error,
) -> c_int {
    // SAFETY: as for the caller.
    unsafe { with(array, error, |array| Ok(array.write_all_at(foreign::memory(from.cast(), bytes)?, at)?)) }
}

/// Discards `bytes` bytes from `at` on: members may free their space. They then read as zeros or stay as they are; without
/// redundancy they may read as anything.
#[no_mangle]
pub unsafe extern "C" fn mdspace_discard(
    array: *const mdspace_array,
    at: u64,
    bytes: u64,
    error: *mut *mut mdspace_error,
) -> c_int {
    // SAFETY: as for the caller.
    unsafe { with(array, error, |array| Ok(array.discard(at, bytes)?)) }
}

/// Brings every write that completed before this call to stable storage.
#[no_mangle]
pub unsafe extern "C" fn mdspace_flush(array: *const mdspace_array, error: *mut *mut mdspace_error) -> c_int {
    // SAFETY: as for the caller.
    unsafe { with(array, error, |array| Ok(array.flush()?)) }
}

/// The status of the array and its members as JSON: the fields of `mdspace status --json`, without those of a server. To
/// be freed with mdspace_string_free(); NULL on an error.
#[no_mangle]
pub unsafe extern "C" fn mdspace_status_json(
    array: *const mdspace_array,
    error: *mut *mut mdspace_error,
) -> *mut c_char {
    let status = || {
        // SAFETY: as for the caller.
        let status = unsafe { foreign::handle(array) }?.0.status()?;
        let json = serde_json::to_string(&status).map_err(|error| mdspace_error::invalid(&error.to_string()))?;
        Ok(string(&json))
    };
    // SAFETY: as for the caller.
    unsafe { attempt(error, status) }.map_or(ptr::null_mut(), CString::into_raw)
}

/// Everything on `count` disks, their images, or files of any kind, as JSON: the fields of `mdspace detect --json`,
/// without containers of firmware RAID and without commands. It only reads, and members may be in use. A disk that cannot
/// be looked at is listed in it, and is no error. To be freed with mdspace_string_free(); NULL on an error.
#[no_mangle]
pub unsafe extern "C" fn mdspace_detect_json(
    disks: *const *const c_char,
    count: usize,
    error: *mut *mut mdspace_error,
) -> *mut c_char {
    // SAFETY: as for the caller.
    let text = unsafe {
        attempt(error, || {
            let found = mdspace::detect(foreign::paths(disks, count)?)?;
            let json = serde_json::to_string(&found).map_err(|error| mdspace_error::invalid(&error.to_string()))?;
            Ok(string(&json))
        })
    };
    text.map_or(ptr::null_mut(), CString::into_raw)
}

/// Frees a string that mdspace_status_json() or mdspace_detect_json() returned. NULL is none.
#[no_mangle]
pub unsafe extern "C" fn mdspace_string_free(string: *mut c_char) {
    if !string.is_null() {
        // SAFETY: by the contract it is from this library, unchanged and not freed yet.
        drop(unsafe { CString::from_raw(string) });
    }
}

/// Flushes, marks the array clean, closes its members and frees the handle, also on an error. MDSPACE_IO: it could not be
/// marked clean, and its next opening for writing resyncs it. NULL is none.
#[no_mangle]
pub unsafe extern "C" fn mdspace_close(array: *mut mdspace_array, error: *mut *mut mdspace_error) -> c_int {
    let close = || {
        if !array.is_null() {
            // SAFETY: by the contract it is from this library, not closed yet, and in no other call.
            unsafe { Box::from_raw(array) }.0.close()?;
        }
        Ok(())
    };
    // SAFETY: as for the caller.
    code(unsafe { attempt(error, close) })
}
