//! Members in EWF images (E01), by the command. ewfacquirestream of libewf makes the images.
//!
//! A missing program fails its test with the name of its package: nothing is skipped.

use crate::support::disks::{DISKS, nas};
use crate::support::{Workplace, parsed};
use std::process::Command;

/// Makes images of `names`, `a.E01` and on of `a`, in segments of 1 MiB.
fn acquire(here: &Workplace, names: &[&str], format: &str, compression: &str) {
    for name in names {
        let numbers = ["-C", "1", "-D", "1", "-e", "1", "-E", "1", "-N", "1"];
        let options = ["-q", "-S", "1048576", "-f", format, "-c", compression, "-t", name];
        let disk = std::fs::File::open(here.path().join(name)).expect("a disk");
        let mut command = Command::new("ewfacquirestream");
        let output = command.args(numbers).args(options).stdin(disk).current_dir(here.path()).output();
        let output = output.unwrap_or_else(|error| panic!("ewfacquirestream ({error}): apt-get install ewf-tools"));
        assert!(output.status.success(), "{format}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Bytes of which one half can be compressed.
fn data(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|at| if at >> 16 & 1 == 0 { random() } else { (at / 512 * 7) as u8 }).collect()
}

#[test]
fn an_array_is_read_from_images_of_every_variant_and_none_is_written_to() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M a b c").ok();
    here.run_with("write a b c", &data(9 << 20)).ok();
    here.run("read a b c --output raw").ok();
    for (format, compression) in
        [("encase1", "fast"), ("encase5", "none"), ("encase6", "best"), ("encase7", "empty-block"), ("ftk", "fast")]
    {
        acquire(&here, &["a", "b", "c"], format, compression);
        let before = here.contents(&["a.E01", "a.E02", "b.E01", "c.E01"]);
        let examined = parsed(&here.run("examine --json a.E01 b.E01 c.E01").ok().text());
        assert_eq!(examined["arrays"][0]["status"]["state"], "clean", "{format}");
        assert_eq!(examined["members"][0]["member_bytes"], 8 << 20, "{format}");
        here.run("read c.E01 a.E01 b.E01 --output read --overwrite").ok();
        assert!(here.contents(&["raw"]) == here.contents(&["read"]), "{format}");
        here.run("read c.E01 b --output read --overwrite").ok();
        assert!(here.contents(&["raw"]) == here.contents(&["read"]), "{format}: one missing, one raw");
        here.run("write a.E01 b.E01 c.E01").expect(2, &["EWF (E01) image", "only read", "--overlay DIR", "ewfexport"]);
        here.run_with("write a.E01 b.E01 c.E01 --overlay try", &[7; 9000]).ok();
        here.run("overlay commit try").expect(2, &["EWF (E01) image, to which no overlay is committed"]);
        here.run("overlay discard try").ok();
        assert!(here.contents(&["a.E01", "a.E02", "b.E01", "c.E01"]) == before, "{format}: an image was written to");
        let segments = here.path().read_dir().expect("a directory").map(|entry| entry.expect("a file").path());
        let images = segments.filter(|path| path.extension().is_some_and(|ending| ending != "img"));
        images.for_each(|image| std::fs::remove_file(image).expect("of our own"));
    }
}

#[test]
fn partitions_of_an_image_have_names() {
    let here = Workplace::new();
    nas(&here, "gpt");
    here.run("read disk?.img:3 --output expected").ok();
    acquire(&here, &DISKS, "encase6", "fast");
    here.run("read disk1.img.E01:3 disk3.img.E01:3 --output read").ok();
    assert!(here.contents(&["expected"]) == here.contents(&["read"]));
    let found = here.run("detect disk1.img.E01 disk2.img.E01 disk3.img.E01").ok().text();
    for said in ["disk1.img.E01: 40 MiB, GPT", "raid5, 3 slots", "disk3.img.E01:3  active 2"] {
        assert!(found.contains(said), "{said}: {found}");
    }
}

#[test]
fn damage_is_an_error_of_its_bytes_and_never_other_bytes() {
    let here = Workplace::new();
    let whole = data(3 << 20);
    std::fs::write(here.path().join("a"), &whole).expect("of our own");
    for (format, compression) in [("encase6", "fast"), ("encase5", "none")] {
        acquire(&here, &["a"], format, compression);
        let names = ["a.E01", "a.E02"];
        let sound = here.contents(&names);
        let read = |case: &str| {
            let run = here
                .run("read --geometry level=1,offset=0,order=a.E01 --salvage --output out --map-out map --overwrite");
            let map = std::fs::read_to_string(here.path().join("map")).unwrap_or_default();
            let out = std::fs::read(here.path().join("out")).unwrap_or_default();
            let good = map.lines().filter(|line| line.ends_with('+')).filter_map(|line| {
                let mut fields =
                    line.split_whitespace().map(|field| usize::from_str_radix(field.trim_start_matches("0x"), 16));
                Some(fields.next()?.ok()?..fields.next()?.ok()?)
            });
            let mut bytes = 0;
            for (at, length) in good.map(|range| (range.start, range.end)) {
                assert!(out.get(at..at + length) == whole.get(at..at + length), "{case}: bytes {at} and on are wrong");
                bytes += length;
            }
            for name in ["out", "map"] {
                drop(std::fs::remove_file(here.path().join(name)));
            }
            (run.status, bytes)
        };
        assert_eq!(read("sound"), (0, whole.len()));
        let lengths = [sound[0].len(), sound[1].len()];
        let places = (0..40).map(|step| (step % 2, 8 + step * 26_171 % (lengths[step % 2] - 8), 1 << (step % 8)));
        for (segment, at, bit) in
            places.chain([(0, 8, 1), (0, 20, 1), (0, lengths[0] - 10, 4), (1, lengths[1] - 100, 2)])
        {
            let mut damaged = sound[segment].clone();
            damaged[at] ^= bit;
            std::fs::write(here.path().join(names[segment]), &damaged).expect("of our own");
            let (_, bytes) = read(&format!("{format}: bit {bit} of byte {at} of {}", names[segment]));
            assert!(bytes <= whole.len());
            std::fs::write(here.path().join(names[segment]), &sound[segment]).expect("of our own");
        }
        // In the middle of the chunks one of them is lost, and nothing else.
        let mut damaged = sound[0].clone();
        damaged[500_000] ^= 1;
        std::fs::write(here.path().join(names[0]), &damaged).expect("of our own");
        assert_eq!(read("a chunk"), (1, whole.len() - (32 << 10)), "{format}");
        for length in [lengths[0] / 2, 100, 9] {
            std::fs::write(here.path().join(names[0]), &sound[0][..length]).expect("of our own");
            assert_eq!(read(&format!("{format}: cut at {length}")), (2, 0));
        }
        std::fs::write(here.path().join(names[0]), &sound[0]).expect("of our own");
        std::fs::remove_file(here.path().join(names[1])).expect("of our own");
        here.run("read --geometry level=1,offset=0,order=a.E01")
            .expect(2, &["a.E01", "segment 2 is missing", "copy it again"]);
        let rest = here.path().read_dir().expect("a directory").map(|entry| entry.expect("a file").path());
        rest.filter(|path| path.extension().is_some()).for_each(|path| std::fs::remove_file(path).expect("of our own"));
    }
}

#[test]
fn a_damaged_chunk_of_one_member_is_worked_out_from_the_others() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M a b c").ok();
    here.run_with("write a b c", &data(9 << 20)).ok();
    here.run("read a b c --output raw").ok();
    acquire(&here, &["a", "b", "c"], "encase6", "none");
    for at in [700_000, 800_000] {
        let mut image = std::fs::read(here.path().join("b.E02")).expect("an image");
        image[at] ^= 0x80;
        std::fs::write(here.path().join("b.E02"), image).expect("of our own");
    }
    here.run("read a.E01 b.E01 c.E01 --output read").ok();
    assert!(here.contents(&["raw"]) == here.contents(&["read"]));
    here.run("read a.E01 b.E02 c.E01").expect(2, &["b.E02", "segment 2 of an EWF image", "name the first segment"]);
    std::fs::write(here.path().join("x.E01"), b"EVF\x09\x0d\x0a\xff\0").expect("of our own");
    here.run("read a.E01 x.E01").expect(2, &["x.E01", "cut off in its first bytes"]);
    std::fs::write(here.path().join("x.E01"), b"LVF\x09\x0d\x0a\xff\0\x01\x01\0\0\0").expect("of our own");
    here.run("read a.E01 x.E01").expect(2, &["x.E01", "EWF (L01)", "mdspace does not read"]);
}
