//! An event as a line for syslog, in mdadm's words and with its priority.
//!
//! One datagram needs no crate: those for syslog bring clocks and host names, which a local daemon adds itself. Names come
//! from superblocks and paths, so control characters are replaced. Facts: syslog(3); mdadm(8), "MONITOR MODE".

use super::events::Event;
use std::io::Result;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// The facility of system daemons.
const DAEMON: u8 = 3 << 3;

/// Sends a line to the daemon that listens on `socket`.
pub(super) fn send(socket: &Path, event: &Event) -> Result<()> {
    UnixDatagram::unbound()?.send_to(line(event, std::process::id()).as_bytes(), socket).map(drop)
}

fn line(event: &Event, pid: u32) -> String {
    let member = event.member.as_deref().map(|member| format!(", component device {member}")).unwrap_or_default();
    let drive = event.drive.as_deref().map(|drive| format!(" ({drive})")).unwrap_or_default();
    let found = event.mismatches.map(|found| format!(", mismatches found: {found}")).unwrap_or_default();
    let text = format!("{} event detected on md device {}{member}{drive}{found}", event.event, event.array);
    let harmless: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    format!("<{}>mdspace[{pid}]: {harmless}", DAEMON | event.gravity() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_priority_of_its_event_and_no_name_makes_a_second_line() {
        for (event, member, expected) in [
            (
                "Fail",
                Some("/dev/sdb"),
                "<26>mdspace[7]: Fail event detected on md device a?b, component device /dev/sdb",
            ),
            ("Rebuild20", None, "<28>mdspace[7]: Rebuild20 event detected on md device a?b"),
            ("SpareActive", None, "<30>mdspace[7]: SpareActive event detected on md device a?b"),
        ] {
            assert_eq!(line(&Event::new(event, "a\nb", member), 7), expected);
        }
    }
}
