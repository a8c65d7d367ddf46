//! Where the sockets of served arrays are, when nobody says.
//!
//! A directory of the user's own (mode 0700): `$XDG_RUNTIME_DIR/mdspace`, or `/run/user/UID/mdspace` where that is the user's,
//! or `/run/mdspace` for root, or `/tmp/mdspace-UID`. The commands that talk to a
//! server look there and in `./mdspace-data`, and use what they find only when
//! it is exactly one: never a guess between two arrays. A directory in which others can have put sockets is refused by
//! servers and passed over by commands, with a word about it.

use crate::command::failure::Failure;
use crate::command::members::ArrayUuid;
use crate::command::output::tell;
use rustix::process::Uid;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Where `mdspace up` keeps its members and sockets, under the current directory.
pub(crate) const UP_DIRECTORY: &str = "mdspace-data";

/// The name of a control socket ends in this.
const CONTROL_SUFFIX: &str = "control.sock";

/// The two sockets of one served array.
pub(crate) struct Sockets {
    /// For NBD clients.
    pub(crate) nbd: PathBuf,
    /// For `status` and the others.
    pub(crate) control: PathBuf,
}

impl Sockets {
    /// Those of the array called `name`, in the user's own directory, which is made when needed.
    pub(crate) fn of_array(name: &str, uuid: ArrayUuid) -> Result<Self, Failure> {
        let directory = own_directories().swap_remove(0);
        make_own(&directory)?;
        let stem = stem(name, uuid);
        Ok(Self {
            nbd: directory.join(format!("{stem}.nbd.sock")),
            control: directory.join(format!("{stem}.{CONTROL_SUFFIX}")),
        })
    }

    /// Those of `mdspace up`, in `directory`.
    pub(crate) fn of_up(directory: &Path) -> Self {
        Self { nbd: directory.join("nbd.sock"), control: directory.join(CONTROL_SUFFIX) }
    }
}

/// The control socket to talk to: `given`, or the only one that answers.
pub(crate) fn control(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    let directories = own_directories().into_iter().chain([UP_DIRECTORY.into()]);
    choose(directories.flat_map(|directory| answering(&directory)).collect())
}

/// The only one of `found`.
fn choose(mut found: Vec<PathBuf>) -> Result<PathBuf, Failure> {
    match found.len() {
        0 => Err(Failure::refused("no array of yours is being served here")
            .advise("start one with `mdspace serve` or `mdspace up`, or name its socket with --control PATH")),
        1 => Ok(found.remove(0)),
        several => {
            let list: Vec<String> = found.iter().map(|path| format!("--control {}", path.display())).collect();
            Err(Failure::refused(format!("{several} arrays are being served"))
                .advise(format!("say which: {}", list.join(", or "))))
        }
    }
}

/// Control sockets in `directory` with a server behind them.
fn answering(directory: &Path) -> Vec<PathBuf> {
    match check_own(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            tell!("note: {}: passed over: {error}; --control PATH names a socket in it", directory.display());
            return Vec::new();
        }
    }
    let Ok(entries) = directory.read_dir() else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let control = paths.filter(|path| path.to_string_lossy().ends_with(CONTROL_SUFFIX));
    let mut alive: Vec<PathBuf> = control.filter(|path| UnixStream::connect(path).is_ok()).collect();
    alive.sort();
    alive
}

/// Where servers of this user's put their sockets: the first is where one does now.
fn own_directories() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
    directories_of(rustix::process::getuid(), runtime, Path::new("/run/user"))
}

/// Those of the user `uid`. The runtime directory counts where a login has made it, also if it is not in the environment, as
/// below `su` or in a unit; a server that was started before that has its sockets in the last one.
fn directories_of(uid: Uid, runtime: Option<OsString>, runtimes: &Path) -> Vec<PathBuf> {
    if let Some(runtime) = runtime {
        return vec![Path::new(&runtime).join("mdspace")];
    }
    if uid.is_root() {
        return vec![PathBuf::from("/run/mdspace")];
    }
    let runtime = runtimes.join(uid.as_raw().to_string());
    let is_there = is_own(&runtime, uid).is_ok();
    let last = PathBuf::from(format!("/tmp/mdspace-{}", uid.as_raw()));
    is_there.then(|| runtime.join("mdspace")).into_iter().chain([last]).collect()
}

/// Makes `directory`, or accepts it when nobody else can have put sockets there.
fn make_own(directory: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::refused(format!("{}: {error}", directory.display()))
            .advise("choose where the sockets go with --nbd unix:PATH and --control PATH")
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    check_own(directory).map_err(failed)
}

/// Whether nobody but this user, and root, can have put anything into `directory`.
///
/// # Errors
/// When others can, or it is not there.
pub(crate) fn check_own(directory: &Path) -> std::io::Result<()> {
    is_own(directory, rustix::process::getuid())
}

fn is_own(directory: &Path, uid: Uid) -> std::io::Result<()> {
    let metadata = directory.symlink_metadata()?;
    let refused = |reason: &str| Err(std::io::Error::other(reason));
    if !metadata.is_dir() {
        return refused("not a directory, or a link to one");
    }
    if metadata.uid() != uid.as_raw() {
        return refused("it belongs to another user, who may answer in the place of your servers");
    }
    if metadata.mode() & 0o022 != 0 {
        return refused("others can write to it, and answer in the place of your servers");
    }
    Ok(())
}

/// What the sockets' names begin with: readable, and different for different arrays.
fn stem(name: &str, uuid: ArrayUuid) -> String {
    let harmless = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = name.chars().map(harmless).collect();
    let name = name.trim_start_matches('.');
    let uuid = uuid.to_string();
    let short = &uuid[..8];
    if name.is_empty() { short.to_owned() } else { format!("{name}-{short}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: ArrayUuid = ArrayUuid([0xab; 16]);

    #[test]
    fn a_socket_is_called_after_its_array_whatever_that_is_called() {
        for (name, expected) in [
            ("data", "data-abababab"),
            ("host:0", "host_0-abababab"),
            ("", "abababab"),
            ("../../etc", "_.._etc-abababab"),
            ("a/b\n", "a_b_-abababab"),
        ] {
            assert_eq!(stem(name, UUID), expected);
        }
    }

    #[test]
    fn a_directory_where_others_can_have_put_sockets_is_not_looked_into() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().expect("a directory");
        let (own, link) = (place.path().join("own"), place.path().join("link"));
        std::fs::create_dir(&own).expect("made");
        std::os::unix::fs::symlink(&own, &link).expect("linked");
        let _listener = std::os::unix::net::UnixListener::bind(own.join("a.control.sock")).expect("a socket");
        let mode = |mode| std::fs::set_permissions(&own, std::fs::Permissions::from_mode(mode)).expect("its mode");
        for (bits, is_used) in [(0o700, true), (0o755, true), (0o770, false), (0o1777, false)] {
            mode(bits);
            assert_eq!(answering(&own).len(), usize::from(is_used), "{bits:o}");
            assert_eq!(make_own(&own).is_ok(), is_used, "{bits:o}");
        }
        mode(0o700);
        assert!(answering(&link).is_empty() && make_own(&link).is_err(), "whoever can make a link there can move it");
        let other = Uid::from_raw(rustix::process::getuid().as_raw() + 1);
        assert!(is_own(&own, other).is_err_and(|error| error.to_string().contains("another user")));
    }

    #[test]
    fn the_directory_of_a_login_comes_first() {
        let runtimes = tempfile::tempdir().expect("a directory");
        let uid = rustix::process::getuid();
        let someone = Uid::from_raw(if uid.is_root() { 4242 } else { uid.as_raw() });
        let tmp = PathBuf::from(format!("/tmp/mdspace-{}", someone.as_raw()));
        assert_eq!(directories_of(someone, None, runtimes.path()), vec![tmp.clone()]);
        let login = runtimes.path().join(someone.as_raw().to_string());
        std::fs::create_dir(&login).expect("made");
        // As root it stays root's: nobody else's login, which is not used.
        let expected = if uid.is_root() { vec![tmp] } else { vec![login.join("mdspace"), tmp] };
        assert_eq!(directories_of(someone, None, runtimes.path()), expected);
        let given = directories_of(someone, Some("/elsewhere".into()), runtimes.path());
        assert_eq!(given, [PathBuf::from("/elsewhere/mdspace")]);
        assert_eq!(directories_of(Uid::ROOT, None, runtimes.path()), [PathBuf::from("/run/mdspace")]);
    }

    #[test]
    fn one_server_is_found_by_itself_and_two_are_never_chosen_between() {
        let (a, b) = (PathBuf::from("/run/a.control.sock"), PathBuf::from("/run/b.control.sock"));
        assert_eq!(choose(vec![a.clone()]).expect("only one"), a);
        let error = choose(Vec::new()).expect_err("none").to_string();
        assert!(error.contains("mdspace serve"), "{error}");
        let error = choose(vec![a, b]).expect_err("two").to_string();
        assert!(error.contains("--control /run/a.control.sock, or --control /run/b.control.sock"), "{error}");
    }
}
