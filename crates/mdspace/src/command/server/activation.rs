//! The service manager's interface: sockets that systemd opened (sd_listen_fds(3)), and notifications to it
//! (sd_notify(3)).
//!
//! Without systemd both do nothing.

use crate::command::server::nbd_address::NbdAddress;
use crate::command::text::failure::Failure;
use crate::command::text::output::tell;
use io::net::Listener;
use listenfd::ListenFd;
use sd_notify::NotifyState;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

/// Sockets from the service manager, by their `FileDescriptorName=`.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    pub(crate) nbd: Option<(Listener, NbdAddress)>,
    pub(crate) control: Option<UnixListener>,
    pub(crate) http: Option<TcpListener>,
}

const ADVICE: &str = "set FileDescriptorName= in the socket unit to nbd, control or http, each once";

impl Inherited {
    /// Takes the sockets that this process inherited.
    pub(crate) fn take() -> Result<Self, Failure> {
        let mut given = ListenFd::from_env();
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let names: Vec<&str> = names.split(':').collect();
        let mut inherited = Self::default();
        for index in 0..given.len() {
            let name = names.get(index).copied().unwrap_or_default();
            let refused = |reason: String| Failure::refused(format!("socket {name:?}: {reason}")).advise(ADVICE);
            let failed = |error: std::io::Error| refused(error.to_string());
            let is_twice = match name {
                "nbd" => inherited.nbd.replace(nbd(&mut given, index).map_err(failed)?).is_some(),
                "control" => {
                    inherited.control.replace(taken(given.take_unix_listener(index)).map_err(failed)?).is_some()
                }
                "http" => inherited.http.replace(taken(given.take_tcp_listener(index)).map_err(failed)?).is_some(),
                _ => return Err(refused("unknown name".to_owned())),
            };
            if is_twice {
                return Err(refused("two sockets have this name".to_owned()));
            }
        }
        Ok(inherited)
    }
}

fn taken<T>(listener: std::io::Result<Option<T>>) -> std::io::Result<T> {
    listener?.ok_or_else(|| std::io::Error::other("not a socket of the right kind"))
}

/// The NBD export checks later which machines can reach the socket, as with an address from the command line.
fn nbd(given: &mut ListenFd, index: usize) -> std::io::Result<(Listener, NbdAddress)> {
    // A socket of another kind stays in `given`.
    if let Ok(listener) = taken(given.take_unix_listener(index)) {
        let address = listener.local_addr()?;
        let nameless = || std::io::Error::other("a unix socket without a path has no address for clients");
        let path = address.as_pathname().ok_or_else(nameless)?.to_owned();
        listener.set_nonblocking(false)?; // the ring waits, not the caller
        return Ok((Listener::inherited(listener.into(), false), NbdAddress::Unix(path)));
    }
    let listener = taken(given.take_tcp_listener(index))?;
    let address = listener.local_addr()?;
    listener.set_nonblocking(false)?;
    Ok((Listener::inherited(listener.into(), true), NbdAddress::Tcp(address)))
}

/// Tells the service manager that clients can connect.
pub(crate) fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Tells the service manager that the server stops.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tell!("note: cannot notify the service manager: {error}");
    }
}
