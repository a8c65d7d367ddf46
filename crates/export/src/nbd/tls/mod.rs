//! NBD through TLS, as the protocol's STARTTLS begins it: who is given it, the certificates, and the stream.
//!
//! The handshake itself ([`super::handshake`]) knows only whether it goes through TLS. Keys come from files named as
//! qemu and nbdkit name them; there are no pre-shared keys, as rustls has none but its own tickets.

#[cfg(feature = "tls")]
mod credentials;
#[cfg(feature = "tls")]
mod stream;

use super::handshake::Tls;
#[cfg(feature = "tls")]
pub use credentials::Credentials;
#[cfg(feature = "tls")]
pub(crate) use stream::TlsStream;

/// How a server's connections are protected.
#[derive(Clone, Default)]
pub enum Security {
    /// Not at all.
    #[default]
    Plain,
    /// By TLS, if the client wants it.
    #[cfg(feature = "tls")]
    Offered(Credentials),
    /// By TLS; without it nothing is told or given.
    #[cfg(feature = "tls")]
    Required(Credentials),
}

impl Security {
    /// What a handshake says about it.
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
