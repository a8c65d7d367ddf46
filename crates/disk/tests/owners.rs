//! Which file has which bytes, of file systems that their own mkfs filled. The judges are the bytes of the files, and for
//! ext and XFS the file systems' own tools (debugfs and xfs_db), for every block.

use futures_util::FutureExt;
use mdspace_disk::Source;
use mdspace_disk::content::Kind;
use mdspace_disk::owners::{self, Owner, Owners, Part};
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, ready};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// An image of a file system, with ranges that cannot be read.
struct Image {
    bytes: Vec<u8>,
    unreadable: Vec<Range<u64>>,
}

impl Source for Image {
    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, at: u64, length: usize) -> impl Future<Output = Result<Vec<u8>, String>> {
        let end = at + length as u64;
        let is_bad = self.unreadable.iter().any(|bad| bad.start < end && at < bad.end);
        let part = self.bytes.get(at as usize..end as usize).filter(|_| !is_bad);
        ready(part.map(<[u8]>::to_vec).ok_or_else(|| "lost".to_owned()))
    }
}

fn run(program: &str, arguments: &[&str], here: &Path) -> String {
    let mut command = Command::new(program);
    let command = command.args(arguments).current_dir(here).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Bytes that occur once.
fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let word = |index: u64| {
        (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed.wrapping_mul(0xd6e8_feb8_6659_fd93)).to_le_bytes()
    };
    (0..bytes.div_ceil(8) as u64).flat_map(word).take(bytes).collect()
}

/// Files for a file system: long and short ones, many in one directory, deep ones, one with holes, a long link. XFS's
/// mkfs takes no holes and no links with two names.
fn tree(here: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    files.insert("/photos/list".to_owned(), content(5000, 1));
    files.insert("/photos/large".to_owned(), content(9 << 20, 2));
    files.insert("/photos/2019/summer/one and two".to_owned(), content(70_000, 3));
    files.insert("/empty".to_owned(), Vec::new());
    for index in 0..200 {
        files.insert(
            format!("/many/a-rather-long-name-of-a-file-{index}"),
            content(100 + 37 * index, 1000 + index as u64),
        );
    }
    for (path, content) in &files {
        let path = here.join("tree").join(&path[1..]);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("of our own");
        std::fs::write(path, content).expect("of our own");
    }
    files
}

fn blank(here: &Path, bytes: u64) {
    std::fs::File::create(here.join("fs.img")).expect("of our own").set_len(bytes).expect("it is sparse");
}

fn image(here: &Path) -> Image {
    Image { bytes: std::fs::read(here.join("fs.img")).expect("of our own"), unreadable: Vec::new() }
}

fn find(image: &Image, kind: Kind, range: Range<u64>) -> Owners {
    let found = owners::find(image, kind, std::slice::from_ref(&range)).now_or_never().expect("memory answers at once");
    found.expect("a kind that is read").expect("a file system")
}

/// Compares the bytes of every place in a file with the file, and sees that no block of any file is left out.
fn judge_by_content(image: &Image, owners: &Owners, files: &BTreeMap<String, Vec<u8>>, unit: usize, what: &str) {
    let mut seen: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for place in &owners.places {
        let Owner::File(file, Part::Content(at)) = &place.owner else { continue };
        let path = owners.paths.get(file).unwrap_or_else(|| panic!("{what}: {file:?} has no path"));
        let Some(content) = files.get(path) else { panic!("{what}: {path} is no file of ours") };
        let is = &image.bytes[place.range.start as usize..place.range.end as usize];
        let own = content.get(*at as usize..).unwrap_or_default();
        let own = &own[..own.len().min(is.len())];
        assert!(is.starts_with(own), "{what}: {path} from byte {at} on, at {}", place.range.start);
        assert!(is[own.len()..].iter().all(|byte| *byte == 0), "{what}: behind the end of {path}");
        let end = at + (place.range.end - place.range.start);
        seen.entry(path).or_default().extend((*at..end).step_by(512).map(|at| at / 512));
    }
    for (path, content) in files {
        for (index, part) in content.chunks(512).enumerate() {
            let is_there = seen.get(&**path).is_some_and(|seen| seen.contains(&(index as u64)));
            // A short file may be in its inode or in a tree.
            let is_needed = content.len() >= unit && part.iter().any(|byte| *byte != 0);
            assert!(is_there || !is_needed, "{what}: {path}: nothing has its bytes from {} on", index * 512);
        }
    }
}

/// Asks for small parts of some places alone, and sees that they have the same owners as among all.
fn judge_parts(image: &Image, kind: Kind, owners: &Owners, what: &str) {
    let step = (owners.places.len() / 8).max(1);
    for place in owners.places.iter().step_by(step) {
        let middle = (place.range.start + place.range.end) / 2;
        let part = middle..place.range.end.min(middle + 700);
        let alone = find(image, kind, part.clone());
        let expected = match place.owner {
            Owner::File(file, Part::Content(at)) => Owner::File(file, Part::Content(at + (middle - place.range.start))),
            ref owner => owner.clone(),
        };
        // A table of inodes names those in the part.
        let is_right = |found: &Owner| match (found, &expected) {
            (Owner::Metadata(found), Owner::Metadata(_)) if found.contains("inode table") => true,
            (found, expected) => found == expected,
        };
        assert!(
            alone.places.iter().any(|found| found.range == part && is_right(&found.owner)),
            "{what}: {place:?}: {alone:?}"
        );
    }
}

/// The owner of the block at a byte.
fn at(owners: &Owners, byte: u64) -> &Owner {
    let mut there = owners.places.iter().filter(|place| place.range.contains(&byte));
    &there.next().unwrap_or_else(|| panic!("nothing is said of byte {byte}")).owner
}

/// Compares each block with what debugfs says of it.
fn judge_by_debugfs(here: &Path, owners: &Owners, block: u64, blocks: u64, what: &str) {
    let mut inodes = BTreeMap::new();
    let all: Vec<u64> = (0..blocks).collect();
    for some in all.chunks(5000) {
        let words: Vec<String> = some.iter().map(u64::to_string).collect();
        let said = run("debugfs", &["-R", &format!("icheck {}", words.join(" ")), "fs.img"], here);
        inodes.extend(said.lines().skip(1).filter_map(|line| {
            let (block, inode) = line.split_once('\t')?;
            Some((block.trim().parse::<u64>().ok()?, inode.trim().parse::<u64>().ok()?))
        }));
    }
    let free: BTreeSet<u64> = run("dumpe2fs", &["fs.img"], here)
        .lines()
        .filter_map(|line| line.strip_prefix("  Free blocks: "))
        .flat_map(|line| line.split(", ").filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>())
        .flat_map(|part| {
            let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{text}"));
            match part.split_once('-') {
                Some((from, to)) => number(from)..number(to) + 1,
                None => number(&part)..number(&part) + 1,
            }
        })
        .collect();
    for number in 0..blocks {
        let owner = at(owners, number * block + block - 1);
        match (inodes.get(&number), owner) {
            (_, Owner::Free) => assert!(free.contains(&number), "{what}: block {number} is not free"),
            (Some(8), Owner::Journal) | (Some(1..=10), Owner::Metadata(_)) => {}
            // The quota of projects and the file of orphans have ordinary numbers.
            (Some(_), Owner::Metadata(what)) if what.starts_with("quota") || what == "list of orphans" => {}
            (Some(inode), Owner::File(file, _)) => assert_eq!(file.inode, *inode, "{what}: block {number}"),
            (None, Owner::Metadata(_)) => assert!(!free.contains(&number), "{what}: block {number} is free"),
            (said, owner) => panic!("{what}: block {number}: debugfs says {said:?}, and here it is {owner:?}"),
        }
    }
}

/// The options of mke2fs for revision 0, which it spells otherwise since 1.47.1.
fn options_for_revision_0() -> [&'static str; 2] {
    let said = Command::new("mke2fs").args(["-r", "0"]).output().expect("it starts");
    let is_removed = String::from_utf8_lossy(&said.stderr).contains("has been removed");
    if is_removed { ["-E", "revision=0"] } else { ["-r", "0"] }
}

#[test]
fn each_block_of_ext_is_what_debugfs_says() {
    let revision = options_for_revision_0();
    for (options, bytes, block) in [
        (&["-t", "ext4", "-b", "4096"][..], 48 * MIB, 4096),
        (&["-t", "ext4", "-b", "1024"], 48 * MIB, 1024),
        (&["-t", "ext4", "-O", "^flex_bg,^64bit,^metadata_csum", "-b", "1024"], 48 * MIB, 1024),
        (&["-t", "ext4", "-O", "meta_bg,^resize_inode", "-b", "1024"], 48 * MIB, 1024),
        (&["-t", "ext4", "-O", "sparse_super2,mmp", "-b", "1024"], 48 * MIB, 1024),
        (&["-t", "ext4", "-O", "quota,project", "-I", "512", "-b", "4096"], 48 * MIB, 4096),
        (&["-t", "ext3", "-b", "1024"], 48 * MIB, 1024),
        (&["-t", "ext2", "-b", "2048"], 48 * MIB, 2048),
        (&["-t", "ext2", revision[0], revision[1], "-b", "1024"], 48 * MIB, 1024),
    ] {
        let here = TempDir::new().expect("of our own");
        let here = here.path();
        let files = tree(here);
        blank(here, bytes);
        run("mke2fs", &[&["-q", "-F", "-d", "tree"], options, &["fs.img"]].concat(), here);
        // A file with extents in a tree of their own, attributes in a block, and a name that has two.
        run("debugfs", &["-w", "-R", "ln /photos/list /second", "fs.img"], here);
        let value = "x".repeat(900);
        run("debugfs", &["-w", "-R", &format!("ea_set /photos/list user.note {value}"), "fs.img"], here);
        let image = image(here);
        let owners = find(&image, Kind::Ext, 0..bytes);
        let what = options.join(" ");
        judge_by_debugfs(here, &owners, block, bytes / block, &what);
        judge_parts(&image, Kind::Ext, &owners, &what);
        let both = judged_names(&files, &owners);
        judge_by_content(&image, &owners, &both, block as usize, &what);
        let parts: Vec<Part> = owners
            .places
            .iter()
            .filter_map(|place| match place.owner {
                Owner::File(_, part) => Some(part),
                _ => None,
            })
            .collect();
        // The first revision has no attributes.
        let has_all =
            parts.contains(&Part::Entries) && (parts.contains(&Part::Attributes) || options.contains(&revision[1]));
        assert!(has_all, "{what}");
        assert_eq!(owners.notes, [] as [String; 0], "{what}");
    }
}

/// The files, with the one of two names by the name that was found.
fn judged_names(files: &BTreeMap<String, Vec<u8>>, owners: &Owners) -> BTreeMap<String, Vec<u8>> {
    let mut files = files.clone();
    if owners.paths.values().any(|path| path == "/second") {
        let content = files.remove("/photos/list").expect("it is there");
        files.insert("/second".to_owned(), content);
    }
    files
}

#[test]
fn clusters_of_ext4_are_free_or_a_files() {
    let here = TempDir::new().expect("of our own");
    let here = here.path();
    let files = tree(here);
    blank(here, 64 * MIB);
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-O", "bigalloc", "-C", "16384", "-d", "tree", "fs.img"], here);
    let image = image(here);
    let owners = find(&image, Kind::Ext, 0..64 * MIB);
    judge_by_content(&image, &owners, &files, 1024, "bigalloc");
    let free: u64 = owners
        .places
        .iter()
        .filter(|place| place.owner == Owner::Free)
        .map(|place| place.range.end - place.range.start)
        .sum();
    let said = run("dumpe2fs", &["-h", "fs.img"], here);
    let blocks = said.lines().find_map(|line| line.strip_prefix("Free blocks:")).expect("it says so");
    assert_eq!(free / 1024, blocks.trim().parse::<u64>().expect("a number"));
}

#[test]
fn what_cannot_be_read_of_ext_is_not_called_free() {
    let here = TempDir::new().expect("of our own");
    let here = here.path();
    tree(here);
    blank(here, 48 * MIB);
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-b", "1024", "-d", "tree", "fs.img"], here);
    let mut image = image(here);
    let sound = find(&image, Kind::Ext, 0..48 * MIB);
    let list = |owners: &Owners| owners.paths.iter().find(|(_, path)| *path == "/photos/list").map(|(file, _)| *file);
    let file = list(&sound).expect("it has one");
    let is_table = |owner: &Owner| matches!(owner, Owner::Metadata(what) if what.contains("inode table"));
    let table = sound.places.iter().find(|place| is_table(&place.owner)).expect("it has one").range.clone();
    let data =
        sound.places.iter().find(|place| matches!(place.owner, Owner::File(own, Part::Content(_)) if own == file));
    let data = data.expect("it has blocks").range.clone();
    // The inode's own block of the table.
    let inode_at = table.start + (file.inode - 1) * 256;
    let lost = inode_at / 1024 * 1024..inode_at / 1024 * 1024 + 1024;
    image.unreadable = vec![lost];
    let lost = find(&image, Kind::Ext, data.clone());
    assert!(matches!(&lost.places[0].owner, Owner::Unknown(reason) if reason.contains("in use")), "{:?}", lost.places);
    assert!(lost.notes.iter().any(|note| note.contains("inode table of group 0")), "{:?}", lost.notes);
    // The superblock and the descriptors have copies.
    let lost = 0..4096;
    image.unreadable = vec![lost];
    let copied = find(&image, Kind::Ext, data.clone());
    assert_eq!(list(&copied), Some(file), "{:?}", copied.notes);
    // A directory that is lost takes names, and not files.
    let is_directory =
        |owner: &Owner| matches!(owner, Owner::File(own, Part::Entries) if sound.paths[own] == "/photos");
    let directory = sound.places.iter().find(|place| is_directory(&place.owner)).expect("it has a block");
    image.unreadable = vec![directory.range.clone()];
    let nameless = find(&image, Kind::Ext, data);
    assert!(matches!(nameless.places[0].owner, Owner::File(own, _) if own == file), "{:?}", nameless.places);
    assert_eq!(nameless.paths.len(), 0);
    assert!(nameless.notes.iter().any(|note| note.contains("directories cannot be read")), "{:?}", nameless.notes);
}

/// A prototype of mkfs.xfs with the files of a tree.
fn prototype(directory: &Path, text: &mut String) {
    let mut names: Vec<_> =
        std::fs::read_dir(directory).expect("of our own").map(|entry| entry.expect("one").path()).collect();
    names.sort();
    for path in names {
        // A prototype has no names with spaces.
        let name = path.file_name().expect("it has one").to_string_lossy().into_owned();
        if name.contains(' ') {
            continue;
        }
        if path.is_dir() {
            *text += &format!("{name} d--755 0 0\n");
            prototype(&path, text);
            *text += "$\n";
        } else {
            *text += &format!("{name} ---644 0 0 {}\n", path.display());
        }
    }
}

#[test]
fn each_block_of_xfs_is_what_xfs_db_says() {
    const BYTES: u64 = 320 * MIB;
    for options in [
        &["-m", "rmapbt=1,reflink=1,finobt=1"][..],
        &["-m", "crc=0,finobt=0", "-n", "ftype=0"],
        &["-b", "size=1024", "-n", "size=8192", "-i", "size=512"],
        &["-m", "reflink=0", "-i", "sparse=0"],
    ] {
        let here = TempDir::new().expect("of our own");
        let here = here.path();
        let mut files = tree(here);
        files.retain(|path, _| !path.contains(' '));
        blank(here, BYTES);
        let mut text = "/stand/diag\n0 0\nd--755 0 0\n".to_owned();
        prototype(&here.join("tree"), &mut text);
        text += "$\n";
        std::fs::write(here.join("proto"), text).expect("of our own");
        run("mkfs.xfs", &[&["-q", "-f", "-p", "proto"], options, &["fs.img"]].concat(), here);
        let image = image(here);
        let owners = find(&image, Kind::Xfs, 0..BYTES);
        let what = options.join(" ");
        assert_eq!(owners.notes, [] as [String; 0], "{what}");
        let block = if what.contains("size=1024 -n") { 1024 } else { 4096 };
        judge_by_content(&image, &owners, &files, block as usize, &what);
        judge_by_xfs_db(here, &owners, block, BYTES / block, &what);
        judge_parts(&image, Kind::Xfs, &owners, &what);
    }
}

/// Compares blocks with what xfs_db says of them: all of files and metadata, and some of the free ones.
fn judge_by_xfs_db(here: &Path, owners: &Owners, block: u64, blocks: u64, what: &str) {
    let is_free = |number: &u64| *at(owners, number * block + block - 1) == Owner::Free;
    let chosen: Vec<u64> = (0..blocks).filter(|number| number % 61 == 0 || !is_free(number)).collect();
    let mut arguments = vec!["-r".to_owned(), "-f".to_owned(), "-c".to_owned(), "blockget -n".to_owned()];
    let mut said = Vec::new();
    for some in chosen.chunks(4000) {
        let mut own = arguments.clone();
        for number in some {
            own.extend([
                "-c".to_owned(),
                format!("daddr {}", number * block / 512),
                "-c".to_owned(),
                "blockuse -n".to_owned(),
            ]);
        }
        own.push("fs.img".to_owned());
        let words: Vec<&str> = own.iter().map(String::as_str).collect();
        said.extend(run("xfs_db", &words, here).lines().filter(|line| line.starts_with("block ")).map(str::to_owned));
    }
    arguments.clear();
    assert_eq!(said.len(), chosen.len(), "{what}: {:?}", said.first());
    for (number, line) in chosen.iter().zip(&said) {
        let owner = at(owners, number * block + block - 1);
        let (_, kind) = line.split_once(" type ").unwrap_or_else(|| panic!("{line}"));
        let inode = kind.split_once("inode ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
        let kind = kind.split(' ').next().unwrap_or_default();
        let is_right = match (kind, owner) {
            ("free1" | "free2" | "free3" | "free4", Owner::Free) | ("log", Owner::Journal) => true,
            ("data" | "dir" | "attr" | "btbmapd" | "btbmapa" | "symlink", Owner::File(file, _)) => {
                Some(file.inode) == inode
            }
            ("rtbitmap" | "rtsum" | "quota", Owner::Metadata(_)) => true,
            (kind, Owner::Metadata(_)) => !matches!(kind, "free1" | "free2" | "free3" | "free4" | "data"),
            _ => false,
        };
        assert!(is_right, "{what}: block {number}: xfs_db says {line:?}, and here it is {owner:?}");
    }
}

#[test]
fn each_block_of_a_file_of_btrfs_holds_its_bytes() {
    const BYTES: u64 = 160 * MIB;
    for options in [
        &[][..],
        &["-m", "single", "-n", "4096"],
        &["-M", "-s", "4096"],
        &["-m", "dup", "-d", "dup", "--csum", "xxhash"],
    ] {
        let here = TempDir::new().expect("of our own");
        let here = here.path();
        let files = tree(here);
        blank(here, BYTES);
        run("mkfs.btrfs", &[&["-q", "-f", "--rootdir", "tree"], options, &["fs.img"]].concat(), here);
        let image = image(here);
        let owners = find(&image, Kind::Btrfs, 0..BYTES);
        let what = options.join(" ");
        assert_eq!(owners.notes, [] as [String; 0], "{what}");
        judge_by_content(&image, &owners, &files, 4096, &what);
        judge_parts(&image, Kind::Btrfs, &owners, &what);
        let is_unknown = |owner: &Owner| matches!(owner, Owner::Unknown(_));
        assert!(owners.places.iter().all(|place| !is_unknown(&place.owner)), "{what}: {:?}", owners.places);
        // What is called free holds no block of a file.
        let large: BTreeSet<&[u8]> = files["/photos/large"].chunks(4096).collect();
        for place in owners.places.iter().filter(|place| place.owner == Owner::Free) {
            let part = &image.bytes[place.range.start as usize..place.range.end as usize];
            assert!(part.chunks(4096).all(|block| !large.contains(block)), "{what}");
        }
    }
}

#[test]
fn foreign_bytes_end_every_walk() {
    let here = TempDir::new().expect("of our own");
    let here = here.path();
    tree(here);
    for (make, kind, bytes) in [
        (&["mke2fs", "-q", "-F", "-t", "ext4", "-b", "1024", "-d", "tree", "fs.img"][..], Kind::Ext, 32 * MIB),
        (&["mke2fs", "-q", "-F", "-t", "ext2", "-b", "1024", "-d", "tree", "fs.img"], Kind::Ext, 32 * MIB),
        (&["mkfs.btrfs", "-q", "-f", "-M", "--rootdir", "tree", "fs.img"], Kind::Btrfs, 128 * MIB),
    ] {
        blank(here, bytes);
        run(make[0], &make[1..], here);
        let sound = image(here);
        let whole = 0..bytes;
        let owners = find(&sound, kind, whole.clone());
        let is_metadata =
            |owner: &Owner| matches!(owner, Owner::Metadata(_) | Owner::File(_, Part::Entries | Part::Map));
        let metadata: Vec<_> = owners.places.iter().filter(|place| is_metadata(&place.owner)).collect();
        let mut seed = 7_u64;
        for _ in 0..10 {
            let mut broken = Image { bytes: sound.bytes.clone(), unreadable: Vec::new() };
            for _ in 0..200 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let place = &metadata[(seed >> 33) as usize % metadata.len()];
                let offset = (seed >> 20) % (place.range.end - place.range.start);
                broken.bytes[(place.range.start + offset) as usize] = (seed >> 56) as u8;
            }
            let found = owners::find(&broken, kind, std::slice::from_ref(&whole))
                .now_or_never()
                .expect("memory answers at once");
            assert!(found.is_some());
        }
    }
}
