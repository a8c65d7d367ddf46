//! Looks at the watched arrays, each on a thread of its own: one whose server hangs ends after a while, and until then
//! the array counts as it was last seen.

use super::All;
use super::events::{Seen, Snapshot};
use crate::command::clients::control::view;
use crate::command::clients::served::PATIENCE;
use crate::command::opening::sockets::named_after;
use control::{Client, ClientError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// What a look showed.
enum Shown {
    Array(Snapshot),
    NotServed,
    Silent,
}

/// The looks that have not ended.
#[derive(Default)]
pub(super) struct Looks(BTreeMap<PathBuf, Receiver<Shown>>);

impl Looks {
    /// What is seen of the arrays of these sockets now. Looks of arrays that were seen before are waited for only for
    /// `patience`.
    pub(super) fn at(&mut self, sockets: Vec<PathBuf>, before: &All, patience: Option<Duration>) -> All {
        let end = patience.map(|patience| Instant::now() + patience);
        for socket in &sockets {
            self.0.entry(socket.clone()).or_insert_with(|| begin(socket.clone()));
        }
        let mut all = All::new();
        for socket in sockets {
            let Some(look) = self.0.remove(&socket) else { continue };
            let before = before.get(&socket);
            let ended = match end {
                None => Ok(look.recv().expect("a look does not panic")),
                Some(end) => look.recv_timeout(end.saturating_duration_since(Instant::now())),
            };
            match (ended, before) {
                (Ok(shown), _) => drop(all.insert(socket.clone(), seen(shown, &socket, before))),
                (Err(_), before) => {
                    before.map(|before| all.insert(socket.clone(), before.clone()));
                    self.0.insert(socket, look);
                }
            }
        }
        all
    }
}

fn begin(socket: PathBuf) -> Receiver<Shown> {
    let (sender, receiver) = channel();
    // Nobody may want it any more.
    std::thread::spawn(move || drop(sender.send(look(&socket))));
    receiver
}

fn look(socket: &Path) -> Shown {
    let Ok(client) = Client::connect(socket) else { return Shown::NotServed };
    match client.with_timeout(PATIENCE).get("/v1/status").map(|body| view(&body)) {
        Ok(Ok(status)) => Shown::Array(Snapshot::of(&status)),
        Ok(Err(_)) | Err(ClientError::Silent { .. }) => Shown::Silent,
        Err(_) => Shown::NotServed, // the server ended meanwhile
    }
}

/// What is known of an array after a look.
fn seen(shown: Shown, socket: &Path, before: Option<&Seen>) -> Seen {
    match (shown, before) {
        (Shown::Array(snapshot), _) => Seen::Array(snapshot),
        (Shown::NotServed, _) => Seen::NotServed,
        (Shown::Silent, Some(Seen::Array(last))) => Seen::Silent(last.array.clone(), Some(last.clone())),
        (Shown::Silent, Some(silent @ Seen::Silent(..))) => silent.clone(),
        (Shown::Silent, _) => Seen::Silent(named_after(socket).0, None),
    }
}
