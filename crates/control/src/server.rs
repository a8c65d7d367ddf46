//! The management thread: the only part of the program that uses axum and tokio. It never touches data.
//!
//! No client can delay another. Each socket serves a bounded number of connections, each for a bounded time. A head or
//! body that does not arrive, or an answer that the client does not read, ends only its own connection. Source:
//! `docs/control.md`.

use super::access::{Access, Allowed};
use super::exposition;
use super::machine::{self, Machine};
#[cfg(feature = "https")]
use super::secured;
use super::{
    ApiError, Command, Content, ControlBackend, ErrorBody, Method, PAGES, REQUEST_BYTES_MAX, ROUTES, Route, Token,
};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use axum::serve::Listener;
#[cfg(feature = "https")]
use export::Credentials;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use io::net::{SocketAccess, SocketNode, listen_unix};
use serde_json::Value;
use std::convert::Infallible;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinSet, LocalSet};

/// How long a client may take to read its answer after [`ControlServer::stop`].
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Maximum number of connections served at a time on one socket. Further ones wait to be accepted.
pub(super) const CONNECTIONS_MAX: usize = 64;

/// How long a request's head may take to arrive, and how long its body.
const REQUEST_TIME: Duration = Duration::from_secs(5);

/// The page loads from and connects to this server only, and no other site may embed it in a frame.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'none'; frame-ancestors 'none'";

/// Maximum lifetime of a connection. Its client can connect again. A request that is being carried out then is answered
/// first.
const CONNECTION_TIME: Duration = Duration::from_secs(60);

/// A socket to be served.
pub enum Socket {
    /// A unix socket. Its clients may do everything.
    Unix(UnixListener),
    /// A TCP port on the loopback address. Its clients may read; changes need the token.
    Tcp(TcpListener, Option<Token>),
    /// The same through TLS. On an address that other machines reach, there must be a token, and reads need it too.
    #[cfg(feature = "https")]
    Tls(TcpListener, Option<Token>, Credentials),
}

/// Tells a connection's task that its client has sent a request that strangers may not send.
#[derive(Clone, Default)]
pub(super) struct Proof(Arc<Notify>);

impl Proof {
    /// Gives it for a request that was allowed, if its client is no stranger.
    pub(super) fn give_if_known(allowed: Allowed, request: &Request) {
        if let (Allowed::Known, Some(Self(proof))) = (allowed, request.extensions().get()) {
            proof.notify_one();
        }
    }

    /// Completes after the first such request.
    #[cfg(feature = "https")]
    pub(super) async fn given(&self) {
        self.0.notified().await;
    }
}

/// A backend of any type: the server is compiled once for all, in this crate.
trait AnyBackend: Send + Sync {
    fn call(&self, command: Command) -> Pin<Box<dyn Future<Output = Result<Value, ApiError>> + Send + '_>>;
}

impl<B: ControlBackend> AnyBackend for B {
    fn call(&self, command: Command) -> Pin<Box<dyn Future<Output = Result<Value, ApiError>> + Send + '_>> {
        Box::pin(ControlBackend::call(self, command))
    }
}

/// A running control server. Dropping it does the same as [`ControlServer::stop`].
#[derive(Debug)]
pub struct ControlServer {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    /// Removes the socket's file when dropped.
    _node: Option<SocketNode>,
}

impl ControlServer {
    /// Listens at `path` with mode 0600, and serves from a new thread.
    ///
    /// # Errors
    /// When another process listens at `path`, `path` is no socket, or the system refuses; the message names the path.
    pub fn start(path: &Path, backend: impl ControlBackend) -> std::io::Result<Self> {
        Self::start_with(path, SocketAccess::default(), Vec::new(), backend)
    }

    /// Does the same as [`ControlServer::start`], with other users of the socket, and serves `others` too.
    ///
    /// # Errors
    /// The same as of [`ControlServer::start`].
    pub fn start_with(
        path: &Path,
        access: SocketAccess,
        others: Vec<Socket>,
        backend: impl ControlBackend,
    ) -> std::io::Result<Self> {
        let (fd, node) = listen_unix(path, access)?;
        let own = Socket::Unix(UnixListener::from(fd));
        Self::serve(std::iter::once(own).chain(others).collect(), Some(node), Arc::new(backend))
    }

    /// Serves sockets that already listen, from a new thread.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn start_on(sockets: Vec<Socket>, backend: impl ControlBackend) -> std::io::Result<Self> {
        Self::serve(sockets, None, Arc::new(backend))
    }

    /// Serves the list of a machine's arrays and the pages of each on sockets that already listen, from a new thread.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn start_for_machine(sockets: Vec<Socket>, machine: impl Machine) -> std::io::Result<Self> {
        let machine: Arc<dyn Machine> = Arc::new(machine);
        Self::answer_by(sockets, None, &|access| machine::router(machine.clone(), &access))
    }

    fn serve(sockets: Vec<Socket>, node: Option<SocketNode>, backend: Arc<dyn AnyBackend>) -> std::io::Result<Self> {
        Self::answer_by(sockets, node, &|access| router(backend.clone(), &access))
    }

    /// `router` makes the answers to the clients of one socket, by what they may do.
    fn answer_by(
        sockets: Vec<Socket>,
        node: Option<SocketNode>,
        router: &dyn Fn(Access) -> Router,
    ) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopping) = watch::channel(false);
        let inside = runtime.enter();
        let listening: Result<Vec<_>, _> = sockets.into_iter().map(|socket| Listening::of(socket, router)).collect();
        drop(inside);
        let listening = listening?;
        let thread = std::thread::Builder::new().name("control".into()).spawn(move || {
            runtime.block_on(LocalSet::new().run_until(async {
                let mut serving = JoinSet::new();
                for socket in listening {
                    serving.spawn_local(socket.serve(stopping.clone()));
                }
                drop(stopping);
                while serving.join_next().await.is_some() {}
            }));
            // A list or a creation that hangs does not hold the end up.
            runtime.shutdown_background();
        })?;
        Ok(Self { stop, thread: Some(thread), _node: node })
    }

    /// Stops listening, answers the requests received, and ends the thread.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// A socket that the runtime knows, and the answers to its clients.
enum Listening {
    Unix(tokio::net::UnixListener, Router),
    Tcp(tokio::net::TcpListener, Router),
    #[cfg(feature = "https")]
    Tls(tokio::net::TcpListener, Router, Credentials),
}

impl Listening {
    fn of(socket: Socket, router: &dyn Fn(Access) -> Router) -> std::io::Result<Self> {
        let tcp = |listener: TcpListener| {
            listener.set_nonblocking(true)?;
            let is_local = listener.local_addr()?.ip().is_loopback();
            std::io::Result::Ok((tokio::net::TcpListener::from_std(listener)?, is_local))
        };
        match socket {
            Socket::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Ok(Self::Unix(tokio::net::UnixListener::from_std(listener)?, router(Access::Owner)))
            }
            Socket::Tcp(listener, token) => match tcp(listener)? {
                (listener, true) => Ok(Self::Tcp(listener, router(Access::Local(token)))),
                (_, false) => Err(unprotected("other machines reach this address, and nothing is encrypted")),
            },
            #[cfg(feature = "https")]
            Socket::Tls(listener, token, credentials) => {
                let (listener, is_local) = tcp(listener)?;
                let access = match token {
                    token if is_local => Access::Local(token),
                    Some(token) => Access::Remote(token),
                    None => return Err(unprotected("other machines reach this address, and there is no token")),
                };
                Ok(Self::Tls(listener, router(access), credentials))
            }
        }
    }

    async fn serve(self, stopping: watch::Receiver<bool>) {
        match self {
            Self::Unix(listener, router) => accept_from(listener, router, stopping).await,
            Self::Tcp(listener, router) => accept_from(listener, router, stopping).await,
            #[cfg(feature = "https")]
            Self::Tls(listener, router, credentials) => {
                secured::accept_from(listener, router, credentials, stopping).await
            }
        }
    }
}

fn unprotected(why: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidInput, why)
}

/// Serves connections until `stopping` is set, then finishes the open ones.
async fn accept_from<L: Listener>(mut listener: L, router: Router, stopping: watch::Receiver<bool>)
where
    L::Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let mut stop = stopping.clone();
    loop {
        let next = async {
            let place = places.clone().acquire_owned().await.expect("it is never closed");
            (listener.accept().await.0, place)
        };
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            Some(_) = connections.join_next() => {} // a panic ends only its own connection
            (stream, place) = next => {
                let (router, stopping) = (router.clone(), stopping.clone());
                connections.spawn(async move {
                    serve_connection(Box::new(stream), router, stopping).await;
                    drop(place);
                });
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// The bytes of a connection, of any kind: HTTP is compiled once for all kinds.
pub(super) type Connection = Box<dyn Duplex>;

/// A stream in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// A router that tells whether a request is being carried out. HTTP/1 has one at a time on a connection.
struct Answering {
    router: TowerToHyperService<Router>,
    is_busy: watch::Sender<bool>,
}

impl hyper::service::Service<hyper::Request<Incoming>> for Answering {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        let (answer, is_busy) = (self.router.call(request), self.is_busy.clone());
        is_busy.send_replace(true);
        Box::pin(async move {
            let answer = answer.await;
            is_busy.send_replace(false);
            answer
        })
    }
}

/// Serves one connection until it ends, `stopping` is set or its time is over.
pub(super) async fn serve_connection(stream: Connection, router: Router, mut stopping: watch::Receiver<bool>) {
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(REQUEST_TIME);
    let (is_busy, mut busy) = watch::channel(false);
    let service = Answering { router: TowerToHyperService::new(router), is_busy };
    let mut connection = pin!(protocol.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        biased;
        _ = &mut connection => return, // the client sees how it ended
        _ = stopping.wait_for(|stop| *stop) => {}
        () = tokio::time::sleep(CONNECTION_TIME) => {}
    }
    connection.as_mut().graceful_shutdown();
    let grace = async {
        // A change may take longer than a connection lives.
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => {}
            _ = busy.wait_for(|busy| !*busy) => {}
        }
        tokio::time::sleep(STOP_GRACE).await;
    };
    tokio::select! {
        _ = connection => {}
        () = grace => {}
    }
}

fn router(backend: Arc<dyn AnyBackend>, access: &Access) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        let filter = match route.method {
            Method::Get => MethodFilter::GET,
            Method::Post => MethodFilter::POST,
        };
        let (backend, access) = (backend.clone(), access.clone());
        let handler = move |request: Request| {
            let (backend, access) = (backend.clone(), access.clone());
            async move { answer(route, &*backend, &access, request).await }
        };
        router = router.route(route.path, on(filter, handler));
    }
    for (path, content, text) in PAGES {
        let access = access.clone();
        let handler = async move |request: Request| match access.check(Method::Get, true, request.headers()) {
            Ok(_) => response(StatusCode::OK, content, text.to_owned()),
            Err(error) => refused(error),
        };
        router = router.route(path, on(MethodFilter::GET, handler));
    }
    let wrong_method = || async { refused(ApiError::new(405, "this route needs another method")) };
    router.method_not_allowed_fallback(wrong_method).fallback(async |request: Request| {
        let message = format!("there is no route {}", request.uri().path());
        refused(ApiError::new(404, message).advice("see docs/control.md for the routes"))
    })
}

async fn answer(route: Route, backend: &dyn AnyBackend, access: &Access, request: Request) -> Response {
    let accepts_open_metrics = exposition::accepts_open_metrics(request.headers());
    match ask(route, backend, access, request).await {
        Ok(Value::String(text)) if route.content == Content::Metrics && !accepts_open_metrics => {
            let mut response = response(StatusCode::OK, route.content, exposition::as_prometheus_text(&text));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(exposition::PROMETHEUS_TEXT));
            response
        }
        Ok(Value::String(text)) if route.content != Content::Json => response(StatusCode::OK, route.content, text),
        Ok(value) => response(StatusCode::OK, Content::Json, format!("{value}\n")),
        Err(error) => refused(error),
    }
}

async fn ask(route: Route, backend: &dyn AnyBackend, access: &Access, request: Request) -> Result<Value, ApiError> {
    let allowed = access.check(route.method, route.is_open, request.headers())?;
    Proof::give_if_known(allowed, &request);
    let query = request.uri().query().unwrap_or_default().to_owned();
    let body = body_of(request).await?;
    let asked = if route.method == Method::Get { query.as_bytes() } else { &body };
    backend.call((route.decode)(asked)?).await.map_err(|error| match allowed {
        Allowed::Known => error,
        // The reason may name members.
        Allowed::Stranger => ApiError::new(error.status, "no").advice("with the token the answer says why"),
    })
}

/// The body of a request.
pub(super) async fn body_of(request: Request) -> Result<Bytes, ApiError> {
    let body = tokio::time::timeout(REQUEST_TIME, to_bytes(request.into_body(), REQUEST_BYTES_MAX)).await;
    body.map_err(|_| ApiError::new(408, "the body did not arrive in time"))?
        .map_err(|_| ApiError::new(413, format!("the body is cut off or longer than {REQUEST_BYTES_MAX} bytes")))
}

pub(super) fn refused(error: ApiError) -> Response {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = serde_json::to_string(&ErrorBody { error }).expect("strings are JSON");
    let mut response = response(status, Content::Json, body + "\n"); // the newline is for terminals
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

pub(super) fn response(status: StatusCode, content: Content, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content.media_type()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if content == Content::Html {
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::post;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// What a client reads until its connection ends, and how many seconds that takes.
    fn exchange(request: &str, router: Router) -> (String, u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let (mut client, server) = tokio::io::duplex(1 << 16);
            let (_stop, stopping) = watch::channel(false);
            let begun = tokio::time::Instant::now();
            client.write_all(request.as_bytes()).await.expect("there is room");
            let mut answer = String::new();
            let reading = async { client.read_to_string(&mut answer).await.expect("text") };
            tokio::join!(serve_connection(Box::new(server), router, stopping), reading);
            (answer, begun.elapsed().as_secs())
        })
    }

    #[test]
    fn a_change_that_takes_longer_than_a_connection_lives_is_answered() {
        let seconds = CONNECTION_TIME.as_secs() * 5;
        let change = async move || {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            "changed"
        };
        let request = "POST /change HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
        let (answer, took) = exchange(request, Router::new().route("/change", post(change)));
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("changed"), "{answer}");
        assert!((seconds..seconds + STOP_GRACE.as_secs()).contains(&took), "{took} s");
    }

    #[test]
    fn a_connection_on_which_nothing_is_asked_ends() {
        let (answer, took) = exchange("", Router::new());
        assert_eq!(answer, "");
        assert!(took <= CONNECTION_TIME.as_secs(), "{took} s");
    }
}
