//! Requests to a served array: over NBD, and over HTTP.

use super::{Server, Workplace};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

/// Writes bytes with nbdcopy.
pub(crate) fn copy_in(here: &Workplace, server: &Server, bytes: usize) {
    std::fs::write(here.path().join("data"), vec![7; bytes]).expect("a file");
    let copied =
        Command::new("nbdcopy").arg("--flush").arg("data").arg(server.word("nbd")).current_dir(here.path()).status();
    assert!(copied.expect("nbdcopy is installed").success());
}

/// Sends a request; returns the reply's status and body.
pub(crate) fn http(address: &str, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.write_all(request.as_bytes()).expect("it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}
