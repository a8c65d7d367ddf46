//! The command line: all commands, and the arguments of those that work without a server.
//!
//! It is a contract with users and scripts. A line that clap refuses ends with exit status 2, as every refusal does.

use crate::command::cli::web::WebArguments;
use crate::command::clients::arguments::{
    AddArguments, ChangeArguments, ControlArguments, IostatArguments, ListArguments, MemberOfServedArguments,
    MonitorArguments, ReAddArguments, ReplaceArguments, ScrubArguments, SetArguments, StatusArguments, StopArguments,
    Told, TopArguments, TraceArguments, WaitArguments,
};
use crate::command::measure::arguments::{BenchArguments, LabArguments};
use crate::command::opening::arguments::{AssembleArguments, MapArguments, MemberArguments, Overlay};
use crate::command::opening::members::ArrayUuid;
use crate::command::server::arguments::ServeArguments;
use crate::command::server::nbd_address::parse_loopback;
use crate::command::text::geometry::GeometryText;
use crate::command::text::level::{parse_layout, parse_level};
use crate::command::text::size::{Size, parse_member_size, parse_sensible};
use clap::{ArgAction, ArgGroup, Args, Parser, Subcommand, ValueEnum};
use format::geometry::Level;
use io::{Backend, Choice};
use std::convert::Infallible;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Linux software RAID, in user space
///
/// Creates, reads, writes and serves arrays in the format of Linux md, without the kernel's driver and
/// without root. Members are image files or block devices.
#[derive(Debug, Parser)]
#[command(name = "mdspace", version, after_help = EXAMPLES, max_term_width = 100, disable_help_flag = true)]
pub(crate) struct CommandLine {
    /// Compute parity with this kernel instead of the fastest one for this processor
    #[arg(long, global = true, hide = true, value_name = "NAME")]
    pub(crate) kernel: Option<String>,

    /// Print help; --help explains more than -h
    #[arg(long, short, global = true, action = ArgAction::Help, help_heading = GENERAL)]
    help: Option<bool>,

    /// Format of warnings on standard error: text, or one JSON object per line, with its time
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT", help_heading = GENERAL)]
    pub(crate) log: LogFormat,

    /// How members and sockets are read and written: by io_uring, by threads, or by threads where the system refuses
    /// io_uring; the environment variable MDSPACE_IO sets the default
    #[arg(long, global = true, value_enum, value_name = "BACKEND", help_heading = GENERAL)]
    pub(crate) io: Option<IoBackend>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The backend of input and output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IoBackend {
    /// io_uring if possible, otherwise threads
    Auto,
    #[value(name = "io_uring")]
    Ring,
    Threads,
}

impl IoBackend {
    pub(crate) fn choice(self) -> Choice {
        match self {
            Self::Auto => Choice::Auto,
            Self::Ring => Choice::Only(Backend::IoUring),
            Self::Threads => Choice::Only(Backend::Threads),
        }
    }
}

/// The format of warnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Human,
    Json,
}

/// The heading of options that every command has. Help shows them last.
const GENERAL: &str = "General options";

const EXAMPLES: &str = "\
Examples:
  mdspace up                                       an array in ./mdspace-data, served
  mdspace create --level 5 --size 1G a.img b.img c.img
  mdspace write a.img b.img c.img < disk.img       in any order
  mdspace serve '*.img' --nbd unix:/tmp/md.sock    quoted globs are expanded
  mdspace status --json

Exit status: 0 done; 1 the array or its data failed; 2 refused, nothing changed.";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a RAID-5 of four files in ./mdspace-data; creates it if it does not exist
    ///
    /// Run again, it continues with the same array. It prints what to do next.
    Up(UpArguments),
    /// Create an array of new or existing members
    Create(CreateArguments),
    /// Print everything on some disks: partitions, arrays, what is inside of them, and the next command
    Detect(DetectArguments),
    /// Print the metadata of each member, and whether the members agree
    Examine(ExamineArguments),
    /// Serve an array over NBD, vhost-user, FUSE or ublk until interrupted
    Serve(ServeArguments),
    /// Copy an array's bytes to standard output or a file, with no server
    Read(ReadArguments),
    /// Copy standard input or a file into an array, with no server
    Write(WriteArguments),
    /// List all served arrays: state, members, health, and what is under way
    List(ListArguments),
    /// Print the state of a served array and of its members
    Status(StatusArguments),
    /// Wait until a served array is in sync, clean, healthy, or no longer served
    Wait(WaitArguments),
    /// Show the load of a served array's members, in the columns of iostat -x
    Iostat(IostatArguments),
    /// Show a served array on the terminal, live: members, sweeps, rates, latencies
    Top(TopArguments),
    /// Report events of served arrays to a program, a mail command or a webhook
    Monitor(MonitorArguments),
    /// Show all served arrays on a page in the browser
    Web(WebArguments),
    /// Print each transfer of a member when it ends, with its reason
    Trace(TraceArguments),
    /// Mark a member of a served array as faulty
    Fail(MemberOfServedArguments),
    /// Remove a faulty or spare member from a served array
    Remove(MemberOfServedArguments),
    /// Add a member to a served array: it is rebuilt if a slot is empty, and a spare otherwise
    Add(AddArguments),
    /// Take back a removed member; with a bitmap it gets only the writes that it missed
    ReAdd(ReAddArguments),
    /// Replace a member of a served array by another, while it stays in use
    Replace(ReplaceArguments),
    /// Change settings of a served array
    Set(SetArguments),
    /// Grow an array in place: use more of each member, or more copies
    ///
    /// Without members: the served array, which stays in use. With members: an array that is not served.
    Grow(GrowArguments),
    /// Compare all copies and parity, name the wrong member, and repair it with --repair
    ///
    /// Without members: the served array, which stays in use. With members: an array that is not served.
    Scrub(ScrubArguments),
    /// Name the files that some bytes, the findings of a scrub or the holes of a map hit
    ///
    /// Without members: the findings that a served array keeps. It only reads.
    Locate(LocateArguments),
    /// Stop a served array: finish its requests, mark it clean, end its server
    Stop(StopArguments),
    /// Change the uuid or name of an array that is not served, or remove its bad-block logs
    Update(UpdateArguments),
    /// Print, discard or commit what commands with --overlay wrote
    Overlay(OverlayArguments),
    /// Remove md superblocks from members that are not in use
    Wipe(WipeArguments),
    /// Print the served arrays in the lines of /proc/mdstat
    Mdstat,
    /// Take mdadm's own arguments, and print what mdadm prints; the same when called by the name mdadm
    #[command(disable_help_flag = true)]
    Mdadm(MdadmArguments),
    /// Measure this machine: the engine beside the same members without RAID
    Bench(BenchArguments),
    /// Repeat published measurements of software RAID, on modelled drives in virtual time
    Lab(LabArguments),
    /// Write man pages and shell completions, for packages
    #[command(hide = true)]
    Generate(GenerateArguments),
}

/// `mdadm`
#[derive(Debug, Args)]
pub(crate) struct MdadmArguments {
    /// In place of this program's own --help and -h, which are mdadm's words here
    #[arg(id = "help", long = "help-here", hide = true, action = ArgAction::Help)]
    help_here: Option<bool>,

    /// mdadm's arguments; `mdspace mdadm --help` shows them
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}

/// `up`
#[derive(Debug, Args)]
pub(crate) struct UpArguments {
    /// Serve the page, metrics and read-only control over HTTP on this loopback address, instead of a free port of
    /// 127.0.0.1
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_loopback)]
    pub(crate) http: Option<SocketAddr>,

    /// Print the array's status as JSON, in one line, once clients can connect, instead of what to type next
    #[arg(long)]
    pub(crate) json: bool,
}

/// `create`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace create --level 5 --size 1G a.img b.img c.img d.img
  mdspace create --level 6 --chunk 64K --layout ls --name data /dev/sd[b-g]
  mdspace create --level 1 --size 1G a.img missing
  mdspace create --level 6 --dry-run /dev/sd[b-g]     what it would be, and what the disks hold

Defaults: chunk 512K; layout left-symmetric for RAID-5 and 6, n2 for RAID-10; metadata 1.2; no bitmap, \
or an internal one if the array uses more than 100G of each member, where a resync takes hours.")]
pub(crate) struct CreateArguments {
    /// RAID level: linear, 0, 1, 4, 5, 6 or 10
    #[arg(long, short, value_parser = parse_level, required_unless_present = "geometry")]
    pub(crate) level: Option<Level>,

    /// Bytes in a chunk: a power of two, 4K or more (RAID-0: any multiple of 4K)
    #[arg(long, short, value_name = "SIZE", value_parser = parse_sensible)]
    pub(crate) chunk: Option<Size>,

    /// Layout: left-symmetric (ls), left-asymmetric, ... for RAID-5 and 6; n2, f2, o2 for RAID-10
    #[arg(long, value_name = "NAME")]
    pub(crate) layout: Option<String>,

    /// The array's name, at most 31 bytes
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// Create each MEMBER that does not exist as a sparse file of this size
    #[arg(long, value_name = "SIZE", value_parser = parse_member_size)]
    pub(crate) size: Option<Size>,

    /// Bytes to use of each member, instead of all that the smallest one has: room for a later, smaller one. mdadm
    /// calls this --size
    #[arg(long, value_name = "SIZE", value_parser = parse_member_size, conflicts_with = "geometry")]
    pub(crate) component_size: Option<Size>,

    /// Check everything, and print what would be created and lost; nothing is changed
    #[arg(long, conflicts_with = "overlay")]
    pub(crate) dry_run: bool,

    /// A spare member; may be given several times
    #[arg(long, value_name = "MEMBER", help_heading = "Members")]
    pub(crate) spare: Vec<PathBuf>,

    /// This one of the members is read only where no other can serve: a slow or distant copy (RAID-1); may be given
    /// several times
    #[arg(long, value_name = "MEMBER", help_heading = "Members")]
    pub(crate) write_mostly: Vec<PathBuf>,

    /// The kernel's md is to fail this member's requests fast, in place of repeating them (RAID-1 and RAID-10); may be
    /// given several times. mdspace repeats none
    #[arg(long, value_name = "MEMBER", help_heading = "Members")]
    pub(crate) failfast: Vec<PathBuf>,

    /// Version of the superblock, which also decides its place on the member
    #[arg(long, value_enum, default_value_t = Metadata::V1_2, value_name = "VERSION", help_heading = "Metadata and logs")]
    pub(crate) metadata: Metadata,

    /// The array's uuid, in place of a random one: 32 hexadecimal digits, as in mdadm.conf
    #[arg(long, value_parser = parse_new_uuid, help_heading = "Metadata and logs")]
    pub(crate) uuid: Option<NewUuid>,

    /// The number of the array's device, 5 of /dev/md5, which metadata 0.90 has in place of a name
    #[arg(long, value_name = "NUMBER", help_heading = "Metadata and logs")]
    pub(crate) preferred_minor: Option<u32>,

    /// Where data begins on each member, instead of the usual offset
    #[arg(long, value_name = "SIZE", value_parser = parse_sensible, help_heading = "Metadata and logs")]
    pub(crate) data_offset: Option<Size>,

    /// Bytes in a logical block of the array: 512 to 4096. The kernel's md needs Linux 6.19 for such an array
    #[arg(long, value_name = "SIZE", help_heading = "Metadata and logs")]
    pub(crate) logical_block_size: Option<Size>,

    /// The write-intent bitmap: on every member (internal), one that also names what was never written, so that nothing is
    /// zeroed or resynced first (lockless; for md: Linux 6.18 or newer), in a new file beside them, or none
    #[arg(long, value_parser = parse_bitmap, value_name = "internal|lockless|none|./FILE", help_heading = "Metadata and logs")]
    pub(crate) bitmap: Option<Bitmap>,

    /// Bytes for each bit of the bitmap: a power of two from 4K to 2G
    #[arg(long, value_name = "SIZE", value_parser = parse_sensible, help_heading = "Metadata and logs")]
    pub(crate) bitmap_chunk: Option<Size>,

    /// Seconds that a bit of the bitmap stays set after the last write to its range [default: 5, as in md]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    #[arg(help_heading = "Metadata and logs")]
    pub(crate) bitmap_delay: Option<u32>,

    /// Writes that the kernel's md may leave outstanding on write-mostly members (RAID-1 with a bitmap, which records it).
    /// mdspace waits for every member
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=16_383))]
    #[arg(help_heading = "Metadata and logs")]
    pub(crate) write_behind: Option<u32>,

    /// What keeps copies and parity in agreement after a loss of power: a resync of everything, the write-intent bitmap,
    /// or a log, which also protects what missing members held
    #[arg(long, value_enum, value_name = "POLICY", help_heading = "Metadata and logs")]
    pub(crate) consistency_policy: Option<ConsistencyPolicy>,

    /// Keep a write journal on this device: levels 4, 5 and 6. It also protects what missing members held
    #[arg(long, value_name = "DEVICE", help_heading = "Metadata and logs")]
    pub(crate) write_journal: Option<PathBuf>,

    /// The shape of an array whose superblocks are lost: level, layout, chunk, offset, size and order in one text, as
    /// for `read`, which tries it without writing. With --assume-clean
    #[arg(long, value_name = "TEXT", requires = "assume_clean", conflicts_with_all = [
        "level", "chunk", "layout", "size", "data_offset", "spare", "integrity", "write_journal",
    ], help_heading = "Members")]
    pub(crate) geometry: Option<GeometryText>,

    /// Assume that copies and parity agree already; they are not computed
    #[arg(long, help_heading = "Members")]
    pub(crate) assume_clean: bool,

    /// Do not wait until copies and parity agree: `serve` goes on with that while the array is in use, as md does
    #[arg(long, conflicts_with = "assume_clean", help_heading = "Members")]
    pub(crate) resync_later: bool,

    /// Keep a checksum of every 4 KiB of every member, so that reads detect and repair corrupt blocks
    #[arg(long)]
    pub(crate) integrity: bool,

    /// Overwrite members that belong to another array, or hold a file system or other data
    #[arg(long, help_heading = "Members")]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) overlay: Overlay,

    /// The members in the order of their slots; the word `missing` leaves a slot empty
    #[arg(value_name = "MEMBER", required_unless_present = "geometry")]
    pub(crate) members: Vec<OsString>,

    #[command(flatten)]
    pub(crate) told: Told,
}

impl CreateArguments {
    /// The code of the layout, if the user chose one.
    pub(crate) fn layout_code(&self) -> Result<Option<u32>, String> {
        match &self.geometry {
            Some(geometry) => Ok(geometry.layout),
            None => self.layout.as_deref().map(|name| parse_layout(self.level(), name)).transpose(),
        }
    }

    /// The level.
    pub(crate) fn level(&self) -> Level {
        self.geometry.as_ref().map(|geometry| geometry.level).or(self.level).expect("one of them is required")
    }
}

/// Superblock versions that `create` can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Metadata {
    /// At the member's end: for kernels and boot loaders that know no other. At most 27 members, of less than 4T
    #[value(name = "0.90", alias = "0")]
    V0_90,
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

/// Consistency policies that `create` can choose, by mdadm's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConsistencyPolicy {
    /// Neither bitmap nor log
    Resync,
    /// A write-intent bitmap on every member
    Bitmap,
    /// A partial parity log on every member (RAID-5)
    Ppl,
    /// A stripe log on every member, which md ignores (RAID-4, 5 and 6), beside a bitmap
    Log,
}

/// Kinds of write-intent bitmap that `create` can make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Bitmap {
    /// On every member, beside the superblock
    Internal,
    /// On every member, with a state of each chunk in place of a bit
    Lockless,
    /// In a file of its own
    File(PathBuf),
    /// No bitmap
    None,
}

/// As in mdadm, a file is a word with a slash.
fn parse_bitmap(text: &str) -> Result<Bitmap, String> {
    match text {
        "internal" => Ok(Bitmap::Internal),
        "lockless" => Ok(Bitmap::Lockless),
        "none" => Ok(Bitmap::None),
        file if file.contains('/') => Ok(Bitmap::File(file.into())),
        _ => Err("expected internal, lockless, none or a file's path with a slash in it".to_owned()),
    }
}

/// `detect`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace detect /dev/sd[b-e]
  mdspace detect disk?.img
  mdspace detect images/

It reads only, also members that are in use. Exit status 1: an array that was found cannot be started.")]
pub(crate) struct DetectArguments {
    /// The disks, in any order: image files, block devices, quoted globs, directories
    #[arg(value_name = "DISK", required = true)]
    pub(crate) disks: Vec<OsString>,

    #[command(flatten)]
    pub(crate) maps: MapArguments,

    /// Superblocks are lost: find level, layout, chunk, order and data offset from the file system inside (ext4, XFS,
    /// Btrfs). DISKs are the array's members, in any order; one may be missing or stale
    #[arg(long)]
    pub(crate) search: bool,

    /// Bytes to read for --search; of longer disks the start and samples
    #[arg(long, value_name = "SIZE", default_value = "4G", requires = "search")]
    pub(crate) search_bytes: Size,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `examine`
#[derive(Debug, Args)]
pub(crate) struct ExamineArguments {
    #[command(flatten)]
    pub(crate) members: MemberArguments,

    #[command(flatten)]
    pub(crate) maps: MapArguments,

    #[command(flatten)]
    pub(crate) overlay: Overlay,

    /// Print only ARRAY lines for mdadm.conf
    #[arg(long, conflicts_with = "json")]
    pub(crate) scan: bool,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `read`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace read '*.img' > disk.img
  mdspace read '*.img' --offset 1G --length 4096 | xxd
  mdspace read disk?.img --name data --inner vg1/files --output files.img")]
pub(crate) struct ReadArguments {
    #[command(flatten)]
    pub(crate) assemble: AssembleArguments,

    /// First byte to read, of the array or of what --inner names
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub(crate) offset: Size,

    /// Number of bytes to read; without it, up to the end
    #[arg(long, value_name = "SIZE")]
    pub(crate) length: Option<Size>,

    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Read only what has this name inside of the array: a partition (its number), a logical volume of LVM
    /// (GROUP/VOLUME), or an array. The members may be of several arrays then
    #[arg(long, value_name = "NAME")]
    pub(crate) inner: Option<String>,

    /// Continue behind unreadable ranges, down to single sectors: they become zeros, each is named, and the exit status
    /// is 1
    #[arg(long)]
    pub(crate) salvage: bool,

    /// Keep a map of what was read, in ddrescue's format, in this file; the same command continues an interrupted or
    /// incomplete copy by it. With --salvage and --output
    #[arg(long, value_name = "MAPFILE", requires_all = ["salvage", "output"])]
    pub(crate) map_out: Option<PathBuf>,

    /// Name the files that lost bytes hit: by debugfs in ext2 to ext4; otherwise print the command that does. With
    /// --salvage and --output
    #[arg(long, requires_all = ["salvage", "output"])]
    pub(crate) name_files: bool,

    /// Overwrite FILE even if it holds data
    #[arg(long, requires = "output")]
    pub(crate) overwrite: bool,

    /// Print the range read, and the array's status, as JSON (docs/json.md); with --output
    #[arg(long)]
    pub(crate) json: bool,
}

/// `write`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace write '*.img' < disk.img
  echo hello | mdspace write '*.img' --offset 12345

The array is clean afterwards. Input that would run past its end is refused.")]
pub(crate) struct WriteArguments {
    #[command(flatten)]
    pub(crate) assemble: AssembleArguments,

    /// Position in the array of the first byte
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub(crate) offset: Size,

    /// Read from this file instead of standard input
    #[arg(long, short, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,

    /// Print the range written, and the array's status afterwards, as JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `grow`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace grow --size max                          the served array, after its members were enlarged
  mdspace grow --raid-devices 3                    RAID-1: a third copy, for `mdspace add` or a spare
  mdspace grow a.img b.img c.img --size 20G        an array that is not served
  mdspace grow a.img b.img c.img --size 10G --shrink   less of each member; data behind that is lost
  mdspace grow a.img b.img c.img --raid-devices 4 --add d.img    RAID-5: a fourth member, by a reshape

The server that runs now or next (`mdspace serve` or the kernel's md) resyncs the added space. `status` shows the \
progress, and the array can be used meanwhile. --shrink makes an array smaller, only while it is not served: make \
the file system on it smaller first. A reshape moves all data, and the array is not served meanwhile. It may be stopped \
at any moment: --continue, or the kernel's md, goes on with it. \
NBD clients see the new size when they reconnect, clients of other exports when the server is restarted.")]
pub(crate) struct GrowArguments {
    /// The members of an array that is not served, in any order; without them, the served array
    #[arg(value_name = "MEMBER", conflicts_with = "array")]
    pub(crate) members: Vec<OsString>,

    /// Take only members of the array with this UUID, and skip everything else
    #[arg(long, value_name = "UUID", requires = "members")]
    pub(crate) uuid: Option<ArrayUuid>,

    /// Bytes to use of each member, rounded down to chunks; max: all that every member has
    #[arg(long, value_name = "max|SIZE", value_parser = parse_component,
          required_unless_present_any = ["raid_devices", "goes_on"])]
    pub(crate) size: Option<NewSize>,

    /// Use less of each member than now: data behind the array's new end is lost
    #[arg(long, requires = "members", requires = "size")]
    pub(crate) shrink: bool,

    /// Number of copies in a RAID-1: more, which the server fills, or fewer, if enough slots are empty. Of members in a
    /// RAID-4, 5 or 6 that is not served: more, by a reshape
    #[arg(long, value_name = "N", conflicts_with = "size")]
    pub(crate) raid_devices: Option<u16>,

    /// A new member for a reshape to more members; spares of the array are named with its members
    #[arg(long, value_name = "NEW", requires = "members", requires = "raid_devices")]
    pub(crate) add: Vec<OsString>,

    /// Go on with a reshape to more members that was interrupted, here or with the driver
    #[arg(long = "continue", requires = "members", conflicts_with_all = ["size", "raid_devices"])]
    pub(crate) goes_on: bool,

    /// Take new members whatever they hold; with --continue, go on without members that are missing
    #[arg(long, requires = "members")]
    pub(crate) force: bool,

    /// Say what a reshape would do, and change nothing
    #[arg(long, requires = "members", requires = "raid_devices")]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) overlay: Overlay,

    #[command(flatten)]
    pub(crate) change: ChangeArguments,
}

/// How much of each member to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewSize {
    /// As much as every member has
    Max,
    /// This number of bytes
    Bytes(Size),
}

fn parse_component(text: &str) -> Result<NewSize, String> {
    if text == "max" { Ok(NewSize::Max) } else { parse_member_size(text).map(NewSize::Bytes) }
}

/// `locate`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace scrub --json '*.img' > found; mdspace locate '*.img' --findings found
  mdspace locate '*.img' --offset 5G --length 64K      what these bytes of the array are
  mdspace locate disk?.img --name data --offset 5G     of one array of several, through LVM
  mdspace locate disk?.img --inner vg1/files --findings part.map   holes of `read --inner vg1/files --map-out`
  mdspace locate                                       what the last scrub of the served array found

It reads ext2 to ext4, XFS and Btrfs, in the array itself, its partitions, and LVM's volumes, and writes nothing. \
A degraded or damaged array is read as far as it can be.

Exit status 1: something could not be told, because what says so cannot be read.")]
pub(crate) struct LocateArguments {
    /// The members of the array, in any order, as for `read`; whole disks may have other arrays too. Without them, the
    /// served array
    #[arg(value_name = "MEMBER", conflicts_with = "array")]
    pub(crate) members: Vec<OsString>,

    /// The bytes are of the array with this UUID
    #[arg(long, value_name = "UUID", requires = "members")]
    pub(crate) uuid: Option<ArrayUuid>,

    /// The bytes are of the array with this name, with or without its host
    #[arg(long, requires = "members", conflicts_with = "uuid")]
    pub(crate) name: Option<String>,

    /// The bytes are of what has this name inside of the array: a partition (its number), a logical volume of LVM
    /// (GROUP/VOLUME), or an array
    #[arg(long, value_name = "NAME", conflicts_with = "geometry")]
    pub(crate) inner: Option<String>,

    /// The first byte; with a map, where its copy begins
    #[arg(long, value_name = "SIZE")]
    pub(crate) offset: Option<Size>,

    /// Number of bytes; without it, one
    #[arg(long, value_name = "SIZE", requires = "offset", conflicts_with = "findings")]
    pub(crate) length: Option<Size>,

    /// The output of `scrub --json`, or a map of ddrescue or `read --map-out`, whose unfinished parts are taken; `-` is
    /// standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) findings: Option<PathBuf>,

    /// How the array was put together, where superblocks are lost or wrong, as for `read`
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["array", "uuid", "name", "overlay"])]
    pub(crate) geometry: Option<GeometryText>,

    #[command(flatten)]
    pub(crate) maps: MapArguments,

    /// Look at the members as commands with --overlay left them in this directory
    #[arg(long, value_name = "DIR", requires = "members")]
    pub(crate) overlay: Option<PathBuf>,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) control: ControlArguments,
}

/// `update`
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("changes").args(["uuid", "name", "homehost", "no_bad_block_log", "clear_logical_block_size",
    "resync", "preferred_minor", "write_journal", "metadata", "byteorder"]).required(true).multiple(true)))]
#[command(after_help = "\
Examples:
  mdspace update --name data a.img b.img c.img
  mdspace update --uuid random '/dev/sd[b-d]'      after copying an array's disks: the copy gets its own uuid
  mdspace update --homehost $(hostname) '*.img'
  mdspace update --metadata 1.0 '/dev/sd[b-d]1'    an array of metadata 0.90: its data stays where it is
  mdspace update --byteorder '/dev/sd[b-d]1'       an array that a big-endian machine made
  mdspace update --clear-logical-block-size '*.img' before an older kernel is to take the array
  mdspace update --write-journal /dev/nvme0n1p3 '/dev/sd[b-e]'
  mdspace update --write-journal none '/dev/sd[b-e]' /dev/nvme0n1p3

Give all current members, and with --metadata the spares. Only superblocks, the bitmap's with --uuid, and a new \
journal are written. If the command is \
interrupted, repeat it; with --uuid, with the same new UUID.")]
pub(crate) struct UpdateArguments {
    /// The members of an array that is not served, in any order; a disk stands for the members in its partitions
    #[arg(value_name = "MEMBER", required = true)]
    pub(crate) members: Vec<OsString>,

    /// The array's new UUID; not for arrays with checksums, a journal or a partial parity log
    #[arg(long, value_name = "random|UUID", value_parser = parse_new_uuid)]
    pub(crate) uuid: Option<NewUuid>,

    /// The array's new name, at most 31 bytes; not for metadata 0.90
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// The part of its name before the colon: the host that it belongs to
    #[arg(long, value_name = "HOST")]
    pub(crate) homehost: Option<String>,

    /// Remove the members' bad-block logs, if they are empty
    #[arg(long)]
    pub(crate) no_bad_block_log: bool,

    /// Remove the record of the array's logical block, so that a kernel before 6.19 takes the array
    #[arg(long)]
    pub(crate) clear_logical_block_size: bool,

    /// Mark everything for a resync, which `serve` then does: all members must be there, and the array has no bitmap or log
    #[arg(long)]
    pub(crate) resync: bool,

    /// The number of the array's device, 5 of /dev/md5; only for metadata 0.90
    #[arg(long, value_name = "NUMBER")]
    pub(crate) preferred_minor: Option<u32>,

    /// Keep a write journal on this device from now on: levels 4, 5 and 6, without a bitmap or another log. Or give it up:
    /// `none`, with the journal among the members, or with --force if it is lost
    #[arg(
        long,
        value_name = "DEVICE|none",
        value_parser = parse_new_journal,
        conflicts_with_all = [
            "uuid", "name", "homehost", "no_bad_block_log", "clear_logical_block_size", "resync", "preferred_minor",
        ]
    )]
    pub(crate) write_journal: Option<NewJournal>,

    /// Turn metadata 0.90 into 1.0, with the data where it is: the array must be clean, without a bitmap
    #[arg(
        long,
        value_name = "1.0",
        conflicts_with_all = [
            "uuid", "name", "homehost", "no_bad_block_log", "clear_logical_block_size", "resync", "preferred_minor",
            "write_journal", "byteorder",
        ]
    )]
    pub(crate) metadata: Option<NewMetadata>,

    /// Write superblocks 0.90 of the other byte order in this machine's, without their bitmap, so that its md takes them
    #[arg(
        long,
        conflicts_with_all = [
            "uuid", "name", "homehost", "no_bad_block_log", "clear_logical_block_size", "resync", "preferred_minor",
            "write_journal",
        ]
    )]
    pub(crate) byteorder: bool,

    /// With --write-journal: overwrite what the device holds; or accept that writes are lost with the old journal. With
    /// --metadata: overwrite what is in the place of the new superblocks
    #[arg(long, conflicts_with_all = [
        "uuid", "name", "homehost", "no_bad_block_log", "clear_logical_block_size", "resync", "preferred_minor", "byteorder",
    ])]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) overlay: Overlay,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// The metadata that an array is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NewMetadata {
    /// Behind the data, as 0.90 is
    #[value(name = "1.0")]
    V1_0,
}

/// A new uuid of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewUuid {
    /// Any
    Random,
    /// This one
    Given(ArrayUuid),
}

/// The write journal that an array is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NewJournal {
    None,
    /// On this device
    Device(PathBuf),
}

fn parse_new_journal(text: &str) -> Result<NewJournal, Infallible> {
    Ok(if text == "none" { NewJournal::None } else { NewJournal::Device(text.into()) })
}

fn parse_new_uuid(text: &str) -> Result<NewUuid, String> {
    if text == "random" {
        return Ok(NewUuid::Random);
    }
    match text.parse()? {
        ArrayUuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]) => Err("all zeros stand for no uuid".to_owned()),
        uuid => Ok(NewUuid::Given(uuid)),
    }
}

/// `wipe`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace wipe --dry-run /dev/sdb1     what is on it, and whether --force is needed
  mdspace wipe /dev/sdb1               a spare
  mdspace wipe --force a.img b.img     all that is left of an array

Superblocks of every version (0.90, 1.0, 1.1, 1.2) are overwritten with zeros, and nothing else is written. A \
member in use is refused.

mdadm asks nothing. Here --force is needed for a member that has a slot in its array, and for a superblock that \
is damaged or cannot be read. If one of several members is refused, none is changed.")]
pub(crate) struct WipeArguments {
    /// The members: files or block devices
    #[arg(value_name = "MEMBER", required = true)]
    pub(crate) members: Vec<OsString>,

    /// Print what would be removed, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Also remove superblocks of members with a slot, and damaged ones
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) overlay: Overlay,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `overlay`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace serve '*.img' --force --overlay try      what --force and fsck would do, with the members as they are
  mdspace overlay show try                         which bytes and which fields of superblocks would change
  mdspace overlay discard try
  mdspace overlay commit try                       write the changes to the members, and remove the overlay

A member that was changed since its overlay was made is refused. A commit that was interrupted is repeated: until it is \
complete, the members have no superblocks, so that they cannot be taken for an array.")]
pub(crate) struct OverlayArguments {
    /// What to do with it
    #[arg(value_enum, value_name = "show|discard|commit", hide_possible_values = true)]
    pub(crate) action: OverlayAction,

    /// The directory that was given to --overlay
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to do with an overlay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OverlayAction {
    /// Print what it would change
    Show,
    /// Remove it
    Discard,
    /// Write its changes to the members, and remove it
    Commit,
}

/// `generate`
#[derive(Debug, Args)]
pub(crate) struct GenerateArguments {
    /// Where to create the directories `man1` and `completions`
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::server::settings::{SETTINGS, Setting};
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn the_help_names_every_setting_and_its_values() {
        let mut line = CommandLine::command();
        let set = line.find_subcommand_mut("set").expect("there is such a command");
        let help = set.render_long_help().to_string();
        for Setting { key, values, .. } in SETTINGS {
            let below = help.lines().skip_while(|line| line.trim() != key).nth(1);
            assert!(below.is_some_and(|line| line.contains(values)), "{key}: {help}");
        }
    }
}
