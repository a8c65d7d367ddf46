//! Errors, as C sees them: a code for the program, and text for the user.

use crate::foreign;
use mdspace::ErrorKind;
use std::any::Any;
use std::ffi::{c_char, c_int, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;

/// The request was refused, and no member was changed.
pub const MDSPACE_REFUSED: c_int = 1;
/// The range runs past the array's end.
pub const MDSPACE_OUT_OF_RANGE: c_int = 2;
/// The array is open for reading only.
pub const MDSPACE_READ_ONLY: c_int = 3;
/// The remaining members cannot supply the data, or too many have failed. A write with this error may or may not be on
/// the members.
pub const MDSPACE_IO: c_int = 4;
/// A member has no room for a write. The array keeps the member; repeat the write when there is room.
pub const MDSPACE_NO_SPACE: c_int = 5;
/// The array is not running here: its thread ended by a bug, or this process is a fork of the one that opened it.
pub const MDSPACE_STOPPED: c_int = 6;
/// An argument is none that the function takes, such as a null pointer.
pub const MDSPACE_INVALID: c_int = 7;
/// A bug in mdspace.
pub const MDSPACE_BUG: c_int = 8;

/// Why a call failed.
pub struct mdspace_error {
    code: c_int,
    text: CString,
    member: Option<CString>,
    field: Option<CString>,
    reason: CString,
    changed: Option<CString>,
    advice: Option<CString>,
}

impl mdspace_error {
    /// An argument that the function does not take.
    pub(crate) fn invalid(reason: &str) -> Self {
        Self::without_parts(MDSPACE_INVALID, reason)
    }

    fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let said = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Self::without_parts(MDSPACE_BUG, &format!("a bug in mdspace: {}", said.unwrap_or("a panic without words")))
    }

    fn without_parts(code: c_int, reason: &str) -> Self {
        let [text, reason] = [string(reason), string(reason)];
        Self { code, text, member: None, field: None, reason, changed: None, advice: None }
    }
}

impl From<mdspace::Error> for mdspace_error {
    fn from(error: mdspace::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Refused => MDSPACE_REFUSED,
            ErrorKind::OutOfRange => MDSPACE_OUT_OF_RANGE,
            ErrorKind::ReadOnly => MDSPACE_READ_ONLY,
            ErrorKind::NoSpace => MDSPACE_NO_SPACE,
            ErrorKind::Stopped => MDSPACE_STOPPED,
            // A kind that this library does not know yet is a failure, too.
            _ => MDSPACE_IO,
        };
        Self {
            code,
            text: string(&error.to_string()),
            member: error.member().map(string),
            field: error.field().map(string),
            reason: string(error.reason()),
            changed: error.changed().map(string),
            advice: error.advice().map(string),
        }
    }
}

/// A string for C, which ends at the first zero byte, so it has none within.
pub(crate) fn string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

/// Runs `work`, and leaves its error or a null pointer in `error`. Returns the value or the error's code.
pub(crate) unsafe fn attempt<T>(
    error: *mut *mut mdspace_error,
    work: impl FnOnce() -> Result<T, mdspace_error>,
) -> Result<T, c_int> {
    // After a panic nothing of `work` is used again.
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(mdspace_error::of_panic(&*panic)));
    let (result, left) = match done {
        Ok(value) => (Ok(value), None),
        Err(error) => (Err(error.code), Some(Box::new(error))),
    };
    if !error.is_null() {
        // SAFETY: it is not null, so by the contract it is the caller's place for a pointer.
        unsafe { error.write(left.map_or(ptr::null_mut(), Box::into_raw)) };
    }
    result
}

/// The code of a call without a value.
pub(crate) fn code(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(0)
}

/// The part of an error that `part` returns; null if there is none, or no error.
unsafe fn part(error: *const mdspace_error, part: impl FnOnce(&mdspace_error) -> Option<&CString>) -> *const c_char {
    // SAFETY: by the contract it is null or an error. The string lives as long as the error.
    unsafe { foreign::handle(error) }.ok().and_then(part).map_or(ptr::null(), |text| text.as_ptr())
}

/// The error's code: one of the MDSPACE_ constants; 0 for NULL.
#[no_mangle]
pub unsafe extern "C" fn mdspace_error_code(error: *const mdspace_error) -> c_int {
    // SAFETY: by the contract it is null or an error.
    unsafe { foreign::handle(error) }.map_or(0, |error| error.code)
}

/// All of it as one text, in the words of the command `mdspace`: member, field, reason, what was changed, advice. Valid
/// until the error is freed.
#[no_mangle]
pub unsafe extern "C" fn mdspace_error_text(error: *const mdspace_error) -> *const c_char {
    // SAFETY: as for the caller.
    unsafe { part(error, |error| Some(&error.text)) }
}

/// The member concerned, by the name under which it was opened; NULL if there is none. Valid until the error is freed.
#[no_mangle]
pub unsafe extern "C" fn mdspace_error_member(error: *const mdspace_error) -> *const c_char {
    // SAFETY: as for the caller.
    unsafe { part(error, |error| error.member.as_ref()) }
}

/// The field of the member's metadata concerned, by md's name; NULL if there is none. Valid until the error is freed.
#[no_mangle]
pub unsafe extern "C" fn mdspace_error_field(error: *const mdspace_error) -> *const c_char {
    // SAFETY: as for the caller.
    unsafe { part(error, |error| error.field.as_ref()) }
}

/// The reason, without the member and the field. Valid until the error is freed.
#[no_mangle]
pub unsafe extern "C" fn mdspace_error_reason(error: *const mdspace_error) -> *const c_char {
    // SAFETY: as for the caller.
    unsafe { part(error, |error| Some(&error.reason)) }
}

/// What had been changed before the failure; NULL if nothing was. Valid until the error is freed.
#[no_mangle]
pub unsafe extern "C" fn mdspace_error_changed(error: *const mdspace_error) -> *const c_char {
    // SAFETY: as for the caller.
    unsafe { part(error, |error| error.changed.as_ref()) }
}

/// What to do next; NULL if nothing is known. Valid until the error is freed.
#[no_mangle]
pub unsafe extern "C" fn mdspace_error_advice(error: *const mdspace_error) -> *const c_char {
    // SAFETY: as for the caller.
    unsafe { part(error, |error| error.advice.as_ref()) }
}

/// Frees an error. NULL is none.
#[no_mangle]
pub unsafe extern "C" fn mdspace_error_free(error: *mut mdspace_error) {
    if !error.is_null() {
        // SAFETY: by the contract it is from `attempt` and not freed yet.
        drop(unsafe { Box::from_raw(error) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_words_and_the_next_call_clears_it() {
        let mut error = ptr::null_mut();
        // SAFETY: `error` is a place for a pointer, and each error is freed once.
        unsafe {
            let result: Result<(), c_int> = attempt(&raw mut error, || panic!("the words"));
            assert_eq!((result, mdspace_error_code(error)), (Err(MDSPACE_BUG), MDSPACE_BUG));
            let text = std::ffi::CStr::from_ptr(mdspace_error_text(error)).to_string_lossy().into_owned();
            assert_eq!(text, "a bug in mdspace: the words");
            mdspace_error_free(error);
            assert_eq!((attempt(&raw mut error, || Ok(7)), error), (Ok(7), ptr::null_mut()));
            assert_eq!(attempt::<()>(ptr::null_mut(), || Err(mdspace_error::invalid("x"))), Err(MDSPACE_INVALID));
        }
    }

    #[test]
    fn a_zero_byte_in_a_text_does_not_end_it() {
        assert_eq!(string("a\0b").as_bytes(), b"ab");
    }
}
