//! Any bytes from a client to the server's handshake, and from a server to the
//! client's: never a panic, small answers, and the same ones however the bytes
//! are cut.
#![no_main]

use export::nbd::handshake::{
    ClientHandshake, ClientOptions, ClientProgress, ExportInfo, ServerHandshake, ServerProgress, Tls,
};
use export::nbd::wire::{GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC};
use libfuzzer_sys::fuzz_target;

/// What one call may make to be sent: the longest list of these two exports,
/// or a refusal's text.
const ANSWER_BYTES_MAX: usize = 512;

type Messages = Vec<(u8, u8, Vec<u8>)>;

fn server(bytes: &[u8], tls: Tls, cut: usize) -> (Vec<u8>, String) {
    let export = |name: &str| ExportInfo {
        name: name.into(),
        bytes: 1 << 30,
        read_only: false,
        preferred_block_bytes: 4096,
        minimum_block_bytes: 1,
    };
    let mut server = ServerHandshake::new([export("a"), export("b")].into(), tls);
    let (first, second) = bytes.split_at(cut);
    let mut said = Vec::new();
    for mut input in [first, second] {
        loop {
            let mut out = Vec::new();
            let progress = server.advance(&mut input, &mut out);
            assert!(out.len() <= ANSWER_BYTES_MAX, "{} bytes at once", out.len());
            said.extend(out);
            match progress {
                Ok(ServerProgress::Answered) => {}
                // What follows comes through TLS, and is as foreign.
                Ok(ServerProgress::StartTls) => server = server.secured(),
                Ok(ServerProgress::NeedInput) => break,
                end => return (said, format!("{end:?}")),
            }
        }
    }
    (said, "more".into())
}

fn client(bytes: &[u8], cut: usize) -> (Vec<u8>, String) {
    let mut client = ClientHandshake::new(ClientOptions { export: "a".into(), ..ClientOptions::default() });
    let (first, second) = bytes.split_at(cut);
    let mut said = Vec::new();
    for mut input in [first, second] {
        match client.advance(&mut input, &mut said) {
            Ok(ClientProgress::NeedInput) => {}
            end => return (said, format!("{end:?}")),
        }
    }
    assert!(said.len() <= ANSWER_BYTES_MAX);
    (said, "more".into())
}

/// Messages with proper headers, and then bytes as they are.
fn compose(start: &[u8], messages: &Messages, tail: &[u8], header: impl Fn(u8, u8) -> Vec<u8>) -> Vec<u8> {
    let mut bytes = start.to_vec();
    for (option, kind, data) in messages {
        bytes.extend(header(*option, *kind));
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
    }
    bytes.extend(tail);
    bytes
}

fuzz_target!(|input: (u8, Messages, Vec<u8>, u16)| {
    let (flags, messages, tail, cut) = input;
    let options = compose(&u32::from(flags & 7).to_be_bytes(), &messages, &tail, |option, _| {
        [&OPTION_MAGIC.to_be_bytes()[..], &u32::from(option % 13).to_be_bytes()].concat()
    });
    let greeting = [&GREETING_MAGIC.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &[0, flags]].concat();
    let replies = compose(&greeting, &messages, &tail, |option, kind| {
        // Errors have bit 31 set.
        let kind = u32::from(kind & 15) | u32::from(kind & 16) << 27;
        let option = 7 + u32::from(option % 4);
        [&OPTION_REPLY_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &kind.to_be_bytes()].concat()
    });
    let cut_at = |bytes: &[u8]| usize::from(cut) % (bytes.len() + 1);
    let tls = [Tls::Unknown, Tls::Offered, Tls::Required, Tls::Active][usize::from(flags >> 6)];
    assert_eq!(server(&options, tls, cut_at(&options)), server(&options, tls, 0));
    assert_eq!(client(&replies, cut_at(&replies)), client(&replies, 0));
});
