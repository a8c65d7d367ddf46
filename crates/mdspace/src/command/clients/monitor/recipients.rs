//! Those that get events: standard output, syslog, a program, a mail command and a webhook.
//!
//! If one of them fails, a note says so, and the others still get the event.

use super::events::Event;
use super::syslog;
use crate::command::clients::arguments::MonitorArguments;
use crate::command::text::failure::Failure;
use crate::command::text::journal::Priority;
use crate::command::text::output::{print, print_as_it_is, tell};
use crate::command::text::wording::utc;
use ::io::signal::deliver_to;
use control::Webhook;
use serde::Serialize;
use std::cell::Cell;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// The recipients of events.
pub(super) struct Recipients<'a> {
    arguments: &'a MonitorArguments,
    webhook: Option<Webhook>,
    /// How often one of them was not notified.
    failed: Cell<u64>,
}

/// An event with its time.
#[derive(Serialize)]
struct Dated<'a> {
    /// Seconds since 1970.
    time: u64,
    #[serde(flatten)]
    event: &'a Event,
}

impl<'a> Recipients<'a> {
    /// # Errors
    /// When the webhook is none that can be called.
    pub(super) fn of(arguments: &'a MonitorArguments) -> Result<Self, Failure> {
        let webhook = arguments.webhook.as_deref().map(Webhook::new).transpose().map_err(|reason| {
            Failure::refused(format!("--webhook: {reason}"))
                .advise("for other protocols use --program with a script that calls curl")
        })?;
        Ok(Self { arguments, webhook, failed: Cell::new(0) })
    }

    /// Whether anything gets events; `is_read` says whether standard output does.
    pub(super) fn are_there(&self, is_read: bool) -> bool {
        let MonitorArguments { syslog, program, mail, .. } = self.arguments;
        is_read || syslog.is_some() || program.is_some() || mail.is_some() || self.webhook.is_some()
    }

    /// A failure if any of them was not notified.
    pub(super) fn result(&self) -> Result<(), Failure> {
        match self.failed.get() {
            0 => Ok(()),
            failed => Err(Failure::unwell(format!("{failed} notifications failed"))),
        }
    }

    pub(super) fn notify_all(&self, events: &[Event]) -> Result<(), Failure> {
        events.iter().try_for_each(|event| self.notify(event))
    }

    fn notify(&self, event: &Event) -> Result<(), Failure> {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let dated = Dated { time: since_1970.as_secs(), event };
        let json = serde_json::to_value(&dated).expect("our own types have string keys");
        let about = event.about().unwrap_or_default();
        let drive = event.drive.as_deref().map(|drive| format!(" ({drive})")).unwrap_or_default();
        if self.arguments.json {
            print_as_it_is(&format!("{json}\n"))?;
        } else {
            let line = format!("{}  {:<17} {} {about}{drive}", utc(dated.time), event.event, event.array);
            let priority = if event.is_mailed() { Priority::Warning } else { Priority::Info };
            print(&format!("{}\n", priority.before_lines(line.trim_end(), std::io::stdout())))?;
        }
        if let Some(socket) = &self.arguments.syslog {
            self.note(&socket.display().to_string(), syslog::send(socket, event).map_err(|error| error.to_string()));
        }
        if let Some(program) = &self.arguments.program {
            let mut command = Command::new(program);
            command.arg(&event.event).arg(&event.array).args(event.about()).stdin(Stdio::null());
            self.note(&program.display().to_string(), ended_well(deliver_to(&mut command).status()));
        }
        if let Some(address) = self.arguments.mail.as_deref().filter(|_| event.is_mailed()) {
            self.note(&self.arguments.mailer, self.mail(address, &letter(address, event)));
        }
        if let Some(webhook) = &self.webhook {
            self.note(self.arguments.webhook.as_deref().unwrap_or_default(), webhook.post(&json));
        }
        Ok(())
    }

    fn note(&self, recipient: &str, notified: Result<(), String>) {
        if let Err(reason) = notified {
            self.failed.set(self.failed.get() + 1);
            tell!("note: {recipient}: not notified: {reason}");
        }
    }

    /// Sends a message through the mail command.
    fn mail(&self, address: &str, letter: &str) -> Result<(), String> {
        let mut command = Command::new("sh");
        command.args(["-c", &self.arguments.mailer]).env("MAILADDR", address).stdin(Stdio::piped());
        let mut child = deliver_to(&mut command).spawn().map_err(|error| error.to_string())?;
        let mut input = child.stdin.take().expect("its input is a pipe");
        let written = input.write_all(letter.as_bytes()).map_err(|error| error.to_string());
        drop(input);
        ended_well(child.wait()).and(written)
    }
}

fn ended_well(status: std::io::Result<std::process::ExitStatus>) -> Result<(), String> {
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// A message for sendmail -t. Names come from superblocks and paths, so they must not be able to add a header.
fn letter(address: &str, event: &Event) -> String {
    let harmless = |text: &str| text.chars().map(|c| if c.is_control() { '?' } else { c }).collect::<String>();
    let (name, array) = (harmless(&event.event), harmless(&event.array));
    let line = |what: &str, text: Option<&str>| text.map(|text| format!("{what}: {}\n", harmless(text)));
    let (member, drive) = (line("Member", event.member.as_deref()), line("Drive", event.drive.as_deref()));
    let found = event.mismatches.map(|found| format!("Mismatches found: {found} rows of 4 KiB\n"));
    let about = member.into_iter().chain(drive).chain(found).collect::<String>();
    format!(
        "To: {}\nSubject: {name} event on {array}\n\nThis is a message of mdspace monitor.\n\nEvent: {name}\n\
         Array: {array}\n{about}",
        harmless(address)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_describes_its_event_and_no_name_adds_a_header() {
        let drive = Some("WDC WD40EFRX, serial WD-1".to_owned());
        let event = Event { drive, ..Event::new("Fail", "data\nBcc: root", Some("/dev/sdb")) };
        let letter = letter("root", &event);
        let (head, body) = letter.split_once("\n\n").expect("a head and a body");
        assert_eq!(head, "To: root\nSubject: Fail event on data?Bcc: root");
        assert!(body.ends_with("Member: /dev/sdb\nDrive: WDC WD40EFRX, serial WD-1\n"), "{body}");
    }
}
