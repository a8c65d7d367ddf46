//! `mdspace bench` and `mdspace lab`: their JSON, and their pages.

use serde_json::Value;
use std::io::Read;
use std::process::{Command, Stdio};

#[test]
fn counts_are_exact_and_a_small_write_moves_no_more_than_it_must() {
    for (level, members, reads, writes) in [("5", 4, 2, 2), ("6", 6, 3, 3), ("1", 3, 0, 3), ("0", 3, 0, 1)] {
        let line = format!("bench --count --json --level {level} --members {members} --size 6M");
        let output = Command::new(env!("CARGO_BIN_EXE_mdspace")).args(line.split(' ')).output().expect("it starts");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let counts = report["levels"][0]["counts"].as_array().expect("counts");
        let number = |count: &Value, name: &str| count[name].as_u64().expect("a number");
        for count in counts {
            let requests = number(count, "requests");
            let data = requests * number(count, "request_bytes");
            assert!(requests > 0 && number(count, "written_bytes") >= data, "{level}: {count}");
            assert!(number(count, "least_written_bytes") >= data, "{level}: {count}");
            if count["order"] == "random" {
                assert!(number(count, "writes") <= writes * requests, "{level}: {count}");
                assert!(number(count, "reads") <= reads * requests, "{level}: {count}");
            }
        }
    }
}

#[test]
fn a_report_says_what_is_printed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (line, title) in
        [("lab e10 --report", "mdspace lab"), ("bench --count --level 5 --size 6M --report", "mdspace bench")]
    {
        let page = directory.path().join("page.html");
        let mut command = Command::new(env!("CARGO_BIN_EXE_mdspace"));
        let output = command.args(line.split(' ')).arg(&page).output().expect("it starts");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        let (page, text) =
            (std::fs::read_to_string(&page).expect("a page"), String::from_utf8(output.stdout).expect("text"));
        assert!(page.contains(&format!("<title>{title}</title>")) && page.ends_with("</html>\n"), "{page}");
        let numbers = text.split_whitespace().filter(|word| word.parse::<f64>().is_ok());
        let missing: Vec<&str> = numbers.filter(|number| !page.contains(number)).collect();
        assert!(missing.is_empty(), "{line}: {missing:?}");
    }
}

#[test]
fn only_what_was_asked_for_is_measured_a_degraded_array_beside_the_whole_one() {
    let bench = |words: &str| {
        let line = "bench --json --level 5 --members 3 --size 6M --depth 1 --seconds 0.2 --only";
        Command::new(env!("CARGO_BIN_EXE_mdspace")).args(line.split(' ')).arg(words).output().expect("it starts")
    };
    let measured = bench("64 KiB linear");
    let report: Value = serde_json::from_slice(&measured.stdout).expect("JSON");
    let figures = report["levels"][0]["figures"].as_array().expect("figures");
    let names: Vec<_> = figures.iter().map(|figure| figure["workload"].as_str().expect("a name")).collect();
    assert_eq!(names, ["read 64 KiB linear", "degraded read 64 KiB linear"]);
    assert!(figures[0]["of_whole"].is_null() && figures[1]["of_whole"].as_f64().is_some_and(|share| share > 0.0));
    assert_eq!(report["levels"][0]["sweeps"].as_array().map(Vec::len), Some(0));

    let directory = tempfile::tempdir().expect("a temporary directory");
    let refused = Command::new(env!("CARGO_BIN_EXE_mdspace"))
        .args("bench --only nothing-of-the-kind --member".split(' '))
        .arg(directory.path().join("never-looked-for"))
        .output()
        .expect("it starts");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--only: no workload has"));
}

/// Runs the command with a terminal as standard error; returns its output and the bytes sent to the terminal.
fn on_a_terminal(line: &str) -> (Vec<u8>, String) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("it is ours");
    let name = ptsname(&terminal, Vec::new()).expect("it has a name");
    let side = std::fs::File::options().read(true).write(true).open(name.to_str().expect("text"));
    let side = side.expect("its other side");
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&side, size).expect("it has a size");
    let mut command = Command::new(env!("CARGO_BIN_EXE_mdspace"));
    command.args(line.split(' ')).env("TERM", "xterm").stdout(Stdio::piped()).stderr(side);
    let child = command.spawn().expect("mdspace starts");
    drop(command); // and with it this end of the terminal
    let shown = std::thread::spawn(move || {
        let (mut shown, mut screen) = (Vec::new(), std::fs::File::from(terminal));
        drop(screen.read_to_end(&mut shown)); // an error once the other end is closed
        String::from_utf8_lossy(&shown).into_owned()
    });
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{line}");
    (output.stdout, shown.join().expect("it was read"))
}

#[test]
fn long_work_shows_on_a_terminal_what_it_is_at_and_its_output_is_the_same() {
    for (line, shown) in [
        ("bench --count --json --level 5 --members 3 --size 6M", ["bench [", "raid5: "]),
        ("lab e10 --json", ["lab [", "of 1 done, e10"]),
    ] {
        let (printed, screen) = on_a_terminal(line);
        serde_json::from_slice::<Value>(&printed).unwrap_or_else(|error| panic!("{line}: {error}"));
        for words in shown {
            assert!(screen.contains(words), "{line}: no `{words}` in: {screen}");
        }
    }
    let plain = Command::new(env!("CARGO_BIN_EXE_mdspace")).args(["lab", "e10"]).output().expect("it starts");
    assert!(plain.status.success() && plain.stderr.is_empty(), "nothing to say of what ends soon");
}
