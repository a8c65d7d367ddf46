//! The command line: names, flags and the help that explains them.
//!
//! A contract with its users and with scripts: `docs/tour.md` walks through
//! it. What clap refuses ends with exit status 2, as every refusal does.

mod measuring;

pub(crate) use measuring::{BenchArguments, GenerateArguments, LabArguments};

use crate::command::failure::Failure;
use crate::command::interval::parse_seconds;
use crate::command::level::{parse_layout, parse_level};
use crate::command::mdadm_conf::Config;
use crate::command::members::{ArrayChoice, ArrayUuid};
use crate::command::nbd_address::{NbdAddress, parse_loopback};
use crate::command::settings::{parse_pair, parse_stripe_size};
use crate::command::size::Size;
use clap::{Args, Parser, Subcommand, ValueEnum};
use engine::StripeSize;
use format::geometry::Level;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU16;
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

    /// How warnings are written to standard error: for people, or as a JSON object in a line each, with its time
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log: LogFormat,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How warnings are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Human,
    Json,
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
    Up(UpArguments),
    /// Make an array of new or existing members
    Create(CreateArguments),
    /// Print what is written on each member, and whether the members agree
    Examine(ExamineArguments),
    /// Serve an array over NBD, vhost-user, FUSE or ublk until interrupted
    Serve(ServeArguments),
    /// Copy an array's bytes to standard output or a file, with no server
    Read(ReadArguments),
    /// Copy standard input or a file into an array, with no server
    Write(WriteArguments),
    /// Print the state of a served array and of its members
    Status(StatusArguments),
    /// Show what the members of a served array do, in the columns of iostat -x
    Iostat(IostatArguments),
    /// Show a served array on the terminal, live: members, sweeps, rates, latencies
    Top(TopArguments),
    /// Tell a program, a mail command or a webhook what happens to a served array
    Monitor(MonitorArguments),
    /// Print each transfer of a member as it ends, and why it was made
    Trace(TraceArguments),
    /// Mark a member of a served array as faulty
    Fail(MemberOfServedArguments),
    /// Take a faulty or spare member out of a served array
    Remove(MemberOfServedArguments),
    /// Add a member to a served array: it is recovered if a slot is empty, and a spare otherwise
    Add(AddArguments),
    /// Take back a member that was away; it gets only what was written meanwhile, by the bitmap
    ReAdd(ReAddArguments),
    /// Replace a member of a served array by another, while it stays in use
    Replace(ReplaceArguments),
    /// Change settings of a served array while it works
    Set(SetArguments),
    /// Make an array larger where it stands: more of each member, or more copies
    ///
    /// Without members: the served array, which goes on being used. With members: one that is not served.
    Grow(GrowArguments),
    /// Compare all copies and parity, say which member is wrong, and with --repair make it right
    ///
    /// Without members: of a served array, which goes on being used. With members: of one that is not served.
    Scrub(ScrubArguments),
    /// Stop a served array: finish what was begun, mark it clean, end its server
    Stop(StopArguments),
    /// Measure this machine: the engine against its own members without RAID
    Bench(BenchArguments),
    /// Make published measurements of software RAID again, on modelled drives in virtual time
    Lab(LabArguments),
    /// Write man pages and shell completions, for packages of the command
    #[command(hide = true)]
    Generate(GenerateArguments),
}

/// Members of an array that exists.
#[derive(Debug, Args)]
pub(crate) struct MemberArguments {
    /// The members, in any order: image files, block devices, quoted globs; for `examine`, or with --uuid or --name, directories
    #[arg(value_name = "MEMBER", required = true)]
    pub(crate) members: Vec<OsString>,

    /// Take only members of the array with this UUID, and pass over everything else
    #[arg(long, value_name = "UUID")]
    pub(crate) uuid: Option<ArrayUuid>,

    /// Take only members of the array with this name, with or without its host, and pass over everything else
    #[arg(long, conflicts_with = "uuid")]
    pub(crate) name: Option<String>,
}

impl MemberArguments {
    /// Which array's members count, where that was said.
    pub(crate) fn choice(&self) -> Option<ArrayChoice> {
        self.uuid.map(ArrayChoice::Uuid).or_else(|| self.name.clone().map(ArrayChoice::Name))
    }
}

/// Members of an array that is going to be started.
#[derive(Debug, Args)]
pub(crate) struct AssembleArguments {
    /// The members, in any order: image files, block devices, quoted globs, and with --uuid or --name directories
    #[arg(value_name = "MEMBER", required_unless_present = "scan")]
    members: Vec<OsString>,

    /// Take only members of the array with this UUID, and pass over everything else
    #[arg(long, value_name = "UUID", conflicts_with = "scan")]
    uuid: Option<ArrayUuid>,

    /// Take only members of the array with this name, with or without its host, and pass over everything else
    #[arg(long, conflicts_with_all = ["scan", "uuid"])]
    name: Option<String>,

    /// Take the array of an ARRAY line of mdadm.conf, which MEMBER then names: /dev/md/data, data, or its UUID
    #[arg(long)]
    scan: bool,

    /// The file to read instead of /etc/mdadm/mdadm.conf
    #[arg(long, value_name = "FILE", requires = "scan")]
    config: Option<PathBuf>,

    /// Take the fewest and least stale members that make an array start again, or one that is dirty and degraded; what may
    /// be lost or wrong is said. A read writes nothing
    #[arg(long)]
    pub(crate) force: bool,

    /// How a RAID-0 of members that differ in size was striped, where it does not say
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) raid0_layout: Option<Raid0Layout>,

    /// The file that holds the array's write-intent bitmap, if it is kept in one
    #[arg(long, value_name = "FILE")]
    pub(crate) bitmap: Option<PathBuf>,

    /// Read also what the members' bad-block logs say must not be read; it may be old. Never with writing
    #[arg(long)]
    pub(crate) ignore_bad_blocks: bool,
}

/// The two ways to stripe the longer members of a RAID-0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Raid0Layout {
    /// By Linux before 3.14
    Original,
    /// By Linux 3.14 or later
    Alternate,
}

impl Raid0Layout {
    /// md's number.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Original => 1,
            Self::Alternate => 2,
        }
    }
}

/// `up`
#[derive(Debug, Args)]
pub(crate) struct UpArguments {
    /// Print the array's status as JSON, in a line, once clients can connect, instead of what to type next
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

Defaults: chunk 512K; layout left-symmetric for RAID-5 and 6, n2 for RAID-10; metadata 1.2; no bitmap,
or an internal one where more than 100G of each member is used and a resync would take hours.")]
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

    /// The array's name, at most 31 bytes
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

    /// Bytes in a logical block of the array: 512 to 4096. The kernel's md takes such an array from Linux 6.19 on
    #[arg(long, value_name = "SIZE")]
    pub(crate) logical_block_size: Option<Size>,

    /// The write-intent bitmap: on every member (internal), in a new file beside them, or none
    #[arg(long, value_parser = parse_bitmap, value_name = "internal|none|./FILE")]
    pub(crate) bitmap: Option<Bitmap>,

    /// Bytes that one bit of the bitmap stands for: a power of two from 4K to 2G
    #[arg(long, value_name = "SIZE")]
    pub(crate) bitmap_chunk: Option<Size>,

    /// Take the members as consistent; parity and copies are not computed
    #[arg(long)]
    pub(crate) assume_clean: bool,

    /// Keep a checksum of every 4 KiB of every member, so that a block that went wrong is noticed and mended
    #[arg(long)]
    pub(crate) integrity: bool,

    /// Overwrite members that belong to another array, or hold a file system or anything else that may be somebody's
    #[arg(long)]
    pub(crate) force: bool,

    /// The members in the order of their slots; the word `missing` leaves a slot empty
    #[arg(value_name = "MEMBER", required = true)]
    pub(crate) members: Vec<OsString>,

    #[command(flatten)]
    pub(crate) told: Told,
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

impl AssembleArguments {
    /// Members, and the file with their bitmap, as they are given or as mdadm.conf has them.
    pub(crate) fn resolve(&self) -> Result<(MemberArguments, Option<PathBuf>), Failure> {
        if !self.scan {
            let (members, name) = (self.members.clone(), self.name.clone());
            return Ok((MemberArguments { members, uuid: self.uuid, name }, self.bitmap.clone()));
        }
        let wanted = match &self.members[..] {
            [] => None,
            [one] => Some(one.to_string_lossy()),
            _ => return Err(Failure::refused("--scan takes one array").advise("run one server for each array")),
        };
        let config = Config::read(self.config.as_deref())?;
        let line = config.array(wanted.as_deref())?;
        let members = MemberArguments { members: config.places(line), uuid: line.uuid, name: None };
        Ok((members, self.bitmap.clone().or_else(|| line.bitmap.clone())))
    }
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

    /// Print ARRAY lines for mdadm.conf, and nothing else
    #[arg(long, conflicts_with = "json")]
    pub(crate) scan: bool,

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
  mdspace serve '*.img' --nbd tcp:192.0.2.7:10809 --tls require --tls-certificates keys --tls-verify-peer
  mdspace serve '*.img' --vhost-user /run/vm.sock     also as a virtual machine's disk
  mdspace serve --uuid 3b1c...  /dev/disk/by-id       members found by the array's UUID
  mdspace serve --scan data                           the array that mdadm.conf calls /dev/md/data

SIGINT and SIGTERM finish what was begun, mark the array clean and end the server.")]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) assemble: AssembleArguments,

    /// Where NBD clients connect: unix:PATH or tcp:HOST:PORT; without --tls=require on this machine alone
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) nbd: Option<NbdAddress>,

    #[command(flatten)]
    pub(crate) ways: WayArguments,

    /// The control socket, which `status` and the others talk to
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,

    /// Also serve control, metrics and JSON by HTTP on this loopback address, such as 127.0.0.1:9187
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_loopback)]
    pub(crate) http: Option<SocketAddr>,

    /// The file with the token that changes something over HTTP; without it, nothing is changed there
    #[arg(long, value_name = "FILE")]
    pub(crate) http_token_file: Option<PathBuf>,

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

    /// How many threads share the array's stripes, each with 64 MiB of locked memory of its own
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) shards: NonZeroU16,

    /// Print the array's status as JSON (docs/json.md), in one line, once clients can connect
    #[arg(long)]
    pub(crate) json: bool,
}

/// When `serve` answers a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum CacheMode {
    #[default]
    Writethrough,
    Writeback,
}

/// How clients get to a served array.
#[derive(Debug, Default, Args)]
pub(crate) struct WayArguments {
    /// Whether NBD goes through TLS: never, if the client wants it, or always
    #[cfg(feature = "tls")]
    #[arg(long, value_enum, default_value_t, requires_if("on", "tls_certificates"))]
    #[arg(requires_if("require", "tls_certificates"))]
    pub(crate) tls: TlsMode,

    /// The directory with server-cert.pem and server-key.pem, and with ca-cert.pem for --tls-verify-peer
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "DIR")]
    pub(crate) tls_certificates: Option<PathBuf>,

    /// Let in only NBD clients with a certificate that ca-cert.pem's owner signed (and ca-crl.pem does not revoke)
    #[cfg(feature = "tls")]
    #[arg(long, requires = "tls_certificates")]
    pub(crate) tls_verify_peer: bool,

    /// Serve NBD unencrypted to other machines too: whoever reaches the port reads and writes
    #[arg(long)]
    pub(crate) allow_plain_tcp: bool,

    /// Also serve a disk for a virtual machine (vhost-user-blk) on this socket; may be given several times
    #[cfg(feature = "vhost-user")]
    #[arg(long, value_name = "PATH")]
    pub(crate) vhost_user: Vec<PathBuf>,

    /// Also show the array as the file `array` in this directory, by FUSE
    #[cfg(feature = "fuse")]
    #[arg(long, value_name = "MOUNTPOINT")]
    pub(crate) fuse: Option<PathBuf>,

    /// Also make the array a block device of this machine, /dev/ublkb0 or the next, by the kernel's ublk driver; as root
    #[arg(long)]
    pub(crate) ublk: bool,
}

/// Whether NBD goes through TLS.
#[cfg(feature = "tls")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum TlsMode {
    /// Never
    #[default]
    Off,
    /// If the client wants it
    On,
    /// Always
    Require,
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

    /// Go on where the array cannot be read: zeros are written there, each place is named, and the exit status is 1
    #[arg(long)]
    pub(crate) salvage: bool,

    /// Write to FILE even though it is there already and holds data; what is there is lost
    #[arg(long, requires = "output")]
    pub(crate) overwrite: bool,

    /// Print what was read, and the array's status, as JSON (docs/json.md); with --output
    #[arg(long)]
    pub(crate) json: bool,
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

    /// Print what was written, and the array's status afterwards, as JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// How to reach a served array.
#[derive(Debug, Args)]
pub(crate) struct ControlArguments {
    /// The server's control socket; when just one server of yours is running, it is found by itself
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
}

/// How the outcome of a change is told.
#[derive(Debug, Args)]
pub(crate) struct Told {
    /// Print the array's status afterwards as JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// What every command that changes a served array takes.
#[derive(Debug, Args)]
pub(crate) struct ChangeArguments {
    #[command(flatten)]
    pub(crate) control: ControlArguments,

    #[command(flatten)]
    pub(crate) told: Told,
}

/// `stop`
#[derive(Debug, Args)]
pub(crate) struct StopArguments {
    #[command(flatten)]
    pub(crate) control: ControlArguments,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `status`
#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    pub(crate) control: ControlArguments,

    /// Go on, with a new report each so many seconds, and rates of the time between
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = parse_seconds)]
    pub(crate) watch: Option<f64>,

    /// How many reports, with --watch
    #[arg(long, value_name = "N", requires = "watch")]
    pub(crate) count: Option<u64>,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `iostat`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace iostat                    averages since the server's start
  mdspace iostat 1 5                five reports, a second apart

As with iostat -x: rates a second, times in milliseconds, sizes in kB of 1024 bytes. The first line is of the
array's own requests; aqu-sz is the mean number under way.")]
pub(crate) struct IostatArguments {
    /// Seconds between two reports; one report alone when not given
    #[arg(value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) interval: Option<f64>,

    /// How many reports; without end when not given
    #[arg(value_name = "COUNT", requires = "interval")]
    pub(crate) count: Option<u64>,

    #[command(flatten)]
    pub(crate) control: ControlArguments,

    /// Print what was measured as JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `trace`
#[derive(Debug, Args)]
#[command(after_help = "\
Columns: when it ended, in seconds since the server's start; who asked; which member; R read, W write, F flush,
D discard or Z zeroing; first sector of 512 bytes; bytes; how long it took; and why it was made:
  data         a request's own data
  parity       parity that goes with data of a part of a stripe
  stripe       a full stripe's chunks, data and parity
  rmw          read, because a write of a part of a stripe needs it for parity
  reconstruct  read, to work out what a missing member holds
  intent       the write-intent bitmap
  superblock   a superblock
  checksum     the checksums of its blocks
  sweep        a resync, a recovery or another sweep")]
pub(crate) struct TraceArguments {
    #[command(flatten)]
    pub(crate) control: ControlArguments,

    /// End after so many transfers
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,

    /// Print a JSON object for each (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `top`
#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    #[command(flatten)]
    pub(crate) control: ControlArguments,

    /// Seconds between two looks at the array
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "1")]
    pub(crate) interval: f64,
}

/// `monitor`
#[derive(Debug, Args)]
#[command(after_help = "\
Events, as mdadm --monitor names them:
  NewArray, DeviceDisappeared       it is served, or no longer
  DegradedArray                     members were missing when it was first looked at
  Fail, FailSpare, SpareActive      of a member
  RebuildStarted, Rebuild20 to Rebuild80, RebuildFinished   a resync, a recovery or another sweep
  TestMessage                       with --test

The program is called with the event, the array's name and, if it is about one, the member. The mail command
gets a letter for Fail, FailSpare, DegradedArray, DeviceDisappeared and TestMessage. A webhook gets JSON by POST.")]
pub(crate) struct MonitorArguments {
    #[command(flatten)]
    pub(crate) control: ControlArguments,

    /// Seconds between two looks at the array
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "1")]
    pub(crate) interval: f64,

    /// Run this program for each event
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) program: Option<PathBuf>,

    /// Send a letter to this address when redundancy is lost
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) mail: Option<String>,

    /// The shell command that sends a letter, which it reads from its standard input
    #[arg(long, value_name = "COMMAND", default_value = "/usr/sbin/sendmail -t")]
    pub(crate) mailer: String,

    /// Post each event as JSON to this http:// URL
    #[arg(long, value_name = "URL")]
    pub(crate) webhook: Option<String>,

    /// Look once, and end
    #[arg(long)]
    pub(crate) once: bool,

    /// Begin with a TestMessage
    #[arg(long)]
    pub(crate) test: bool,

    /// Print each event as JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `fail` and `remove`
#[derive(Debug, Args)]
pub(crate) struct MemberOfServedArguments {
    /// The member, by the name that `status` prints
    #[arg(value_name = "MEMBER")]
    pub(crate) member: OsString,

    #[command(flatten)]
    pub(crate) change: ChangeArguments,
}

/// `add`
#[derive(Debug, Args)]
pub(crate) struct AddArguments {
    /// The new member: a file or block device, at least as long as the array's smallest
    #[arg(value_name = "MEMBER")]
    pub(crate) member: PathBuf,

    /// Overwrite a member that belongs, or belonged, to an array, or holds anything else that may be somebody's
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) change: ChangeArguments,
}

/// `re-add`
#[derive(Debug, Args)]
pub(crate) struct ReAddArguments {
    /// The member: a file or block device
    #[arg(value_name = "MEMBER")]
    pub(crate) member: PathBuf,

    #[command(flatten)]
    pub(crate) change: ChangeArguments,
}

/// `replace`
#[derive(Debug, Args)]
#[command(after_help = "\
The new member gets what the old one holds, from the others only what that cannot give, and then takes its
place; until then the array is as redundant as it was. `status` shows how far it is. Failing the new one ends it.")]
pub(crate) struct ReplaceArguments {
    /// The member to be replaced, by the name that `status` prints
    #[arg(value_name = "OLD")]
    pub(crate) old: OsString,

    /// A spare of the array, or a new member: a file or block device
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,

    /// Overwrite a new member that belongs, or belonged, to an array, or holds anything else that may be somebody's
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) change: ChangeArguments,
}

/// `set`
#[derive(Debug, Args)]
#[command(after_help = "\
Settings:
  bitmap         none, internal[:CHUNK], or /FILE[:CHUNK]: the write-intent bitmap is added to the members or in
                 a new file, or removed; with a file, the array is served with --bitmap FILE from then on
  integrity      on: room for checksums is taken into use, from the next start of the array on
  max-corr-read-errors  a count: the read errors that a member may have, halved each hour, before it leaves; 20 at first
  member-timeout  none, or seconds: a member that does not answer for so long is read around, and fails if
                 it was a write or it stays silent; 30 at first
  stripe-size    auto, or a power of two from 4K to the chunk: the unit in which stripes that change in
                 part are read and written; auto moves exactly the bytes needed
  sweep-in-flight  a power of two from 4K to 64M: bytes of each member that a sweep (resync, recovery, scrub) has
                 under way at a time, and takes memory for; 8M at first
  sweep-window   auto, or a power of two from 4K to 64M: neighbouring reads of a sweep are merged up to this; auto
                 is 512K, or what members gain by, in whole chunks
  sync-action    check, repair, idle, or frozen: begin a scrub that checks or repairs; frozen: all sweeps
                 stand still; idle: a scrub is ended, and what is due goes on
  sync-speed-min  bytes a second, 1 or more, on each member that a sweep keeps up under load; 1000K at first
  sync-speed-max  none, or bytes a second, 1 or more, that it does not exceed on each member; none at first
  verify         always, or scrub: when checksums are asked, with every read or with those of sweeps alone

Either all of them are changed or, when one is refused, none.")]
pub(crate) struct SetArguments {
    /// What to change, and to what
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = parse_pair)]
    pub(crate) settings: Vec<(String, String)>,

    #[command(flatten)]
    pub(crate) change: ChangeArguments,
}

/// `grow`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace grow --size max                          the served array; its members were made longer
  mdspace grow --raid-devices 3                    RAID-1: a third copy, for `mdspace add` or a spare
  mdspace grow a.img b.img c.img --size 20G        an array that is not served
  mdspace grow a.img b.img c.img --size 10G --shrink   less of each member: what lies behind is lost

What is new has to be brought into agreement. It is begun by whoever serves the array, now or next, `mdspace serve` or
the kernel's md, and shown by `status`; the array can be used meanwhile. An array is made smaller only with --shrink,
and only while it is not served: a file system on it must be made smaller first.
Clients of NBD see the new size when they connect anew, those of other ways in when the server is started anew.")]
pub(crate) struct GrowArguments {
    /// The members of an array that is not served, in any order; none: the served array
    #[arg(value_name = "MEMBER")]
    pub(crate) members: Vec<OsString>,

    /// Take only members of the array with this UUID, and pass over everything else
    #[arg(long, value_name = "UUID", requires = "members")]
    pub(crate) uuid: Option<ArrayUuid>,

    /// Bytes to use of each member, rounded down to chunks; max: as much as all of them have
    #[arg(long, value_name = "max|SIZE", value_parser = parse_component, required_unless_present = "raid_devices")]
    pub(crate) size: Option<NewSize>,

    /// Use less of each member than now: what lies behind the array's new end is lost
    #[arg(long, requires = "members", requires = "size")]
    pub(crate) shrink: bool,

    /// Copies that a RAID-1 has: more, which are filled when the array is served, or fewer, if as many slots are empty
    #[arg(long, value_name = "N", conflicts_with = "size")]
    pub(crate) raid_devices: Option<u16>,

    #[command(flatten)]
    pub(crate) change: ChangeArguments,
}

/// How much of each member is to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewSize {
    /// As much as all have
    Max,
    /// So many bytes
    Bytes(Size),
}

fn parse_component(text: &str) -> Result<NewSize, String> {
    if text == "max" { Ok(NewSize::Max) } else { text.parse().map(NewSize::Bytes) }
}

/// `scrub`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace scrub                                    the served array: look, change nothing
  mdspace scrub --repair                           heal what is known to be wrong
  mdspace scrub --pause; mdspace scrub --resume    in another terminal
  mdspace scrub '*.img' --offset 1G --length 1G    an array that is not served, a part of it

Who is wrong is decided by the members themselves: P and Q of RAID-6 convict one member, the majority of three
copies another. What cannot be decided is reported and left as it is; --repair=parity takes md's choice there,
which is to make parity anew from the data, or to put the first copy over the others.

Exit status: 0 all agrees; 1 something was found, whether or not it was healed; 2 refused.")]
pub(crate) struct ScrubArguments {
    /// The members of an array that is not served, in any order; none: the served array
    #[arg(value_name = "MEMBER")]
    pub(crate) members: Vec<OsString>,

    /// Take only members of the array with this UUID, and pass over everything else
    #[arg(long, value_name = "UUID", requires = "members")]
    pub(crate) uuid: Option<ArrayUuid>,

    /// The file that holds the array's write-intent bitmap, if it is kept in one
    #[arg(long, value_name = "FILE", requires = "members")]
    pub(crate) bitmap: Option<PathBuf>,

    /// Heal what is decided; with =parity also rewrite what is not, as md does
    #[arg(long, value_enum, value_name = "parity", num_args = 0..=1, require_equals = true, default_missing_value = "decided")]
    pub(crate) repair: Option<RepairChoice>,

    /// First byte of the array to go over
    #[arg(long, value_name = "SIZE")]
    pub(crate) offset: Option<Size>,

    /// How many bytes to go over; up to the end when not given
    #[arg(long, value_name = "SIZE")]
    pub(crate) length: Option<Size>,

    /// With members: merge neighbouring reads up to this, instead of 512K, or what members gain by, in whole chunks
    #[arg(long, value_name = "SIZE", requires = "members")]
    pub(crate) window: Option<Size>,

    /// With members: bytes of each that are read at a time, instead of 8M
    #[arg(long, value_name = "SIZE", requires = "members")]
    pub(crate) in_flight: Option<Size>,

    /// Let the scrub of the served array stand still
    #[arg(long, group = "steering", conflicts_with_all = ["members", "repair", "offset", "length"])]
    pub(crate) pause: bool,

    /// Let it go on; with members: take up the one that was interrupted
    #[arg(long, group = "steering", conflicts_with_all = ["repair", "offset", "length"])]
    pub(crate) resume: bool,

    /// End the scrub of the served array where it is
    #[arg(long, group = "steering", conflicts_with_all = ["members", "repair", "offset", "length"])]
    pub(crate) cancel: bool,

    /// Do not wait for a served array's scrub to end
    #[arg(long, conflicts_with = "members")]
    pub(crate) no_wait: bool,

    /// Print JSON (docs/json.md), and the progress as JSON lines on standard error
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) control: ControlArguments,
}

impl AssembleArguments {
    /// These members and nothing else.
    pub(crate) fn of(members: &MemberArguments, bitmap: Option<PathBuf>) -> Self {
        let MemberArguments { members, uuid, name } = members;
        Self {
            members: members.clone(),
            uuid: *uuid,
            name: name.clone(),
            scan: false,
            config: None,
            force: false,
            raid0_layout: None,
            ignore_bad_blocks: false,
            bitmap,
        }
    }
}

/// How much is healed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RepairChoice {
    /// What is known to be wrong
    #[value(hide = true)]
    Decided,
    /// Also what is not, by md's choice
    Parity,
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
