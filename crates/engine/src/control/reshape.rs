//! Carries out a reshape to more slots, of an array that is not in use: begins one, and ends one that was begun here or by
//! md.
//!
//! Data moves from the old shape to the new one in the order of the array, stripe by stripe. The new shape has its data at
//! another place on each member, or further towards the start of it. So a batch of stripes writes over nothing that is still
//! needed in the old shape. When its bytes are on stable storage, a round of superblocks records the new position. Power may
//! go at any write: what is read and what goes on is always by the recorded position. The superblocks of each step:
//! [`format::superblock`], `more_slots.rs`.
//!
//! Behind the old array's end the new one gets zeros, as with md. An array that was dirty stays dirty.
//!
//! It never writes over data in place: for that mdadm keeps a backup. Nothing here serves requests meanwhile.
//!
//! Facts: `reshape_request`, `raid5_start_reshape` and `raid5_run` in `drivers/md/raid5.c`; mdadm's `Grow.c`
//! (`set_new_data_offset`).

use crate::base::buffer::Pool;
use crate::base::join::join_all;
use crate::base::write_set::WriteExtent;
use crate::control::assemble::reshape::Sides;
use crate::control::assemble::start::find_all;
use crate::control::election::{adopt_change, elect};
use crate::control::inspect::read_bad_blocks;
use crate::control::offer::{AssembleOptions, Offer};
use crate::control::state::Control;
use crate::core::personality::personality;
use crate::metadata::record::ROUNDS_TO_EJECT;
use crate::metadata::stripe_log::found::of_member;
use crate::seam::bytes::write_bytes;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, Refusal};
use crate::seam::member::{Candidate, Member};
use crate::seam::observe::Why;
use format::Defect;
use format::geometry::{Geometry, Parity};
use format::superblock::{DeviceRole, Resync, Superblock, Timestamp};
use format::units::{DeviceNumber, Sectors};
use futures_util::future::LocalBoxFuture;
use std::ops::Range;
use std::rc::Rc;

/// About the most bytes of the array between two rounds of superblocks.
const BATCH_BYTES: u64 = 256 << 20;

/// About the most bytes of the array that are in memory at a time, in so many pieces.
const PIECE_BYTES: u64 = 1 << 20;
const PIECES: usize = 4;

/// The most that the data moves: a batch of every shape has room, and more would only waste the room before the data.
const MOVED_MAX: Sectors = Sectors((64 << 20) / 512);

/// How an interrupted reshape goes on.
pub const GO_ON: &str = "`mdspace grow --continue` with all members goes on; or mdadm --assemble";

const DATA_OFFSET: &str = "superblock.data_offset";

/// A member that takes part, and its superblock as it is there.
struct Party<M> {
    name: String,
    member: M,
    superblock: Superblock,
}

impl<M: Member> Party<M> {
    /// Writes its superblock, to stable storage.
    async fn write(&mut self, superblock: Superblock, pool: &Pool) -> Result<(), Refusal> {
        let failed = |error| {
            Refusal::member_error(&self.name, &error)
                .after("the superblocks of some members say this step of the reshape, and of others the one before")
                .or_advice(GO_ON)
        };
        write_bytes(&self.member, pool, superblock.super_at(), &superblock.encode()).await.map_err(failed)?;
        self.member.flush().await.map_err(failed)?;
        self.superblock = superblock;
        Ok(())
    }
}

/// A step of a member's superblock.
type Change<'a> = dyn Fn(&Superblock) -> Result<Superblock, Defect> + 'a;

/// What a reshape begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Bytes of the array before.
    pub bytes_before: u64,
    /// Bytes of the array afterwards.
    pub bytes_after: u64,
    /// By how many bytes the data moves towards the start of each member.
    pub moved_bytes: u64,
    earlier: Sectors,
    added: u16,
}

/// How a reshape went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reshaped {
    /// Bytes of the array in its new shape.
    pub array_bytes: u64,
    /// Slots of the new shape.
    pub slots: u16,
}

/// The reshape of an array that is not in use.
pub struct Reshaping<M, C> {
    parties: Vec<Party<M>>,
    pool: Pool,
    clock: C,
}

impl<M: Member + Clone, C: Clock> Reshaping<M, C> {
    /// The members of an array, in any order, with its spares.
    ///
    /// # Errors
    /// When one of them has no superblock.
    pub async fn of(members: Vec<Candidate<M>>, pool: Pool, clock: C) -> Result<Self, Refusal> {
        let mut offered = find_all(members, &pool).await?;
        adopt_change(&mut offered);
        let parties = offered.into_iter().map(|offered| Party {
            name: offered.name,
            member: offered.member,
            superblock: offered.found.superblock,
        });
        Ok(Self { parties: parties.collect(), pool, clock })
    }

    /// Plans a reshape to so many slots, for an array that may get `new` members as spares before. Nothing is written.
    ///
    /// # Errors
    /// Why md or this engine could not carry it out: the level, the metadata, the state of the array, its spares, the length
    /// of the new members, the room before the data.
    pub async fn plan(&self, slots: u16, new: &[Candidate<M>], options: &AssembleOptions) -> Result<Plan, Refusal> {
        let options = AssembleOptions { read_only: true, replay: false, ..options.clone() };
        let offer = Offer::of(self.candidates());
        let array = Control::assemble_offer(offer, options, self.pool.clone(), self.clock.clone()).await?;
        let first = self.freshest()?;
        let now = first.superblock.raid_disks;
        let refuse = |defect| Refusal::defect(&first.name, defect);
        first.superblock.check_slots_grow().map_err(refuse)?;
        if slots <= now {
            let reason = format!("{slots}, but the array has {now} slots already");
            return Err(Refusal::new(reason).of(&first.name).field("superblock.raid_disks"));
        }
        check_at_rest(&array)?;
        for Party { name, member, superblock } in &self.parties {
            if !read_bad_blocks(name, member, superblock, &self.pool).await?.is_empty() {
                return Err(bad_blocks(name).advice("replace this member first"));
            }
            let log = of_member(member, name, superblock, &self.pool).await?;
            if log.is_some_and(|(header, _)| header.vouches_for(superblock)) {
                return Err(Refusal::new("has a stripe log, whose place depends on the array's shape")
                    .of(name)
                    .advice("turn it off first: `mdspace set consistency-policy=resync`"));
            }
        }
        if let Some(left_out) = array.origin.left_out.first() {
            let refusal = Refusal::new(left_out.reason.clone()).of(&left_out.name);
            return Err(refusal.advice("leave it out: a reshape writes all members that are given"));
        }
        let added = slots - now;
        let spares = self.spares().count() + new.len();
        if spares < usize::from(added) {
            let needed = if added == 1 { "one more spare".to_owned() } else { format!("{added} more spares") };
            let reason = format!("a reshape to {slots} slots needs {needed}, and the array has {spares}");
            return Err(Refusal::new(reason).advice("give new members by --add, and its spares among the members"));
        }
        for Candidate { name, member } in new {
            array.check_could_join(name, member)?;
        }
        let chunk = first.superblock.chunk;
        let least = self.parties.iter().min_by_key(|party| party.superblock.room_to_move());
        let least = least.expect("an array has members");
        let room = least.superblock.room_to_move();
        // Half of the room, so that the next reshape has some as well; but a batch must fit.
        let needed = Sectors(chunk.0 * 2);
        let earlier = Sectors((room.0 / 2).min(MOVED_MAX.0).max(needed.0) / chunk.0 * chunk.0);
        if earlier > room {
            let reason =
                format!("{} bytes of room before the data, but moving it needs {}", room.bytes(), needed.bytes());
            return Err(Refusal::new(reason)
                .of(&least.name)
                .field(DATA_OFFSET)
                .advice("mdadm --grow does it with the driver, by a backup on the new members"));
        }
        let mut new = first.superblock.clone();
        new.raid_disks = slots;
        let new = Geometry::new(&new.shape(&[])).map_err(refuse)?;
        if let Some(reason) = personality(&new).unsupported() {
            return Err(Refusal::new(reason).of(&first.name).field("superblock.raid_disks"));
        }
        Ok(Plan {
            bytes_before: array.core.geometry().array_bytes(),
            bytes_after: new.array_bytes(),
            moved_bytes: earlier.bytes(),
            earlier,
            added,
        })
    }

    /// Begins the planned reshape: the superblocks say so, and no data has moved. Power may go at any write: md and this
    /// engine then assemble the array in its old shape, or go on with the reshape.
    ///
    /// # Errors
    /// When a member fails a write.
    pub async fn begin(&mut self, plan: &Plan) -> Result<(), Refusal> {
        self.flush().await?;
        let mut spares: Vec<DeviceNumber> = self.spares().map(|party| party.superblock.device_number).collect();
        spares.sort_unstable_by_key(|number| number.0);
        spares.truncate(plan.added.into());
        let announced = |own: &Superblock| {
            let mut announced = own.with_reshape_announced(plan.earlier)?;
            announced.bitmap = None; // the data may move over its place
            Ok(announced)
        };
        if !mutant!("reshape-not-announced") {
            self.publish(&announced).await?;
        }
        // The new members first: the others' superblocks call them active.
        let is_new = |party: &Party<M>| spares.contains(&party.superblock.device_number);
        self.parties.sort_by_key(|party| !is_new(party));
        self.publish(&|own| Ok(announced(own)?.with_reshape_begun(&spares))).await
    }

    /// Carries out the reshape that the superblocks name, from its position to its end. `progress` is called with the bytes
    /// of the new array that have their place, and with all of them.
    ///
    /// # Errors
    /// A refusal before anything is written, where md's reshape has to go on with a backup, is of a kind that this engine
    /// does not carry out, or lacks a member and is not `degraded`. Later when a member fails: the position says how far it
    /// came, and it can go on.
    pub async fn carry_out(
        &mut self,
        options: &AssembleOptions,
        degraded: bool,
        progress: &dyn Fn(u64, u64),
    ) -> Result<Reshaped, Refusal> {
        let options = AssembleOptions { read_only: true, replay: false, ..options.clone() };
        let mut offered = find_all(self.candidates(), &self.pool).await?;
        adopt_change(&mut offered);
        let freshest = elect(&offered)?.freshest;
        if offered[freshest].found.superblock.reshape.is_none() {
            return Err(Refusal::new("no reshape is under way").of(&offered[freshest].name));
        }
        self.check_certain(&offered[freshest].found.superblock)?;
        let sides = Sides::of(&offered, &offered[freshest], &options, &self.pool, &self.clock).await?;
        for (party, offered) in self.parties.iter_mut().zip(&offered) {
            party.superblock = offered.found.superblock.clone();
        }
        let seated: Vec<_> = [&sides.old, &sides.new].iter().flat_map(|side| side.core.members()).collect();
        self.parties.retain(|party| seated.iter().any(|device| device.name == party.name));
        let course = Course::of(&sides, &self.parties)?;
        if !degraded {
            check_complete(&sides)?;
        }
        self.shut_out_absent(&sides).await?;
        let mut position = course.position;
        while position < course.end {
            progress(position, course.end);
            let end = course.batch_end(position).ok_or_else(|| course.failed(course.no_room(position)))?;
            self.move_data(&sides, &course, position..end).await?;
            self.publish(&|own| Ok(own.with_reshape_at(Sectors::from_bytes_down(end)))).await?;
            position = end;
        }
        progress(course.end, course.end);
        if !mutant!("reshape-ended-at-once") {
            self.publish(&|own| Ok(own.with_data_moved())).await?;
        }
        self.publish(&|own| Ok(own.with_data_moved().with_reshape_ended())).await?;
        Ok(Reshaped { array_bytes: course.end, slots: course.new.slots() as u16 })
    }
}

impl<M: Member + Clone, C: Clock> Reshaping<M, C> {
    fn candidates(&self) -> Vec<Candidate<M>> {
        let candidate = |party: &Party<M>| Candidate { name: party.name.clone(), member: party.member.clone() };
        self.parties.iter().map(candidate).collect()
    }

    fn freshest(&self) -> Result<&Party<M>, Refusal> {
        let freshest = self.parties.iter().max_by_key(|party| party.superblock.events);
        freshest.ok_or_else(|| Refusal::new("no members were given"))
    }

    fn spares(&self) -> impl Iterator<Item = &Party<M>> {
        self.parties.iter().filter(|party| party.superblock.own_role() == DeviceRole::Spare)
    }

    /// Refuses an array of which parity may be wrong where a missing member's data is to be moved.
    fn check_certain(&self, freshest: &Superblock) -> Result<(), Refusal> {
        match freshest.resync == Resync::Clean || self.absent(freshest).is_empty() {
            true => Ok(()),
            false => Err(Refusal::new(
                "the array is dirty and lacks a member: where a write was under way, that member's data would be moved wrong \
                 (the write hole)",
            )
            .field("superblock.resync_offset")
            .advice("give every member; or copy what there is, by `mdspace read --force`")),
        }
    }

    /// The device numbers of members that have a slot and are not here.
    fn absent(&self, freshest: &Superblock) -> Vec<usize> {
        let is_here =
            |number: usize| self.parties.iter().any(|party| usize::from(party.superblock.device_number.0) == number);
        let roles = freshest.roles.iter().enumerate();
        let absent = roles.filter(|(number, role)| matches!(role, DeviceRole::Active(_)) && !is_here(*number));
        absent.map(|(number, _)| number).collect()
    }

    /// Puts members that are absent so far behind that no assembly takes them: they lack what moves from now on. One of them
    /// may have been told of the last round before the others.
    async fn shut_out_absent(&mut self, sides: &Sides<M, C>) -> Result<(), Refusal> {
        self.flush().await?;
        let absent = self.absent(&sides.freshest);
        let rounds = if absent.is_empty() { 1 } else { ROUNDS_TO_EJECT };
        for _ in 0..mutant!("reshape-beside-absent" => 0, else rounds) {
            let told = |own: &Superblock| {
                let mut told = own.clone();
                told.bitmap = None; // its events would be behind, and the data may move over its place
                for number in &absent {
                    told.roles.get_mut(*number).into_iter().for_each(|role| *role = DeviceRole::Faulty);
                }
                told
            };
            self.publish(&|own| Ok(told(own))).await?;
        }
        Ok(())
    }

    /// Writes every member's superblock as `change` says, one event later, to stable storage. Boxed, as it has five callers,
    /// each of which would hold all of it.
    fn publish<'a>(&'a mut self, change: &'a Change<'a>) -> LocalBoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            self.catch_up().await?;
            let events = self.freshest()?.superblock.events + 1;
            let now = self.clock.wall();
            let updated = Timestamp { seconds: now.as_secs(), micros: now.subsec_micros().max(1) };
            let changed = self.parties.iter().map(|Party { name, superblock, .. }| {
                let mut changed = change(superblock).map_err(|defect| Refusal::defect(name, defect))?;
                (changed.events, changed.updated) = (events, updated);
                Ok(changed)
            });
            let changed: Vec<Superblock> = changed.collect::<Result<_, Refusal>>()?;
            for (party, superblock) in self.parties.iter_mut().zip(changed) {
                party.write(superblock, &self.pool).await?;
            }
            Ok(())
        })
    }

    /// Has members that an interrupted round left an event behind say what the others do, so that none of them is two
    /// behind amid the next round.
    async fn catch_up(&mut self) -> Result<(), Refusal> {
        let freshest = self.freshest()?.superblock.clone();
        for party in self.parties.iter_mut().filter(|party| party.superblock.events < freshest.events) {
            let mut superblock = party.superblock.clone();
            (superblock.events, superblock.updated) = (freshest.events, freshest.updated);
            (superblock.resync, superblock.roles) = (freshest.resync, freshest.roles.clone());
            party.write(superblock, &self.pool).await?;
        }
        Ok(())
    }

    /// What was read of the members is on stable storage afterwards: an earlier process may have ended before its flush.
    async fn flush(&self) -> Result<(), Refusal> {
        for Party { name, member, .. } in &self.parties {
            member.flush().await.map_err(|error| Refusal::member_error(name, &error))?;
        }
        Ok(())
    }

    /// Writes these bytes of the array in the new shape, to stable storage.
    async fn move_data(&self, sides: &Sides<M, C>, course: &Course, bytes: Range<u64>) -> Result<(), Refusal> {
        let stripe = course.new.stripe_bytes();
        let piece = (PIECE_BYTES / stripe).max(1) * stripe;
        let starts: Vec<u64> = bytes.clone().step_by(piece as usize).collect();
        for starts in starts.chunks(PIECES) {
            let moves =
                starts.iter().map(|start| self.move_piece(sides, course, *start..(start + piece).min(bytes.end)));
            join_all(moves).await.into_iter().collect::<Result<(), Refusal>>()?;
        }
        for device in sides.new.core.devices().iter().filter(|_| !mutant!("reshape-recorded-before-flush")) {
            let flushed = device.flush(Why::Data).await;
            flushed.map_err(|error| course.failed(Refusal::member_error(&device.name, &error)))?;
        }
        Ok(())
    }

    async fn move_piece(&self, sides: &Sides<M, C>, course: &Course, bytes: Range<u64>) -> Result<(), Refusal> {
        let patches =
            course.read(sides, &self.pool, bytes.clone()).await.map_err(|error| course.failed(error.refusal()))?;
        let stripe = course.new.stripe_bytes();
        let stripes = bytes.start / stripe..bytes.end / stripe;
        match sides.new.data.put_stripes(&course.new, stripes, &patches).await.into_iter().next() {
            None => Ok(()),
            Some((device, error)) => Err(course.failed(Refusal::member_error(&device.name, &error))),
        }
    }
}

/// Where a reshape is, and how far it may go at a time.
struct Course {
    old: Parity,
    new: Parity,
    /// Bytes of the array in its old shape.
    old_bytes: u64,
    position: u64,
    end: u64,
    /// By how many bytes the data begins earlier in the new shape, on the member where that is least.
    earlier: u64,
}

impl Course {
    /// The course of a reshape that this engine carries out.
    fn of<M: Member + Clone, C: Clock>(sides: &Sides<M, C>, parties: &[Party<M>]) -> Result<Self, Refusal> {
        let refuse = |field: &str, reason: &str, advice: &str| {
            Err(Refusal::new(reason).of(&sides.name).field(field).advice(advice))
        };
        let with_md = "let mdadm and the driver go on with it: mdadm --assemble";
        sides.check_writable()?;
        let (Geometry::Parity(old), Geometry::Parity(new)) = (sides.old.core.geometry(), sides.new.core.geometry())
        else {
            return refuse("superblock.level", "only reshapes of levels 4, 5 and 6 are carried out here", with_md);
        };
        if sides.reshape.delta_disks <= 0 || sides.reshape.backwards {
            let reason = "only reshapes to more members are carried out here";
            return refuse("superblock.delta_disks", reason, with_md);
        }
        if !sides.progress.critical.is_empty() {
            let reason =
                "the reshape writes over data in place, and mdadm's backup has what it may have left half written";
            return refuse("superblock.reshape_position", reason, with_md);
        }
        for device in sides.old.core.devices().iter().chain(&sides.new.core.devices()) {
            if !device.bad.is_empty() {
                return Err(bad_blocks(&device.name).advice(with_md));
            }
            if device.checksums.get().is_some() || device.successor().is_some() {
                let reason = "keeps checksums, or is being replaced, which md does not do beside a reshape";
                return Err(Refusal::new(reason).of(&device.name).advice(with_md));
            }
        }
        if let Some(party) = parties.iter().find(|party| party.superblock.new_offset.is_some_and(|moved| moved > 0)) {
            let reason = "a reshape to more members does not move the data towards the member's end";
            return Err(Refusal::new(reason).of(&party.name).field("superblock.new_offset").advice(with_md));
        }
        let earlier = parties.iter().filter(|party| matches!(party.superblock.own_role(), DeviceRole::Active(_)));
        let earlier = earlier.map(|party| i64::from(party.superblock.new_offset.unwrap_or(0)).unsigned_abs()).min();
        let (old_bytes, end) = (sides.old.core.geometry().array_bytes(), sides.new.core.geometry().array_bytes());
        let position = sides.reshape.position.checked_bytes().unwrap_or(u64::MAX).min(end);
        let course = Self {
            old_bytes,
            end,
            position,
            earlier: Sectors(earlier.unwrap_or(0)).bytes(),
            old: old.clone(),
            new: new.clone(),
        };
        if position < end && !position.is_multiple_of(course.row()) {
            let reason = format!("byte {position}, which is no boundary of stripes");
            return refuse("superblock.reshape_position", &reason, with_md);
        }
        match position < end && course.batch_end(position).is_none() {
            true => Err(course.no_room(position).of(&sides.name)),
            false => Ok(course),
        }
    }

    /// The larger chunk of the two shapes.
    fn chunk(&self) -> u64 {
        self.new.chunk_bytes().max(self.old.chunk_bytes())
    }

    /// The unit of positions, as md demands it.
    fn row(&self) -> u64 {
        self.chunk() * u64::from(self.new.data_chunks())
    }

    /// How far a batch from `position` on may go. `None` if not even one row can be written without writing over what is
    /// still to be read.
    fn batch_end(&self, position: u64) -> Option<u64> {
        let row = self.row();
        let end = (position + (BATCH_BYTES / row).max(1) * row).min(self.end);
        if position >= self.old_bytes || mutant!("reshape-over-what-is-needed") {
            return Some(end);
        }
        // The first row of a member that is still needed in the old shape, and the rows before which the new one may write.
        // A chunk is left between them: md wants to see at each position that nothing was written over.
        let needed = position / self.old.stripe_bytes() * self.old.chunk_bytes();
        let before = (needed + self.earlier).checked_sub(self.chunk())?;
        let safe = before / self.chunk() * row;
        (safe > position).then(|| end.min(safe))
    }

    /// The array's bytes, and zeros behind the old array's end.
    async fn read<M: Member, C: Clock>(
        &self,
        sides: &Sides<M, C>,
        pool: &Pool,
        bytes: Range<u64>,
    ) -> Result<Vec<WriteExtent>, ArrayError> {
        let there = bytes.start.min(self.old_bytes)..bytes.end.min(self.old_bytes);
        let mut patches = Vec::new();
        if !there.is_empty() {
            let read = sides.old.data.read(there.start, pool.take((there.end - there.start) as usize)).await?;
            patches.push(WriteExtent { at: there.start, block: read.freeze() });
        }
        let zeros = there.end.max(bytes.start)..bytes.end;
        if !zeros.is_empty() {
            let mut block = pool.take((zeros.end - zeros.start) as usize);
            block.fill(0);
            patches.push(WriteExtent { at: zeros.start, block: block.freeze() });
        }
        Ok(patches)
    }

    fn no_room(&self, position: u64) -> Refusal {
        let reason = format!(
            "at byte {position} of the array the reshape has no room: the next stripe of the new shape lies where the old \
             one is still needed"
        );
        Refusal::new(reason)
            .field("superblock.reshape_position")
            .advice("let mdadm and the driver go on with it: they keep a backup of what is written over")
    }

    /// A failure after data has moved.
    fn failed(&self, refusal: Refusal) -> Refusal {
        refusal.after("the reshape has come as far as its superblocks say, and can go on from there").or_advice(GO_ON)
    }
}

fn bad_blocks(name: &str) -> Refusal {
    Refusal::new("names bad blocks, which a reshape would move over").of(name).field("bad-block log")
}

/// Refuses to go on without a member.
fn check_complete<M: Member + Clone, C: Clock>(sides: &Sides<M, C>) -> Result<(), Refusal> {
    let left_out = [&sides.old, &sides.new].into_iter().find_map(|side| side.origin.left_out.first());
    let refusal = match left_out {
        Some(left_out) => Refusal::new(left_out.reason.clone()).of(&left_out.name),
        None if sides.old.core.is_whole() && sides.new.core.is_whole() => return Ok(()),
        None => Refusal::new("a member is missing, or not current"),
    };
    let advice = "give every member; --force goes on with those that are here, and the others do not count any more";
    Err(refusal.advice(advice))
}

/// Checks that nothing is to be done to the array first.
fn check_at_rest<M: Member, C: Clock>(array: &Rc<Control<M, C>>) -> Result<(), Refusal> {
    if !array.core.health.agreed.get() {
        return Err(Refusal::new("the array was not stopped cleanly, or is not in agreement")
            .field("superblock.resync_offset")
            .advice("`mdspace serve` resyncs it first"));
    }
    let devices = array.core.devices();
    if !array.core.is_whole() || !array.core.successors().is_empty() {
        return Err(Refusal::new("the array is degraded, or a member is being replaced")
            .advice("give the missing member, or `mdspace add` one, first"));
    }
    if let Some(device) = devices.iter().find(|device| device.checksums.get().is_some()) {
        return Err(Refusal::new("keeps checksums, whose place depends on the array's shape")
            .of(&device.name)
            .advice("turn them off first: `mdspace set integrity=off`"));
    }
    if array.core.health.unbuilt.is_any() {
        return Err(Refusal::new("the array's lockless bitmap names parts where parity was not built yet")
            .field("bitmap.version")
            .advice("remove it first: `mdspace set bitmap=none`"));
    }
    Ok(())
}
