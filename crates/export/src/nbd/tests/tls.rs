//! TLS over connections split at random places, with a client of the same library; and clients that start TLS and then
//! send something else.

#[path = "../../../tests/support/certificates.rs"]
mod certificates;

use super::memory;
use super::pipe::pipe;
use crate::Credentials;
use crate::memory::MemoryVolume;
use crate::nbd::session::{Ended, Export, Limits, serve};
use crate::nbd::stream::{ByteStream, Closing, ReceiveError};
use crate::nbd::tls::{Security, TlsStream};
use crate::nbd::wire::{Greeting, OPTION_MAGIC, OptionReplyHeader, option};
use certificates::Authority;
use engine::Pool;
use futures_channel::oneshot;
use futures_executor::{LocalPool, block_on};
use futures_util::future::join;
use proptest::prelude::*;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::cell::OnceCell;
use std::future::pending;
use std::sync::Arc;

/// A server's credentials, and a client that trusts them.
#[derive(Clone)]
struct Both {
    server: Credentials,
    client: Arc<ClientConfig>,
}

fn both() -> Both {
    thread_local!(static BOTH: OnceCell<Both> = const { OnceCell::new() });
    BOTH.with(|both| both.get_or_init(make_both).clone())
}

fn make_both() -> Both {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let authority = Authority::new();
    authority.write_own(directory.path());
    authority.write_server(directory.path());
    let server = Credentials::load(directory.path(), false).expect("certificates");
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(directory.path().join("ca-cert.pem")).expect("a certificate"))
        .expect("an authority's");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let client = versions.expect("versions").with_root_certificates(roots).with_no_client_auth();
    Both { server, client: Arc::new(client) }
}

/// Sends `bytes` in pieces and receives as many at the same time.
async fn exchange<S: ByteStream>(stream: &S, pool: &Pool, bytes: &[u8], pieces: usize) -> Vec<u8> {
    let sent = async {
        for piece in bytes.chunks(pieces) {
            let (front, back) = piece.split_at(piece.len() / 3);
            stream.send(vec![pool.copy_of(front), pool.copy_of(back)]).await.expect("the other side receives");
        }
    };
    let received = async {
        let mut all = Vec::new();
        while all.len() < bytes.len() {
            let (count, buffer) = stream.recv(pool.take(pieces)).await.expect("the other side sends");
            assert!(count > 0, "it has not ended");
            all.extend_from_slice(&buffer[..count]);
        }
        all
    };
    join(sent, received).await.1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn what_goes_in_comes_out_however_it_is_cut(
        seed: u64,
        capacity in 100_usize..200_000,
        bytes in 1_usize..300_000,
        pieces in 1000_usize..150_000,
    ) {
        let Both { server, client } = both();
        let pool = Pool::new(64 << 20);
        let there: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        let back: Vec<u8> = there.iter().map(|byte| byte ^ 0xff).collect();
        let (here, other) = pipe(capacity, seed);
        let serving = async {
            let stream = TlsStream::accept(&other, &pool, &server).await.expect("the client is one");
            let got = exchange(&stream, &pool, &back, pieces).await;
            stream.finish().await.expect("the client is there");
            got
        };
        let asking = async {
            let name = ServerName::try_from("localhost").expect("a name");
            let connection = ClientConnection::new(client, name).expect("a client");
            let stream = TlsStream::shake_hands(&here, &pool, connection.into()).await.expect("the server is one");
            let got = exchange(&stream, &pool, &there, pieces).await;
            assert_eq!(stream.recv(pool.take(1)).await.expect("an end").0, 0, "the server said that it ends");
            got
        };
        let (server_got, client_got) = block_on(join(serving, asking));
        prop_assert!(server_got == there && client_got == back);
    }
}

/// Client flags, STARTTLS, and the bytes sent with it.
fn begin_tls(rest: &[u8]) -> Vec<u8> {
    let request = [&OPTION_MAGIC.to_be_bytes()[..], &option::STARTTLS.to_be_bytes(), &[0; 4]].concat();
    [&[0, 0, 0, 3], &request[..], rest].concat()
}

#[test]
fn bytes_sent_together_with_starttls_do_not_count_as_protected() {
    let pool = Pool::new(1 << 20);
    let exports = [Export { name: "array".into(), volume: MemoryVolume::new(4096, pool.clone()) }];
    let security = Security::Required(both().server);
    let list = [&OPTION_MAGIC.to_be_bytes()[..], &option::LIST.to_be_bytes(), &[0; 4]].concat();
    let (here, there) = pipe(1 << 16, 0);
    let closing = Closing::default();
    let memory = memory();
    let session = serve(&there, &exports, Limits::default(), &memory, &closing, &security, pending());
    let (sent, ended) = block_on(join(here.send(vec![pool.copy_of(&begin_tls(&list))]), session));
    sent.expect("the server receives");
    let error = ended.expect_err("it is no beginning of TLS").to_string();
    assert!(error.contains("bytes after it"), "{error}");
}

/// What a client does once the server has accepted STARTTLS.
#[derive(Debug, Clone, Copy)]
enum Then {
    Nonsense,
    Silence,
    /// Silence, until the server is told to close.
    Closing,
}

#[test]
fn a_client_that_starts_tls_and_then_sends_nothing_or_nonsense_times_out() {
    let run = |then| {
        let pool = Pool::new(1 << 20);
        let exports = [Export { name: "array".into(), volume: MemoryVolume::new(4096, pool.clone()) }];
        let security = Security::Offered(both().server);
        let (here, there) = pipe(1 << 16, 0);
        let closing = Closing::default();
        let (give_up, timeout) = oneshot::channel::<()>();
        // Where the sender is unused, it is kept, so that the timeout never completes.
        let mut give_up = Some(give_up);
        let client = async {
            here.send(vec![pool.copy_of(&begin_tls(&[]))]).await.expect("the server receives");
            let mut left = size_of::<Greeting>() + size_of::<OptionReplyHeader>();
            while left > 0 {
                left -= here.recv(pool.take(left)).await.expect("the server answers").0;
            }
            match then {
                Then::Nonsense => here.send(vec![pool.copy_of(b"GET / HTTP/1.1\r\n\r\n")]).await.expect("it listens"),
                Then::Silence => drop(give_up.take()),
                Then::Closing => closing.close(),
            }
        };
        let timeout = async { timeout.await.unwrap_or_default() };
        let memory = memory();
        let session = serve(&there, &exports, Limits::default(), &memory, &closing, &security, timeout);
        LocalPool::new().run_until(join(session, client)).0
    };
    assert!(matches!(run(Then::Nonsense), Err(ReceiveError::Tls(_))));
    assert!(matches!(run(Then::Silence), Err(ReceiveError::Late)));
    assert!(matches!(run(Then::Closing), Ok(Ended::ByServer)));
}
