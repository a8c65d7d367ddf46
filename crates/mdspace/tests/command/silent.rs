//! Clients of a server that hangs: SIGSTOP stops it, so that its sockets take connections and answer none.

use crate::support::{END_TIMEOUT, Run, Server, Workplace, parsed};
use rustix::process::Signal;
use serde_json::Value;
use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// A monitor whose events come with a limit.
struct Monitor {
    child: Child,
    events: Receiver<Value>,
    /// Those that came and were not asked for yet.
    seen: RefCell<Vec<Value>>,
}

impl Monitor {
    fn of(here: &Workplace, line: &str) -> Self {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut child = here.command(&words).stdout(Stdio::piped()).spawn().expect("mdspace starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, events) = channel();
        std::thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .map(|line| sender.send(parsed(&line)))
                .take_while(Result::is_ok)
                .count()
        });
        Self { child, events, seen: RefCell::default() }
    }

    /// The next event of this name, and about this array.
    #[track_caller]
    fn next(&self, name: &str, array: &str) -> Value {
        let mut seen = self.seen.borrow_mut();
        loop {
            if let Some(at) = seen.iter().position(|event| event["event"] == name && event["array"] == array) {
                return seen.remove(at);
            }
            let event = self.events.recv_timeout(END_TIMEOUT);
            seen.push(event.unwrap_or_else(|_| panic!("no {name} of {array}")));
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn a_monitor_tells_of_a_server_that_hangs_and_of_all_that_happens_to_other_arrays() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --assume-clean --name one a b").ok();
    here.run("create --level 1 --size 8M --assume-clean --name two c d").ok();
    let one = Server::of(&here, "serve a b");
    let _two = Server::of(&here, "serve c d");
    let monitor = Monitor::of(&here, "monitor --interval 0.05 --json --mail me --mailer cat>>mailed");
    monitor.next("NewArray", "one");
    monitor.next("NewArray", "two");
    one.signal(Signal::STOP);
    here.run("fail d --array two").ok();
    monitor.next("Fail", "two");
    monitor.next("ServerSilent", "one");
    here.run("remove d --array two").ok();
    here.run("add --force d --array two").ok();
    monitor.next("SpareActive", "two");
    one.signal(Signal::CONT);
    monitor.next("ServerAnswers", "one");
    here.run("fail a --array one").ok();
    assert_eq!(monitor.next("Fail", "one")["member"], "a", "it goes on where it was");
    let mailed = std::fs::read_to_string(here.path().join("mailed")).expect("the mail command was called");
    assert_eq!(mailed.matches("Subject: ServerSilent event on one\n").count(), 1, "{mailed}");
    // A monitor that looks for the first time tells of it, too.
    one.signal(Signal::STOP);
    let text = here.run("monitor --once").ok().text();
    assert!(text.contains("ServerSilent      one\n") && text.contains("NewArray          two\n"), "{text}");
    one.signal(Signal::CONT);
}

#[test]
fn a_command_does_not_wait_for_a_server_that_hangs() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --assume-clean --name one a b").ok();
    let server = Server::of(&here, "serve a b --control c");
    let hangs = format!("the server (process {}) does not answer within 10 seconds", server.pid());
    server.signal(Signal::STOP);
    let begun = Instant::now();
    let lines = ["status", "iostat", "trace", "set sync-speed-min=2M", "fail a", "scrub", "stop", "grow --size max"];
    let runs: Vec<(&str, Child)> = lines
        .iter()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().chain(["--control", "c"]).collect();
            let mut command = here.command(&words);
            (*line, command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mdspace starts"))
        })
        .collect();
    for (line, child) in runs {
        let run = Run::new(line, child.wait_with_output().expect("mdspace ends"));
        run.expect(1, &["error: c: ", &hangs, "next: `ps "]);
    }
    assert!(begun.elapsed() < END_TIMEOUT, "{:?}", begun.elapsed());
    server.signal(Signal::CONT);
    let status = parsed(&here.run("status --json --control c").ok().text());
    assert_eq!(status["in_sync"], 2, "no change was requested of it: {status}");
}
