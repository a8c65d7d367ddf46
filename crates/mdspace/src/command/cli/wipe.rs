//! `wipe`: removes md superblocks of all versions from members, as mdadm --zero-superblock does.
//!
//! All members are opened and judged before the first byte is written. A member in use is refused. So is, without
//! `--force`, a member that its array may need: only a spare, or a member of an array that starts without it (by the
//! rules of `serve`, with the members found beside it) goes without a question. Nothing but superblocks is written.

use crate::command::cli::arguments::WipeArguments;
use crate::command::cli::examination::role;
use crate::command::clients::served::ask_all;
use crate::command::opening::mdadm_conf::block_devices;
use crate::command::opening::members::{expand, expand_with_directories};
use crate::command::opening::sockets::control_sockets;
use crate::command::text::failure::Failure;
use crate::command::text::output::{print, print_json};
use crate::machine::{Arena, Machine, Purpose};
use crate::names::path_of;
use engine::examined::Examination;
use engine::inspect::{Found, find_superblock};
use engine::status::uuid_text;
use engine::wipe::{Place, superblocks, wipe};
use engine::{Candidate, Member, Refusal};
use format::superblock::{DeviceRole, Superblock};
use io::AnyMember;
use parity::Kernel;
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// A member, its superblocks, and the one that counts.
struct Target {
    candidate: Candidate<AnyMember>,
    places: Vec<Place>,
    /// `None` if none is valid.
    current: Option<Found>,
}

/// What was, or would be, removed. Its fields are a stable interface (docs/json.md).
#[derive(Serialize)]
struct Wiped {
    name: String,
    superblocks: Vec<Removed>,
    /// Why only `--force` removes them.
    needs_force: Option<String>,
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
    let machine = Machine::start(kernel, Arena::Small)?;
    machine.run(async {
        let paths = expand(&arguments.members)?;
        let purpose = if arguments.dry_run { Purpose::Read } else { Purpose::Write };
        let mut targets = Vec::new();
        for path in &paths {
            targets.push(look(&machine, path, purpose).await?);
        }
        let mut wiped = Vec::new();
        for target in &targets {
            let needs_force = machine.needs_force(target, &targets).await;
            wiped.push(Wiped::of(target, needs_force));
        }
        let refused = wiped.iter().find(|one| one.needs_force.is_some() && !arguments.force && !arguments.dry_run);
        if let Some(Wiped { name, needs_force: Some(reason), .. }) = refused {
            return Err(Failure::refused(format!("{name}: {reason}"))
                .advise("`mdspace wipe --dry-run` shows its superblocks; --force removes them"));
        }
        for (target, wiped) in targets.iter().zip(&mut wiped) {
            if !arguments.dry_run {
                wipe(&target.candidate.name, &target.candidate.member, &machine.pool).await?;
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
    let current = match find_superblock(name, member, &machine.pool).await {
        Ok(found) => Some(found),
        Err(refusal) if places.is_empty() => return Err(refusal.into()),
        Err(_) => None,
    };
    Ok(Target { candidate, places, current })
}

impl Machine {
    /// Why `target` is not wiped without `--force`; `None` if nothing needs it. `targets` are all members to be wiped.
    async fn needs_force(&self, target: &Target, targets: &[Target]) -> Option<String> {
        if let Some((place, refusal)) =
            target.places.iter().find_map(|place| Some((place, place.found.as_ref().err()?)))
        {
            let (version, at, reason) = (place.version, place.at.0, damage(refusal));
            return Some(format!("byte {at}: what may be a {version} superblock is damaged: {reason}"));
        }
        let superblock = &target.current.as_ref()?.superblock;
        if matches!(superblock.own_role(), DeviceRole::Spare | DeviceRole::Faulty) {
            return None;
        }
        let uuid = uuid_text(&superblock.set_uuid);
        // The lock on the member shows that this server does not use it.
        let served = ask_all(control_sockets());
        if served.iter().filter_map(|one| one.array()).any(|array| array.uuid == uuid && array.broken.is_none()) {
            return None;
        }
        let others = self.others_beside(&path_of(&target.candidate.name), superblock.set_uuid, targets).await;
        let count = others.len();
        match self.assemble_candidates(others, false, Purpose::Look).await {
            Ok(_) => None,
            Err(_) if count == 0 => Some(format!("in use by array {uuid}, of which no other member was found here")),
            Err(refusal) => {
                let reason = Failure::from(refusal).reason();
                Some(format!("array {uuid} cannot be started without it: {reason}"))
            }
        }
    }

    /// The members of the array beside `path`, without `targets`: in its directory, or on all block devices. A member
    /// with the identity of a target is left out, too: it is the same one (a superblock at the end of the last partition
    /// is also at the end of the disk), or a copy of it.
    async fn others_beside(&self, path: &Path, uuid: [u8; 16], targets: &[Target]) -> Vec<Candidate<AnyMember>> {
        let is_device = path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device());
        let places: Vec<OsString> = match is_device {
            true => block_devices(),
            false => {
                let file = path.canonicalize().unwrap_or_else(|_| path.to_owned());
                file.parent().map(|directory| directory.as_os_str().to_owned()).into_iter().collect()
            }
        };
        let is_target = |superblock: &Superblock| {
            let same = |target: &Superblock| {
                let has_same_number = target.device_number == superblock.device_number;
                let is_same_device = target.device_uuid == superblock.device_uuid;
                target.set_uuid == superblock.set_uuid
                    && is_same_device
                    && (has_same_number || target.device_uuid.is_some()) // 0.90 has no uuid of a device
            };
            targets.iter().filter_map(|target| target.current.as_ref()).any(|current| same(&current.superblock))
        };
        let mut others = Vec::new();
        for path in expand_with_directories(&places).unwrap_or_default() {
            let Ok(candidate) = self.try_open(&path, Purpose::Look) else { continue };
            let found = find_superblock(&candidate.name, &candidate.member, &self.pool).await;
            if found.is_ok_and(|found| found.superblock.set_uuid == uuid && !is_target(&found.superblock)) {
                others.push(candidate);
            }
        }
        others
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
        Self { name: name.clone(), superblocks, needs_force, removed: false }
    }

    fn text(&self) -> String {
        let done = if self.removed { "removed" } else { "would remove" };
        let mut text: String = self
            .superblocks
            .iter()
            .map(|superblock| format!("{}: {done} {}\n", self.name, superblock.text()))
            .collect();
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
