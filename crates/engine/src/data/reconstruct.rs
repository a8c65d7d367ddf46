//! Reads of a stripe that involve parity. Every needed byte of a member is read once, whether it was requested,
//! serves reconstruction, or both.
//!
//! Nothing here locks: the caller ensures that data and parity are of the same moment. The memory of such a read, and its
//! arithmetic, are [`super::reading`].

use crate::base::buffer::Buffer;
use crate::base::join::join_all;
use crate::core::authority::Authority;
use crate::data::plane::DataPlane;
use crate::data::reading::{ChunkPart, EndedRead, Reading, UnreadChunk};
use crate::device::Device;
use crate::plan::planner::{ChunkTransfer, Symbols, code};
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use crate::seam::observe::Why;
use format::geometry::{Parity, Role, Stripe};
use format::units::ComponentByte;
use smallvec::SmallVec;
use std::rc::Rc;

const _: () = assert!(Role::PARITIES.len() == 2, "this file knows the equations of P and Q alone");

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// The member transfers of a reading. The future borrows nothing from the array, so it may outlive this call once
    /// begun.
    pub(crate) fn member_reads(&self, reading: &mut Reading) -> impl Future<Output = Vec<EndedRead>> + use<M, C, A> {
        let transfers = std::mem::take(&mut reading.plan.reads);
        let reads = transfers.into_iter().map(|transfer| {
            let (parts, buffers) = reading.take_parts(&transfer);
            let device = self.device_of(&reading.stripe, transfer.role);
            let at = ComponentByte(reading.stripe.component().0 + u64::from(transfer.within.start));
            read_parts(device, transfer.role, at, parts, buffers)
        });
        join_all(reads.collect::<Vec<_>>())
    }

    /// Reads what the plan says and reconstructs the rest. The caller holds the stripe's lock.
    pub(crate) async fn read_and_solve(
        &self,
        parity: &Parity,
        mut reading: Reading,
    ) -> (Result<(), UnreadChunk>, Buffer) {
        for transfer in std::mem::take(&mut reading.plan.cached_reads) {
            let (parts, buffers) = reading.take_parts(&transfer);
            for (index, mut buffer) in parts.into_iter().zip(buffers) {
                let part = &mut reading.parts[index];
                let cached = ChunkTransfer { role: part.role, within: part.within.clone() };
                self.copy_cached_into(&reading.stripe, &cached, &mut buffer);
                part.buffer = Some(buffer);
            }
        }
        let done = self.member_reads(&mut reading).await;
        let result = match reading.finish(self.core.info.kernel, done) {
            Ok(()) => self.check_solved(parity, &mut reading).await,
            Err(failed) => Err(failed),
        };
        (result, reading.into_buffer())
    }

    /// Compares reconstructed data with the checksums of what the members should hold. On a mismatch, the data is
    /// reconstructed from other members instead.
    async fn check_solved(&self, parity: &Parity, reading: &mut Reading) -> Result<(), UnreadChunk> {
        for index in 0..reading.asked {
            let is_solved = reading.is_solved(&reading.parts[index]);
            let ChunkPart { role, within, buffer: Some(buffer), .. } = &mut reading.parts[index] else { continue };
            let contradiction = || self.contradiction(&reading.stripe, *role, within, buffer);
            let Some(error) = is_solved.then(contradiction).flatten() else { continue };
            let start = reading.stripe.component().0 + u64::from(within.start);
            let range = start..start + buffer.len() as u64;
            let slot = reading.stripe.slot_of(*role).expect("a role of this level");
            match Box::pin(self.reconstructed(parity, &range, slot)).await {
                Some(block) => buffer.copy_from_slice(&block),
                None => return Err((*role, Some(error))),
            }
        }
        Ok(())
    }

    /// The parity that can be spared if one is enough: the one on the busier member. If both are equally busy they
    /// alternate, one round of stripes each. Where the two may disagree, P counts.
    pub(crate) fn spared_parity(&self, parity: &Parity, stripe: &Stripe, unreadable: Symbols) -> Option<Role> {
        let parities = code(parity).all_parities();
        if parities.len() < 2 || unreadable.minus(parities).len() != 1 || !unreadable.intersection(parities).is_empty()
        {
            return None;
        }
        if !self.is_settled(parity, stripe.component().0..stripe.component().0 + parity.chunk_bytes()) {
            return Some(Role::Q);
        }
        let load = |role| self.device_of(stripe, role).map_or(0, |device| device.activity.in_flight());
        let turn = stripe.number() / u64::from(parity.slots()) % u64::from(parity.parities());
        let spared = parity.parity_roles().zip(0..).max_by_key(|&(role, index)| (load(role), index != turn));
        spared.map(|(role, _)| role)
    }
}

async fn read_parts<M: Member>(
    device: Option<Rc<Device<M>>>,
    role: Role,
    at: ComponentByte,
    parts: SmallVec<[usize; 3]>,
    buffers: Vec<Buffer>,
) -> EndedRead {
    let Some(device) = device else { return EndedRead { result: Err((role, None)), parts, buffers } };
    let (result, buffers) = device.read_vectored(at, buffers, Why::Reconstruct).await;
    EndedRead { result: result.map_err(|error| (role, Some(error))), parts, buffers }
}
