//! `grow`: an array that is not served is made larger where it stands.
//!
//! The members' locks keep it from one that is served. Nothing is written before all is found possible. What
//! is new is resynced by whoever serves the array next: so the command itself ends at once, whatever the size.

use crate::arguments::{AssembleArguments, GrowArguments, NewSize};
use crate::failure::Failure;
use crate::machine::{Arena, Machine, Purpose};
use crate::output::print;
use crate::size::Size;
use engine::BitmapPolicy;
use parity::Kernel;

/// Runs `mdspace grow`.
pub(crate) fn run(arguments: &GrowArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let machine = Machine::start(kernel, Arena::Middling)?;
    let said = machine.run(grow_component(&machine, arguments))?;
    print(&said)
}

async fn grow_component(machine: &Machine, arguments: &GrowArguments) -> Result<String, Failure> {
    let assemble = AssembleArguments::of(&arguments.members, None);
    let array = machine.assemble(&assemble, Purpose::Write, BitmapPolicy::default()).await?;
    let wanted = match arguments.size {
        NewSize::Max => None,
        NewSize::Bytes(size) => Some(size.0),
    };
    let before = array.status();
    let Some(growth) = array.plan_growth(wanted)? else {
        if array.end_growth().await? {
            return Ok("all members know of the size now\n".to_owned());
        }
        return Ok(format!("unchanged: {} of each member are used already\n", Size(before.component_bytes)));
    };
    let (component, bytes) = (Size(growth.component_bytes()), Size(growth.array_bytes()));
    array.grow(growth).await?;
    Ok(format!(
        "{bytes}, {component} of each member; it was {}, {}\nnext: mdspace serve {} resyncs what is new\n",
        Size(before.array_bytes),
        Size(before.component_bytes),
        before.members.iter().map(|member| &*member.name).collect::<Vec<_>>().join(" "),
    ))
}
