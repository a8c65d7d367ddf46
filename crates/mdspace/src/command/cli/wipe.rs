//! `wipe`: removes md superblocks of all versions from members, as mdadm --zero-superblock does.
//!
//! All members are opened and judged before the first byte is written. A member in use is refused. So is, without
//! `--force`, a member that has a slot by its own superblock. Whether its array starts without it does not matter: it may
//! be the redundancy, or hold what the other half lacks. Only a spare or a faulty member goes without a question. Nothing
//! but superblocks is written. The member's name for what a killed server had answered goes with them.

use crate::command::cli::arguments::WipeArguments;
use crate::command::cli::examination::role;
use crate::command::opening::members::expand;
use crate::command::text::failure::Failure;
use crate::command::text::output::{print, print_json};
use crate::machine::{Arena, Machine, Purpose};
use crate::write_buffer;
use engine::examined::Examination;
use engine::inspect::find_superblock;
use engine::wipe::{Place, superblocks, wipe};
use engine::{Candidate, Member, Refusal};
use format::superblock::DeviceRole;
use io::AnyMember;
use parity::Kernel;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;

/// A member, and its superblocks.
struct Target {
    candidate: Candidate<AnyMember>,
    places: Vec<Place>,
}

/// What was, or would be, removed. Its fields are a stable interface (docs/json.md).
#[derive(Serialize)]
struct Wiped {
    name: String,
    superblocks: Vec<Removed>,
    /// Why only `--force` removes them.
    needs_force: Option<String>,
    /// Bytes that a killed server had answered for its arrays, and that no member has yet.
    answered_bytes: u64,
    /// False with `--dry-run`.
    removed: bool,
}

/// A superblock. Of a damaged one only `metadata`, `at` and `damage` are known.
#[derive(Serialize)]
struct Removed {
    metadata: String,
    at: u64,
    array_uuid: Option<String>,
    array_name: Option<String>,
    level: Option<&'static str>,
    role: Option<String>,
    events: Option<u64>,
    damage: Option<String>,
}

/// Runs `mdspace wipe`.
pub(crate) fn run(arguments: &WipeArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let machine = Machine::start(kernel, Arena::Small)?.over(arguments.overlay.directory())?;
    machine.run(async {
        let paths = expand(&arguments.members)?;
        let purpose = if arguments.dry_run { Purpose::Read } else { Purpose::Write };
        let mut targets = Vec::new();
        for path in &paths {
            targets.push(look(&machine, path, purpose).await?);
        }
        let mut wiped = Vec::new();
        for target in &targets {
            wiped.push(Wiped::of(target, target.needs_force()));
        }
        let refused = wiped.iter().find(|one| one.needs_force.is_some() && !arguments.force && !arguments.dry_run);
        if let Some(Wiped { name, needs_force: Some(reason), .. }) = refused {
            return Err(Failure::refused(format!("{name}: {reason}"))
                .advise("`mdspace wipe --dry-run` shows its superblocks; --force removes them"));
        }
        for (target, wiped) in targets.iter().zip(&mut wiped) {
            if !arguments.dry_run {
                wipe(&target.candidate.name, &target.candidate.member, &machine.pool).await?;
                if !machine.has_overlay() {
                    target.forget_answered_writes();
                }
                wiped.removed = true;
            }
            if !arguments.json {
                print(&wiped.text())?;
            }
        }
        if arguments.json { print_json(&wiped) } else { Ok(()) }
    })
}

async fn look(machine: &Machine, path: &Path, purpose: Purpose) -> Result<Target, Failure> {
    let candidate = machine.open(path, purpose)?;
    let Candidate { name, member } = &candidate;
    let places = superblocks(name, member, &machine.pool).await;
    if places.is_empty() {
        find_superblock(name, member, &machine.pool).await?; // says why there is none
    }
    Ok(Target { candidate, places })
}

impl Target {
    /// The arrays that the member belongs to, by its superblocks.
    fn arrays(&self) -> BTreeSet<[u8; 16]> {
        self.places.iter().filter_map(|place| Some(place.found.as_ref().ok()?.superblock.set_uuid)).collect()
    }

    /// What a killed server had answered for the member's arrays does not wait for it any more.
    fn forget_answered_writes(&self) {
        self.arrays().into_iter().for_each(|uuid| write_buffer::forget(uuid, &self.candidate.name));
    }

    /// Why it is not wiped without `--force`; `None` if nothing needs it.
    fn needs_force(&self) -> Option<String> {
        let damaged = self.places.iter().find_map(|place| Some((place, place.found.as_ref().err()?)));
        if let Some((place, refusal)) = damaged {
            let (version, at, reason) = (place.version, place.at.0, damage(refusal));
            return Some(format!("byte {at}: what may be a {version} superblock is damaged: {reason}"));
        }
        let is_without_data = |role| matches!(role, DeviceRole::Spare | DeviceRole::Faulty);
        let mut found = self.places.iter().filter_map(|place| place.found.as_ref().ok());
        let needed = found.find(|found| !is_without_data(found.superblock.own_role()))?;
        let Candidate { name, member } = &self.candidate;
        let member = Examination::of(name, member.limits().bytes, needed);
        Some(format!("it calls itself {} of array {}, which may need it", role(&member), member.array_uuid))
    }
}

/// The damaged field, and what is wrong with it.
fn damage(refusal: &Refusal) -> String {
    let reason = refusal.reason_and_changes();
    refusal.field.iter().map(|field| field.to_string()).chain([reason]).collect::<Vec<_>>().join(": ")
}

impl Wiped {
    fn of(target: &Target, needs_force: Option<String>) -> Self {
        let Candidate { name, member } = &target.candidate;
        let bytes = member.limits().bytes;
        let superblocks = target.places.iter().map(|place| Removed::of(name, bytes, place)).collect();
        let answered_bytes = target.arrays().into_iter().map(|uuid| write_buffer::waiting_bytes(uuid, name)).sum();
        Self { name: name.clone(), superblocks, needs_force, answered_bytes, removed: false }
    }

    fn text(&self) -> String {
        let done = if self.removed { "removed" } else { "would remove" };
        let mut text: String = self
            .superblocks
            .iter()
            .map(|superblock| format!("{}: {done} {}\n", self.name, superblock.text()))
            .collect();
        if self.answered_bytes > 0 {
            text += &format!(
                "{}: {} bytes that a killed server had answered wait for its array; they go with the last member\n",
                self.name, self.answered_bytes
            );
        }
        if let Some(reason) = self.needs_force.as_ref().filter(|_| !self.removed) {
            text += &format!("{}: needs --force: {reason}\n", self.name);
        }
        text
    }
}

impl Removed {
    fn of(name: &str, member_bytes: u64, place: &Place) -> Self {
        let (metadata, at) = (place.version.to_string(), place.at.0);
        match &place.found {
            Ok(found) => {
                let member = Examination::of(name, member_bytes, found);
                Self {
                    metadata,
                    at,
                    level: Some(member.level),
                    role: Some(role(&member)),
                    events: Some(member.events),
                    array_uuid: Some(member.array_uuid),
                    array_name: Some(member.array_name),
                    damage: None,
                }
            }
            Err(refusal) => Self {
                metadata,
                at,
                array_uuid: None,
                array_name: None,
                level: None,
                role: None,
                events: None,
                damage: Some(damage(refusal)),
            },
        }
    }

    fn text(&self) -> String {
        let Self { metadata, at, .. } = self;
        let place = format!("{metadata} at byte {at}");
        match (&self.array_uuid, &self.damage) {
            (Some(uuid), _) => {
                let name = self.array_name.as_deref().unwrap_or_default().escape_default();
                let (level, role) = (self.level.unwrap_or_default(), self.role.as_deref().unwrap_or_default());
                let events = self.events.unwrap_or_default();
                format!("the superblock of array \"{name}\" {uuid} ({level}): {role}; {place}, events {events}")
            }
            (None, damage) => {
                format!("what may be a superblock; {place}: {}", damage.as_deref().unwrap_or_default())
            }
        }
    }
}
