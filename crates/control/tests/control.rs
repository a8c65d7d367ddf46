//! The control socket over HTTP: this crate's client, requests as curl sends them, and malformed requests.

use mdspace_control::{
    ApiError, Client, ClientError, Command, ControlBackend, ControlServer, GrowRequest, Method, REQUEST_BYTES_MAX,
    ROUTES, Socket, Token, TraceRequest,
};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Records the commands it receives. It knows one member.
#[derive(Clone, Default)]
struct Backend {
    asked: Arc<Mutex<Vec<Command>>>,
}

impl ControlBackend for Backend {
    async fn call(&self, command: Command) -> Result<Value, ApiError> {
        self.asked.lock().expect("no thread panicked").push(command.clone());
        match command {
            Command::Status => Ok(json!({"state": "clean"})),
            Command::Metrics => Ok(json!("# EOF\n")),
            Command::FailMember(request) | Command::RemoveMember(request) if request.member != "a" => {
                Err(ApiError::new(404, "there is no such member").member(request.member).field("member").advice("look"))
            }
            _ => Ok(json!({})),
        }
    }
}

struct Served {
    _directory: tempfile::TempDir,
    path: PathBuf,
    backend: Backend,
    server: ControlServer,
}

fn serve() -> Served {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("control");
    let backend = Backend::default();
    let server = ControlServer::start(&path, backend.clone()).expect("a control socket");
    Served { _directory: directory, path, backend, server }
}

/// Sends a whole request unchanged. Returns the status and the body of the answer.
fn raw(path: &Path, request: &[u8]) -> (u16, Value) {
    exchange(path, request, false)
}

/// The same as [`raw`]; with `end` the stream ends behind the bytes. A server may take that for a client that has left,
/// so a test that needs an answer keeps the stream open.
fn exchange(path: &Path, request: &[u8], end: bool) -> (u16, Value) {
    let stream = UnixStream::connect(path).expect("the server listens");
    let (status, _, body) = answered(stream, request, |stream| {
        if end {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
    });
    (status, serde_json::from_str(&body).unwrap_or(Value::Null))
}

/// Status, head and body of the answer.
fn answered<S: Read + Write>(mut stream: S, request: &[u8], end: impl FnOnce(&S)) -> (u16, String, String) {
    // A server that refuses early may close before it has read everything.
    let _ = stream.write_all(request);
    end(&stream);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

fn post(route: &str, body: &str) -> Vec<u8> {
    format!("POST {route} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}

fn get(route: &str, host: &str) -> Vec<u8> {
    format!("GET {route} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").into_bytes()
}

#[test]
fn what_is_asked_reaches_the_backend_and_is_answered() {
    let served = serve();
    let client = Client::connect(&served.path).expect("the server listens");
    assert_eq!(client.get("/v1/status").expect("an answer"), json!({"state": "clean"}));
    assert_eq!(client.get("/v1/measures").expect("an answer"), json!({}));
    for route in ["/v1/trace", "/v1/trace?from=17"] {
        assert_eq!(client.get(route).expect("an answer"), json!({}));
    }
    let member = json!({"member": "a"});
    for route in ["/v1/members/fail", "/v1/members/remove"] {
        assert_eq!(client.post(route, &member).expect("an answer"), json!({}));
    }
    for route in ["/v1/members/add", "/v1/members/re-add"] {
        assert_eq!(client.post(route, &member).expect("an answer"), json!({}));
    }
    let replace = json!({"member": "a", "with": "b"});
    assert_eq!(client.post("/v1/members/replace", &replace).expect("an answer"), json!({}));
    assert_eq!(client.post("/v1/set", &json!({"stripe-size": "64K"})).expect("an answer"), json!({}));
    for grow in [json!({"size": 4096}), json!({"size": null}), json!({"raid-devices": 3})] {
        assert_eq!(client.post("/v1/grow", &grow).expect("an answer"), json!({}));
    }
    assert_eq!(client.post("/v1/stop", &json!({})).expect("an answer"), json!({}));
    let request = serde_json::from_value::<mdspace_control::MemberRequest>(member).expect("a request");
    let settings = [("stripe-size".to_owned(), "64K".to_owned())].into();
    let expected = vec![
        Command::Status,
        Command::Measures,
        Command::Trace(TraceRequest { from: None }),
        Command::Trace(TraceRequest { from: Some(17) }),
        Command::FailMember(request.clone()),
        Command::RemoveMember(request.clone()),
        Command::AddMember(mdspace_control::AddRequest {
            member: "a".to_owned(),
            force: false,
            write_mostly: false,
            failfast: false,
            spare_of: None,
        }),
        Command::ReAddMember(request),
        Command::ReplaceMember(serde_json::from_value(replace).expect("a request")),
        Command::Set(settings),
        Command::Grow(GrowRequest::Size(Some(4096))),
        Command::Grow(GrowRequest::Size(None)),
        Command::Grow(GrowRequest::RaidDevices(3)),
        Command::Stop,
    ];
    assert_eq!(*served.backend.asked.lock().expect("no thread panicked"), expected);
}

#[test]
fn a_server_that_hangs_is_silent_also_when_its_queue_of_connections_is_full() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("control");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _listener = runtime.block_on(async {
        let socket = tokio::net::UnixSocket::new_stream()?;
        socket.bind(&path)?;
        socket.listen(4)
    });
    let mut waiting = Vec::new();
    for is_full in [false, true] {
        while is_full && let Ok(stream) = runtime.block_on(tokio::net::UnixStream::connect(&path)) {
            waiting.push(stream);
        }
        let client = Client::connect(&path).expect("it listens").with_timeout(Duration::from_millis(100));
        let error = client.get("/v1/status").expect_err("it does not answer");
        assert!(matches!(&error, ClientError::Silent { pid: None, .. }), "{error}");
        assert!(error.to_string().ends_with("control: the server does not answer within 0.1 seconds"), "{error}");
    }
}

#[test]
fn a_refusal_arrives_with_all_its_fields() {
    let served = serve();
    let client = Client::connect(&served.path).expect("the server listens");
    let refused = client.post("/v1/members/fail", &json!({"member": "z"})).expect_err("there is no such member");
    let ClientError::Api(error) = refused else { panic!("{refused}") };
    let expected = ApiError::new(404, "there is no such member").member("z").field("member").advice("look");
    assert_eq!(error, expected);
}

#[test]
fn what_is_no_proper_request_is_refused_in_json_and_reaches_no_backend() {
    let served = serve();
    let huge = format!("{{\"member\": \"{}\"}}", "a".repeat(REQUEST_BYTES_MAX));
    let table = [
        (post("/v1/members/fail", "{\"member\": "), 400, "the body cannot be used: EOF"),
        (post("/v1/members/fail", "[1]"), 400, "the body cannot be used: invalid type"),
        (post("/v1/members/fail", ""), 400, "the body cannot be used: missing field `member`"),
        (post("/v1/members/fail", "{\"member\": \"a\", \"x\": 1}"), 400, "the body cannot be used: unknown field `x`"),
        (post("/v1/members/fail", "{\"member\": \"a\"} {}"), 400, "the body cannot be used: trailing"),
        (post("/v1/set", "{\"a\": 1}"), 400, "the body cannot be used: invalid type"),
        (post("/v1/grow", ""), 400, "the body cannot be used: "),
        (post("/v1/grow", "{\"size\": null, \"raid-devices\": 3}"), 400, "the body cannot be used: "),
        (post("/v1/grow", "{\"sizes\": 1}"), 400, "the body cannot be used: unknown variant `sizes`"),
        (post("/v1/stop", "{\"now\": true}"), 400, "the body cannot be used: unknown field `now`"),
        (post("/v1/members/fail", &huge), 413, "the body is cut off or longer than 65536 bytes"),
        (post("/v1/nothing", "{}"), 404, "there is no route /v1/nothing"),
        (post("/v1/status", "{}"), 405, "this route needs another method"),
        (get("/v1/members/fail", "localhost"), 405, "this route needs another method"),
        (get("/v1/status?x=1", "localhost"), 400, "the query cannot be used: unknown field `x`"),
        (get("/v1/trace?from=-1", "localhost"), 400, "the query cannot be used: invalid digit"),
        (get("/v1/trace?from=1&from=2", "localhost"), 400, "the query cannot be used: duplicate field"),
        (get("/v1/../v1/status", "localhost"), 404, "there is no route /v1/../v1/status"),
        (get("/v1/%73tatus", "localhost"), 404, "there is no route /v1/%73tatus"),
        (get("//v1/status", "localhost"), 404, "there is no route //v1/status"),
        (get("/../../etc/passwd", "localhost"), 404, "there is no route /../../etc/passwd"),
        (get("/v1/status/", "localhost"), 404, "there is no route /v1/status/"),
    ];
    for (request, status, message) in table {
        let (found, body) = raw(&served.path, &request);
        let said = body["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(found, status, "{body}");
        assert!(said.starts_with(message), "{said} instead of {message}");
    }
    // These are not HTTP at all: the connection ends, with or without an answer.
    for garbage in [&b"\0\xff\0\xff\r\n\r\n"[..], b"GET", b"", &[b'A'; 1 << 20]] {
        exchange(&served.path, garbage, true);
    }
    assert!(served.backend.asked.lock().expect("no thread panicked").is_empty());
    assert_eq!(raw(&served.path, b"GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").0, 200);
}

#[test]
fn the_socket_is_its_owners_and_disappears_with_the_server() {
    let served = serve();
    let mode = std::fs::metadata(&served.path).expect("the socket is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let taken = ControlServer::start(&served.path, Backend::default()).expect_err("another server listens there");
    assert!(taken.to_string().contains("another server listens here"), "{taken}");
    // An idle connection does not delay the stop.
    let idle = UnixStream::connect(&served.path).expect("the server listens");
    served.server.stop();
    assert!(!served.path.exists());
    assert!(matches!(Client::connect(&served.path), Err(ClientError::Connect { .. })));
    drop(idle);
}

#[test]
fn every_route_is_described() {
    let described = include_str!("../../../docs/control.md");
    for route in ROUTES {
        let method = if route.method == Method::Get { "GET" } else { "POST" };
        assert!(described.contains(&format!("`{method} {}`", route.path)), "{}", route.path);
    }
}

const SECRET: &str = "0123456789abcdef";

/// A backend served over TCP.
struct OnTcp {
    _directory: tempfile::TempDir,
    address: SocketAddr,
    backend: Backend,
    _server: ControlServer,
}

fn serve_on_tcp(token: Option<&str>) -> OnTcp {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has an address");
    let backend = Backend::default();
    let token = token.map(|text| Token::new(text).expect("it is long enough"));
    let socket = Socket::Tcp(listener, token);
    let path = directory.path().join("control");
    let server =
        ControlServer::start_with(&path, 0o600.into(), vec![socket], backend.clone()).expect("both are served");
    OnTcp { _directory: directory, address, backend, _server: server }
}

impl OnTcp {
    fn ask(&self, request: &[u8]) -> (u16, String, String) {
        answered(TcpStream::connect(self.address).expect("the server listens"), request, |_| {})
    }
}

fn post_with(route: &str, body: &str, headers: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST {route} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
        .into_bytes()
}

#[test]
fn over_tcp_local_clients_may_read_and_only_the_token_allows_changes() {
    let served = serve_on_tcp(Some(SECRET));
    let accepting =
        |accepted| format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{accepted}\r\n");
    for (accepted, expected, media_type) in [
        ("Accept: application/openmetrics-text\r\n", "# EOF\n", "application/openmetrics-text; version=1.0.0"),
        ("", "", "text/plain; version=0.0.4"),
    ] {
        let (status, head, body) = served.ask(accepting(accepted).as_bytes());
        assert_eq!((status, &*body), (200, expected));
        assert!(head.contains(&format!("content-type: {media_type}")), "{head}");
    }
    let (status, head, _) = served.ask(&get("/v1/status", "127.0.0.1"));
    assert_eq!(status, 200);
    for header in ["content-type: application/json", "cache-control: no-store", "x-content-type-options: nosniff"] {
        assert!(head.contains(header), "{header}: {head}");
    }
    let wrong = "Authorization: Bearer 0123456789abcdeF\r\n";
    let right = format!("Authorization: Bearer {SECRET}\r\n");
    assert_eq!(served.ask(&post_with("/v1/stop", "", "")).0, 401);
    assert_eq!(served.ask(&post_with("/v1/stop", "", wrong)).0, 401);
    assert_eq!(served.ask(&get("/v1/status", "rebound.example")).0, 403);
    let asked = |backend: &Backend| std::mem::take(&mut *backend.asked.lock().expect("no thread panicked"));
    assert_eq!(
        asked(&served.backend),
        [Command::Metrics, Command::Metrics, Command::Status],
        "refused requests reach no backend"
    );
    assert_eq!(served.ask(&post_with("/v1/stop", "", &right)).0, 200);
    assert_eq!(asked(&served.backend), [Command::Stop]);
    let closed = serve_on_tcp(None);
    assert_eq!(closed.ask(&post_with("/v1/stop", "", &right)).0, 403);
    assert_eq!(asked(&closed.backend), []);
}

#[test]
fn clients_that_send_nothing_or_half_or_read_no_answer_block_no_other() {
    let served = serve_on_tcp(Some(SECRET));
    let connect = || TcpStream::connect(served.address).expect("the server listens");
    let silent: Vec<TcpStream> = (0..20).map(|_| connect()).collect();
    let halves: Vec<TcpStream> = [
        &b"GET /v1/status HTTP/1.1\r\nHost: local"[..],
        b"POST /v1/stop HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789abcdef\r\nContent-Length: 9\r\n\r\n{",
    ]
    .into_iter()
    .map(|half| {
        let mut stream = connect();
        stream.write_all(half).expect("it is taken");
        stream
    })
    .collect();
    // A client that sends requests and never reads an answer.
    let mut deaf = connect();
    deaf.set_nonblocking(true).expect("it can be set");
    let request = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for _ in 0..2000 {
        if deaf.write(request).is_err() {
            break;
        }
    }
    assert_eq!(served.ask(&get("/v1/status", "localhost")).0, 200, "others are served meanwhile");
    // The server waits for none of them: it ends their connections, and carries out no command.
    for mut stream in silent.into_iter().chain(halves) {
        stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).expect("it can be set");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("the server ends it");
    }
    let asked = served.backend.asked.lock().expect("no thread panicked");
    assert!(asked.iter().all(|command| *command == Command::Status), "half a request to stop is none");
}
