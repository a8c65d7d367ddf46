//! Why a call of the library failed, as a value to act on and as words for a person.
//!
//! Words are the engine's own, and so the command's: advice may name an option of `mdspace` where the library has a
//! method of the same name.

use engine::{ArrayError, ArrayErrorKind, Refusal};
use std::fmt;

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// What was asked for is not done, and no member was changed.
    Refused,
    /// The range runs past the array's end.
    OutOfRange,
    /// The array is open for reading only.
    ReadOnly,
    /// Data that the members left cannot give, or an array that has lost more members than it bears. A write that
    /// ends so may or may not be on the members, as with any disk. Of [`Create::create`](crate::Create::create), that it
    /// was cut short by a member that failed: the reason says what had been changed.
    Io,
    /// A member has no room for what was written: its file system or thin device is full, or a quota or limit is reached. No
    /// member leaves for that; write it again when there is room.
    NoSpace,
    /// The array is not running any more.
    Stopped,
}

/// Why a call failed: what, where, and what to do next.
///
/// It prints as `member: field: reason; changed (advice)`, each of them where it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    refusal: Refusal,
}

impl Error {
    /// The array's thread has ended, which it never does by itself.
    pub(crate) fn stopped() -> Self {
        Self { kind: ErrorKind::Stopped, refusal: Refusal::new("the array's thread has ended") }
    }

    pub(crate) fn past_the_end(at: u64, bytes: usize, end: u64) -> Self {
        let reason = format!("{bytes} bytes at byte {at} run past the array's end at {end}");
        Self { kind: ErrorKind::OutOfRange, refusal: Refusal::new(reason) }
    }

    /// What kind of failure it was.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The member it is about, as it was named when the array was opened or made.
    pub fn member(&self) -> Option<&str> {
        self.refusal.member.as_deref()
    }

    /// The field of the member's metadata that it is about, by md's name.
    pub fn field(&self) -> Option<&str> {
        self.refusal.field.as_deref()
    }

    /// What is the matter, without the member and the field.
    pub fn reason(&self) -> &str {
        &self.refusal.reason
    }

    /// What had been changed by then; `None` when nothing was, or nobody can tell.
    pub fn changed(&self) -> Option<&str> {
        self.refusal.changed.as_deref()
    }

    /// What to do next.
    pub fn advice(&self) -> Option<&str> {
        self.refusal.advice.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refusal.fmt(f)
    }
}

impl std::error::Error for Error {}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let kind = if refusal.changed.is_some() { ErrorKind::Io } else { ErrorKind::Refused };
        Self { kind, refusal }
    }
}

impl From<ArrayError> for Error {
    fn from(error: ArrayError) -> Self {
        let kind = match error.kind {
            ArrayErrorKind::OutOfRange => ErrorKind::OutOfRange,
            ArrayErrorKind::ReadOnly => ErrorKind::ReadOnly,
            ArrayErrorKind::Io => ErrorKind::Io,
            ArrayErrorKind::NoSpace => ErrorKind::NoSpace,
            ArrayErrorKind::Stopped => ErrorKind::Stopped,
        };
        Self { kind, refusal: Refusal::new(error.reason) }
    }
}

/// For whoever works with files: the error itself is inside ([`std::io::Error::get_ref`]).
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            ErrorKind::OutOfRange => std::io::ErrorKind::InvalidInput,
            ErrorKind::ReadOnly => std::io::ErrorKind::PermissionDenied,
            ErrorKind::NoSpace => std::io::ErrorKind::StorageFull,
            ErrorKind::Refused | ErrorKind::Io | ErrorKind::Stopped => std::io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
