//! The command line: names, flags and the help that explains them.
//!
//! A contract with its users and with scripts: `docs/tour.md` walks through
//! it. What clap refuses ends with exit status 2, as every refusal does.

use crate::level::{parse_layout, parse_level};
use crate::members::ArrayUuid;
use crate::nbd_address::NbdAddress;
use crate::settings::{parse_pair, parse_stripe_size};
use crate::size::Size;
use clap::{Args, Parser, Subcommand, ValueEnum};
use engine::StripeSize;
use format::geometry::Level;
use std::ffi::OsString;
use std::path::PathBuf;

/// Linux software RAID, in user space
///
/// Creates, reads, writes and serves arrays in the format of Linux md, without the kernel's driver and
/// without root. Members are image files or block devices.
#[derive(Debug, Parser)]
#[command(name = "mdspace", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct CommandLine {
    /// Compute parity with this kernel instead of the fastest that the processor has
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) kernel: Option<String>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  mdspace up                                       an array in ./mdspace-data, served
  mdspace create --level 5 --size 1G a.img b.img c.img
  mdspace write a.img b.img c.img < disk.img       in any order
  mdspace serve '*.img' --nbd unix:/tmp/md.sock    quoted globs are expanded
  mdspace status --json

Exit status: 0 done; 1 the array or its data is not well; 2 refused, nothing changed.";

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a RAID-5 of four files in ./mdspace-data, made when it is not there
    ///
    /// Goes on where it left off when it is run again. Prints what to type next.
    Up,
    /// Make an array of new or existing members
    Create(CreateArguments),
    /// Print what is written on each member, and whether the members agree
    Examine(ExamineArguments),
    /// Serve an array over NBD, vhost-user or FUSE until interrupted
    Serve(ServeArguments),
    /// Copy an array's bytes to standard output or a file, with no server
    Read(ReadArguments),
    /// Copy standard input or a file into an array, with no server
    Write(WriteArguments),
    /// Print the state of a served array and of its members
    Status(StatusArguments),
    /// Mark a member of a served array as faulty
    Fail(MemberOfServedArguments),
    /// Take a faulty or spare member out of a served array
    Remove(MemberOfServedArguments),
    /// Add a member to a served array: it is recovered if a slot is empty, and a spare otherwise
    Add(AddArguments),
    /// Take back a member that was away; it gets only what was written meanwhile, by the bitmap
    ReAdd(ReAddArguments),
    /// Change settings of a served array while it works
    Set(SetArguments),
    /// Stop a served array: finish what was begun, mark it clean, end its server
    Stop(ControlArguments),
    /// Measure this machine: the engine against its own members without RAID
    Bench(BenchArguments),
    /// Make published measurements of software RAID again, on modelled drives in virtual time
    Lab(LabArguments),
}

/// Members of an array that exists.
#[derive(Debug, Args)]
pub(crate) struct MemberArguments {
    /// The members, in any order: image files, block devices, quoted globs, and with --uuid directories
    #[arg(value_name = "MEMBER", required = true)]
    pub(crate) members: Vec<OsString>,

    /// Take only members of the array with this UUID, and pass over everything else
    #[arg(long, value_name = "UUID")]
    pub(crate) uuid: Option<ArrayUuid>,
}

/// Members of an array that is going to be started.
#[derive(Debug, Args)]
pub(crate) struct AssembleArguments {
    #[command(flatten)]
    pub(crate) members: MemberArguments,

    /// Start a degraded array even though it was not stopped cleanly; some of its data may be wrong
    #[arg(long)]
    pub(crate) force: bool,

    /// The file that holds the array's write-intent bitmap, if it is kept in one
    #[arg(long, value_name = "FILE")]
    pub(crate) bitmap: Option<PathBuf>,
}

/// `create`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace create --level 5 --size 1G a.img b.img c.img d.img
  mdspace create --level 6 --chunk 64K --layout ls --name data /dev/sd[b-g]
  mdspace create --level 1 --size 1G a.img missing

Defaults: chunk 512K; layout left-symmetric for RAID-5 and 6, n2 for RAID-10; metadata 1.2; no bitmap.")]
pub(crate) struct CreateArguments {
    /// RAID level: linear, 0, 1, 4, 5, 6 or 10
    #[arg(long, short, value_parser = parse_level)]
    pub(crate) level: Level,

    /// Bytes of a chunk: a power of two, 4K or more (RAID-0: any multiple of 4K)
    #[arg(long, short, value_name = "SIZE")]
    pub(crate) chunk: Option<Size>,

    /// Layout: left-symmetric (ls), left-asymmetric, ... for RAID-5 and 6; n2, f2, o2 for RAID-10
    #[arg(long, value_name = "NAME")]
    pub(crate) layout: Option<String>,

    /// The array's name, at most 32 bytes
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// Make each MEMBER that does not exist a sparse file of this size
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Size>,

    /// A spare member; may be given several times
    #[arg(long, value_name = "MEMBER")]
    pub(crate) spare: Vec<PathBuf>,

    /// Version of the superblock, which is also its place on the member
    #[arg(long, value_enum, default_value_t = Metadata::V1_2, value_name = "VERSION")]
    pub(crate) metadata: Metadata,

    /// Where data begins on each member, instead of leaving the usual room for metadata
    #[arg(long, value_name = "SIZE")]
    pub(crate) data_offset: Option<Size>,

    /// The write-intent bitmap: on every member (internal), in a new file beside them, or none
    #[arg(long, value_parser = parse_bitmap, default_value = "none", value_name = "internal|none|./FILE")]
    pub(crate) bitmap: Bitmap,

    /// Bytes that one bit of the bitmap stands for: a power of two from 4K to 2G
    #[arg(long, value_name = "SIZE")]
    pub(crate) bitmap_chunk: Option<Size>,

    /// Take the members as consistent; parity and copies are not computed
    #[arg(long)]
    pub(crate) assume_clean: bool,

    /// Overwrite members that belong to another array
    #[arg(long)]
    pub(crate) force: bool,

    /// The members in the order of their slots; the word `missing` leaves a slot empty
    #[arg(value_name = "MEMBER", required = true)]
    pub(crate) members: Vec<OsString>,
}

impl CreateArguments {
    /// The layout's code, when one was asked for.
    pub(crate) fn layout_code(&self) -> Result<Option<u32>, String> {
        self.layout.as_deref().map(|name| parse_layout(self.level, name)).transpose()
    }
}

/// Superblock versions that can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Metadata {
    /// At the member's end
    #[value(name = "1.0")]
    V1_0,
    /// At its beginning
    #[value(name = "1.1")]
    V1_1,
    /// 4 KiB from its beginning
    #[value(name = "1.2")]
    V1_2,
}

/// Kinds of write-intent bitmap that can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Bitmap {
    /// On every member, beside the superblock
    Internal,
    /// In a file of its own
    File(PathBuf),
    /// No bitmap
    None,
}

/// As mdadm, which knows a file by its slash.
fn parse_bitmap(text: &str) -> Result<Bitmap, String> {
    match text {
        "internal" => Ok(Bitmap::Internal),
        "none" => Ok(Bitmap::None),
        file if file.contains('/') => Ok(Bitmap::File(file.into())),
        _ => Err("expected internal, none or a file's path with a slash in it".to_owned()),
    }
}

/// How large writes of the bitmap are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WriteSize {
    /// As each member prefers
    Preferred,
    /// As few bytes as possible
    Exact,
}

/// When bits of the bitmap are cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Clearing {
    /// While the array is busy, only as many as cost nothing
    Sparing,
    /// As soon as they are idle, as md does
    Eager,
}

/// `examine`
#[derive(Debug, Args)]
pub(crate) struct ExamineArguments {
    #[command(flatten)]
    pub(crate) members: MemberArguments,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `serve`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace serve a.img b.img c.img                     on a socket of its own choice
  mdspace serve '/dev/sd[b-e]' --nbd tcp:127.0.0.1:10809
  mdspace serve '*.img' --vhost-user /run/vm.sock     also as a virtual machine's disk
  mdspace serve --uuid 3b1c...  /dev/disk/by-id       members found by the array's UUID

SIGINT and SIGTERM finish what was begun, mark the array clean and end the server.")]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) assemble: AssembleArguments,

    /// Where NBD clients connect: unix:PATH, or tcp:HOST:PORT on this machine alone
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) nbd: Option<NbdAddress>,

    #[command(flatten)]
    pub(crate) ways: WayArguments,

    /// The control socket, which `status` and the others talk to
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,

    /// How large writes of the write-intent bitmap are made
    #[arg(long, value_enum, default_value_t = WriteSize::Preferred)]
    pub(crate) bitmap_writes: WriteSize,

    /// When its bits are cleared
    #[arg(long, value_enum, default_value_t = Clearing::Sparing)]
    pub(crate) bitmap_clearing: Clearing,

    /// Let nothing be written, neither by clients nor to superblocks
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Move stripes that change in part in units of this size, 4K to the chunk, or exactly the bytes needed
    #[arg(long, value_parser = parse_stripe_size, value_name = "auto|SIZE", default_value = "auto")]
    pub(crate) stripe_size: StripeSize,

    /// Answer writes when the members have them, or from memory, as a disk does that has to be flushed
    #[arg(long, value_enum, default_value_t)]
    pub(crate) cache: CacheMode,
}

/// When `serve` answers a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum CacheMode {
    #[default]
    Writethrough,
    Writeback,
}

/// Ways into a served array besides NBD.
#[derive(Debug, Default, Args)]
pub(crate) struct WayArguments {
    /// Also serve a disk for a virtual machine (vhost-user-blk) on this socket; may be given several times
    #[cfg(feature = "vhost-user")]
    #[arg(long, value_name = "PATH")]
    pub(crate) vhost_user: Vec<PathBuf>,

    /// Also show the array as the file `array` in this directory, by FUSE
    #[cfg(feature = "fuse")]
    #[arg(long, value_name = "MOUNTPOINT")]
    pub(crate) fuse: Option<PathBuf>,
}

/// `read`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace read '*.img' > disk.img
  mdspace read '*.img' --offset 1G --length 4096 | xxd")]
pub(crate) struct ReadArguments {
    #[command(flatten)]
    pub(crate) assemble: AssembleArguments,

    /// First byte to read
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub(crate) offset: Size,

    /// How many bytes to read; up to the end when not given
    #[arg(long, value_name = "SIZE")]
    pub(crate) length: Option<Size>,

    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// `write`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace write '*.img' < disk.img
  echo hello | mdspace write '*.img' --offset 12345

The array is left clean. Input that would run past its end is refused.")]
pub(crate) struct WriteArguments {
    #[command(flatten)]
    pub(crate) assemble: AssembleArguments,

    /// Where in the array to write the first byte
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub(crate) offset: Size,

    /// Read from this file instead of standard input
    #[arg(long, short, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
}

/// How to reach a served array.
#[derive(Debug, Args)]
pub(crate) struct ControlArguments {
    /// The server's control socket; when just one server of yours is running, it is found by itself
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
}

/// `status`
#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    pub(crate) control: ControlArguments,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `fail` and `remove`
#[derive(Debug, Args)]
pub(crate) struct MemberOfServedArguments {
    /// The member, by the name that `status` prints
    #[arg(value_name = "MEMBER")]
    pub(crate) member: String,

    #[command(flatten)]
    pub(crate) control: ControlArguments,
}

/// `add`
#[derive(Debug, Args)]
pub(crate) struct AddArguments {
    /// The new member: a file or block device, at least as long as the array's smallest
    #[arg(value_name = "MEMBER")]
    pub(crate) member: PathBuf,

    /// Overwrite a member that belongs, or belonged, to an array
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) control: ControlArguments,
}

/// `re-add`
#[derive(Debug, Args)]
pub(crate) struct ReAddArguments {
    /// The member: a file or block device
    #[arg(value_name = "MEMBER")]
    pub(crate) member: PathBuf,

    #[command(flatten)]
    pub(crate) control: ControlArguments,
}

/// `set`
#[derive(Debug, Args)]
#[command(after_help = "\
Settings:
  bitmap         none, internal, or internal:CHUNK: the write-intent bitmap is added to the members or removed
  stripe-size    auto, or a power of two from 4K to the chunk: the unit in which stripes that change in
                 part are read and written; auto moves exactly the bytes needed
  sync-action    idle, or frozen: resync and recovery stand still, to go on from there when idle again
  sync-speed-min  bytes a second, 1 or more, on each member that a resync or recovery keeps up under load;
                 1000K at first
  sync-speed-max  none, or bytes a second, 1 or more, that it does not exceed on each member; none at first

Either all of them are changed or, when one is refused, none.")]
pub(crate) struct SetArguments {
    /// What to change, and to what
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = parse_pair)]
    pub(crate) settings: Vec<(String, String)>,

    #[command(flatten)]
    pub(crate) control: ControlArguments,
}

/// `bench`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace bench                                    eight members in memory: the engine alone
  mdspace bench --count --level 5                  what members do for each write
  mdspace bench --level 6 --member /mnt/scratch    files in a directory, removed afterwards
  mdspace bench --member /dev/loop0 --member /dev/loop1 --member /dev/loop2    OVERWRITTEN

Each figure stands beside the limit measured in the same run: the same bytes moved between the same
buffers and members without RAID.")]
pub(crate) struct BenchArguments {
    /// RAID levels, one after another
    #[arg(long, short, value_parser = parse_level, value_delimiter = ',', default_value = "0,5,6")]
    pub(crate) level: Vec<Level>,

    /// Number of members; with block devices, as many as are given
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) members: u16,

    /// Bytes of a chunk
    #[arg(long, short, value_name = "SIZE", default_value = "64K")]
    pub(crate) chunk: Size,

    /// What members are made of: `memory`, a directory for files, or block devices (several times)
    #[arg(long, value_name = "memory|DIR|DEVICE", default_value = "memory")]
    pub(crate) member: Vec<PathBuf>,

    /// Bytes of each member, where they are made for the purpose
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    pub(crate) size: Size,

    /// Requests under way at a time
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub(crate) depth: usize,

    /// Count the members' transfers for writes of many kinds, exactly, instead of measuring time
    #[arg(long)]
    pub(crate) count: bool,

    /// Seconds that each figure is measured for
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    pub(crate) seconds: f64,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `lab`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace lab                                      all of them, beside what was published
  mdspace lab e2 --json

The engine runs unchanged; the drives are models fitted to the published figures (docs/lab.md). Nothing
on this machine is touched or measured: the figures are the same everywhere and each time.")]
pub(crate) struct LabArguments {
    /// Which measurements: all, or some of those that docs/lab.md explains
    #[arg(value_name = "NAME", default_value = "all", value_parser = lab_names())]
    pub(crate) experiments: Vec<String>,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// The laboratory's experiments, and all of them.
fn lab_names() -> clap::builder::PossibleValuesParser {
    std::iter::once("all").chain(sim::lab::EXPERIMENTS.iter().map(|experiment| experiment.name)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }
}
