//! Replies to control commands: JSON bodies and refusals.

use crate::command::server::exports::ExportStatus;
use crate::command::server::saved_scrub::LastScrub;
use crate::machine::{Array, Machine};
use engine::Refusal;
use engine::status::Status;
use export::control::ApiError;
use io::Backend;
use serde::Serialize;
use serde_json::Value;

/// The status of a served array. Its fields are a stable interface (docs/json.md).
#[derive(Serialize)]
struct ServedStatus<'a> {
    #[serde(flatten)]
    array: Status,
    last_scrub: &'a Option<LastScrub>,
    served: &'a Served,
}

/// The part of the status about the server.
#[derive(Serialize)]
pub(super) struct Served {
    /// The NBD URI.
    pub(super) nbd: String,
    /// Current NBD connections.
    pub(super) clients: usize,
    /// All open exports, NBD among them.
    pub(super) ways: Vec<ExportStatus>,
    /// The URL of control, metrics and the page, if HTTP is on.
    pub(super) http: Option<String>,
    /// How members and sockets are read and written.
    pub(super) io: Io,
    /// The server's process.
    pub(super) pid: u32,
    /// The last complete scrub. It is a field of the status itself.
    #[serde(skip)]
    pub(super) last_scrub: Option<LastScrub>,
}

/// The backend of input and output.
#[derive(Clone, Serialize)]
pub(super) struct Io {
    backend: &'static str,
    /// Why the system refused io_uring, if threads were not asked for.
    refusal: Option<String>,
    /// The price of the backend, in words.
    cost: Option<&'static str>,
}

impl Io {
    pub(super) fn of(machine: &Machine) -> Self {
        let (backend, refusal) = machine.backend();
        Self { backend: backend.name(), refusal, cost: (backend == Backend::Threads).then_some(THREADS_COST) }
    }

    /// A sentence for the log.
    pub(super) fn text(&self) -> String {
        let Self { backend, refusal, cost } = self;
        let refusal = refusal.as_ref().map(|error| format!(", as the system refuses io_uring ({error})"));
        let cost = cost.map(|cost| format!(": {cost}"));
        format!("input and output by {backend}{}{}", refusal.unwrap_or_default(), cost.unwrap_or_default())
    }
}

/// From docs/decisions/0108-threads-where-io-uring-is-refused.md.
const THREADS_COST: &str = "large reads take up to twice the processor time, and ublk is not there";

/// The reply to `stop`.
#[derive(Serialize)]
pub(super) struct Stopped<'a> {
    pub(super) state: &'a str,
    pub(super) pid: u32,
}

/// The result of a command.
pub(super) enum Answer {
    /// The array's status.
    Status,
    /// This body.
    Body(Value),
}

impl Answer {
    pub(super) fn body(self, array: &Array, served: &Served) -> Value {
        match self {
            Self::Status => status(array, served),
            Self::Body(body) => body,
        }
    }
}

pub(super) fn status(array: &Array, served: &Served) -> Value {
    json(&ServedStatus { array: array.status(), last_scrub: &served.last_scrub, served })
}

pub(super) fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("our own types have string keys")
}

/// `refusal` with the HTTP status `status`; with 500 if something was changed.
pub(super) fn refused(status: u16, refusal: Refusal) -> ApiError {
    let status = if refusal.changed.is_some() { 500 } else { status };
    let reason = refusal.reason_and_changes();
    let Refusal { member, field, advice, .. } = refusal;
    ApiError { member, field, advice, ..ApiError::new(status, reason) }
}
