//! The client against servers that break the protocol, and with callers that drop their requests.

use super::pipe::{End, pipe};
use crate::nbd::client::{Client, connect};
use crate::nbd::handshake::{ClientOptions, ServerHandshake};
use crate::nbd::stream::ByteStream;
use crate::nbd::wire::{CHUNK_MAGIC, OPTION_REPLY_MAGIC, REQUEST_MAGIC, SIMPLE_REPLY_MAGIC, chunk};
use engine::Pool;
use futures_executor::LocalPool;
use futures_util::future::{join, select};
use std::future::Future;
use std::pin::pin;
use zerocopy::IntoBytes;

const AT: u64 = 8192;
const BYTES: usize = 4096;

fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let words = [option, kind, data.len() as u32].map(u32::to_be_bytes).concat();
    [&OPTION_REPLY_MAGIC.to_be_bytes()[..], &words, data].concat()
}

/// A server's half of a handshake: structured replies, `base:allocation` with id 9, an export of 1 MiB.
fn handshake() -> Vec<u8> {
    let export = [&[0, 0][..], &(1u64 << 20).to_be_bytes(), &[0, 1]].concat();
    [
        ServerHandshake::greeting().as_bytes().to_vec(),
        option_reply(8, 1, b""),
        option_reply(10, 4, b"\0\0\0\x09base:allocation"),
        option_reply(10, 1, b""),
        option_reply(7, 3, &export),
        option_reply(7, 1, b""),
    ]
    .concat()
}

fn reply(last: bool, kind: u16, cookie: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = CHUNK_MAGIC.to_be_bytes().to_vec();
    bytes.extend(u16::from(last).to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend((payload.len() as u32).to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn data(last: bool, cookie: u64, at: u64, bytes: usize) -> Vec<u8> {
    let payload = [&at.to_be_bytes()[..], &vec![at as u8; bytes]].concat();
    reply(last, chunk::OFFSET_DATA, cookie, &payload)
}

/// Performs the handshake, waits for one request, and sends `script` with that request's cookie.
async fn fake_server(end: End, script: impl FnOnce(u64) -> Vec<u8>) -> End {
    let pool = Pool::new(1 << 20);
    end.send(vec![pool.copy_of(&handshake())]).await.expect("there is room");
    let mut heard: Vec<u8> = Vec::new();
    let magic = REQUEST_MAGIC.to_be_bytes();
    let request = loop {
        if let Some(at) = heard.windows(4).position(|window| window == magic)
            && heard.len() >= at + 28
        {
            break heard[at..at + 28].to_vec();
        }
        let (received, buffer) = end.recv(pool.take(4096)).await.expect("the pipe works");
        assert!(received > 0, "the client asks");
        heard.extend_from_slice(&buffer[..received]);
    };
    let cookie = u64::from_be_bytes(request[8..16].try_into().expect("eight bytes"));
    // The client may disconnect before it has received everything.
    let _ = end.send(vec![pool.copy_of(&script(cookie))]).await;
    end
}

/// Sends one request to a fake server. Returns the answer, or the error as text.
fn ask<F: Future<Output = T>, T>(script: impl FnOnce(u64) -> Vec<u8>, ask: impl FnOnce(Client) -> F) -> T {
    let (here, there) = pipe(1 << 20, 11);
    let asking = async {
        let (client, connection) =
            connect(here, Pool::new(1 << 20), ClientOptions::default()).await.expect("the handshake succeeds");
        let asking = pin!(ask(client));
        match select(pin!(connection), asking).await {
            futures_util::future::Either::Left((_, asking)) => asking.await,
            futures_util::future::Either::Right((result, _)) => result,
        }
    };
    let (_end, result) = LocalPool::new().run_until(join(fake_server(there, script), asking));
    result
}

fn read(script: impl FnOnce(u64) -> Vec<u8>) -> Result<Vec<u8>, String> {
    ask(script, |client| async move {
        let buffer = client.pool().take(BYTES);
        client.read(AT, buffer).await.map(|buffer| buffer.to_vec()).map_err(|error| error.to_string())
    })
}

#[test]
fn a_read_is_put_together_from_chunks_in_any_order() {
    let half = BYTES as u64 / 2;
    let hole = |cookie| {
        let payload = [&(AT + half).to_be_bytes()[..], &(half as u32).to_be_bytes()].concat();
        reply(false, chunk::OFFSET_HOLE, cookie, &payload)
    };
    let found = read(|cookie| {
        let quarter = half as usize / 2;
        let late = data(false, cookie, AT + half / 2, quarter);
        [hole(cookie), late, data(false, cookie, AT, quarter), reply(true, chunk::NONE, cookie, b"")].concat()
    });
    assert_eq!(found, Ok(vec![0; BYTES])); // the low byte of each offset is 0
    let early = [5u8; 1];
    let found = read(|cookie| {
        let rest = [&(AT + 1).to_be_bytes()[..], &[6; BYTES - 1]].concat();
        let first = [&AT.to_be_bytes()[..], &early].concat();
        let rest = reply(false, chunk::OFFSET_DATA, cookie, &rest);
        [rest, reply(true, chunk::OFFSET_DATA, cookie, &first)].concat()
    });
    assert_eq!(found, Ok([&early[..], &[6; BYTES - 1]].concat()));
}

#[test]
fn what_does_not_answer_the_request_ends_the_connection() {
    type Script = fn(u64) -> Vec<u8>;
    let table: [(Script, &str); 9] = [
        (|cookie| data(true, cookie, AT - 1, 10), "chunk: offset is 8191, which is outside the requested range"),
        (|cookie| data(true, cookie, AT + 4096, 1), "chunk: offset is 12288, which is outside the requested range"),
        (|cookie| data(true, cookie, u64::MAX, 1), "chunk: offset is 18446744073709551615, which is outside"),
        (
            |cookie| [data(false, cookie, AT, 100), data(true, cookie, AT + 99, 4096 - 99)].concat(),
            "chunk: offset is 8291, which arrived before",
        ),
        (
            |cookie| [data(false, cookie, AT + 50, 100), data(true, cookie, AT, 51)].concat(),
            "chunk: offset is 8192, which arrived before",
        ),
        (|cookie| data(true, cookie, AT, 4095), "reply: cookie is 0, which was answered in part only"),
        (|_| reply(true, chunk::NONE, 77, b""), "reply: cookie is 77, which belongs to no request in flight"),
        (
            |cookie| reply(true, chunk::BLOCK_STATUS, cookie, &[0, 0, 0, 9, 0, 0, 1, 0, 0, 0, 0, 0]),
            "extent: metadata context is 9, which was not requested",
        ),
        (|_| vec![0; 16], "reply: magic is 0x0"),
    ];
    for (script, expected) in table {
        let error = read(script).expect_err(expected);
        assert!(error.starts_with(&format!("the connection has ended: {expected}")), "{error}");
    }
}

#[test]
fn unexpected_data_ends_the_connection() {
    let flush = |script: fn(u64) -> Vec<u8>| {
        ask(script, |client| async move { client.flush().await.map_err(|error| error.to_string()) })
    };
    assert_eq!(flush(|cookie| reply(true, chunk::NONE, cookie, b"")), Ok(()));
    let error = flush(|cookie| data(true, cookie, 0, 1)).expect_err("a flush has no data");
    assert_eq!(error, "the connection has ended: chunk: cookie is 0, which is not a read's, but there is data");
    // A second answer to the same request.
    let twice = |cookie: u64| {
        let once = [&SIMPLE_REPLY_MAGIC.to_be_bytes()[..], &[0; 4], &cookie.to_be_bytes()].concat();
        [once.clone(), once].concat()
    };
    assert_eq!(flush(twice), Ok(()), "the first is good; nothing waits for the second");
}

#[test]
fn an_abandoned_request_is_still_answered() {
    let (here, there) = pipe(1 << 20, 11);
    let asking = async {
        let (client, connection) =
            connect(here, Pool::new(1 << 20), ClientOptions::default()).await.expect("the handshake succeeds");
        {
            let mut abandoned = pin!(client.read(AT, client.pool().take(BYTES)));
            let once = std::future::poll_fn(|cx| std::task::Poll::Ready(abandoned.as_mut().poll(cx).is_pending()));
            assert!(once.await, "the server has not answered yet");
        }
        // The disconnect waits for the answer, which has no receiver any more.
        client.disconnect();
        let ended = connection.await.map_err(|error| error.to_string());
        (ended, client.flush().await.map_err(|error| error.to_string()))
    };
    let script = |cookie| data(true, cookie, AT, BYTES);
    let (_end, (ended, asked)) = LocalPool::new().run_until(join(fake_server(there, script), asking));
    assert_eq!(ended, Ok(()));
    assert_eq!(asked, Err("the connection has ended: this side disconnected".into()));
}
