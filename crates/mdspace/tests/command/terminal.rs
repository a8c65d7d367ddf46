//! What a terminal gets: text that fits it, states in colours, and no array's bytes. And answers to mistakes of unit.

use crate::support::{Run, Server, Workplace};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::io::Read;
use std::process::Stdio;

/// Words that are parts of a text, not cut.
fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// Runs the command with a terminal of this width as standard output; returns what it was sent, and the exit status.
fn on_a_terminal(here: &Workplace, line: &str, columns: u16, variables: &[(&str, &str)]) -> (String, i32) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("it is ours");
    let name = ptsname(&terminal, Vec::new()).expect("it has a name");
    let side =
        std::fs::File::options().read(true).write(true).open(name.to_str().expect("text")).expect("its other side");
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&side, size).expect("it has a size");
    let mut command = here.command(&line.split_whitespace().collect::<Vec<_>>());
    command.env_remove("COLUMNS").env_remove("NO_COLOR").env("TERM", "xterm").envs(variables.iter().copied());
    let stdin = side.try_clone().expect("it can be shared");
    let mut child = command.stdin(stdin).stdout(side).stderr(Stdio::null()).spawn().expect("mdspace starts");
    drop(command); // and with it this end of the terminal
    let mut shown = Vec::new();
    let mut screen = std::fs::File::from(terminal);
    let mut buffer = [0; 4096];
    // Reading fails once the other end is closed.
    while let Ok(read @ 1..) = screen.read(&mut buffer) {
        shown.extend_from_slice(&buffer[..read]);
    }
    let status = child.wait().expect("it ends").code().unwrap_or(-1);
    (String::from_utf8_lossy(&shown).replace('\r', ""), status)
}

/// Text without escape sequences of colours.
fn plain(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    first + &parts.map(|part| part.split_once('m').expect("the end of a sequence").1).collect::<String>()
}

#[test]
fn whatever_the_width_no_line_is_wrapped_and_no_number_cut() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --integrity --bitmap internal --size 16M --name data a b c").ok();
    let _server = Server::of(&here, "serve a b c --nbd unix:n");
    here.run("fail b").ok();
    for line in ["status", "list", "iostat"] {
        let wide = on_a_terminal(&here, line, 250, &[]).0;
        let wide = plain(&wide);
        let all = words(&wide);
        for columns in [60, 72, 80, 100, 132, 200] {
            let (shown, status) = on_a_terminal(&here, line, columns, &[]);
            assert_eq!(status, 0, "{line}");
            let shown = plain(&shown);
            // Rates and times differ from one report to the next, so those of iostat are compared in its own test.
            let is_known = |word: &&str| line == "iostat" || all.contains(word) || word.contains('…') || is_time(word);
            for text in shown.lines() {
                assert!(text.chars().count() <= usize::from(columns), "{line} in {columns}: {text}");
            }
            assert!(words(&shown).iter().all(is_known), "{line} in {columns}: {shown}\n{wide}");
        }
    }
}

/// Whether a word may differ between two reports.
fn is_time(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_digit() || ".:-".contains(c)) || ["us", "ms", "s"].contains(&word)
}

#[test]
fn states_are_coloured_on_a_terminal_unless_the_user_says_no() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --name data a b").ok();
    let _server = Server::of(&here, "serve a b");
    here.run("fail b").ok();
    for (line, colours) in [
        ("status", &["\x1b[32min_sync\x1b[m", "\x1b[31mfaulty\x1b[m", "\x1b[33mdegraded\x1b[m"][..]),
        ("list", &["\x1b[33mdegraded\x1b[m"]),
    ] {
        let (shown, _) = on_a_terminal(&here, line, 100, &[]);
        assert!(colours.iter().all(|colour| shown.contains(colour)), "{line}: {shown:?}");
        for variables in [[("NO_COLOR", "1")], [("TERM", "dumb")]] {
            let (shown, _) = on_a_terminal(&here, line, 100, &variables);
            assert!(!shown.contains('\x1b'), "{line} {variables:?}: {shown:?}");
        }
        assert!(!here.run(line).ok().text().contains('\x1b'), "{line}: none in a pipe");
    }
    let (shown, _) = on_a_terminal(&here, "list", 100, &[("NO_COLOR", "")]);
    assert!(shown.contains('\x1b'), "an empty NO_COLOR says nothing");
}

#[test]
fn an_arrays_bytes_are_never_written_to_a_terminal() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M a b").ok();
    here.run_with("write a b", b"secret \x1b[2J").ok();
    let (shown, status) = on_a_terminal(&here, "read a b --length 12", 80, &[]);
    assert_eq!((&*shown, status), ("", 2));
    assert_eq!(here.run("read a b --length 12").ok().text(), "secret \x1b[2J\0");
}

#[test]
fn a_number_whose_unit_is_missing_is_answered_with_what_was_probably_meant() {
    let here = Workplace::new();
    let refused = |run: &Run, meant: &str| {
        run.expect(2, &[&format!("{meant} was probably meant")]);
    };
    for (line, meant) in [
        ("create --level 5 --chunk 64 --size 16M a b c", "64K"),
        ("create --level 5 --chunk 512 --size 16M a b c", "512K"),
        ("create --level 1 --bitmap internal --bitmap-chunk 64 --size 16M a b", "64K"),
        ("create --level 1 --size 100 a b", "100K"),
    ] {
        refused(&here.run(line), meant);
    }
    assert!(here.path().read_dir().expect("it is there").next().is_none(), "nothing was created");
    here.run("create --level 5 --chunk 64K --size 16M --name data a b c").ok();
    refused(&here.run("grow --size 64 a b c"), "64K");
    refused(&here.run("serve a b c --stripe-size 16"), "16K");
    let _server = Server::of(&here, "serve a b c");
    for (setting, meant) in [
        ("sync-speed-min=1000", "1000K"),
        ("sync-speed-max=2000", "2000K"),
        ("stripe-size=8", "8K"),
        ("sweep-window=512", "512K"),
        ("bitmap=internal:64", "64K"),
    ] {
        refused(&here.run(&format!("set {setting}")), meant);
    }
    here.run("set sync-speed-min=1000B").ok();
}

#[test]
fn help_begins_with_what_matters() {
    let here = Workplace::new();
    let order = |line: &str, words: &[&str]| {
        let text = here.run(line).ok().text();
        let places: Vec<_> =
            words.iter().map(|word| text.find(word).unwrap_or_else(|| panic!("{word}: {text}"))).collect();
        assert!(places.is_sorted(), "{line}: {words:?}: {text}");
    };
    order(
        "serve --help",
        &["--read-only", "Exports:", "--nbd", "Control", "Which members:", "Damaged", "General options:"],
    );
    order("create --help", &["--level", "Members:", "Metadata and logs:", "General options:", "--help"]);
    order("read -h", &["--output", "Which members:", "Damaged", "General options:"]);
    for line in ["--help", "serve --help", "help serve"] {
        assert!(!here.run(line).ok().text().contains("--kernel"), "{line}");
    }
}
