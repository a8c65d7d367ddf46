//! A file's name as text, and back: what members are called in the status, in messages and in requests.
//!
//! A name of harmless letters is itself. Any other is quoted ([`format::text`]), so that it can be printed without doing
//! anything to a terminal, goes through JSON, and still names the same file. The one place for both directions.

use format::text::quoted;
#[cfg(feature = "command")]
use format::text::unquoted;
#[cfg(feature = "command")]
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
#[cfg(feature = "command")]
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
#[cfg(feature = "command")]
use std::path::PathBuf;

/// What a file is called.
pub(crate) fn name_of(path: &Path) -> String {
    quoted(path.as_os_str().as_bytes())
}

/// The file that is called so.
#[cfg(feature = "command")]
pub(crate) fn path_of(name: &str) -> PathBuf {
    OsString::from_vec(unquoted(name)).into()
}
