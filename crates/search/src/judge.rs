//! Judges whole candidates: what they would read, and whether parity and copies agree under them.

use crate::crc::BLOCK;
use crate::decide::MARGIN;
use crate::scan::Scan;
use crate::seen::Missed;
use crate::shape::{Shape, copies};
use disk::Source;
use format::geometry::{Geometry, Level, Parity, Role, Stripe};
use format::units::Slot;
use parity::{Kernel, gf};

/// A shape with the members in its slots.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) shape: Shape,
    pub(crate) geometry: Geometry,
    /// Blocks in a chunk.
    pub(crate) chunk: u64,
    /// The block at which data begins.
    pub(crate) offset: u64,
    /// The member in each slot.
    pub(crate) order: Vec<Option<usize>>,
    /// Known blocks that fit it, and those that do not.
    pub(crate) fits: u64,
    pub(crate) against: u64,
    /// Those that do not, without ends of files, which a fault of the medium may change.
    pub(crate) faults: u64,
    /// Blocks of files that would be zeros, which is unusual.
    pub(crate) unusual: u64,
    /// Whether parity and copies were compared.
    pub(crate) is_checked: bool,
    /// Blocks at which they agree, and whether they disagree at others.
    pub(crate) agreements: u64,
    pub(crate) disagrees: bool,
    /// Blocks at which Q of RAID-6 agrees.
    pub(crate) q_agreements: u64,
}

/// Blocks that are compared at most.
pub(crate) const COMPARED_MAX: usize = 200_000;
/// Blocks at which parity or copies have to agree to rule out shapes in which there is nothing to compare.
const AGREES: u64 = 64;
/// Copies of each other lack at most this part of their blocks.
const COPIES_LOST_PART: u64 = 10;
/// Blocks of which Q is computed, where P and all data agree already, and where a member is missing: then Q alone
/// tells whether another one is stale.
const Q_CHECKS: usize = 384;
const Q_CHECKS_WITHOUT: usize = 16_384;

impl Candidate {
    fn content(&self, scan: &Scan, slot: usize, at: u64) -> Option<u64> {
        Some(scan.summary(self.order[slot]?, self.offset + at)?.content())
    }

    /// The content that it would read as `block`; `None` if that was not read, or is lost.
    pub(crate) fn reads(&self, scan: &Scan, block: u64) -> Option<u64> {
        let copies = copies(&self.geometry, block);
        if let Some(sum) = copies.iter().find_map(|(slot, at)| self.content(scan, *slot, *at)) {
            return Some(sum);
        }
        let (Geometry::Parity(parity), Some((slot, at))) = (&self.geometry, copies.first()) else { return None };
        if self.order[*slot].is_some() {
            return None;
        }
        let stripe = parity.stripe(at / self.chunk);
        self.others(&stripe, Slot(*slot as u16))
            .map(|other| self.content(scan, other, *at))
            .try_fold(0, |all, sum| Some(all ^ sum?))
    }

    /// The slots that give the one of `slot` by xor: all but Q.
    fn others(&self, stripe: &Stripe, slot: Slot) -> impl Iterator<Item = usize> {
        let q = stripe.slot_of(Role::Q);
        let slots = self.order.len() as u16;
        (0..slots).map(Slot).filter(move |other| *other != slot && Some(*other) != q).map(Slot::index)
    }

    /// The blocks of the array.
    pub(crate) fn blocks(&self) -> u64 {
        self.geometry.array_bytes() / BLOCK as u64
    }

    /// Whether every slot has a member.
    pub(crate) fn is_whole(&self) -> bool {
        self.order.iter().all(Option::is_some)
    }

    /// How many of `disks` members are in no slot.
    pub(crate) fn left_out(&self, disks: usize) -> usize {
        disks.saturating_sub(self.order.iter().flatten().count())
    }

    /// Whether a block of the file system shows that another of `disks` members is stale than the one that it leaves out.
    /// Told by the xor of all but one, which means something at levels with one parity.
    pub(crate) fn leaves_out_another(&self, missed: Missed, disks: usize) -> bool {
        let members = self.order.iter().flatten().fold(0, |all, member| all | 1 << member);
        let left_out = (0..disks).filter(|disk| members >> disk & 1 == 0).fold(0, |all, disk| all | 1 << disk);
        let has_parity = matches!(self.shape.level, Level::Raid4 | Level::Raid5);
        has_parity && self.left_out(disks) == 1 && !self.is_whole() && missed.refutes(members, left_out)
    }

    /// Whether redundancy shows that no member in it is stale. `disks` are all that were given; if all of them are in
    /// it, none was chosen to be left out.
    pub(crate) fn is_proved(&self, disks: usize) -> bool {
        let missing = self.order.iter().filter(|member| member.is_none()).count();
        let spare = match &self.geometry {
            Geometry::Parity(parity) => usize::from(parity.parities()),
            Geometry::Mapping(_) if self.agreements > 0 => {
                let copies = (self.shape.layout & 0xff) * (self.shape.layout >> 8 & 0xff);
                (copies as usize).saturating_sub(1).max(1)
            }
            Geometry::Mapping(_) => 0,
        };
        self.left_out(disks) == 0 || missing < spare
    }

    /// Whether all `disks` members are in it, and parity or copies agree everywhere, and often.
    pub(crate) fn is_sound(&self, disks: usize) -> bool {
        self.is_whole() && self.left_out(disks) == 0 && !self.disagrees && self.agreements >= AGREES
    }

    /// Whether parity or copies agree under it, or nearly all known blocks are in their places: where nothing is compared, a
    /// stale member shows by those that are not.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.agreements + self.q_agreements > 0 || self.has_nearly_all()
    }

    /// Whether nearly all known blocks are in their places.
    pub(crate) fn has_nearly_all(&self) -> bool {
        self.against <= MARGIN + self.fits / 100
    }

    /// The blocks of members from which it would read `block`.
    fn places(&self, block: u64) -> Vec<(usize, u64)> {
        let copies = copies(&self.geometry, block);
        let held = copies.iter().filter_map(|(slot, at)| Some((self.order[*slot]?, self.offset + at)));
        let mut places: Vec<_> = held.collect();
        if let (true, Geometry::Parity(parity), Some((slot, at))) = (places.is_empty(), &self.geometry, copies.first())
        {
            let stripe = parity.stripe(at / self.chunk);
            let others = self.others(&stripe, Slot(*slot as u16));
            places.extend(others.filter_map(|other| Some((self.order[other]?, self.offset + at))));
        }
        places
    }

    /// Whether any block from which it would read `block` could not be read.
    fn is_unreadable(&self, scan: &Scan, block: u64) -> bool {
        self.places(block).into_iter().any(|(member, at)| scan.is_unreadable(member, at))
    }

    /// Whether both read the same in the first `blocks` blocks, as far as these were read. What cannot be read is the same
    /// only in the same places.
    pub(crate) fn reads_as(&self, other: &Self, scan: &Scan, blocks: u64) -> bool {
        let blocks = blocks.min(self.blocks()).min(other.blocks());
        let step = (blocks / COMPARED_MAX as u64).max(1);
        // Chunks are compared at some of their blocks in a very long file system, and at all in a short one.
        (0..blocks).step_by(step as usize).all(|block| match (self.reads(scan, block), other.reads(scan, block)) {
            (Some(own), Some(theirs)) => own == theirs,
            _ => {
                let (own, theirs) = (self.places(block), other.places(block));
                let are_same = own.len() == theirs.len() && own.iter().all(|place| theirs.contains(place));
                are_same || !self.is_unreadable(scan, block) && !other.is_unreadable(scan, block)
            }
        })
    }

    /// Whether both are copies of each other: they read the same in the first `blocks` blocks, as far as these were read of
    /// both, and that is nearly all.
    pub(crate) fn is_copy(&self, other: &Self, scan: &Scan, blocks: u64) -> bool {
        let blocks = blocks.min(self.blocks()).min(other.blocks());
        let step = (blocks / COMPARED_MAX as u64).max(1);
        let (mut compared, mut lost) = (0, 0);
        for block in (0..blocks).step_by(step as usize) {
            match (self.reads(scan, block), other.reads(scan, block)) {
                (Some(own), Some(theirs)) if own != theirs => return false,
                (Some(_), Some(_)) => compared += 1,
                _ => lost += u64::from(self.is_unreadable(scan, block) || other.is_unreadable(scan, block)),
            }
        }
        lost <= compared / COPIES_LOST_PART
    }

    /// Blocks at which parity or copies agree and which are not zeros, where the first `blocks` blocks of the array are;
    /// `None` if they disagree anywhere.
    pub(crate) fn agreements(&self, scan: &Scan, blocks: u64) -> Option<u64> {
        match &self.geometry {
            Geometry::Parity(parity) => self.of_parity(parity, scan, blocks),
            Geometry::Mapping(_) if self.shape.level == Level::Raid0 => Some(0),
            Geometry::Mapping(_) => {
                let blocks = blocks.min(self.blocks());
                let step = (blocks / COMPARED_MAX as u64).max(1);
                let mut agreements = 0;
                for block in (0..blocks).step_by(step as usize) {
                    let copies = copies(&self.geometry, block).into_iter();
                    let mut sums = copies.filter_map(|(slot, at)| self.content(scan, slot, at));
                    let Some(first) = sums.next() else { continue };
                    let (are_equal, others) = sums.fold((true, 0), |(all, n), sum| (all && sum == first, n + 1));
                    if !are_equal {
                        return None;
                    }
                    agreements += u64::from(others > 0 && first != 0);
                }
                Some(agreements)
            }
        }
    }

    fn of_parity(&self, parity: &Parity, scan: &Scan, blocks: u64) -> Option<u64> {
        let (end, missing) = (self.end(parity, blocks), self.order.iter().position(Option::is_none));
        if missing.is_some() && parity.parities() < 2 {
            return Some(0);
        }
        let mut agreements = 0;
        for at in scan.written(self.offset..self.offset + end) {
            let stripe = parity.stripe(at / self.chunk);
            let p = stripe.slot_of(Role::P).expect("every level has it");
            // P is told by all but Q.
            if missing.is_some_and(|missing| stripe.slot_of(Role::Q) != Some(Slot(missing as u16))) {
                continue;
            }
            let mut sums = self.others(&stripe, p).map(|slot| self.content(scan, slot, at));
            let sums = sums.try_fold((0, false), |(xor, any), sum| sum.map(|sum| (xor ^ sum, any || sum != 0)));
            let (Some((xor, any)), Some(stored)) = (sums, self.content(scan, p.index(), at)) else { continue };
            if xor != stored {
                return None;
            }
            agreements += u64::from(any);
        }
        Some(agreements)
    }

    /// The end of the stripes with these blocks, on a member.
    fn end(&self, parity: &Parity, blocks: u64) -> u64 {
        blocks.div_ceil(parity.stripe_bytes() / BLOCK as u64).min(parity.stripes()) * self.chunk
    }

    /// Whether Q of RAID-6 agrees at some blocks, spread over the members; a missing member, or a lost block, is worked out
    /// from P. `None` if not, else the blocks that were compared.
    pub(crate) async fn q_agrees<S: Source>(&self, disks: &[S], scan: &Scan, blocks: u64) -> Option<u64> {
        let Geometry::Parity(parity) = &self.geometry else { return Some(0) };
        if parity.parities() < 2 {
            return Some(0);
        }
        let end = self.end(parity, blocks);
        let is_compared = self.is_whole() && scan.unreadable == 0;
        let (checks, least) = if is_compared { (Q_CHECKS, 3) } else { (Q_CHECKS_WITHOUT, 1) };
        let is_told = |at: &u64| {
            let told = self.order.iter().filter_map(|member| scan.summary((*member)?, *at));
            let (count, written) =
                told.fold((0, 0), |(count, written), own| (count + 1, written + usize::from(own.end > 0)));
            count + 1 >= self.order.len() && written >= least
        };
        let rows = scan.written(self.offset..self.offset + end);
        let step = rows.len().div_ceil(checks).max(1);
        let mut compared = 0;
        for at in rows.step_by(step).map(|at| self.offset + at).filter(is_told) {
            match self.q_agrees_at(disks, scan, parity, at).await {
                Some(false) => return None,
                Some(true) => compared += 1,
                None => {}
            }
        }
        Some(compared)
    }

    async fn q_agrees_at<S: Source>(&self, disks: &[S], scan: &Scan, parity: &Parity, at: u64) -> Option<bool> {
        let stripe = parity.stripe((at - self.offset) / self.chunk);
        let mut blocks = Vec::new();
        for member in &self.order {
            blocks.push(match member.filter(|member| !scan.is_lost(*member, at)) {
                Some(member) => Some(disks[member].read(at * BLOCK as u64, BLOCK).await.ok()?),
                None => None,
            });
        }
        let q = stripe.slot_of(Role::Q)?.index();
        let stored = blocks[q].take()?;
        let kernel = Kernel::best();
        if let Some(lost) = (0..blocks.len()).find(|slot| *slot != q && blocks[*slot].is_none()) {
            let sources: Vec<&[u8]> = blocks.iter().flatten().map(Vec::as_slice).collect();
            let mut block = vec![0; BLOCK];
            kernel.xor(&mut block, &sources);
            blocks[lost] = Some(block);
        }
        let mut computed = vec![0; BLOCK];
        let sources: Option<Vec<(u8, &[u8])>> = stripe
            .exponents()
            .zip((0..).map(Role::Data))
            .map(|(exponent, role)| Some((gf::pow2(exponent), blocks[stripe.slot_of(role)?.index()].as_deref()?)))
            .collect();
        kernel.combine(&mut computed, &sources?);
        Some(computed == stored)
    }
}
