//! Arguments of the commands that talk to a server's control socket.

use crate::command::clients::interval::parse_seconds;
use crate::command::opening::members::ArrayUuid;
use crate::command::text::size::Size;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

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

/// How much is healed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RepairChoice {
    /// What is known to be wrong
    #[value(hide = true)]
    Decided,
    /// Also what is not, by md's choice
    Parity,
}

/// `KEY=VALUE`.
fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}
