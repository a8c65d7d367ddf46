//! The arrays that this user's servers serve: each control socket is asked for its array's status, all at the same time.
//!
//! A server that has ended, or does not answer in time, is a result and not a failure.

use crate::command::opening::sockets::{UUID_DIGITS, named_after};
use crate::command::text::wording::utc;
use control::{Client, ClientError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a server may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// A control socket, and what its server answered.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) socket: PathBuf,
    pub(crate) answer: Answer,
}

/// The answer of a server.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The array's status.
    Array(Box<ArrayView>),
    /// No usable answer, for this reason.
    Silent(String),
    /// No process listens on the socket: its server was killed.
    Gone,
    /// There is no server: the array was found on disks.
    NotServed(Box<OnDisks>),
}

/// An array that was found on disks and is not served.
#[derive(Debug)]
pub(crate) struct OnDisks {
    pub(crate) uuid: String,
    pub(crate) name: String,
    pub(crate) members: Vec<String>,
    /// Its status if it were read now, or why it cannot be.
    pub(crate) array: Result<ArrayView, String>,
}

/// The fields of a served array's status that lists, choices and waits need.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ArrayView {
    pub(crate) uuid: String,
    pub(crate) name: String,
    /// Older servers do not send this.
    #[serde(default)]
    pub(crate) metadata: String,
    pub(crate) level: String,
    pub(crate) array_bytes: u64,
    pub(crate) raid_disks: u16,
    pub(crate) in_sync: u16,
    /// Older servers do not send this.
    #[serde(default)]
    pub(crate) may_fail: Option<u16>,
    pub(crate) state: String,
    pub(crate) broken: Option<String>,
    pub(crate) read_only: bool,
    pub(crate) in_agreement: bool,
    pub(crate) sync_action: String,
    pub(crate) sweep: Option<Value>,
    pub(crate) sweep_failure: Option<String>,
    /// Older servers do not send this.
    #[serde(default)]
    pub(crate) last_scrub: Option<LastScrubView>,
    pub(crate) members: Vec<MemberOf>,
    pub(crate) served: ServerView,
}

/// The last complete scrub.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(crate) struct LastScrubView {
    pub(crate) action: String,
    pub(crate) ended: u64,
    pub(crate) found: u64,
    pub(crate) left: u64,
}

/// A member's name and state.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct MemberOf {
    pub(crate) name: String,
    pub(crate) state: String,
}

/// The server's process.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ServerView {
    pub(crate) pid: i32,
}

impl LastScrubView {
    /// In one line.
    pub(crate) fn text(&self) -> String {
        let Self { action, ended, found, left } = self;
        let result = match (found, left) {
            (0, _) => "nothing was wrong".to_owned(),
            (found, 0) => format!("{found} rows were wrong, all repaired"),
            (found, left) => format!("{found} rows were wrong, {left} are left so"),
        };
        format!("last scrub: {action}, {}: {result}", utc(*ended))
    }
}

/// How many more members may fail, in words.
pub(crate) fn margin(may_fail: u16) -> String {
    if may_fail == 0 { "no more may fail".to_owned() } else { format!("{may_fail} more may fail") }
}

impl ArrayView {
    /// How many more members may fail, in words; `None` while none is missing.
    pub(crate) fn margin(&self) -> Option<String> {
        let is_degraded = self.in_sync < self.raid_disks && self.broken.is_none();
        self.may_fail.filter(|_| is_degraded).map(margin)
    }

    /// How safe the data is, in a word (docs/json.md).
    pub(crate) fn health(&self) -> &'static str {
        match self {
            Self { broken: Some(_), .. } => "failed",
            Self { in_sync, raid_disks, .. } if in_sync < raid_disks => "degraded",
            Self { in_agreement: false, .. } => "unsynced",
            _ => "healthy",
        }
    }
}

impl Served {
    /// The array, if the server answered.
    pub(crate) fn array(&self) -> Option<&ArrayView> {
        match &self.answer {
            Answer::Array(array) => Some(array),
            Answer::NotServed(found) => found.array.as_ref().ok(),
            Answer::Silent(_) | Answer::Gone => None,
        }
    }

    /// The array's name; from the name of the socket, if the server did not answer.
    pub(crate) fn name(&self) -> String {
        if let Answer::NotServed(found) = &self.answer {
            return found.name.clone();
        }
        self.array().map_or_else(|| named_after(&self.socket).0, |array| array.name.clone())
    }

    /// The first digits of the array's uuid; empty if they are unknown.
    pub(crate) fn short_uuid(&self) -> String {
        if let Answer::NotServed(found) = &self.answer {
            return found.uuid.chars().take(UUID_DIGITS).collect();
        }
        let digits = |array: &ArrayView| array.uuid.chars().take(UUID_DIGITS).collect();
        self.array().map_or_else(|| named_after(&self.socket).1, digits)
    }
}

/// Asks each of `sockets`.
pub(crate) fn ask_all(sockets: Vec<PathBuf>) -> Vec<Served> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = sockets.into_iter().map(|socket| scope.spawn(move || ask(socket))).collect();
        asked.into_iter().map(|answer| answer.join().expect("asking does not panic")).collect()
    })
}

fn ask(socket: PathBuf) -> Served {
    let client = Client::connect(&socket).map(|client| client.with_timeout(PATIENCE));
    let answer = match client.and_then(|client| client.get("/v1/status")) {
        Ok(body) => match ArrayView::deserialize(&body) {
            Ok(array) => Answer::Array(Box::new(array)),
            Err(error) => Answer::Silent(format!("{}: its answer is not a status: {error}", socket.display())),
        },
        Err(error) if is_gone(&error) => Answer::Gone,
        Err(error) => Answer::Silent(error.to_string()),
    };
    Served { socket, answer }
}

/// Whether a process listens on `socket`.
pub(crate) fn is_listening(socket: &Path) -> bool {
    !Client::connect(socket).is_err_and(|error| is_gone(&error))
}

/// Whether the error means that no process listens on the socket.
pub(crate) fn is_gone(error: &ClientError) -> bool {
    let ClientError::Connect { source, .. } = error else { return false };
    matches!(source.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound)
}
