//! Elects the superblock that counts, and gives each offered member its role by it, or the reason why it is left out.
//!
//! It is pure: superblocks in, roles out. Nothing is read or written here.
//!
//! Facts: `drivers/md/md.c` (`super_1_validate`, `analyze_sbs`), mdadm's `Assemble.c`.

use crate::control::difference::difference;
use crate::control::forced::{ForceCandidate, Rescue};
use crate::control::inspect::Found;
use crate::control::split::Apart;
use crate::control::{forced, lost_roles, split};
use crate::metadata::record::ROUNDS_TO_EJECT;
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use format::superblock::{DeviceRole, Superblock};

/// A candidate with its superblock.
pub(super) struct Offered<M> {
    pub(super) name: String,
    pub(super) member: M,
    pub(super) found: Found,
}

/// The result of comparing the members' superblocks.
pub(super) struct Election {
    /// Index of the candidate whose superblock counts.
    pub(super) freshest: usize,
    /// For each candidate: its role, or why it is left out.
    pub(super) seats: Vec<Result<DeviceRole, String>>,
    /// Superblock rounds until every member that wrongly calls itself active is stale.
    pub(super) rounds_pending: u32,
    /// For each candidate: its device number.
    pub(super) numbers: Vec<u16>,
}

/// The candidate whose superblock counts. The order of criteria: newest events; then the shape that most
/// candidates share, so that the odd one is refused by name; then the support of most candidates of the same
/// events, which call it active. A member that was told first of its new slot, and then failed, is called
/// faulty by the members told next, under the same number.
fn freshest<M>(offered: &[Offered<M>]) -> Option<usize> {
    let superblock = |index: usize| &offered[index].found.superblock;
    let supporters = |index: usize| {
        let own = superblock(index);
        let supports = |other: &Offered<M>| {
            let other = &other.found.superblock;
            other.events == own.events && matches!(other.role(own.device_number), DeviceRole::Active(_))
        };
        offered.iter().filter(|other| supports(other)).count()
    };
    let alike = |index: usize| {
        let is_alike = |other: &&Offered<M>| difference(&other.found.superblock, superblock(index)).is_none();
        offered.iter().filter(is_alike).count()
    };
    (0..offered.len())
        .filter(|&index| !superblock(index).replacement)
        .max_by_key(|&index| (superblock(index).events, alike(index), supporters(index), std::cmp::Reverse(index)))
}

/// Gives the new size, or the new state of a reshape, to members that an interrupted change left one event behind, as the
/// kernel goes by the freshest too. The round that catches them up writes it. A reshape that is only announced is none.
pub(super) fn adopt_change<M: Member>(offered: &mut [Offered<M>]) {
    let Some(best) = freshest(offered).map(|index| offered[index].found.superblock.clone()) else { return };
    for Offered { member, found, .. } in offered {
        if let Some(superblock) = found.superblock.caught_up(&best, member.limits().bytes) {
            found.superblock = superblock;
        }
        if let Some(superblock) = found.superblock.with_reshape_of(&best) {
            found.superblock = superblock;
        }
        found.superblock = found.superblock.without_announcement();
    }
}

/// Whether two superblocks are of one member by its uuid, which 0.90 does not have: there, a member that has recovered
/// takes the number of the one that left.
fn has_same_uuid(one: &Superblock, other: &Superblock) -> bool {
    one.device_uuid.is_some() && one.device_uuid == other.device_uuid
}

pub(super) fn elect<M: Member>(offered: &[Offered<M>]) -> Result<Election, Refusal> {
    let superblock = |index: usize| &offered[index].found.superblock;
    let freshest = freshest(offered)
        .ok_or_else(|| Refusal::new("no members were given").advice("name the files or devices, in any order"))?;
    let fellows = |index: usize| {
        let is_fellow = |other: &&Offered<M>| other.found.superblock.set_uuid == superblock(index).set_uuid;
        offered.iter().filter(is_fellow).count()
    };
    let first = (0..offered.len()).max_by_key(|&index| (fellows(index), std::cmp::Reverse(index)));
    let first = &offered[first.expect("there are some")];
    for (index, candidate) in offered.iter().enumerate() {
        if superblock(index).set_uuid != first.found.superblock.set_uuid {
            let reason = format!("belongs to another array than {}", first.name);
            return Err(Refusal::new(reason).of(&candidate.name).field("superblock.set_uuid"));
        }
        let twin = offered[..index].iter().find(|other| {
            let other = &other.found.superblock;
            other.device_number == superblock(index).device_number
                && (has_same_uuid(other, superblock(index)) || other.events == superblock(index).events)
        });
        if let Some(twin) = twin {
            let reason = format!("a duplicate: {} is the same member", twin.name);
            return Err(Refusal::new(reason).of(&candidate.name).field("superblock.dev_number"));
        }
    }
    let best = superblock(freshest);
    let everyone = offered.iter().map(|candidate| (&*candidate.name, &candidate.found.superblock));
    lost_roles::check(everyone, (&offered[freshest].name, best))?;
    // A removed member may be only one event behind, and its number may belong to another member since.
    let heir_of = |own: &Superblock| {
        offered.iter().find(|other| {
            let other = &other.found.superblock;
            other.device_number == own.device_number && other.events > own.events
        })
    };
    let anchor = split::anchor(offered.iter().map(|other| &other.found.superblock), freshest).map(|at| &offered[at]);
    let apart = |own| anchor.and_then(|Offered { name, found, .. }| Apart::find(own, name, &found.superblock));
    let seats = offered.iter().map(|candidate| match apart(&candidate.found.superblock) {
        Some(apart) => apart.reason(&candidate.name).map(Err),
        None => match heir_of(&candidate.found.superblock) {
            Some(heir) => Ok(Err(format!("removed: {} has its number now", heir.name))),
            None => seat_of(candidate, best),
        },
    });
    let seats = seats.collect::<Result<Vec<_>, _>>()?;
    // Older kernels accept a member that is one event behind. And a member may be ahead, if its superblock
    // was written first.
    let is_active = |role: &DeviceRole| matches!(role, DeviceRole::Active(_));
    let left = |(candidate, seat): (&Offered<M>, &Result<DeviceRole, String>)| {
        let own = &candidate.found.superblock;
        let claims = is_active(&own.own_role()) && !seat.as_ref().is_ok_and(is_active);
        claims.then(|| own.events.saturating_add(ROUNDS_TO_EJECT.into()).saturating_sub(best.events))
    };
    let rounds = offered.iter().zip(&seats).filter_map(left).max().unwrap_or(0);
    let numbers = offered.iter().map(|candidate| candidate.found.superblock.device_number.0).collect();
    Ok(Election { freshest, seats, rounds_pending: rounds.try_into().unwrap_or(ROUNDS_TO_EJECT), numbers })
}

/// Finds what `--force` can do for the array. With `force`, the members that it takes are seated. Members
/// that would help but are not taken get the reason for that.
pub(super) fn rescue<M>(offered: &[Offered<M>], election: &mut Election, best: &Superblock, force: bool) -> Rescue {
    let known = |(candidate, seat): (_, &Result<DeviceRole, String>)| {
        let Offered { name, found, .. }: &Offered<M> = candidate;
        ForceCandidate { name, superblock: &found.superblock, seat: seat.as_ref().ok().copied() }
    };
    let known: Vec<_> = offered.iter().zip(&election.seats).map(known).collect();
    let mut rescue = forced::rescue(&known, best);
    for (index, objection) in &rescue.refused {
        if let Err(reason) = &mut election.seats[*index] {
            reason.push_str(&format!(", and --force does not take it: {objection}"));
        }
    }
    if !force {
        rescue.taken.clear();
    }
    for (index, slot) in &rescue.taken {
        election.seats[*index] = Ok(DeviceRole::Active(*slot));
    }
    rescue
}

/// Whether a member is active by its own superblock alone because its superblock was written first, and then
/// a failure or power loss stopped the round. The superblocks written next have the same events. Members that
/// were used apart call each other faulty. No member calls a spare faulty, since it takes part in nothing; so
/// for a spare the members that it calls active decide.
fn was_told_first(own: &Superblock, best: &Superblock) -> bool {
    let is_active = |role: &DeviceRole| matches!(role, DeviceRole::Active(_));
    let is_active_to_own = |(number, _): (usize, &DeviceRole)| own.roles.get(number).is_some_and(is_active);
    let are_together = match is_active(&best.own_role()) {
        true => is_active(&own.role(best.device_number)),
        false => {
            !mutant!("spare-asked-alone")
                && best.roles.iter().enumerate().filter(|(_, role)| is_active(role)).all(is_active_to_own)
        }
    };
    !is_active(&best.role(own.device_number)) && are_together
}

/// Whether a candidate is a spare by its own superblock and the array's, with room for the array's current
/// bitmap.
fn is_spare_of<M: Member>(Offered { member, found, .. }: &Offered<M>, best: &Superblock) -> bool {
    let own = &found.superblock;
    let is_called_so = own.own_role() == DeviceRole::Spare && best.role(own.device_number) == DeviceRole::Spare;
    is_called_so && difference(own, best).is_none() && own.with_bitmap(best.bitmap, member.limits().bytes).is_ok()
}

/// The role of one candidate, by the freshest superblock.
fn seat_of<M: Member>(candidate: &Offered<M>, best: &Superblock) -> Result<Result<DeviceRole, String>, Refusal> {
    let own = &candidate.found.superblock;
    if is_spare_of(candidate, best) {
        return Ok(Ok(DeviceRole::Spare)); // its data cannot be stale, so md ignores its events too
    }
    let broken = mutant!("stale-member-taken");
    if best.events.saturating_sub(own.events) > 1 && !broken {
        let later = match best.updated.seconds.saturating_sub(own.updated.seconds) {
            0 => String::new(),
            seconds => format!(", {} later", forced::duration(seconds)),
        };
        return Ok(Err(format!("stale: its events are {}, the array's {}{later}", own.events, best.events)));
    }
    let role = if broken { own.own_role() } else { best.role(own.device_number) };
    if own.events == best.events && own.own_role() != role && !was_told_first(own, best) {
        let (own, others) = (split::in_words(own.own_role()), split::in_words(role));
        let reason = format!("calls itself {own}, but a member of the same age calls it {others}");
        return Err(Refusal::new(reason)
            .of(&candidate.name)
            .field("superblock.dev_roles")
            .advice("the members were used apart from each other; give only those of one half"));
    }
    if let Some(field) = difference(own, best) {
        return Err(Refusal::new("differs from the array's other members").of(&candidate.name).field(field));
    }
    // One that the others have shut out does not count. It may have been told of the next position first.
    if own.events == best.events && own.reshape != best.reshape && role != DeviceRole::Faulty {
        let reason = "says another reshape, or another position of it, than the array's other members of the same age";
        let advice = "md writes the same to all of them: give only those that agree, or copies from before the change";
        return Err(Refusal::new(reason).of(&candidate.name).field("superblock.reshape_position").advice(advice));
    }
    Ok(match role {
        DeviceRole::Faulty => Err("the other members call it faulty".to_owned()),
        // The slot was given to it, but its superblock does not say yet how much of its data is current.
        DeviceRole::Active(_) if own.own_role() == DeviceRole::Spare => Ok(DeviceRole::Spare),
        DeviceRole::Active(_) if own.own_role() != role => Err("it was about to become active".to_owned()),
        role => Ok(role),
    })
}
