//! Arguments of `mdspace serve`.

use crate::command::opening::arguments::AssembleArguments;
use crate::command::server::nbd_address::{NbdAddress, parse_loopback};
use crate::command::server::settings::parse_stripe_size;
use clap::{Args, ValueEnum};
use engine::StripeSize;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;

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
    pub(crate) exports: ExportArguments,

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
pub(crate) struct ExportArguments {
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
