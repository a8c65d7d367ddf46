//! HTTP where other machines reach it: refused without TLS and a token, and what curl gets with both.

use crate::support::{Server, Workplace, parsed};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

const TOKEN: &str = "0123456789abcdef";

/// An array of two files, a token, and a certificate for 127.0.0.1 in `keys`.
fn prepared() -> Workplace {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --name data a b").ok();
    std::fs::write(here.path().join("token"), format!("{TOKEN}\n")).expect("a file");
    std::fs::create_dir(here.path().join("keys")).expect("a directory");
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj /CN=mdspace -days 2 \
                 -addext subjectAltName=IP:127.0.0.1 -keyout keys/server-key.pem -out keys/server-cert.pem";
    let mut openssl = Command::new("openssl");
    let output =
        openssl.args(words.split_whitespace()).current_dir(here.path()).output().expect("openssl is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    here
}

/// The port of `server`.
fn port(server: &Server) -> u16 {
    let url = server.word("https://");
    let port = url.trim_end_matches("/metrics").rsplit(':').next().expect("a port");
    port.parse().expect("a number")
}

/// curl's exit status, the HTTP status, and the answer with its head.
fn curl(here: &Workplace, words: &[&str], url: &str) -> (i32, u16, String) {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--include", "--noproxy", "*", "--write-out", "\n%{http_code}", "--max-time", "30"]);
    let output = curl.args(words).arg(url).current_dir(here.path()).output().expect("curl is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (answer, status) = text.rsplit_once('\n').expect("curl's own line");
    (output.status.code().unwrap_or(-1), status.parse().expect("a number"), answer.to_owned())
}

#[test]
fn http_that_other_machines_reach_is_refused_without_tls_and_a_token() {
    let here = prepared();
    let before = here.contents(&["a", "b"]);
    let both = "add --http-tls-certificates DIR and --http-token-file FILE";
    for (flags, words) in [
        ("--http 0.0.0.0:0", &["other machines", "unencrypted", both] as &[&str]),
        ("--http [::]:0", &["other machines", "unencrypted", both]),
        ("--http 192.0.2.1:80 --http-token-file token", &["unencrypted", "add --http-tls-certificates DIR"]),
        ("--http 0.0.0.0:0 --http-tls-certificates keys", &["without a token", "add --http-token-file FILE"]),
        ("--http-tls-certificates keys", &["HTTP is off", "add --http HOST:PORT"]),
        ("--http 127.0.0.1:0 --http-tls-certificates none", &["none/server-cert.pem: No such file", "docs/tls.md"]),
        ("--http example.org:80", &["an address and a port"]),
    ] {
        here.run(&format!("serve a b {flags}")).expect(2, words);
    }
    std::fs::write(here.path().join("keys/server-key.pem"), "-----BEGIN PRIVATE KEY-----\n!").expect("a file");
    here.run("serve a b --http 127.0.0.1:0 --http-tls-certificates keys").expect(2, &["keys/server-key.pem"]);
    assert!(here.contents(&["a", "b"]) == before, "a refusal changed a member");
}

#[test]
fn other_machines_read_and_change_with_the_token_alone() {
    let here = prepared();
    let server = Server::of(&here, "serve a b --http 0.0.0.0:0 --http-token-file token --http-tls-certificates keys");
    let port = port(&server);
    let own = parsed(&here.run("status --json").ok().text());
    assert_eq!(own["served"]["http"], format!("https://0.0.0.0:{port}"));
    let ask = |words: &[&str], route: &str| {
        let trusting = [&["--cacert", "keys/server-cert.pem"], words].concat();
        curl(&here, &trusting, &format!("https://127.0.0.1:{port}{route}"))
    };
    let right = ["--header", &*format!("Authorization: Bearer {TOKEN}")];
    let wrong = ["--header", "Authorization: Bearer 0123456789abcdeF"];
    let change = [&right[..], &["--data", r#"{"sync-action": "frozen"}"#]].concat();
    for route in ["/v1/status", "/v1/measures", "/v1/trace", "/v1/scrub", "/metrics"] {
        let (_, status, answer) = ask(&[], route);
        assert_eq!(status, 401, "{answer}");
        assert!(answer.to_ascii_lowercase().contains("www-authenticate: bearer"), "{answer}");
        assert!(!answer.contains("data"), "{answer}");
        assert_eq!(ask(&wrong, route).1, 401);
        assert_eq!(ask(&right, route).1, 200);
    }
    for post in [&change[2..], &[&wrong[..], &change[2..]].concat()] {
        assert_eq!(ask(post, "/v1/set").1, 401);
    }
    assert_eq!(parsed(&here.run("status --json").ok().text())["sync_action"], "idle");
    assert_eq!(ask(&change, "/v1/set").1, 200);
    assert_eq!(parsed(&here.run("status --json").ok().text())["sync_action"], "frozen");
    // Probes send no token, and the page asks for it.
    for (route, word) in [("/healthz", "ok"), ("/readyz", "ready"), ("/", "<title>mdspace"), ("/common.js", "fetch(")] {
        let (_, status, answer) = ask(&[], route);
        assert_eq!(status, 200, "{route}: {answer}");
        assert!(answer.contains(word) && !answer.contains(own["uuid"].as_str().expect("a uuid")), "{answer}");
        assert_eq!(ask(&wrong, route).1, 401, "a wrong token is never ignored");
    }
    let named = [&right[..], &["--header", "Host: nas.example"]].concat();
    assert_eq!(ask(&named, "/v1/status").1, 200, "clients know the server by any name");
    // The server's certificate is checked by the client, and plain HTTP gets nothing but the reason.
    assert_eq!(curl(&here, &right, &format!("https://127.0.0.1:{port}/v1/status")).0, 60);
    let (_, status, answer) = curl(&here, &right, &format!("http://127.0.0.1:{port}/v1/status"));
    assert_eq!(status, 400, "{answer}");
    assert!(answer.contains("https://") && !answer.contains("raid1"), "{answer}");
    for garbage in [&b"\x16\x03\x01\xff\xff"[..], &[0; 64], &[22; 4096], b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
        stream.write_all(garbage).expect("it is taken");
        // The server may have hung up already: then neither call succeeds, and there is no answer.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 64, "an alert at most: {answer:?}");
    }
    assert_eq!(ask(&right, "/v1/status").1, 200);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn readiness_without_the_token_gives_no_reason() {
    let here = Workplace::new();
    let prepared = prepared();
    for name in ["token", "keys"] {
        std::fs::rename(prepared.path().join(name), here.path().join(name)).expect("both are temporary");
    }
    here.run("create --level 5 --size 16M --assume-clean --name data a b c").ok();
    let server = Server::of(&here, "serve a b c --http 0.0.0.0:0 --http-token-file token --http-tls-certificates keys");
    let url = format!("https://127.0.0.1:{}/readyz", port(&server));
    here.run("fail a").ok();
    let shortened = std::fs::File::options().write(true).open(here.path().join("b")).expect("a member");
    shortened.set_len(4096).expect("it is ours");
    std::fs::write(here.path().join("data"), vec![7; 1 << 20]).expect("a file");
    let mut copy = Command::new("nbdcopy");
    copy.arg("data").arg(server.word("nbd")).current_dir(here.path()).stderr(std::process::Stdio::null());
    assert!(!copy.status().expect("nbdcopy is installed").success());
    let trusting = ["--cacert", "keys/server-cert.pem"];
    let (_, status, stranger) = curl(&here, &trusting, &url);
    assert_eq!(status, 503);
    let token = format!("Authorization: Bearer {TOKEN}");
    let (_, status, known) = curl(&here, &[&trusting[..], &["--header", &token]].concat(), &url);
    assert_eq!(status, 503);
    assert!(known.contains("the array takes no writes") && !stranger.contains("the array takes no"), "{stranger}");
}

#[test]
fn on_the_loopback_address_tls_changes_nothing_but_the_wire() {
    let here = prepared();
    let server = Server::of(&here, "serve a b --http 127.0.0.1:0 --http-tls-certificates keys");
    let url = format!("https://127.0.0.1:{}", port(&server));
    let ask = |words: &[&str], route: &str| {
        curl(&here, &[&["--cacert", "keys/server-cert.pem"], words].concat(), &format!("{url}{route}")).1
    };
    assert_eq!(ask(&[], "/v1/status"), 200);
    assert_eq!(ask(&["--header", "Host: rebound.example"], "/v1/status"), 403);
    assert_eq!(ask(&["--data", "{}"], "/v1/stop"), 403, "without a token nothing is changed");
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}
