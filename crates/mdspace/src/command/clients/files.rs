//! The files that a served array's findings hit.
//!
//! The members are looked at beside the server, which goes on: what it has in memory alone is not seen.

use crate::command::locate::{Asked, Located, locate};
use crate::command::opening::arguments::{AssembleArguments, MemberArguments};
use crate::command::text::failure::Failure;
use crate::machine::{Arena, Machine};
use crate::names::path_of;
use crate::place::is_uri;
use control::Client;
use engine::ScrubReport;
use parity::Kernel;
use serde::Deserialize;
use std::ffi::OsString;
use std::path::PathBuf;

/// The part of the server's reply about a scrub that is used.
#[derive(Deserialize)]
struct Reply {
    scrub: Option<ScrubReport>,
}

/// The part of a status that says where the members are.
#[derive(Deserialize)]
struct Status {
    uuid: String,
    members: Vec<Member>,
    served: Server,
}

#[derive(Deserialize)]
struct Member {
    name: String,
    state: String,
}

#[derive(Deserialize)]
struct Server {
    pid: u32,
    inner: Option<Inner>,
}

/// What is served in place of the array, and the other arrays that it lies on.
#[derive(Deserialize)]
struct Inner {
    others: Vec<Other>,
}

#[derive(Deserialize)]
struct Other {
    members: Vec<Member>,
}

/// The findings that the server keeps.
pub(crate) fn findings(client: &Client) -> Result<Asked, Failure> {
    let reply = Reply::deserialize(&client.get("/v1/scrub")?)
        .map_err(|error| Failure::unwell(format!("the server's reply is not about a scrub: {error}")))?;
    let report = reply.scrub.ok_or_else(|| {
        Failure::refused("the server keeps no findings: no scrub ran since it was started")
            .advise("run `mdspace scrub`, or give --offset BYTE or --findings FILE")
    })?;
    Ok(Asked::findings(&report))
}

/// Says what bytes of the array of a server are, or of what `inner` names inside of it.
pub(crate) fn served(
    client: &Client,
    inner: Option<&str>,
    asked: &Asked,
    kernel: Option<&'static Kernel>,
) -> Result<Located, Failure> {
    let status = Status::deserialize(&client.get("/v1/status")?)
        .map_err(|error| Failure::unwell(format!("the server's reply is not a status: {error}")))?;
    let others = status.served.inner.iter().flat_map(|inner| inner.others.iter().flat_map(|other| &other.members));
    let used = status.members.iter().chain(others).filter(|member| member.state != "faulty");
    // Names are relative to the server's directory.
    let directory = PathBuf::from(format!("/proc/{}/cwd", status.served.pid));
    let absolute = |Member { name, .. }: &Member| match is_uri(&path_of(name)) {
        true => OsString::from(name),
        false => directory.join(path_of(name)).into_os_string(),
    };
    let uuid = status.uuid.parse().ok();
    let members = MemberArguments { members: used.map(absolute).collect(), uuid, name: None };
    let machine = Machine::start(kernel, Arena::Medium)?;
    let mut located = machine.run(locate(&machine, &AssembleArguments::of(&members, None), inner, asked))?;
    located.notes.push("the array is in use: what changed in the last seconds may be missing".to_owned());
    Ok(located)
}
