//! `locate`: the files that bytes of an array hit, of members or of a served array.

use crate::command::cli::arguments::LocateArguments;
use crate::command::clients::control::client;
use crate::command::clients::files::{findings, served};
use crate::command::locate::{Asked, Located, locate, text};
use crate::command::opening::arguments::AssembleArguments;
use crate::command::opening::arguments::MemberArguments;
use crate::command::text::failure::Failure;
use crate::command::text::output::{print, print_json};
use crate::machine::{Arena, Machine};
use parity::Kernel;

/// Runs `mdspace locate`.
pub(crate) fn run(arguments: &LocateArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let located = match arguments.members.is_empty() && arguments.geometry.is_none() {
        true if arguments.maps.is_any() => {
            return Err(
                Failure::refused("--map: it belongs to a member, and none is given").advise("name the members, too")
            );
        }
        true => of_served(arguments, kernel)?,
        false => of_members(arguments, kernel)?,
    };
    match arguments.json {
        true => print_json(&located)?,
        false => print(&text(&located))?,
    }
    match located.has_unknown() {
        true => Err(Failure::unwell("some of these bytes could not be told")),
        false => Ok(()),
    }
}

/// The bytes that the command line names; `None`: none.
fn asked(arguments: &LocateArguments) -> Result<Option<Asked>, Failure> {
    let offset = arguments.offset.map(|size| size.0);
    match (&arguments.findings, offset) {
        (Some(path), offset) => Asked::file(path, offset.unwrap_or(0)).map(Some),
        (None, Some(offset)) => Asked::range(offset, arguments.length.map_or(1, |size| size.0)).map(Some),
        (None, None) => Ok(None),
    }
}

fn of_members(arguments: &LocateArguments, kernel: Option<&'static Kernel>) -> Result<Located, Failure> {
    let Some(asked) = asked(arguments)? else {
        return Err(Failure::refused("no bytes are named").advise("give --offset BYTE, or --findings FILE"));
    };
    let machine = Machine::start(kernel, Arena::Medium)?;
    let machine = machine.with_maps(arguments.maps.read()?).over(arguments.overlay.as_deref())?;
    let (uuid, name) = (arguments.uuid, arguments.name.clone());
    let members = MemberArguments { members: arguments.members.clone(), uuid, name };
    let assemble = AssembleArguments::of(&members, None).by_hand(arguments.geometry.clone());
    machine.run(locate(&machine, &assemble, arguments.inner.as_deref(), &asked))
}

fn of_served(arguments: &LocateArguments, kernel: Option<&'static Kernel>) -> Result<Located, Failure> {
    let client = client(&arguments.control.wanted())?;
    let asked = match asked(arguments)? {
        Some(asked) => asked,
        None => findings(&client)?,
    };
    served(&client, arguments.inner.as_deref(), &asked, kernel)
}
