//! The management thread: axum on tokio, and nothing else in the program is.

use super::{ApiError, ControlBackend, ErrorBody, Method, REQUEST_BYTES_MAX, ROUTES, Route};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use io::net::{SocketNode, listen_unix};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a client may take to accept the last answers.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// A control socket that is being served; dropped, it ends like
/// [`ControlServer::stop`].
#[derive(Debug)]
pub struct ControlServer {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Removes the socket in the end.
    _node: SocketNode,
}

impl ControlServer {
    /// Listens at `path` with mode 0600, and serves on a new thread.
    ///
    /// # Errors
    /// When somebody listens at `path`, it is no socket, or the system refuses;
    /// the message names the path.
    pub fn start(path: &Path, backend: impl ControlBackend) -> std::io::Result<Self> {
        let (fd, node) = listen_unix(path, 0o600)?;
        let listener = UnixListener::from(fd);
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let router = router(Arc::new(backend));
        let thread = std::thread::Builder::new().name("control".into()).spawn(move || {
            if let Err(error) = runtime.block_on(serve(listener, router, stopped)) {
                tracing::error!(%error, "the control socket is no longer served");
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread), _node: node })
    }

    /// Stops listening, lets what was asked be answered, and ends the thread.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

async fn serve(listener: UnixListener, router: Router, stopped: oneshot::Receiver<()>) -> std::io::Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let (stopping, is_stopping) = oneshot::channel();
    let stop = async move {
        // The sender is dropped in the end, never used: either way it is over.
        let _ = stopped.await;
        drop(stopping);
    };
    let serving = std::pin::pin!(axum::serve(listener, router).with_graceful_shutdown(stop).into_future());
    let patience = async {
        let _: Result<(), _> = is_stopping.await;
        tokio::time::sleep(STOP_GRACE).await;
    };
    tokio::select! {
        result = serving => result,
        () = patience => Ok(()),
    }
}

fn router<B: ControlBackend>(backend: Arc<B>) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        let backend = backend.clone();
        let filter = match route.method {
            Method::Get => MethodFilter::GET,
            Method::Post => MethodFilter::POST,
        };
        let handler = move |request: Request| {
            let backend = backend.clone();
            async move { answer(route, &*backend, request).await }
        };
        router = router.route(route.path, on(filter, handler));
    }
    let wrong_method = || async { refused(ApiError::new(405, "this route is asked with another method")) };
    router.method_not_allowed_fallback(wrong_method).fallback(async |request: Request| {
        let message = format!("there is no route {}", request.uri().path());
        refused(ApiError::new(404, message).advice("see docs/control.md for the routes"))
    })
}

async fn answer(route: Route, backend: &impl ControlBackend, request: Request) -> Response {
    let Ok(body) = to_bytes(request.into_body(), REQUEST_BYTES_MAX).await else {
        return refused(ApiError::new(413, format!("the body is cut off or longer than {REQUEST_BYTES_MAX} bytes")));
    };
    let done = match (route.decode)(&body) {
        Ok(command) => backend.call(command).await,
        Err(error) => Err(error),
    };
    done.map_or_else(refused, |value| response(StatusCode::OK, value.to_string()))
}

fn refused(error: ApiError) -> Response {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = serde_json::to_string(&ErrorBody { error }).expect("strings are JSON");
    response(status, body)
}

fn response(status: StatusCode, mut body: String) -> Response {
    body.push('\n'); // for those who read it in a terminal
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
