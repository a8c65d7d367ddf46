//! `read --name-files`: the files that lost ranges hit, by the file system's own tools on the copy.
//!
//! For ext2 to ext4, debugfs says which inodes have the lost blocks, and the paths of these. For others the command that
//! names them is printed. Nothing is written: the tools open the copy for reading.

use crate::command::cli::detect::find;
use crate::command::cli::salvage::Lost;
use crate::command::text::output::tell;
use crate::names::word_of;
use crate::place::{DiskFile, at_once};
use disk::Source;
use disk::content::{Content, Kind, look};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

/// The most lost blocks that are looked up, and how many of them at a time: a command line is not endless.
const BLOCKS_MAX: usize = 100_000;
const AT_A_TIME: usize = 5_000;

/// The most files that are printed.
const PRINTED_MAX: usize = 100;

/// A file with lost bytes. Its fields are a stable interface (docs/json.md).
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct LostFile {
    /// Its path in the file system; `None` for an inode without a name, such as the journal.
    pub(super) path: Option<String>,
    pub(super) inode: u64,
    /// Its lost blocks of the file system.
    pub(super) blocks: usize,
}

/// Finds and prints the files that `lost` ranges of the copy at `copy` hit. `at` is the first byte of the copy, as
/// ranges count.
pub(super) fn name_files(copy: &Path, at: u64, lost: &[Lost]) -> Vec<LostFile> {
    if lost.is_empty() {
        return Vec::new();
    }
    let ranges: Vec<Range<u64>> = lost.iter().map(|lost| lost.at - at..lost.at - at + lost.bytes).collect();
    match kind_of(copy) {
        Some(Kind::Ext) => ext(copy, &ranges).unwrap_or_else(|reason| {
            tell!("note: files with lost bytes: {reason}");
            Vec::new()
        }),
        Some(Kind::Xfs) => {
            let places: String = ranges.iter().take(PRINTED_MAX).map(|range| of_xfs(range.start)).collect();
            tell!("next: xfs_db -r -c 'blockget -n'{places} {}", word_of(copy));
            Vec::new()
        }
        Some(Kind::Btrfs) => {
            tell!("next: btrfs check --readonly --check-data-csum {}", word_of(copy));
            tell!("note: only a mounted Btrfs names files: mount -o ro,loop, then `btrfs scrub start -B -r` and dmesg");
            Vec::new()
        }
        _ => {
            tell!("note: files with lost bytes: the copy does not begin with ext2, ext3, ext4, XFS or Btrfs");
            Vec::new()
        }
    }
}

fn kind_of(copy: &Path) -> Option<Kind> {
    match at_once(look(&DiskFile::open(copy).ok()?)).ok()? {
        Content::Volume(volume) => Some(volume.kind),
        _ => None,
    }
}

/// What xfs_db is asked about a byte: the name of the file that has it.
fn of_xfs(at: u64) -> String {
    format!(" -c 'daddr {}' -c 'blockuse -n'", at / 512)
}

/// Asks debugfs.
fn ext(copy: &Path, ranges: &[Range<u64>]) -> Result<Vec<LostFile>, String> {
    let program = find("debugfs").ok_or("debugfs names them (Debian's package e2fsprogs), and is not installed")?;
    let block_bytes = block_bytes(copy).ok_or("the superblock of the file system is not in the copy")?;
    let blocks = blocks(ranges, block_bytes);
    let ask = |request: String| {
        let output = Command::new(&program.file).arg("-R").arg(&request).arg(copy).output();
        let output = output.map_err(|error| format!("debugfs: {error}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("debugfs: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    };
    let mut found: BTreeMap<u64, usize> = BTreeMap::new();
    let mut without = 0;
    for some in blocks[..blocks.len().min(BLOCKS_MAX)].chunks(AT_A_TIME) {
        let listed: Vec<String> = some.iter().map(u64::to_string).collect();
        for line in ask(format!("icheck {}", listed.join(" ")))?.lines().skip(1) {
            match line.split_once('\t').and_then(|(_, inode)| inode.trim().parse().ok()) {
                Some(inode) => *found.entry(inode).or_default() += 1,
                None => without += 1,
            }
        }
    }
    let mut paths: BTreeMap<u64, String> = BTreeMap::new();
    let inodes: Vec<String> = found.keys().map(u64::to_string).collect();
    for some in inodes.chunks(AT_A_TIME) {
        for line in ask(format!("ncheck {}", some.join(" ")))?.lines().skip(1) {
            if let Some((inode, path)) = line.split_once('\t')
                && let Ok(inode) = inode.trim().parse()
            {
                // ncheck names the root's own entries with two slashes.
                let path = path.strip_prefix('/').filter(|rest| rest.starts_with('/')).unwrap_or(path);
                paths.entry(inode).or_insert_with(|| path.to_owned());
            }
        }
    }
    let file = |(inode, blocks)| LostFile { path: paths.remove(&inode), inode, blocks };
    let files: Vec<LostFile> = found.into_iter().map(file).collect();
    print(&files, without, blocks.len());
    Ok(files)
}

fn print(files: &[LostFile], without: usize, blocks: usize) {
    for LostFile { path, inode, blocks } in files.iter().take(PRINTED_MAX) {
        match path {
            Some(path) => tell!("lost in: {}: {blocks} blocks", format::text::plain(path)),
            None => tell!("lost in: inode {inode}, which has no name: {blocks} blocks"),
        }
    }
    if files.len() > PRINTED_MAX {
        tell!("lost in: and {} more files, which --json lists", files.len() - PRINTED_MAX);
    }
    if without > 0 {
        tell!("lost: {without} blocks are in no file: they are free, or metadata of the file system");
    }
    if blocks > BLOCKS_MAX {
        tell!("note: only the first {BLOCKS_MAX} lost blocks were looked up");
    }
}

/// The size of a block of ext2 to ext4, from its superblock.
fn block_bytes(copy: &Path) -> Option<u64> {
    let superblock = at_once(DiskFile::open(copy).ok()?.read(1024, 64)).ok()?;
    let log = u32::from_le_bytes(superblock[24..28].try_into().ok()?);
    (superblock[56..58] == [0x53, 0xef] && log <= 6).then(|| 1024 << log)
}

/// The blocks that ranges touch, each once.
fn blocks(ranges: &[Range<u64>], block_bytes: u64) -> Vec<u64> {
    let touched = ranges.iter().flat_map(|range| range.start / block_bytes..range.end.div_ceil(block_bytes));
    let mut blocks: Vec<u64> = touched.take(BLOCKS_MAX + 1).collect();
    blocks.dedup();
    blocks
}
