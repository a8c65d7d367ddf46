//! Arguments of the commands that talk to a server's control socket.

use crate::command::clients::choice::Wanted;
use crate::command::clients::interval::{parse_seconds, parse_timeout};
use crate::command::opening::arguments::MapArguments;
use crate::command::opening::members::ArrayUuid;
use crate::command::text::failure::Failure;
use crate::command::text::geometry::GeometryText;
use crate::command::text::size::Size;
use crate::names::name_of;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The server to talk to.
#[derive(Debug, Args)]
pub(crate) struct ControlArguments {
    /// The served array: its name, the first digits of its UUID, or one of its members; not needed while you serve
    /// only one
    #[arg(long, value_name = "ARRAY", conflicts_with = "control")]
    array: Option<OsString>,

    /// The server's control socket, instead of an array
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

impl ControlArguments {
    /// The wanted array.
    pub(crate) fn wanted(&self) -> Wanted<'_> {
        Wanted { control: self.control.as_deref(), array: self.array.as_deref(), member: None }
    }
}

/// The server to talk to, for commands whose only argument it is.
#[derive(Debug, Args)]
pub(crate) struct ArrayArguments {
    /// The same as --array
    #[arg(value_name = "ARRAY", conflicts_with_all = ["array", "control"])]
    word: Option<OsString>,

    #[command(flatten)]
    control: ControlArguments,
}

impl ArrayArguments {
    /// The wanted array.
    pub(crate) fn wanted(&self) -> Wanted<'_> {
        let wanted = self.control.wanted();
        Wanted { array: self.word.as_deref().or(wanted.array), ..wanted }
    }
}

/// How the outcome of a change is printed.
#[derive(Debug, Args)]
pub(crate) struct Told {
    /// Print the array's status afterwards as JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of every command that changes a served array.
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
    pub(crate) array: ArrayArguments,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `status`
#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    pub(crate) array: ArrayArguments,

    /// Repeat the report at this interval, with rates over the interval
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = parse_seconds)]
    pub(crate) watch: Option<f64>,

    /// Number of reports, with --watch
    #[arg(long, value_name = "N", requires = "watch")]
    pub(crate) count: Option<u64>,

    /// Name the files that the findings of the last scrub hit, as `mdspace locate` does
    #[arg(long, conflicts_with = "watch")]
    pub(crate) files: bool,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `list`
#[derive(Debug, Args)]
#[command(after_help = "\
Columns: name; first digits of the uuid; level; size; members in sync and slots, and while members are missing, how \
many more may fail; state; health; time since the last complete scrub, and the rows that it left wrong; what is \
under way, with its rate on each member. A narrow terminal gets fewer columns. COLUMNS sets the width.

Health: healthy; unsynced (a resync is due); degraded (members are missing); failed (the array takes no \
writes); silent (the server does not answer); gone (the server was killed); not served (found by --all: the other \
columns show what it would be).

Servers are found by their sockets in your runtime directory; --control adds one elsewhere.

Exit status: 0, whatever the arrays' state.")]
pub(crate) struct ListArguments {
    /// Also the server with this control socket; may be given several times
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Vec<PathBuf>,

    /// Also the arrays on disks that are not served. The disks are only read, also those in use
    #[arg(long, conflicts_with = "watch")]
    pub(crate) all: bool,

    /// Where --all looks: files, devices, directories; without them what the DEVICE lines of mdadm.conf name, or all block
    /// devices
    #[arg(value_name = "DISK", requires = "all")]
    pub(crate) disks: Vec<OsString>,

    /// Repeat the list at this interval
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = parse_seconds)]
    pub(crate) watch: Option<f64>,

    /// Number of lists, with --watch
    #[arg(long, value_name = "N", requires = "watch")]
    pub(crate) count: Option<u64>,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `wait`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace wait                      until no resync, recovery or scrub is under way
  mdspace wait data healthy --timeout 3600
  mdspace wait data gone            until its server has ended, and its members are free

An array whose name is a state is given with --array.
Exit status: 0 reached; 1 not within the timeout, or no longer possible; 2 refused.")]
pub(crate) struct WaitArguments {
    /// The same as --array
    #[arg(value_name = "ARRAY")]
    word: Option<OsString>,

    /// The state to wait for; without it, sync
    #[arg(value_name = "STATE", value_enum)]
    state: Option<WaitState>,

    #[command(flatten)]
    control: ControlArguments,

    /// Give up after this time; 0: look once
    #[arg(long, value_name = "SECONDS", value_parser = parse_timeout)]
    pub(crate) timeout: Option<Duration>,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// A state that `wait` waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitState {
    /// No resync, recovery or scrub is under way or due
    Sync,
    /// The superblocks say that everything is written: no write for a moment
    Clean,
    /// Every slot has a current member, and parity and copies agree
    Healthy,
    /// The server has ended
    Gone,
}

impl WaitArguments {
    /// The wanted array, and the state.
    pub(crate) fn wanted(&self) -> Result<(Wanted<'_>, WaitState), Failure> {
        let wanted = self.control.wanted();
        let Some(word) = self.word.as_deref() else { return Ok((wanted, WaitState::Sync)) };
        // A single word may be the state.
        let alone = word.to_str().filter(|_| self.state.is_none()).map(|word| WaitState::from_str(word, false));
        match (alone, self.state.unwrap_or(WaitState::Sync)) {
            (Some(Ok(state)), _) => Ok((wanted, state)),
            (_, _) if wanted.array.is_some() || wanted.control.is_some() => {
                let reason = format!("{}: not a state, and the array is given already", name_of(Path::new(word)));
                Err(Failure::refused(reason).advise("the states are sync, clean, healthy and gone"))
            }
            (_, state) => Ok((Wanted { array: Some(word), ..wanted }, state)),
        }
    }
}

/// `iostat`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace iostat                    averages since the server's start
  mdspace iostat 1 5                five reports, one per second

As in iostat -x: rates per second, times in milliseconds, sizes in kB of 1024 bytes. The first line shows the \
array's own requests; aqu-sz is the mean number under way.")]
pub(crate) struct IostatArguments {
    /// Seconds between two reports; without it, a single report
    #[arg(value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) interval: Option<f64>,

    /// Number of reports; without it, no end
    #[arg(value_name = "COUNT", requires = "interval")]
    pub(crate) count: Option<u64>,

    #[command(flatten)]
    pub(crate) control: ControlArguments,

    /// Print the measures as JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `trace`
#[derive(Debug, Args)]
#[command(after_help = "\
Columns: end of the transfer, in seconds since the server's start; process; member; R read, W write, F flush, \
D discard or Z zeroing; first sector of 512 bytes; bytes; duration; and the reason:
  data         a request's own data
  parity       parity for data in a part of a stripe
  stripe       a full stripe's chunks, data and parity
  rmw          a read that a write of a part of a stripe needs for parity
  reconstruct  a read for the data of a missing member
  intent       the write-intent bitmap
  superblock   a superblock
  checksum     checksums of the member's blocks
  sweep        a resync, a recovery or another sweep")]
pub(crate) struct TraceArguments {
    #[command(flatten)]
    pub(crate) array: ArrayArguments,

    /// End after this number of transfers
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,

    /// Print a JSON object for each transfer (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// `top`
#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    #[command(flatten)]
    pub(crate) array: ArrayArguments,

    /// Seconds between two updates
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "1")]
    pub(crate) interval: f64,
}

/// `monitor`
#[derive(Debug, Args)]
#[command(after_help = "\
Events, as mdadm --monitor names them:
  NewArray, DeviceDisappeared       the array is served, or no longer
  DegradedArray                     members were missing in the first status
  Fail, FailSpare, SpareActive      a member failed, or a spare took over
  RebuildStarted, Rebuild20 to Rebuild80, RebuildFinished   a resync, a recovery or another sweep
  TestMessage                       with --test

Events of mdspace alone:
  ServerSilent, ServerAnswers       the array's server hangs, or does no longer

The program gets the event, the array's name and, if a member is concerned, the member. RebuildFinished after a \
scrub of the whole array that found wrong rows of 4 KiB comes with `mismatches found: N`. The mail command gets a \
message for that, and for Fail, FailSpare, DegradedArray, DeviceDisappeared, ServerSilent and TestMessage. A webhook \
gets JSON by POST.

Exit status with --once: 1 if a program, a mail command, a webhook or syslog was not notified.")]
pub(crate) struct MonitorArguments {
    /// The served arrays, each as --array takes it; without any, all that you serve, as they come and go
    #[arg(value_name = "ARRAY", conflicts_with_all = ["array", "control"])]
    arrays: Vec<OsString>,

    #[command(flatten)]
    control: ControlArguments,

    /// Where one of these arrays lacks a member and has no spare, give it a spare of another that is whole
    #[arg(long = "spare-group", value_name = "ARRAY,ARRAY...", value_parser = parse_group)]
    pub(crate) spare_groups: Vec<SpareGroup>,

    /// Seconds between two updates
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "1")]
    pub(crate) interval: f64,

    /// Report a sweep at each multiple of so many percent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=99), default_value = "20")]
    pub(crate) increment: u64,

    /// Send each event to syslog, too, by this socket
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, require_equals = true, default_missing_value = "/dev/log")]
    pub(crate) syslog: Option<PathBuf>,

    /// Run this program for each event
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) program: Option<PathBuf>,

    /// Send mail to this address when redundancy is lost
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) mail: Option<String>,

    /// Shell command that sends the mail on its standard input
    #[arg(long, value_name = "COMMAND", default_value = "/usr/sbin/sendmail -t")]
    pub(crate) mailer: String,

    /// Post each event as JSON to this http:// URL
    #[arg(long, value_name = "URL")]
    pub(crate) webhook: Option<String>,

    /// Report once, and end
    #[arg(long)]
    pub(crate) once: bool,

    /// Begin with a TestMessage
    #[arg(long)]
    pub(crate) test: bool,

    /// Run in the background, as a process that `mdspace mdadm --monitor --daemonise` starts
    #[arg(long, hide = true)]
    pub(crate) detached: bool,

    /// With --detached: a file for the process id
    #[arg(long, hide = true, value_name = "FILE", requires = "detached")]
    pub(crate) pid_file: Option<PathBuf>,

    /// Print each event as JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

impl MonitorArguments {
    /// The wanted arrays; none for all that are served.
    pub(crate) fn wanted(&self) -> Vec<Wanted<'_>> {
        let control = self.control.wanted();
        match (control.control, control.array) {
            (None, None) => self.arrays.iter().map(|word| Wanted { array: Some(word), ..Wanted::default() }).collect(),
            _ => vec![control],
        }
    }
}

/// Arrays that share their spares, by name, first digits of the UUID, or member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpareGroup(pub(crate) Vec<OsString>);

fn parse_group(text: &str) -> Result<SpareGroup, String> {
    let words: Vec<OsString> = text.split(',').filter(|word| !word.is_empty()).map(OsString::from).collect();
    match words.len() {
        0 | 1 => Err("expected two arrays or more, such as data,music".to_owned()),
        _ => Ok(SpareGroup(words)),
    }
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
    /// The new member: a file or block device, at least as large as the array's smallest member
    #[arg(value_name = "MEMBER")]
    pub(crate) member: PathBuf,

    /// Overwrite a file or device that belongs or belonged to an array, or holds other data
    #[arg(long)]
    pub(crate) force: bool,

    /// Read the member only where no other can serve: a slow or distant copy of a RAID-1
    #[arg(long)]
    pub(crate) write_mostly: bool,

    /// The kernel's md is to fail the member's requests fast, in place of repeating them
    #[arg(long)]
    pub(crate) failfast: bool,

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
The new member gets a copy of the old one; unreadable blocks are reconstructed from the others. Then it takes \
the old one's slot; until then the array stays as redundant as before. `status` shows the progress. To cancel, \
fail the new member.")]
pub(crate) struct ReplaceArguments {
    /// The member to replace, by the name that `status` prints
    #[arg(value_name = "OLD")]
    pub(crate) old: OsString,

    /// A spare of the array, or a new member: a file or block device. Without it: the first spare that fits
    #[arg(value_name = "NEW")]
    pub(crate) new: Option<PathBuf>,

    /// Overwrite a new member that belongs or belonged to an array, or holds other data
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) change: ChangeArguments,
}

/// `set`
#[derive(Debug, Args)]
#[command(after_help = "\
Settings:
  bitmap
      none, internal[:CHUNK], or /FILE[:CHUNK]: remove the write-intent bitmap, or add it to the members or in a new \
file; with a file, serve the array with --bitmap FILE from then on
  bitmap-delay
      seconds, from 1 to 86400: how long a bit of the bitmap stays set after the last write
  consistency-policy
      resync, bitmap, ppl, or log: what bounds the resync after a crash; ppl, the partial parity log of RAID-5, and \
log, a stripe log, also keep missing members' data right
  failfast
      a member, or - and a member: set or clear its flag failfast, which is for the kernel's md
  integrity
      on: start to use the room for checksums, at the array's next start
  max-corr-read-errors
      a count: read errors allowed before a member is failed (default 20); halved every hour
  member-timeout
      none, or seconds: a read that takes longer is reconstructed from other members; the member is failed if a write \
takes longer or it stays silent (default 30)
  read-only
      on, or off: refuse writes, also of clients that are connected, and mark the array clean; sweeps wait meanwhile. \
A restarted server takes writes again
  stripe-size
      auto, or a power of two from 4K to the chunk: the unit of reads and writes in partly changed stripes; auto \
transfers exactly the bytes needed
  sweep-in-flight
      a power of two from 4K to 64M: bytes of each member that a sweep (resync, recovery, scrub) has under way, and \
in memory, at a time (default 8M)
  sweep-window
      auto, or a power of two from 4K to 64M: largest size to which a sweep merges neighbouring reads; auto is 512K, \
or what suits the members, in whole chunks
  sync-action
      check, repair, idle, or frozen: start a scrub that checks or repairs; frozen: pause all sweeps; idle: end the \
scrub, and continue the sweeps that are due
  sync-speed-min
      bytes a second, such as 20M: rate on each member that a sweep keeps under load (default 1000K)
  sync-speed-max
      none, or bytes a second, such as 200M: rate on each member that a sweep does not exceed (default none)
  verify
      always, or scrub: verify checksums on every read, or only in sweeps
  write-mostly
      a member, or - and a member: set or clear its flag write-mostly; of a RAID-1, such a member is read only where \
no other can serve

Either all settings are changed or, if one is refused, none.")]
pub(crate) struct SetArguments {
    /// Settings and their new values
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = parse_pair)]
    pub(crate) settings: Vec<(String, String)>,

    #[command(flatten)]
    pub(crate) change: ChangeArguments,
}

/// `scrub`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace scrub                                    check the served array, change nothing
  mdspace scrub --repair                           rewrite blocks that are known to be wrong
  mdspace scrub --pause; mdspace scrub --resume    in another terminal
  mdspace scrub '*.img' --offset 1G --length 1G    a part of an array that is not served

mdspace identifies the wrong member from redundancy: by checksums, by P and Q of RAID-6, or by the majority of \
three copies. Undecidable errors are reported and left as they are; for these, --repair=parity does what md does: \
it computes parity from the data, or writes the first copy over the others.

Exit status: 0 no errors; 1 errors were found, repaired or not; 2 refused.")]
pub(crate) struct ScrubArguments {
    /// The members of an array that is not served, in any order; without them, the served array
    #[arg(value_name = "MEMBER", conflicts_with = "array")]
    pub(crate) members: Vec<OsString>,

    /// Take only members of the array with this UUID, and skip everything else
    #[arg(long, value_name = "UUID", requires = "members")]
    pub(crate) uuid: Option<ArrayUuid>,

    /// The file that holds the array's write-intent bitmap, if it is kept in one
    #[arg(long, value_name = "FILE", requires = "members")]
    pub(crate) bitmap: Option<PathBuf>,

    /// How the array was put together, where superblocks are lost or wrong, as for `read`. It is only checked
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["array", "uuid", "bitmap", "repair", "resume", "overlay"])]
    pub(crate) geometry: Option<GeometryText>,

    #[command(flatten)]
    pub(crate) maps: MapArguments,

    /// With members: leave them as they are. Every write goes to sparse files in this directory, which is made if
    /// needed; `mdspace overlay` shows, discards or commits them
    #[arg(long, value_name = "DIR", requires = "members", conflicts_with = "steering")]
    pub(crate) overlay: Option<PathBuf>,

    /// Rewrite blocks that are known to be wrong; with =parity also undecidable ones, as md does
    #[arg(long, value_enum, value_name = "parity", num_args = 0..=1, require_equals = true, default_missing_value = "decided")]
    pub(crate) repair: Option<RepairChoice>,

    /// First byte of the array to check
    #[arg(long, value_name = "SIZE")]
    pub(crate) offset: Option<Size>,

    /// Number of bytes to check; without it, up to the end
    #[arg(long, value_name = "SIZE")]
    pub(crate) length: Option<Size>,

    /// With members: largest size of merged reads; by default 512K, or what suits the members, in whole chunks
    #[arg(long, value_name = "SIZE", requires = "members")]
    pub(crate) window: Option<Size>,

    /// With members: bytes of each member to read at a time; 8M by default
    #[arg(long, value_name = "SIZE", requires = "members")]
    pub(crate) in_flight: Option<Size>,

    /// Pause the scrub of the served array
    #[arg(long, group = "steering", conflicts_with_all = ["members", "repair", "offset", "length"])]
    pub(crate) pause: bool,

    /// Continue it; with members: continue an interrupted scrub
    #[arg(long, group = "steering", conflicts_with_all = ["repair", "offset", "length"])]
    pub(crate) resume: bool,

    /// End the scrub of the served array
    #[arg(long, group = "steering", conflicts_with_all = ["members", "repair", "offset", "length"])]
    pub(crate) cancel: bool,

    /// Name the files that the findings hit, as `mdspace locate` does
    #[arg(long, conflicts_with_all = ["no_wait", "pause", "cancel"])]
    pub(crate) files: bool,

    /// Do not wait for the end of a served array's scrub
    #[arg(long, conflicts_with = "members")]
    pub(crate) no_wait: bool,

    /// Print JSON (docs/json.md), and the progress as JSON lines on standard error
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) control: ControlArguments,
}

/// Which errors are repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RepairChoice {
    /// Blocks that are known to be wrong
    #[value(hide = true)]
    Decided,
    /// Also undecidable ones, by md's choice
    Parity,
}

/// `KEY=VALUE`.
fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}
