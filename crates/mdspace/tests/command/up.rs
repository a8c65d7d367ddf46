//! `mdspace up` for a new user: every line that it prints works as it stands, on a machine with a shell, coreutils and
//! mdspace alone.
//!
//! A black box over the command. That `up` takes no files of other users is tested in manners.rs.

use crate::support::{Server, Workplace};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Output};

/// The last line that `up` prints.
const LAST: &str = "`up` continues";

/// Programs that a line may use besides mdspace.
const ALONE: [&str; 4] = ["sh", "cat", "od", "truncate"];

/// A directory with these programs and no others, for `PATH`.
fn programs(here: &Workplace) -> PathBuf {
    let directory = here.path().join("programs");
    std::fs::create_dir(&directory).expect("a directory");
    let path = std::env::var_os("PATH").expect("a path");
    for program in ALONE {
        let found = std::env::split_paths(&path).map(|entry| entry.join(program)).find(|file| file.exists());
        symlink(found.expect("it is installed"), directory.join(program)).expect("a link");
    }
    directory
}

fn up(here: &Workplace, path: &PathBuf, words: &[&str]) -> Server {
    let mut command = here.command(&[&["up"], words].concat());
    command.env("PATH", path);
    let mut server = Server::start(command);
    server.read_until(LAST);
    server
}

/// The lines of the greeting behind the addresses that are indented: commands.
fn commands(server: &Server) -> Vec<String> {
    let (_, next) = server.greeting.split_once("\n\n").expect("a part with the next steps");
    next.lines().filter_map(|line| line.strip_prefix("  ")).map(str::to_owned).collect()
}

/// Types a line into a shell.
fn typed(here: &Workplace, path: &PathBuf, line: &str) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(here.path()).env("PATH", path);
    shell.env("XDG_RUNTIME_DIR", here.path()).env("XDG_STATE_HOME", here.path().join("state"));
    shell.output().expect("a shell starts")
}

/// Types all lines in their order: each succeeds, and together they end the server and read what the first ones wrote.
fn all_work(here: &Workplace, path: &PathBuf, server: Server) {
    let mut last = Vec::new();
    for line in commands(&server) {
        let output = typed(here, path, &line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        last = output.stdout;
    }
    let text: String = String::from_utf8_lossy(&last).split(' ').collect();
    assert!(text.contains("hello,"), "{text}");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn every_line_that_up_prints_works_with_mdspace_alone() {
    let here = Workplace::new();
    let path = programs(&here);
    let server = up(&here, &path, &[]);
    for program in ["nbdinfo", "nbdcopy", "qemu-img"] {
        assert!(!server.greeting.contains(program), "{program} is not installed: {}", server.greeting);
    }
    let lines = commands(&server).join("\n");
    for word in [" status", " scrub", " fail mdspace-data/member0.img", " stop", " write ", " read "] {
        assert!(lines.contains(word), "{word}: {lines}");
    }
    all_work(&here, &path, server);

    // The lines follow the array: it has data, then a failed member, then one whose file is missing.
    let server = up(&here, &path, &[]);
    assert!(commands(&server).join("\n").contains(" add --force "), "{}", server.greeting);
    assert!(!commands(&server).join("\n").contains(" write "), "{}", server.greeting);
    all_work(&here, &path, server);
    std::fs::remove_file(here.path().join("mdspace-data/member0.img")).expect("a member");
    let server = up(&here, &path, &[]);
    assert!(commands(&server).join("\n").contains(" add mdspace-data/member0.img"), "{}", server.greeting);
    all_work(&here, &path, server);
}

#[test]
fn up_names_nbd_clients_that_are_installed() {
    let here = Workplace::new();
    let path = programs(&here);
    std::fs::write(path.join("nbdinfo"), "#!/bin/sh\n").expect("a file");
    std::fs::set_permissions(path.join("nbdinfo"), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    std::fs::write(path.join("nbdcopy"), "not executable").expect("a file");
    let server = up(&here, &path, &[]);
    let uri = server.word("nbd+unix:");
    assert!(commands(&server).contains(&format!("nbdinfo '{uri}'")), "{}", server.greeting);
    assert!(!server.greeting.contains("nbdcopy"), "{}", server.greeting);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn up_serves_the_page_on_a_free_loopback_port_or_the_chosen_one() {
    let here = Workplace::new();
    let path = programs(&here);
    let page_of = |server: &Server| {
        let next = server.greeting.split_once("In a browser: http://").expect("a URL").1;
        next.lines().next().expect("a line").trim_end_matches('/').to_owned()
    };
    let server = up(&here, &path, &[]);
    let address = page_of(&server);
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let mut stream = TcpStream::connect(&address).expect("it listens");
    write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("a request");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("<html"), "{page}");
    let status = crate::support::parsed(&here.run("status --json").ok().text());
    assert_eq!(status["served"]["http"], format!("http://{address}"));
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));

    here.run("up --http 0.0.0.0:0").expect(2, &["can be reached from other machines"]);
    let server = up(&here, &path, &["--http", "localhost:0"]);
    assert!(page_of(&server).starts_with("127.0.0.1:"), "{}", server.greeting);
    let taken = page_of(&server);
    let other = Workplace::new();
    other.run(&format!("up --http {taken}")).expect(2, &["--http", &taken]);
    assert!(!other.path().join("mdspace-data").exists(), "a refusal creates nothing");
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}
