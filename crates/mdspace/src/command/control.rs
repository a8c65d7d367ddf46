//! `status`, `fail`, `remove`, `add`, `re-add`, `replace`, `set` and `stop`: the control socket's clients.

use crate::command::arguments::{
    AddArguments, ChangeArguments, ControlArguments, MemberOfServedArguments, ReAddArguments, ReplaceArguments,
    SetArguments, StatusArguments, StopArguments,
};
use crate::command::failure::Failure;
use crate::command::figures::Figures;
use crate::command::interval::Intervals;
use crate::command::iostat::measures;
use crate::command::output::{print, print_as_it_is, print_json};
use crate::command::report::StatusView;
use crate::command::sockets;
use crate::names::name_of;
use export::control::{AddRequest, ApiError, Client, ClientError, MemberRequest, ReplaceRequest};
use export::measure::Measures;
use format::text::plain;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::Deserialize;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Runs `mdspace status`.
pub(crate) fn status(arguments: &StatusArguments) -> Result<(), Failure> {
    let client = client(&arguments.control)?;
    let is_screen = std::io::stdout().is_terminal();
    let mut before: Option<Measures> = None;
    let mut broken = None;
    for _ in Intervals::new(arguments.watch, arguments.count) {
        let body = client.get("/v1/status")?;
        let view = view(&body)?;
        if arguments.json {
            print_json(&body)?;
        } else {
            let now = measures(&client)?;
            let figures = match &before {
                None => Figures::sums(now.clone()),
                Some(before) => Figures::between(before, &now),
            };
            before = Some(now);
            let (clear, behind) = match arguments.watch {
                Some(_) if is_screen => (CLEAR, ""),
                Some(_) => ("", "\n"),
                None => ("", ""),
            };
            print_as_it_is(&format!("{clear}{}{behind}", plain(&view.report(&figures))))?;
        }
        broken = view.broken;
    }
    match broken {
        Some(reason) => Err(Failure::unwell(reason).advise("stop it, and look at each member with `mdspace examine`")),
        None => Ok(()),
    }
}

/// Clears a terminal, and goes to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Runs `mdspace fail` (`route` `fail`) and `mdspace remove` (`remove`).
pub(crate) fn change_member(arguments: &MemberOfServedArguments, route: &str) -> Result<(), Failure> {
    let request = json!(MemberRequest { member: named(&arguments.member)? });
    change(&arguments.change, &format!("/v1/members/{route}"), &request).map(drop)
}

/// Runs `mdspace add`.
pub(crate) fn add(arguments: &AddArguments) -> Result<(), Failure> {
    let request = json!(AddRequest { member: absolute(&arguments.member)?, force: arguments.force });
    change(&arguments.change, "/v1/members/add", &request).map(drop)
}

/// Runs `mdspace re-add`.
pub(crate) fn re_add(arguments: &ReAddArguments) -> Result<(), Failure> {
    let request = json!(MemberRequest { member: absolute(&arguments.member)? });
    change(&arguments.change, "/v1/members/re-add", &request).map(drop)
}

/// Runs `mdspace replace`.
pub(crate) fn replace(arguments: &ReplaceArguments) -> Result<(), Failure> {
    let ReplaceArguments { old, new, force, change: by } = arguments;
    let request = json!(ReplaceRequest { member: named(old)?, with: absolute(new)?, force: *force });
    change(by, "/v1/members/replace", &request).map(drop)
}

/// Has the server make a change, and tells what the array is afterwards.
pub(crate) fn change(by: &ChangeArguments, route: &str, request: &Value) -> Result<Value, Failure> {
    let body = client(&by.control)?.post(route, request)?;
    if by.told.json {
        print_json(&body)?
    } else {
        print(&view(&body)?.text())?
    }
    Ok(body)
}

/// A member's name; where it is a path to something, as the server finds that.
fn named(word: &OsStr) -> Result<String, Failure> {
    let path = Path::new(word);
    match word.to_str() {
        _ if word.as_bytes().contains(&b'/') && path.exists() => absolute(path),
        Some(printed) if printed.starts_with("$'") => Ok(printed.to_owned()), // as `status` has it, from a script
        _ => Ok(name_of(path)),
    }
}

/// A path as the server finds it, whose working directory may be another.
fn absolute(path: &Path) -> Result<String, Failure> {
    let refused = |reason: String| Failure::refused(format!("{}: {reason}", name_of(path)));
    let absolute = std::path::absolute(path).map_err(|error| refused(error.to_string()))?;
    Ok(name_of(&absolute))
}

/// Runs `mdspace set`.
pub(crate) fn set(arguments: &SetArguments) -> Result<(), Failure> {
    let mut wanted = serde_json::Map::new();
    for (key, value) in &arguments.settings {
        if wanted.insert(key.clone(), value.clone().into()).is_some() {
            return Err(Failure::refused(format!("{key}: given twice")));
        }
    }
    let sets_bitmap = wanted.contains_key("bitmap");
    let body = change(&arguments.change, "/v1/set", &wanted.into())?;
    let next = match view(&body)?.bitmap_file().filter(|_| !arguments.change.told.json) {
        Some(file) if sets_bitmap => format!("next: from now on, add --bitmap {file} whenever the array is served\n"),
        _ => String::new(),
    };
    print(&next)
}

/// Runs `mdspace stop`; when it returns, the members are free.
pub(crate) fn stop(arguments: &StopArguments) -> Result<(), Failure> {
    let body = client(&arguments.control)?.post("/v1/stop", &json!({}))?;
    let pid = body["pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    if let Some(pid) = pid {
        wait_for_end(pid);
    }
    if arguments.json {
        return print_json(&body);
    }
    print(&format!("stopped, {}\n", body["state"].as_str().unwrap_or("state unknown")))
}

/// Waits until the process `pid` has ended and let go of its members. It may have done so already.
fn wait_for_end(pid: Pid) {
    if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
        let mut events = [PollFd::new(&process, PollFlags::IN)];
        while poll(&mut events, None) == Err(rustix::io::Errno::INTR) {}
    }
}

/// A client of the server that `arguments` name.
pub(crate) fn client(arguments: &ControlArguments) -> Result<Client, Failure> {
    Ok(Client::connect(&sockets::control(arguments.control.as_deref())?)?)
}

/// A status, of which what is printed is known.
pub(crate) fn view(body: &Value) -> Result<StatusView, Failure> {
    StatusView::deserialize(body)
        .map_err(|error| Failure::unwell(format!("the server's answer is not a status: {error}")))
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Connect { .. } => {
                Self::refused(error.to_string()).advise("start the array with `mdspace serve` or `mdspace up`")
            }
            ClientError::Protocol { .. } => Self::unwell(error.to_string()),
            ClientError::Api(ApiError { status, message, member, field, advice }) => {
                let place: Vec<String> = member.into_iter().chain(field).chain([message]).collect();
                let message = place.join(": ");
                let failure = if status == 500 { Self::unwell(message) } else { Self::refused(message) };
                match advice {
                    Some(advice) => failure.advise(advice),
                    None => failure,
                }
            }
        }
    }
}
