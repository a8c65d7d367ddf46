//! Default places of the sockets of served arrays.
//!
//! They are in a directory of the user's own (mode 0700): `$XDG_RUNTIME_DIR/mdspace`; or `/run/user/UID/mdspace`, if
//! that belongs to the user; or `/run/mdspace` for root; or `/tmp/mdspace-UID`. Commands that talk to a server look
//! there and in `./mdspace-data`; `clients::choice` chooses among the sockets found. Servers refuse a directory in which
//! other users can put sockets; commands skip it and say so once. Nothing here connects to a socket.

use crate::command::opening::members::ArrayUuid;
use crate::command::opening::ownership::{check_directory, check_directory_of};
use crate::command::text::failure::Failure;
use crate::command::text::output::tell;
use rustix::process::Uid;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where `mdspace up` keeps its members and sockets, under the current directory.
pub(crate) const UP_DIRECTORY: &str = "mdspace-data";

/// Digits of the array's uuid in the names of its sockets, and in lists.
pub(crate) const UUID_DIGITS: usize = 8;

/// Ending of every control socket's name.
const CONTROL_SUFFIX: &str = "control.sock";

/// The two sockets of one served array.
pub(crate) struct Sockets {
    /// For NBD clients.
    pub(crate) nbd: PathBuf,
    /// For `status` and the other control clients.
    pub(crate) control: PathBuf,
}

impl Sockets {
    /// The sockets of the array `name`, in the user's own directory, which is created if needed.
    pub(crate) fn of_array(name: &str, uuid: ArrayUuid) -> Result<Self, Failure> {
        let directory = own_directory()?;
        let stem = stem(name, uuid);
        Ok(Self {
            nbd: directory.join(format!("{stem}.nbd.sock")),
            control: directory.join(format!("{stem}.{CONTROL_SUFFIX}")),
        })
    }

    /// The sockets of `mdspace up`, in `directory`.
    pub(crate) fn of_up(directory: &Path) -> Self {
        Self { nbd: directory.join("nbd.sock"), control: directory.join(CONTROL_SUFFIX) }
    }
}

/// The directory of the sockets of servers that are started now, which is created if needed.
pub(crate) fn own_directory() -> Result<PathBuf, Failure> {
    let directory = own_directories().swap_remove(0);
    make_own(&directory)?;
    Ok(directory)
}

/// The path of `file` in that directory, if the directory is there and no other user can write to it.
pub(crate) fn own_place(file: &str) -> Option<PathBuf> {
    let directory = own_directories().swap_remove(0);
    check_directory(&directory).is_ok().then(|| directory.join(file))
}

/// Whether a socket is in that directory.
pub(crate) fn is_in_own_directory(socket: &Path) -> bool {
    socket.parent() == Some(&*own_directories().swap_remove(0))
}

/// The control sockets of this user, in each directory that commands search. A server may have left its socket behind.
pub(crate) fn control_sockets() -> Vec<PathBuf> {
    let directories = own_directories().into_iter().chain([UP_DIRECTORY.into()]);
    directories.flat_map(|directory| control_sockets_in(&directory)).collect()
}

/// Control sockets in `directory`.
fn control_sockets_in(directory: &Path) -> Vec<PathBuf> {
    match check_directory(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            static TOLD: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
            let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
            if !told.iter().any(|other| other == directory) {
                told.push(directory.to_owned());
                tell!("note: {}: passed over: {error}; --control PATH names a socket in it", directory.display());
            }
            return Vec::new();
        }
    }
    let Ok(entries) = directory.read_dir() else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut control: Vec<PathBuf> = paths.filter(|path| path.to_string_lossy().ends_with(CONTROL_SUFFIX)).collect();
    control.sort_unstable();
    control
}

/// The array's name, in harmless letters, and the first digits of its uuid, from the name of a control socket; empty if
/// the socket has another name.
pub(crate) fn named_after(socket: &Path) -> (String, String) {
    let file = socket.file_name().unwrap_or_default().to_string_lossy();
    let stem = file.strip_suffix(CONTROL_SUFFIX).and_then(|stem| stem.strip_suffix('.')).unwrap_or_default();
    let (name, uuid) = stem.rsplit_once('-').unwrap_or(("", stem));
    match uuid.len() == UUID_DIGITS && uuid.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => (name.to_owned(), uuid.to_owned()),
        false => (stem.to_owned(), String::new()),
    }
}

/// Directories of this user's sockets. A server started now uses the first.
fn own_directories() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
    directories_of(rustix::process::getuid(), runtime, Path::new("/run/user"))
}

/// Socket directories of the user `uid`. A login of root also sees the servers that units started. The runtime directory that a login creates counts even if the environment does
/// not name it (under `su`, in a unit). A server started before that login has its sockets in the last directory.
fn directories_of(uid: Uid, runtime: Option<OsString>, runtimes: &Path) -> Vec<PathBuf> {
    let of_units = PathBuf::from("/run/mdspace");
    if let Some(runtime) = runtime {
        let is_logins = uid.is_root() && Path::new(&runtime) == runtimes.join("0");
        return std::iter::once(Path::new(&runtime).join("mdspace")).chain(is_logins.then_some(of_units)).collect();
    }
    if uid.is_root() {
        return vec![of_units];
    }
    let runtime = runtimes.join(uid.as_raw().to_string());
    let is_there = check_directory_of(&runtime, uid).is_ok();
    let last = PathBuf::from(format!("/tmp/mdspace-{}", uid.as_raw()));
    is_there.then(|| runtime.join("mdspace")).into_iter().chain([last]).collect()
}

/// Creates `directory`, or accepts an existing one in which no other user can put sockets.
fn make_own(directory: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::refused(format!("{}: {error}", directory.display()))
            .advise("choose where the sockets go with --nbd unix:PATH and --control PATH")
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    check_directory(directory).map_err(failed)
}

/// An array's name, as it is in the names of its sockets.
pub(crate) fn harmless(name: &str) -> String {
    let harmless = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    name.chars().map(harmless).collect::<String>().trim_start_matches('.').to_owned()
}

/// The beginning of the sockets' names: readable, and different for different arrays.
fn stem(name: &str, uuid: ArrayUuid) -> String {
    let name = harmless(name);
    let uuid = uuid.to_string();
    let short = &uuid[..UUID_DIGITS];
    if name.is_empty() { short.to_owned() } else { format!("{name}-{short}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: ArrayUuid = ArrayUuid([0xab; 16]);

    #[test]
    fn a_socket_is_named_after_its_array_with_harmless_letters() {
        for (name, expected) in [
            ("data", "data-abababab"),
            ("host:0", "host_0-abababab"),
            ("", "abababab"),
            ("../../etc", "_.._etc-abababab"),
            ("a/b\n", "a_b_-abababab"),
        ] {
            assert_eq!(stem(name, UUID), expected);
            let socket = PathBuf::from(format!("/run/{expected}.{CONTROL_SUFFIX}"));
            let (name, uuid) = named_after(&socket);
            assert_eq!((format!("{name}-{uuid}").trim_start_matches('-'), &*uuid), (expected, "abababab"));
        }
    }

    #[test]
    fn a_directory_in_which_others_can_put_sockets_is_skipped() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().expect("a directory");
        let (own, link) = (place.path().join("own"), place.path().join("link"));
        std::fs::create_dir(&own).expect("made");
        std::os::unix::fs::symlink(&own, &link).expect("linked");
        let _listener = std::os::unix::net::UnixListener::bind(own.join("a.control.sock")).expect("a socket");
        let mode = |mode| std::fs::set_permissions(&own, std::fs::Permissions::from_mode(mode)).expect("its mode");
        for (bits, is_used) in [(0o700, true), (0o755, true), (0o770, false), (0o1777, false)] {
            mode(bits);
            assert_eq!(control_sockets_in(&own).len(), usize::from(is_used), "{bits:o}");
            assert_eq!(make_own(&own).is_ok(), is_used, "{bits:o}");
        }
        mode(0o700);
        assert!(
            control_sockets_in(&link).is_empty() && make_own(&link).is_err(),
            "the owner of a link can lead it elsewhere"
        );
        let other = Uid::from_raw(rustix::process::getuid().as_raw() + 1);
        assert!(check_directory_of(&own, other).is_err_and(|error| error.to_string().contains("not to you")));
    }

    #[test]
    fn the_directory_of_a_login_comes_first() {
        let runtimes = tempfile::tempdir().expect("a directory");
        let uid = rustix::process::getuid();
        let user = Uid::from_raw(if uid.is_root() { 4242 } else { uid.as_raw() });
        let tmp = PathBuf::from(format!("/tmp/mdspace-{}", user.as_raw()));
        assert_eq!(directories_of(user, None, runtimes.path()), vec![tmp.clone()]);
        let login = runtimes.path().join(user.as_raw().to_string());
        std::fs::create_dir(&login).expect("made");
        // For a test run as root the directory belongs to root and not to the user, so it is not used.
        let expected = if uid.is_root() { vec![tmp] } else { vec![login.join("mdspace"), tmp] };
        assert_eq!(directories_of(user, None, runtimes.path()), expected);
        let given = directories_of(user, Some("/elsewhere".into()), runtimes.path());
        assert_eq!(given, [PathBuf::from("/elsewhere/mdspace")]);
        assert_eq!(directories_of(Uid::ROOT, None, runtimes.path()), [PathBuf::from("/run/mdspace")]);
        let login = runtimes.path().join("0");
        let of_login = directories_of(Uid::ROOT, Some(login.clone().into()), runtimes.path());
        assert_eq!(of_login, [login.join("mdspace"), PathBuf::from("/run/mdspace")]);
    }
}
