//! `status`, `fail`, `remove`, `add`, `re-add`, `replace`, `set` and `stop`, and what every control client needs.

use crate::command::clients::arguments::{
    AddArguments, ChangeArguments, MemberOfServedArguments, ReAddArguments, ReplaceArguments, SetArguments,
    StatusArguments, StopArguments,
};
use crate::command::clients::choice::{self, Wanted, member_of};
use crate::command::clients::figures::{Figures, Pace};
use crate::command::clients::files;
use crate::command::clients::interval::Intervals;
use crate::command::clients::iostat::measures;
use crate::command::clients::report::StatusView;
use crate::command::clients::served::ArrayView;
use crate::command::locate;
use crate::command::text::failure::Failure;
use crate::command::text::output::{clear_screen, is_read, print, print_json, print_states};
use crate::names::name_of;
use crate::place::is_uri;
use control::{AddRequest, ApiError, Client, ClientError, MemberRequest, ReplaceRequest};
use export::measure::Measures;
use io::wait_for_end;
use parity::Kernel;
use rustix::process::Pid;
use serde::Deserialize;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// How long the members are watched for what they show about a sweep.
const PACE_INTERVAL: Duration = Duration::from_millis(300);

/// Runs `mdspace status`.
pub(crate) fn status(arguments: &StatusArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let client = client(&arguments.array.wanted())?;
    let is_screen = std::io::stdout().is_terminal();
    let mut before: Option<Measures> = None;
    let mut broken = None;
    for _ in Intervals::new(arguments.watch, arguments.count) {
        let mut body = client.get("/v1/status")?;
        let view = view(&body)?;
        let located = match arguments.files {
            true => Some(files::served(&client, None, &files::findings(&client)?, kernel)?),
            false => None,
        };
        if arguments.json {
            if let Some(located) = &located {
                body["located"] = json!(located);
            }
            print_json(&body)?;
        } else {
            let now = measures(&client)?;
            let figures = match &before {
                None => Figures::sums(now.clone()),
                Some(before) => Figures::between(before, &now),
            };
            let pace = match before.is_none() && view.is_held_by_members() {
                true => pace(&client, &now)?,
                false => figures.pace(),
            };
            before = Some(now);
            if arguments.watch.is_some() && is_screen {
                clear_screen()?;
            }
            let behind = if arguments.watch.is_some() && !is_screen { "\n" } else { "" };
            let files = located.as_ref().map(locate::text).unwrap_or_default();
            print_states(&format!("{}{files}{behind}", view.report(&figures, pace.as_ref())))?;
        }
        broken = view.broken;
        if !is_read() {
            break;
        }
    }
    match broken {
        Some(reason) => {
            Err(Failure::unwell(reason).advise("stop the array, and check each member with `mdspace examine`"))
        }
        None => Ok(()),
    }
}

/// How members limit a sweep: by measures since a moment ago.
fn pace(client: &Client, before: &Measures) -> Result<Option<Pace>, Failure> {
    std::thread::sleep(PACE_INTERVAL);
    Ok(Figures::between(before, &measures(client)?).pace())
}

/// Runs `mdspace fail` (`route` `fail`) and `mdspace remove` (`remove`).
pub(crate) fn change_member(arguments: &MemberOfServedArguments, route: &str) -> Result<(), Failure> {
    let request = json!(MemberRequest { member: named(&arguments.change, &arguments.member)? });
    change_of(&arguments.change, Some(&arguments.member), &format!("/v1/members/{route}"), &request).map(drop)
}

/// Runs `mdspace add`.
pub(crate) fn add(arguments: &AddArguments) -> Result<(), Failure> {
    let AddArguments { member, force, write_mostly, failfast, .. } = arguments;
    let (force, write_mostly, failfast) = (*force, *write_mostly, *failfast);
    let request = json!(AddRequest { member: absolute(member)?, force, write_mostly, failfast, spare_of: None });
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
    let with = new.as_ref().map(|new| absolute(new)).transpose()?;
    let request = json!(ReplaceRequest { member: named(by, old)?, with, force: *force });
    change_of(by, Some(old), "/v1/members/replace", &request).map(drop)
}

/// Requests a change from the server, and prints the array's status after it.
pub(crate) fn change(by: &ChangeArguments, route: &str, request: &Value) -> Result<Value, Failure> {
    change_of(by, None, route, request)
}

/// As [`change`]. Of several served arrays, `member` chooses its own.
fn change_of(by: &ChangeArguments, member: Option<&OsStr>, route: &str, request: &Value) -> Result<Value, Failure> {
    let wanted = Wanted { member, ..by.control.wanted() };
    let body = answering(&wanted)?.post(route, request)?;
    if by.told.json {
        print_json(&body)?
    } else {
        print_states(&view(&body)?.text())?
    }
    Ok(body)
}

/// The member's name in the status, if the array has one that `word` means. Else an absolute path, of an existing file.
fn named(by: &ChangeArguments, word: &OsStr) -> Result<String, Failure> {
    let wanted = Wanted { member: Some(word), ..by.control.wanted() };
    let status = client(&wanted)?.get("/v1/status")?;
    if let Some(name) = ArrayView::deserialize(&status).ok().as_ref().and_then(|array| member_of(word, array)) {
        return Ok(name.to_owned());
    }
    let path = Path::new(word);
    match word.to_str() {
        _ if word.as_bytes().contains(&b'/') && path.exists() => absolute(path),
        Some(printed) if printed.starts_with("$'") => Ok(printed.to_owned()), // a quoted name, as `status` prints it
        _ => Ok(name_of(path)),
    }
}

/// An absolute path, because the server may run in another directory.
fn absolute(path: &Path) -> Result<String, Failure> {
    if is_uri(path) {
        return Ok(name_of(path));
    }
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
        Some(file) if sets_bitmap => format!("next: from now on, serve the array with --bitmap {file}\n"),
        _ => String::new(),
    };
    print(&next)
}

/// Runs `mdspace stop`. When it returns, the members are free.
pub(crate) fn stop(arguments: &StopArguments) -> Result<(), Failure> {
    let body = answering(&arguments.array.wanted())?.post("/v1/stop", &json!({}))?;
    let pid = body["pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let has_ended = pid.is_none_or(|pid| wait_for_end(pid, END_PATIENCE));
    if arguments.json {
        print_json(&body)?;
    }
    if !has_ended {
        let message = format!("the array is stopped, but process {} does not end", body["pid"]);
        return Err(Failure::unwell(message)
            .advise("the disk or file system of a member hangs; the other members are free, and clean"));
    }
    if arguments.json {
        return Ok(());
    }
    print(&format!("stopped, {}\n", body["state"].as_str().unwrap_or("state unknown")))
}

/// How long the process may take to end after its array has stopped. It takes longer only if the kernel cannot close a
/// device.
const END_PATIENCE: Duration = Duration::from_secs(20);

/// How long a server may take to show something. A list or a monitor has others to look at, and waits less.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// A client of the wanted array's server.
pub(crate) fn client(wanted: &Wanted<'_>) -> Result<Client, Failure> {
    Ok(Client::connect(&choice::socket(wanted)?)?.with_timeout(ANSWER_PATIENCE))
}

/// As [`client`], of a server that answers: a change may take long, so that its own answer shows nothing of a server
/// that hangs.
pub(crate) fn answering(wanted: &Wanted<'_>) -> Result<Client, Failure> {
    let client = client(wanted)?;
    match client.get("/v1/status") {
        Err(error @ ClientError::Silent { .. }) => Err(error.into()),
        _ => Ok(client), // what else is wrong, the change tells
    }
}

/// The status in `body`, with the fields that commands print.
pub(crate) fn view(body: &Value) -> Result<StatusView, Failure> {
    StatusView::deserialize(body)
        .map_err(|error| Failure::unwell(format!("the server's reply is not a status: {error}")))
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Connect { .. } => {
                Self::refused(error.to_string()).advise("start the array with `mdspace serve` or `mdspace up`")
            }
            ClientError::Silent { .. } => Self::unwell(error.to_string()).advise(
                "`ps -o pid,stat,wchan:20,args -C mdspace` shows whether it is stopped (T), or hangs in the kernel (D)",
            ),
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
