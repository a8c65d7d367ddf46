//! A minimal NBD client, which can disconnect at any byte.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// The smallest block, the preferred block and the largest payload of the default export, in bytes.
pub(crate) fn block_sizes(socket: &str) -> [u32; 3] {
    let mut stream = UnixStream::connect(socket).expect("a server listens");
    stream.read_exact(&mut [0; 18]).expect("a greeting");
    // NBD_OPT_GO for the export without a name, with one information request: NBD_INFO_BLOCK_SIZE.
    let question = [0, 0, 0, 0, 0, 1, 0, 3];
    let option = [&b"IHAVEOPT"[..], &[0, 0, 0, 7, 0, 0, 0, question.len() as u8], &question].concat();
    stream.write_all(&[&3_u32.to_be_bytes()[..], &option].concat()).expect("it listens");
    loop {
        let mut head = [0; 20];
        stream.read_exact(&mut head).expect("a reply to the option");
        let length = u32::from_be_bytes(head[16..].try_into().expect("four bytes"));
        let mut fact = vec![0; length as usize];
        stream.read_exact(&mut fact).expect("the reply's body");
        assert_eq!(head[12..16], [0, 0, 0, 3], "no answer to the question, but the end of all answers");
        if fact.starts_with(&[0, 3]) {
            let (words, _) = fact[2..].as_chunks::<4>();
            return [0, 1, 2].map(|index| u32::from_be_bytes(words[index]));
        }
    }
}

/// A client.
pub(crate) struct Nbd {
    pub(crate) stream: UnixStream,
    /// Length of the export in bytes.
    pub(crate) bytes: u64,
}

impl Nbd {
    pub(crate) fn connect(socket: &str) -> Self {
        let mut stream = UnixStream::connect(socket).expect("the server listens");
        let agreed = 3_u32.to_be_bytes(); // fixed newstyle, no zeroes
        stream.read_exact(&mut [0; 18]).expect("a greeting");
        // NBD_OPT_EXPORT_NAME for the default export, which needs no reply.
        stream.write_all(&[&agreed[..], b"IHAVEOPT", &[0, 0, 0, 1, 0, 0, 0, 0]].concat()).expect("it listens");
        let mut told = [0; 10];
        stream.read_exact(&mut told).expect("size and flags");
        let bytes = u64::from_be_bytes(told[..8].try_into().expect("eight bytes"));
        Self { stream, bytes }
    }

    pub(crate) fn request(&mut self, kind: u16, at: u64, bytes: u32, payload: &[u8]) {
        let header = [&0x2560_9513_u32.to_be_bytes()[..], &[0, 0], &kind.to_be_bytes()];
        let cookie = at.to_be_bytes();
        let place = [&cookie[..], &at.to_be_bytes(), &bytes.to_be_bytes()].concat();
        self.stream.write_all(&[&header.concat(), &place, payload].concat()).expect("it listens");
    }

    /// The reply to the last request, if no other is under way.
    pub(crate) fn outcome(&mut self) -> Result<(), u32> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply).expect("an answer");
        let error = u32::from_be_bytes(reply[4..8].try_into().expect("four bytes"));
        if error == 0 { Ok(()) } else { Err(error) }
    }

    /// The cookie of a successful reply.
    pub(crate) fn reply(&mut self) -> u64 {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply).expect("an answer");
        assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], "no error");
        u64::from_be_bytes(reply[8..].try_into().expect("eight bytes"))
    }

    pub(crate) fn read(&mut self, at: u64, bytes: u32) -> Vec<u8> {
        self.request(0, at, bytes, &[]);
        assert_eq!(self.reply(), at);
        let mut data = vec![0; bytes as usize];
        self.stream.read_exact(&mut data).expect("what was read");
        data
    }
}
