//! A commit that fails at each of its writes and flushes in turn, and is repeated.

use super::{Commit, OverlayDirectory, Stage, entries, open_entry};
use crate::machine::{Arena, Machine, Purpose};
use crate::{Create, Level, Options};
use engine::wipe::superblocks;
use engine::{Block, Buffer, Limits, Member, MemberError, MemberErrorKind, MemberFault, Operation};
use format::units::MemberByte;
use io::{AnyMember, FileMember, ForeignMember, OpenOptions};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A member that fails every change after the first few.
#[derive(Debug)]
struct Failing {
    file: FileMember,
    left: Rc<Cell<u64>>,
}

impl Failing {
    fn count(&self, operation: Operation, at: MemberByte) -> Result<(), MemberError> {
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => {
                let source = Rc::new(std::io::Error::other("it fails as the test says"));
                Err(MemberFault { kind: MemberErrorKind::Gone, operation, at, bytes: 0, source }.into())
            }
        }
    }
}

impl Member for Failing {
    fn limits(&self) -> &Limits {
        self.file.limits()
    }

    async fn read(&self, at: MemberByte, into: Buffer) -> (Result<(), MemberError>, Buffer) {
        self.file.read(at, into).await
    }

    async fn read_vectored(&self, at: MemberByte, into: Vec<Buffer>) -> (Result<(), MemberError>, Vec<Buffer>) {
        self.file.read_vectored(at, into).await
    }

    async fn write(&self, at: MemberByte, from: Block) -> Result<(), MemberError> {
        self.count(Operation::Write, at)?;
        self.file.write(at, from).await
    }

    async fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> Result<(), MemberError> {
        self.count(Operation::Write, at)?;
        self.file.write_vectored(at, from).await
    }

    async fn flush(&self) -> Result<(), MemberError> {
        self.count(Operation::Flush, MemberByte(0))?;
        self.file.flush().await
    }

    async fn discard(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        self.count(Operation::Discard, at)?;
        self.file.discard(at, bytes).await
    }

    async fn write_zeroes(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        self.count(Operation::WriteZeroes, at)?;
        self.file.write_zeroes(at, bytes).await
    }
}

/// A commit of the overlay in `place`, whose members fail after `left` changes.
fn commit<'a>(machine: &Machine, directory: &'a OverlayDirectory, left: u64) -> Commit<'a> {
    let left = Rc::new(Cell::new(left));
    let mut paths = Vec::new();
    let members = entries(&directory.path).expect("entries").into_iter().map(|(entry, header)| {
        let path = PathBuf::from(String::from_utf8(header.name).expect("a plain name"));
        let file = FileMember::open(&path, &OpenOptions::default()).expect("a member");
        let under = AnyMember::Foreign(ForeignMember::new(Failing { file, left: left.clone() }));
        let layer = open_entry(&entry, Purpose::Write).expect("its files");
        paths.push(path.clone());
        (path.display().to_string(), layer.over(under))
    });
    let members = members.collect();
    Commit { directory, members, paths, pool: machine.pool.clone() }
}

async fn view(commit: &Commit<'_>) -> Vec<Vec<u8>> {
    let mut views = Vec::new();
    for (_, overlay) in &commit.members {
        let (read, bytes) = overlay.read(MemberByte(0), commit.pool.take(overlay.limits().bytes as usize)).await;
        read.expect("in range");
        views.push(bytes.to_vec());
    }
    views
}

/// All but the block of a superblock of version 1.2.
fn without_superblock(member: &[u8]) -> [&[u8]; 2] {
    [&member[..4096], &member[8192..]]
}

/// Copies the files of one directory over another, and removes what else is there.
fn restore(from: &Path, to: &Path) {
    drop(std::fs::remove_dir_all(to));
    std::fs::create_dir(to).expect("a directory");
    for file in from.read_dir().expect("a directory") {
        let path = file.expect("a file").path();
        std::fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("copied");
    }
}

#[test]
fn a_commit_may_end_anywhere_and_no_half_of_it_is_ever_an_array() {
    let place = tempfile::tempdir().expect("a directory");
    let at = |name: &str| place.path().join(name);
    std::fs::create_dir(at("old")).expect("a directory");
    let old = [at("old/a"), at("old/b")];
    Create::new(Level::Raid1).member_bytes(3 << 20).create(&old).expect("an array");
    restore(&at("old"), &at("now"));
    let now = [at("now/a"), at("now/b")];
    {
        let array = Options::new().write(true).overlay(at("made")).open(&now).expect("it is whole");
        array.write_all_at(&[7; 70_000], 300_000).expect("written");
        array.write_all_at(&[8; 512], 1_000_000).expect("written");
        array.close().expect("stopped");
    }
    let before = now.each_ref().map(|path| std::fs::read(path).expect("a member"));
    assert_eq!(
        before,
        old.each_ref().map(|path| std::fs::read(path).expect("a member")),
        "an overlay changes no member"
    );

    let machine = Machine::start(None, Arena::Small).expect("an executor");
    let overlay = at("overlay");
    let mut failures = 0;
    for left in 0.. {
        restore(&at("old"), &at("now"));
        restore(&at("made"), &overlay);
        let directory = OverlayDirectory::at(&overlay).expect("an overlay");
        let is_done = machine.run(async {
            let first = commit(&machine, &directory, left);
            let expected = view(&first).await;
            assert_ne!(expected, before, "the overlay holds something");
            let done = first.run(&|_| {}).await;
            drop(first);
            let found = now.each_ref().map(|path| std::fs::read(path).expect("a member"));
            if done.is_ok() {
                assert!(found == *expected, "after {left} changes");
                assert!(!overlay.exists());
                return true;
            }
            assert_eq!(Stage::of(&overlay), Stage::Committing, "after {left} changes");
            directory.discard().expect_err("the members need it");
            let rest = commit(&machine, &directory, u64::MAX);
            assert!(view(&rest).await == expected, "the overlay shows the same all the while");
            let mut of_an_array = Vec::new();
            for (name, overlay) in &rest.members {
                of_an_array.push(!superblocks(name, overlay.under(), &machine.pool).await.is_empty());
            }
            let is_data_of = |expected: &[Vec<u8>]| {
                found
                    .iter()
                    .zip(expected)
                    .all(|(found, expected)| without_superblock(found) == without_superblock(expected))
            };
            let (data_is_written, is_as_before) = (is_data_of(&expected), is_data_of(&before));
            assert!(data_is_written || is_as_before || !of_an_array.contains(&true), "after {left} changes");
            rest.run(&|_| {}).await.expect("it completes");
            drop(rest);
            let found = now.each_ref().map(|path| std::fs::read(path).expect("a member"));
            assert!(found == *expected && !overlay.exists(), "after {left} changes");
            false
        });
        if is_done {
            break;
        }
        failures += 1;
    }
    assert!(failures > 10, "only {failures} places to fail at");
}

#[test]
fn a_commit_that_was_killed_while_it_takes_room_is_completed() {
    let place = tempfile::tempdir().expect("a directory");
    let members = [place.path().join("a"), place.path().join("b")];
    Create::new(Level::Raid1).member_bytes(3 << 20).create(&members).expect("an array");
    let overlay = place.path().join("overlay");
    let array = Options::new().write(true).overlay(&overlay).open(&members).expect("it is whole");
    array.write_all_at(&[7; 70_000], 300_000).expect("written");
    array.close().expect("stopped");
    let times = || members.each_ref().map(|path| path.metadata().and_then(|found| found.modified()).expect("a time"));
    let before = times();

    let machine = Machine::start(None, Arena::Small).expect("an executor");
    let directory = OverlayDirectory::at(&overlay).expect("an overlay");
    machine.run(async {
        let killed = commit(&machine, &directory, 0);
        killed.begin().await.expect("no member has to change");
        assert_eq!((times(), Stage::of(&overlay)), (before, Stage::Committing));
    });
    // The time of a file's last write is another until the room is taken.
    for path in &members {
        let file = std::fs::File::options().write(true).open(path).expect("a member");
        file.set_modified(before[0] + std::time::Duration::from_secs(1)).expect("set");
    }
    let directory = OverlayDirectory::at(&overlay).expect("an overlay");
    let again = Commit::open(&machine, &directory).expect("the members are those of the overlay");
    machine.run(again.run(&|_| {})).expect("it completes");
    let mut bytes = vec![0; 70_000];
    drop(again);
    Options::new().open(&members).expect("whole").read_exact_at(&mut bytes, 300_000).expect("read");
    assert!(bytes == [7; 70_000] && !overlay.exists());
}
