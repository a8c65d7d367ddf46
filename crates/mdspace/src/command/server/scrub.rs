//! Scrubs of a served array, as control commands ask for them.

use crate::command::server::replies::{json, refused};
use crate::machine::Array;
use control::{ApiError, ScrubCommand};
use engine::{Refusal, ScrubAction, ScrubReport, ScrubRequest, SweepStatus};
use serde::Serialize;
use serde_json::Value;
use std::ops::Range;

/// The reply to a question about a scrub. Its fields are a stable interface (docs/json.md).
#[derive(Serialize)]
struct ScrubReply {
    /// The scrub's request and findings; `None` if there was no scrub.
    scrub: Option<ScrubReport>,
    /// The progress of the running sweep.
    sweep: Option<SweepStatus>,
}

/// The bytes of an array of `array_bytes` that were asked for.
pub(crate) fn range(offset: Option<u64>, length: Option<u64>, array_bytes: u64) -> Option<Range<u64>> {
    let start = offset.unwrap_or(0);
    let end = length.map_or(array_bytes, |length| start.saturating_add(length));
    (offset.is_some() || length.is_some()).then_some(start..end)
}

/// Answers what a served array's scrub has found.
pub(crate) fn served_report(array: &Array) -> Result<Value, ApiError> {
    Ok(json(&ScrubReply { scrub: array.scrub_report(), sweep: array.status().sweep }))
}

/// Does what a control client asks of a served array's scrub.
pub(crate) async fn command(array: &Array, request: &control::ScrubRequest) -> Result<Value, ApiError> {
    let begin = |action| {
        let range = range(request.offset, request.length, array.bytes());
        array.begin_scrub(&ScrubRequest { action, range })
    };
    let done: Result<(), Refusal> = match request.action {
        ScrubCommand::Check => begin(ScrubAction::Check),
        ScrubCommand::Repair => begin(ScrubAction::Repair),
        ScrubCommand::RepairParity => begin(ScrubAction::RepairParity),
        ScrubCommand::Pause => array.pause_scrub(true),
        ScrubCommand::Resume => array.pause_scrub(false),
        ScrubCommand::Cancel => array.cancel_scrub(),
    };
    done.map_err(|refusal| refused(409, refusal))?;
    if matches!(request.action, ScrubCommand::Pause | ScrubCommand::Cancel) {
        array.scrub_at_rest().await;
    }
    served_report(array)
}
