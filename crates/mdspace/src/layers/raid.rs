//! Volumes of LVM's own RAID: an array of images, which are volumes themselves.
//!
//! device-mapper lays the data out as md does, from the first byte of each image on. So the array is put together with
//! superblocks in memory ([`crate::in_memory`]), of the images that its metadata call current.

use crate::in_memory::{self, Placed, Shape, digest};
use crate::layers::group::MISSING;
use crate::layers::{Bytes, Running};
use crate::machine::{Machine, Purpose};
use disk::lvm::raid::{RaidState, read, together};
use format::geometry::Level;
use std::rc::Rc;

/// The metadata and the data of an image, if they can be read.
type Image = (Option<Bytes>, Option<Bytes>);

/// Assembles the volume `name` of `bytes` bytes. `chunk_bytes`: of a RAID-0, which has no metadata.
pub(super) async fn assemble(
    machine: &Machine,
    name: &str,
    bytes: u64,
    chunk_bytes: Option<u64>,
    images: Vec<Image>,
    force: bool,
) -> Result<Bytes, String> {
    let state = match chunk_bytes {
        Some(chunk_bytes) => striped(chunk_bytes, &images),
        None => state_of(&images).await?,
    };
    let slots = u16::try_from(images.len()).map_err(|_| "it has too many images")?;
    let present = |(slot, (_, image)): (usize, &Image)| image.is_some() && state.current[slot];
    let missing = images.iter().enumerate().filter(|image| !present(*image)).count();
    if missing > 0 && !state.level.is_redundant() {
        return Err(MISSING.to_owned());
    }
    if missing > 0 && state.is_dirty && state.level.has_parity() && !force {
        return Err("it is dirty and degraded: data of the missing image may be wrong where a write was under way; \
             --force reads it nevertheless"
            .to_owned());
    }
    let component = component(&state, bytes, images.len())?;
    let (mut placed, mut below) = (Vec::new(), Vec::new());
    for (slot, (metadata, image)) in images.into_iter().enumerate() {
        below.extend(metadata);
        let Some(image) = image.filter(|_| state.current[slot]) else { continue };
        if image.bytes() < component {
            return Err(format!("its image {slot} has {} bytes instead of {component}", image.bytes()));
        }
        let image = image.part(0, component);
        placed.push(Placed {
            slot: slot as u16,
            name: format!("{name}/{slot}"),
            data: image.member(),
            data_bytes: component,
            identity: digest(&(name, slot)),
        });
        below.push(image);
    }
    let shape =
        Shape { level: state.level, layout: state.layout, raid0_layout: false, chunk_bytes: state.chunk_bytes, slots };
    let array = in_memory::assemble(machine, &shape, digest(&(name, bytes)), placed, Purpose::Look).await;
    let whole = Bytes::Array(Rc::new(Running { array: array.map_err(|refusal| refusal.to_string())?, below }));
    match whole.bytes() < bytes {
        true => Err(format!("its images hold {} bytes instead of {bytes}", whole.bytes())),
        false => Ok(whole.part(0, bytes)),
    }
}

fn striped(chunk_bytes: u64, images: &[Image]) -> RaidState {
    RaidState { level: Level::Raid0, layout: 0, chunk_bytes, current: vec![true; images.len()], is_dirty: false }
}

async fn state_of(images: &[Image]) -> Result<RaidState, String> {
    let mut states = Vec::new();
    for (metadata, _) in images {
        states.push(match metadata {
            Some(metadata) => read(metadata).await.ok().flatten(),
            None => None,
        });
    }
    together(&states)
}

/// Bytes of each image that the volume uses.
fn component(state: &RaidState, bytes: u64, images: usize) -> Result<u64, String> {
    let images = images as u64;
    let parts = match state.level {
        Level::Raid1 => 1,
        Level::Linear | Level::Raid0 => images,
        Level::Raid4 | Level::Raid5 => images.saturating_sub(1),
        Level::Raid6 => images.saturating_sub(2),
        Level::Raid10 => return raid10(state.layout, bytes, images),
    };
    match parts {
        0 => Err("it has too few images".to_owned()),
        parts => {
            let component = bytes.div_ceil(parts).checked_next_multiple_of(state.chunk_bytes.max(512));
            component.ok_or_else(|| format!("its {bytes} bytes are more than any image holds"))
        }
    }
}

/// Copies make the data longer, and it is spread over all images.
fn raid10(layout: u32, bytes: u64, images: u64) -> Result<u64, String> {
    let copies = u64::from(layout & 0xff) * u64::from(layout >> 8 & 0xff);
    match bytes.checked_mul(copies) {
        Some(bytes) if copies > 0 => Ok(bytes.div_ceil(images)),
        _ => Err("its layout makes no sense".to_owned()),
    }
}
