//! NBD over TLS, started by the protocol's STARTTLS: the policy, the certificates, and the stream.
//!
//! The NBD handshake ([`super::handshake`]) knows only whether TLS protects it. Key files are named as by qemu and
//! nbdkit. Pre-shared keys are not supported, because rustls has none. Source: `doc/proto.md`, section "TLS support".

#[cfg(feature = "tls")]
mod stream;

use super::handshake::Tls;
#[cfg(feature = "tls")]
use crate::Credentials;
#[cfg(feature = "tls")]
pub(crate) use stream::TlsStream;

/// How a server's connections are protected.
#[derive(Clone, Default)]
pub enum Security {
    /// Without TLS.
    #[default]
    Plain,
    /// With TLS, if the client starts it.
    #[cfg(feature = "tls")]
    Offered(Credentials),
    /// With TLS; without it the server reveals and serves nothing.
    #[cfg(feature = "tls")]
    Required(Credentials),
}

impl Security {
    /// The TLS state with which a handshake starts.
    pub(crate) fn tls(&self) -> Tls {
        match self {
            Self::Plain => Tls::Unknown,
            #[cfg(feature = "tls")]
            Self::Offered(_) => Tls::Offered,
            #[cfg(feature = "tls")]
            Self::Required(_) => Tls::Required,
        }
    }
}
