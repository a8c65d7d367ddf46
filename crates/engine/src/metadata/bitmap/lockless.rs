//! What a lockless bitmap (version 6) says of an array that is only read: whether parity and copies agree everywhere.
//!
//! The superblock does not say it. With such a bitmap md builds parity only once a chunk is written, calls the array clean
//! meanwhile, and finishes after the next start. So each chunk has to be clean before parity may replace data. Nothing is
//! written here, and no array with such a bitmap is written.
//!
//! Facts: `drivers/md/md-llbitmap.c`.

use crate::base::buffer::Pool;
use crate::device::Device;
use crate::seam::bytes::read_bytes;
use crate::seam::member::Member;
use format::bitmap::{BitmapSuper, Kind, LOCKLESS_CLEAN, LOCKLESS_STATES_AT, SUPER_BYTES, State};
use format::superblock::Superblock;
use format::units::MemberByte;
use std::rc::Rc;

/// Whether no member's lockless bitmap has a chunk that is not clean. A bitmap that cannot be read or understood says
/// nothing, so that it counts as one that has.
pub(crate) async fn all_clean<M: Member>(freshest: &Superblock, slots: &[Option<Rc<Device<M>>>], pool: &Pool) -> bool {
    for device in slots.iter().flatten() {
        let superblock = device.superblock.borrow().clone();
        let Some(at) = superblock.bitmap_at() else { continue };
        let room = superblock.bitmap_room(device.member.limits().bytes).unwrap_or(0);
        let head = read_bytes(&device.member, pool, at, SUPER_BYTES as u64).await;
        let header = head.ok().and_then(|head| BitmapSuper::decode(&head, room).ok());
        let Some(header) = header.filter(|header| header.kind == Kind::Lockless) else { continue };
        let is_stale = header.events < freshest.events || header.state.contains(State::STALE);
        let chunks = header.lockless_chunks().filter(|chunks| LOCKLESS_STATES_AT + chunks <= room);
        let Some(chunks) = chunks.filter(|_| !is_stale && header.uuid == freshest.set_uuid) else { return false };
        let states = read_bytes(&device.member, pool, MemberByte(at.0 + LOCKLESS_STATES_AT), chunks).await;
        if !states.is_ok_and(|states| states.iter().all(|state| *state == LOCKLESS_CLEAN)) {
            return mutant!("unbuilt-parity-trusted");
        }
    }
    true
}
