//! The two ways in which the engine says no: a [`Refusal`] of a demand, before anything was changed or with
//! what was, an [`ArrayError`] for a request that could not be carried out.

use crate::seam::member::MemberError;
use std::fmt;

/// A demand that was turned down with nothing changed on any member; or, where [`Self::changed`] says what was,
/// one that failed on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The member it is about, as its caller named it.
    pub member: Option<String>,
    /// The field it is about, by md's name.
    pub field: Option<String>,
    /// What is the matter.
    pub reason: String,
    /// What had been changed by then, for a person; `None` when nothing was.
    pub changed: Option<Box<str>>,
    /// What its reader may do next.
    pub advice: Option<String>,
}

impl Refusal {
    /// A refusal about the array as a whole.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { member: None, field: None, reason: reason.into(), changed: None, advice: None }
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

    /// Says what had been changed by then; who said so before, nearer to it, knows better.
    pub fn after(mut self, changed: impl Into<String>) -> Self {
        self.changed.get_or_insert_with(|| changed.into().into());
        self
    }

    /// Says what to do next, unless that was said already.
    pub fn or_advice(mut self, advice: impl Into<String>) -> Self {
        self.advice.get_or_insert_with(|| advice.into());
        self
    }

    /// Says more of what is the matter.
    #[must_use]
    pub(crate) fn because(mut self, details: &str) -> Self {
        self.reason = format!("{}: {details}", self.reason);
        self
    }

    /// What is the matter, and what was changed before.
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
    /// A member has no room for what was written ([`crate::MemberErrorKind::NoSpace`]): it is no failed member, and what it
    /// holds is as good as before.
    NoSpace,
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

    /// What becomes of a demand on the way to which the array itself failed.
    pub(crate) fn refusal(self) -> Refusal {
        Refusal::new(self.reason).after("superblocks were written, on some of the members perhaps").advice(
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
