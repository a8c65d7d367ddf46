//! Where NBD clients connect: `unix:PATH` or `tcp:HOST:PORT`.
//!
//! Unencrypted TCP is for this machine alone unless the user says otherwise: the NBD export checks
//! [`NbdAddress::is_reached_by_others`], and `serve` does the same for HTTP. `up` serves HTTP for this machine alone.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NbdAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP address.
    Tcp(SocketAddr),
}

impl FromStr for NbdAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("tcp", address)) => parse_address(address).map(Self::Tcp),
            _ => Err("expected unix:PATH or tcp:HOST:PORT".to_owned()),
        }
    }
}

impl NbdAddress {
    /// Whether other machines can connect.
    pub(crate) fn is_reached_by_others(&self) -> bool {
        matches!(self, Self::Tcp(address) if !address.ip().is_loopback())
    }

    /// The NBD URI for clients; `tls` if they must use TLS.
    pub(crate) fn uri(&self, tls: bool) -> String {
        let secured = if tls { "s" } else { "" };
        match self {
            Self::Unix(path) => format!("nbd{secured}+unix:///?socket={}", path.display()),
            Self::Tcp(address) => format!("nbd{secured}://{address}"),
        }
    }
}

/// An IP address, or `localhost`, and a port.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let address = match text.strip_prefix("localhost:") {
        Some(port) => port.parse().ok().map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
        None => text.parse().ok(),
    };
    address.ok_or_else(|| "expected an address and a port, such as 127.0.0.1:10809 or [::1]:10809".to_owned())
}

/// A loopback address, which other machines cannot reach.
pub(crate) fn parse_loopback(text: &str) -> Result<SocketAddr, String> {
    let address = parse_address(text)?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err(format!("{} can be reached from other machines, unencrypted; use 127.0.0.1 and a tunnel", address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_and_printed_as_uris() {
        for (text, uri, through_tls, others) in [
            ("unix:/run/md.sock", "nbd+unix:///?socket=/run/md.sock", "nbds+unix:///?socket=/run/md.sock", false),
            ("tcp:127.0.0.1:10809", "nbd://127.0.0.1:10809", "nbds://127.0.0.1:10809", false),
            ("tcp:localhost:0", "nbd://127.0.0.1:0", "nbds://127.0.0.1:0", false),
            ("tcp:[::1]:10809", "nbd://[::1]:10809", "nbds://[::1]:10809", false),
            ("tcp:0.0.0.0:10809", "nbd://0.0.0.0:10809", "nbds://0.0.0.0:10809", true),
            ("tcp:[::]:10809", "nbd://[::]:10809", "nbds://[::]:10809", true),
        ] {
            let address: NbdAddress = text.parse().expect(text);
            assert_eq!((address.uri(false), address.uri(true)), (uri.to_owned(), through_tls.to_owned()));
            assert_eq!(address.is_reached_by_others(), others, "{text}");
        }
    }

    #[test]
    fn other_words_are_refused() {
        for (text, reason) in [
            ("", "unix:PATH"),
            ("unix:", "unix:PATH"),
            ("/run/md.sock", "unix:PATH"),
            ("tcp:", "address and a port"),
            ("tcp:127.0.0.1", "address and a port"),
            ("tcp:localhost:65536", "address and a port"),
            ("tcp:example.org:10809", "address and a port"),
        ] {
            let error = text.parse::<NbdAddress>().expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn the_page_of_up_is_for_this_machine_alone() {
        for text in ["0.0.0.0:80", "192.0.2.1:80", "[::]:80"] {
            let error = parse_loopback(text).expect_err(text);
            assert!(error.contains("other machines"), "{text}: {error}");
        }
        assert!(parse_loopback("localhost:80").is_ok());
    }
}
