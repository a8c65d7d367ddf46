//! Control of a running array: HTTP and JSON over a unix socket of mode 0600,
//! so that `curl --unix-socket` works as well as the command; and over a loopback TCP port, if asked.
//!
//! [`ROUTES`] is the one list of what can be asked; each route decodes its body
//! into a [`Command`], and a [`ControlBackend`] carries commands out. The
//! server runs on a management thread of its own and never touches data: the
//! backend hands what it is asked to the array's thread. Described for users
//! in `docs/control.md`.

mod access;
mod client;
mod server;
mod webhook;

pub use access::{TOKEN_CHARS_MIN, Token};
pub use client::{Client, ClientError};
pub use server::{ControlServer, Socket};
pub use webhook::Webhook;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;

/// The longest body of a request that is read, in bytes.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// How the array is.
    Status,
    /// What was measured until now.
    Measures,
    /// The same and the status, as Prometheus reads them.
    Metrics,
    /// The members' last transfers.
    Trace(TraceRequest),
    /// Take a member out of use, as if it had failed.
    FailMember(MemberRequest),
    /// Let go of a member that is not in use.
    RemoveMember(MemberRequest),
    /// Take in a new member, as a spare or for an empty slot.
    AddMember(AddRequest),
    /// Take a member back that was away.
    ReAddMember(MemberRequest),
    /// Replace a member by another while it stays in use.
    ReplaceMember(ReplaceRequest),
    /// Change settings of the running array: key and value, all or none.
    Set(BTreeMap<String, String>),
    /// Use more of each member, or have more copies or fewer.
    Grow(GrowRequest),
    /// Begin a check or repair, or do something about the one that is under way.
    Scrub(ScrubRequest),
    /// What the check or repair under way, or the last one, found.
    ScrubReport,
    /// Leave the array clean, and end.
    Stop,
}

/// A query for transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// The number of the first that is wanted, as the last answer's `next` has it; none: only begin.
    pub from: Option<u64>,
}

/// A body that names a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberRequest {
    /// As it was given to the command, or as `status` shows it.
    pub member: String,
}

/// A body that names a new member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddRequest {
    /// Its path, as the server finds it.
    pub member: String,
    /// Take it even if it carries a superblock.
    #[serde(default)]
    pub force: bool,
}

/// A body that names a member and who is to replace it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaceRequest {
    /// As it was given to the command, or as `status` shows it.
    pub member: String,
    /// A spare of the array, or the path of a new member, as the server finds it.
    pub with: String,
    /// Take a new one even if it carries a superblock.
    #[serde(default)]
    pub force: bool,
}

/// A body that says what an array is to grow to: one of these, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GrowRequest {
    /// So many bytes of each member; as many as all of them have when there is no number.
    Size(Option<u64>),
    /// So many copies of a RAID-1.
    RaidDevices(u16),
}

/// A body that asks for a check or repair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScrubRequest {
    /// What to do.
    pub action: ScrubCommand,
    /// The first byte of the array to go over; the start when there is none.
    #[serde(default)]
    pub offset: Option<u64>,
    /// How many bytes; up to the end when there is none.
    #[serde(default)]
    pub length: Option<u64>,
}

/// What is asked of a check or repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScrubCommand {
    /// Begin one that writes nothing.
    Check,
    /// Begin one that heals what is decided.
    Repair,
    /// Begin one that also takes md's choice where nothing is decided.
    RepairParity,
    /// Let it stand still.
    Pause,
    /// Let it go on.
    Resume,
    /// End it.
    Cancel,
}

/// A body without fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoFields {}

/// Carries commands out.
pub trait ControlBackend: Send + Sync + 'static {
    /// Does `command`; what it returns is the body of the answer.
    fn call(&self, command: Command) -> impl Future<Output = Result<Value, ApiError>> + Send;
}

/// How a route is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Changes nothing.
    Get,
    /// May change something.
    Post,
}

/// What an answer is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// JSON, as errors always are.
    Json,
    /// OpenMetrics' text.
    OpenMetrics,
    /// The page of the array.
    Html,
    /// How it looks.
    Css,
    /// What it does.
    JavaScript,
}

impl Content {
    /// As HTTP calls it.
    fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Html => "text/html; charset=utf-8",
            Self::Css => "text/css; charset=utf-8",
            Self::JavaScript => "text/javascript; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// One thing that can be asked.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// How.
    pub method: Method,
    /// Where.
    pub path: &'static str,
    /// What comes back.
    pub content: Content,
    /// From the body, or what stands behind the `?` of a GET, to the command.
    decode: fn(&[u8]) -> Result<Command, ApiError>,
}

/// The page of the array for a browser, in plain files: it asks the routes below.
pub const PAGES: [(&str, Content, &str); 3] = [
    ("/", Content::Html, include_str!("page/index.html")),
    ("/page.css", Content::Css, include_str!("page/page.css")),
    ("/page.js", Content::JavaScript, include_str!("page/page.js")),
];

const fn get(path: &'static str, content: Content, decode: fn(&[u8]) -> Result<Command, ApiError>) -> Route {
    Route { method: Method::Get, path, content, decode }
}

const fn post(path: &'static str, decode: fn(&[u8]) -> Result<Command, ApiError>) -> Route {
    Route { method: Method::Post, path, content: Content::Json, decode }
}

/// Everything that can be asked.
pub const ROUTES: [Route; 14] = [
    get("/v1/status", Content::Json, |query| asked(query).map(|NoFields {}| Command::Status)),
    get("/v1/measures", Content::Json, |query| asked(query).map(|NoFields {}| Command::Measures)),
    get("/v1/trace", Content::Json, |query| asked(query).map(Command::Trace)),
    get("/metrics", Content::OpenMetrics, |query| asked(query).map(|NoFields {}| Command::Metrics)),
    post("/v1/members/fail", |body| parse(body).map(Command::FailMember)),
    post("/v1/members/remove", |body| parse(body).map(Command::RemoveMember)),
    post("/v1/members/add", |body| parse(body).map(Command::AddMember)),
    post("/v1/members/re-add", |body| parse(body).map(Command::ReAddMember)),
    post("/v1/members/replace", |body| parse(body).map(Command::ReplaceMember)),
    post("/v1/set", |body| parse(body).map(Command::Set)),
    post("/v1/grow", |body| parse(body).map(Command::Grow)),
    get("/v1/scrub", Content::Json, |query| asked(query).map(|NoFields {}| Command::ScrubReport)),
    post("/v1/scrub", |body| parse(body).map(Command::Scrub)),
    post("/v1/stop", |body| parse(body).map(|NoFields {}| Command::Stop)),
];

/// Reads a body; none at all is an empty object.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| {
        let advice = "send a JSON object with the fields of docs/control.md";
        ApiError::new(400, format!("the body cannot be used: {error}")).advice(advice)
    })
}

/// Reads a query.
fn asked<T: DeserializeOwned>(query: &[u8]) -> Result<T, ApiError> {
    serde_urlencoded::from_bytes(query).map_err(|error| {
        let advice = "ask with the fields of docs/control.md";
        ApiError::new(400, format!("the query cannot be used: {error}")).advice(advice)
    })
}

/// Why something was not done; the body of such an answer is
/// `{"error": {...}}` with these fields but the status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiError {
    /// The HTTP status: 4xx when it was refused and nothing changed.
    #[serde(skip)]
    pub status: u16,
    /// What happened.
    pub message: String,
    /// Which member it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Which field, of the request or of the member's metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl ApiError {
    /// An error with its HTTP status and what happened.
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), member: None, field: None, advice: None }
    }

    /// Names the member that it is about.
    #[must_use]
    pub fn member(self, member: impl Into<String>) -> Self {
        Self { member: Some(member.into()), ..self }
    }

    /// Names the field that it is about.
    #[must_use]
    pub fn field(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// Says what to do next.
    #[must_use]
    pub fn advice(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

/// How an error looks on the wire.
#[derive(Serialize, Deserialize)]
struct ErrorBody {
    error: ApiError,
}
