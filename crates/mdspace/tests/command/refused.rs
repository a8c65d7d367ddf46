//! The command on a system that refuses io_uring. tests/refused.py makes the kernel refuse, as container profiles do.

use crate::support::nbd::Nbd;
use crate::support::{Server, Workplace, parsed};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/refused.py");
const IO_URING: &str = "io_uring_setup,io_uring_enter,io_uring_register";
const NOTHING: &str = "/dev/null";

/// A command of `here` for which each of `calls` answers `error`. `words` are separated by spaces.
fn refused(here: &Workplace, error: &str, calls: &str, words: &str) -> Command {
    let plain = here.command(&[]);
    let mut command = Command::new(FILTER);
    command.args([error, calls]).arg(plain.get_program()).args(words.split_whitespace());
    command.current_dir(here.path());
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.env_remove("MDSPACE_IO");
    command
}

/// Whether the filter works here. Without Python there is none.
fn has_filter(test: &str) -> bool {
    let works = Command::new(FILTER).args(["EPERM", "io_uring_setup", "true"]).status().is_ok_and(|end| end.success());
    assert!(works || std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{test} did not run: no filter");
    if !works {
        eprintln!("did not run: {test}: no filter");
    }
    works
}

/// Runs it to its end. Returns the exit status and both outputs.
fn run(mut command: Command, input: impl AsRef<Path>) -> (Option<i32>, Vec<u8>, String) {
    let input = std::fs::File::open(input).expect("the input");
    let output = command.stdin(input).output().expect("it starts");
    (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn every_command_works_where_io_uring_is_refused_and_status_says_so() {
    if !has_filter("every_command_works_where_io_uring_is_refused_and_status_says_so") {
        return;
    }
    for (error, calls, words) in [
        ("EPERM", IO_URING, "Operation not permitted"),
        ("ENOSYS", IO_URING, "Function not implemented"),
        ("ENOMEM", "io_uring_setup", "Cannot allocate memory"),
        ("EPERM", "io_uring_enter", "Operation not permitted"),
    ] {
        let here = Workplace::new();
        let data: Vec<u8> = (0..3_u32 << 20).map(|at| (at.wrapping_mul(at) >> 9) as u8).collect();
        let input = here.path().join("data");
        std::fs::write(&input, &data).expect("a file");
        let line = |words: &str| run(refused(&here, error, calls, words), &input);
        let done = |words: &str| {
            let (status, stdout, stderr) = line(words);
            assert_eq!(status, Some(0), "{error} {calls}: {words}: {stderr}");
            stdout
        };
        done("create --level 5 --chunk 64K --size 4M a b c");
        done("write a b c");
        assert!(done("read a b c").starts_with(&data), "{error} {calls}");
        assert!(String::from_utf8_lossy(&done("examine a b c")).contains("raid5"));
        done("scrub a b c");

        let serve = "serve a b c --nbd unix:n --control c.socket";
        let server = Server::start(refused(&here, error, calls, serve));
        let mut client = Nbd::connect(here.path().join("n").to_str().expect("UTF-8"));
        assert!(client.read(0, 1 << 20) == data[..1 << 20], "{error} {calls}");
        client.request(1, 8192, 4096, &[7; 4096]);
        assert_eq!(client.outcome(), Ok(()));
        assert_eq!(client.read(8192, 4096), [7; 4096]);
        let status = parsed(&String::from_utf8_lossy(&done("status --json --control c.socket")));
        let io = &status["served"]["io"];
        assert_eq!(io["backend"], "threads");
        let refusal = io["refusal"].as_str().expect("a reason");
        assert!(refusal.contains(words), "{refusal}");
        let text = String::from_utf8_lossy(&done("status --control c.socket")).into_owned();
        assert!(text.contains("io by threads") && text.contains(words), "{text}");
        done("scrub --control c.socket");
        drop(client);
        done("stop --control c.socket");
        assert_eq!(server.wait(), Some(0));
        done("scrub a b c");
    }
}

#[test]
fn the_backend_is_chosen_by_the_command_line_or_the_environment() {
    let test = "the_backend_is_chosen_by_the_command_line_or_the_environment";
    let here = Workplace::new();
    here.run("create --level 1 --size 4M a b").ok();
    let backend = |words: &str, variable: Option<&str>| {
        let mut command = here.command(&words.split_whitespace().collect::<Vec<_>>());
        command.env_remove("MDSPACE_IO");
        if let Some(value) = variable {
            command.env("MDSPACE_IO", value);
        }
        let server = Server::start(command);
        let io = parsed(&here.run("status --json --control c").ok().text())["served"]["io"].clone();
        here.run("stop --control c").ok();
        server.wait();
        assert_eq!(io["refusal"], serde_json::Value::Null, "nothing was refused");
        (io["backend"].as_str().expect("a name").to_owned(), io["cost"].is_string())
    };
    let serve = "serve a b --nbd unix:n --control c";
    let (threads, ring) = (("threads".to_owned(), true), ("io_uring".to_owned(), false));
    assert_eq!(backend(&format!("--io threads {serve}"), None), threads);
    assert_eq!(backend(&format!("{serve} --io io_uring"), Some("threads")), ring);
    assert_eq!(backend(serve, Some("threads")), threads);
    assert_eq!(backend(serve, Some("")), ring);
    let run = |variable: &str| here.command(&["examine", "a"]).env("MDSPACE_IO", variable).output().expect("it runs");
    let output = run("rings");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("MDSPACE_IO=rings") && said.contains("auto, io_uring or threads"), "{said}");
    here.run("--io rings examine a").expect(2, &["--io"]);
    here.run("--io threads serve a b --ublk --nbd unix:n --control c").expect(2, &["--ublk", "io_uring alone"]);
    if has_filter(test) {
        let (status, _, said) = run_filtered(&here, "--io io_uring examine a");
        assert_eq!(status, Some(2));
        assert!(said.contains("io_uring: Operation not permitted") && said.contains("--io auto"), "{said}");
    }
}

fn run_filtered(here: &Workplace, words: &str) -> (Option<i32>, Vec<u8>, String) {
    run(refused(here, "EPERM", IO_URING, words), NOTHING)
}

#[test]
fn offline_commands_do_without_threads_and_a_missing_lock_is_named() {
    if !has_filter("offline_commands_do_without_threads_and_a_missing_lock_is_named") {
        return;
    }
    let here = Workplace::new();
    let input = here.path().join("data");
    std::fs::write(&input, vec![0x5a; 1 << 20]).expect("a file");
    let none = "clone,clone3,io_setup";
    for words in ["create --level 5 --size 4M a b c", "write a b c", "examine a b c", "read a b c", "scrub a b c"] {
        let (status, stdout, said) = run(refused(&here, "EAGAIN", none, &format!("--io threads {words}")), &input);
        assert_eq!(status, Some(0), "{words}: {said}");
        assert!(words != "read a b c" || stdout.starts_with(&[0x5a; 1 << 20]));
    }
    let members = here.contents(&["a", "b", "c"]);
    for export in ["", "--vhost-user v"] {
        let serve = format!("serve a b c --nbd unix:n --control d {export}");
        let (status, _, said) = run(refused(&here, "EAGAIN", none, &serve), &input);
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains("no thread can be made") && said.contains("ulimit -u"), "{said}");
    }
    assert_eq!(here.contents(&["a", "b", "c"]), members, "a server that is refused changes nothing");
    let (status, _, said) = run(refused(&here, "ENOLCK", "flock", "write a b c"), &input);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("cannot lock") && said.contains("local_lock"), "{said}");
}

/// A file system in memory that has neither fallocate nor direct transfers; unmounted when dropped.
struct Ramfs(PathBuf);

impl Ramfs {
    /// Mounted on a new directory; `None`, with a message, where that is not possible.
    fn mount(test: &str, path: PathBuf) -> Option<Self> {
        std::fs::create_dir(&path).expect("a directory");
        let output = Command::new("mount").args(["-t", "ramfs", "ramfs"]).arg(&path).output().expect("mount starts");
        if output.status.success() {
            return Some(Self(path));
        }
        let reason = String::from_utf8_lossy(&output.stderr);
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{test} did not run: {reason}");
        eprintln!("did not run: {test}: {reason}");
        None
    }
}

impl Drop for Ramfs {
    fn drop(&mut self) {
        // At once, also while a child of another test may still have a descriptor there.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_file_system_without_direct_transfers_and_fallocate_has_arrays_with_either_backend() {
    let test = "a_file_system_without_direct_transfers_and_fallocate_has_arrays_with_either_backend";
    let here = Workplace::new();
    let Some(ramfs) = Ramfs::mount(test, here.path().join("ram")) else { return };
    let (probe, flags) = (ramfs.0.join("probe"), OFlags::RDWR | OFlags::CLOEXEC);
    let file = open(&probe, flags | OFlags::CREATE, Mode::RUSR | Mode::WUSR).expect("a file");
    assert_eq!(fallocate(&file, FallocateFlags::empty(), 0, 4096), Err(Errno::OPNOTSUPP));
    assert_eq!(open(&probe, flags | OFlags::DIRECT, Mode::empty()).expect_err("not direct"), Errno::INVAL);

    let data: Vec<u8> = (0..3_u32 << 20).map(|at| (at.wrapping_mul(at) >> 9) as u8).collect();
    for backend in ["io_uring", "threads"] {
        let run = |words: &str, input: &[u8]| {
            let done = here.run_with(&format!("--io {backend} {words}"), input);
            done.ok().stdout.clone()
        };
        run("create --level 5 --chunk 64K --size 4M ram/a ram/b ram/c --bitmap internal", &[]);
        run("write ram/a ram/b ram/c", &data);
        assert!(run("read ram/a ram/c", &[]).starts_with(&data), "{backend}");
        run("scrub ram/a ram/b ram/c", &[]);

        let server = Server::of(&here, &format!("--io {backend} serve ram/a ram/b ram/c --nbd unix:n --control c"));
        let mut client = Nbd::connect(here.path().join("n").to_str().expect("UTF-8"));
        for (command, at) in [(6, 4096), (4, 1 << 20)] {
            client.request(command, at, 64 << 10, &[]); // zeros, and a discard that promises nothing
            assert_eq!(client.outcome(), Ok(()), "{backend}");
        }
        assert!(client.read(4096, 64 << 10).iter().all(|byte| *byte == 0), "{backend}");
        assert!(client.read(0, 4096) == data[..4096], "{backend}");
        drop(client);
        here.run("stop --control c").ok();
        assert_eq!(server.wait(), Some(0));
        run("scrub ram/a ram/b ram/c", &[]);
        for name in ["ram/a", "ram/b", "ram/c"] {
            std::fs::remove_file(here.path().join(name)).expect("it is there");
        }
    }
}

/// The end of the kernel's asynchronous interface takes it 30 ms, ten times the rest of a short command.
#[test]
fn a_look_at_metadata_does_without_the_kernels_asynchronous_interface() {
    if !has_filter("a_look_at_metadata_does_without_the_kernels_asynchronous_interface") {
        return;
    }
    let here = Workplace::new();
    here.run("create --level 5 --size 4M a b c d").ok();
    let run = |words: &str| run(refused(&here, "KILL", "io_setup", &format!("--io threads {words}")), NOTHING);
    let (status, _, said) = run("examine a b c d");
    assert_eq!(status, Some(0), "{said}");
    let (status, _, said) = run("scrub a b c d");
    assert_eq!(status, None, "with many transfers it is used, and the filter ends the process: {said}");
}
