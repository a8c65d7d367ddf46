//! Containers of firmware RAID: IMSM and DDF with every state, by hand. What mdadm makes is in `cargo xtask test layers`.

use crate::support::containers::{CHUNK_BYTES, COMPONENT_BYTES, DISK_BYTES, Ddf, Imsm};
use crate::support::disks::content;
use crate::support::nbd::Nbd;
use crate::support::{Server, Workplace, parsed};

/// Data of each disk of a RAID-0 of `disks`, and of the whole.
fn striped(disks: usize) -> (Vec<Vec<u8>>, Vec<u8>) {
    let whole = content(COMPONENT_BYTES * disks as u64, 5);
    let mut parts = vec![Vec::new(); disks];
    for (index, chunk) in whole.chunks(CHUNK_BYTES as usize).enumerate() {
        parts[index % disks].extend_from_slice(chunk);
    }
    (parts, whole)
}

/// Data of each disk of a RAID-5 of three, left-asymmetric as IMSM's or left-symmetric, and of the whole.
fn parity(is_symmetric: bool) -> (Vec<Vec<u8>>, Vec<u8>) {
    let whole = content(COMPONENT_BYTES * 2, 6);
    let mut parts = vec![Vec::new(); 3];
    for (stripe, pair) in whole.chunks(2 * CHUNK_BYTES as usize).enumerate() {
        let (first, second) = pair.split_at(CHUNK_BYTES as usize);
        let at = 2 - stripe % 3;
        let slots =
            if is_symmetric { [(at + 1) % 3, (at + 2) % 3] } else { [usize::from(at == 0), 2 - usize::from(at == 2)] };
        parts[slots[0]].extend_from_slice(first);
        parts[slots[1]].extend_from_slice(second);
        parts[at].extend(first.iter().zip(second).map(|(one, other)| one ^ other));
    }
    (parts, whole)
}

#[test]
fn a_volume_of_imsm_is_put_together_by_the_serial_numbers_in_the_disks_names() {
    let here = Workplace::new();
    let (parts, whole) = striped(2);
    let imsm = Imsm::new(0, &["WD-AAA1", "WD-AAA2"]);
    imsm.disk(&here, "ata-WDC_WD-AAA2.img", &parts[1]);
    imsm.disk(&here, "WD-AAA1", &parts[0]);
    assert!(here.run("read ata-WDC_WD-AAA2.img WD-AAA1").ok().stdout == whole);
    // Without the serial numbers the order is unknown, and is not guessed.
    imsm.disk(&here, "one.img", &parts[0]);
    imsm.disk(&here, "two.img", &parts[1]);
    let refused = here.run("read one.img two.img");
    refused
        .expect(2, &["does not record on a disk which one it is", "serial number \"WD-AAA2\"", "--geometry 'level=0"]);
    assert!(here.run("read one.img two.img --geometry level=0,chunk=64K,offset=0,size=1M").ok().stdout == whole);
    // The disks of a RAID-1 are alike.
    let mirror = Imsm::new(1, &["X1", "X2"]);
    let data = content(COMPONENT_BYTES, 7);
    mirror.disk(&here, "left.img", &data);
    mirror.disk(&here, "right.img", &data);
    assert!(here.run("read left.img right.img").ok().stdout == data);
    assert!(here.run("read right.img").ok().stdout == data);
    here.run("read left.img --name other").expect(2, &["--name data (IMSM)"]);
    here.run("read left.img one.img").expect(2, &["contradict each other"]);
    Imsm { family: 7, ..mirror }.disk(&here, "other.img", &data);
    here.run("read left.img other.img").expect(2, &["2 volumes"]);
}

#[test]
fn states_of_a_volume_are_honoured_or_refused_by_name() {
    let here = Workplace::new();
    let (parts, whole) = parity(false);
    let disks = ["d1.img", "d2.img", "d3.img"];
    let make = |change: &dyn Fn(&mut Imsm)| {
        let mut imsm = Imsm::new(5, &["d1", "d2", "d3"]);
        change(&mut imsm);
        disks.iter().zip(&parts).for_each(|(name, part)| imsm.disk(&here, name, part));
    };
    make(&|_| {});
    assert!(here.run("read d1.img d2.img d3.img").ok().stdout == whole);
    assert!(here.run("read d1.img d3.img").ok().stdout == whole, "a missing disk");
    here.run("read d2.img").expect(2, &["missing"]);
    make(&|imsm| imsm.dirty = true);
    assert!(here.run("read d1.img d2.img d3.img").ok().stdout == whole);
    here.run("read d1.img d3.img").expect(2, &["dirty and degraded", "--force"]);
    let run = here.run("read d1.img d3.img --force");
    assert!(run.expect(0, &["warning: volume \"data\": it is dirty and degraded"]).stdout == whole);
    make(&|imsm| (imsm.migration, imsm.rebuilt) = (Some(1), Some(1)));
    let run = here.run("read d1.img d2.img d3.img");
    assert!(run.expect(0, &["d2.img: not used: failed, being rebuilt"]).stdout == whole);
    for (kind, words) in [(3, "general migration"), (4, "state change")] {
        make(&|imsm| imsm.migration = Some(kind));
        here.run("read d1.img d2.img d3.img").expect(2, &[words]);
        let run = here.run("detect d1.img d2.img d3.img");
        assert!(run.expect(1, &[words]).text().contains("cannot be read"), "{}", run.text());
    }
    make(&|imsm| imsm.migration = Some(2));
    assert!(here.run("read d1.img d2.img d3.img").ok().stdout == whole, "a check changes nothing");
    make(&|imsm| imsm.bad_blocks = 3);
    here.run("read d1.img d2.img d3.img").expect(2, &["bad-block log has 3 entries"]);
    make(&|_| {});
    let file = std::fs::File::options().write(true).open(here.path().join("d3.img")).expect("of our own");
    std::os::unix::fs::FileExt::write_all_at(&file, &[9], DISK_BYTES - 1024 + 0x60).expect("of our own");
    here.run("read d1.img d2.img d3.img").expect(2, &["d3.img", "wrong checksum"]);
}

#[test]
fn a_volume_of_ddf_is_put_together_by_what_is_on_its_disks() {
    let here = Workplace::new();
    let (parts, whole) = parity(true);
    let make = |ddf: &Ddf| {
        for (slot, name) in ["x.img", "y.img", "z.img"].iter().enumerate() {
            ddf.disk(&here, name, slot, &parts[slot]);
        }
    };
    make(&Ddf::new((5, 3), 3));
    let before = here.contents(&["x.img", "y.img", "z.img"]);
    assert!(here.run("read z.img x.img y.img").ok().stdout == whole);
    assert!(here.run("read z.img y.img --offset 100000 --length 300000").ok().stdout == whole[100_000..400_000]);
    let report = parsed(&here.run("detect --json x.img y.img z.img").ok().text());
    let container = &report["containers"][0];
    let volume = &container["volumes"][0];
    assert_eq!(
        (&container["kind"], &volume["level"], &volume["state"]),
        (&"DDF".into(), &"RAID-5".into(), &"clean".into())
    );
    assert_eq!((&volume["slots"][2]["disk"], &volume["bytes"]), (&"z.img".into(), &(2 * COMPONENT_BYTES).into()));
    assert_eq!(volume["geometry"], "level=5,layout=ls,chunk=64K,offset=0,size=1M");
    assert_eq!(volume["next"][0]["command"], "mdspace read x.img y.img z.img --output md-data.img");
    let text = here.run("detect x.img y.img z.img").ok().text();
    assert!(text.contains("volume \"data\" of DDF container"), "{text}");
    here.run("serve x.img y.img z.img").expect(2, &["only read", "--read-only"]);
    let server = Server::of(&here, "serve x.img y.img z.img --read-only --nbd unix:nbd.socket");
    let mut client = Nbd::connect(here.path().join("nbd.socket").to_str().expect("a path"));
    assert_eq!(client.bytes, 2 * COMPONENT_BYTES);
    assert!(client.read(0, 2 * COMPONENT_BYTES as u32) == whole);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    assert!(here.contents(&["x.img", "y.img", "z.img"]) == before, "reading changed a disk");
    here.run("write x.img y.img").expect(2, &["a member of a DDF array", "mdspace detect"]);

    // The second disk has failed, by the metadata of the two others, which are newer.
    let mut newer = Ddf::new((5, 3), 3);
    (newer.sequence, newer.disks[1]) = (2, 3);
    newer.disk(&here, "x.img", 0, &parts[0]);
    newer.disk(&here, "z.img", 2, &parts[2]);
    let run = here.run("read x.img y.img z.img");
    assert!(run.expect(0, &["y.img: not used: failed"]).stdout == whole);
    newer.state = 0x10;
    make(&newer);
    here.run("read x.img y.img z.img").expect(2, &["dirty and degraded"]);
    for (level, state, words) in [((5, 3), 0x8, "morphing"), ((0x25, 0), 0, "not one that md reads")] {
        make(&Ddf { state, ..Ddf::new(level, 3) });
        here.run("read x.img y.img z.img").expect(2, &[words]);
    }
    make(&Ddf::new((5, 3), 3));
    let file = std::fs::File::options().write(true).open(here.path().join("y.img")).expect("of our own");
    std::os::unix::fs::FileExt::write_all_at(&file, &[9], DISK_BYTES - 300).expect("of our own");
    here.run("read x.img y.img z.img").expect(2, &["y.img", "wrong checksum"]);
}

#[test]
fn a_serial_number_is_not_found_in_a_longer_one() {
    let here = Workplace::new();
    let (parts, whole) = parity(false);
    let serials = ["WD-1", "WD-12", "WD-3"];
    let names = serials.map(|serial| format!("ata-{serial}.img"));
    let fresh = Imsm::new(5, &serials);
    names.iter().zip(&parts).for_each(|(name, part)| fresh.disk(&here, name, part));
    assert!(here.run(&format!("read {}", names.join(" "))).ok().stdout == whole);
    // The disk in the middle failed long ago; the first one is not here.
    let newer = Imsm { generation: 9, failed: Some(1), ..Imsm::new(5, &serials) };
    Imsm { generation: 3, ..Imsm::new(5, &serials) }.disk(&here, &names[1], &vec![0; parts[1].len()]);
    newer.disk(&here, &names[0], &parts[0]);
    newer.disk(&here, &names[2], &parts[2]);
    here.run(&format!("read {} {}", names[1], names[2])).expect(2, &["missing"]);
    let run = here.run(&format!("read {}", names.join(" ")));
    assert!(run.expect(0, &["ata-WD-12.img: not used: failed"]).stdout == whole);
    // A name with two serial numbers says nothing.
    newer.disk(&here, "WD-1_WD-3.img", &parts[0]);
    newer.disk(&here, "WD-3.img", &parts[2]);
    assert!(here.run("read WD-1_WD-3.img WD-3.img").expect(2, &["does not record on a disk"]).stdout.is_empty());
}

#[test]
fn of_disks_that_are_alike_only_those_with_the_newest_metadata_count() {
    let here = Workplace::new();
    let (new, old) = (content(COMPONENT_BYTES, 8), content(COMPONENT_BYTES, 9));
    Imsm { generation: 9, ..Imsm::new(1, &["XSER", "ZSER"]) }.disk(&here, "one.img", &new);
    Imsm { generation: 3, ..Imsm::new(1, &["XSER", "YSER"]) }.disk(&here, "dropped.img", &old);
    for members in ["one.img dropped.img", "dropped.img one.img"] {
        let run = here.run(&format!("read {members}"));
        assert!(run.expect(0, &["dropped.img: not used"]).stdout == new, "{members}");
    }
    assert!(here.run("detect one.img dropped.img").text().contains("clean, degraded"));
    // A spare has the same metadata, and other data.
    let spare = Imsm { slots: Some(2), ..Imsm::new(1, &["XSER", "YSER", "SPARE"]) };
    spare.disk(&here, "left.img", &new);
    spare.disk(&here, "right.img", &old);
    here.run("read left.img right.img").expect(2, &["does not record on a disk which one it is"]);
    spare.disk(&here, "XSER.img", &new);
    assert!(here.run("read XSER.img").ok().stdout == new);
}

#[test]
fn parts_of_a_volume_of_ddf_have_changes_of_their_own_and_the_newest_list_of_disks_counts() {
    let here = Workplace::new();
    let (parts, whole) = striped(2);
    let old = content(COMPONENT_BYTES, 9);
    let stale = Ddf { parts: 2, sequence: 3, ..Ddf::new((1, 0), 4) };
    let newest = |change: u32| Ddf {
        disks: vec![1, 1, 1, 3],
        sequence: 9,
        changes: vec![1, change],
        ..Ddf { parts: 2, ..Ddf::new((1, 0), 4) }
    };
    for change in [1, 2] {
        let newest = newest(change);
        for (slot, name) in ["0.img", "1.img", "2.img"].iter().enumerate() {
            newest.disk(&here, name, slot, &parts[slot / 2]);
        }
        stale.disk(&here, "3.img", 3, &old);
        let run = here.run("read 0.img 1.img 2.img 3.img");
        assert!(run.expect(0, &["3.img: not used: failed"]).stdout == whole);
        assert!(here.run("read 1.img 2.img").ok().stdout == whole);
        let run = here.run("read 0.img 1.img 3.img");
        assert!(run.expect(2, &["missing"]).stdout.is_empty(), "the failed disk is all that there is of its part");
    }
    // Two disks of one part contradict each other.
    Ddf { level: (5, 3), ..newest(2) }.disk(&here, "3.img", 3, &old);
    here.run("read 0.img 1.img 2.img 3.img").expect(2, &["contradict each other"]);
}
