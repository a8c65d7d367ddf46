//! A served array: the control commands, settings, exports and the end of the server.

use crate::support::nbd::Nbd;
use crate::support::{Server, Workplace, parsed};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::Command;

#[test]
fn a_server_is_found_tells_its_state_loses_a_member_and_stops_clean() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M --name data a b c").ok();
    let server = Server::of(&here, "serve c a b");
    assert!(server.greeting.contains("serving array \"data\": raid5, 14 MiB, clean"), "{}", server.greeting);

    let status = parsed(&here.run("status --json").ok().text());
    assert_eq!((&status["level"], &status["in_sync"]), (&"raid5".into(), &3.into()));
    let nbd = status["served"]["nbd"].as_str().expect("an address");
    let socket = nbd.strip_prefix("nbd+unix:///?socket=").expect("a unix socket");
    drop(UnixStream::connect(socket).expect("the server listens"));

    here.run("serve a b c").expect(2, &["in use by"]);
    here.run("write a b c").expect(2, &["a: in use by"]);
    here.run("fail nobody").expect(2, &["nobody: not a member"]);
    here.run("remove b").expect(2, &["b: the member is active", "fail it first"]);
    let text = here.run("fail b").ok().text();
    assert!(text.contains("degraded") && text.contains("faulty"), "{text}");
    here.run("fail c").expect(2, &["cannot do without this member"]);
    here.run("remove b").ok();
    let status = parsed(&here.run("status --json").ok().text());
    assert_eq!((&status["missing"], &status["in_sync"]), (&parsed("[1]"), &2.into()));

    assert_eq!(here.run("stop").ok().text(), "stopped, clean, degraded\n");
    assert_eq!(server.wait(), Some(0));
    here.run("status").expect(2, &["no array of yours"]);
    let report = parsed(&here.run("examine --json a b c").ok().text());
    assert_eq!(report["arrays"][0]["status"]["state"], "clean, degraded");
    assert_eq!(report["arrays"][0]["status"]["left_out"][0]["name"], "b", "its events are old: {report}");
}

#[test]
fn a_client_that_disconnects_with_writes_pending_loses_nothing_that_was_answered() {
    const PAGE: usize = 4096;
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M --name data a b c").ok();
    let server = Server::of(&here, "serve a b c --cache writeback");
    let status = parsed(&here.run("status --json").ok().text());
    let nbd = status["served"]["nbd"].as_str().expect("an address");
    let socket = nbd.strip_prefix("nbd+unix:///?socket=").expect("a unix socket").to_owned();

    // A stream that fills no stripe, one that fills some, and scattered pages. Each client disconnects in the middle of
    // a payload.
    let (mut answered, mut begun) = (Vec::new(), Vec::new());
    for (first, step, count) in [(1, 1, 20), (64, 1, 90), (256, 7, 64)] {
        let places: Vec<u64> = (0..count).map(|number| (first + number * step) * PAGE as u64).collect();
        let mut client = Nbd::connect(&socket);
        for at in &places {
            client.request(1, *at, PAGE as u32, &[(at / PAGE as u64 % 251) as u8 + 1; PAGE]);
        }
        client.request(1, 3000 * PAGE as u64, PAGE as u32, &[255; PAGE - 1]);
        let done: Vec<u64> = (0..count / 2).map(|_| client.reply()).collect();
        drop(client);
        let mut next = Nbd::connect(&socket);
        next.request(3, 0, 0, &[]);
        assert_eq!(next.reply(), 0, "flushed");
        for at in &done {
            assert!(next.read(*at, PAGE as u32).iter().all(|byte| *byte == (at / PAGE as u64 % 251) as u8 + 1));
        }
        answered.extend(done);
        begun.extend(places);
    }
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));

    let found = here.run("read a b c").ok().stdout.clone();
    for (number, page) in (0_u64..).zip(found.chunks(PAGE)) {
        let (at, new) = (number * PAGE as u64, (number % 251) as u8 + 1);
        let is = |byte: u8| page.iter().all(|other| *other == byte);
        assert!(is(new) && begun.contains(&at) || is(0) && !answered.contains(&at), "page {number} is whole, and kept");
    }
    for left in ["a b", "a c", "b c"] {
        assert!(here.run(&format!("read {left}")).ok().stdout == found, "parity agrees, by {left}");
    }
}

#[test]
fn a_server_locks_the_memory_that_it_uses_and_an_idle_one_hardly_any() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M a b c").ok();
    let server = Server::of(&here, "serve a b c --nbd unix:nbd.socket");
    let locked_kib = || -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmPin:")).expect("the kernel counts it");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    };
    let idle = locked_kib();
    // 2 MiB at first; the server's start may take a little more.
    assert!(idle < 8 << 10, "{idle} KiB");
    Nbd::connect(here.path().join("nbd.socket").to_str().expect("a path")).read(0, 12 << 20);
    let used = locked_kib();
    // Users other than root may have a limit on locked memory.
    assert!(used > idle || !rustix::process::geteuid().is_root(), "{idle} KiB and then {used}");
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn settings_change_while_it_works_and_bad_ones_change_nothing() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M --name data a b c").ok();
    here.run("serve a b c --stripe-size 128K").expect(2, &["stripe-size", "131072 bytes", "the chunk's 65536"]);
    let server = Server::of(&here, "serve a b c --stripe-size 16K");
    let stripe_size = || parsed(&here.run("status --json").ok().text())["stripe_size_bytes"].clone();
    assert_eq!(stripe_size(), 16384);
    let text = here.run("set stripe-size=64K").ok().text();
    assert!(text.contains("stripe size 64 KiB"), "{text}");
    for (pairs, words) in [
        ("stripe-size=12K", &["stripe-size: 12288 bytes is not a power of two", "next: values: auto"] as &[&str]),
        ("stripe-size=2K", &["stripe-size: 2048 bytes is not from 4096 to the chunk's 65536"]),
        ("stripe-size=128K", &["stripe-size: 131072 bytes"]),
        ("stripe-size=much", &["stripe-size: `much` is not a unit"]),
        ("stripe-size=", &["stripe-size: expected a size"]),
        ("strip-size=4K", &["strip-size: unknown setting", "stripe-size"]),
        ("stripe-size=4K zeal=9", &["zeal: unknown setting"]),
    ] {
        here.run(&format!("set {pairs}")).expect(2, words);
        assert_eq!(stripe_size(), 65536, "{pairs}");
    }
    here.run("set stripe-size=auto").ok();
    assert_eq!(stripe_size(), Value::Null);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    here.run("create --level 1 --size 8M d e").ok();
    here.run("serve d e --stripe-size 4K").expect(2, &["without parity"]);
}

/// The status of the array that is served here.
fn bitmap(here: &Workplace) -> Value {
    parsed(&here.run("status --json").ok().text())["bitmap"].clone()
}

#[test]
fn a_bitmap_in_a_new_file_is_used_outlives_the_server_and_is_out_of_date_once_removed() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M --name data a b c").ok();
    here.run("create --level 1 --size 8M --name other d e").ok();
    let path = here.path().join("bits");
    let file = path.display().to_string();
    let server = Server::of(&here, "serve a b c --nbd unix:nbd.socket");
    let text = here.run(&format!("set bitmap={file}:64K")).ok().text();
    for words in [
        "64 KiB chunk",
        &format!("file: {file}\n"),
        &format!("next: from now on, serve the array with --bitmap {file}"),
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let made = path.metadata().expect("it is there");
    assert_eq!(made.permissions().mode() & 0o777, 0o600);
    assert!(made.blocks() * 512 >= made.len(), "{} blocks for {} bytes", made.blocks(), made.len());
    here.run(&format!("serve d e --bitmap {file}")).expect(2, &["bits: in use by"]);

    let mut client = Nbd::connect(&here.path().join("nbd.socket").display().to_string());
    client.request(1, 0, 4096, &[7; 4096]);
    client.reply();
    assert_eq!(bitmap(&here)["set"], 1);
    assert_eq!(std::fs::read(&path).expect("it is there")[256], 1, "the first bit");
    let measures = parsed(&here.run("iostat --json").ok().text());
    let members = measures["members"].as_array().expect("a list");
    let of_file = members.iter().find(|member| member["name"] == *file).expect("it is watched as members are");
    assert!(of_file["reasons"]["intent"]["bytes"].as_u64() > Some(0), "{of_file}");
    drop(client);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));

    let serve = format!("serve a b c --bitmap {file}");
    let server = Server::of(&here, &serve);
    let found = bitmap(&here);
    assert_eq!((&found["file"], &found["chunk_bytes"]), (&file.clone().into(), &65536.into()));
    assert!(found["set"].as_u64() <= Some(1), "it is up to date: {found}");
    let text = here.run("set bitmap=none").ok().text();
    assert!(!text.contains("bitmap") && path.exists(), "{text}");
    assert_eq!(std::fs::read(&path).expect("it stays")[48], 2, "its state is stale");
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    let server = Server::of(&here, &serve);
    let found = bitmap(&here);
    assert_eq!(found["set"], found["bits"], "nothing that it says counts");
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_file_for_a_bitmap_that_is_refused_is_not_made_and_changes_nothing() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M --name data a b c").ok();
    here.run("create --level 0 --chunk 64K --size 8M --name fast d e").ok();
    std::os::unix::fs::symlink("nowhere", here.path().join("dangling")).expect("a link");
    let before = here.contents(&["a", "b", "c"]);
    let directory = here.path().display().to_string();
    let is_made = || ["bits", "nowhere"].iter().any(|name| here.path().join(name).exists());
    let refuses = |value: &str, words: &[&str]| {
        here.run(&format!("set bitmap={}", value.replace("HERE", &directory))).expect(2, words);
        assert!(!is_made(), "{value}");
    };
    let server = Server::of(&here, "serve a b c");
    for (value, words) in [
        (
            "bits",
            &["bitmap: \"bits\" is not a bitmap", "next: values: none, internal[:CHUNK], or /FILE[:CHUNK]"]
                as &[&str],
        ),
        (
            "./bits",
            &[
                "bitmap: \"./bits\" is not absolute",
                "another directory",
                "next: give the absolute path, beginning with /",
            ],
        ),
        ("./bits:64K", &["\"./bits\" is not absolute"]),
        ("HERE/a", &["/a: exists already", "next: name a new file"]),
        ("HERE", &["exists already"]),
        ("HERE/dangling", &["/dangling: exists already"]),
        ("HERE/none/bits", &["/none/bits: cannot create: No such file"]),
        ("HERE/bits:much", &["bitmap: `much` is not a unit"]),
        ("HERE/bits:12K", &["12288"]),
        ("HERE/bits:1K", &["1024"]),
        ("HERE/bits:4G", &["4294967296"]),
        ("HERE/bits zeal=9", &["zeal: unknown setting"]),
    ] {
        refuses(value, words);
        assert_eq!(bitmap(&here), Value::Null, "{value}");
    }
    assert!(here.contents(&["a", "b", "c"]) == before);
    here.run("set bitmap=internal").ok();
    refuses("HERE/bits", &["has a bitmap already", "next: remove it first"]);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    for (line, words) in [("serve a b c --read-only", "read-only"), ("serve d e", "without redundancy")] {
        let server = Server::of(&here, line);
        refuses("HERE/bits", &[words]);
        here.run("stop").ok();
        assert_eq!(server.wait(), Some(0));
    }
}

#[test]
fn a_signal_stops_a_server_clean() {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let here = Workplace::new();
        here.run("create --level 1 --size 8M a b").ok();
        let server = Server::of(&here, "serve a b --nbd tcp:127.0.0.1:0 --control here.sock");
        assert!(server.greeting.contains("nbd://127.0.0.1:"), "{}", server.greeting);
        here.run("status --control here.sock").ok();
        server.signal(signal);
        assert_eq!(server.wait(), Some(0), "{signal:?}");
        let report = parsed(&here.run("examine --json a b").ok().text());
        assert_eq!(report["arrays"][0]["status"]["state"], "clean");
        assert!(!here.path().join("here.sock").exists(), "the socket is gone");
    }
}

#[test]
fn a_read_only_server_changes_nothing() {
    let here = Workplace::new();
    here.run("create --level 6 --size 8M a b c d").ok();
    let before = here.contents(&["a", "b", "c", "d"]);
    let server = Server::of(&here, "serve a b c d --read-only");
    here.run("fail a").expect(2, &["read-only"]);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    assert!(here.contents(&["a", "b", "c", "d"]) == before);
}

#[test]
fn an_array_refuses_writes_while_it_is_read_only_and_its_clients_stay() {
    const WRITE: u16 = 1;
    const FLUSH: u16 = 3;
    const NOT_PERMITTED: u32 = 1;
    let here = Workplace::new();
    let members = ["a", "b", "c"];
    here.run("create --level 5 --size 8M a b c").ok();
    here.run("create --level 5 --size 8M x y z").ok();
    let server = Server::of(&here, "serve a b c --nbd unix:n");
    let mut client = Nbd::connect(here.path().join("n").to_str().expect("UTF-8"));
    let mut write = |byte: u8| {
        client.request(WRITE, 0, 4096, &[byte; 4096]);
        let written = client.outcome();
        (written, client.read(0, 4096)[0])
    };
    assert_eq!(write(1), (Ok(()), 1));
    here.run("set read-only=perhaps").expect(2, &["neither on nor off", "read-only"]);
    here.run("set read-only=on").ok();
    let (left, status) = (here.contents(&members), parsed(&here.run("status --json").ok().text()));
    assert_eq!(
        (&status["state"], &status["made_read_only"], &status["served"]["clients"]),
        (&"clean".into(), &true.into(), &1.into())
    );
    assert!(here.run("status").ok().text().contains("read-only (end it: set read-only=off)"));
    assert_eq!(write(2), (Err(NOT_PERMITTED), 1));
    here.run("add x --force").expect(2, &["the array is read-only", "mdspace set read-only=off"]);
    here.run("scrub").expect(2, &["the array is read-only"]);
    here.run("set bitmap=internal").expect(2, &["the array is read-only"]);
    here.run("set read-only=on").ok();
    assert!(here.contents(&members) == left, "no member has changed");
    here.run("set read-only=off").ok();
    assert_eq!(write(3), (Ok(()), 3));
    client.request(FLUSH, 0, 0, &[]);
    assert_eq!(client.outcome(), Ok(()));
    drop(client);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));

    let server = Server::of(&here, "serve a b c --read-only");
    here.run("set read-only=on").ok();
    here.run("set read-only=off").expect(2, &["the array is read-only", "without --read-only"]);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_warning_is_a_line_of_json_where_that_is_asked_for_and_of_plain_text_where_not() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M a b").ok();
    for (format, is_json) in [("human", false), ("json", true)] {
        let (log, words) = (here.path().join("log"), ["serve", "a", "b", "--log", format]);
        let mut command = here.command(&words);
        command.stderr(std::fs::File::create(&log).expect("a file"));
        let server = Server::start(command);
        let socket = server.word("nbd+unix").split_once("socket=").expect("a unix socket").1.to_owned();
        let mut stranger = UnixStream::connect(socket).expect("the server listens");
        stranger.write_all(&[0xff; 64]).expect("it listens");
        stranger.read_to_end(&mut Vec::new()).expect("it hangs up");
        here.run("stop").ok();
        assert_eq!(server.wait(), Some(0));
        let said = std::fs::read_to_string(&log).expect("text");
        let warning =
            said.lines().find(|line| line.contains("an NBD session ended")).unwrap_or_else(|| panic!("{said}"));
        match serde_json::from_str::<Value>(warning) {
            Ok(warning) => {
                assert!(is_json && warning["level"] == "WARN" && warning["timestamp"].is_string(), "{warning}")
            }
            Err(_) => assert!(!is_json, "{warning}"),
        }
    }
}

#[test]
fn two_servers_are_never_mistaken_for_each_other() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --name one a b").ok();
    here.run("create --level 1 --size 8M --name two c d").ok();
    let (one, two) = (Server::of(&here, "serve a b"), Server::of(&here, "serve c d"));
    let run = here.run("stop");
    run.expect(2, &["2 arrays are being served"]);
    let lines: Vec<&str> = run.stderr.lines().filter_map(|line| line.trim().strip_prefix("mdspace ")).collect();
    assert_eq!(lines, ["stop --array one", "stop --array two"], "{}", run.stderr);
    here.run(lines[1]).ok();
    assert_eq!(two.wait(), Some(0));
    here.run("stop").ok();
    assert_eq!(one.wait(), Some(0));
}

#[test]
fn up_makes_an_array_and_goes_on_where_it_left_off() {
    let here = Workplace::new();
    let server = Server::of(&here, "up");
    here.run("up").expect(2, &["is being served already"]);
    let first = parsed(&here.run("status --json").ok().text());
    assert_eq!((&first["level"], &first["raid_disks"]), (&"raid5".into(), &4.into()));
    here.run("fail member2.img").ok();
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));

    let server = Server::of(&here, "up --json");
    assert_eq!(parsed(&server.greeting)["uuid"], first["uuid"]);
    let second = parsed(&here.run("status --json").ok().text());
    assert_eq!(second["uuid"], first["uuid"]);
    assert_eq!(second["missing"], parsed("[2]"));
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn whatever_changes_an_array_tells_its_status_afterwards_as_json() {
    let here = Workplace::new();
    let status_of = |line: &str| parsed(&here.run(line).ok().text());
    let made = status_of("create --json --level 1 --size 16M a b c");
    assert_eq!((&made["level"], &made["raid_disks"], &made["state"]), (&"raid1".into(), &3.into(), &"clean".into()));
    for name in ["a", "b", "c"] {
        let file = std::fs::File::options().write(true).open(here.path().join(name)).expect("a member");
        file.set_len(24 << 20).expect("it can be longer");
    }
    let grown = status_of("grow --json --size max a b c");
    assert_eq!(grown["uuid"], made["uuid"]);
    assert!(grown["array_bytes"].as_u64() > made["array_bytes"].as_u64());
    let server = Server::of(&here, "serve --json a b c");
    let served = parsed(&server.greeting);
    assert_eq!((&served["array_bytes"], &served["served"]["clients"]), (&grown["array_bytes"], &0.into()));
    assert!(served["served"]["nbd"].as_str().is_some_and(|uri| uri.starts_with("nbd+unix:")));
    assert_eq!(status_of("fail --json c")["missing"], parsed("[2]"));
    assert_eq!(status_of("remove --json c")["members"].as_array().map(Vec::len), Some(2));
    assert_eq!(status_of("add --json --force c")["members"].as_array().map(Vec::len), Some(3));
    assert_eq!(status_of("set --json sync-speed-min=2M")["uuid"], made["uuid"]);
    assert_eq!(status_of("stop --json")["pid"], served["served"]["pid"]);
    assert_eq!(server.wait(), Some(0));
}

/// Writes and reads back pages of a region of its own, through a connection of its own.
fn churn(socket: &str, region: std::ops::Range<u64>, salt: u8) {
    const PAGE: u64 = 4096;
    let mut client = Nbd::connect(socket);
    let places: Vec<u64> =
        (0..200_u64).map(|number| region.start + number * 37 % (region.end - region.start)).collect();
    let page = |place: u64, turn: u64| vec![(place + turn) as u8 ^ salt; PAGE as usize];
    for turn in 0..2 {
        for place in &places {
            client.request(1, place * PAGE, PAGE as u32, &page(*place, turn));
            assert_eq!(client.reply(), place * PAGE);
        }
        // Longer than many stripes.
        let long = vec![salt; 9 << 20];
        client.request(1, region.start * PAGE, long.len() as u32, &long);
        client.reply();
        assert!(client.read(region.start * PAGE, long.len() as u32) == long);
        for place in &places {
            client.request(1, place * PAGE, PAGE as u32, &page(*place, turn));
            client.reply();
        }
        client.request(3, 0, 0, &[]);
        assert_eq!(client.reply(), 0, "flushed");
        assert!(places.iter().all(|place| client.read(place * PAGE, PAGE as u32) == page(*place, turn)));
    }
}

#[test]
fn several_clients_share_an_array_that_loses_a_member_and_stops_clean() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 40M --bitmap internal --name data a b c").ok();
    for (cache, fails) in [("writethrough", false), ("writeback", true)] {
        let server = Server::of(&here, &format!("serve a b c --cache {cache}"));
        let status = parsed(&here.run("status --json").ok().text());
        let nbd = status["served"]["nbd"].as_str().expect("an address");
        let socket = nbd.strip_prefix("nbd+unix:///?socket=").expect("a unix socket").to_owned();
        let clients: Vec<_> = (0..4_u64)
            .map(|number| {
                let socket = socket.clone();
                std::thread::spawn(move || churn(&socket, number * 4096..number * 4096 + 3000, number as u8))
            })
            .collect();
        if fails {
            here.run("fail b").ok();
        }
        clients.into_iter().for_each(|client| client.join().expect("it read what it wrote"));
        let status = parsed(&here.run("status --json").ok().text());
        let written = |slot: usize| status["members"][slot]["written_bytes"].as_u64().expect("a count");
        assert!(fails || (0..3).all(|slot| written(slot) > 30 << 20), "transfers of all clients count: {status}");
        let stopped = here.run("stop").ok().text();
        assert_eq!(stopped, if fails { "stopped, clean, degraded\n" } else { "stopped, clean\n" });
        assert_eq!(server.wait(), Some(0));
        let scrubbed = here.run(if fails { "scrub a c" } else { "scrub a b c" }).ok().text();
        assert!(scrubbed.contains("all that was compared agrees"), "{scrubbed}");
    }
}

#[test]
fn addresses_that_others_reach_are_refused() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M a b").ok();
    here.run("serve a b --nbd tcp:0.0.0.0:10809").expect(2, &["other machines", "--tls require"]);
    for (flags, words) in [
        ("--tls require", &["--tls-certificates"] as &[&str]),
        ("--tls on", &["--tls-certificates"]),
        ("--tls-verify-peer", &["--tls-certificates"]),
        ("--tls-certificates .", &["--tls-certificates: TLS is off"]),
        ("--shards 2", &["--shards", "one thread"]),
        ("--tls require --tls-certificates .", &["./server-cert.pem: No such file"]),
    ] {
        here.run(&format!("serve a b --nbd tcp:127.0.0.1:0 {flags}")).expect(2, words);
    }
    let asked = Server::of(&here, "serve a b --nbd tcp:0.0.0.0:0 --allow-plain-tcp");
    assert!(asked.greeting.contains("nbd://0.0.0.0:"), "{}", asked.greeting);
    here.run("stop").ok();
    assert_eq!(asked.wait(), Some(0));
    here.run("serve a b --nbd nowhere").expect(2, &["unix:PATH or tcp:HOST:PORT"]);
    here.run("serve a b --control a").expect(2, &["a"]);
    here.run("examine a b").ok();
}

/// tests/vm/ublk.sh tests a kernel with the driver.
#[test]
fn a_block_device_that_cannot_be_had_is_refused_with_what_to_do() {
    if std::fs::exists("/dev/ublk-control").unwrap_or(true) {
        return;
    }
    let here = Workplace::new();
    here.run("create --level 1 --size 8M a b").ok();
    let before = std::fs::read(here.path().join("a")).expect("a member");
    let reason = match cfg!(feature = "ublk") {
        true => &["--ublk: this kernel has no ublk driver", "modprobe ublk_drv", "--fuse and a loop device"],
        false => &["--ublk: this build does not include it", "--features ublk", "--fuse and a loop device"],
    };
    here.run("serve a b --ublk").expect(2, reason);
    assert!(before == std::fs::read(here.path().join("a")).expect("a member"), "nothing is changed");
}

#[test]
fn a_served_array_is_scrubbed_beside_its_clients_and_goes_on_with_it_after_a_restart() {
    let here = Workplace::new();
    here.run("create --level 6 --chunk 64K --size 8M a b c d e").ok();
    here.run_with("write a b c d e", &[7; 3 << 20]).ok();
    let server = Server::of(&here, "serve a b c d e");
    here.run("scrub").ok();
    here.run("scrub --pause").expect(2, &["no check or repair is under way"]);
    let member = std::fs::File::options().write(true).open(here.path().join("b")).expect("a member");
    std::os::unix::fs::FileExt::write_all_at(&member, &[8; 4096], 2 << 20).expect("it is long enough");
    let report = here.run("scrub --json");
    report.expect(1, &["scrub --repair"]);
    let report = parsed(&report.text());
    assert_eq!(report["findings"][0]["members"][0]["name"], "b");
    assert_eq!((&report["counts"]["decided"], &report["counts"]["healed"]), (&1.into(), &0.into()));

    here.run("set sweep-window=48K").expect(2, &["sweep-window", "no power of two", "from 4K to 64M"]);
    here.run("set sweep-in-flight=0").expect(2, &["sweep-in-flight", "no power of two"]);
    here.run("set sweep-window=16K sweep-in-flight=32K").ok();
    let with_short_transfers = parsed(&here.run("scrub --json").text());
    assert_eq!(with_short_transfers["counts"], report["counts"]);
    here.run("set sweep-window=auto").ok();
    here.run("scrub --window 64K").expect(2, &["MEMBER"]);

    // Slow enough to stop the server in the middle of the scrub, which the next server continues.
    here.run("set sync-speed-min=64K sync-speed-max=64K").ok();
    here.run("scrub --repair --no-wait").ok();
    here.run("scrub").expect(2, &["under way"]);
    let paused = here.run("scrub --pause").ok().text();
    assert!(paused.contains("paused"), "{paused}");
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    let server = Server::of(&here, "serve a b c d e");
    assert_eq!(parsed(&here.run("status --json").ok().text())["sync_action"], "idle");
    let report = here.run("scrub --resume --json");
    report.expect(1, &["1 rows were found wrong, 0 are left"]);
    assert_eq!(parsed(&report.text())["counts"]["healed"], 1);
    here.run("scrub").ok();
    here.run("set sync-speed-min=64K sync-speed-max=64K sync-action=check").ok();
    assert!(here.run("scrub --cancel").ok().text().contains("cancelled"));
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

/// Enlarges the members' files.
fn lengthen(here: &Workplace, members: &[&str]) {
    for member in members {
        let file = std::fs::File::options().write(true).open(here.path().join(member)).expect("a member");
        file.set_len(24 << 20).expect("it can be longer");
    }
}

#[test]
fn an_array_grows_while_it_is_served_and_clients_that_come_then_see_it() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --bitmap internal --size 8M a b c").ok();
    let server = Server::of(&here, "serve a b c --nbd unix:nbd.socket");
    let socket = here.path().join("nbd.socket").display().to_string();
    let mut first = Nbd::connect(&socket);
    first.request(1, 4096, 4096, &[7; 4096]);
    first.reply();
    here.run("grow --size 9M").expect(2, &["a: superblock.size", "has room for only"]);
    here.run("grow --size 1M").expect(2, &["superblock.size", "--shrink", "is lost"]);
    here.run("grow --raid-devices 4").expect(2, &["superblock.level", "only RAID-1"]);
    lengthen(&here, &["a", "b", "c"]);
    let grown = parsed(&here.run("grow --size max --json").ok().text());
    let bytes = grown["array_bytes"].as_u64().expect("a number");
    assert!(bytes > 2 * first.bytes, "{bytes} bytes, it was {}", first.bytes);
    assert_eq!(first.read(4096, 4096), [7; 4096]);
    let mut second = Nbd::connect(&socket);
    assert_eq!(second.bytes, bytes);
    second.request(1, bytes - 4096, 4096, &[8; 4096]);
    second.reply();
    let same = parsed(&here.run("grow --size max --json").ok().text());
    assert_eq!(same["array_bytes"], bytes);
    drop((first, second));
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    let last = here.run(&format!("read a b c --offset {}", bytes - 4096));
    assert_eq!(last.ok().stdout, [8; 4096]);
}

#[test]
fn a_served_array_of_another_kind_is_refused_and_raid_1_has_more_copies() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --integrity --size 8M a b c").ok();
    let server = Server::of(&here, "serve a b c");
    lengthen(&here, &["a", "b", "c"]);
    here.run("grow --size max").expect(2, &["keeps checksums"]);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));

    here.run("create --level 1 --size 8M d e").ok();
    let server = Server::of(&here, "serve d e");
    std::fs::File::create_new(here.path().join("f")).and_then(|file| file.set_len(24 << 20)).expect("a new file");
    assert_eq!(parsed(&here.run("grow --raid-devices 3 --json").ok().text())["missing"], parsed("[2]"));
    let added = parsed(&here.run("add f --json").ok().text());
    assert_eq!((&added["raid_disks"], &added["missing"]), (&3.into(), &parsed("[]")));
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn an_array_that_is_only_read_is_checked_and_a_check_that_stands_still_is_shown() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --integrity --size 16M a b c").ok();
    here.run_with("write a b c", &[0x5a; 4 << 20]).ok();
    let server = Server::of(&here, "serve a b c --read-only --nbd unix:n --control k");
    here.run("scrub --control k").ok();
    here.run("scrub --repair --control k").expect(2, &["read-only"]);
    here.run("stop --control k").ok();
    assert_eq!(server.wait(), Some(0));

    let server = Server::of(&here, "serve a b c --nbd unix:n --control k");
    here.run("set sync-speed-max=64K --control k").ok();
    here.run("scrub --no-wait --control k").ok();
    here.run("scrub --pause --control k").ok();
    let told = here.run("status --json --control k").ok().text();
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((&told["sweep"]["action"], &told["sweep"]["paused"]), (&"check".into(), &true.into()), "{told}");
    assert!(here.run("status --control k").ok().text().contains(", paused\n"));
    assert_eq!(told["sweep"]["held_by"], serde_json::Value::Null, "{told}");

    // A running check names the setting that holds it.
    here.run("set sync-speed-min=64K sync-speed-max=64K --control k").ok();
    here.run("scrub --resume --no-wait --control k").ok();
    let is_held = |_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let told = here.run("status --json --control k").ok().text();
        let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
        told["sweep"]["held_by"] == "sync-speed-max"
    };
    assert!((0..200).any(is_held), "the second window waits");
    assert!(here.run("status --control k").ok().text().contains(", held by sync-speed-max\n"));
    here.run("set sync-speed-max=none --control k").ok();
    here.run("stop --control k").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_member_is_known_by_every_path_to_it() {
    let here = Workplace::new();
    std::fs::create_dir(here.path().join("sub")).expect("a directory");
    here.run("create --level 6 --chunk 64K --size 16M sub/a sub/b sub/c sub/d").ok();
    let server = Server::of(&here, "serve sub/a sub/b sub/c sub/d --nbd unix:n --control k");
    let whole = here.path().join("sub/a").display().to_string();
    here.run(&format!("fail {whole} --control k")).ok();
    here.run("remove sub/a --control k").ok();
    here.run("add --force sub/a --control k").ok();
    here.run("fail sub/a --control k").ok();
    here.run("remove a --control k").ok();
    here.run("fail sub/e --control k").expect(2, &["sub/e"]);
    here.run("stop --control k").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_closed_terminal_stops_a_server_in_order_unless_it_was_started_to_stay() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M a b").ok();
    let serve = |option: &str| {
        let serving = here.command(&["serve", "a", "b"]);
        let mut command = Command::new("env");
        command.arg(option).arg(serving.get_program()).args(serving.get_args()).current_dir(here.path());
        command.envs(serving.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Server::start(command)
    };
    let server = serve("--default-signal=HUP");
    server.signal(rustix::process::Signal::HUP);
    assert_eq!(server.wait(), Some(0));
    let examined = parsed(&here.run("examine --json a b").ok().text());
    assert_eq!(examined["arrays"][0]["status"]["state"], "clean", "{examined}");
    let server = serve("--ignore-signal=HUP");
    server.signal(rustix::process::Signal::HUP);
    here.run("status").ok();
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}
