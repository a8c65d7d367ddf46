//! The commands in the README and in the tour are run as they stand there.
//!
//! A block of `sh` is a script that must succeed; one of `sh server` goes on
//! in the background from when it says that it serves, and must have ended
//! well when the page ends. A missing program fails the test.

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use support::Workplace;

/// A fenced block: what stands behind the fence, and what is in it.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = page.split("```").collect();
    parts.iter().skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect()
}

/// Bash in `here`, with the command in its PATH.
fn bash(here: &Workplace, script: &str) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_mdspace")).parent().expect("it is in a directory");
    let path = std::env::var("PATH").expect("there is a PATH");
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", script]).current_dir(here.path());
    command.env("PATH", format!("{}:{path}", binary.display())).env("XDG_RUNTIME_DIR", here.path());
    command.env("XDG_STATE_HOME", here.path().join("state"));
    command
}

/// A server, killed when the page fails before it has ended.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail when it has ended already, which is as good.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn serve(here: &Workplace, script: &str) -> Server {
    let mut server = Server(bash(here, &format!("exec {script}")).stdout(Stdio::piped()).spawn().expect("bash starts"));
    let output = server.0.stdout.as_mut().expect("its output is a pipe");
    let greeting = BufReader::new(output).lines().map_while(Result::ok).find(|line| line.starts_with("  control"));
    assert!(greeting.is_some(), "`{script}` does not serve");
    server
}

fn run_page(name: &str) -> usize {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join(name)).expect("the page is there");
    let here = Workplace::new();
    let mut servers = Vec::new();
    let mut scripts = 0;
    for (kind, script) in blocks(&page) {
        match kind {
            "sh" => {
                let output = bash(&here, script).output().expect("bash starts");
                let text = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{name}: {script}\n{}{text}", String::from_utf8_lossy(&output.stdout));
                scripts += 1;
            }
            "sh server" => servers.push(serve(&here, script.trim())),
            _ => {}
        }
    }
    for mut server in servers {
        assert!(server.0.wait().expect("it can be waited for").success(), "{name}: a server ended badly");
    }
    scripts
}

#[test]
fn the_readme_is_true() {
    assert_eq!(run_page("README.md"), 1);
}

#[test]
fn an_array_can_be_watched_as_the_page_says() {
    assert_eq!(run_page("docs/watching.md"), 5);
}

#[test]
fn who_comes_from_mdadm_finds_its_configuration_understood() {
    assert_eq!(run_page("docs/from-mdadm.md"), 3);
}

#[test]
fn certificates_are_made_and_asked_for_as_the_page_says() {
    assert_eq!(run_page("docs/tls.md"), 2);
}

#[test]
fn the_tour_can_be_taken() {
    assert_eq!(run_page("docs/tour.md"), 12);
}
