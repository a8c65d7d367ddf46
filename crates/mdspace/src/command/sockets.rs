//! Where the sockets of served arrays are, when nobody says.
//!
//! A directory of the user's own (mode 0700): `$XDG_RUNTIME_DIR/mdspace`, or
//! `/run/mdspace` for root, or `/tmp/mdspace-UID`. The commands that talk to a
//! server look there and in `./mdspace-data`, and use what they find only when
//! it is exactly one: never a guess between two arrays.

use crate::command::failure::Failure;
use crate::command::members::ArrayUuid;
use std::fs::DirBuilder;
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
        let directory = own_directory();
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
    let mut found = answering(&own_directory());
    found.extend(answering(Path::new(UP_DIRECTORY)));
    choose(found)
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
    let Ok(entries) = directory.read_dir() else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let control = paths.filter(|path| path.to_string_lossy().ends_with(CONTROL_SUFFIX));
    let mut alive: Vec<PathBuf> = control.filter(|path| UnixStream::connect(path).is_ok()).collect();
    alive.sort();
    alive
}

fn own_directory() -> PathBuf {
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty()) {
        return Path::new(&runtime).join("mdspace");
    }
    let uid = rustix::process::getuid();
    if uid.is_root() { PathBuf::from("/run/mdspace") } else { format!("/tmp/mdspace-{}", uid.as_raw()).into() }
}

/// Makes `directory`, or accepts it when nobody else can have put sockets there.
fn make_own(directory: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::refused(format!("{}: {error}", directory.display()))
            .advise("choose where the sockets go with --nbd unix:PATH and --control PATH")
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    let metadata = directory.symlink_metadata().map_err(failed)?;
    if metadata.is_dir() && metadata.uid() == rustix::process::getuid().as_raw() && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(failed(std::io::Error::other("not a directory that you alone can write")))
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
    fn one_server_is_found_by_itself_and_two_are_never_chosen_between() {
        let (a, b) = (PathBuf::from("/run/a.control.sock"), PathBuf::from("/run/b.control.sock"));
        assert_eq!(choose(vec![a.clone()]).expect("only one"), a);
        let error = choose(Vec::new()).expect_err("none").to_string();
        assert!(error.contains("mdspace serve"), "{error}");
        let error = choose(vec![a, b]).expect_err("two").to_string();
        assert!(error.contains("--control /run/a.control.sock, or --control /run/b.control.sock"), "{error}");
    }
}
