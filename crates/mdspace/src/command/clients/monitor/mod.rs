//! `mdspace monitor`: reports events of arrays to a program, a mail command or a webhook, and moves spares between
//! arrays, as mdadm --monitor does.
//!
//! It compares snapshots of the status at intervals, so changes that are undone between two snapshots cause no event. A
//! server that does not answer holds up no event of another array.

pub(crate) mod detached;
mod events;
mod looks;
mod moving;
mod recipients;
mod spares;
mod syslog;

use crate::command::clients::arguments::MonitorArguments;
use crate::command::clients::choice::{self, Wanted};
use crate::command::clients::interval::Intervals;
use crate::command::clients::served::is_listening;
use crate::command::opening::sockets::control_sockets;
use crate::command::text::failure::Failure;
use crate::command::text::output::{is_read, tell};
use detached::Detached;
use events::{Event, Seen, events};
use looks::Looks;
use moving::Mover;
use recipients::Recipients;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Runs `mdspace monitor`.
pub(crate) fn run(arguments: &MonitorArguments) -> Result<(), Failure> {
    let mut detached = arguments.detached.then(|| Detached::begin(arguments)).transpose()?;
    let watched = Watched::of(arguments)?;
    let recipients = Recipients::of(arguments)?;
    let mut mover = Mover::of(&arguments.spare_groups)?;
    let mut looks = Looks::default();
    let mut before = All::new();
    let interval = if arguments.once { None } else { Some(arguments.interval) };
    for (number, ()) in Intervals::new(interval, None).enumerate() {
        // The first look is to show all arrays; a later one is waited for only until the next is due.
        let patience = (number > 0).then(|| Duration::from_secs_f64(arguments.interval));
        let now = looks.at(watched.sockets(&before), &before, patience);
        // From here on every change is noticed.
        detached.as_mut().map_or(Ok(()), Detached::watches)?;
        for (socket, seen) in &now {
            recipients.notify_all(&events(before.get(socket), seen, arguments.increment))?;
        }
        if number == 0 && arguments.test {
            recipients.notify_all(&test_messages(&now))?;
        }
        before = now;
        let is_silent = |socket: &Path| matches!(before.get(socket), Some(Seen::Silent(..)));
        recipients.notify_all(&mover.look(&is_silent)?)?;
        if !recipients.are_there(is_read()) {
            break;
        }
    }
    recipients.result()
}

/// One for each array, as mdadm sends them.
fn test_messages(now: &All) -> Vec<Event> {
    let arrays: Vec<&str> = now.values().filter_map(Seen::array).collect();
    let arrays = if arrays.is_empty() { vec!["unknown"] } else { arrays };
    arrays.into_iter().map(|array| Event::new("TestMessage", array, None)).collect()
}

/// By control socket.
type All = BTreeMap<PathBuf, Seen>;

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

    /// The sockets of the arrays, of those before as well: an array that is gone is an event.
    fn sockets(&self, before: &All) -> Vec<PathBuf> {
        match self {
            Self::Chosen(sockets) => sockets.clone(),
            Self::All => {
                let mut sockets = control_sockets();
                let known = before.iter().filter(|(_, seen)| seen.array().is_some()).map(|(socket, _)| socket);
                let others: Vec<PathBuf> = known.filter(|socket| !sockets.contains(socket)).cloned().collect();
                sockets.extend(others);
                sockets
            }
        }
    }
}
