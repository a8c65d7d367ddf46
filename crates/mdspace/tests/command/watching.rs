//! Commands and interfaces that watch a served array: measures, events, `top` on a pseudo-terminal; and socket
//! activation.

use crate::support::traffic::{copy_in, http};
use crate::support::{END_TIMEOUT, Server, Workplace, ends_within, parsed};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn what_is_counted_adds_up_to_what_was_written() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 16M --name data --bitmap internal a b c").ok();
    let server = Server::of(&here, "serve a b c");
    copy_in(&here, &server, 1 << 20);
    let measures = parsed(&here.run("iostat --json").ok().text());
    assert_eq!(measures["requests"]["write"]["bytes"], 1 << 20);
    assert_eq!(measures["requests"]["in_flight"], 0);
    let members = measures["members"].as_array().expect("a list");
    assert_eq!(members.iter().map(|member| &member["name"]).collect::<Vec<_>>(), ["a", "b", "c"]);
    let written = |why: &str| members.iter().filter_map(|member| member["reasons"][why]["bytes"].as_u64()).sum::<u64>();
    // The data and its parity, in full stripes or not.
    assert_eq!(written("stripe") + written("data") + written("parity"), (1 << 20) * 3 / 2);
    assert!(written("superblock") > 0 && written("intent") > 0, "{measures}");
    for member in members {
        let write = &member["write"];
        let counted: u64 =
            write["latencies"].as_array().expect("a list").iter().filter_map(|pair| pair[1].as_u64()).sum();
        assert_eq!(Some(counted), write["count"].as_u64(), "{member}");
    }

    let text = here.run("iostat").ok().text();
    assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("array ")), "{text}");
    assert_eq!(here.run("iostat 0.02 3").ok().text().matches("Device ").count(), 3);
    let text = here.run("status").ok().text();
    for words in ["[UUU]", "created 20", "consistency policy bitmap", "requests: write", "r_await", "cache: "] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let watched = here.run("status --watch 0.02 --count 3").ok().text();
    assert_eq!(watched.matches("array \"data\"").count(), 3);
    assert!(watched.contains("/s") && !watched.contains('\x1b'), "rates, and no terminal's codes in a pipe: {watched}");
    here.run("iostat 0").expect(2, &["0.01 to"]);
    here.run("status --count 3").expect(2, &["--watch"]);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_trace_names_each_transfer_and_its_reason() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 16M --name data a b c").ok();
    let server = Server::of(&here, "serve a b c");
    let mut tracing = here.command(&["trace", "--json", "--count", "4"]);
    let mut tracing = tracing.stdout(Stdio::piped()).spawn().expect("mdspace starts");
    while tracing.try_wait().expect("it can be asked").is_none() {
        copy_in(&here, &server, 4096);
    }
    let mut text = String::new();
    tracing.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
    let lines: Vec<Value> = text.lines().map(parsed).collect();
    assert_eq!(lines.len(), 4, "{text}");
    let reasons = ["data", "parity", "stripe", "rmw", "superblock"];
    for line in &lines {
        assert!(line["why"].as_str().is_some_and(|why| reasons.contains(&why)), "{line}");
        assert!(["a", "b", "c"].contains(&line["device"].as_str().unwrap_or_default()), "{line}");
        assert!(line["latency_ms"].as_f64().is_some_and(|latency| latency >= 0.0), "{line}");
        let is_write = line["operation"] == "W";
        assert!(!is_write || line["bytes"].as_u64() > Some(0), "{line}");
    }
}

#[test]
fn prometheus_reads_and_only_the_token_changes() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M a b\"quoted\\").ok();
    std::fs::write(here.path().join("token"), "0123456789abcdef\n").expect("a file");
    std::fs::write(here.path().join("short"), "0123").expect("a file");
    here.run("serve a --http 192.0.2.1:80").expect(2, &["can be reached from other machines"]);
    here.run("serve a --http-token-file token").expect(2, &["add --http HOST:PORT"]);
    here.run("serve a --http 127.0.0.1:0 --http-token-file short").expect(2, &["short", "at least 16 characters"]);
    here.run("serve a --http 127.0.0.1:0 --http-token-file none").expect(2, &["none", "No such file"]);
    let server = Server::of(&here, "serve a b\"quoted\\ --http 127.0.0.1:0 --http-token-file token");
    copy_in(&here, &server, 4096);
    let url = server.word("http://");
    let status = parsed(&here.run("status --json").ok().text());
    assert_eq!(status["served"]["http"], url.trim_end_matches("/metrics"));
    let address = url.trim_start_matches("http://").trim_end_matches("/metrics");
    let (status, text) = http(
        address,
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(status, 200);
    assert!(text.ends_with("# EOF\n"), "{text}");
    for line in [
        "mdspace_array_in_sync{array=\"\",uuid=",
        "mdspace_sync_action{array=\"\",uuid=",
        "mdspace_request_bytes_total{array=\"\",uuid=",
        "# TYPE mdspace_request_duration_seconds histogram",
        "member=\"b\\\"quoted\\\\\",why=\"data\"} ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let post = |token: &str| {
        let body = r#"{"sync-action": "frozen"}"#;
        let length = body.len();
        let head = "POST /v1/set HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
        let request = format!("{head}Content-Length: {length}\r\nAuthorization: Bearer {token}\r\n\r\n{body}");
        http(address, &request).0
    };
    assert_eq!(post("0123456789abcdeF"), 401);
    assert_eq!(parsed(&here.run("status --json").ok().text())["sync_action"], "idle");
    assert_eq!(post("0123456789abcdef"), 200);
    assert_eq!(parsed(&here.run("status --json").ok().text())["sync_action"], "frozen");
}

#[test]
fn a_monitor_tells_a_program_a_mail_command_and_a_webhook() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --name data --spare c a b").ok();
    let server = Server::of(&here, "serve a b c");
    let script = here.path().join("tell");
    std::fs::write(&script, "#!/bin/sh\necho \"$@\" >>told\n").expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("it is ours");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
    here.run("monitor --webhook https://x/").expect(2, &["only http://"]);
    let arguments = [
        "monitor",
        "--interval",
        "0.02",
        "--json",
        "--program",
        "./tell",
        "--mail",
        "me",
        "--mailer",
        "cat >>mailed",
        "--webhook",
        &url,
        "--syslog=log",
    ];
    let log = std::os::unix::net::UnixDatagram::bind(here.path().join("log")).expect("a socket");
    let mut monitor = here.command(&arguments).stdout(Stdio::piped()).spawn().expect("mdspace starts");
    // Replies to each post, and returns its body.
    let posted = || -> Value {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut text = String::new();
        let mut buffer = [0; 4096];
        while !text.ends_with('}') {
            let read = stream.read(&mut buffer).expect("it is sent");
            assert!(read > 0, "{text}");
            text += std::str::from_utf8(&buffer[..read]).expect("text");
        }
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("it is taken");
        assert!(text.starts_with("POST /hook HTTP/1.1\r\n"), "{text}");
        parsed(text.split_once("\r\n\r\n").expect("a body").1)
    };
    let is =
        |event: &Value, name: &str, member: Option<&str>| event["event"] == name && event["member"].as_str() == member;
    assert!(is(&posted(), "NewArray", None));
    here.run("fail a").ok();
    let mut events = vec![posted()];
    while !is(events.last().expect("one"), "SpareActive", Some("c")) {
        events.push(posted());
    }
    assert!(is(&events[0], "Fail", Some("a")), "{events:?}");
    assert!(events.iter().all(|event| event["array"] == "data"), "{events:?}");
    here.run("stop").ok();
    let mut last = posted();
    while !is(&last, "DeviceDisappeared", None) {
        last = posted();
    }
    assert_eq!(server.wait(), Some(0));
    monitor.kill().expect("it runs");
    let mut text = String::new();
    monitor.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
    drop(monitor.wait());
    let lines: Vec<Value> = text.lines().map(parsed).collect();
    assert!(lines.iter().any(|line| is(line, "SpareActive", Some("c"))), "{text}");
    let told = std::fs::read_to_string(here.path().join("told")).expect("the program was called");
    for line in ["NewArray data\n", "Fail data a\n", "SpareActive data c\n", "DeviceDisappeared data\n"] {
        assert!(told.contains(line), "{line}: {told}");
    }
    let mut logged = String::new();
    log.set_nonblocking(true).expect("it is ours");
    let mut buffer = [0; 1024];
    while let Ok(bytes) = log.recv(&mut buffer) {
        logged += &String::from_utf8_lossy(&buffer[..bytes]);
        logged.push('\n');
    }
    for words in ["<26>mdspace[", "Fail event detected on md device data, component device a\n", "<30>mdspace["] {
        assert!(logged.contains(words), "{words}: {logged}");
    }
    let mailed = std::fs::read_to_string(here.path().join("mailed")).expect("the mail command was called");
    assert!(mailed.contains("To: me\nSubject: Fail event on data\n") && !mailed.contains("SpareActive"), "{mailed}");
}

#[test]
fn it_is_told_how_many_more_members_may_fail() {
    // As members fail, in this order.
    for (shape, members, left) in [
        ("6 --chunk 64K", "a b c d e", &[2, 1, 0][..]),
        ("5 --chunk 64K", "a b c", &[1, 0]),
        ("1", "a b c", &[2, 1, 0]),
        ("10 --chunk 64K", "a b c d", &[1, 0]),
        ("10 --layout n3 --chunk 64K", "a b c d", &[2, 1, 0]),
        ("0 --chunk 64K", "a b", &[0]),
    ] {
        let here = Workplace::new();
        here.run(&format!("create --level {shape} --size 8M --assume-clean --name data {members}")).ok();
        let _server = Server::of(&here, &format!("serve {members}"));
        for (index, left) in left.iter().enumerate() {
            if index > 0 {
                here.run(&format!("fail {}", ["a", "b"][index - 1])).ok();
            }
            let status = parsed(&here.run("status --json").ok().text());
            assert_eq!(status["may_fail"], *left, "{shape}: {status}");
            let listed = parsed(&here.run("list --json").ok().text());
            assert_eq!(listed[0]["may_fail"], *left, "{shape}: {listed}");
            let words = if *left == 0 { "no more may fail".to_owned() } else { format!("{left} more may fail") };
            for line in ["status", "list"] {
                let text = here.run(line).ok().text();
                assert_eq!(text.contains(&words), index > 0, "{shape}: {words}: {text}");
            }
        }
    }
}

#[test]
fn what_repeats_ends_when_its_reader_has_gone() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --name data a b").ok();
    let _server = Server::of(&here, "serve a b");
    for line in ["list --watch 0.02", "list --json --watch 0.02", "status --watch 0.02", "iostat 0.02", "trace"]
        .into_iter()
        .chain(["monitor --interval 0.02"])
    {
        let mut command = here.command(&line.split(' ').collect::<Vec<_>>());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("mdspace starts");
        let mut output = child.stdout.take().expect("a pipe");
        output.read_exact(&mut [0]).expect("it prints");
        drop(output);
        let process = rustix::process::Pid::from_child(&child);
        let process = rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()).expect("it is ours");
        assert!(ends_within(&process, END_TIMEOUT) || child.kill().is_err(), "{line}: it goes on without a reader");
        let status = child.wait().expect("it ended");
        assert_eq!(status.code(), Some(0), "{line}");
    }
}

#[test]
fn the_width_of_an_output_costs_no_process() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --name data a b").ok();
    let _server = Server::of(&here, "serve a b");
    let program = here.path().join("tput");
    std::fs::write(&program, "#!/bin/sh\necho >>called\necho 80\n").expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("it is ours");
    for line in ["status", "list", "iostat"] {
        let path = format!("{}:{}", here.path().display(), std::env::var("PATH").unwrap_or_default());
        let output = here.command(&[line]).env_remove("COLUMNS").env("PATH", path).output().expect("mdspace ends");
        assert!(output.status.success(), "{line}");
        assert!(!here.path().join("called").exists(), "{line}");
    }
}

#[test]
fn a_monitor_that_looks_once_fails_if_it_could_not_notify() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --assume-clean --name data a b").ok();
    let _server = Server::of(&here, "serve a b");
    let port = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("an address").port();
    let webhook = format!("--webhook http://127.0.0.1:{port}/");
    for (recipient, status) in [
        ("", 0),
        ("--program true", 0),
        ("--program ./none", 1),
        ("--program false", 1),
        ("--mail me --mailer cat", 0),
        ("--mail me --mailer false", 1),
        ("--syslog=none", 1),
        (&webhook, 1),
    ] {
        let run = here.run(&format!("monitor --once --test {recipient}"));
        run.expect(status, if status == 0 { &[] } else { &["not notified", "notifications failed"] });
        assert!(run.text().contains("TestMessage"), "{recipient}: {}", run.text());
    }
}

#[test]
fn the_end_of_a_scrub_comes_with_its_count_however_short_the_scrub_was() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --assume-clean --name data a b").ok();
    let server = Server::of(&here, "serve a b");
    let mut command =
        here.command(&["monitor", "--interval", "0.5", "--json", "--mail", "me", "--mailer", "cat >>mailed"]);
    let mut monitor = command.stdout(Stdio::piped()).spawn().expect("mdspace starts");
    let mut lines = BufReader::new(monitor.stdout.take().expect("a pipe")).lines();
    let mut next = |name: &str| loop {
        let event = parsed(&lines.next().expect("it goes on").expect("text"));
        if event["event"] == name {
            return event;
        }
    };
    next("NewArray");
    here.run("scrub").ok();
    assert_eq!(next("RebuildFinished").get("mismatches"), None);
    let member = std::fs::File::options().write(true).open(here.path().join("b")).expect("a member");
    std::os::unix::fs::FileExt::write_all_at(&member, &[1; 8192], 4 << 20).expect("it is long enough");
    here.run("scrub").expect(1, &["2 rows"]);
    let event = next("RebuildFinished");
    assert_eq!(event["mismatches"], 2, "{event}");
    here.run("stop").ok();
    next("DeviceDisappeared");
    assert_eq!(server.wait(), Some(0));
    monitor.kill().expect("it runs");
    drop(monitor.wait());
    let mailed = std::fs::read_to_string(here.path().join("mailed")).expect("the mail command was called");
    assert!(mailed.contains("Subject: RebuildFinished event on data\n"), "{mailed}");
    assert!(mailed.contains("\nMismatches found: 2 rows of 4 KiB\n"), "{mailed}");
}

#[test]
fn top_draws_on_a_terminal_obeys_its_keys_and_leaves_it_as_it_was() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 16M --name data a b c").ok();
    let _server = Server::of(&here, "serve a b c");
    here.run("top").expect(2, &["not a terminal"]);
    let terminal =
        rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY).expect("a terminal");
    rustix::pty::grantpt(&terminal).and_then(|()| rustix::pty::unlockpt(&terminal)).expect("it is ours");
    let name = rustix::pty::ptsname(&terminal, Vec::new()).expect("it has a name");
    let side =
        std::fs::File::options().read(true).write(true).open(name.to_str().expect("text")).expect("its other side");
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&side, size).expect("it has a size");
    let before = rustix::termios::tcgetattr(&side).expect("it has modes");
    let same = |file: &std::fs::File| Stdio::from(file.try_clone().expect("it can be shared"));
    let mut command = here.command(&["top", "--interval", "0.05"]);
    command.stdin(same(&side)).stdout(same(&side)).stderr(same(&side)).env("TERM", "xterm");
    let mut top = command.spawn().expect("mdspace starts");
    let mut screen = std::fs::File::from(terminal);
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&seen).contains("in_sync") {
        let read = screen.read(&mut buffer).expect("it draws");
        seen.extend_from_slice(&buffer[..read]);
    }
    screen.write_all(b"q").expect("a key");
    // Reads the rest of its output, so that it can end.
    let mut keys = screen.try_clone().expect("it can be shared");
    let rest = std::thread::spawn(move || {
        let mut rest = Vec::new();
        while !rest.windows(8).any(|window| window == b"\x1b[?1049l") {
            let read = keys.read(&mut buffer).expect("it draws");
            rest.extend_from_slice(&buffer[..read]);
        }
    });
    assert_eq!(top.wait().expect("it ends").code(), Some(0));
    rest.join().expect("the screen was left");
    let after = rustix::termios::tcgetattr(&side).expect("it has modes");
    assert_eq!(after.local_modes, before.local_modes, "the terminal is as it was");
    let text = String::from_utf8_lossy(&seen);
    assert!(text.contains("[UUU]") && text.contains("raid5"), "{text}");
}

#[test]
fn arrays_of_mdadm_conf_are_found_and_others_refused() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --name host:one a b").ok();
    here.run("create --level 1 --size 8M --name two c d").ok();
    let lines = here.run("examine --scan a b c d").ok().text();
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(lines.starts_with("ARRAY /dev/md/one  metadata=1.2 UUID="), "{lines}");
    let directory = here.path().display();
    std::fs::write(here.path().join("conf"), format!("DEVICE {directory}/?\n{lines}")).expect("a file");
    here.run_with("write --scan --config conf two", b"hello").ok();
    assert_eq!(here.run("read --scan --config conf /dev/md/two --length 5").ok().text(), "hello");
    here.run("serve --scan --config conf").expect(2, &["several ARRAY lines", "/dev/md/one, /dev/md/two"]);
    here.run("serve --scan --config conf three").expect(2, &["three: mdadm.conf has no such ARRAY line"]);
    here.run("serve --scan --config none one").expect(2, &["none: No such file"]);
    here.run("serve --config conf one").expect(2, &["--scan"]);
    here.run("serve").expect(2, &["MEMBER"]);
    let server = Server::of(&here, "serve --scan --config conf one");
    assert!(server.greeting.contains("\"host:one\": raid1"), "{}", server.greeting);
}

/// A command with sockets from the service manager, as systemd passes them: descriptors from 3 on, and the environment
/// of the process. The sockets stay open here until the second value is dropped.
fn activated(here: &Workplace, line: &str, sockets: Vec<OwnedFd>, names: &str) -> (Command, Vec<OwnedFd>) {
    // The shell inherits descriptors at high numbers and moves them; exec keeps the process.
    let high = |fd: OwnedFd| {
        let high = rustix::io::fcntl_dupfd_cloexec(&fd, 50).expect("there is a number left");
        rustix::io::fcntl_setfd(&high, rustix::io::FdFlags::empty()).expect("it is open");
        high
    };
    let sockets: Vec<OwnedFd> = sockets.into_iter().map(high).collect();
    let moved = |(index, fd): (usize, &OwnedFd)| format!("{}<&{} ", index + 3, fd.as_raw_fd());
    let moves: String = sockets.iter().enumerate().map(moved).collect();
    let count = sockets.len();
    let script = format!("LISTEN_PID=$$ LISTEN_FDS={count} LISTEN_FDNAMES={names} exec \"$0\" {line} {moves}");
    let mut command = Command::new("bash");
    command.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_mdspace"));
    command.current_dir(here.path()).env("XDG_RUNTIME_DIR", here.path());
    (command, sockets)
}

#[test]
fn sockets_are_taken_over_and_the_service_manager_is_told() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --name data a b").ok();
    let nbd = UnixListener::bind(here.path().join("nbd.sock")).expect("a socket");
    nbd.set_nonblocking(true).expect("as systemd has it");
    let control = UnixListener::bind(here.path().join("control.sock")).expect("a socket");
    let http_port = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = http_port.local_addr().expect("an address").to_string();
    let manager = UnixDatagram::bind(here.path().join("notify")).expect("a socket");
    manager.set_read_timeout(Some(Duration::from_secs(30))).expect("it can be set");
    let told = || {
        let mut buffer = [0; 1024];
        let length = manager.recv(&mut buffer).expect("the manager is told in time");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    // A client may connect before the server starts.
    let early = std::os::unix::net::UnixStream::connect(here.path().join("nbd.sock")).expect("the socket is there");
    let sockets = vec![nbd.into(), control.into(), http_port.into()];
    let (mut command, sockets) = activated(&here, "serve a b", sockets, "nbd:control:http");
    command.env("NOTIFY_SOCKET", here.path().join("notify"));
    let server = Server::start(command);
    drop(sockets);
    let ready = told();
    assert!(ready.contains("READY=1\n") && ready.contains("STATUS=serving array \"data\": raid1"), "{ready}");
    let mut greeting = [0; 8];
    (&early).read_exact(&mut greeting).expect("it is served now");
    assert_eq!(&greeting, b"NBDMAGIC");
    drop(early);
    copy_in(&here, &server, 4096);
    let (status, _) = http(
        &address,
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(status, 200);
    here.run("stop --control control.sock").ok();
    assert!(told().contains("STOPPING=1"));
    assert_eq!(server.wait(), Some(0));

    for (names, reason) in [("nbd:nbd", "two sockets have this name"), ("nbd:web", "unknown name")] {
        let sockets = (0..2).map(|index| {
            let path = here.path().join(format!("{names}.{index}"));
            OwnedFd::from(UnixListener::bind(path).expect("a socket"))
        });
        let (mut command, _sockets) = activated(&here, "serve a b", sockets.collect(), names);
        let output = command.output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(reason) && text.contains("FileDescriptorName="), "{text}");
    }
    let anywhere = TcpListener::bind("0.0.0.0:0").expect("a free port");
    let (mut command, _sockets) = activated(&here, "serve a b", vec![anywhere.into()], "http");
    let output = command.output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("other machines") && text.contains("--http-tls-certificates DIR"), "{text}");
    assert_eq!(json!(here.run("examine --json a b").ok().status), 0, "refusals changed nothing");
}

#[test]
fn each_change_of_membership_is_a_line_of_the_log_and_a_rebuild_is_no_write_of_others() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --integrity --size 8M --name data a b c").ok();
    let log = std::fs::File::create(here.path().join("log")).expect("room");
    let mut command = here.command(&["serve", "a", "b", "c"]);
    command.stderr(log);
    let server = Server::start(command);
    here.run("re-add b").expect(2, &["a member of this array already", "it is in sync"]);
    here.run("fail b").ok();
    for line in ["re-add b", "add b", "add --force b", "replace a b"] {
        here.run(line).expect(2, &["a member of this array already", "remove it first"]);
    }
    here.run("remove b").ok();
    here.run("add --force b").ok();
    let status = loop {
        let status = parsed(&here.run("status --json").ok().text());
        if status["in_sync"] == 3 {
            break status;
        }
    };
    assert_eq!((&status["checksums"]["members"], &status["checksums"]["current"]), (&3.into(), &3.into()), "{status}");
    let text = here.run("status").ok().text();
    assert!(!text.contains("unknown since others wrote"), "{text}");
    here.run("scrub").ok();
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    let log = std::fs::read_to_string(here.path().join("log")).expect("a log");
    let lines = [
        "b (slot 1) left the array: marked faulty by request",
        "b was removed",
        "b (slot 1) has a slot, and is to be recovered",
        "b begins at 0 %",
        "b (slot 1) is recovered, and in sync",
        "check begins",
        "check complete: all that was compared agrees",
    ];
    let mut rest = &log[..];
    for line in lines {
        let (_, after) = rest.split_once(line).unwrap_or_else(|| panic!("{line}, in its order: {log}"));
        rest = after;
    }
    assert!(!log.contains('\u{1b}'), "escapes in a file: {log}");
}

#[test]
fn lines_in_the_journal_have_priorities_and_others_have_none() {
    use std::os::unix::fs::MetadataExt;
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --assume-clean --name data a b").ok();
    for leads_to_journal in [true, false] {
        let log = std::fs::File::create(here.path().join("log")).expect("room");
        let metadata = log.metadata().expect("it is there");
        let inode = metadata.ino() + u64::from(!leads_to_journal);
        let stream = format!("{}:{inode}", metadata.dev());
        let mut command = here.command(&["serve", "a", "b", "--nbd", "unix:n"]);
        command.stderr(log.try_clone().expect("it can be shared")).env("JOURNAL_STREAM", &stream);
        let server = Server::start(command);
        let mut refused = here.command(&["serve", "none"]);
        refused.stderr(log).env("JOURNAL_STREAM", &stream);
        assert_eq!(refused.status().expect("it ends").code(), Some(2));
        here.run("scrub").ok();
        here.run("fail b").ok();
        here.run("remove b").ok();
        here.run("re-add b");
        here.run("stop").ok();
        assert_eq!(server.wait(), Some(0));
        let log = std::fs::read_to_string(here.path().join("log")).expect("a log");
        let begins =
            |words: &str| log.lines().find(|line| line.contains(words)).map(|line| line.get(..3).unwrap_or(line));
        for (words, priority) in [
            ("refused: none", "<3>"),
            ("b (slot 1) left the array", "<4>"),
            ("stopped, ", "<5>"),
            ("check begins", "<6>"),
            ("b was removed", "<6>"),
        ] {
            assert_eq!(begins(words) == Some(priority), leads_to_journal, "{words}: {log}");
            assert!(begins(words).is_some(), "{words}: {log}");
        }
        assert_eq!(log.lines().all(|line| line.starts_with('<')), leads_to_journal, "{log}");
        here.run("create --level 1 --size 8M --assume-clean --force --name data a b").ok();
    }
}
