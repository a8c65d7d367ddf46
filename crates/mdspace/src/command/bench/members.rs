//! Members to measure on, shared by the array and by the transfers without RAID.

use crate::command::arguments::BenchArguments;
use crate::command::failure::Failure;
use engine::{Block, Buffer, Limits, Member, MemberError};
use format::units::MemberByte;
use io::{AnyMember, FileMember, MemoryMember, OpenOptions, create_sparse};
use std::path::Path;
use std::rc::Rc;

/// A member with several owners.
#[derive(Clone)]
pub(super) struct Shared(Rc<AnyMember>);

impl Member for Shared {
    fn limits(&self) -> &Limits {
        self.0.limits()
    }

    async fn read(&self, at: MemberByte, into: Buffer) -> (Result<(), MemberError>, Buffer) {
        self.0.read(at, into).await
    }

    async fn read_vectored(&self, at: MemberByte, into: Vec<Buffer>) -> (Result<(), MemberError>, Vec<Buffer>) {
        self.0.read_vectored(at, into).await
    }

    async fn write(&self, at: MemberByte, from: Block) -> Result<(), MemberError> {
        self.0.write(at, from).await
    }

    async fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> Result<(), MemberError> {
        self.0.write_vectored(at, from).await
    }

    async fn flush(&self) -> Result<(), MemberError> {
        self.0.flush().await
    }

    async fn discard(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        self.0.discard(at, bytes).await
    }

    async fn write_zeroes(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        self.0.write_zeroes(at, bytes).await
    }
}

/// The members that `arguments` ask for.
pub(super) fn make(arguments: &BenchArguments) -> Result<Vec<Shared>, Failure> {
    let shared = |member: AnyMember| Shared(Rc::new(member));
    let numbers = 0..arguments.members;
    match &*arguments.member {
        [only] if only == Path::new("memory") => numbers.map(|_| memory(arguments).map(shared)).collect(),
        [only] if only.is_dir() => numbers.map(|number| file(only, number, arguments).map(shared)).collect(),
        devices => devices.iter().map(|path| device(path).map(shared)).collect(),
    }
}

fn memory(arguments: &BenchArguments) -> Result<AnyMember, Failure> {
    let member = MemoryMember::new(arguments.size.0).map_err(|error| Failure::refused(format!("memory: {error}")))?;
    Ok(member.into())
}

/// A file that has no name any more as soon as it is open.
fn file(directory: &Path, number: u16, arguments: &BenchArguments) -> Result<AnyMember, Failure> {
    let path = directory.join(format!("mdspace-bench-{}-{number}.img", std::process::id()));
    let failed = |error: std::io::Error| Failure::refused(format!("{}: {error}", path.display()));
    create_sparse(&path, arguments.size.0).map_err(failed)?;
    let opened = FileMember::open(&path, &OpenOptions::default());
    std::fs::remove_file(&path).map_err(failed)?;
    Ok(opened?.into())
}

fn device(path: &Path) -> Result<AnyMember, Failure> {
    let member = FileMember::open(path, &OpenOptions::default())?;
    if !member.is_block_device() {
        return Err(Failure::refused(format!("{}: not a block device", path.display()))
            .advise("--member takes `memory`, one directory for files, or block devices, which are overwritten"));
    }
    Ok(member.into())
}
