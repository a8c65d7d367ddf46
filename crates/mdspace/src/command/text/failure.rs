//! Why a command failed: what, where, and what to do next.
//!
//! A failure has one of two kinds, which give the exit status: an error of the array or its data (1), or a refusal that
//! changed nothing (2). Code that cannot promise that nothing changed returns the first kind.

use crate::machine::not_opened;
use crate::maps::{HIDDEN, Maps};
use engine::{ArrayError, ArrayErrorKind, Refusal};
use format::text::plain;
use std::fmt;
use std::process::ExitCode;

/// The two ways to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The array, a member or the data failed, or a change is incomplete.
    Unwell,
    /// Nothing was changed.
    Refused,
}

/// A failure, for the user to read.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    /// What failed and where: the member or file first.
    message: String,
    /// What to do next.
    advice: Option<String>,
}

impl Failure {
    /// A refusal: nothing was changed.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self { kind: Kind::Refused, message: message.into(), advice: None }
    }

    /// The refusal of an export, or of the control interface, that cannot be opened.
    pub(crate) fn not_opened(error: &std::io::Error) -> Self {
        // What opens them would block for nothing else.
        if error.kind() == std::io::ErrorKind::WouldBlock {
            let limits = "`ulimit -u`, TasksMax= of a unit, the limit of a container";
            return Self::refused(format!("no thread can be made: {error}"))
                .advise(format!("raise the limit on threads ({limits}); commands without a server need none"));
        }
        Self::refused(error.to_string())
    }

    /// The array or its data failed, or a change is incomplete.
    pub(crate) fn unwell(message: impl Into<String>) -> Self {
        Self { kind: Kind::Unwell, message: message.into(), advice: None }
    }

    /// Adds what to do next.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// What failed and where, without the advice.
    pub(crate) fn reason(&self) -> String {
        self.message.clone()
    }

    /// What to do next.
    pub(crate) fn advice(&self) -> Option<String> {
        self.advice.clone()
    }

    /// The exit status that says which kind it was.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self.kind {
            Kind::Unwell => ExitCode::from(1),
            Kind::Refused => ExitCode::from(2),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = match self.kind {
            Kind::Unwell => "error",
            Kind::Refused => "refused",
        };
        write!(f, "{label}: {}", plain(&self.message))?;
        if let Some(advice) = &self.advice {
            write!(f, "\n  next: {}", plain(advice))?;
        }
        Ok(())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let kind = if refusal.changed.is_some() { Kind::Unwell } else { Kind::Refused };
        let reason = refusal.reason_and_changes();
        let hidden = Maps::hide(&refusal).then(|| HIDDEN.to_owned());
        let Refusal { member, field, advice, .. } = refusal;
        let advice = advice.or(hidden);
        let place: Vec<String> = member.into_iter().chain(field).chain([reason]).collect();
        Self { kind, message: place.join(": "), advice }
    }
}

impl From<io::OpenError> for Failure {
    fn from(error: io::OpenError) -> Self {
        not_opened(&error).into()
    }
}

impl From<ArrayError> for Failure {
    fn from(error: ArrayError) -> Self {
        match error.kind {
            ArrayErrorKind::OutOfRange | ArrayErrorKind::ReadOnly => Self::refused(error.reason),
            ArrayErrorKind::Io | ArrayErrorKind::NoSpace | ArrayErrorKind::Stopped => Self::unwell(error.reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_and_what_to_do_next() {
        let failure = Failure::refused("a.img: no superblock").advise("name another member");
        assert_eq!(failure.to_string(), "refused: a.img: no superblock\n  next: name another member");
        assert_eq!(failure.exit_code(), ExitCode::from(2));
        let failure = Failure::unwell("b.img: read failed");
        assert_eq!(failure.to_string(), "error: b.img: read failed");
        assert_eq!(failure.exit_code(), ExitCode::from(1));
        let failure = Failure::from(Refusal::new("is 0").of("a.img").field("superblock.chunksize"));
        assert_eq!(failure.to_string(), "refused: a.img: superblock.chunksize: is 0");
        let failure = Failure::from(Refusal::new("write failed").of("a.img").after("its superblock is gone"));
        assert_eq!(failure.to_string(), "error: a.img: write failed; its superblock is gone");
        assert_eq!(failure.exit_code(), ExitCode::from(1));
    }
}
