//! An array behind its sockets: found, asked, changed and stopped.

mod support;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Stdio};
use support::Workplace;

/// A server, killed when the test ends before it was stopped.
struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    greeting: String,
}

impl Server {
    /// Starts it and waits until it says that it serves.
    fn start(here: &Workplace, line: &str) -> Self {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let mut command = here.command(&arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("mdspace starts");
        let mut output = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let mut greeting = String::new();
        while !greeting.contains("\n  control") {
            let read = output.read_line(&mut greeting).expect("its output is text");
            assert!(read > 0, "it ended: {greeting}");
        }
        Self { child, output, greeting }
    }

    /// Asks it to end by a signal.
    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// Its exit status.
    fn wait(mut self) -> Option<i32> {
        let mut rest = String::new();
        while self.output.read_line(&mut rest).expect("its output is text") > 0 {}
        self.child.wait().expect("it can be waited for").code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail when it has ended already, which is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_server_is_found_tells_its_state_loses_a_member_and_stops_clean() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M --name data a b c").ok();
    let server = Server::start(&here, "serve c a b");
    assert!(server.greeting.contains("serving array \"data\": raid5, 14 MiB, clean"), "{}", server.greeting);

    let status = json(&here.run("status --json").ok().text());
    assert_eq!((&status["level"], &status["in_sync"]), (&"raid5".into(), &3.into()));
    let nbd = status["served"]["nbd"].as_str().expect("an address");
    let socket = nbd.strip_prefix("nbd+unix:///?socket=").expect("a unix socket");
    drop(UnixStream::connect(socket).expect("somebody listens"));

    here.run("serve a b c").expect(2, &["in use by"]);
    here.run("write a b c").expect(2, &["a: in use by"]);
    here.run("fail nobody").expect(2, &["nobody: not a member"]);
    here.run("remove b").expect(2, &["b: the member is active", "fail it first"]);
    let text = here.run("fail b").ok().text();
    assert!(text.contains("degraded") && text.contains("faulty"), "{text}");
    here.run("fail c").expect(2, &["cannot do without this member"]);
    here.run("remove b").ok();
    let status = json(&here.run("status --json").ok().text());
    assert_eq!((&status["missing"], &status["in_sync"]), (&json("[1]"), &2.into()));

    assert_eq!(here.run("stop").ok().text(), "stopped, clean, degraded\n");
    assert_eq!(server.wait(), Some(0));
    here.run("status").expect(2, &["no array of yours"]);
    let report = json(&here.run("examine --json a b c").ok().text());
    assert_eq!(report["arrays"][0]["status"]["state"], "clean, degraded");
    assert_eq!(report["arrays"][0]["status"]["left_out"][0]["name"], "b", "its events are old: {report}");
}

#[test]
fn settings_change_while_it_works_and_bad_ones_change_nothing() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M --name data a b c").ok();
    here.run("serve a b c --stripe-size 128K").expect(2, &["stripe-size", "131072 bytes", "the chunk's 65536"]);
    let server = Server::start(&here, "serve a b c --stripe-size 16K");
    let stripe_size = || json(&here.run("status --json").ok().text())["stripe_size_bytes"].clone();
    assert_eq!(stripe_size(), 16384);
    let text = here.run("set stripe-size=64K").ok().text();
    assert!(text.contains("stripe size 64 KiB"), "{text}");
    for (pairs, words) in [
        ("stripe-size=12K", &["stripe-size: 12288 bytes is not a power of two", "next: values: auto"] as &[&str]),
        ("stripe-size=2K", &["stripe-size: 2048 bytes is not from 4096 to the chunk's 65536"]),
        ("stripe-size=128K", &["stripe-size: 131072 bytes"]),
        ("stripe-size=much", &["stripe-size: `much` is not a unit"]),
        ("stripe-size=", &["stripe-size: expected a size"]),
        ("strip-size=4K", &["strip-size: there is no such setting", "stripe-size"]),
        ("stripe-size=4K zeal=9", &["zeal: there is no such setting"]),
    ] {
        here.run(&format!("set {pairs}")).expect(2, words);
        assert_eq!(stripe_size(), 65536, "{pairs}");
    }
    here.run("set stripe-size=auto").ok();
    assert_eq!(stripe_size(), Value::Null);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    here.run("create --level 1 --size 8M d e").ok();
    here.run("serve d e --stripe-size 4K").expect(2, &["without parity"]);
}

#[test]
fn a_signal_stops_a_server_clean() {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let here = Workplace::new();
        here.run("create --level 1 --size 8M a b").ok();
        let server = Server::start(&here, "serve a b --nbd tcp:127.0.0.1:0 --control here.sock");
        assert!(server.greeting.contains("nbd://127.0.0.1:"), "{}", server.greeting);
        here.run("status --control here.sock").ok();
        server.signal(signal);
        assert_eq!(server.wait(), Some(0), "{signal:?}");
        let report = json(&here.run("examine --json a b").ok().text());
        assert_eq!(report["arrays"][0]["status"]["state"], "clean");
        assert!(!here.path().join("here.sock").exists(), "the socket is gone");
    }
}

#[test]
fn a_read_only_server_changes_nothing() {
    let here = Workplace::new();
    here.run("create --level 6 --size 8M a b c d").ok();
    let before = here.contents(&["a", "b", "c", "d"]);
    let server = Server::start(&here, "serve a b c d --read-only");
    here.run("fail a").expect(2, &["read-only"]);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    assert!(here.contents(&["a", "b", "c", "d"]) == before);
}

#[test]
fn two_servers_are_never_mistaken_for_each_other() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --name one a b").ok();
    here.run("create --level 1 --size 8M --name two c d").ok();
    let (one, two) = (Server::start(&here, "serve a b"), Server::start(&here, "serve c d"));
    let run = here.run("stop");
    run.expect(2, &["2 arrays are being served", "--control"]);
    let control = run.stderr.split("--control ").find(|rest| rest.contains("/two-")).expect("it is named");
    let control = control.split([',', '\n']).next().expect("a path");
    here.run(&format!("stop --control {control}")).ok();
    assert_eq!(two.wait(), Some(0));
    here.run("stop").ok();
    assert_eq!(one.wait(), Some(0));
}

#[test]
fn up_makes_an_array_and_goes_on_where_it_left_off() {
    let here = Workplace::new();
    let server = Server::start(&here, "up");
    here.run("up").expect(2, &["is being served already"]);
    let first = json(&here.run("status --json").ok().text());
    assert_eq!((&first["level"], &first["raid_disks"]), (&"raid5".into(), &4.into()));
    here.run("fail member2.img").ok();
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));

    let server = Server::start(&here, "up");
    let second = json(&here.run("status --json").ok().text());
    assert_eq!(second["uuid"], first["uuid"]);
    assert_eq!(second["missing"], json("[2]"));
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn addresses_that_others_reach_are_refused() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M a b").ok();
    here.run("serve a b --nbd tcp:0.0.0.0:10809").expect(2, &["other machines"]);
    here.run("serve a b --nbd nowhere").expect(2, &["unix:PATH or tcp:HOST:PORT"]);
    here.run("serve a b --control a").expect(2, &["a"]);
    here.run("examine a b").ok();
}
