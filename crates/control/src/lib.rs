//! Control of a running array: HTTP and JSON over a unix socket of mode 0600, which `curl --unix-socket` reaches too,
//! and optionally over a TCP port: plain on the loopback address, through TLS on any (the feature `https`).
//!
//! [`ROUTES`] is the one list of requests. Each route decodes its body into a [`Command`], and a [`ControlBackend`]
//! carries commands out. The server runs on a management thread of its own and never touches data: the backend passes
//! commands to the array's thread. `docs/control.md` describes the routes for users.
#![forbid(unsafe_code)]

mod access;
mod client;
mod exposition;
mod machine;
#[cfg(feature = "https")]
mod secured;
mod server;
mod webhook;

pub use access::{TOKEN_CHARS_MIN, Token};
pub use client::{Client, ClientError};
pub use machine::{Creation, Machine};
pub use server::{ControlServer, Socket};
pub use webhook::Webhook;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;

/// Maximum length of a request's body, in bytes.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;

/// A request to the array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// The state of the array.
    Status,
    /// All measurements since the server's start.
    Measures,
    /// The measurements and the status, as OpenMetrics text for Prometheus.
    Metrics,
    /// Whether the array's thread answers.
    Alive,
    /// Whether the array takes requests.
    Ready,
    /// The members' most recent transfers.
    Trace(TraceRequest),
    /// Fail a member, as if its device had failed.
    FailMember(MemberRequest),
    /// Remove a member that is not in use.
    RemoveMember(MemberRequest),
    /// Add a new member, as a spare or for an empty slot.
    AddMember(AddRequest),
    /// Re-add a member that was away.
    ReAddMember(MemberRequest),
    /// Replace a member while it stays in use.
    ReplaceMember(ReplaceRequest),
    /// Change settings of the running array, by key and value: all of them or none.
    Set(BTreeMap<String, String>),
    /// Use more of each member, or change the number of copies.
    Grow(GrowRequest),
    /// Start a check or repair, or control the running one.
    Scrub(ScrubRequest),
    /// The findings of the running check or repair, or of the last one.
    ScrubReport,
    /// Stop the array, leave it clean, and end the server.
    Stop,
}

/// A query for transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// The number of the first transfer wanted: `next` of the last answer. Without it, tracing only starts.
    pub from: Option<u64>,
}

/// A body that names a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberRequest {
    /// Its name, as on the command line or in `status`.
    pub member: String,
}

/// A body that names a new member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddRequest {
    /// The path, as the server resolves it.
    pub member: String,
    /// Add the device even if it carries a superblock.
    #[serde(default)]
    pub force: bool,
    /// Read the member only where no other can serve.
    #[serde(default)]
    pub write_mostly: bool,
    /// Have md fail the member's requests fast.
    #[serde(default)]
    pub failfast: bool,
    /// The UUID of the array that has given the device up as a spare: its superblock as such is overwritten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare_of: Option<String>,
}

/// A body that names a member and its replacement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaceRequest {
    /// Its name, as on the command line or in `status`.
    pub member: String,
    /// A spare of the array, or the path of a new member, as the server resolves it. Without it: any spare.
    #[serde(default)]
    pub with: Option<String>,
    /// Use a new member even if it carries a superblock.
    #[serde(default)]
    pub force: bool,
}

/// A body with the size to grow to: one of these, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GrowRequest {
    /// Bytes used of each member. Without a number: as many as every member has.
    Size(Option<u64>),
    /// The number of copies of a RAID-1.
    RaidDevices(u16),
}

/// A body that starts or controls a check or repair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScrubRequest {
    /// The action.
    pub action: ScrubCommand,
    /// The first byte of the array to sweep. Default: 0.
    #[serde(default)]
    pub offset: Option<u64>,
    /// How many bytes to sweep. Default: up to the end.
    #[serde(default)]
    pub length: Option<u64>,
}

/// The action on a check or repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScrubCommand {
    /// Start a check, which writes nothing.
    Check,
    /// Start a repair, which rewrites blocks where the faulty member is identified.
    Repair,
    /// Start a repair that also recomputes parity, as md does, where no faulty member is identified.
    RepairParity,
    /// Pause the running one.
    Pause,
    /// Resume the paused one.
    Resume,
    /// Cancel the running one.
    Cancel,
}

/// A body without fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoFields {}

/// Carries commands out.
pub trait ControlBackend: Send + Sync + 'static {
    /// Carries out `command`. The returned value becomes the body of the answer.
    fn call(&self, command: Command) -> impl Future<Output = Result<Value, ApiError>> + Send;
}

/// The HTTP method of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Changes nothing.
    Get,
    /// May change something.
    Post,
}

/// The type of an answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// JSON. Errors are always JSON.
    Json,
    /// OpenMetrics text, or the older text format of Prometheus, as the client wants.
    Metrics,
    /// Text of one line.
    Text,
    /// The web page of the array.
    Html,
    /// The page's style sheet.
    Css,
    /// The page's script.
    JavaScript,
}

impl Content {
    /// The value of the Content-Type header.
    fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Html => "text/html; charset=utf-8",
            Self::Css => "text/css; charset=utf-8",
            Self::JavaScript => "text/javascript; charset=utf-8",
            Self::Text => "text/plain; charset=utf-8",
            Self::Metrics => exposition::OPEN_METRICS,
        }
    }
}

/// One request that the server answers.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// The HTTP method.
    pub method: Method,
    /// The path of the URL.
    pub path: &'static str,
    /// The type of the answer's body.
    pub content: Content,
    /// Whether a client on another machine may send it without the token. It then learns one word.
    pub is_open: bool,
    /// Decodes the command from the body of a POST, or from the query string of a GET.
    decode: fn(&[u8]) -> Result<Command, ApiError>,
}

/// The files of the web page. The page's script requests the routes below. They tell nothing about the array, so that
/// every client may load them.
pub const PAGES: [(&str, Content, &str); 5] = [
    ("/", Content::Html, include_str!("page/index.html")),
    ("/page.css", Content::Css, include_str!("page/page.css")),
    ("/common.js", Content::JavaScript, include_str!("page/common.js")),
    ("/page.js", Content::JavaScript, include_str!("page/page.js")),
    ("/forms.js", Content::JavaScript, include_str!("page/forms.js")),
];

const fn get(path: &'static str, content: Content, decode: fn(&[u8]) -> Result<Command, ApiError>) -> Route {
    Route { method: Method::Get, path, content, is_open: false, decode }
}

const fn post(path: &'static str, decode: fn(&[u8]) -> Result<Command, ApiError>) -> Route {
    Route { method: Method::Post, path, content: Content::Json, is_open: false, decode }
}

/// A probe of the server's health. Probes of orchestrators send no token.
const fn probe(path: &'static str, decode: fn(&[u8]) -> Result<Command, ApiError>) -> Route {
    Route { is_open: true, ..get(path, Content::Text, decode) }
}

/// Every route of the server.
pub const ROUTES: [Route; 16] = [
    get("/v1/status", Content::Json, |query| asked(query).map(|NoFields {}| Command::Status)),
    get("/v1/measures", Content::Json, |query| asked(query).map(|NoFields {}| Command::Measures)),
    get("/v1/trace", Content::Json, |query| asked(query).map(Command::Trace)),
    get("/metrics", Content::Metrics, |query| asked(query).map(|NoFields {}| Command::Metrics)),
    probe("/healthz", |query| asked(query).map(|NoFields {}| Command::Alive)),
    probe("/readyz", |query| asked(query).map(|NoFields {}| Command::Ready)),
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

/// Decodes a body. An empty body counts as an empty object.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| {
        let advice = "send a JSON object with the fields of docs/control.md";
        ApiError::new(400, format!("the body cannot be used: {error}")).advice(advice)
    })
}

/// Decodes a query string.
fn asked<T: DeserializeOwned>(query: &[u8]) -> Result<T, ApiError> {
    serde_urlencoded::from_bytes(query).map_err(|error| {
        let advice = "ask with the fields of docs/control.md";
        ApiError::new(400, format!("the query cannot be used: {error}")).advice(advice)
    })
}

/// Why a command was not carried out. The body of such an answer is `{"error": {...}}` with these fields, except the
/// status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiError {
    /// The HTTP status. With 4xx the command was refused and nothing changed.
    #[serde(skip)]
    pub status: u16,
    /// What happened.
    pub message: String,
    /// The member concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// The field concerned, of the request or of the member's metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What the user can do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl ApiError {
    /// An error with its HTTP status and what happened.
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), member: None, field: None, advice: None }
    }

    /// Adds the member concerned.
    #[must_use]
    pub fn member(self, member: impl Into<String>) -> Self {
        Self { member: Some(member.into()), ..self }
    }

    /// Adds the field concerned.
    #[must_use]
    pub fn field(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// Adds what the user can do next.
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

/// The JSON form of an error.
#[derive(Serialize, Deserialize)]
struct ErrorBody {
    error: ApiError,
}
