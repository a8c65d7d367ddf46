//! Several served arrays: the list of them, the choice of one by a command, and waiting for a state.

use crate::support::traffic::http;
use crate::support::{Server, Workplace, parsed};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Two arrays, each in a directory of its own, with members of the same names.
struct Two {
    here: Workplace,
    data: Server,
    music: Server,
}

/// An array of two members in the directory `name`, served from there.
fn serve(here: &Workplace, name: &str) -> Server {
    let directory = here.path().join(name);
    std::fs::create_dir(&directory).expect("a directory");
    let run = |line: &str| {
        let mut command = here.command(&line.split(' ').collect::<Vec<_>>());
        command.current_dir(&directory);
        command
    };
    let created = run(&format!("create --level 1 --size 8M --name host:{name} a {name}2")).output().expect("it runs");
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    Server::start(run(&format!("serve a {name}2")))
}

impl Two {
    fn new() -> Self {
        let here = Workplace::new();
        let (data, music) = (serve(&here, "data"), serve(&here, "music"));
        Self { here, data, music }
    }

    fn list(&self) -> Vec<Value> {
        parsed(&self.here.run("list --json").ok().text()).as_array().expect("a list").clone()
    }

    fn name_of(&self, line: &str) -> String {
        let status = parsed(&self.here.run(line).ok().text());
        status["name"].as_str().expect("a name").to_owned()
    }
}

#[test]
fn a_list_has_every_served_array_and_none_is_no_failure() {
    let here = Workplace::new();
    let text = here.run("list").ok().text();
    assert!(text.contains("no array of yours is being served") && text.contains("mdspace serve MEMBER..."), "{text}");
    assert_eq!(parsed(&here.run("list --json").ok().text()), Value::Array(Vec::new()));
    drop(here);

    let two = Two::new();
    // Arrays that are on disks and not served, beside the served ones.
    let text = two.here.run("list --all data").ok().text();
    assert!(text.lines().count() == 3, "the members of what is served are no array of their own: {text}");
    two.here.run("create --level 1 --size 8M --name host:left left1 left2").ok();
    two.here.run("create --level 5 --size 8M --name host:part part1 part2 part3").ok();
    two.here.run("wipe --force part2").ok();
    two.here.run("wipe --force part3").ok();
    let before = two.here.contents(&["left1", "left2", "part1"]);
    let text = two.here.run("list --all left1 left2 part1 part2").ok().text();
    assert!(text.contains("not served: host:left: on left1 left2\n"), "{text}");
    assert!(text.contains("not served: host:part: on part1\n  cannot be started: "), "{text}");
    let listed = parsed(&two.here.run("list --all --json left1 left2 part1").ok().text());
    let left = &listed[2];
    assert_eq!((&left["health"], &left["state"], &left["in_sync"]), (&"not served".into(), &"clean".into(), &2.into()));
    assert_eq!((&left["control"], &left["pid"], &listed[3]["state"]), (&Value::Null, &Value::Null, &Value::Null));
    assert!(two.here.contents(&["left1", "left2", "part1"]) == before, "looking changes nothing");
    two.here.run("list left1").expect(2, &["--all"]);

    let text = two.here.run("list").ok().text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("name        uuid      level  size  up   state"), "{text}");
    assert!(lines[1].starts_with("host:data ") && lines[2].starts_with("host:music "), "{text}");
    assert!(lines[1].contains("raid1") && lines[1].contains("2/2"), "{text}");
    two.here.run("wait data").ok();
    two.here.run("wait music").ok();
    two.here.run("scrub --array data").ok();
    two.here.run("fail music2 --array music").ok();
    let listed = loop {
        let listed = two.list();
        if listed[0]["last_scrub"]["found"] == 0 {
            break listed;
        }
    };
    assert_eq!((&listed[0]["health"], &listed[1]["health"]), (&"healthy".into(), &"degraded".into()));
    assert_eq!((&listed[1]["in_sync"], &listed[1]["raid_disks"]), (&1.into(), &2.into()));
    assert_eq!(listed[0]["pid"], two.data.child.id());
    let text = two.here.run("status data").ok().text();
    assert!(text.contains("last scrub: check, 20") && text.contains("nothing was wrong"), "{text}");
    assert_eq!(two.here.run("list --watch 0.02 --count 3").ok().text().matches("host:data").count(), 3);
    let mut narrow = two.here.command(&["list"]);
    let narrow = narrow.env("COLUMNS", "40").output().expect("it runs").stdout;
    let narrow = String::from_utf8(narrow).expect("text");
    assert!(narrow.lines().all(|line| line.chars().count() <= 40) && narrow.contains("degraded"), "{narrow}");

    // A result of a scrub is kept for the next server.
    two.here.run("stop data").ok();
    assert_eq!(two.list().len(), 1);
    let mut command = two.here.command(&["serve", "a", "data2", "--control", "elsewhere"]);
    command.current_dir(two.here.path().join("data"));
    let _again = Server::start(command);
    assert_eq!(two.list().len(), 1, "its socket is elsewhere");
    let listed = parsed(&two.here.run("list --json --control data/elsewhere --control none").ok().text());
    assert_eq!(listed.as_array().map(Vec::len), Some(3));
    let found = |key: &str, value: &str| listed.as_array()?.iter().find(|one| one[key] == value).cloned();
    assert_eq!(found("name", "host:data").expect("it is listed")["last_scrub"]["found"], 0);
    assert_eq!(found("control", "none").expect("it is listed")["health"], "gone");
}

#[test]
fn a_server_that_is_killed_or_does_not_answer_is_shown_and_holds_nothing_up() {
    let two = Two::new();
    two.data.signal(Signal::STOP);
    let begun = Instant::now();
    let listed = two.list();
    assert!(begun.elapsed() < Duration::from_secs(30), "it does not wait for the server");
    let of = |health: &str| listed.iter().find(|one| one["health"] == health).expect("it is listed");
    assert_eq!((&of("silent")["name"], &of("silent")["state"]), (&"host_data".into(), &Value::Null));
    assert!(of("silent")["reason"].as_str().is_some_and(|reason| reason.contains("does not answer")), "{listed:?}");
    assert_eq!((&of("healthy")["name"], &of("healthy")["state"]), (&"host:music".into(), &"clean".into()));
    assert!(two.here.run("list").ok().text().contains("\nsilent: /"));
    assert_eq!(two.name_of("status --json --array music"), "host:music");
    two.here.run("wait host:data --timeout 0.1").expect(1, &["sync: not reached in time: the server did not answer"]);
    two.data.signal(Signal::CONT);
    two.here.run("status --array data").ok();

    two.data.signal(Signal::KILL);
    assert_eq!(two.here.run("wait data gone").ok().text(), "the array is not served\n");
    let listed = two.list();
    let gone = listed.iter().find(|one| one["health"] == "gone").expect("its socket is left");
    assert_eq!(gone["name"], "host_data", "by the name of its socket");
    assert_eq!(listed.len(), 2);
    assert!(two.here.run("list").ok().text().contains("its server was killed"));
    assert_eq!(two.name_of("status --json"), "host:music", "the only one that is served");
    two.here.run("status data").expect(2, &["data: no served array has this name"]);
}

#[test]
fn every_command_takes_an_array_by_name_uuid_member_or_socket() {
    let two = Two::new();
    let listed = two.list();
    let text = |index: usize, key: &str| listed[index][key].as_str().expect("text").to_owned();
    for (index, name) in [(0, "host:data"), (1, "host:music")] {
        let (uuid, socket) = (text(index, "uuid"), text(index, "control"));
        let short = &name[5..];
        for chosen in [
            name.to_owned(),
            format!("--array {short}"),
            format!("--array={uuid}"),
            uuid[..8].to_owned(),
            format!("{short}/a"),
            format!("--array {}/{short}/a", two.here.path().display()),
            format!("{short}2"),
            format!("--control {socket}"),
        ] {
            assert_eq!(two.name_of(&format!("status --json {chosen}")), name, "{chosen}");
        }
        two.here.run(&format!("iostat --json --array {short}")).ok();
        two.here.run(&format!("monitor --once {short}")).ok();
        two.here.run(&format!("trace {short} --count 0")).ok();
        two.here.run(&format!("wait {short} clean")).ok();
        two.here.run(&format!("scrub --array {short}")).ok();
        two.here.run(&format!("set --array {short} sync-speed-min=2M")).ok();
        two.here.run(&format!("grow --array {short} --size max")).ok();
    }
    for line in ["status data --array data", "status data --control x", "scrub --array data data/a"] {
        two.here.run(line).expect(2, &["cannot be used with"]);
    }
}

#[test]
fn where_several_arrays_fit_nothing_is_changed_and_each_line_printed_chooses_one() {
    let two = Two::new();
    let lines = [
        "status",
        "iostat",
        "trace",
        "add new",
        "re-add new",
        "set sync-speed-min=2M",
        "grow --size max",
        "scrub",
        "stop",
        "fail a",
        "remove a",
        "replace a new",
        "wait",
        "wait gone",
        "status a",
    ];
    for line in lines {
        let run = two.here.run(line);
        let (begin, array) = if line == "status a" { ("status", "a: ") } else { (line, "") };
        run.expect(2, &[&format!("refused: {array}2 ")]);
        for name in ["host:data", "host:music"] {
            let next = format!("\n    mdspace {begin} --array {name}\n");
            assert!(run.stderr.contains(&next), "{line}: {}", run.stderr);
        }
    }
    two.here.run("fail data2 --json").ok();
    assert_eq!(two.list().iter().map(|one| one["in_sync"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(2)]);
    two.here.run(&format!("fail {}/music/a", two.here.path().display())).ok();
    assert_eq!(two.list().iter().map(|one| one["in_sync"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(1)]);
    two.here.run("stop --array host:data").ok();
    two.here.run("stop").ok();
    assert_eq!((two.data.wait(), two.music.wait()), (Some(0), Some(0)));
}

/// A command in the background.
fn soon(here: &Workplace, line: &str) -> Child {
    let mut command: Command = here.command(&line.split(' ').collect::<Vec<_>>());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("mdspace starts")
}

/// Returns when a command sleeps on the server's process.
fn until_it_waits(child: &Child) {
    let descriptors = format!("/proc/{}/fd", child.id());
    let is_pidfd = |entry: std::io::Result<std::fs::DirEntry>| {
        let target = entry.and_then(|entry| std::fs::read_link(entry.path()));
        target.is_ok_and(|target| target.to_string_lossy().contains("pidfd"))
    };
    while !std::fs::read_dir(&descriptors).expect("it runs").any(is_pidfd) {
        std::thread::yield_now();
    }
}

fn status_of(mut child: Child) -> Option<i32> {
    child.wait().expect("it can be waited for").code()
}

#[test]
fn wait_ends_when_the_state_is_reached_or_can_no_longer_be() {
    let here = Workplace::new();
    here.run("wait").expect(2, &["no array of yours"]);
    here.run("wait data healthy").expect(2, &["no array of yours"]);
    assert_eq!(here.run("wait data gone").ok().text(), "the array is not served\n");
    assert_eq!(parsed(&here.run("wait data gone --json").ok().text())["reached"], "gone");
    here.run("wait --control none").expect(2, &["none: "]);
    here.run("wait data --array data").expect(2, &["data: not a state"]);
    here.run("wait data clean --control none").expect(2, &["data: not a state"]);
    for line in ["wait data happy", "wait data sync --timeout x", "wait --timeout -1", "wait a sync gone"] {
        here.run(line).expect(2, &["error: "]);
    }

    here.run("create --level 1 --size 8M --name data a b").ok();
    let server = Server::of(&here, "serve a b");
    here.run("wait").ok();
    here.run("wait healthy --timeout 0").ok();
    here.run("wait clean --array data").ok();
    let reached = parsed(&here.run("wait data clean --json --timeout 30").ok().text());
    assert_eq!((&reached["reached"], &reached["status"]["state"]), (&"clean".into(), &"clean".into()));
    here.run("fail b").ok();
    here.run("wait healthy --timeout 0.1")
        .expect(1, &["healthy: not reached in time: array \"data\": raid1", "degraded"]);

    // A recovery that takes as long as this test wants.
    here.run("set sync-speed-max=1M sync-speed-min=1M").ok();
    here.run("remove b").ok();
    here.run("add b --force").ok();
    for state in ["sync", "healthy"] {
        here.run(&format!("wait {state} --timeout 0")).expect(1, &["not reached in time", "recover"]);
    }
    let (sync, healthy) = (soon(&here, "wait"), soon(&here, "wait data healthy"));
    here.run("set sync-speed-max=none").ok();
    assert_eq!((status_of(sync), status_of(healthy)), (Some(0), Some(0)));
    assert!(here.run("wait healthy --timeout 0").ok().text().starts_with("array \"data\": raid1, "));

    let gone = soon(&here, "wait gone");
    here.run("wait data gone --timeout 0.05").expect(1, &["gone: not reached in time"]);
    here.run("fail b").ok();
    let lost = here.command(&["wait", "data", "healthy"]).stderr(Stdio::piped()).spawn().expect("mdspace starts");
    until_it_waits(&lost);
    until_it_waits(&gone);
    here.run("stop").ok();
    assert_eq!((server.wait(), status_of(gone)), (Some(0), Some(0)));
    let lost = lost.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&lost.stderr);
    assert!(lost.status.code() == Some(1) && text.contains("the array is no longer served"), "{text}");
}

/// `mdspace web`, and its address.
fn web(here: &Workplace, words: &[&str]) -> (Child, String) {
    let mut command = here.command(&[&["web", "--http", "127.0.0.1:0"], words].concat());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut url = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut url).expect("its output is text");
    let address = url.trim_end().strip_prefix("http://").and_then(|url| url.strip_suffix('/'));
    (child, address.unwrap_or_else(|| panic!("{url}")).to_owned())
}

#[test]
fn one_page_lists_all_arrays_and_passes_requests_on_to_each() {
    const TOKEN: &str = "0123456789abcdef";
    let two = Two::new();
    std::fs::write(two.here.path().join("token"), TOKEN).expect("a file");
    let (mut child, address) = web(&two.here, &["--http-token-file", "token"]);
    let ask = |method: &str, route: &str, head: &str, body: &str| {
        let length = body.len();
        let request = format!("{method} {route} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{head}");
        http(&address, &format!("{request}Content-Length: {length}\r\n\r\n{body}"))
    };
    let get = |route: &str| ask("GET", route, "", "");
    let list = || parsed(&get("/v1/arrays").1).as_array().expect("a list").clone();
    let listed = list();
    let own: Vec<Value> = two.list();
    assert_eq!(listed.len(), 2);
    for (shown, own) in listed.iter().zip(&own) {
        let mut without_page = shown.clone();
        let page = without_page.as_object_mut().and_then(|entry| entry.remove("page"));
        assert_eq!(&without_page, own, "the list of `mdspace list`");
        let page = format!("/{}", page.as_ref().and_then(Value::as_str).expect("a page"));
        let status = parsed(&get(&format!("{page}v1/status")).1);
        assert_eq!(status["uuid"], own["uuid"]);
        assert!(get(&page).1.contains("<script src=\"page.js\""));
        assert!(get(&format!("{page}page.js")).1.contains("v1/measures"));
        assert!(get(&format!("{page}metrics")).1.contains("mdspace_array"));
        assert_eq!(get(&format!("{page}v1/trace?from=x")).0, 400, "its server refuses a wrong query");
        let set = |head: &str| ask("POST", &format!("{page}v1/set"), head, r#"{"sync-action": "frozen"}"#);
        assert_eq!(set("").0, 401);
        assert_eq!(parsed(&get(&format!("{page}v1/status")).1)["sync_action"], "idle");
        assert_eq!(set(&format!("Authorization: Bearer {TOKEN}\r\n")).0, 200);
        assert_eq!(parsed(&get(&format!("{page}v1/status")).1)["sync_action"], "frozen");
    }
    assert!(get("/").1.contains("machine.js"));
    for (method, route, expected) in [
        ("GET", "/arrays/none/v1/status", 404),
        ("GET", "/arrays/../v1/status", 404),
        ("GET", "/arrays/none", 404),
        ("GET", "/v1/status", 404),
        ("DELETE", "/arrays/none/v1/status", 405),
        ("GET", "/arrays/none/v1/set", 405),
        ("POST", "/v1/arrays", 405),
    ] {
        assert_eq!(ask(method, route, "", "").0, expected, "{method} {route}");
    }
    assert_eq!(get("/v1/devices").1.trim(), "null", "no array is created without --allow-create");
    let create = |head: &str, body: &str| ask("POST", "/v1/create", head, body);
    assert_eq!(create("", "{}").0, 401);
    assert_eq!(create(&format!("Authorization: Bearer {TOKEN}\r\n"), "{}").0, 403);

    let foreign = "GET /v1/arrays HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n";
    assert_eq!(http(&address, foreign).0, 403);

    let page = format!("/{}", listed[0]["page"].as_str().expect("a page"));
    two.data.signal(Signal::KILL);
    two.here.run("wait data gone").ok();
    assert_eq!(list()[0]["health"], "gone");
    let (status, answer) = get(&format!("{page}v1/status"));
    assert!(status == 502 && answer.contains("server is gone"), "{status} {answer}");
    assert_eq!(list()[1]["health"], "healthy");

    rustix::process::kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    two.here.run("web --http 127.0.0.1:0 --allow-create").expect(2, &["--http-token-file"]);
    two.here.run("web --http 0.0.0.0:0").expect(2, &["other machines", "--http-tls-certificates DIR"]);
    two.here.run(&format!("web --http {address} --http-token-file none")).expect(2, &["none: No such file"]);
}

#[test]
fn a_web_page_creates_arrays_only_by_its_token_and_overwrites_nothing() {
    const TOKEN: &str = "0123456789abcdef";
    let here = Workplace::new();
    std::fs::write(here.path().join("token"), TOKEN).expect("a file");
    for name in ["a.img", "b.img"] {
        std::fs::File::create(here.path().join(name)).and_then(|file| file.set_len(8 << 20)).expect("a file");
    }
    let (mut child, address) = web(&here, &["--http-token-file", "token", "--allow-create"]);
    let create = |head: &str, body: &Value| {
        let body = body.to_string();
        let request = format!("POST /v1/create HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{head}");
        http(&address, &format!("{request}Content-Length: {}\r\n\r\n{body}", body.len()))
    };
    let devices = format!("GET /v1/devices HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    assert!(parsed(&http(&address, &devices).1).is_array());
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    let members: Vec<_> = ["a.img", "b.img"].iter().map(|name| here.path().join(name)).collect();
    let wanted = |dry_run: bool| json!({ "level": "1", "members": members, "dry-run": dry_run });
    let before = here.contents(&["a.img", "b.img"]);
    assert_eq!(create("", &wanted(false)).0, 401);
    assert_eq!(create(&token, &json!({ "level": "1", "members": ["a.img"] })).0, 400);
    let (status, text) = create(&token, &wanted(true));
    assert!(status == 200 && text.contains("would create RAID-1"), "{status} {text}");
    assert!(here.contents(&["a.img", "b.img"]) == before, "bytes changed");
    let (status, text) = create(&token, &wanted(false));
    assert!(status == 200 && text.contains("next: mdspace serve"), "{status} {text}");
    let made = here.contents(&["a.img", "b.img"]);
    let (status, text) = create(&token, &wanted(false));
    assert!(status == 409 && text.contains("belongs to an array already"), "{status} {text}");
    assert!(here.contents(&["a.img", "b.img"]) == made, "bytes changed");
    rustix::process::kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_member_is_found_by_any_path_of_its_file() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --assume-clean a b c").ok();
    std::os::unix::fs::symlink("b", here.path().join("by-id-b")).expect("a link of our own");
    let server = Server::of(&here, "serve a by-id-b c");
    here.run("fail none").expect(2, &["none"]);
    here.run("fail b").ok();
    here.run("remove ./b").ok();
    let c = here.path().join("c").display().to_string();
    here.run(&format!("fail {c}")).ok();
    let status = parsed(&here.run("status --json").ok().text());
    let left: Vec<_> = status["members"].as_array().expect("a list").iter().map(|one| &one["name"]).collect();
    assert_eq!(left, ["a", "c"], "{status}");
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_number_of_mdadms_words_stays_with_its_array_while_that_has_a_server() {
    let here = Workplace::new();
    for (name, members) in [("data", "a b"), ("music", "c d"), ("data", "e f")] {
        here.run(&format!("create --level 1 --size 8M --assume-clean --name {name} {members}")).ok();
    }
    let mut servers = ["a b", "c d", "e f"].map(|members| Some(Server::of(&here, &format!("serve {members}"))));
    let scan = here.run("mdadm --detail --scan").ok().text();
    let mut paths: Vec<&str> = scan.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["/dev/md/data", "/dev/md/data_0", "/dev/md/music"], "{scan}");
    let numbered = || {
        let text = here.run("mdadm --detail /dev/md/music --export").ok().text();
        text.lines().find_map(|line| Some(line.strip_prefix("MD_UUID=")?.to_owned())).expect("a uuid")
    };
    let music = numbered();
    let by_number = |number: u32| {
        let ran = here.run(&format!("mdadm --detail --export /dev/md{number}"));
        ran.text().contains(&music).then_some(number)
    };
    let number = (125..128).find_map(by_number).expect("it has a number");
    // Others end, and one hangs: neither takes its number.
    here.run("mdadm --stop /dev/md/data").ok();
    assert_eq!(by_number(number), Some(number));
    let other = (125..128).find(|other| *other != number && here.run(&format!("mdadm -Q /dev/md{other}")).status == 0);
    let other = other.expect("the second array of that name");
    here.run(&format!("mdadm --stop /dev/md{other}")).ok();
    here.run(&format!("mdadm --stop /dev/md{other}")).expect(1, &[&format!("md{other}")]);
    assert_eq!(by_number(number), Some(number));
    here.run("stop").ok();
    for server in servers.iter_mut().filter_map(Option::take) {
        assert_eq!(server.wait(), Some(0));
    }
}

#[test]
fn a_killed_server_is_named_and_only_arrays_with_the_member_are_offered() {
    let here = Workplace::new();
    for (name, members) in [("data", "a b"), ("music", "c d"), ("films", "e f")] {
        here.run(&format!("create --level 1 --size 8M --assume-clean --name {name} {members}")).ok();
    }
    let [data, music, films] = ["a b", "c d", "e f"].map(|members| Server::of(&here, &format!("serve {members}")));
    here.run("fail nothing").expect(2, &["--array data", "--array music", "--array films"]);
    films.signal(Signal::KILL);
    films.wait();
    here.run("status films").expect(2, &["its server was killed", "serve the array again"]);
    here.run("status none").expect(2, &["no served array has this name"]);
    here.run("stop data").ok();
    assert_eq!(data.wait(), Some(0));
    here.run("stop").ok();
    assert_eq!(music.wait(), Some(0));
}
