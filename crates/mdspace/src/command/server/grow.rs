//! Growth of a running array, for a server's command `grow` and for `mdspace grow` without a server.
//!
//! The plan is checked completely before anything is written.

use crate::command::server::replies::refused;
use crate::command::text::failure::Failure;
use crate::machine::Array;
use control::{ApiError, GrowRequest};
use engine::{ArrayError, Refusal};

/// Carries out the control command `grow`.
pub(crate) async fn command(array: &Array, request: GrowRequest) -> Result<(), ApiError> {
    match grow(array, request).await {
        Ok(_) => Ok(()),
        Err(NotGrown::Refused(refusal)) => Err(refused(409, refusal)),
        Err(NotGrown::Failed(error)) => Err(ApiError::new(500, error.reason)),
    }
}

/// The outcome of a growth.
pub(crate) enum Growth {
    Changed,
    /// The array had the wanted size; members that an interrupted `grow` had not reached now record it.
    Completed,
    Unchanged,
}

/// Why an array did not grow.
pub(crate) enum NotGrown {
    /// Nothing was changed.
    Refused(Refusal),
    /// A member failed during the change.
    Failed(ArrayError),
}

impl From<Refusal> for NotGrown {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<ArrayError> for NotGrown {
    fn from(error: ArrayError) -> Self {
        Self::Failed(error)
    }
}

impl From<NotGrown> for Failure {
    fn from(error: NotGrown) -> Self {
        match error {
            NotGrown::Refused(refusal) => refusal.into(),
            NotGrown::Failed(error) => error.into(),
        }
    }
}

/// Grows `array` as `request` says.
pub(crate) async fn grow(array: &Array, request: GrowRequest) -> Result<Growth, NotGrown> {
    match request {
        GrowRequest::Size(wanted) => {
            if let Some(growth) = array.plan_growth(wanted)? {
                array.grow(growth).await?;
                return Ok(Growth::Changed);
            }
        }
        GrowRequest::RaidDevices(wanted) => {
            if array.check_copies(wanted)? {
                array.set_copies(wanted).await?;
                return Ok(Growth::Changed);
            }
        }
    }
    complete(array).await
}

/// For an array of the wanted size: completes the superblocks that an interrupted `grow` did not reach.
pub(crate) async fn complete(array: &Array) -> Result<Growth, NotGrown> {
    Ok(if array.end_growth().await? { Growth::Completed } else { Growth::Unchanged })
}
