//! `mdspace monitor`: reports events of arrays to a program, a mail command or a webhook, and moves spares between
//! arrays, as mdadm --monitor does.
//!
//! It compares snapshots of the status at intervals, so changes that are undone between two snapshots cause no event.

pub(crate) mod detached;
mod events;
mod moving;
mod recipients;
mod spares;
mod syslog;

use crate::command::clients::arguments::MonitorArguments;
use crate::command::clients::choice::{self, Wanted};
use crate::command::clients::control::view;
use crate::command::clients::interval::Intervals;
use crate::command::clients::served::is_listening;
use crate::command::opening::sockets::control_sockets;
use crate::command::text::failure::Failure;
use crate::command::text::output::tell;
use control::Client;
use detached::Detached;
use events::{Event, Snapshot, events};
use moving::Mover;
use recipients::Recipients;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Runs `mdspace monitor`.
pub(crate) fn run(arguments: &MonitorArguments) -> Result<(), Failure> {
    let mut detached = arguments.detached.then(|| Detached::begin(arguments)).transpose()?;
    let watched = Watched::of(arguments)?;
    let recipients = Recipients::of(arguments)?;
    let mut mover = Mover::of(&arguments.spare_groups)?;
    let mut before = BTreeMap::new();
    let interval = if arguments.once { None } else { Some(arguments.interval) };
    for (number, ()) in Intervals::new(interval, None).enumerate() {
        let now = watched.snapshots(&before)?;
        // From here on every change is noticed.
        detached.as_mut().map_or(Ok(()), Detached::watches)?;
        for (socket, snapshot) in &now {
            let before = before.get(socket).and_then(Option::as_ref);
            recipients.notify_all(&events(before, snapshot.as_ref(), arguments.increment))?;
        }
        if number == 0 && arguments.test {
            recipients.notify_all(&test_messages(&now))?;
        }
        before = now;
        recipients.notify_all(&mover.look()?)?;
    }
    Ok(())
}

/// One for each array, as mdadm sends them.
fn test_messages(now: &Snapshots) -> Vec<Event> {
    let arrays: Vec<&str> = now.values().flatten().map(|snapshot| &*snapshot.array).collect();
    let arrays = if arrays.is_empty() { vec!["unknown"] } else { arrays };
    arrays.into_iter().map(|array| Event::new("TestMessage", array, None)).collect()
}

/// By control socket; `None` for an array that is not served.
type Snapshots = BTreeMap<PathBuf, Option<Snapshot>>;

/// The arrays that are watched.
enum Watched {
    /// Those of these sockets.
    Chosen(Vec<PathBuf>),
    /// All that this user serves.
    All,
}

impl Watched {
    fn of(arguments: &MonitorArguments) -> Result<Self, Failure> {
        let wanted = arguments.wanted();
        if !wanted.is_empty() {
            let sockets: Result<_, _> = wanted.iter().map(choice::socket).collect();
            return Ok(Self::Chosen(sockets?));
        }
        if !control_sockets().iter().any(|socket| is_listening(socket)) {
            if arguments.once {
                choice::socket(&Wanted::default())?; // which refuses
            }
            tell!("note: no array of yours is being served here yet");
        }
        Ok(Self::All)
    }

    /// Snapshots of the arrays, of those before as well: an array that is gone is an event.
    fn snapshots(&self, before: &Snapshots) -> Result<Snapshots, Failure> {
        let sockets = match self {
            Self::Chosen(sockets) => sockets.clone(),
            Self::All => {
                let mut sockets = control_sockets();
                let known = before.iter().filter(|(_, snapshot)| snapshot.is_some()).map(|(socket, _)| socket);
                let others: Vec<PathBuf> = known.filter(|socket| !sockets.contains(socket)).cloned().collect();
                sockets.extend(others);
                sockets
            }
        };
        std::thread::scope(|scope| {
            let ask = |socket: PathBuf| (socket.clone(), scope.spawn(move || snapshot(&socket)));
            let asked: Vec<_> = sockets.into_iter().map(ask).collect();
            let mut answered = Snapshots::new();
            for (socket, answer) in asked {
                answered.insert(socket, answer.join().expect("asking does not panic")?);
            }
            Ok(answered)
        })
    }
}

/// A snapshot of the array; `None` if it is not served.
fn snapshot(path: &Path) -> Result<Option<Snapshot>, Failure> {
    let Ok(client) = Client::connect(path) else { return Ok(None) };
    match client.get("/v1/status") {
        Ok(body) => Ok(Some(Snapshot::of(&view(&body)?))),
        Err(_) => Ok(None), // the server ended meanwhile
    }
}
