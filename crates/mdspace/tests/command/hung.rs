//! A server beside a file on a file system that hangs: as a new member, and as a current one.
//!
//! The file is the array of another server, mounted by FUSE. SIGSTOP stops that server, and then every request to the
//! file system waits, even opening the file.

use crate::support::nbd::Nbd;
use crate::support::{Run, Server, Workplace, parsed};
use rustix::process::Signal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A file on a file system that can hang. It continues when this value is dropped.
struct Hanging {
    place: Workplace,
    server: Option<Server>,
}

impl Hanging {
    /// `None`, with a message, without FUSE.
    fn new(test: &str) -> Option<Self> {
        if !std::path::Path::new("/dev/fuse").exists() {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{test} did not run: no /dev/fuse");
            eprintln!("did not run: {test}: no /dev/fuse");
            return None;
        }
        let place = Workplace::new();
        std::fs::create_dir(place.path().join("mnt")).expect("a directory");
        place.run("create --level 1 --size 16M x missing").ok();
        let server = Server::of(&place, "serve x --nbd unix:n --control c --fuse mnt");
        Some(Self { place, server: Some(server) })
    }

    fn file(&self) -> PathBuf {
        self.place.path().join("mnt/array")
    }

    /// Stops the server of the file while it has no request of `user`. A request that it had read would hold the process
    /// that sent it, even against a kill.
    fn hang(&self, user: &Server) {
        loop {
            self.signal(Signal::STOP);
            let pid = self.server.as_ref().expect("it serves").pid();
            while !of_threads(pid, "stat").iter().all(|stat| is_stopped(stat)) {
                std::thread::yield_now();
            }
            if !of_threads(user.pid(), "wchan").iter().any(|place| place == "request_wait_answer") {
                return;
            }
            self.go_on();
        }
    }

    fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        self.server.as_ref().expect("it serves").signal(signal);
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.go_on();
        // A killed server would leave its mount.
        self.signal(Signal::TERM);
        if let Some(server) = self.server.take() {
            server.wait();
        }
        // The process that hung may have kept the file open longer than its server waited.
        let mount = self.place.path().join("mnt");
        drop(std::process::Command::new("fusermount3").args(["-u", "-z", "-q"]).arg(mount).status());
    }
}

/// What the kernel says of each thread of a process, in the file of this name.
fn of_threads(pid: u32, name: &str) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    // A thread may end meanwhile.
    tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join(name)).ok()).collect()
}

fn is_stopped(stat: &str) -> bool {
    // The name is in parentheses, and may contain some.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// Runs a control command, which must complete within some seconds.
#[track_caller]
fn soon(here: &Workplace, line: &str) -> Run {
    let begun = Instant::now();
    let run = here.run(line);
    assert!(begun.elapsed() < Duration::from_secs(8), "{line}: after {:?}", begun.elapsed());
    run
}

#[test]
fn while_a_file_that_hangs_is_added_everything_else_is_heard() {
    let Some(hanging) = Hanging::new("while_a_file_that_hangs_is_added_everything_else_is_heard") else { return };
    for ending in ["stop", "signal"] {
        let here = Workplace::new();
        here.run("create --level 1 --size 8M a b missing").ok();
        let server = Server::of(&here, "serve a b --nbd unix:n --control c");
        hanging.hang(&server);
        let words = ["add", hanging.file().to_str().expect("UTF-8"), "--control", "c"].map(str::to_owned);
        let mut add = here.command(&words.each_ref().map(|word| &**word));
        let mut add = add.stderr(std::process::Stdio::piped()).spawn().expect("mdspace starts");
        // The command is running as soon as another one is refused because of it.
        let begun = Instant::now();
        let mut other = soon(&here, "add another --control c");
        while !other.stderr.contains("busy") && begun.elapsed() < Duration::from_secs(60) {
            other = soon(&here, "add another --control c");
        }
        other.expect(2, &["busy: add of ", "array is under way", "next: "]);
        assert_eq!(parsed(&soon(&here, "status --json --control c").ok().text())["state"], "clean, degraded");
        soon(&here, "set sync-speed-min=2M --control c").ok();
        soon(&here, "fail b --control c").ok();
        let mut client = Nbd::connect(here.path().join("n").to_str().expect("UTF-8"));
        client.read(0, 4096);
        match ending {
            "stop" => drop(soon(&here, "stop --control c").ok()),
            _ => server.signal(Signal::TERM),
        }
        let begun = Instant::now();
        assert_eq!(server.wait(), Some(0), "{ending}");
        assert!(begun.elapsed() < Duration::from_secs(8), "{ending}: after {:?}", begun.elapsed());
        assert_eq!(add.wait().expect("it ended").code(), Some(2), "its client is told");
        hanging.go_on();
    }
}

#[test]
fn a_member_that_hangs_and_has_left_holds_up_no_end() {
    let Some(hanging) = Hanging::new("a_member_that_hangs_and_has_left_holds_up_no_end") else { return };
    for ending in ["stop", "signal"] {
        let here = Workplace::new();
        let hangs = hanging.file().to_str().expect("UTF-8").to_owned();
        here.run(&format!("create --level 5 --size 8M --force a b {hangs}")).ok();
        let server = Server::of(&here, &format!("serve a b {hangs} --nbd unix:n --control c"));
        soon(&here, "set member-timeout=1 --control c").ok();
        let mut client = Nbd::connect(here.path().join("n").to_str().expect("UTF-8"));
        let block = |fill: u8| vec![fill; 256 << 10];
        client.request(1, 0, 256 << 10, &block(1));
        assert_eq!(client.reply(), 0);
        hanging.hang(&server);
        client.request(1, 0, 256 << 10, &block(2));
        assert_eq!(client.reply(), 0);
        assert_eq!(parsed(&soon(&here, "status --json --control c").ok().text())["missing"][0], 2);
        drop(client);
        let begun = Instant::now();
        match ending {
            "stop" => {
                let text = here.run("stop --control c").ok().text();
                assert!(text.starts_with("stopped, clean"), "{text}");
            }
            _ => server.signal(Signal::TERM),
        }
        assert_eq!(server.wait(), Some(0), "{ending}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{ending}: after {:?}", begun.elapsed());
        let read = here.run("read a b --length 256K");
        assert!(read.ok().stdout == block(2), "{ending}: what was written is there");
        hanging.go_on();
    }
}
