//! Members that call themselves spares although they may hold an array's data: words the refusals.
//!
//! A member that was added (`mdadm --add`) when it should have been assembled says from then on that it is a
//! spare. Its data may be intact, but no superblock says in which slot. md does not start such members, not
//! even with `--force`. This file never reads or writes a member.

use crate::control::forced::slots_text;
use crate::seam::error::Refusal;
use format::superblock::{DeviceRole, Superblock};
use format::units::Slot;

/// The advice where members lost their roles.
pub(crate) const ADVICE: &str = "where the other members are enough, leave such members out; otherwise add and recover nothing, as \
    their data may be intact: `mdspace read --geometry` reads them by the shape and order that you state, and \
    `mdspace create --assume-clean --force` makes the superblocks anew, on copies (docs/rescue.md)";

/// Refuses members that call themselves spares while `best`, at the same event count, calls them active.
///
/// # Errors
/// When there are such members. The refusal names all of them, with the slots that `best` gives them.
pub(crate) fn check<'a>(
    members: impl Iterator<Item = (&'a str, &'a Superblock)>,
    (name, best): (&str, &Superblock),
) -> Result<(), Refusal> {
    let (mut names, mut slots) = (Vec::new(), Vec::<Slot>::new());
    for (name, own) in members {
        if let DeviceRole::Active(slot) = best.role(own.device_number)
            && own.events == best.events
            && own.own_role() == DeviceRole::Spare
        {
            names.push(name);
            slots.push(slot);
        }
    }
    let Some((first, others)) = names.split_first() else { return Ok(()) };
    let slots = slots_text(&slots);
    let reason = match others {
        [] => format!("calls itself a spare, but {name}, of the same age, calls it active in {slots}"),
        _ => {
            let others = others.join(", ");
            format!("calls itself a spare, as does {others}, but {name}, of the same age, calls them active in {slots}")
        }
    };
    Err(Refusal::new(reason).of(*first).field("superblock.dev_roles").advice(ADVICE))
}

/// For an array with too few members: its spares may have been members.
pub(crate) fn note(spares: &[&str]) -> Option<String> {
    match spares {
        [] => None,
        [one] => Some(format!("{one} calls itself a spare of this array")),
        _ => Some(format!("{} call themselves spares of this array", spares.join(", "))),
    }
}
