//! Where NBD clients connect: `unix:PATH` or `tcp:HOST:PORT`.
//!
//! TCP is for this machine alone: NBD as served here neither encrypts nor
//! asks who is there, so an address that others reach is refused.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NbdAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// A loopback address.
    Tcp(SocketAddr),
}

impl FromStr for NbdAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("tcp", address)) => parse_tcp(address).map(Self::Tcp),
            _ => Err("expected unix:PATH or tcp:HOST:PORT".to_owned()),
        }
    }
}

fn parse_tcp(text: &str) -> Result<SocketAddr, String> {
    let address = match text.strip_prefix("localhost:") {
        Some(port) => port.parse().ok().map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
        None => text.parse().ok(),
    };
    let address = address.ok_or("expected an address and a port, such as tcp:127.0.0.1:10809 or tcp:[::1]:10809")?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err(format!("{} can be reached from other machines, unencrypted; use 127.0.0.1 and a tunnel", address.ip()))
}

impl fmt::Display for NbdAddress {
    /// As an NBD URI, which clients take.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "nbd+unix:///?socket={}", path.display()),
            Self::Tcp(address) => write!(f, "nbd://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_taken_and_printed_as_uris() {
        for (text, uri) in [
            ("unix:/run/md.sock", "nbd+unix:///?socket=/run/md.sock"),
            ("tcp:127.0.0.1:10809", "nbd://127.0.0.1:10809"),
            ("tcp:localhost:0", "nbd://127.0.0.1:0"),
            ("tcp:[::1]:10809", "nbd://[::1]:10809"),
        ] {
            assert_eq!(text.parse::<NbdAddress>().map(|address| address.to_string()).as_deref(), Ok(uri));
        }
    }

    #[test]
    fn other_addresses_are_refused() {
        for (text, reason) in [
            ("", "unix:PATH"),
            ("unix:", "unix:PATH"),
            ("/run/md.sock", "unix:PATH"),
            ("tcp:", "address and a port"),
            ("tcp:127.0.0.1", "address and a port"),
            ("tcp:localhost:65536", "address and a port"),
            ("tcp:example.org:10809", "address and a port"),
            ("tcp:0.0.0.0:10809", "other machines"),
            ("tcp:192.0.2.1:10809", "other machines"),
            ("tcp:[::]:10809", "other machines"),
        ] {
            let error = text.parse::<NbdAddress>().expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
