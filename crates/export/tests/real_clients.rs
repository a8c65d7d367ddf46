//! Third-party programs against this crate's server, which serves a memory volume on a unix socket: nbdinfo, nbdcopy,
//! nbdsh, qemu-img, qemu-io and fio.
//!
//! A missing program fails its test with the name of its package: nothing is skipped. `cargo xtask test` installs them
//! where it may.

#[path = "support/served.rs"]
mod served;

use serde_json::Value;
use served::{BYTES, Served, image, run};
use std::process::Command;

#[test]
fn nbdinfo_sees_the_size_the_flags_the_block_sizes_and_the_context() {
    let served = Served::new(BYTES, false);
    let info: Value = serde_json::from_str(&run("libnbd-bin", "nbdinfo", &["--json", &served.uri()])).expect("JSON");
    assert_eq!((&info["protocol"], &info["structured"]), (&"newstyle-fixed".into(), &true.into()));
    let export = &info["exports"][0];
    let expected = [
        ("export-name", "array".into()),
        ("export-size", BYTES.into()),
        ("is_read_only", false.into()),
        ("can_df", true.into()),
        ("can_fast_zero", true.into()),
        ("can_flush", true.into()),
        ("can_fua", true.into()),
        ("can_multi_conn", true.into()),
        ("can_trim", true.into()),
        ("can_zero", true.into()),
        ("block_size_minimum", 1.into()),
        ("block_size_preferred", 4096.into()),
        ("block_size_maximum", (32 << 20).into()),
        ("contexts", serde_json::json!(["base:allocation"])),
    ];
    for (field, value) in expected {
        assert_eq!(export[field], value, "{field} in {export}");
    }
    let list = run("libnbd-bin", "nbdinfo", &["--list", "--json", &served.uri()]);
    assert!(list.contains("\"export-name\": \"array\""), "{list}");
    let unknown = served.uri().replace("array", "other");
    let refused = Command::new("nbdinfo").arg(unknown).output().expect("nbdinfo runs");
    assert!(!refused.status.success());
}

#[test]
fn nbdinfo_sees_that_a_read_only_export_is_one() {
    let served = Served::new(BYTES, true);
    let info: Value = serde_json::from_str(&run("libnbd-bin", "nbdinfo", &["--json", &served.uri()])).expect("JSON");
    assert_eq!(info["exports"][0]["is_read_only"], true);
}

#[test]
fn nbdcopy_brings_an_image_in_and_out_with_its_holes() {
    let served = Served::new(BYTES, false);
    let (from, to) = (served.path("in"), served.path("out"));
    let bytes = image(&from);
    run("libnbd-bin", "nbdcopy", &[from.to_str().expect("a plain path"), &served.uri()]);
    let map = run("libnbd-bin", "nbdinfo", &["--map", &served.uri()]);
    assert!(map.contains("hole,zero") && map.contains("data"), "{map}");
    run("libnbd-bin", "nbdcopy", &[&served.uri(), to.to_str().expect("a plain path")]);
    assert!(std::fs::read(&to).expect("the copy is there") == bytes);
    assert!(served.stop() == bytes);
}

#[test]
fn nbdsh_gets_the_prescribed_errors() {
    let served = Served::new(BYTES, false);
    let script = r#"
import errno
size = h.get_size()
def fails(expected, action):
    try:
        action()
    except nbd.Error as error:
        assert error.errnum == expected, (error.errnum, expected)
    else:
        assert False, expected
h.set_strict_mode(0)
fails(errno.EINVAL, lambda: h.pread(1, size))
fails(errno.ENOSPC, lambda: h.pwrite(b"x", size))
fails(errno.ENOSPC, lambda: h.zero(2, size - 1))
fails(errno.EINVAL, lambda: h.trim(2, size - 1))
fails(errno.ENOTSUP, lambda: h.zero(4096, 0, nbd.CMD_FLAG_FAST_ZERO))
fails(errno.EINVAL, lambda: h.cache(4096, 0))
fails(errno.EINVAL, lambda: h.pwrite(b"x", 0, nbd.CMD_FLAG_DF))
h.pwrite(b"hello" * 1000, 12345, nbd.CMD_FLAG_FUA)
assert h.pread(5000, 12345) == b"hello" * 1000
assert h.pread(5000, 12345, nbd.CMD_FLAG_DF) == b"hello" * 1000
h.zero(10, 12345, nbd.CMD_FLAG_NO_HOLE)
assert h.pread(15, 12345) == bytes(10) + b"hello"
h.trim(4096, 16384, nbd.CMD_FLAG_FUA)
h.flush()
extents = []
def extent(context, offset, entries, error):
    assert context == "base:allocation"
    extents.extend(entries)
h.block_status(65536, 0, extent)
assert extents == [12288, 3, 4096, 0, 49152, 3], extents
one = []
h.block_status(65536, 0, lambda c, o, e, x: one.extend(e), nbd.CMD_FLAG_REQ_ONE)
assert one == [12288, 3], one
"#;
    let connect =
        format!("h.add_meta_context('base:allocation')\nh.connect_unix('{}')\n{script}", served.path("nbd").display());
    // The command behind nbdsh, with the Python of Debian's package.
    run("python3-libnbd", "/usr/bin/python3", &["-m", "nbd", "-c", &connect]);
}

#[test]
fn qemu_reads_writes_compares_and_checks_what_it_wrote() {
    let served = Served::new(BYTES, false);
    let from = served.path("in");
    let bytes = image(&from);
    let (uri, from) = (served.uri(), from.to_str().expect("a plain path").to_owned());
    run("qemu-utils", "qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &from, &uri]);
    run("qemu-utils", "qemu-img", &["compare", "-f", "raw", "-F", "raw", &from, &uri]);
    assert!(run("qemu-utils", "qemu-img", &["info", &uri]).contains("64 MiB"));
    run("qemu-utils", "qemu-img", &["bench", "-f", "raw", "-c", "2000", "-d", "32", "-w", &uri]);
    let commands = ["write -P 0xa5 1M 3M", "write -z -f 2M 64k", "discard 3M 64k", "flush", "read -P 0xa5 1M 1M"];
    let mut arguments = vec!["-f", "raw"];
    commands.iter().for_each(|command| arguments.extend(["-c", *command]));
    arguments.push(&uri);
    let said = run("qemu-utils", "qemu-io", &arguments);
    assert!(!said.contains("failed") && !said.contains("error"), "{said}");
    let contents = served.stop();
    assert!(contents[8 << 20..] == bytes[8 << 20..], "nothing else was touched by qemu-io");
    assert!(contents[1 << 20..2 << 20].iter().all(|byte| *byte == 0xa5));
    assert!(contents[2 << 20..(2 << 20) + 65536].iter().all(|byte| *byte == 0));
}

#[test]
fn fio_verifies_what_four_jobs_wrote() {
    let served = Served::new(BYTES, false);
    let uri = format!("--uri={}", served.uri());
    let arguments = [
        "--name=verify",
        "--ioengine=nbd",
        &uri,
        "--rw=randrw",
        "--bsrange=512-128k",
        "--iodepth=16",
        "--numjobs=4",
        "--size=8M",
        "--offset_increment=16M",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--thread",
        "--output-format=json",
    ];
    let said = run("fio", "fio", &arguments);
    let report: Value = serde_json::from_str(&said[said.find('{').expect("JSON")..]).expect("JSON");
    let jobs = report["jobs"].as_array().expect("jobs");
    assert_eq!(jobs.len(), 4);
    assert!(jobs.iter().all(|job| job["error"] == 0 && job["read"]["io_bytes"].as_u64() > Some(0)), "{said}");
}

#[test]
fn a_client_killed_in_the_middle_affects_no_other_client() {
    let served = Served::new(BYTES, false);
    for _ in 0..3 {
        let bench = ["bench", "-f", "raw", "-c", "100000000", "-d", "64", "-w", "-s", "65536", &served.uri()];
        let mut child =
            Command::new("qemu-img").args(bench).stdout(std::process::Stdio::null()).spawn().expect("qemu-utils");
        // While nbdcopy reads the volume, the child runs too.
        run("libnbd-bin", "nbdcopy", &[&served.uri(), "null:"]);
        child.kill().expect("it runs until it is killed");
        child.wait().expect("it ends");
        run("libnbd-bin", "nbdinfo", &["--size", &served.uri()]);
    }
    assert!(futures_executor::block_on(served.remote.run(|| async { true })).expect("the server lives"));
}
