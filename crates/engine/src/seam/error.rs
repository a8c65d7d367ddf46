//! The engine's two errors: a [`Refusal`] of an administrative command, and an [`ArrayError`] of a read, write or
//! flush.
//!
//! Plain values: they name the cause and the remedy, and carry out nothing.

use crate::seam::member::MemberError;
use std::fmt;

/// A command that was refused before it changed any member. Where [`Self::changed`] is set, the command failed midway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The member it concerns, by the name that the caller used.
    pub member: Option<String>,
    /// The field it concerns, by md's name.
    pub field: Option<String>,
    /// The cause.
    pub reason: String,
    /// The changes made before the failure, as text; `None` when there were none.
    pub changed: Option<Box<str>>,
    /// What the reader may do next.
    pub advice: Option<String>,
}

impl Refusal {
    /// A refusal about the array as a whole.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { member: None, field: None, reason: reason.into(), changed: None, advice: None }
    }

    /// Sets the member.
    pub fn of(mut self, member: impl Into<String>) -> Self {
        self.member = Some(member.into());
        self
    }

    /// Sets the field.
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Sets the advice.
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Sets what was changed before the failure, unless it is set: the inner caller knows better.
    pub fn after(mut self, changed: impl Into<String>) -> Self {
        self.changed.get_or_insert_with(|| changed.into().into());
        self
    }

    /// Sets the advice, unless it is set.
    pub fn or_advice(mut self, advice: impl Into<String>) -> Self {
        self.advice.get_or_insert_with(|| advice.into());
        self
    }

    /// Adds details to the cause.
    #[must_use]
    pub(crate) fn because(mut self, details: &str) -> Self {
        self.reason = format!("{}: {details}", self.reason);
        self
    }

    /// The cause, and the changes made before the failure.
    pub fn reason_and_changes(&self) -> String {
        match &self.changed {
            Some(changed) => format!("{}; {changed}", self.reason),
            None => self.reason.clone(),
        }
    }

    /// A refusal for a bad field of `member`.
    pub fn defect(member: &str, defect: format::Defect) -> Self {
        Self::new(defect.reason).of(member).field(defect.field)
    }

    /// A refusal because `member` could not be read or written.
    pub fn member_error(member: &str, error: &MemberError) -> Self {
        Self::new(error.to_string()).of(member)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(member) = &self.member {
            write!(f, "{member}: ")?;
        }
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.reason_and_changes())?;
        if let Some(advice) = &self.advice {
            write!(f, " ({advice})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

/// Why a request to a running array failed. Its tag is a whole word, as in a [`Buffer`](crate::Buffer), because the two
/// share memory in results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum ArrayErrorKind {
    /// The range runs past the end of the array.
    OutOfRange,
    /// A write to an array that is served read-only.
    ReadOnly,
    /// The remaining members cannot supply the data, or too many members have failed.
    Io,
    /// A member has no space for the data ([`crate::MemberErrorKind::NoSpace`]). The member has not failed, and its
    /// contents are as good as before.
    NoSpace,
    /// The array has been stopped.
    Stopped,
}

/// A failed request. A failed read returns no data. A failed write may have
/// reached any part of the members, as with any disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayError {
    /// The kind, for callers to act on.
    pub kind: ArrayErrorKind,
    /// What happened and where, as text.
    pub reason: String,
}

impl ArrayError {
    pub(crate) fn new(kind: ArrayErrorKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }

    /// The refusal of a command during which the array itself failed.
    pub(crate) fn refusal(self) -> Refusal {
        Refusal::new(self.reason).after("superblocks may have been written to some of the members").advice(
            "`mdspace status` shows what is left; stop the array, and look at each member with `mdspace examine`",
        )
    }
}

impl fmt::Display for ArrayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for ArrayError {}
/// Whether the array takes no more changes, by the result of background work. A lack of room passes, and such work is
/// tried again.
pub(crate) fn has_failed<T>(result: Result<T, ArrayError>) -> bool {
    result.is_err_and(|error| error.kind != ArrayErrorKind::NoSpace)
}
