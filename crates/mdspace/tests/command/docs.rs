//! Runs the commands in the README and in the book (docs/) as they stand there.
//!
//! A block marked `sh` is a script that must succeed. A block marked `sh server` continues in the background once it
//! serves, and must end successfully before the end of the page. A missing program fails the test. Commands that are
//! not run here are in blocks marked `console`, and another test runs or compares them ([`CONSOLE`]).

use crate::support::Workplace;
use crate::support::disks::{DATA_BYTES, DISKS, MIB, ext4, nas, physical_volume};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A fenced block: the word behind the fence, and its content.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = page.split("```").collect();
    parts.iter().skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect()
}

/// Bash in `here`, with the command on its PATH.
fn bash(here: &Workplace, script: &str) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_mdspace")).parent().expect("it is in a directory");
    let path = std::env::var("PATH").expect("there is a PATH");
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", script]).current_dir(here.path());
    command.env("PATH", format!("{}:{path}", binary.display())).env("XDG_RUNTIME_DIR", here.path());
    command.env("XDG_STATE_HOME", here.path().join("state"));
    command
}

/// A server, killed if the page fails before the server has ended.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail if it has ended already.
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

/// Runs a page in an empty directory; returns the number of scripts.
fn run_page(name: &str) -> usize {
    run_page_in(&Workplace::new(), name)
}

fn run_page_in(here: &Workplace, name: &str) -> usize {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join(name)).expect("the page is there");
    let mut servers = Vec::new();
    let mut scripts = 0;
    for (kind, script) in blocks(&page) {
        match kind {
            "sh" => {
                let output = bash(here, script).output().expect("bash starts");
                let text = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{name}: {script}\n{}{text}", String::from_utf8_lossy(&output.stdout));
                scripts += 1;
            }
            "sh server" => servers.push(serve(here, script.trim())),
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
fn what_it_can_do_is_true() {
    assert_eq!(run_page("docs/features.md"), 1);
}

#[test]
fn an_array_can_be_watched_as_the_page_says() {
    assert_eq!(run_page("docs/watching.md"), 8);
}

#[test]
fn curl_is_a_client_as_the_page_says() {
    assert_eq!(run_page("docs/control.md"), 1);
}

#[test]
fn mdadms_configuration_is_understood_as_the_page_says() {
    assert_eq!(run_page("docs/from-mdadm.md"), 11);
}

#[test]
fn certificates_are_made_and_asked_for_as_the_page_says() {
    assert_eq!(run_page("docs/tls.md"), 4);
}

#[test]
fn the_tour_can_be_taken() {
    assert_eq!(run_page("docs/tour.md"), 12);
}

#[test]
fn rot_is_found_named_and_healed_as_the_page_says() {
    assert_eq!(run_page("docs/scrub.md"), 6);
}

#[test]
fn what_can_be_tuned_can_be_set() {
    assert_eq!(run_page("docs/tuning.md"), 7);
}

#[test]
fn the_backend_is_chosen_as_the_page_says() {
    assert_eq!(run_page("docs/limits.md"), 1);
}

#[test]
fn a_virtual_machine_finds_its_socket_where_the_page_says() {
    assert_eq!(run_page("docs/vhost-user.md"), 3);
}

#[test]
fn the_array_is_a_file_as_the_page_says() {
    if !Path::new("/dev/fuse").exists() {
        assert!(std::env::var_os("CI").is_none(), "there is no /dev/fuse");
        eprintln!("not run: there is no /dev/fuse");
        return;
    }
    assert_eq!(run_page("docs/fuse.md"), 2);
}

#[test]
fn what_the_programs_open_is_made_as_the_page_says() {
    assert_eq!(run_page("docs/programs.md"), 2);
}

#[test]
fn two_commands_lead_from_whole_disks_to_files() {
    let here = Workplace::new();
    nas(&here, "gpt");
    let files = ext4(&here, 20 * MIB);
    here.run_with("write disk?.img --name 2", &physical_volume(DATA_BYTES, 20, &files)).ok();
    let before = here.contents(&DISKS);
    assert_eq!(run_page_in(&here, "docs/disks.md"), 8);
    assert!(here.contents(&DISKS) == before, "a disk was changed");
}

/// Pages with blocks marked `console`, their number, and the step of `cargo xtask test` that checks them.
const CONSOLE: &[(&str, usize, &str)] = &[
    ("docs/fuse.md", 1, "fuse"),
    ("docs/lab.md", 14, "lab"),
    ("docs/mdadm-suite.md", 1, "suite"),
    ("docs/programs.md", 7, "programs"),
    ("docs/testing.md", 20, "tests"),
    ("docs/ublk.md", 1, "ublk"),
    ("docs/vhost-user.md", 1, "machine"),
    ("README.md", 1, "readme"),
];

/// The page with programs in other languages, which the step `programs` compiles and runs; and their number.
const PROGRAMS: (&str, &[(&str, usize)]) = ("docs/programs.md", &[("c", 1), ("python", 2)]);

#[test]
fn every_block_of_every_page_is_seen_to_by_some_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let names =
        root.join("docs").read_dir().expect("the book is there").map(|entry| entry.expect("a page").file_name());
    let names = names.map(|name| format!("docs/{}", name.to_string_lossy())).filter(|name| name.ends_with(".md"));
    let this = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command/docs.rs"))
        .expect("this file");
    for name in names.chain(["README.md".to_owned()]) {
        let page = std::fs::read_to_string(root.join(&name)).expect("a page");
        let of = |kind: &str| blocks(&page).iter().filter(|(found, _)| *found == kind).count();
        let programs: usize = PROGRAMS.1.iter().map(|(kind, _)| of(kind)).sum();
        let known = of("sh") + of("sh server") + of("console") + of("text") + programs;
        assert_eq!(
            blocks(&page).len(),
            known,
            "{name}: a block that no test runs or compares, and that is not marked as text"
        );
        let console = CONSOLE.iter().find(|(page, ..)| *page == name).map_or(0, |(_, count, _)| *count);
        assert_eq!(of("console"), console, "{name}: blocks of commands that another step sees to");
        let count: usize = PROGRAMS.1.iter().filter(|_| name == PROGRAMS.0).map(|(_, count)| *count).sum();
        assert_eq!(programs, count, "{name}: programs that another step sees to");
        let is_run = this.contains(&format!("run_page(\"{name}\")")) || this.contains(&format!("\"{name}\"), "));
        assert!(of("sh") == 0 || is_run, "{name} is not run");
    }
}

/// A directory with `disk1.img` to `disk4.img` of an array that the kernel's md made and degraded
/// (tests/kernel/nas.sh).
const MADE_BY_MD: &str = "MDSPACE_TEST_NAS";

/// The same, created here: a RAID-5 with a file system, and one stale member.
const NAS: &str = "
mkdir -p tree/photos
echo 'summer, winter' > tree/photos/list
mke2fs -q -t ext4 -d tree fs.img 32M
mdspace create --level 5 --chunk 64K --name nas:data --size 16M disk1.img disk2.img disk3.img disk4.img
mdspace write 'disk?.img' -i fs.img
echo later | mdspace write disk1.img disk3.img disk4.img --offset 40M
";

#[test]
fn files_are_rescued_from_what_a_nas_left() {
    let here = Workplace::new();
    let make = match std::env::var(MADE_BY_MD) {
        Ok(directory) => format!("cp {directory}/disk?.img ."),
        Err(_) => NAS.to_owned(),
    };
    let output = bash(&here, &format!("{make}\nsha256sum disk?.img > before")).output().expect("bash starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(run_page_in(&here, "docs/rescue.md"), 9);
}
