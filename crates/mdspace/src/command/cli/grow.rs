//! `grow`: makes an array larger in place, through its server or here if it is not served. Here it also makes one
//! smaller, and begins a reshape ([`super::reshape`]).
//!
//! The plan is checked completely before anything is written. The server that runs now or next resyncs the added space,
//! so the command ends at once, whatever the size.

use crate::command::cli::arguments::{GrowArguments, NewSize};
use crate::command::cli::reshape::{Work, check_alone};
use crate::command::clients::control::change;
use crate::command::opening::arguments::{AssembleArguments, MemberArguments};
use crate::command::server::grow::{Growth, NotGrown, complete, grow};
use crate::command::text::failure::Failure;
use crate::command::text::output::{print, print_json};
use crate::command::text::size::Size;
use crate::machine::{Arena, Array, Machine, Purpose};
use crate::names::shell_word;
use control::GrowRequest;
use engine::inspect::find_superblock;
use engine::status::Status;
use engine::{BitmapPolicy, Candidate, Refusal};
use format::geometry::Level;
use parity::Kernel;
use serde_json::json;

/// Runs `mdspace grow`.
pub(crate) fn run(arguments: &GrowArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let request = match (arguments.raid_devices, arguments.size) {
        (Some(copies), _) => GrowRequest::RaidDevices(copies),
        (None, Some(NewSize::Bytes(size))) => GrowRequest::Size(Some(size.0)),
        (None, Some(NewSize::Max) | None) => GrowRequest::Size(None),
    };
    if arguments.members.is_empty() {
        if arguments.overlay.directory().is_some() {
            return Err(Failure::refused(
                "--overlay: give the members, too; a served array has its overlay from `serve`",
            ));
        }
        return change(&arguments.change, "/v1/grow", &json!(request)).map(drop);
    }
    let machine = Machine::start(kernel, Arena::Medium)?.over(arguments.overlay.directory())?;
    let members = MemberArguments { members: arguments.members.clone(), uuid: arguments.uuid, name: None };
    machine.run(async {
        match arguments.raid_devices {
            Some(slots) if has_parity(&machine, &members).await? => {
                return Work::find(&machine, arguments).await?.grow(slots).await;
            }
            None if arguments.goes_on => return Work::find(&machine, arguments).await?.go_on().await,
            _ => check_alone(arguments)?,
        }
        let assemble = AssembleArguments::of(&members, None);
        let array = machine.assemble(&assemble, Purpose::Write, BitmapPolicy::default()).await?;
        let before = array.status();
        let growth = match arguments.shrink {
            true => shrink(&array, arguments.size).await?,
            false => grow(&array, request).await?,
        };
        array.stop().await?;
        match arguments.change.told.json {
            true => print_json(&array.status()),
            false => print(&summary(&growth, &before, &array.status())),
        }
    })
}

/// Whether the members are of an array with parity, whose slots only a reshape changes.
async fn has_parity(machine: &Machine, members: &MemberArguments) -> Result<bool, Failure> {
    let found = machine.find(members).await?;
    let Some(first) = found.own.first() else { return Ok(false) };
    let Candidate { name, member } = machine.open(first, Purpose::Look)?;
    let level = find_superblock(&name, &member, &machine.pool).await?.superblock.level;
    Ok(matches!(level, Level::Raid4 | Level::Raid5 | Level::Raid6))
}

/// Makes an array smaller, and stops it: no client may see it shrink.
async fn shrink(array: &Array, wanted: Option<NewSize>) -> Result<Growth, NotGrown> {
    let Some(NewSize::Bytes(Size(wanted))) = wanted else {
        return Err(Refusal::new("--shrink needs --size SIZE: the bytes to use of each member").into());
    };
    if let Some(shrinking) = array.plan_shrinking(wanted)? {
        array.shrink(shrinking).await?;
        return Ok(Growth::Changed);
    }
    complete(array).await
}

/// The array before and after, and the next command.
fn summary(growth: &Growth, before: &Status, after: &Status) -> String {
    let sizes = |status: &Status| {
        let (bytes, component) = (Size(status.array_bytes), Size(status.component_bytes));
        format!("{bytes}, {component} of each member, {} of {} slots in use", status.in_sync, status.raid_disks)
    };
    match growth {
        Growth::Unchanged => format!("unchanged: {}\n", sizes(after)),
        Growth::Completed => format!("{}, as before; now all members record it\n", sizes(after)),
        Growth::Changed => {
            let next = match after.in_sync < after.raid_disks {
                true => ", and `mdspace add` for an empty slot",
                false if after.in_agreement => "",
                false => " resyncs the added space",
            };
            format!("{}\nbefore: {}\nnext: mdspace serve {}{next}\n", sizes(after), sizes(before), names(after))
        }
    }
}

fn names(status: &Status) -> String {
    status.members.iter().map(|member| shell_word(&member.name)).collect::<Vec<_>>().join(" ")
}
