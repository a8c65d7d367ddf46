//! The two ways in which the engine says no: a [`Refusal`] before anything was
//! changed, an [`ArrayError`] for a request that could not be carried out.

use crate::member::MemberError;
use std::fmt;

/// A demand that was turned down with nothing changed on any member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The member it is about, as its caller named it.
    pub member: Option<String>,
    /// The field it is about, by md's name.
    pub field: Option<String>,
    /// What is the matter.
    pub reason: String,
    /// What its reader may do next.
    pub advice: Option<String>,
}

impl Refusal {
    /// A refusal about the array as a whole.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { member: None, field: None, reason: reason.into(), advice: None }
    }

    /// Says which member it is about.
    pub fn of(mut self, member: impl Into<String>) -> Self {
        self.member = Some(member.into());
        self
    }

    /// Says which field it is about.
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Says what to do next.
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
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
        write!(f, "{}", self.reason)?;
        if let Some(advice) = &self.advice {
            write!(f, " ({advice})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

/// Why a request to a running array failed. A whole word, as in a [`Buffer`](crate::Buffer): the two share their place in results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum ArrayErrorKind {
    /// Runs past the end of the array.
    OutOfRange,
    /// A write to an array that is served read-only.
    ReadOnly,
    /// Data that the members left cannot give, or an array that lost too many.
    Io,
    /// The array has been stopped.
    Stopped,
}

/// A request that failed; nothing was returned that may be wrong, and a write
/// that got this may or may not be on the members, as with any disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayError {
    /// The kind to act on.
    pub kind: ArrayErrorKind,
    /// What happened and where, for a person.
    pub reason: String,
}

impl ArrayError {
    pub(crate) fn new(kind: ArrayErrorKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }
}

impl fmt::Display for ArrayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for ArrayError {}
