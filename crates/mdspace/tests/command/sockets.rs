//! Which users may connect to a server's unix sockets, and several addresses for NBD.

use crate::support::{Server, Workplace, parsed};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};

/// Modes and groups of these sockets.
fn access(here: &Workplace, names: &[&str]) -> Vec<(u32, u32)> {
    let of = |name: &&str| {
        let metadata = here.path().join(name).symlink_metadata().expect("a socket");
        (metadata.mode() & 0o777, metadata.gid())
    };
    names.iter().map(of).collect()
}

#[test]
fn sockets_are_for_the_users_that_were_named_whatever_the_umask_is() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --assume-clean --name data a b").ok();
    let own = rustix::process::getgid().as_raw();
    // Root may name any group, others their own.
    let group = if rustix::process::getuid().is_root() { 4242 } else { own };
    let sockets = ["n", "v", "c"];
    for (options, expected) in [
        (String::new(), [(0o600, own); 3]),
        (format!("--socket-group {group}"), [(0o660, group), (0o660, group), (0o600, own)]),
        ("--socket-mode 666".to_owned(), [(0o666, own), (0o666, own), (0o600, own)]),
        (format!("--socket-mode 600 --control-group {group}"), [(0o600, own), (0o600, own), (0o660, group)]),
    ] {
        let mut command = Command::new("bash");
        let line = format!("umask 077; exec \"$0\" serve a b --nbd unix:n --vhost-user v --control c {options}");
        command.args(["-c", &line, env!("CARGO_BIN_EXE_mdspace")]).current_dir(here.path());
        command.env("XDG_RUNTIME_DIR", here.path()).env("XDG_STATE_HOME", here.path().join("state"));
        let server = Server::start(command);
        assert_eq!(access(&here, &sockets), expected, "{options}");
        here.run("stop --control c").ok();
        assert_eq!(server.wait(), Some(0));
        assert!(sockets.iter().all(|name| !here.path().join(name).exists()), "{options}");
    }
    for (options, words) in [
        ("--socket-mode 060", &["--socket-mode", "660"][..]),
        ("--socket-group no-such-group", &["--socket-group", "no-such-group", "the group's number"]),
        ("--control-mode rw", &["--control-mode", "octal"]),
    ] {
        here.run(&format!("serve a b --nbd unix:n --control c {options}")).expect(2, words);
    }
}

#[test]
fn a_directory_that_lets_no_other_user_pass_is_named() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --assume-clean --name data a b").ok();
    for (mode, is_named) in [(0o700, true), (0o711, false)] {
        std::fs::set_permissions(here.path(), std::fs::Permissions::from_mode(mode)).expect("it is ours");
        let mut command =
            here.command(&["serve", "a", "b", "--nbd", "unix:n", "--control", "c", "--socket-mode", "666"]);
        command.stderr(Stdio::piped());
        let mut server = Server::start(command);
        let stderr = server.child.stderr.take().expect("a pipe");
        here.run("stop --control c").ok();
        assert_eq!(server.wait(), Some(0));
        let told = std::io::read_to_string(stderr).expect("text");
        assert_eq!(told.contains("other users cannot reach it"), is_named, "{mode:o}: {told}");
    }
}

#[test]
fn an_array_has_as_many_addresses_for_nbd_as_were_given() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --assume-clean --name data a b").ok();
    let server = Server::of(&here, "serve a b --nbd unix:n --nbd tcp:127.0.0.1:0 --nbd unix:m --control c --json");
    let greeting = parsed(&server.greeting);
    let ways = greeting["served"]["ways"].as_array().expect("a list");
    let addresses: Vec<&str> = ways.iter().filter_map(|way| way["address"].as_str()).collect();
    assert_eq!(addresses.len(), 3, "{greeting}");
    assert_eq!(greeting["served"]["nbd"], addresses[0]);
    std::fs::write(here.path().join("data"), vec![7; 65536]).expect("a file");
    for (index, address) in addresses.iter().enumerate() {
        let mut copy = Command::new("nbdcopy");
        let words = if index == 0 { ["data", *address] } else { [*address, "back"] };
        assert!(
            copy.args(words).current_dir(here.path()).status().expect("nbdcopy is installed").success(),
            "{address}"
        );
        if index > 0 {
            let back = std::fs::read(here.path().join("back")).expect("a file");
            assert!(back[..65536].iter().all(|byte| *byte == 7), "{address}");
        }
    }
    here.run("stop --control c").ok();
    assert_eq!(server.wait(), Some(0));
}
