//! Control through TLS: clients that never finish the handshake, or finish it and show no token.

#[path = "../../export/tests/support/certificates.rs"]
mod certificates;

use certificates::Authority;
use export::Credentials;
use mdspace_control::{ApiError, Command, ControlBackend, ControlServer, Machine, Socket, Token};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const SECRET: &str = "0123456789abcdef";

/// Every command succeeds.
struct Backend;

impl ControlBackend for Backend {
    async fn call(&self, _: Command) -> Result<Value, ApiError> {
        Ok(json!({}))
    }
}

/// A machine without arrays.
struct Empty;

impl Machine for Empty {
    fn list(&self) -> Value {
        json!({})
    }

    fn socket(&self, _: &str) -> Option<PathBuf> {
        None
    }
}

struct Served {
    directory: tempfile::TempDir,
    address: SocketAddr,
    client: Arc<ClientConfig>,
    _server: ControlServer,
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// The server of an array, which other machines reach.
fn serve() -> Served {
    serve_by(|sockets| ControlServer::start_on(sockets, Backend))
}

fn serve_by(start: impl FnOnce(Vec<Socket>) -> std::io::Result<ControlServer>) -> Served {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let authority = Authority::new();
    authority.write_own(directory.path());
    authority.write_server(directory.path());
    let listener = TcpListener::bind("0.0.0.0:0").expect("a free port");
    let address = ([127, 0, 0, 1], listener.local_addr().expect("an address").port()).into();
    let token = Token::new(SECRET).expect("it is long enough");
    let credentials = Credentials::load(directory.path(), false).expect("certificates");
    let socket = Socket::Tls(listener, Some(token), credentials);
    let server = start(vec![socket]).expect("it is served");
    let client = client_of(directory.path());
    Served { directory, address, client, _server: server }
}

fn client_of(directory: &Path) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(directory.join("ca-cert.pem")).expect("a certificate");
    roots.add(authority).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Arc::new(versions.expect("both versions").with_root_certificates(roots).with_no_client_auth())
}

impl Served {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it can be set");
        stream
    }

    fn secured(&self) -> Stream {
        let name = "localhost".try_into().expect("a name");
        let connection = ClientConnection::new(self.client.clone(), name).expect("a connection");
        StreamOwned::new(connection, self.connect())
    }
}

/// Sends a request on an open connection. Returns the status, or 0 if the server has closed it.
fn ask(stream: &mut Stream, route: &str, headers: &str) -> u16 {
    if stream.write_all(format!("GET {route} HTTP/1.1\r\nHost: nas\r\n{headers}\r\n").as_bytes()).is_err() {
        return 0;
    }
    let mut answer = Vec::new();
    // Each answer here ends with a closing brace and a newline.
    while !answer.ends_with(b"}\n") {
        let mut more = [0; 4096];
        match stream.read(&mut more) {
            Ok(read) if read > 0 => answer.extend_from_slice(&more[..read]),
            _ => break,
        }
    }
    let text = String::from_utf8_lossy(&answer);
    text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

fn bearer() -> String {
    format!("Authorization: Bearer {SECRET}\r\n")
}

#[test]
fn strangers_evict_each_other_and_no_client_with_the_token() {
    let machine = serve_by(|sockets| ControlServer::start_for_machine(sockets, Empty));
    // An array that is not there: the answer is 404 for a client with the token.
    for (served, route, known) in
        [(&serve(), "/v1/status", 200), (&machine, "/v1/arrays", 200), (&machine, "/arrays/none/v1/status", 404)]
    {
        strangers_evict_no_client_with_the_token(served, route, known);
    }
}

/// `expected` is the status of the answer to a client with the token.
fn strangers_evict_no_client_with_the_token(served: &Served, route: &str, expected: u16) {
    let mut known = served.secured();
    assert_eq!(ask(&mut known, route, &bearer()), expected);
    let silent: Vec<_> = (0..300).map(|_| served.connect()).collect();
    let mut halves: Vec<_> = (0..100).map(|_| served.connect()).collect();
    for half in &mut halves {
        drop(half.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")); // the head of a ClientHello
    }
    // More than may be without the token, each of which has sent a request before the next one connects.
    let strangers: Vec<_> = (0..70)
        .map(|_| {
            let mut stranger = served.secured();
            assert_eq!(ask(&mut stranger, route, ""), 401, "{route}: strangers are told what is missing");
            stranger
        })
        .collect();
    assert_eq!(ask(&mut known, route, &bearer()), expected, "{route}: a client with the token keeps its connection");
    assert_eq!(ask(&mut served.secured(), route, &bearer()), expected, "{route}: and another one gets in");
    drop((silent, halves, strangers));
}

#[test]
fn handshakes_and_requests_that_do_not_end_are_ended() {
    let served = serve();
    let silent = served.connect();
    let mut half = served.connect();
    half.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").expect("it is taken");
    let is_late = |error: std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    for mut stream in [silent, half] {
        let ended = stream.read_to_end(&mut Vec::new()); // a reset is an end, too
        assert!(!ended.is_err_and(is_late), "the server never ended it");
    }
    let mut idle = served.secured();
    assert_eq!(ask(&mut idle, "/v1/status", &bearer()), 200);
    let mut cut = served.secured();
    cut.write_all(b"GET /v1/status HTTP/1.1\r\nHost: n").expect("it is taken");
    for mut stream in [idle, cut] {
        let ended = stream.read_to_end(&mut Vec::new());
        assert!(!ended.is_err_and(is_late), "the server never ended it");
    }
}

#[test]
fn no_bytes_make_the_server_panic_or_answer() {
    let served = serve();
    let mut byte = 1_u64;
    let mut noise = |length: usize| -> Vec<u8> {
        let mut next = || {
            byte = byte.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (byte >> 56) as u8
        };
        (0..length).map(|_| next()).collect()
    };
    for length in 1..200 {
        for first in [0, 22, 23, 128] {
            let mut stream = served.connect();
            let mut bytes = noise(length);
            bytes[0] = first;
            drop(stream.write_all(&bytes));
            drop(stream.shutdown(std::net::Shutdown::Write));
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert!(answer.len() < 64, "an alert at most: {answer:?}");
        }
    }
    // Noise in the place of HTTP, and of headers.
    for length in 1..100 {
        let mut stream = served.secured();
        drop(stream.write_all(&noise(length)));
        drop(stream.write_all(b"\r\n\r\n"));
        stream.conn.send_close_notify();
        drop(stream.flush());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&answer));
        let headers = String::from_utf8_lossy(&noise(length)).replace(['\r', '\n'], "?");
        let status = ask(&mut served.secured(), "/v1/status", &format!("Authorization: Bearer {headers}\r\n"));
        assert!([400, 401].contains(&status), "{status}");
    }
    assert_eq!(ask(&mut served.secured(), "/v1/status", &bearer()), 200);
}

#[test]
fn nothing_is_served_to_other_machines_without_tls_and_a_token() {
    let served = serve();
    let anywhere = || TcpListener::bind("0.0.0.0:0").expect("a free port");
    let token = || Some(Token::new(SECRET).expect("it is long enough"));
    let credentials = Credentials::load(served.directory.path(), false).expect("certificates");
    for socket in
        [Socket::Tcp(anywhere(), None), Socket::Tcp(anywhere(), token()), Socket::Tls(anywhere(), None, credentials)]
    {
        let error = ControlServer::start_on(vec![socket], Backend).expect_err("it is refused");
        assert!(error.to_string().contains("other machines"), "{error}");
    }
}
