//! Addresses of exports of other servers: NBD URIs. Source: `doc/uri.md` of NetworkBlockDevice/nbd.
//!
//! `nbd://HOST[:PORT]/[EXPORT]` and `nbd+unix:///[EXPORT]?socket=PATH`, with `%XX` for any byte. TLS (`nbds`) and vsock
//! are refused by name. It resolves no host.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port that IANA has given to NBD.
const PORT: u16 = 10809;

/// Where an export is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The server.
    pub server: ServerAddress,
    /// The export's name; empty for the server's default.
    pub export: String,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP port of a host, which may be a name.
    Tcp {
        /// The name or number of the host.
        host: String,
        /// Its port.
        port: u16,
    },
}

/// Whether `text` is meant as an NBD URI.
pub fn is_uri(text: &str) -> bool {
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    matches!(scheme, "nbd" | "nbds" | "nbd+unix" | "nbds+unix" | "nbd+vsock" | "nbds+vsock")
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or("not an NBD URI")?;
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let export = String::from_utf8(decoded(export)?).map_err(|_| "the export's name is not UTF-8")?;
        let server = match (scheme, query) {
            ("nbd+unix", Some(query)) if authority.is_empty() => {
                let path = query.strip_prefix("socket=").filter(|path| !path.is_empty() && !path.contains('&'));
                let path = path.ok_or("expected ?socket=PATH")?;
                ServerAddress::Unix(OsString::from_vec(decoded(path)?).into())
            }
            ("nbd+unix", _) => return Err("expected nbd+unix:///EXPORT?socket=PATH".to_owned()),
            ("nbd", None) => tcp(authority)?,
            ("nbd", Some(_)) => return Err("nothing is known of what is behind `?`".to_owned()),
            _ => return Err(format!("{scheme}: only nbd:// and nbd+unix:// can be members")),
        };
        Ok(Self { server, export })
    }
}

fn tcp(authority: &str) -> Result<ServerAddress, String> {
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or("expected [ADDRESS]:PORT")?)),
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() || host.contains('@') {
        return Err("expected nbd://HOST:PORT/EXPORT".to_owned());
    }
    let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| format!("{port}: not a port")))?;
    Ok(ServerAddress::Tcp { host: host.to_owned(), port })
}

/// `text` with its `%XX` as bytes.
fn decoded(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte == b'%' {
            let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
            let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            bytes.push(value.ok_or_else(|| format!("{text}: expected two hexadecimal digits behind %"))?);
            rest = &behind[2..];
        } else {
            bytes.push(byte);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_understood_or_refused_with_the_reason() {
        let tcp = |host: &str, port| ServerAddress::Tcp { host: host.to_owned(), port };
        let unix = |path: &str| ServerAddress::Unix(path.into());
        for (text, server, export) in [
            ("nbd://nas", tcp("nas", 10809), ""),
            ("nbd://nas:1/", tcp("nas", 1), ""),
            ("nbd://127.0.0.1:10809/disk%201", tcp("127.0.0.1", 10809), "disk 1"),
            ("nbd://[::1]/a/b", tcp("::1", 10809), "a/b"),
            ("nbd://[fe80::1]:7/", tcp("fe80::1", 7), ""),
            ("nbd+unix:///?socket=/run/md.sock", unix("/run/md.sock"), ""),
            ("nbd+unix:///disk?socket=a%3a%c3%a4.sock", unix("a:ä.sock"), "disk"),
        ] {
            assert_eq!(text.parse(), Ok(Address { server, export: export.to_owned() }), "{text}");
            assert!(is_uri(text));
        }
        for (text, reason) in [
            ("nbd", "not an NBD URI"),
            ("nbd://", "expected nbd://HOST"),
            ("nbd://user@host/", "expected nbd://HOST"),
            ("nbd://host:port/", "not a port"),
            ("nbd://[::1]7/", "expected [ADDRESS]:PORT"),
            ("nbd://host/?socket=x", "behind `?`"),
            ("nbd://host/%4", "two hexadecimal digits"),
            ("nbd://host/%4\u{e4}", "two hexadecimal digits"),
            ("nbd://host/%ff", "not UTF-8"),
            ("nbd+unix://host/?socket=x", "expected nbd+unix:///EXPORT?socket=PATH"),
            ("nbd+unix:///", "expected nbd+unix:///EXPORT?socket=PATH"),
            ("nbd+unix:///?socket=", "expected ?socket=PATH"),
            ("nbd+unix:///?sock=x", "expected ?socket=PATH"),
            ("nbds://host/", "nbds: only nbd:// and nbd+unix://"),
        ] {
            let refused = text.parse::<Address>().expect_err(text);
            assert!(refused.contains(reason), "{text}: {refused}");
        }
        assert!(!is_uri("/nbd://x") && !is_uri("http://x") && !is_uri("disk.img:2"));
    }
}
