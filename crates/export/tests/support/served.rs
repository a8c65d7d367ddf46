//! A server over a memory volume on a unix socket, and third-party client programs.
//!
//! A missing program fails its test with the name of its package: nothing is skipped.
#![allow(dead_code, reason = "each of the tests that include it uses a part")]

mod running;

use io::net::Listener;
use mdspace_export::nbd::server::{Server, ServerLimits};
use mdspace_export::nbd::session::Export;
use mdspace_export::nbd::tls::Security;
pub(crate) use running::Served;
use std::path::Path;
use std::process::{Command, Output};

pub(crate) const BYTES: usize = 64 << 20;

impl Served {
    /// Serves `bytes` of memory as `array`.
    pub(crate) fn new(bytes: usize, read_only: bool) -> Self {
        Self::secured(bytes, read_only, Security::Plain)
    }

    /// The same, with the connections protected by `security`.
    pub(crate) fn secured(bytes: usize, read_only: bool, security: Security) -> Self {
        Self::by(bytes, read_only, async move |directory, volume, stopped| {
            let exports = vec![Export { name: "array".into(), volume }];
            let server = Server::secured(exports, ServerLimits::default(), security);
            let listener = Listener::unix(&directory.join("nbd"), 0o600).expect("a socket");
            let accepting = server.clone();
            let accepted = io::spawn(async move { accepting.accept_from(listener).await });
            stopped.await;
            server.stop(std::future::pending()).await;
            accepted.await.expect("connections were accepted until the stop");
        })
    }

    /// The URI without TLS.
    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///array?socket={}", self.path("nbd").display())
    }
}

/// Runs a program of Debian's `package`. Returns its output when it succeeds.
pub(crate) fn run(package: &str, program: &str, arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program} cannot be run ({error}): apt-get install {package}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{program} {arguments:?}: {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

/// Writes an image with different contents everywhere and holes between them.
pub(crate) fn image(path: &Path) -> Vec<u8> {
    let bytes: Vec<u8> = (0..BYTES)
        .map(
            |at| if (at >> 20) % 3 == 1 { 0 } else { (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0] },
        )
        .collect();
    std::fs::write(path, &bytes).expect("an image is written");
    bytes
}
