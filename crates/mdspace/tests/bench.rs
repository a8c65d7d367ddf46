//! `mdspace bench` and `mdspace lab`, as a script that reads their JSON sees them, and their pages.

use serde_json::Value;
use std::process::Command;

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
        [("lab e3 --report", "mdspace lab"), ("bench --count --level 5 --size 6M --report", "mdspace bench")]
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
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--only: nothing that is measured has"));
}
