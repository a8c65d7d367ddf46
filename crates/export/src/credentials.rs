//! A server's TLS credentials: its certificate and key, and the authority of its clients' certificates.
//!
//! The file names are those of qemu and nbdkit: `server-cert.pem`, `server-key.pem`, and for clients' certificates
//! `ca-cert.pem` and, if present, `ca-crl.pem`. It never writes a file.
//!
//! Files that change while the server runs are loaded again at the next handshake. What cannot be used changes nothing.

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use std::fmt::Display;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The server's certificate and key, and its requirements for clients.
#[derive(Clone)]
pub struct Credentials(Arc<Files>);

/// The files, and what was loaded from them.
struct Files {
    directory: PathBuf,
    verify_peer: bool,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    config: Arc<ServerConfig>,
    /// Whether clients' certificates can be revoked.
    has_revocations: bool,
    /// The files when they were last tried.
    seen: [Option<Stamp>; 4],
}

/// What differs once a file was changed or replaced: inode, length, and the time of its last change.
type Stamp = (u64, u64, i64, i64);

const REVOCATIONS: &str = "ca-crl.pem";

impl Credentials {
    /// Loads the files in `directory`. With `verify_peer`, a client needs a certificate signed by the authority in
    /// `ca-cert.pem` and not revoked by `ca-crl.pem`.
    ///
    /// # Errors
    /// A file is missing or invalid; the message names it.
    pub fn load(directory: &Path, verify_peer: bool) -> io::Result<Self> {
        let seen = stamps(directory);
        let (config, has_revocations) = (config(directory, verify_peer)?, seen[3].is_some());
        let loaded = Mutex::new(Loaded { config, has_revocations, seen });
        Ok(Self(Arc::new(Files { directory: directory.to_owned(), verify_peer, loaded })))
    }

    /// What the next handshake goes by. Of files that changed and cannot be used, a warning tells once. Clients stay
    /// revoked if their list is gone.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        let Files { directory, verify_peer, loaded } = &*self.0;
        let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = stamps(directory);
        if seen == loaded.seen {
            return loaded.config.clone();
        }
        loaded.seen = seen;
        let is_list_gone = *verify_peer && loaded.has_revocations && seen[3].is_none();
        let read = if is_list_gone {
            Err(refused(&directory.join(REVOCATIONS), "it is gone; a restart does without it"))
        } else {
            config(directory, *verify_peer)
        };
        match read {
            Ok(config) => {
                tracing::info!("TLS certificates of {} loaded again", directory.display());
                (loaded.config, loaded.has_revocations) = (config, seen[3].is_some());
            }
            Err(error) => tracing::warn!("{error}; the TLS certificates that were loaded before stay in use"),
        }
        loaded.config.clone()
    }
}

/// Those of the files that are there.
fn stamps(directory: &Path) -> [Option<Stamp>; 4] {
    ["server-cert.pem", "server-key.pem", "ca-cert.pem", REVOCATIONS].map(|name| {
        let file = directory.join(name).metadata().ok()?;
        Some((file.ino(), file.len(), file.ctime(), file.ctime_nsec()))
    })
}

fn config(directory: &Path, verify_peer: bool) -> io::Result<Arc<ServerConfig>> {
    let provider = Arc::new(ring::default_provider());
    let versions = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider can do what rustls takes for safe");
    let (certificate, key) = (directory.join("server-cert.pem"), directory.join("server-key.pem"));
    let chain = certificates(&certificate)?;
    let private = PrivateKeyDer::from_pem_file(&key).map_err(|error| unreadable(&key, error))?;
    let clients = if verify_peer {
        versions.with_client_cert_verifier(verifier(directory, provider)?)
    } else {
        versions.with_no_client_auth()
    };
    let config = clients.with_single_cert(chain, private).map_err(|error| refused(&certificate, error))?;
    Ok(Arc::new(config))
}

fn verifier(
    directory: &Path,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> io::Result<Arc<dyn ClientCertVerifier>> {
    let authority = directory.join("ca-cert.pem");
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates(&authority)? {
        roots.add(certificate).map_err(|error| refused(&authority, error))?;
    }
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let revoked = directory.join(REVOCATIONS);
    match revoked.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", revoked.display()))),
        // An existing list must be used, even if it is a dangling link.
        Ok(_) => builder = builder.with_crls(revocation_lists(&revoked)?),
    }
    builder.build().map_err(|error| match error {
        VerifierBuilderError::InvalidCrl(error) => refused(&revoked, rustls::Error::from(error)),
        error => refused(&authority, error),
    })
}

/// The revocation lists in a file: at least one, and nothing else. A part that is not understood might have revoked a
/// certificate.
fn revocation_lists(path: &Path) -> io::Result<Vec<CertificateRevocationListDer<'static>>> {
    let bytes = std::fs::read(path).map_err(|error| unreadable(path, pem::Error::Io(error)))?;
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&bytes).collect();
    let lists = lists.map_err(|error| unreadable(path, error))?;
    let begun = bytes.windows(PEM_BEGIN.len()).filter(|window| *window == PEM_BEGIN).count();
    match lists.len() {
        0 => Err(refused(path, "there is no revocation list in PEM in it; without the file nothing is revoked")),
        whole if whole < begun => Err(refused(path, format!("only {whole} of the {begun} parts are revocation lists"))),
        _ => Ok(lists),
    }
}

/// The first bytes of each part of a PEM file.
const PEM_BEGIN: &[u8] = b"-----BEGIN ";

/// The certificates in a file: at least one.
fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let certificates = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|error| unreadable(path, error))?;
    if certificates.is_empty() { Err(refused(path, "there is no certificate in it")) } else { Ok(certificates) }
}

fn unreadable(path: &Path, error: pem::Error) -> io::Error {
    match error {
        pem::Error::Io(error) => io::Error::new(error.kind(), format!("{}: {error}", path.display())),
        error => refused(path, error),
    }
}

fn refused(path: &Path, why: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()))
}
