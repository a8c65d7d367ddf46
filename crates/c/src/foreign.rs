//! What C passes in: handles, strings and memory, as references of Rust.
//!
//! The contract at the head of the header (`cbindgen.toml`) is what makes these functions sound: a pointer is null or
//! valid for the call, strings end with a zero byte, and memory has the length that is passed with it.

use crate::error::mdspace_error;
use std::ffi::{c_char, c_void, CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::slice;

/// The value of a handle.
pub(crate) unsafe fn handle<'a, T>(handle: *const T) -> Result<&'a T, mdspace_error> {
    // SAFETY: by the contract it is null, or from this library and not freed yet.
    unsafe { handle.as_ref() }.ok_or_else(|| mdspace_error::invalid("a null pointer in place of a handle"))
}

/// A path. It may be in any encoding.
pub(crate) unsafe fn path(path: *const c_char) -> Result<PathBuf, mdspace_error> {
    if path.is_null() {
        return Err(mdspace_error::invalid("a null pointer in place of a string"));
    }
    // SAFETY: it is not null, so by the contract it is a string.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    Ok(OsStr::from_bytes(bytes).into())
}

/// `count` paths.
pub(crate) unsafe fn paths(paths: *const *const c_char, count: usize) -> Result<Vec<PathBuf>, mdspace_error> {
    // SAFETY: as for the caller; each element is a string, or null, which `path` refuses.
    unsafe { memory(paths, count)?.iter().map(|one| path(*one)).collect() }
}

/// `count` values to read.
pub(crate) unsafe fn memory<'a, T>(at: *const T, count: usize) -> Result<&'a [T], mdspace_error> {
    match check(at.cast(), count, size_of::<T>())? {
        // SAFETY: it is not null and not too long, so by the contract it has `count` values.
        true => Ok(unsafe { slice::from_raw_parts(at, count) }),
        false => Ok(&[]),
    }
}

/// `bytes` bytes to fill. C gives memory that may hold anything, so bytes, which may have any value, are all it can be.
pub(crate) unsafe fn memory_to_fill<'a>(at: *mut c_void, bytes: usize) -> Result<&'a mut [u8], mdspace_error> {
    match check(at, bytes, 1)? {
        // SAFETY: it is not null and not too long, so by the contract it has `bytes` bytes that this call alone uses.
        true => Ok(unsafe { slice::from_raw_parts_mut(at.cast(), bytes) }),
        false => Ok(&mut []),
    }
}

/// Whether there is any memory.
fn check(at: *const c_void, count: usize, each_bytes: usize) -> Result<bool, mdspace_error> {
    let is_short = count.checked_mul(each_bytes).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    match (count, at.is_null()) {
        (0, _) => Ok(false),
        _ if !is_short => Err(mdspace_error::invalid("a length beyond all memory")),
        (_, true) => Err(mdspace_error::invalid("a null pointer in place of memory")),
        (_, false) => Ok(true),
    }
}
