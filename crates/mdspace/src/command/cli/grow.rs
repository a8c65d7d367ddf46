//! `grow`: an array is made larger where it stands, one that is served or one that is not; the latter is made smaller, too,
//! by who consents to lose what lies behind its new end.
//!
//! Nothing is written before all is found possible. What is new is resynced by whoever serves the array, now or
//! next: so the command itself ends at once, whatever the size.

use crate::command::arguments::{AssembleArguments, GrowArguments, MemberArguments, NewSize};
use crate::command::control::change;
use crate::command::failure::Failure;
use crate::command::output::{print, print_json};
use crate::command::serve::refused;
use crate::command::size::Size;
use crate::machine::{Arena, Array, Machine, Purpose};
use engine::status::Status;
use engine::{ArrayError, BitmapPolicy, Refusal};
use export::control::{ApiError, GrowRequest};
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
        return change(&arguments.change, "/v1/grow", &json!(request)).map(drop);
    }
    let machine = Machine::start(kernel, Arena::Middling)?;
    let members = MemberArguments { members: arguments.members.clone(), uuid: arguments.uuid, name: None };
    machine.run(async {
        let assemble = AssembleArguments::of(&members, None);
        let array = machine.assemble(&assemble, Purpose::Write, BitmapPolicy::default()).await?;
        let before = array.status();
        let done = match arguments.shrink {
            true => shrink(&array, arguments.size).await?,
            false => grow(&array, request).await?,
        };
        array.stop().await?;
        match arguments.change.told.json {
            true => print_json(&array.status()),
            false => print(&said(&done, &before, &array.status())),
        }
    })
}

/// Grows the served array; what its server is asked.
pub(crate) async fn command(array: &Array, request: GrowRequest) -> Result<(), ApiError> {
    match grow(array, request).await {
        Ok(_) => Ok(()),
        Err(NotGrown::Refused(refusal)) => Err(refused(409, refusal)),
        Err(NotGrown::Failed(error)) => Err(ApiError::new(500, error.reason)),
    }
}

/// What came of it.
enum Done {
    Changed,
    /// It was so already; but members that the same command, cut short, did not reach were told.
    Told,
    Unchanged,
}

/// Nothing changed, or it failed on the way.
enum NotGrown {
    Refused(Refusal),
    Failed(ArrayError),
}

impl From<Refusal> for NotGrown {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<ArrayError> for NotGrown {
    fn from(error: ArrayError) -> Self {
        Self::Failed(error)
    }
}

impl From<NotGrown> for Failure {
    fn from(error: NotGrown) -> Self {
        match error {
            NotGrown::Refused(refusal) => refusal.into(),
            NotGrown::Failed(error) => error.into(),
        }
    }
}

async fn grow(array: &Array, request: GrowRequest) -> Result<Done, NotGrown> {
    match request {
        GrowRequest::Size(wanted) => {
            if let Some(growth) = array.plan_growth(wanted)? {
                array.grow(growth).await?;
                return Ok(Done::Changed);
            }
        }
        GrowRequest::RaidDevices(wanted) => {
            if array.check_copies(wanted)? {
                array.set_copies(wanted).await?;
                return Ok(Done::Changed);
            }
        }
    }
    even(array).await
}

/// Of an array that nobody else uses, which is stopped by it.
async fn shrink(array: &Array, wanted: Option<NewSize>) -> Result<Done, NotGrown> {
    let Some(NewSize::Bytes(Size(wanted))) = wanted else {
        return Err(Refusal::new("--shrink takes the bytes to use of each member, by --size").into());
    };
    if let Some(shrinking) = array.plan_shrinking(wanted)? {
        array.shrink(shrinking).await?;
        return Ok(Done::Changed);
    }
    even(array).await
}

/// The array is as was asked; its members are to say so.
async fn even(array: &Array) -> Result<Done, NotGrown> {
    Ok(if array.end_growth().await? { Done::Told } else { Done::Unchanged })
}

/// What an array became that nobody serves.
fn said(done: &Done, before: &Status, after: &Status) -> String {
    let is = |status: &Status| {
        let (bytes, component) = (Size(status.array_bytes), Size(status.component_bytes));
        format!("{bytes}, {component} of each member, {} of {} slots in use", status.in_sync, status.raid_disks)
    };
    match done {
        Done::Unchanged => format!("unchanged: {}\n", is(after)),
        Done::Told => format!("{}, as before; now all members say so\n", is(after)),
        Done::Changed => {
            let next = match after.in_sync < after.raid_disks {
                true => ", and `mdspace add` for an empty slot",
                false if after.in_agreement => "",
                false => " resyncs what is new",
            };
            format!("{}\nit was: {}\nnext: mdspace serve {}{next}\n", is(after), is(before), names(after))
        }
    }
}

fn names(status: &Status) -> String {
    status.members.iter().map(|member| &*member.name).collect::<Vec<_>>().join(" ")
}
