//! A server's TLS credentials: its certificate and key, and the authority of its clients' certificates.
//!
//! The file names are those of qemu and nbdkit: `server-cert.pem`, `server-key.pem`, and for clients' certificates
//! `ca-cert.pem` and, if present, `ca-crl.pem`. It never writes a file.
//!
//! A thread looks for files that changed, and loads them again. What cannot be used changes nothing. No handshake waits for
//! a file: the file system may hang, or be on an array that is served here.

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
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

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
    /// Whether there is a list of revoked certificates.
    has_revocations: bool,
    /// The files when they were last decided on.
    seen: [Option<Stamp>; 4],
    /// Why they could not be loaded.
    complaint: Option<String>,
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
        let (config, has_revocations) = config(directory, verify_peer, false)?;
        let loaded = Mutex::new(Loaded { config, has_revocations, seen, complaint: None });
        let files = Arc::new(Files { directory: directory.to_owned(), verify_peer, loaded });
        let watched = Arc::downgrade(&files);
        thread::Builder::new().name("certificates".to_owned()).spawn(move || watch(&watched))?;
        Ok(Self(files))
    }

    /// What the next handshake goes by.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner).config.clone()
    }

    /// Loads files that changed since they were loaded, as a thread does every few seconds. A warning tells once of files
    /// that cannot be used; what was loaded before then stays. Nor is a list of revoked certificates given up that is gone.
    pub fn load_changes(&self) {
        self.0.load_changes();
    }
}

/// How often files are looked at.
const INTERVAL: Duration = Duration::from_secs(5);

/// Loads changed files until no server needs them.
fn watch(files: &Weak<Files>) {
    loop {
        thread::sleep(INTERVAL);
        let Some(files) = files.upgrade() else { return };
        files.load_changes();
    }
}

impl Files {
    fn load_changes(&self) {
        let Self { directory, verify_peer, loaded } = self;
        let lock = || loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = stamps(directory);
        let (is_same, needs_list) = {
            let now = lock();
            (now.seen == seen, now.has_revocations)
        };
        if is_same {
            return;
        }
        // Not under the lock, as reading may take its time.
        let read = config(directory, *verify_peer, needs_list);
        let mut loaded = lock();
        match read {
            Ok((config, has_revocations)) => {
                tracing::info!("TLS certificates of {} loaded again", directory.display());
                *loaded = Loaded { config, has_revocations, seen, complaint: None };
            }
            Err(error) => {
                // Files that were read and are wrong stay wrong until they change; others may be read the next time.
                if error.kind() == io::ErrorKind::InvalidData {
                    loaded.seen = seen;
                }
                let complaint = error.to_string();
                if loaded.complaint.as_ref() != Some(&complaint) {
                    tracing::warn!("{complaint}; the TLS certificates that were loaded before stay in use");
                    loaded.complaint = Some(complaint);
                }
            }
        }
    }
}

/// Those of the files that are there.
fn stamps(directory: &Path) -> [Option<Stamp>; 4] {
    ["server-cert.pem", "server-key.pem", "ca-cert.pem", REVOCATIONS].map(|name| {
        let file = directory.join(name).metadata().ok()?;
        Some((file.ino(), file.len(), file.ctime(), file.ctime_nsec()))
    })
}

/// Loads the files. Says also whether there is a list of revoked certificates; without one that is needed it is an error.
fn config(directory: &Path, verify_peer: bool, needs_list: bool) -> io::Result<(Arc<ServerConfig>, bool)> {
    let provider = Arc::new(ring::default_provider());
    let versions = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider can do what rustls takes for safe");
    let (certificate, key) = (directory.join("server-cert.pem"), directory.join("server-key.pem"));
    let chain = certificates(&certificate)?;
    let private = PrivateKeyDer::from_pem_file(&key).map_err(|error| unreadable(&key, error))?;
    let (clients, has_revocations) = if verify_peer {
        let (verifier, has_revocations) = verifier(directory, needs_list, provider)?;
        (versions.with_client_cert_verifier(verifier), has_revocations)
    } else {
        (versions.with_no_client_auth(), false)
    };
    let config = clients.with_single_cert(chain, private).map_err(|error| refused(&certificate, error))?;
    Ok((Arc::new(config), has_revocations))
}

fn verifier(
    directory: &Path,
    needs_list: bool,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> io::Result<(Arc<dyn ClientCertVerifier>, bool)> {
    let authority = directory.join("ca-cert.pem");
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates(&authority)? {
        roots.add(certificate).map_err(|error| refused(&authority, error))?;
    }
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let revoked = directory.join(REVOCATIONS);
    let has_list = match revoked.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !needs_list => false,
        Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", revoked.display()))),
        // An existing list must be used, even if it is a dangling link.
        Ok(_) => {
            builder = builder.with_crls(revocation_lists(&revoked)?);
            true
        }
    };
    let built = builder.build().map_err(|error| match error {
        VerifierBuilderError::InvalidCrl(error) => refused(&revoked, rustls::Error::from(error)),
        error => refused(&authority, error),
    });
    Ok((built?, has_list))
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
