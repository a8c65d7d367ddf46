//! Which users may connect to the unix sockets of a server: `--socket-mode` and `--socket-group` for the array's data,
//! and options of their own for the control socket, whose clients may do everything.
//!
//! Facts: group(5).

use crate::command::text::failure::Failure;
use crate::command::text::output::tell;
use clap::Args;
use io::net::SocketAccess;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Mode bits that let others than the owner pass through a directory.
const OTHERS_PASS: u32 = 0o011;

const GROUPS: &str = "/etc/group";

/// Users of the sockets for NBD and vhost-user.
#[derive(Debug, Default, Args)]
pub(crate) struct AccessArguments {
    /// Access mode of unix sockets for NBD and vhost-user, in octal: 600, or 660 with --socket-group
    #[arg(long, value_name = "MODE", value_parser = parse_mode, help_heading = "Exports")]
    pub(crate) socket_mode: Option<u32>,

    /// Group whose users may connect to unix sockets for NBD and vhost-user
    #[arg(long, value_name = "GROUP", help_heading = "Exports")]
    pub(crate) socket_group: Option<String>,
}

/// Users of the control socket.
#[derive(Debug, Default, Args)]
pub(crate) struct ControlAccessArguments {
    /// Access mode of the control socket, in octal: 600, or 660 with --control-group
    #[arg(long, value_name = "MODE", value_parser = parse_mode, help_heading = "Control and watching")]
    pub(crate) control_mode: Option<u32>,

    /// Group whose users may connect to the control socket, and so change and stop the array
    #[arg(long, value_name = "GROUP", help_heading = "Control and watching")]
    pub(crate) control_group: Option<String>,
}

impl AccessArguments {
    pub(crate) fn access(&self) -> Result<SocketAccess, Failure> {
        access("--socket-group", self.socket_mode, self.socket_group.as_deref())
    }
}

impl ControlAccessArguments {
    pub(crate) fn access(&self) -> Result<SocketAccess, Failure> {
        access("--control-group", self.control_mode, self.control_group.as_deref())
    }
}

fn access(option: &str, mode: Option<u32>, group: Option<&str>) -> Result<SocketAccess, Failure> {
    let refused = |reason| Failure::refused(format!("{option}: {reason}")).advise("give the group's number");
    let group = group.map(number_of).transpose().map_err(refused)?;
    let mode = mode.unwrap_or(if group.is_some() { 0o660 } else { SocketAccess::default().mode });
    Ok(SocketAccess { mode, group })
}

/// The number of a group, which may be given as such.
fn number_of(group: &str) -> Result<u32, String> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string(GROUPS).map_err(|error| format!("{GROUPS}: {error}"))?;
    number_in(&groups, group).ok_or_else(|| format!("{group}: no such group in {GROUPS}"))
}

fn number_in(groups: &str, name: &str) -> Option<u32> {
    let fields = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    fields.into_iter().find(|fields| fields.first() == Some(&name))?.get(2)?.parse().ok()
}

/// An access mode: the owner's bits for reading and writing, and no bits beside those of access.
fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| mode & !0o777 == 0 && mode & 0o600 == 0o600);
    mode.ok_or_else(|| "expected an octal mode that lets the owner connect, such as 600, 660 or 666".to_owned())
}

/// Says so if a socket is for other users, and its directory lets none of them pass.
pub(crate) fn warn_of_closed_directory(socket: &Path, access: SocketAccess) {
    let directory = socket.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_closed = |metadata: std::fs::Metadata| metadata.mode() & OTHERS_PASS == 0;
    if access.mode & 0o066 != 0 && directory.metadata().is_ok_and(is_closed) {
        let (socket, directory) = (socket.display(), directory.display());
        tell!("note: {socket}: other users cannot reach it, as they cannot pass through {directory}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_and_let_the_owner_connect() {
        for (text, expected) in [("600", Some(0o600)), ("0660", Some(0o660)), ("666", Some(0o666))] {
            assert_eq!(parse_mode(text).ok(), expected, "{text}");
        }
        for text in ["", "060", "1600", "4660", "68", "rw", "-600"] {
            assert!(parse_mode(text).is_err(), "{text}");
        }
    }

    #[test]
    fn groups_are_known_by_name_or_number() {
        let groups = "root:x:0:\nkvm:x:104:libvirt-qemu\nkvm2:x:105:\nbroken\nbad:x:no:\n";
        for (name, expected) in [("root", Some(0)), ("kvm", Some(104)), ("broken", None), ("bad", None), ("x", None)] {
            assert_eq!(number_in(groups, name), expected, "{name}");
        }
        assert_eq!(number_of("104"), Ok(104));
        assert_eq!(access("--socket-group", None, Some("104")).map(|access| access.mode).ok(), Some(0o660));
        assert_eq!(access("--socket-group", Some(0o600), Some("104")).map(|access| access.mode).ok(), Some(0o600));
        assert_eq!(access("--socket-group", None, None).ok(), Some(SocketAccess::default()));
    }
}
