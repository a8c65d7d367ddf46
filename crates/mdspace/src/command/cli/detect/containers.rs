//! Containers of firmware RAID, DDF and IMSM: their volumes, which disks these lie on, and what is inside.

use crate::command::opening::container::{ContainerDisk, FoundContainer, containers};
use crate::command::text::level::level_name;
use crate::detect::Layer;
use crate::detect::Next;
use crate::machine::{Machine, Purpose};
use crate::names::name_of;
use disk::container::Volume;
use serde::Serialize;

/// A container.
#[derive(Serialize)]
pub(crate) struct ContainerFound {
    /// `DDF` or `IMSM`
    pub(crate) kind: &'static str,
    pub(crate) id: String,
    /// The disks that were found.
    pub(crate) disks: Vec<String>,
    pub(crate) volumes: Vec<ContainerVolume>,
}

/// A volume of a container.
#[derive(Serialize)]
pub(crate) struct ContainerVolume {
    pub(crate) name: String,
    pub(crate) level: &'static str,
    pub(crate) bytes: u64,
    /// `clean`, `dirty`, with `, degraded`; none if it cannot be read.
    pub(crate) state: Option<String>,
    pub(crate) slots: Vec<SlotFound>,
    /// The shape, as `--geometry` takes it, without the disks.
    pub(crate) geometry: String,
    /// Why it cannot be read.
    pub(crate) refusal: Option<String>,
    /// Advice about the refusal.
    pub(crate) advice: Option<String>,
    /// What it holds.
    pub(crate) content: Option<Layer>,
    /// Commands that come next.
    pub(crate) next: Vec<Next>,
}

/// A slot of a volume.
#[derive(Serialize)]
pub(crate) struct SlotFound {
    /// How the metadata identify the disk; none if they know no disk.
    pub(crate) id: Option<String>,
    /// The disk, if it is among these.
    pub(crate) disk: Option<String>,
    /// Whether the data there is current.
    pub(crate) current: bool,
}

/// The containers of these disks.
pub(crate) async fn look(machine: &Machine, disks: Vec<ContainerDisk>) -> Vec<ContainerFound> {
    let mut found = Vec::new();
    for container in containers(disks) {
        let mut volumes = Vec::new();
        for volume in &container.volumes {
            volumes.push(of_volume(machine, &container, volume).await);
        }
        let disks = container.disks.iter().map(|disk| name_of(&disk.path)).collect();
        found.push(ContainerFound { kind: container.kind.name(), id: container.id, disks, volumes });
    }
    found
}

async fn of_volume(machine: &Machine, container: &FoundContainer, volume: &Volume) -> ContainerVolume {
    let slots = volume.slots.iter().map(|slot| SlotFound {
        id: slot.as_ref().map(|slot| slot.disk.to_string()),
        disk: slot.as_ref().and_then(|slot| Some(name_of(&container.disk(&slot.disk)?.path))),
        current: slot.as_ref().is_some_and(|slot| slot.is_current),
    });
    let mut found = ContainerVolume {
        name: volume.name.clone(),
        level: level_name(volume.level),
        bytes: volume.bytes,
        state: None,
        slots: slots.collect(),
        geometry: container.geometry(volume, None).to_string(),
        refusal: None,
        advice: None,
        content: None,
        next: Vec::new(),
    };
    match container.open(machine, volume, false, Purpose::Look).await {
        Err(failure) => {
            found.advice = failure.advice();
            found.refusal = Some(failure.reason());
        }
        Ok(opened) => {
            let state = if volume.is_dirty { "dirty" } else { "clean" };
            let degraded = if opened.missing > 0 { ", degraded" } else { "" };
            found.state = Some(format!("{state}{degraded}"));
            found.content = Some(Layer::of(&opened.bytes).await);
        }
    }
    found
}
