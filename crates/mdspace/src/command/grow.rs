//! `grow`: an array that is not served is made larger where it stands.
//!
//! The members' locks keep it from one that is served. Nothing is written before all is found possible. What
//! is new is resynced by whoever serves the array next: so the command itself ends at once, whatever the size.

use crate::command::arguments::{AssembleArguments, GrowArguments, NewSize};
use crate::command::failure::Failure;
use crate::command::output::{print, print_json};
use crate::command::size::Size;
use crate::machine::{Arena, Array, Machine, Purpose};
use engine::BitmapPolicy;
use engine::status::Status;
use parity::Kernel;

/// Runs `mdspace grow`.
pub(crate) fn run(arguments: &GrowArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let machine = Machine::start(kernel, Arena::Middling)?;
    let assemble = AssembleArguments::of(&arguments.members, None);
    machine.run(async {
        let array = machine.assemble(&assemble, Purpose::Write, BitmapPolicy::default()).await?;
        let said = match (arguments.raid_devices, arguments.size) {
            (Some(copies), _) => set_copies(&array, copies).await,
            (None, Some(NewSize::Bytes(size))) => grow_component(&array, Some(size.0)).await,
            (None, Some(NewSize::Max) | None) => grow_component(&array, None).await,
        }?;
        if !arguments.told.json {
            return print(&said);
        }
        drop(array); // which is of the old size for as long as it lives
        print_json(&machine.assemble(&assemble, Purpose::Read, BitmapPolicy::default()).await?.status())
    })
}

async fn grow_component(array: &Array, wanted: Option<u64>) -> Result<String, Failure> {
    let before = array.status();
    let Some(growth) = array.plan_growth(wanted)? else {
        return unchanged(array, &format!("{} of each member are used already", Size(before.component_bytes))).await;
    };
    let (component, bytes) = (Size(growth.component_bytes()), Size(growth.array_bytes()));
    array.grow(growth).await?;
    Ok(format!(
        "{bytes}, {component} of each member; it was {}, {}\nnext: mdspace serve {} resyncs what is new\n",
        Size(before.array_bytes),
        Size(before.component_bytes),
        names(&before),
    ))
}

async fn set_copies(array: &Array, wanted: u16) -> Result<String, Failure> {
    let before = array.status();
    if !array.check_copies(wanted)? {
        return unchanged(array, &format!("it has {wanted} slots already")).await;
    }
    array.set_copies(wanted).await?;
    let slots = format!("{wanted} slots, {} of them in use; before there were {}\n", before.in_sync, before.raid_disks);
    Ok(match wanted > before.in_sync {
        true => format!("{slots}next: mdspace serve {}, and `mdspace add` for an empty slot\n", names(&before)),
        false => slots,
    })
}

/// Nothing to do but for members that the same command, cut short, did not reach.
async fn unchanged(array: &Array, why: &str) -> Result<String, Failure> {
    Ok(match array.end_growth().await? {
        true => format!("{why}; now all members say so\n"),
        false => format!("unchanged: {why}\n"),
    })
}

fn names(status: &Status) -> String {
    status.members.iter().map(|member| &*member.name).collect::<Vec<_>>().join(" ")
}
