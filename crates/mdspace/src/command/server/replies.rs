//! Replies to control commands: JSON bodies and refusals.

use crate::command::opening::target::Target;
use crate::command::server::exports::ExportStatus;
use crate::command::server::metrics::Snapshot;
use crate::command::server::saved_scrub::LastScrub;
use crate::command::server::smart::{Smart, Smarts};
use crate::command::text::size::Size;
use crate::command::text::wording::describe;
use crate::drive::{Drive, Drives};
use crate::machine::{Array, Machine};
use control::ApiError;
use engine::Refusal;
use engine::status::Status;
use export::measure::Measures;
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
    /// What is served, if it is inside of the array.
    pub(super) inner: Option<InnerServed>,
    /// The last complete scrub. It is a field of the status itself.
    #[serde(skip)]
    pub(super) last_scrub: Option<LastScrub>,
    /// The drives of members, whose fields are theirs.
    #[serde(skip)]
    pub(super) drives: Drives,
    /// What smartd noted of these.
    #[serde(skip)]
    pub(super) smarts: Smarts,
}

impl Served {
    /// What smartd noted of the drive of the member with this name.
    fn smart(&self, name: &str) -> Option<Smart> {
        self.smarts.of(&self.drives.of(name)?)
    }
}

/// Something inside of one or more arrays that is served in their place.
#[derive(Serialize)]
pub(super) struct InnerServed {
    name: String,
    bytes: u64,
    read_only: bool,
    /// The other arrays that it lies on. The first one's status is the status itself.
    others: Vec<Status>,
}

impl InnerServed {
    pub(super) fn of(target: &Target) -> Option<Self> {
        let others = target.arrays[1..].iter().map(Array::status).collect();
        let (bytes, read_only) = (target.volume.bytes(), target.volume.is_read_only());
        target.inner.clone().map(|name| Self { name, bytes, read_only, others })
    }

    /// Lines of the server's greeting.
    pub(super) fn lines(&self) -> String {
        let access = if self.read_only { ", read-only" } else { "" };
        let mut text = format!("  {:<10} {}, {}{access}\n", "inside", self.name, Size(self.bytes));
        for Status { name, level, array_bytes, state, .. } in &self.others {
            text += &format!("  {:<10} {}\n", "also on", describe(name, level, *array_bytes, state));
        }
        text
    }
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
    /// The metrics, with these measures.
    Metrics(Box<Measures>),
}

impl Answer {
    pub(super) fn body(self, array: &Array, served: &Served) -> Value {
        match self {
            Self::Status => status(array, served),
            Self::Body(body) => body,
            Self::Metrics(measures) => metrics(array, served, *measures).text().into(),
        }
    }
}

pub(super) fn status(array: &Array, served: &Served) -> Value {
    let mut status = json(&ServedStatus { array: array.status(), last_scrub: &served.last_scrub, served });
    add_drives(&mut status, served);
    if served.inner.is_some() {
        let others = status["served"]["inner"]["others"].as_array_mut();
        others.into_iter().flatten().for_each(|other| add_drives(other, served));
    }
    status
}

/// Adds what is known of its drive to each member in an array's status.
fn add_drives(status: &mut Value, served: &Served) {
    for list in ["members", "left_out"] {
        for member in status[list].as_array_mut().into_iter().flatten() {
            let name = member["name"].as_str().unwrap_or_default();
            let smart = served.smart(name);
            let Drive { model, serial } = served.drives.of(name).unwrap_or_default();
            (member["model"], member["serial"], member["smart"]) = (model.into(), serial.into(), json(&smart));
        }
    }
}

fn metrics(array: &Array, served: &Served, measures: Measures) -> Snapshot {
    let status = array.status();
    let smarts = status.members.iter().filter_map(|member| Some((member.name.clone(), served.smart(&member.name)?)));
    Snapshot {
        smarts: smarts.collect(),
        status,
        measures,
        exports: served.ways.clone(),
        io: served.io.backend,
        last_scrub: served.last_scrub.clone(),
        scrub: array.scrub_report(),
    }
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
