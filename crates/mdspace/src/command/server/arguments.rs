//! Arguments of `mdspace serve`.

use crate::command::opening::arguments::AssembleArguments;
use crate::command::opening::cache_mode::CacheMode;
use crate::command::server::nbd_address::{NbdAddress, parse_address};
use crate::command::server::settings::parse_stripe_size;
use crate::command::server::smart::STATE_PREFIX;
use crate::command::server::socket_access::{AccessArguments, ControlAccessArguments};
use crate::command::text::size::{Size, parse_sensible};
use clap::{Args, ValueEnum};
use engine::{StripeSize, SyncSpeed};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The size of bitmap writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WriteSize {
    /// The size that each member prefers
    Preferred,
    /// As few bytes as possible
    Exact,
}

/// When bits of the bitmap are cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Clearing {
    /// While the array is busy, only bits that cost no extra write
    Sparing,
    /// As soon as their ranges are idle, as in md
    Eager,
}

/// What HTTP asks of its clients.
#[derive(Debug, Args)]
pub(crate) struct HttpProtection {
    /// File with the token that HTTP clients need for changes, and from other machines for reads, too; without a token
    /// HTTP changes nothing
    #[arg(long, value_name = "FILE", help_heading = "Control and watching")]
    pub(crate) http_token_file: Option<PathBuf>,

    /// Serve HTTP through TLS only (https), with server-cert.pem and server-key.pem in this directory
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "DIR", help_heading = "Control and watching")]
    pub(crate) http_tls_certificates: Option<PathBuf>,
}

/// `serve`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mdspace serve a.img b.img c.img                     on a socket in the user's own directory
  mdspace serve '/dev/sd[b-e]' --nbd tcp:127.0.0.1:10809
  mdspace serve '*.img' --nbd tcp:192.0.2.7:10809 --tls require --tls-certificates keys --tls-verify-peer
  mdspace serve '*.img' --vhost-user /run/vm.sock     also as a virtual machine's disk
  mdspace serve --uuid 3b1c...  /dev/disk/by-id       find members by the array's UUID
  mdspace serve disk?.img --inner vg1/volume_1 --read-only    a volume of LVM on the arrays of these disks
  mdspace serve --scan data                           the array /dev/md/data of mdadm.conf

SIGINT, SIGTERM and SIGHUP (unless it is ignored, as by nohup) finish received requests, mark the array clean and end the \
server.")]
pub(crate) struct ServeArguments {
    /// Serve only what has this name inside of the array: a partition (its number), a logical volume of LVM
    /// (GROUP/VOLUME), or an array. The members may be of several arrays then
    #[arg(long, value_name = "NAME")]
    pub(crate) inner: Option<String>,

    /// Address for NBD clients: unix:PATH or tcp:HOST:PORT; without --tls=require on this machine only; may be given
    /// several times
    #[arg(long, value_name = "ADDRESS", help_heading = "Exports")]
    pub(crate) nbd: Vec<NbdAddress>,

    #[command(flatten)]
    pub(crate) exports: ExportArguments,

    /// The control socket, for `status` and other commands
    #[arg(long, value_name = "PATH", help_heading = "Control and watching")]
    pub(crate) control: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) control_access: ControlAccessArguments,

    /// Also serve the page, metrics and control over HTTP on this address, such as 127.0.0.1:9187; where other machines
    /// reach it, only with --http-tls-certificates and --http-token-file
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address, help_heading = "Control and watching")]
    pub(crate) http: Option<SocketAddr>,

    #[command(flatten)]
    pub(crate) http_protection: HttpProtection,

    /// How the files begin in which smartd keeps its state: `status`, the page and metrics tell what it noted of members'
    /// drives
    #[arg(long, value_name = "PREFIX", default_value = STATE_PREFIX, help_heading = "Control and watching")]
    pub(crate) smartd_state: PathBuf,

    /// Size of writes to the write-intent bitmap
    #[arg(long, value_enum, default_value_t = WriteSize::Preferred, help_heading = "Tuning")]
    pub(crate) bitmap_writes: WriteSize,

    /// When bits of the bitmap are cleared
    #[arg(long, value_enum, default_value_t = Clearing::Sparing, help_heading = "Tuning")]
    pub(crate) bitmap_clearing: Clearing,

    /// Bytes a second that resyncs, recoveries and scrubs keep on each member while requests are served, such as 20M: the
    /// setting sync-speed-min from the start
    #[arg(long, value_name = "RATE", value_parser = parse_sensible, help_heading = "Tuning")]
    pub(crate) sync_speed_min: Option<Size>,

    /// Bytes a second on each member that they never exceed: the setting sync-speed-max from the start
    #[arg(long, value_name = "RATE", value_parser = parse_sensible, help_heading = "Tuning")]
    pub(crate) sync_speed_max: Option<Size>,

    /// Write nothing, neither data nor superblocks
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Unit of reads and writes in partly changed stripes: 4K to the chunk, or auto for exactly the bytes needed
    #[arg(long, value_parser = parse_stripe_size, value_name = "auto|SIZE", default_value = "auto", help_heading = "Tuning")]
    pub(crate) stripe_size: StripeSize,

    /// When a write is answered
    #[arg(long, value_enum, default_value_t, help_heading = "Tuning")]
    pub(crate) cache: CacheMode,

    /// Print the array's status as JSON (docs/json.md), in one line, once clients can connect
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) assemble: AssembleArguments,
}

impl ServeArguments {
    /// The limits of sweeps, where `default` are those of an array that was given none.
    pub(crate) fn sync_speed(&self, default: SyncSpeed) -> SyncSpeed {
        let min = self.sync_speed_min.map_or(default.min, |rate| rate.0);
        SyncSpeed { min, max: self.sync_speed_max.map(|rate| rate.0).or(default.max) }
    }
}

/// The exports of a served array.
#[derive(Debug, Default, Args)]
pub(crate) struct ExportArguments {
    /// TLS for NBD: never, if the client wants it, or always
    #[cfg(feature = "tls")]
    #[arg(long, value_enum, default_value_t, requires_if("on", "tls_certificates"))]
    #[arg(requires_if("require", "tls_certificates"), help_heading = "Exports")]
    pub(crate) tls: TlsMode,

    /// Directory with server-cert.pem and server-key.pem, and with ca-cert.pem for --tls-verify-peer
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "DIR", help_heading = "Exports")]
    pub(crate) tls_certificates: Option<PathBuf>,

    /// Accept only NBD clients with a certificate that ca-cert.pem signed (and ca-crl.pem does not revoke)
    #[cfg(feature = "tls")]
    #[arg(long, requires = "tls_certificates", help_heading = "Exports")]
    pub(crate) tls_verify_peer: bool,

    /// Serve NBD unencrypted to other machines, too: every program that reaches the port can read and write
    #[arg(long, help_heading = "Exports")]
    pub(crate) allow_plain_tcp: bool,

    /// Also serve a virtual machine's disk (vhost-user-blk) on this socket; may be given several times
    #[cfg(feature = "vhost-user")]
    #[arg(long, value_name = "PATH", help_heading = "Exports")]
    pub(crate) vhost_user: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) access: AccessArguments,

    /// Also show the array as the file `array` in this directory (FUSE)
    #[cfg(feature = "fuse")]
    #[arg(long, value_name = "MOUNTPOINT", help_heading = "Exports")]
    pub(crate) fuse: Option<PathBuf>,

    /// Also make the array a block device, /dev/ublkb0 or the next, with the kernel's ublk driver; needs root
    #[arg(long, help_heading = "Exports")]
    pub(crate) ublk: bool,
}

/// When NBD goes through TLS.
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
