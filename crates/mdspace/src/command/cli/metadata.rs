//! `update --metadata 1.0`: turns metadata 0.90 of an array that is not served into 1.0, as
//! `mdadm --assemble --update=metadata` does. The data stays where it is.
//!
//! All members are locked and checked, and the array is assembled for a look, before the first byte is written. The engine
//! keeps the order on disk; an array whose conversion was interrupted is assembled, and the same command completes it.

use crate::command::cli::arguments::UpdateArguments;
use crate::command::text::failure::Failure;
use crate::command::text::output::{print, print_json};
use crate::machine::{Machine, Purpose, random};
use engine::Candidate;
use engine::conversion::{Conversion, check_together, convert, plan};
use engine::status::uuid_text;
use engine::update::Change;
use format::superblock::{Superblock, Version};
use format::text::quoted;
use serde_json::{Value, json};

/// Carries it out.
pub(super) async fn change(machine: &Machine, arguments: &UpdateArguments) -> Result<(), Failure> {
    let paths = machine.members_to_change(&arguments.members, None).await?;
    let candidates = machine.open_all(&paths, Purpose::Write)?;
    let mut planned = Vec::new();
    for Candidate { name, member } in &candidates {
        let conversion = plan(name, member, &machine.pool, random()?, arguments.force).await?;
        planned.push((&**name, member, conversion));
    }
    check_together(planned.iter().map(|(name, _, conversion)| (*name, conversion)))?;
    machine.check_array(&paths, &Change::default()).await?;
    let members: Vec<_> = planned.iter().map(|(name, member, conversion)| (*name, *member, conversion)).collect();
    let converted = convert(&members, &machine.pool).await;
    converted.map_err(|refusal| refusal.or_advice("repeat the command when the member is well"))?;
    let names: Vec<&str> = planned.iter().map(|(name, ..)| *name).collect();
    // After an interruption some members were converted before.
    let is_old = |conversion: &&Conversion| conversion.before.version == Version::V0_90;
    let first = planned.iter().map(|(.., conversion)| conversion).find(is_old).unwrap_or(&planned[0].2);
    match arguments.json {
        true => {
            print_json(&json!({"members": names, "before": identity(&first.before), "after": identity(&first.after)}))
        }
        false => print(&text(&first.after, names.len())),
    }
}

fn identity(superblock: &Superblock) -> Value {
    json!({
        "metadata": superblock.version.to_string(),
        "uuid": uuid_text(&superblock.set_uuid),
        "name": quoted(superblock.set_name.as_bytes()),
    })
}

fn text(after: &Superblock, members: usize) -> String {
    let (uuid, name) = (uuid_text(&after.set_uuid), quoted(after.set_name.as_bytes()));
    format!(
        "array \"{name}\" {uuid}: {members} members have metadata 1.0\n\
         next: `mdspace examine --scan MEMBER...` prints its new line for mdadm.conf\n"
    )
}
