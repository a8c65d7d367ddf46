//! Dialogues as tables, both sides against each other, and both against garbage, with the bytes split at random places.

use super::*;
use crate::nbd::wire::{
    EXPORT_NAME_PADDING_BYTES, OPTION_MAGIC, OPTION_REPLY_MAGIC, STRING_BYTES_MAX, WireError, info, option,
    option_reply, transmission_flag,
};
use proptest::prelude::*;
use std::rc::Rc;

const ARRAY: &str = "array";
const BYTES: u64 = 3 << 30;

fn server(tls: Tls) -> ServerHandshake {
    let array = ExportInfo {
        name: ARRAY.into(),
        bytes: BYTES,
        read_only: false,
        preferred_block_bytes: 65536,
        minimum_block_bytes: 1,
    };
    let other = ExportInfo {
        name: "other".into(),
        bytes: 512,
        read_only: true,
        preferred_block_bytes: 4096,
        minimum_block_bytes: 512,
    };
    ServerHandshake::new(Rc::new([array, other]), tls)
}

/// An option and its data.
type Sent = (u32, Vec<u8>);

/// Client flags, then options.
fn client_bytes(flags: u32, options: &[Sent]) -> Vec<u8> {
    let mut bytes = flags.to_be_bytes().to_vec();
    for (option, data) in options {
        bytes.extend(OPTION_MAGIC.to_be_bytes());
        put_u32(&mut bytes, *option);
        put_string(&mut bytes, data);
    }
    bytes
}

/// The data of `INFO` and `GO`.
fn info_data(name: &str, requests: &[u16]) -> Vec<u8> {
    let mut data = Vec::new();
    put_string(&mut data, name.as_bytes());
    put_u16(&mut data, requests.len() as u16);
    requests.iter().for_each(|fact| put_u16(&mut data, *fact));
    data
}

/// The data of the two options about metadata contexts.
fn queries(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = Vec::new();
    put_string(&mut data, name.as_bytes());
    put_u32(&mut data, queries.len() as u32);
    queries.iter().for_each(|query| put_string(&mut data, query.as_bytes()));
    data
}

/// Feeds the server pieces that end at `cuts`. Returns its output and the last progress.
fn run(bytes: &[u8], cuts: &[usize]) -> (Vec<u8>, Result<ServerProgress, WireError>) {
    let mut server = server(Tls::Unknown);
    let mut out = Vec::new();
    let mut last = Ok(ServerProgress::NeedInput);
    let mut start = 0;
    for end in cuts.iter().copied().chain([bytes.len()]) {
        let mut input = &bytes[start.min(end)..end.max(start)];
        start = start.max(end);
        loop {
            last = server.advance(&mut input, &mut out);
            match last {
                Ok(ServerProgress::Answered) => continue,
                Ok(ServerProgress::NeedInput) => break,
                _ => return (out, last),
            }
        }
    }
    (out, last)
}

/// The server's replies to options: option, type and data.
fn replies(mut bytes: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut replies = Vec::new();
    while !bytes.is_empty() {
        let mut fields = Fields(bytes);
        assert_eq!(fields.bytes(8, "magic").unwrap(), OPTION_REPLY_MAGIC.to_be_bytes());
        let (option, kind) = (fields.u32("option").unwrap(), fields.u32("kind").unwrap());
        replies.push((option, kind, fields.string("data").unwrap().to_vec()));
        bytes = fields.0;
    }
    replies
}

#[test]
fn each_option_gets_the_reply_that_the_protocol_prescribes() {
    use option::{GO, INFO, LIST, LIST_META_CONTEXT, SET_META_CONTEXT, STRUCTURED_REPLY};
    use option_reply::{ACK, ERROR_INVALID, ERROR_TOO_BIG, ERROR_UNKNOWN, ERROR_UNSUPPORTED, META_CONTEXT, SERVER};
    let structured = (STRUCTURED_REPLY, vec![]);
    let truncated = info_data(ARRAY, &[info::BLOCK_SIZE])[..12].to_vec();
    let beyond = { 100u32.to_be_bytes().to_vec() };
    let long_name = "x".repeat(STRING_BYTES_MAX + 1);
    let both = ["base:allocation", "qemu:dirty", "base:allocation"];
    // Options sent -> types of the replies to the last option.
    let table: Vec<(Vec<Sent>, Vec<u32>)> = vec![
        (vec![(LIST, vec![])], vec![SERVER, SERVER, ACK]),
        (vec![(LIST, vec![0])], vec![ERROR_INVALID]),
        (vec![structured.clone()], vec![ACK]),
        (vec![(STRUCTURED_REPLY, vec![0])], vec![ERROR_INVALID]),
        (vec![(INFO, info_data("", &[]))], vec![option_reply::INFO, ACK]),
        (
            vec![(INFO, info_data(ARRAY, &[info::BLOCK_SIZE, info::NAME, 99]))],
            vec![option_reply::INFO, option_reply::INFO, option_reply::INFO, ACK],
        ),
        (vec![(INFO, info_data("unknown", &[]))], vec![ERROR_UNKNOWN]),
        (vec![(GO, info_data("unknown", &[]))], vec![ERROR_UNKNOWN]),
        (vec![(GO, info_data(&long_name, &[]))], vec![ERROR_INVALID]),
        (vec![(INFO, truncated)], vec![ERROR_INVALID]),
        (vec![(INFO, [info_data("", &[]), vec![0]].concat())], vec![ERROR_INVALID]),
        (vec![(INFO, vec![])], vec![ERROR_INVALID]),
        (vec![(INFO, beyond.clone())], vec![ERROR_INVALID]),
        (vec![(INFO, vec![0; DATA_BYTES_MAX + 1])], vec![ERROR_TOO_BIG]),
        (vec![(SET_META_CONTEXT, queries(ARRAY, &["base:allocation"]))], vec![ERROR_INVALID]),
        (vec![structured.clone(), (SET_META_CONTEXT, queries(ARRAY, &both))], vec![META_CONTEXT, ACK]),
        (vec![structured.clone(), (SET_META_CONTEXT, queries(ARRAY, &["base:"]))], vec![ACK]),
        (vec![structured.clone(), (SET_META_CONTEXT, queries(ARRAY, &[]))], vec![ACK]),
        (vec![structured.clone(), (SET_META_CONTEXT, queries("unknown", &[]))], vec![ERROR_UNKNOWN]),
        (vec![structured.clone(), (LIST_META_CONTEXT, queries(ARRAY, &["base:"]))], vec![META_CONTEXT, ACK]),
        (vec![structured.clone(), (LIST_META_CONTEXT, queries(ARRAY, &[]))], vec![META_CONTEXT, ACK]),
        (vec![structured.clone(), (LIST_META_CONTEXT, queries(ARRAY, &["qemu:"]))], vec![ACK]),
        (vec![structured.clone(), (LIST_META_CONTEXT, [queries(ARRAY, &[]), beyond].concat())], vec![ERROR_INVALID]),
        (vec![(5, vec![])], vec![ERROR_UNSUPPORTED]),  // STARTTLS
        (vec![(11, vec![])], vec![ERROR_UNSUPPORTED]), // EXTENDED_HEADERS
        (vec![(0xdead_beef, vec![7; 5000])], vec![ERROR_UNSUPPORTED]),
    ];
    for (options, expected) in table {
        let last = options.last().unwrap().0;
        let (out, progress) = run(&client_bytes(3, &options), &[]);
        assert_eq!(progress, Ok(ServerProgress::NeedInput), "{options:?}");
        let found: Vec<u32> = replies(&out).iter().filter(|reply| reply.0 == last).map(|reply| reply.1).collect();
        assert_eq!(found, expected, "{options:?}");
    }
}

#[test]
fn without_tls_nothing_is_revealed_or_served_where_it_is_required() {
    use ServerProgress::{Aborted, Answered, StartTls, UnknownExport};
    use option::{ABORT, EXPORT_NAME, GO, INFO, LIST, SET_META_CONTEXT, STARTTLS, STRUCTURED_REPLY};
    use option_reply::{ACK, ERROR_INVALID, ERROR_TLS_REQUIRED, ERROR_TOO_BIG, ERROR_UNSUPPORTED, SERVER};
    let go = (GO, info_data(ARRAY, &[]));
    // TLS state, option -> types of the replies, and the progress.
    let table: Vec<(Tls, Sent, Vec<u32>, ServerProgress)> = vec![
        (Tls::Required, (STARTTLS, vec![]), vec![ACK], StartTls),
        (Tls::Required, (STARTTLS, vec![0]), vec![ERROR_INVALID], Answered),
        (Tls::Required, (STARTTLS, vec![0; DATA_BYTES_MAX + 1]), vec![ERROR_TOO_BIG], Answered),
        (Tls::Required, go, vec![ERROR_TLS_REQUIRED], Answered),
        (Tls::Required, (INFO, info_data("unknown", &[])), vec![ERROR_TLS_REQUIRED], Answered),
        (Tls::Required, (LIST, vec![]), vec![ERROR_TLS_REQUIRED], Answered),
        (Tls::Required, (STRUCTURED_REPLY, vec![]), vec![ERROR_TLS_REQUIRED], Answered),
        (Tls::Required, (SET_META_CONTEXT, queries(ARRAY, &[])), vec![ERROR_TLS_REQUIRED], Answered),
        (Tls::Required, (EXPORT_NAME, ARRAY.into()), vec![], UnknownExport),
        (Tls::Required, (ABORT, vec![]), vec![ACK], Aborted),
        (Tls::Offered, (STARTTLS, vec![]), vec![ACK], StartTls),
        (Tls::Offered, (LIST, vec![]), vec![SERVER, SERVER, ACK], Answered),
        (Tls::Active, (STARTTLS, vec![]), vec![ERROR_INVALID], Answered),
        (Tls::Active, (LIST, vec![]), vec![SERVER, SERVER, ACK], Answered),
        (Tls::Unknown, (STARTTLS, vec![]), vec![ERROR_UNSUPPORTED], Answered),
    ];
    for (tls, option, expected, progress) in table {
        let mut out = Vec::new();
        let said = client_bytes(3, std::slice::from_ref(&option));
        assert_eq!(server(tls).advance(&mut &said[..], &mut out), Ok(progress), "{tls:?} {option:?}");
        let found: Vec<u32> = replies(&out).into_iter().map(|reply| reply.1).collect();
        assert_eq!(found, expected, "{tls:?} {option:?}");
    }
}

#[test]
fn what_was_agreed_on_before_tls_is_forgotten() {
    let before = [
        (option::STRUCTURED_REPLY, vec![]),
        (option::SET_META_CONTEXT, queries(ARRAY, &["base:allocation"])),
        (option::STARTTLS, vec![]),
    ];
    let said = client_bytes(3, &before);
    let (mut input, mut out) = (&said[..], Vec::new());
    let mut plain = server(Tls::Offered);
    while plain.advance(&mut input, &mut out) != Ok(ServerProgress::StartTls) {}
    let said = client_bytes(3, &[(option::GO, info_data(ARRAY, &[]))]);
    // The client does not repeat its flags.
    let progress = plain.secured().advance(&mut &said[4..], &mut out);
    let agreed = Negotiated { export: 0, bytes: BYTES, read_only: false, structured: false, allocation_context: None };
    assert_eq!(progress, Ok(ServerProgress::Transmission(agreed)));
}

#[test]
fn an_export_is_described_by_its_size_its_flags_and_its_block_sizes() {
    let (out, _) = run(&client_bytes(3, &[(option::INFO, info_data("other", &[info::BLOCK_SIZE, info::NAME]))]), &[]);
    let read_only = transmission_flag::HAS_FLAGS
        | transmission_flag::READ_ONLY
        | transmission_flag::SEND_FLUSH
        | transmission_flag::SEND_FUA
        | transmission_flag::CAN_MULTI_CONN;
    let expected = [
        [&info::EXPORT.to_be_bytes()[..], &512u64.to_be_bytes(), &read_only.to_be_bytes()].concat(),
        [&info::NAME.to_be_bytes()[..], b"other"].concat(),
        [&info::BLOCK_SIZE.to_be_bytes()[..], &[0, 0, 2, 0], &[0, 0, 16, 0], &[2, 0, 0, 0]].concat(),
        vec![],
    ];
    let found: Vec<Vec<u8>> = replies(&out).into_iter().map(|reply| reply.2).collect();
    assert_eq!(found, expected);
}

#[test]
fn the_transmission_phase_begins_with_what_was_agreed() {
    let structured = (option::STRUCTURED_REPLY, vec![]);
    let context = |name| (option::SET_META_CONTEXT, queries(name, &["base:allocation"]));
    let go = |name| (option::GO, info_data(name, &[]));
    let agreed = Negotiated { export: 0, bytes: BYTES, read_only: false, structured: false, allocation_context: None };
    let table = [
        (vec![go("")], agreed),
        (vec![go("other")], Negotiated { export: 1, bytes: 512, read_only: true, ..agreed }),
        (vec![structured.clone(), go("")], Negotiated { structured: true, ..agreed }),
        (
            vec![structured.clone(), context(""), go(ARRAY)],
            Negotiated { structured: true, allocation_context: Some(1), ..agreed },
        ),
        // The context was chosen for another export; or chosen, then reset.
        (vec![structured.clone(), context("other"), go(ARRAY)], Negotiated { structured: true, ..agreed }),
        (
            vec![structured.clone(), context(ARRAY), context("unknown"), go(ARRAY)],
            Negotiated { structured: true, ..agreed },
        ),
        (vec![(option::EXPORT_NAME, ARRAY.into())], agreed),
    ];
    for (options, expected) in table {
        let (_, progress) = run(&client_bytes(3, &options), &[]);
        assert_eq!(progress, Ok(ServerProgress::Transmission(expected)), "{options:?}");
    }
}

#[test]
fn sessions_that_cannot_go_on_end_in_the_prescribed_way() {
    let magic = WireError::Magic { message: "option", found: 0, expected: OPTION_MAGIC };
    let flags = WireError::field("client flags", "flags", 4u32, "has a bit that was not offered");
    let huge_name = vec![b'a'; DATA_BYTES_MAX + 1];
    let table = [
        (client_bytes(3, &[(option::ABORT, vec![1, 2, 3])]), Ok(ServerProgress::Aborted)),
        (client_bytes(3, &[(option::EXPORT_NAME, b"no".to_vec())]), Ok(ServerProgress::UnknownExport)),
        (client_bytes(3, &[(option::EXPORT_NAME, huge_name)]), Ok(ServerProgress::UnknownExport)),
        (client_bytes(4, &[]), Err(flags)),
        ([client_bytes(3, &[]), vec![0; 16]].concat(), Err(magic)),
    ];
    for (bytes, expected) in table {
        assert_eq!(run(&bytes, &[]).1, expected);
    }
}

#[test]
fn the_reply_to_export_name_is_padded_unless_agreed_otherwise() {
    for (flags, padding) in [(0, EXPORT_NAME_PADDING_BYTES), (1, EXPORT_NAME_PADDING_BYTES), (2, 0), (3, 0)] {
        let (out, _) = run(&client_bytes(flags, &[(option::EXPORT_NAME, vec![])]), &[]);
        assert_eq!(out.len(), 10 + padding, "flags {flags}");
    }
}

/// Runs both sides against each other, one byte at a time. Returns the client's result.
fn converse(wanted: ClientOptions) -> Result<RemoteExport, HandshakeError> {
    let mut server = server(Tls::Unknown);
    let mut client = ClientHandshake::new(wanted);
    let mut to_client = ServerHandshake::greeting().as_bytes().to_vec();
    loop {
        let mut to_server = Vec::new();
        for byte in to_client {
            if let ClientProgress::Transmission(export) = client.advance(&mut &[byte][..], &mut to_server)? {
                return Ok(export);
            }
        }
        assert!(!to_server.is_empty(), "the handshake goes on");
        to_client = Vec::new();
        for byte in to_server {
            server.advance(&mut &[byte][..], &mut to_client).unwrap();
        }
    }
}

#[test]
fn the_client_and_the_server_agree() {
    for (structured, allocation) in [(false, false), (true, false), (true, true)] {
        let export = converse(ClientOptions { export: ARRAY.into(), structured, allocation }).unwrap();
        assert_eq!((export.bytes, export.preferred_block_bytes, export.structured), (BYTES, 65536, structured));
        assert_eq!(export.allocation_context.is_some(), allocation);
        assert_eq!(export.flags & transmission_flag::SEND_DF != 0, structured);
    }
    let refused = converse(ClientOptions { export: "unknown".into(), ..ClientOptions::default() });
    let text = "there is no such export here".into();
    assert_eq!(refused, Err(HandshakeError::Refused { kind: option_reply::ERROR_UNKNOWN, text }));
}

fn reply_bytes(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    put_u32(&mut bytes, option);
    put_u32(&mut bytes, kind);
    put_string(&mut bytes, data);
    bytes
}

#[test]
fn the_client_goes_on_with_a_server_that_knows_only_the_oldest_way() {
    let mut from_server = ServerHandshake::greeting().as_bytes().to_vec();
    from_server.extend(reply_bytes(option::STRUCTURED_REPLY, option_reply::ERROR_UNSUPPORTED, b""));
    from_server.extend(reply_bytes(option::GO, option_reply::ERROR_UNSUPPORTED, b"what?"));
    from_server.extend([&BYTES.to_be_bytes()[..], &1u16.to_be_bytes()].concat());
    let mut client = ClientHandshake::new(ClientOptions { export: ARRAY.into(), ..ClientOptions::default() });
    let mut out = Vec::new();
    let ClientProgress::Transmission(export) = client.advance(&mut &from_server[..], &mut out).unwrap() else {
        panic!("the handshake is over");
    };
    assert_eq!((export.bytes, export.structured), (BYTES, false));
    assert!(out.ends_with(&client_bytes(0, &[(option::EXPORT_NAME, ARRAY.into())])[4..]));
}

#[test]
fn the_client_names_what_is_wrong_with_a_server() {
    let after_greeting = |bytes: Vec<u8>| [ServerHandshake::greeting().as_bytes().to_vec(), bytes].concat();
    let fact = |kind: u16, rest: &[u8]| {
        let structured = reply_bytes(option::STRUCTURED_REPLY, option_reply::ERROR_UNSUPPORTED, b"");
        let fact = [&kind.to_be_bytes()[..], rest].concat();
        after_greeting([structured, reply_bytes(option::GO, option_reply::INFO, &fact)].concat())
    };
    let sizes = |minimum: u32, preferred: u32, maximum: u32| {
        fact(info::BLOCK_SIZE, &[minimum.to_be_bytes(), preferred.to_be_bytes(), maximum.to_be_bytes()].concat())
    };
    let table = [
        (vec![0; 18], "greeting: magic is 0x0, not 0x4e42444d41474943"),
        ([b"NBDMAGICIHAVEOPT".to_vec(), vec![0, 0]].concat(), "the server does not offer the fixed newstyle handshake"),
        (after_greeting(vec![0; 20]), "option reply: magic is 0x0, not 0x3e889045565a9"),
        (after_greeting(reply_bytes(7, 1, b"")), "option reply: option is 7, which was not asked"),
        (after_greeting(reply_bytes(8, 2, b"")), "option reply: type is 2, which does not belong to the option"),
        (
            after_greeting(reply_bytes(8, 1, &vec![0; DATA_BYTES_MAX + 1])),
            "option reply: length is 16385, which is too long",
        ),
        (fact(info::EXPORT, &[0; 9]), "reply to an option: transmission flags does not fit its data"),
        (fact(info::EXPORT, &[0; 11]), "reply to an option: transmission flags does not fit its data"),
        (sizes(3, 512, 512), "block sizes: minimum is 3, which is not a power of two up to 65536"),
        (
            sizes(4096, 512, 4096),
            "block sizes: preferred is 512, which is not a power of two from the larger of minimum and 512",
        ),
        (sizes(1, 4096, 512), "block sizes: maximum is 512, which is less than the preferred block size"),
    ];
    for (bytes, expected) in table {
        let mut client = ClientHandshake::new(ClientOptions::default());
        let error = client.advance(&mut &bytes[..], &mut Vec::new()).expect_err(expected);
        assert_eq!(error.to_string(), expected);
    }
}

fn arbitrary_option() -> impl Strategy<Value = Sent> {
    let garbage = proptest::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        Just((option::LIST, vec![])),
        Just((option::STRUCTURED_REPLY, vec![])),
        Just((option::SET_META_CONTEXT, queries("", &["base:allocation"]))),
        Just((option::INFO, info_data(ARRAY, &[info::BLOCK_SIZE]))),
        Just((option::LIST, vec![0; DATA_BYTES_MAX + 3])),
        (0u32..14, garbage),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_server_says_the_same_however_the_bytes_are_cut(
        options in proptest::collection::vec(arbitrary_option(), 0..6),
        tail in proptest::collection::vec(any::<u8>(), 0..20),
        mut cuts in proptest::collection::vec(0usize..400, 0..40),
    ) {
        let mut bytes = client_bytes(3, &options);
        bytes.extend(tail);
        cuts.sort_unstable();
        cuts.iter_mut().for_each(|cut| *cut = (*cut).min(bytes.len()));
        prop_assert_eq!(run(&bytes, &cuts), run(&bytes, &[]));
    }

    #[test]
    fn the_client_survives_whatever_a_server_says(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        kind in prop_oneof![Just(option_reply::INFO), Just(option_reply::ACK), any::<u32>()],
        option in 7u32..11,
    ) {
        let mut client = ClientHandshake::new(ClientOptions::default());
        let mut out = Vec::new();
        let mut input = ServerHandshake::greeting().as_bytes().to_vec();
        input.extend(reply_bytes(option::STRUCTURED_REPLY, option_reply::ACK, b""));
        input.extend(reply_bytes(option, kind, &bytes));
        input.extend(bytes);
        let _ = client.advance(&mut &input[..], &mut out);
        prop_assert!(out.len() < 1000);
    }
}
