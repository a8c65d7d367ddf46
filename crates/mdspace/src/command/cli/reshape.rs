//! `grow --raid-devices` of an array with parity, and `grow --continue`: reshapes to more members, of an array that is not
//! served.
//!
//! What can be refused is refused before anything is written. Stopped at any moment, the reshape goes on by `--continue`, or
//! with the driver. It never serves the array meanwhile.

use crate::command::cli::arguments::GrowArguments;
use crate::command::opening::arguments::MemberArguments;
use crate::command::opening::assembly::Found;
use crate::command::text::failure::Failure;
use crate::command::text::output::{print, print_json, tell};
use crate::command::text::progress::Progress;
use crate::command::text::size::Size;
use crate::machine::{Array, Machine, Purpose, random};
use crate::names::shell_word;
use engine::inspect::{find_superblock, what_it_holds};
use engine::reshape::{GO_ON, Plan, Reshaped, Reshaping};
use engine::status::Status;
use engine::{AssembleOptions, BitmapPolicy, Candidate, Refusal};
use format::superblock::DeviceRole;
use io::{AnyMember, RealClock};
use serde_json::json;
use std::cell::RefCell;

const ADDED: &str = "new members were added as spares";
const AS_MEMBERS: &str = "they are named among the array's members from now on";

/// The members of the array to reshape, and what becomes of it.
pub(crate) struct Work<'a> {
    machine: &'a Machine,
    arguments: &'a GrowArguments,
    /// The array's members and spares, open from the start to the end.
    own: Vec<Candidate<AnyMember>>,
}

impl<'a> Work<'a> {
    /// The work that these arguments name.
    pub(crate) async fn find(machine: &'a Machine, arguments: &'a GrowArguments) -> Result<Self, Failure> {
        let members = MemberArguments { members: arguments.members.clone(), uuid: arguments.uuid, name: None };
        let Found { own, unknown } = machine.find(&members).await?;
        if let Some(first) = unknown.first() {
            return Err(Failure::refused(first.to_string()).advise("a reshape needs every member: make it readable"));
        }
        Ok(Self { machine, arguments, own: machine.open_all(&own, Purpose::Write)? })
    }

    /// Adds `--add`'s members as spares, and begins and ends the reshape to so many slots.
    pub(crate) async fn grow(mut self, slots: u16) -> Result<(), Failure> {
        let new = self.open_new().await?;
        let plan = self.reshaping().await?.plan(slots, &new, &self.options()).await?;
        if self.arguments.dry_run {
            return self.tell_plan(&plan, slots);
        }
        let array = self.assemble().await?;
        let bitmap = array.status().bitmap;
        if bitmap.as_ref().is_some_and(|bitmap| bitmap.unwritten_bytes.is_some()) {
            array.stop().await?;
            return Err(Refusal::new("mdspace reshapes no array with a lockless bitmap")
                .field("bitmap.version")
                .advice("remove it first: `mdspace set bitmap=none`")
                .into());
        }
        array.end_growth().await?; // members that an interrupted `grow` left behind
        let has_added = !new.is_empty();
        self.add(&array, new).await?;
        array.stop().await?;
        let mut reshaping = self.begin(slots).await.map_err(|refusal| match has_added {
            true => refusal.after(ADDED).or_advice(AS_MEMBERS),
            false => refusal,
        })?;
        if bitmap.is_some() {
            tell!("note: the array has no bitmap until the reshape has ended");
        }
        let carried = self.carry_out(&mut reshaping, false).await;
        let reshaped = carried.map_err(|refusal| refusal.after("the reshape has begun").or_advice(GO_ON))?;
        self.end(&reshaped, Some(&plan), bitmap.map(|bitmap| bitmap.chunk_bytes)).await
    }

    /// Ends the reshape that is under way.
    pub(crate) async fn go_on(self) -> Result<(), Failure> {
        let mut reshaping = self.reshaping().await?;
        let reshaped = self.carry_out(&mut reshaping, self.arguments.force).await?;
        self.end(&reshaped, None, None).await
    }

    /// Opens the new members. Spares of the array that are among them count as its members.
    async fn open_new(&mut self) -> Result<Vec<Candidate<AnyMember>>, Failure> {
        let array = match self.own.first() {
            Some(own) => Some(find_superblock(&own.name, &own.member, &self.machine.pool).await?.superblock.set_uuid),
            None => None,
        };
        let mut new = Vec::new();
        for path in &self.arguments.add {
            let candidate = self.machine.open(path.as_ref(), Purpose::Write)?;
            let Candidate { name, member } = &candidate;
            let found = find_superblock(name, member, &self.machine.pool).await.ok().map(|found| found.superblock);
            if found.is_some_and(|found| Some(found.set_uuid) == array && found.own_role() == DeviceRole::Spare) {
                self.own.push(candidate);
                continue;
            }
            let holds = what_it_holds(name, member, &self.machine.pool).await;
            if let Some(holds) = holds.filter(|_| !self.arguments.force) {
                return Err(Refusal::new(format!("holds {holds}"))
                    .of(name)
                    .advice("give another member, or look at what is there first; --force overwrites it")
                    .into());
            }
            new.push(candidate);
        }
        Ok(new)
    }

    async fn begin(&self, slots: u16) -> Result<Reshaping<AnyMember, RealClock>, Refusal> {
        let mut reshaping = self.reshaping().await?;
        let plan = reshaping.plan(slots, &[], &self.options()).await?;
        reshaping.begin(&plan).await?;
        Ok(reshaping)
    }

    fn options(&self) -> AssembleOptions {
        AssembleOptions { kernel: self.machine.kernel, ..AssembleOptions::default() }
    }

    async fn reshaping(&self) -> Result<Reshaping<AnyMember, RealClock>, Refusal> {
        Reshaping::of(self.members(), self.machine.pool.clone(), self.machine.clock.clone()).await
    }

    /// Assembles the array, which also writes what an earlier server had answered.
    async fn assemble(&self) -> Result<Array, Refusal> {
        Box::pin(self.machine.assemble_candidates(self.members(), false, Purpose::Write)).await
    }

    fn members(&self) -> Vec<Candidate<AnyMember>> {
        let clone = |own: &Candidate<AnyMember>| Candidate { name: own.name.clone(), member: own.member.clone() };
        self.own.iter().map(clone).collect()
    }

    /// Makes spares of the new members.
    async fn add(&mut self, array: &Array, new: Vec<Candidate<AnyMember>>) -> Result<(), Failure> {
        for (count, Candidate { name, member }) in new.into_iter().enumerate() {
            let candidate = Candidate { name: name.clone(), member: member.clone() };
            if let Err(refusal) = array.add(candidate, random()?, self.arguments.force).await {
                let refusal = if count == 0 { refusal } else { refusal.after(ADDED).or_advice(AS_MEMBERS) };
                array.stop().await?;
                return Err(refusal.into());
            }
            self.own.push(Candidate { name, member });
        }
        Ok(())
    }

    async fn carry_out(
        &self,
        reshaping: &mut Reshaping<AnyMember, RealClock>,
        degraded: bool,
    ) -> Result<Reshaped, Refusal> {
        let shown = RefCell::new(None);
        let progress = |done: u64, total: u64| {
            let mut shown = shown.borrow_mut();
            let (bar, before) = shown.get_or_insert_with(|| (Progress::resume("reshape", total, done), done));
            bar.advance(done - *before);
            *before = done;
        };
        reshaping.carry_out(&self.options(), degraded, &progress).await
    }

    /// Gives the array a bitmap again, with chunks of so many bytes if there is room, and says what it is now.
    async fn end(&self, reshaped: &Reshaped, plan: Option<&Plan>, bitmap_chunk: Option<u64>) -> Result<(), Failure> {
        let ended = |refusal: Refusal| refusal.after("the reshape has ended");
        let array = self.assemble().await.map_err(ended)?;
        if bitmap_chunk.is_some() && array.add_bitmap(bitmap_chunk, BitmapPolicy::default()).await.is_err() {
            array.add_bitmap(None, BitmapPolicy::default()).await.map_err(ended)?;
        }
        array.stop().await?;
        let status = array.status();
        match self.arguments.change.told.json {
            true => print_json(&status),
            false => print(&summary(reshaped, plan, &status)),
        }
    }

    fn tell_plan(&self, plan: &Plan, slots: u16) -> Result<(), Failure> {
        if self.arguments.change.told.json {
            return print_json(&json!({
                "raid_disks": slots,
                "array_bytes": plan.bytes_after,
                "array_bytes_before": plan.bytes_before,
                "moved_bytes": plan.moved_bytes,
            }));
        }
        print(&self.planned(plan, slots))
    }

    fn planned(&self, plan: &Plan, slots: u16) -> String {
        let (before, after, moved) = (Size(plan.bytes_before), Size(plan.bytes_after), Size(plan.moved_bytes));
        format!(
            "would reshape the array to {slots} slots: {after}, now {before}\n\
             its data would begin {moved} earlier on each member, and every byte of it be written anew\n\
             nothing was changed\n"
        )
    }
}

fn summary(reshaped: &Reshaped, plan: Option<&Plan>, status: &Status) -> String {
    let before = plan.map(|plan| format!(", before: {}", Size(plan.bytes_before))).unwrap_or_default();
    let missing = if status.in_sync < status.raid_disks { ", and `mdspace add` for an empty slot" } else { "" };
    let names: Vec<_> = status.members.iter().map(|member| shell_word(&member.name)).collect();
    format!(
        "{}, {} slots{before}\nnext: mdspace serve {}{missing}; then make the file system larger\n",
        Size(reshaped.array_bytes),
        reshaped.slots,
        names.join(" ")
    )
}

/// Why options of a reshape are given to another change.
pub(crate) fn check_alone(arguments: &GrowArguments) -> Result<(), Refusal> {
    let given = [("--add", !arguments.add.is_empty()), ("--dry-run", arguments.dry_run), ("--force", arguments.force)];
    match given.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((option, _)) => Err(Refusal::new(format!("{option}: only with --raid-devices of RAID-4, 5 or 6"))
            .advice("name the members of an array that is not served")),
    }
}
