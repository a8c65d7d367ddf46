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

/// The word that a shell takes for the file name `path`.
#[cfg(feature = "command")]
pub(crate) fn word_of(path: &Path) -> String {
    shell_word(&name_of(path))
}

/// A word as a shell takes it. What [`name_of`] has quoted is one.
#[cfg(feature = "command")]
pub(crate) fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=+,@%".contains(c);
    if word.starts_with("$'") || (!word.is_empty() && word.chars().all(is_plain)) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(all(test, feature = "command"))]
mod tests {
    use super::*;

    #[test]
    fn words_are_safe_for_a_shell() {
        for (name, expected) in [
            ("disk1.img:3", "disk1.img:3"),
            ("my disk.img", "'my disk.img'"),
            ("a'b;rm", r"'a'\''b;rm'"),
            ("$(id)", "'$(id)'"),
            (r"$'a\x1b'", r"$'a\x1b'"),
            ("K=64K", "K=64K"),
            ("*", "'*'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(name), expected);
        }
    }
}
