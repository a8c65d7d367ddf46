//! The members of the bench, which the array and the transfers without RAID share.

use crate::command::measure::arguments::{BenchArguments, BenchPolicy};
use crate::command::text::failure::Failure;
use io::{AnyMember, FileMember, MemoryMember, OpenOptions, create_sparse};
use std::os::fd::AsRawFd;
use std::path::Path;

/// The members for `arguments`, and behind them the device for a write journal, if it is asked for.
pub(super) fn make(arguments: &BenchArguments) -> Result<Vec<AnyMember>, Failure> {
    let has_journal = arguments.consistency_policy == BenchPolicy::Journal;
    let numbers = 0..arguments.members + u16::from(has_journal);
    match &*arguments.member {
        [only] if only == Path::new("memory") => numbers.map(|_| memory(arguments)).collect(),
        [only] if only.is_dir() => numbers.map(|number| file(only, number, arguments)).collect(),
        devices => devices.iter().map(|path| device(path)).collect(),
    }
}

fn memory(arguments: &BenchArguments) -> Result<AnyMember, Failure> {
    let member = MemoryMember::new(arguments.size.0).map_err(|error| Failure::refused(format!("memory: {error}")))?;
    Ok(member.into())
}

/// A file without a name. It loses its name before it becomes a member, because the engine fails a member that loses it
/// later.
fn file(directory: &Path, number: u16, arguments: &BenchArguments) -> Result<AnyMember, Failure> {
    if cfg!(not(target_os = "linux")) {
        return Err(Failure::refused(format!(
            "{}: files without a name can be opened on Linux alone",
            directory.display()
        ))
        .advise("--member takes `memory`, or disks, which are overwritten"));
    }
    let path = directory.join(format!("mdspace-bench-{}-{number}.img", std::process::id()));
    let failed = |error: std::io::Error| Failure::refused(format!("{}: {error}", path.display()));
    create_sparse(&path, arguments.size.0).map_err(failed)?;
    let kept = std::fs::File::open(&path);
    std::fs::remove_file(&path).map_err(failed)?;
    let kept = kept.map_err(failed)?;
    let nameless = format!("/proc/self/fd/{}", kept.as_raw_fd());
    Ok(FileMember::open(Path::new(&nameless), &OpenOptions::default())?.into())
}

fn device(path: &Path) -> Result<AnyMember, Failure> {
    let member = FileMember::open(path, &OpenOptions::default())?;
    if !member.is_block_device() {
        return Err(Failure::refused(format!("{}: not a block device", path.display()))
            .advise("--member takes `memory`, one directory for files, or block devices, which are overwritten"));
    }
    Ok(member.into())
}
