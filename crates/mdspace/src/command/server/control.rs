//! The server's side of the control socket: its listeners, and the channel for commands to the array's thread.
//!
//! The control interface has a thread of its own ([`ControlServer`]). It sends each command to the array's thread and
//! waits for the reply.

use crate::command::server::arguments::HttpProtection;
use crate::command::text::failure::Failure;
use crate::names::name_of;
use control::{ApiError, Command, ControlBackend, ControlServer, Machine, Socket, Token};
#[cfg(feature = "tls")]
use export::Credentials;
use futures_channel::{mpsc, oneshot};
use io::net::SocketAccess;
use serde_json::Value;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
#[cfg(feature = "tls")]
use std::path::Path;
use std::path::PathBuf;

/// Mode bits of a token file that let users other than its owner and group read the token, or any other user replace
/// it.
const OTHERS_READ_OR_WRITE: u32 = 0o026;

/// The source of the control socket.
pub(crate) enum ControlSource {
    /// The server creates it here, for these users.
    Path(PathBuf, SocketAccess),
    /// The service manager opened it.
    Inherited(UnixListener),
}

/// The control interface: its socket and, if the user wants it, HTTP on TCP.
pub(crate) struct Control {
    pub(crate) source: ControlSource,
    pub(crate) http: Option<Http>,
    /// How the files begin in which smartd keeps its state.
    pub(crate) smartd_state: PathBuf,
}

/// HTTP on TCP.
pub(crate) struct Http {
    listener: TcpListener,
    /// The token that allows changes; without one HTTP changes nothing.
    token: Option<Token>,
    /// With these every request goes through TLS.
    #[cfg(feature = "tls")]
    credentials: Option<Credentials>,
}

impl Http {
    /// Listens on `address`, for requests that change nothing.
    pub(crate) fn listen(address: SocketAddr) -> Result<Self, Failure> {
        let listener = TcpListener::bind(address);
        let listener = listener.map_err(|error| Failure::refused(format!("--http: {address}: {error}")))?;
        Ok(Self::on(listener))
    }

    fn on(listener: TcpListener) -> Self {
        #[cfg(feature = "tls")]
        return Self { listener, token: None, credentials: None };
        #[cfg(not(feature = "tls"))]
        return Self { listener, token: None };
    }

    /// The listener, the token and the certificates that a server is to use; `None` without HTTP. Nothing listens on an
    /// address that other machines reach before there are a token and certificates.
    pub(super) fn of(
        address: Option<SocketAddr>,
        protection: &HttpProtection,
        inherited: Option<TcpListener>,
    ) -> Result<Option<Self>, Failure> {
        let token = protection.http_token_file.as_ref().map(read_token).transpose()?;
        #[cfg(feature = "tls")]
        let credentials = protection.http_tls_certificates.as_deref().map(load).transpose()?;
        #[cfg(feature = "tls")]
        let is_protected = credentials.is_some();
        #[cfg(not(feature = "tls"))]
        let is_protected = false;
        let check = |address: SocketAddr| check_reach(address, is_protected, token.is_some());
        let http = match (address, inherited) {
            (Some(_), Some(_)) => {
                return Err(Failure::refused("--http: the service manager passed a socket for HTTP already"));
            }
            (Some(address), None) => {
                check(address)?;
                Self::listen(address)?
            }
            (None, Some(listener)) => {
                let address = listener.local_addr().map_err(|error| Failure::refused(format!("http: {error}")))?;
                check(address)?;
                Self::on(listener)
            }
            (None, None) if token.is_some() => return Err(without_http("--http-token-file")),
            (None, None) if is_protected => return Err(without_http("--http-tls-certificates")),
            (None, None) => return Ok(None),
        };
        #[cfg(feature = "tls")]
        return Ok(Some(Self { token, credentials, ..http }));
        #[cfg(not(feature = "tls"))]
        return Ok(Some(Self { token, ..http }));
    }

    /// Serves all arrays of this machine on an address; also gives its URL.
    pub(crate) fn serve_machine(
        address: SocketAddr,
        protection: &HttpProtection,
        machine: impl Machine,
    ) -> Result<(ControlServer, String), Failure> {
        let failed = |error: std::io::Error| Failure::refused(format!("--http: {address}: {error}"));
        let http = Self::of(Some(address), protection, None)?.expect("there is an address");
        let (url, socket) = http.open().map_err(failed)?;
        Ok((ControlServer::start_for_machine(vec![socket], machine).map_err(failed)?, url))
    }

    /// The URL for clients, and the socket to serve.
    fn open(self) -> std::io::Result<(String, Socket)> {
        let address = self.listener.local_addr()?;
        #[cfg(feature = "tls")]
        if let Some(credentials) = self.credentials {
            return Ok((format!("https://{address}"), Socket::Tls(self.listener, self.token, credentials)));
        }
        Ok((format!("http://{address}"), Socket::Tcp(self.listener, self.token)))
    }
}

fn without_http(option: &str) -> Failure {
    Failure::refused(format!("{option}: HTTP is off")).advise("add --http HOST:PORT")
}

/// Refuses an address that other machines reach, unless TLS and a token protect it.
fn check_reach(address: SocketAddr, is_protected: bool, has_token: bool) -> Result<(), Failure> {
    let refused = |how: &str| Failure::refused(format!("--http: {address} can be reached from other machines, {how}"));
    let tunnel = "or use 127.0.0.1 and a tunnel";
    let certificates = if cfg!(feature = "tls") { "add --http-tls-certificates DIR" } else { "build with TLS" };
    match (is_protected, has_token) {
        _ if address.ip().is_loopback() => Ok(()),
        (true, true) => Ok(()),
        (true, false) => Err(refused("and without a token each of them could read")
            .advise(format!("add --http-token-file FILE, {tunnel}"))),
        (false, true) => Err(refused("unencrypted").advise(format!("{certificates}, {tunnel}"))),
        (false, false) => {
            Err(refused("unencrypted").advise(format!("{certificates} and --http-token-file FILE, {tunnel}")))
        }
    }
}

#[cfg(feature = "tls")]
fn load(directory: &Path) -> Result<Credentials, Failure> {
    Credentials::load(directory, false).map_err(|error| {
        Failure::refused(format!("--http-tls-certificates: {error}"))
            .advise("docs/tls.md explains how to make certificates")
    })
}

fn read_token(path: &PathBuf) -> Result<Token, Failure> {
    let refused = |reason: String| Failure::refused(format!("--http-token-file: {}: {reason}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    if path.metadata().is_ok_and(|metadata| metadata.mode() & OTHERS_READ_OR_WRITE != 0) {
        let path = name_of(path);
        tracing::warn!("--http-token-file: {path}: other users can read or change it, and so change the array");
    }
    Token::new(text.trim_end()).map_err(refused)
}

/// Addresses of the control interface, with the port that the system chose.
pub(super) struct Addresses {
    pub(super) http: Option<String>,
    pub(super) control: String,
}

impl Control {
    /// Starts to serve it.
    pub(super) fn start(self, backend: Backend) -> std::io::Result<(ControlServer, Addresses)> {
        let mut others = Vec::new();
        let mut http = None;
        if let Some(opened) = self.http.map(Http::open).transpose()? {
            let (url, socket) = opened;
            http = Some(url);
            others.push(socket);
        }
        let (server, control) = match self.source {
            ControlSource::Path(path, access) => {
                let path = std::path::absolute(path)?;
                (ControlServer::start_with(&path, access, others, backend)?, path.display().to_string())
            }
            ControlSource::Inherited(listener) => {
                let address = listener.local_addr()?;
                let path = address.as_pathname().map_or("inherited".to_owned(), |path| path.display().to_string());
                others.push(Socket::Unix(listener));
                (ControlServer::start_on(others, backend)?, path)
            }
        };
        Ok((server, Addresses { http, control }))
    }
}

/// Takes the reply to a command.
pub(super) type Reply = oneshot::Sender<Result<Value, ApiError>>;

/// A command from the control thread for the array's thread.
pub(super) struct Request {
    pub(super) command: Command,
    pub(super) reply: Reply,
}

/// Sends commands of the control thread to the array's thread.
pub(super) struct Backend(pub(super) mpsc::UnboundedSender<Request>);

impl ControlBackend for Backend {
    async fn call(&self, command: Command) -> Result<Value, ApiError> {
        let (reply, replied) = oneshot::channel();
        let stopping = || ApiError::new(503, "the array is being stopped");
        self.0.unbounded_send(Request { command, reply }).map_err(|_| stopping())?;
        replied.await.unwrap_or_else(|oneshot::Canceled| Err(stopping()))
    }
}
