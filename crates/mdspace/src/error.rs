//! Errors of the library: a kind for the program, and text for the user.
//!
//! The text comes from the engine, as in the command. So advice may name an option of `mdspace` for which the library
//! has a method of the same name.

use engine::{ArrayError, ArrayErrorKind, Refusal};
use std::fmt;

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request was refused, and no member was changed.
    Refused,
    /// The range runs past the array's end.
    OutOfRange,
    /// The array is open for reading only.
    ReadOnly,
    /// The remaining members cannot supply the data, or the array has lost more members than the level allows. A write
    /// with this error may or may not be on the members, as with any disk. From
    /// [`Create::create`](crate::Create::create): a member failed, and the reason says what had been changed.
    Io,
    /// A member has no room for a write: its file system or thin device is full, or a quota or limit is reached. The
    /// array keeps the member; repeat the write when there is room.
    NoSpace,
    /// The array is not running here: its thread ended by a bug, or this process is a fork of the one that opened it.
    Stopped,
}

/// Why a call failed: what, where, and what to do next.
///
/// It prints as `member: field: reason; changed (advice)`, without the parts that are unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    refusal: Refusal,
}

impl Error {
    /// The array's thread has ended, which only a bug can cause.
    pub(crate) fn stopped() -> Self {
        Self { kind: ErrorKind::Stopped, refusal: Refusal::new("the array's thread has ended") }
    }

    /// The array's thread is in the process that opened the array.
    pub(crate) fn forked() -> Self {
        let refusal = Refusal::new("the array was opened before this process forked, and belongs to the other process");
        Self { kind: ErrorKind::Stopped, refusal: refusal.advice("open it after the fork") }
    }

    pub(crate) fn past_the_end(at: u64, bytes: usize, end: u64) -> Self {
        let reason = format!("{bytes} bytes at byte {at} run past the array's end at {end}");
        Self { kind: ErrorKind::OutOfRange, refusal: Refusal::new(reason) }
    }

    /// The kind of the failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The member concerned, by the name under which the array was opened or created.
    pub fn member(&self) -> Option<&str> {
        self.refusal.member.as_deref()
    }

    /// The field of the member's metadata concerned, by md's name.
    pub fn field(&self) -> Option<&str> {
        self.refusal.field.as_deref()
    }

    /// The reason, without the member and the field.
    pub fn reason(&self) -> &str {
        &self.refusal.reason
    }

    /// What had been changed before the failure; `None` if nothing was changed, or if that is unknown.
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

/// For code that handles I/O errors. [`std::io::Error::get_ref`] returns the [`Error`].
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
