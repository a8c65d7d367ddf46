//! `mdspace bench`, as a script that reads its JSON sees it.

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
