//! File names as text, and back: the members' names in the status, in messages and in requests.
//!
//! A name of harmless letters stays as it is. Any other name is quoted ([`format::text`]): it cannot drive a terminal,
//! fits into JSON, and still names the same file. All code uses these two functions for the two directions.

use format::text::quoted;
use format::text::unquoted;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::path::PathBuf;

/// The text for the file name `path`.
pub(crate) fn name_of(path: &Path) -> String {
    quoted(path.as_os_str().as_bytes())
}

/// The file name for the text `name`.
pub(crate) fn path_of(name: &str) -> PathBuf {
    OsString::from_vec(unquoted(name)).into()
}
