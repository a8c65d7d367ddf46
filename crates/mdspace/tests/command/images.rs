//! Members in images of other formats, and on NBD servers, by the command. qemu-img makes the images, qemu-nbd serves.
//!
//! A missing program fails its test with the name of its package: nothing is skipped.

use crate::support::disks::{DISKS, nas};
use crate::support::{Server, Workplace, parsed};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// qemu's formats, with the words of a refusal to write.
const FORMATS: [(&str, &str); 5] = [
    ("qcow2", "a qcow2 image"),
    ("vmdk", "a VMDK image"),
    ("vhdx", "a VHDX image"),
    ("vpc", "a VHD image"),
    ("vdi", "a VDI image"),
];

fn qemu_img(here: &Workplace, arguments: &[&str]) {
    let output = Command::new("qemu-img").args(arguments).current_dir(here.path()).output();
    let output = output.unwrap_or_else(|error| panic!("qemu-img ({error}): apt-get install qemu-utils"));
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Images of `names` in a format, `a.img` of `a`.
fn convert(here: &Workplace, names: &[&str], format: &str) {
    for name in names {
        // A VHD of qemu's is as long as its disk only with this option.
        let options: &[&str] = if format == "vpc" { &["-o", "force_size=on"] } else { &[] };
        let to = format!("{name}.{format}");
        qemu_img(here, &[&["convert", "-f", "raw", "-O", format], options, &[name, &to]].concat());
    }
}

fn data() -> Vec<u8> {
    (0..3_000_000_usize).map(|at| (at / 512 * 7 + at % 251) as u8).collect()
}

#[test]
fn an_array_is_read_from_images_of_every_format_and_none_is_written_to() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M a b c").ok();
    here.run_with("write a b c", &data()).ok();
    here.run("read a b c --output raw").ok();
    for (format, words) in FORMATS {
        convert(&here, &["a", "b", "c"], format);
        let images = ["a", "b", "c"].map(|name| format!("{name}.{format}"));
        let before = here.contents(&images.each_ref().map(String::as_str));
        let all = images.join(" ");
        let examined = parsed(&here.run(&format!("examine --json {all}")).ok().text());
        assert_eq!(examined["arrays"][0]["status"]["state"], "clean", "{format}");
        assert_eq!(examined["members"][0]["member_bytes"], 8 << 20, "{format}");
        here.run(&format!("read {all} --output {format}.read")).ok();
        assert!(here.contents(&["raw"]) == here.contents(&[&*format!("{format}.read")]), "{format}");
        here.run(&format!("write {all}")).expect(2, &[words, "only read", "--overlay DIR", "qemu-img convert"]);
        assert!(here.contents(&images.each_ref().map(String::as_str)) == before, "{format}: an image was written to");
    }
    // One of them as a file, and one missing.
    here.run("read a c.qcow2 --output degraded").ok();
    assert!(here.contents(&["raw"]) == here.contents(&["degraded"]));
    here.run("scrub a.vdi b.vhdx c").ok();
    // Nothing of the sockets is left.
    std::fs::create_dir(here.path().join("tmp")).expect("a directory");
    let mut command = here.command(&["examine", "a.qcow2", "b.qcow2"]);
    assert!(command.env("TMPDIR", here.path().join("tmp")).output().expect("mdspace starts").status.success());
    assert_eq!(here.path().join("tmp").read_dir().expect("a directory").count(), 0);
}

#[test]
fn writes_over_images_go_to_an_overlay() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M a b").ok();
    convert(&here, &["a", "b"], "qcow2");
    let written = here.run_with("write a.qcow2 b.qcow2 --overlay try", &data());
    written.expect(0, &["note: a.qcow2 is an image that is only read", "not committed"]);
    here.run("read a.qcow2 b.qcow2 --overlay try --length 3000000 --output read").ok();
    assert!(here.contents(&["read"])[0] == data());
    here.run("overlay show try").ok();
    here.run("overlay commit try").expect(2, &["a qcow2 image, to which no overlay is committed"]);
    here.run("overlay discard try").ok();
}

/// Makes fixed VHD images of these members or disks, as long as they are and the footer.
fn fixed(here: &Workplace, names: &[&str]) {
    for name in names {
        let options = "subformat=fixed,force_size=on";
        qemu_img(here, &["convert", "-f", "raw", "-O", "vpc", "-o", options, name, &format!("{name}.vhd")]);
        let lengths = [name.to_string(), format!("{name}.vhd")]
            .map(|name| here.path().join(name).metadata().expect("an image").len());
        assert_eq!(lengths[0] + 512, lengths[1], "the test is of images with a footer behind the disk");
    }
}

#[test]
fn the_footer_of_a_fixed_vhd_is_no_part_of_its_disk() {
    for metadata in ["1.0", "1.1", "1.2"] {
        let here = Workplace::new();
        here.run(&format!("create --level 5 --chunk 4K --metadata {metadata} --size 8M a b c")).ok();
        here.run_with("write a b c", &data()).ok();
        fixed(&here, &["a", "b", "c"]);
        let vhds = ["a.vhd", "b.vhd", "c.vhd"];
        let before = footers(&here, &vhds);
        here.run_with("write a.vhd b.vhd c.vhd --offset 1M", &[7; 5000]).ok();
        here.run_with("write a b c --offset 1M", &[7; 5000]).ok();
        let expected = here.run("read a b c").ok().stdout.clone();
        assert!(here.run("read a.vhd b.vhd c.vhd").ok().stdout == expected, "{metadata}");
        assert!(here.run("read a.vhd c.vhd@0+9T").ok().stdout == expected, "{metadata}");
        here.run("read a.vhd a.vhd@0+8M b.vhd").expect(2, &["given before"]);
        assert!(footers(&here, &vhds) == before, "{metadata}: a footer was written to");
        let json = parsed(&here.run("detect --json a.vhd b.vhd c.vhd").ok().text());
        assert_eq!(json["disks"][0]["bytes"], 8 << 20, "{metadata}");
    }
    let here = Workplace::new();
    nas(&here, "gpt");
    fixed(&here, &DISKS);
    // The second copy of the table lies at the end of the disk, and the first is lost.
    let file = std::fs::File::options().write(true).open(here.path().join("disk1.img.vhd")).expect("an image");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 34 * 512], 0).expect("it is long enough");
    here.run("read disk?.img:3 --output expected").ok();
    here.run("read disk1.img.vhd:3 disk2.img.vhd:3 --output read").ok();
    assert!(here.contents(&["read"]) == here.contents(&["expected"]));
}

#[test]
fn a_client_that_writes_a_footer_does_not_shorten_a_member() {
    let here = Workplace::new();
    here.run("create --level 1 --metadata 1.2 --data-offset 1M --size 9M a b").ok();
    let bytes = 9 << 20;
    std::fs::File::create(here.path().join("d")).expect("of our own").set_len(bytes - 512).expect("sparse");
    fixed(&here, &["d"]);
    let footer = footers(&here, &["d.vhd"]).remove(0);
    here.run_with("write a b --offset 8388096", &footer).ok();
    assert!(footers(&here, &["a"])[0] == footer, "the footer is at the end of the member");
    assert!(here.run("read a b --offset 8388096").ok().stdout == footer);
}

/// The last sector of each.
fn footers(here: &Workplace, names: &[&str]) -> Vec<Vec<u8>> {
    here.contents(names).into_iter().map(|bytes| bytes[bytes.len() - 512..].to_vec()).collect()
}

#[test]
fn partitions_in_images_are_found_and_named() {
    let here = Workplace::new();
    nas(&here, "gpt");
    here.run_with("write disk?.img --name 2", &data()).ok();
    convert(&here, &DISKS, "qcow2");
    let detected = here.run("detect disk?.img.qcow2").ok().text();
    assert!(detected.contains("disk1.img.qcow2:3") && detected.contains("array \"nas:2\""), "{detected}");
    here.run("read disk?.img --name 2 --output raw").ok();
    for line in ["read disk?.img.qcow2 --name 2", "read disk1.img.qcow2:3 disk2.img.qcow2:3"] {
        here.run(&format!("{line} --overwrite --output read")).ok();
        assert!(here.contents(&["raw"]) == here.contents(&["read"]), "{line}");
    }
    here.run("read disk1.img.qcow2:9").expect(2, &["its GPT has the partitions 1, 2, 3"]);
}

/// An export of a file by qemu-nbd, which is ended with it.
struct Export(Child);

impl Export {
    fn of(here: &Workplace, name: &str, options: &[&str]) -> Self {
        let socket = here.path().join(format!("{name}.sock"));
        let mut command = Command::new("qemu-nbd");
        command.args(["--persistent", "--shared=8", "--format=raw", "--socket"]).arg(&socket).args(options).arg(name);
        let child = command.current_dir(here.path()).stderr(Stdio::null()).spawn();
        let mut export = Self(child.unwrap_or_else(|error| panic!("qemu-nbd ({error}): apt-get install qemu-utils")));
        while UnixStream::connect(&socket).is_err() {
            assert!(export.0.try_wait().expect("a child").is_none(), "qemu-nbd ended");
        }
        export
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn exports_of_nbd_servers_are_members_like_others() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M a b c").ok();
    let exports = ["a", "b", "c"].map(|name| Export::of(&here, name, &[]));
    let uri = |name: &str| format!("nbd+unix:///?socket={}/{name}.sock", here.path().display());
    let all = ["a", "b", "c"].map(uri).join(" ");
    here.run_with(&format!("write {all}"), &data()).ok();
    here.run(&format!("read {all} --length 3000000 --output read")).ok();
    assert!(here.contents(&["read"])[0] == data());
    let server = Server::of(&here, &format!("serve {all}"));
    let status = parsed(&here.run("status --json").ok().text());
    assert!(status["members"][0]["name"].as_str().expect("a name").starts_with("nbd+unix:///"), "{status}");
    here.run(&format!("fail {}", uri("b"))).ok();
    here.run(&format!("remove {}", uri("b"))).ok();
    here.run(&format!("add --force {}", uri("b"))).ok();
    here.run("wait healthy").ok();
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    here.run(&format!("read {} {} {} --length 3000000 --output read", uri("a"), uri("a"), uri("c")))
        .expect(2, &["given before"]);
    drop(exports);
    here.run("read b c --length 3000000 --output file").ok();
    assert!(here.contents(&["file"])[0] == data());

    let read_only = Export::of(&here, "a", &["--read-only"]);
    here.run(&format!("write {} b c", uri("a"))).expect(2, &["the export is read-only"]);
    drop(read_only);
    for (word, words) in [
        (&*uri("a"), ["cannot use it", "refused"]),
        ("nbd://127.0.0.1:1/", ["cannot use it", "refused"]),
        ("nbds://127.0.0.1/", ["cannot use it", "only nbd:// and nbd+unix://"]),
        ("nbd+unix:///", ["cannot use it", "expected nbd+unix:///EXPORT?socket=PATH"]),
    ] {
        let run = here.run(&format!("examine {word}"));
        run.expect(2, &words).expect(2, &["next: correct what cannot be opened"]);
    }
    let missing = "nbd+unix:///?socket=none.sock";
    here.run(&format!("examine {missing}")).expect(2, &["the socket none.sock: No such file"]);
    std::fs::write(here.path().join("a.map"), "0x0 + 1\n0x0 0x800000 +\n").expect("written");
    here.run(&format!("examine --map {missing}=a.map a")).expect(2, &["exports take no map"]);
}

#[test]
fn an_export_that_changed_between_its_ends_is_refused_under_its_overlay() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M p q").ok();
    here.run_with("write p q", &data()).ok();
    let export = Export::of(&here, "p", &[]);
    let members = format!("nbd+unix:///?socket={}/p.sock q", here.path().display());
    here.run_with(&format!("write {members} --overlay ov"), &[5; 4096]).ok();
    here.run(&format!("read {members} --overlay ov --length 4096")).ok();
    // As a program does that copies something over the export.
    let file = std::fs::File::options().write(true).open(here.path().join("p")).expect("a member");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xee; 200_000], 5 << 20).expect("it is long enough");
    here.run(&format!("read {members} --overlay ov --output refused"))
        .expect(2, &["the member has changed since the overlay was made: bytes between its ends are others"]);
    drop(export);
}

#[test]
fn what_is_missing_to_read_an_image_is_said() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M a b").ok();
    convert(&here, &["a"], "qcow2");
    std::fs::write(here.path().join("disk.Ex01"), b"EVF2\x0d\x0a\x81\0\x02\x01\0\0\0").expect("written");
    let path = std::fs::read(here.path().join("a.qcow2")).expect("an image");
    std::fs::write(here.path().join("broken.qcow2"), &path[..100]).expect("written");
    let without_qemu = |line: &str| {
        let mut command = here.command(&line.split(' ').collect::<Vec<_>>());
        let output = command.env("PATH", Path::new("/nowhere")).output().expect("mdspace starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for line in ["read a.qcow2 b", "examine a.qcow2", "detect a.qcow2"] {
        let (status, said) = without_qemu(line);
        assert_eq!(status, Some(2), "{line}: {said}");
        assert!(
            said.contains("it is a qcow2 image, which qemu-nbd reads: install it (Debian package qemu-utils)"),
            "{said}"
        );
    }
    here.run("read disk.Ex01 b").expect(2, &["disk.Ex01: ", "EWF (Ex01)", "ewfexport -u -f raw", "ewf-tools"]);
    here.run("read broken.qcow2 b").expect(2, &["broken.qcow2: ", "a qcow2 image, and qemu-nbd cannot read it: "]);
}

#[test]
fn an_image_that_is_cut_off_is_refused_in_every_format() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M a b c").ok();
    here.run_with("write a b c", &(0..14_000_000_u32).map(|at| (at / 512 * 7 + at % 251) as u8).collect::<Vec<u8>>())
        .ok();
    for (format, words) in FORMATS {
        convert(&here, &["c"], format);
        let whole = std::fs::read(here.path().join(format!("c.{format}"))).expect("an image");
        for cut in [whole.len() / 3, whole.len() / 2, whole.len() - (200 << 10)] {
            let name = format!("cut{cut}.{format}");
            std::fs::write(here.path().join(&name), &whole[..cut]).expect("written");
            here.run(&format!("read a {name} --output refused")).expect(2, &[words]);
            assert!(!here.path().join("refused").exists(), "{format}, {cut} of {} bytes", whole.len());
        }
    }
}

#[test]
fn no_file_is_opened_because_an_image_names_it() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M a b").ok();
    std::fs::write(here.path().join("secret"), vec![b's'; 8 << 20]).expect("written");
    qemu_img(&here, &["create", "-f", "qcow2", "-b", "secret", "-F", "raw", "based.qcow2"]);
    qemu_img(&here, &["create", "-f", "qcow2", "-o", "data_file=data,data_file_raw=on", "split.qcow2", "8M"]);
    std::fs::create_dir(here.path().join("other")).expect("a directory");
    qemu_img(&here, &["create", "-f", "vmdk", "-o", "subformat=monolithicFlat", "flat.vmdk", "8M"]);
    here.run("detect flat.vmdk").ok();
    let descriptor = std::fs::read_to_string(here.path().join("flat.vmdk")).expect("a text");
    std::fs::rename(here.path().join("flat-flat.vmdk"), here.path().join("other/flat-flat.vmdk")).expect("moved");
    let descriptor = descriptor.replace("flat-flat.vmdk", "other/flat-flat.vmdk");
    std::fs::write(here.path().join("far.vmdk"), descriptor).expect("written");
    for (image, words) in [
        ("based.qcow2", ["needs the file secret", "qemu-img convert -O raw"]),
        ("split.qcow2", ["needs the file data", "qemu-img convert -O raw"]),
        ("far.vmdk", ["flat-flat.vmdk", "not in the same directory"]),
    ] {
        for line in ["detect", "examine"] {
            here.run(&format!("{line} {image}")).expect(2, &words);
        }
        here.run(&format!("read {image} b --output refused")).expect(2, &words);
    }
}

#[test]
fn a_member_whose_data_begins_like_an_image_is_refused_and_an_export_says_which_it_is() {
    let here = Workplace::new();
    here.run("create --level 1 --metadata 1.0 --size 8M a b").ok();
    // What has write access to the array writes an image with a backing file, and a superblock of its own at its end.
    std::fs::copy(here.path().join("a"), here.path().join("secret")).expect("copied");
    qemu_img(&here, &["create", "-f", "qcow2", "-b", "secret", "-F", "raw", "attack", "8M"]);
    here.run_with("write a b", &std::fs::read(here.path().join("attack")).expect("an image")).ok();
    let before = here.contents(&["a", "b"]);
    for line in ["read a b --output refused", "examine a", "detect a b", "serve a b", "write a b"] {
        let run = here.run(line);
        run.expect(
            2,
            &["a: ", "begins like a qcow2 image, and has a superblock of md", "--format=raw", "--format=qcow2"],
        );
        assert!(!run.stderr.contains("qemu-img convert"), "{line}: {}", run.stderr);
    }
    assert!(here.contents(&["a", "b"]) == before);
    let exports = ["a", "b"].map(|name| Export::of(&here, name, &[]));
    let uri = |name: &str| format!("nbd+unix:///?socket={}/{name}.sock", here.path().display());
    here.run(&format!("read {} {} --length 4 --output raw", uri("a"), uri("b"))).ok();
    assert_eq!(here.contents(&["raw"])[0], b"QFI\xfb");
    drop(exports);
}
