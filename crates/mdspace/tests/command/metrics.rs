//! `/metrics`, `/healthz` and `/readyz`; and what refers to the metrics: docs/metrics.md, the alert rules and the
//! dashboard in dist/.

use crate::support::traffic::{copy_in, http};
use crate::support::{Server, Workplace};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

/// Series of an idle array of three members. docs/metrics.md has the number.
const SERIES_IDLE: usize = 63;

/// Metrics of members' drives, of which files have none: unit tests have their series.
const OF_DRIVES: [&str; 2] = ["mdspace_member_smart_bad_sectors", "mdspace_member_smart_failing"];

/// Labels that every series has, and that of a bucket.
const COMMON_LABELS: [&str; 3] = ["array", "uuid", "le"];

/// Families by name: type and labels.
type Families = BTreeMap<String, (String, BTreeSet<String>)>;

fn get(server: &Server, route: &str) -> (u16, String) {
    let url = server.word("http://");
    let address = url.trim_start_matches("http://").trim_end_matches("/metrics");
    http(address, &format!("GET {route} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
}

fn metrics(server: &Server) -> String {
    let (status, text) = get(server, "/metrics");
    assert_eq!(status, 200, "{text}");
    text
}

/// The families of a text in Prometheus's format. No label's value here has a brace, a comma or a quotation mark.
fn families(text: &str) -> Families {
    let mut families = Families::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|family| family.split_once(' ')) {
            families.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
        } else if let Some((name, rest)) = line.split_once('{') {
            let labels = rest.split('}').next().unwrap_or_default().split(',');
            let names = labels.filter_map(|label| label.split_once('=')).map(|(name, _)| name.to_owned());
            let own = names.filter(|name| !COMMON_LABELS.contains(&&**name));
            let parts = ["_bucket", "_sum", "_count"].map(|part| name.strip_suffix(part).unwrap_or(name));
            let family = parts.into_iter().find(|family| families.contains_key(*family));
            let family = family.unwrap_or_else(|| panic!("{line}: no such family"));
            families.get_mut(family).expect("it was found").1.extend(own);
        }
    }
    families
}

/// A file of the repository.
fn file(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).expect("it is there")
}

/// The table of docs/metrics.md.
fn documented() -> Families {
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `mdspace_")?.split(" | ");
        let name = format!("mdspace_{}", cells.next()?.trim_end_matches('`'));
        let kind = cells.next()?.to_owned();
        let labels = cells.next()?.split(", ").map(|label| label.trim_matches(['`', ' ']).to_owned());
        Some((name, (kind, labels.filter(|label| !label.is_empty()).collect())))
    };
    file("docs/metrics.md").lines().filter_map(row).collect()
}

/// The metrics that a text names, without the suffixes of histograms.
fn named(text: &str, known: &Families) -> BTreeSet<String> {
    let words =
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.starts_with("mdspace_"));
    let family = |word: &str| {
        let base = ["_bucket", "_count", "_sum"].iter().find_map(|suffix| word.strip_suffix(suffix));
        base.filter(|base| known.contains_key(*base)).unwrap_or(word).to_owned()
    };
    words.map(family).collect()
}

#[test]
fn the_page_has_each_metric_and_rules_and_dashboard_use_no_other() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --bitmap internal --integrity --size 16M --name data a b c").ok();
    let server = Server::of(&here, "serve a b c --http 127.0.0.1:0");
    copy_in(&here, &server, 1 << 20);
    here.run("scrub").ok();
    here.run("set sync-speed-min=64K sync-speed-max=64K").ok();
    here.run("scrub --no-wait").ok();
    // The sweep tells its speed and what holds it only after some windows.
    let all = documented();
    let mut documented = all.clone();
    documented.retain(|name, _| !OF_DRIVES.contains(&&**name));
    let missing = |text: &String| {
        let emitted = families(text);
        documented.keys().filter(|name| !emitted.contains_key(*name)).cloned().collect::<Vec<_>>()
    };
    let mut text = metrics(&server);
    for _ in 0..2000 {
        if missing(&text).is_empty() {
            break;
        }
        text = metrics(&server);
    }
    assert_eq!(missing(&text), [""; 0]);
    assert_eq!(families(&text), documented);
    for sample in
        ["action=\"check\"} 1.0\n", "by=\"sync-speed-max\"} 1.0\n", "state=\"in_sync\"} 3.0\n", ",export=\"NBD\""]
    {
        assert!(text.contains(sample), "{sample}: {text}");
    }
    for name in ["dist/prometheus-rules.yml", "dist/grafana-dashboard.json", "tests/alerts.yml"] {
        let unknown: Vec<_> = named(&file(name), &all).into_iter().filter(|name| !all.contains_key(name)).collect();
        assert_eq!(unknown, [""; 0], "{name} names metrics that no server has");
    }
    assert!(serde_json::from_str::<serde_json::Value>(&file("dist/grafana-dashboard.json")).is_ok());
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn an_idle_array_has_few_series() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 16M --assume-clean --name data a b c").ok();
    let server = Server::of(&here, "serve a b c --http 127.0.0.1:0");
    let text = metrics(&server);
    // Histograms are of what has happened: the members' superblocks, or nothing yet.
    let series = text.lines().filter(|line| !line.starts_with('#') && !line.contains("_duration_seconds")).count();
    assert_eq!(series, SERIES_IDLE, "{:?}", families(&text).keys());
    let histograms = text.matches("_duration_seconds_count").count();
    assert!(histograms <= 6, "{text}");
    assert!(file("docs/metrics.md").contains(&format!("{SERIES_IDLE} series")));
    for absent in ["bitmap", "sweep_done", "checksums", "corrupt", "scrub_last", "mdspace_request_duration"] {
        assert!(!text.contains(absent), "{absent}: {text}");
    }
}

#[test]
fn health_is_that_of_the_server_and_readiness_that_of_the_array() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 16M --name data a b c").ok();
    let server = Server::of(&here, "serve a b c --http 127.0.0.1:0");
    here.run("fail a").ok();
    for (route, word) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        assert_eq!(get(&server, route), (200, word.to_owned()), "degraded");
    }
    assert!(
        metrics(&server).lines().any(|line| line.starts_with("mdspace_array_may_fail{") && line.ends_with("} 0.0"))
    );
    here.run("set read-only=on").ok();
    assert_eq!(get(&server, "/readyz"), (200, "ready\n".to_owned()), "read-only by request");
    here.run("set read-only=off").ok();
    // A member whose file became shorter is ejected by the next write. Then two are missing.
    let shortened = std::fs::File::options().write(true).open(here.path().join("b")).expect("a member");
    shortened.set_len(4096).expect("it is ours");
    std::fs::write(here.path().join("data"), vec![7; 1 << 20]).expect("a file");
    let mut copy = Command::new("nbdcopy");
    copy.arg("data").arg(server.word("nbd")).current_dir(here.path()).stderr(Stdio::null());
    assert!(!copy.status().expect("nbdcopy is installed").success());
    assert_eq!(get(&server, "/healthz").0, 200);
    let (status, body) = get(&server, "/readyz");
    assert!(status == 503 && body.contains("the array takes no writes: "), "{status} {body}");
    assert!(metrics(&server).contains("mdspace_array_broken{array=\"data\",uuid="));
}
