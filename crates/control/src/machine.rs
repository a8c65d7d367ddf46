//! The page of all arrays of a machine: it lists them, passes requests for one of them on to its control socket, and has new
//! ones created.
//!
//! It keeps nothing and knows no array: a [`Machine`] says which there are. What a client may do is judged here, by the
//! rules of an array's own port ([`super::access`]). To a control socket each request comes from the socket's owner.

use super::access::Access;
use super::client::{Answer, ClientError, exchange};
use super::server::{Proof, body_of, refused, response};
use super::{ApiError, Content, Method, PAGES, ROUTES};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::Response;
use axum::routing::{MethodFilter, any, on};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long an array's server may take to answer: less than the lifetime of the client's connection.
const ANSWER_TIME: Duration = Duration::from_secs(50);

/// Where the pages and routes of the arrays begin, each behind the name of its array.
const ARRAYS: &str = "/arrays/";

/// The files of the list. They tell nothing about any array.
const LIST_PAGES: [(&str, Content, &str); 3] = [
    ("/", Content::Html, include_str!("page/machine.html")),
    ("/machine.js", Content::JavaScript, include_str!("page/machine.js")),
    ("/create.js", Content::JavaScript, include_str!("page/create.js")),
];

/// The arrays of a machine.
pub trait Machine: Send + Sync + 'static {
    /// The list of them. It may take seconds.
    fn list(&self) -> Value;

    /// The control socket of an array, by its name in URLs.
    fn socket(&self, name: &str) -> Option<PathBuf>;

    /// What creates arrays here, if anything does.
    fn creation(&self) -> Option<&dyn Creation> {
        None
    }
}

/// The creation of arrays.
pub trait Creation: Send + Sync {
    /// The block devices of this machine: `path`, `bytes`, and `model` and `serial` of their drives. It may take seconds.
    fn devices(&self) -> Value;

    /// Creates an array, or only checks that it can be: `level`, `members`, `name`, `dry-run`. Returns `text`, for people.
    /// A client waits for 50 s; a creation goes on after that.
    ///
    /// # Errors
    /// As the control interface answers them: with 4xx nothing was changed.
    fn create(&self, wanted: &Value) -> Result<Value, ApiError>;
}

/// The answers to the clients of one port.
pub(super) fn router(machine: Arc<dyn Machine>, access: &Access) -> Router {
    let mut router = Router::new();
    let shared = PAGES.into_iter().filter(|(path, ..)| *path != "/");
    for (path, content, text) in LIST_PAGES.into_iter().chain(shared) {
        let access = access.clone();
        let handler = async move |request: Request| match access.check(Method::Get, true, request.headers()) {
            Ok(_) => response(StatusCode::OK, content, text.to_owned()),
            Err(error) => refused(error),
        };
        router = router.route(path, on(MethodFilter::GET, handler));
    }
    let of_machine = {
        let (machine, access) = (machine.clone(), access.clone());
        async move |request: Request| by_machine(machine, &access, request).await.unwrap_or_else(refused)
    };
    let of_array = {
        let access = access.clone();
        async move |request: Request| pass_on(&*machine, &access, request).await.unwrap_or_else(refused)
    };
    let nothing = async || refused(no_route("see docs/watching.md for the routes"));
    router
        .route("/v1/arrays", on(MethodFilter::GET, of_machine.clone()))
        .route("/v1/devices", on(MethodFilter::GET, of_machine.clone()))
        .route("/v1/create", on(MethodFilter::POST, of_machine))
        .route("/arrays/{*rest}", any(of_array))
        .method_not_allowed_fallback(async || refused(wrong_method()))
        .fallback(nothing)
}

fn no_route(advice: &str) -> ApiError {
    ApiError::new(404, "there is no such route").advice(advice)
}

fn wrong_method() -> ApiError {
    ApiError::new(405, "this route needs another method")
}

/// Answers a request for the list, for the devices, or to create an array.
async fn by_machine(machine: Arc<dyn Machine>, access: &Access, request: Request) -> Result<Response, ApiError> {
    let method = if request.method() == "POST" { Method::Post } else { Method::Get };
    Proof::give_if_known(access.check(method, false, request.headers())?, &request);
    let is_list = request.uri().path() == "/v1/arrays";
    let body = body_of(request).await?;
    let asked = tokio::task::spawn_blocking(move || match (method, machine.creation()) {
        (Method::Get, _) if is_list => Ok(machine.list()),
        (Method::Get, creation) => Ok(creation.map_or(Value::Null, Creation::devices)),
        (Method::Post, Some(creation)) => creation.create(&wanted(&body)?),
        (Method::Post, None) => Err(no_creation()),
    });
    match tokio::time::timeout(ANSWER_TIME, asked).await {
        Ok(answer) => {
            let answer = answer.expect("none of them panics")?;
            Ok(response(StatusCode::OK, Content::Json, format!("{answer}\n")))
        }
        Err(_) if method == Method::Get => Err(ApiError::new(504, "what was asked does not answer in time")),
        Err(_) => Err(ApiError::new(504, "a member does not answer in time").advice("the array may still be created")),
    }
}

fn no_creation() -> ApiError {
    ApiError::new(403, "no arrays are created here").advice("`mdspace web --allow-create` creates them")
}

fn wanted(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::new(400, format!("the body is not JSON: {error}")))
}

/// Answers a request for one array: a file of its page from here, all else by its server.
async fn pass_on(machine: &dyn Machine, access: &Access, request: Request) -> Result<Response, ApiError> {
    let path = request.uri().path().strip_prefix(ARRAYS).unwrap_or_default();
    let (name, route) = path.split_once('/').ok_or_else(|| no_route("an array's page ends with a slash"))?;
    let route = format!("/{route}");
    if let Some((_, content, text)) = PAGES.into_iter().find(|(page, ..)| *page == route && request.method() == "GET") {
        access.check(Method::Get, true, request.headers())?;
        return Ok(response(StatusCode::OK, content, text.to_owned()));
    }
    let method = method_of(&route, request.method())?;
    Proof::give_if_known(access.check(method, false, request.headers())?, &request);
    let socket = machine.socket(name).ok_or_else(|| {
        ApiError::new(404, format!("no array {name} is served")).advice("the list of arrays has their names")
    })?;
    let query = request.uri().query().map_or(String::new(), |query| format!("?{query}"));
    let (asked, accept) = (request.method().clone(), request.headers().get(ACCEPT).cloned());
    let (body, route) = (body_of(request).await?, format!("{route}{query}"));
    match tokio::time::timeout(ANSWER_TIME, exchange(&socket, asked, &route, accept, body)).await {
        Ok(answer) => answer.map(passed_back).map_err(unanswered),
        Err(_) => Err(ApiError::new(504, "the array's server does not answer").advice("it may still carry this out")),
    }
}

/// The method of a request, which has to be one of the route's.
fn method_of(route: &str, asked: &axum::http::Method) -> Result<Method, ApiError> {
    let method = match asked.as_str() {
        "GET" => Method::Get,
        "POST" => Method::Post,
        _ => return Err(wrong_method()),
    };
    let mut known = ROUTES.iter().filter(|known| known.path == route).peekable();
    known.peek().ok_or_else(|| no_route("see docs/control.md for the routes"))?;
    known.any(|known| known.method == method).then_some(method).ok_or_else(wrong_method)
}

fn passed_back(answer: Answer) -> Response {
    let mut passed = response(answer.status, Content::Json, String::new());
    *passed.body_mut() = Body::from(answer.body);
    answer.content_type.into_iter().for_each(|content| drop(passed.headers_mut().insert(CONTENT_TYPE, content)));
    passed
}

fn unanswered(error: ClientError) -> ApiError {
    let what = match &error {
        ClientError::Connect { .. } => "the array's server is gone",
        _ => "the array's server gave no answer that can be used",
    };
    ApiError::new(502, format!("{what}: {error}"))
}
