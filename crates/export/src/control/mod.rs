//! Control of a running array: HTTP and JSON over a unix socket of mode 0600,
//! so that `curl --unix-socket` works as well as the command.
//!
//! [`ROUTES`] is the one list of what can be asked; each route decodes its body
//! into a [`Command`], and a [`ControlBackend`] carries commands out. The
//! server runs on a management thread of its own and never touches data: the
//! backend hands what it is asked to the array's thread. Described for users
//! in `docs/control.md`.

mod client;
mod server;

pub use client::{Client, ClientError};
pub use server::ControlServer;

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
    /// Take a member out of use, as if it had failed.
    FailMember(MemberRequest),
    /// Let go of a member that is not in use.
    RemoveMember(MemberRequest),
    /// Take in a new member, as a spare or for an empty slot.
    AddMember(AddRequest),
    /// Take a member back that was away.
    ReAddMember(MemberRequest),
    /// Change settings of the running array: key and value, all or none.
    Set(BTreeMap<String, String>),
    /// Leave the array clean, and end.
    Stop,
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

/// One thing that can be asked.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// How.
    pub method: Method,
    /// Where.
    pub path: &'static str,
    /// From the body to the command.
    decode: fn(&[u8]) -> Result<Command, ApiError>,
}

/// Everything that can be asked.
pub const ROUTES: [Route; 7] = [
    Route { method: Method::Get, path: "/v1/status", decode: |_| Ok(Command::Status) },
    Route { method: Method::Post, path: "/v1/members/fail", decode: |body| parse(body).map(Command::FailMember) },
    Route { method: Method::Post, path: "/v1/members/remove", decode: |body| parse(body).map(Command::RemoveMember) },
    Route { method: Method::Post, path: "/v1/members/add", decode: |body| parse(body).map(Command::AddMember) },
    Route { method: Method::Post, path: "/v1/members/re-add", decode: |body| parse(body).map(Command::ReAddMember) },
    Route { method: Method::Post, path: "/v1/set", decode: |body| parse(body).map(Command::Set) },
    Route { method: Method::Post, path: "/v1/stop", decode: |body| parse(body).map(|NoFields {}| Command::Stop) },
];

/// Reads a body; none at all is an empty object.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| {
        let advice = "send a JSON object with the fields of docs/control.md";
        ApiError::new(400, format!("the body cannot be used: {error}")).advice(advice)
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
