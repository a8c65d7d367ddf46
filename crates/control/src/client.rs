//! A blocking client of the control socket, for the command line. It never retries a request. Source:
//! `docs/control.md`.

use super::{ApiError, ErrorBody};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;

/// Maximum length of an answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Time between two attempts to connect to a server whose queue of connections is full.
const QUEUE_PAUSE: Duration = Duration::from_millis(20);

/// Why a request got no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No server listens on the socket.
    #[error("{path}: {source}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The connection broke, or the peer does not speak the control protocol.
    #[error("{path}: invalid answer: {what}")]
    Protocol {
        /// The socket.
        path: PathBuf,
        /// What was wrong with the answer.
        what: String,
    },
    /// The server did not answer in time.
    #[error(
        "{path}: the server{} does not answer within {} seconds",
        .pid.map_or(String::new(), |pid| format!(" (process {pid})")),
        .timeout.as_secs_f64()
    )]
    Silent {
        /// The socket.
        path: PathBuf,
        /// The server's process, if it made the socket itself.
        pid: Option<i32>,
        /// How long the client has waited.
        timeout: Duration,
    },
    /// The server refused the request, or could not carry it out.
    #[error("{0}")]
    Api(ApiError),
}

/// A client of one control socket.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    runtime: tokio::runtime::Runtime,
    /// The process that listens.
    pid: Option<i32>,
    /// The longest time for one GET request; `None` for no limit.
    timeout: Option<Duration>,
}

impl Client {
    /// A client of the socket at `path`.
    ///
    /// # Errors
    /// When no server listens there.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let refused = |source| ClientError::Connect { path: path.into(), source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(refused)?;
        let pid = match runtime.block_on(UnixStream::connect(path)) {
            Ok(stream) => process_behind(&stream),
            Err(error) if is_full(&error) => None,
            Err(error) => return Err(refused(error)),
        };
        Ok(Self { path: path.into(), runtime, pid, timeout: None })
    }

    /// The same client, whose GET requests fail with [`ClientError::Silent`] after `timeout`. A change takes the time
    /// that it takes.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Sends a GET request, and returns the JSON body of the answer.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get(&self, route: &str) -> Result<Value, ClientError> {
        self.ask(Method::GET, route, Bytes::new())
    }

    /// Sends a POST request with a JSON body, and returns the JSON body of the answer.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn post(&self, route: &str, body: &Value) -> Result<Value, ClientError> {
        self.ask(Method::POST, route, body.to_string().into())
    }

    fn ask(&self, method: Method, route: &str, body: Bytes) -> Result<Value, ClientError> {
        let timeout = self.timeout.filter(|_| method == Method::GET);
        let exchange = exchange(&self.path, method, route, None, body);
        let Answer { status, body: answer, .. } = self.runtime.block_on(async {
            let Some(timeout) = timeout else { return exchange.await };
            let silent = |_| ClientError::Silent { path: self.path.clone(), pid: self.pid, timeout };
            tokio::time::timeout(timeout, exchange).await.map_err(silent)?
        })?;
        let unusable = |error| broken(&self.path, format!("status {status}, and not JSON: {error}"));
        if status.is_success() {
            return serde_json::from_slice(&answer).map_err(unusable);
        }
        let ErrorBody { mut error } = serde_json::from_slice(&answer).map_err(unusable)?;
        error.status = status.as_u16();
        Err(ClientError::Api(error))
    }
}

/// An answer as it came.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) content_type: Option<HeaderValue>,
    pub(super) body: Bytes,
}

/// Sends one request to the control socket at `path`, on a connection of its own. `accept` is the content that is wanted.
pub(super) async fn exchange(
    path: &Path,
    method: Method,
    route: &str,
    accept: Option<HeaderValue>,
    body: Bytes,
) -> Result<Answer, ClientError> {
    let connected = connect(path).await;
    let stream = connected.map_err(|source| ClientError::Connect { path: path.into(), source })?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| broken(path, error))?;
    let mut request = Request::builder()
        .method(method)
        .uri(route)
        .header(HOST, "mdspace")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .map_err(|error| broken(path, error))?;
    accept.into_iter().for_each(|accept| drop(request.headers_mut().insert(ACCEPT, accept)));
    let exchange = async move {
        let response = sender.send_request(request).await.map_err(|error| broken(path, error))?;
        let (status, content_type) = (response.status(), response.headers().get(CONTENT_TYPE).cloned());
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok(Answer { status, content_type, body: body.map_err(|error| broken(path, error))?.to_bytes() })
    };
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        biased;
        result = &mut exchange => result,
        // The connection may end first, when the answer has already arrived.
        _ = connection => exchange.await,
    }
}

/// Connects as soon as the queue of connections has room: a server that hangs leaves it full.
async fn connect(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if is_full(&error) => tokio::time::sleep(QUEUE_PAUSE).await,
            connected => return connected,
        }
    }
}

/// Whether a server listens whose queue of connections is full.
fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// The server's process. A socket that a service manager made carries the manager's.
fn process_behind(stream: &UnixStream) -> Option<i32> {
    let pid = stream.peer_cred().ok()?.pid()?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    name.starts_with("mdspace").then_some(pid)
}

fn broken(path: &Path, what: impl ToString) -> ClientError {
    ClientError::Protocol { path: path.into(), what: what.to_string() }
}
