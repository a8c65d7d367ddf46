//! Control commands, carried out on a served array. They run concurrently: while one waits for a file, others continue.
//!
//! Commands that change which files belong to the array, and slow ones, run one at a time. A second one waits up to
//! [`TURN_TIMEOUT`] for the first, and is then refused with the name of the running command. Queries, `fail`, `remove`,
//! `scrub` and quick settings wait for the array alone. Work that may wait for a file system has a thread of its own
//! ([`crate::blocking`]).

use crate::command::opening::members::ArrayUuid;
use crate::command::server::grow;
use crate::command::server::replies::{Answer, json, refused};
use crate::command::server::scrub;
use crate::command::server::settings::{is_quick, prepare};
use crate::command::text::failure::Failure;
use crate::machine::{Array, Machine, Purpose, random};
use crate::names::path_of;
use control::{AddRequest, ApiError, Command, MemberRequest, ReplaceRequest};
use engine::{Candidate, Clock, Moment, Refusal};
use export::measure::Gauges;
use format::superblock::DeviceFlags;
use futures_util::future::{Either, select};
use futures_util::lock::{Mutex, MutexGuard};
use io::{AnyMember, OpenError};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

/// How long a removed member's file may stay open, until its last transfers have ended, and the interval between two
/// attempts to open it again.
const RECENTLY_REMOVED: Duration = Duration::from_secs(10);
const REOPEN_INTERVAL: Duration = Duration::from_millis(10);

/// How long a change waits for the change before it.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);

/// Carries commands out.
pub(crate) struct Commands<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) array: Array,
    /// Meters of requests and members.
    pub(crate) gauges: Gauges,
    /// The running change holds this lock; `under_way` is its description.
    turn: Mutex<()>,
    under_way: RefCell<String>,
    /// Until then a file that is still open may be that of a recently removed member.
    recently_removed_until: Cell<Moment>,
}

impl<'a> Commands<'a> {
    pub(crate) fn new(machine: &'a Machine, array: Array, gauges: Gauges) -> Self {
        let (turn, under_way, recently_removed_until) = (Mutex::default(), RefCell::default(), Cell::default());
        Self { machine, array, gauges, turn, under_way, recently_removed_until }
    }

    /// Carries `command` out.
    pub(crate) async fn carry_out(&self, command: Command) -> Result<Answer, ApiError> {
        match command {
            Command::Status | Command::Stop => {}
            Command::Measures => return Ok(Answer::Body(json(&self.gauges.measures()))),
            Command::Metrics => return Ok(Answer::Metrics(Box::new(self.gauges.measures()))),
            Command::Alive => return Ok(Answer::Body("ok\n".into())),
            Command::Ready => return self.ready(),
            Command::Trace(request) => return Ok(Answer::Body(json(&self.gauges.traces(request.from)))),
            Command::ScrubReport => return scrub::served_report(&self.array).map(Answer::Body),
            Command::Scrub(request) => return scrub::command(&self.array, &request).await.map(Answer::Body),
            Command::FailMember(request) => {
                let member = self.named(&request.member);
                self.change(&request, self.array.fail(&member)).await?;
            }
            Command::RemoveMember(request) => self.remove(&request).await?,
            Command::Set(wanted) => self.set(&wanted).await?,
            Command::AddMember(request) => self.add(&request).await?,
            Command::ReAddMember(request) => self.re_add(&request).await?,
            Command::ReplaceMember(request) => self.replace(&request).await?,
            Command::Grow(request) => {
                let _turn = self.turn("grow".to_owned()).await?;
                grow::command(&self.array, request).await?;
            }
        }
        Ok(Answer::Status)
    }

    /// Whether requests succeed; an array that is read-only serves as it was asked to.
    fn ready(&self) -> Result<Answer, ApiError> {
        match self.array.status().broken {
            None => Ok(Answer::Body("ready\n".into())),
            Some(reason) => Err(ApiError::new(503, format!("the array takes no writes: {reason}"))),
        }
    }

    /// Waits for the running change to end, up to [`TURN_TIMEOUT`].
    async fn turn(&self, change: String) -> Result<MutexGuard<'_, ()>, ApiError> {
        let clock = &self.machine.clock;
        let end = clock.sleep_until(clock.now() + TURN_TIMEOUT);
        match select(pin!(self.turn.lock()), pin!(end)).await {
            Either::Left((turn, _)) => {
                *self.under_way.borrow_mut() = change;
                Ok(turn)
            }
            Either::Right(_) => Err(ApiError::new(409, format!("busy: {} is under way", self.under_way.borrow()))
                .advice(
                    "repeat the command when it has ended; `mdspace status` and `mdspace fail` do not wait for it",
                )),
        }
    }

    /// The member's own name, if `path` is another path of the same file; otherwise `path`.
    fn named(&self, path: &str) -> String {
        let absolute = |name: &str| std::path::absolute(path_of(name)).ok();
        let is_it = |name: &String| name == path || (path.contains('/') && absolute(name) == absolute(path));
        let name = self.array.status().members.into_iter().map(|member| member.name).find(is_it);
        name.unwrap_or_else(|| path.to_owned())
    }

    async fn change(
        &self,
        request: &MemberRequest,
        change: impl Future<Output = Result<(), Refusal>>,
    ) -> Result<(), ApiError> {
        let name = self.named(&request.member);
        let is_known = self
            .array
            .status()
            .members
            .iter()
            .any(|member| member.name == name || path_of(&member.name).file_name() == Some(name.as_ref()));
        let status = if is_known { 409 } else { 404 };
        change.await.map_err(|refusal| refused(status, refusal))
    }

    async fn remove(&self, request: &MemberRequest) -> Result<(), ApiError> {
        self.change(request, self.array.remove(&self.named(&request.member))).await?;
        self.expect_release();
        Ok(())
    }

    /// A file that has just been removed is locked until its last transfers have ended.
    fn expect_release(&self) {
        self.recently_removed_until.set(self.machine.clock.now() + RECENTLY_REMOVED);
    }

    /// Opens the file of a new member. A file that was removed a moment ago may still be locked: then this waits for
    /// it.
    async fn open(&self, name: &str) -> Result<Candidate<AnyMember>, ApiError> {
        self.check_absent(name)?;
        let clock = &self.machine.clock;
        let is_held = |error: &OpenError| matches!(error, OpenError::Locked { .. } | OpenError::Busy { .. });
        loop {
            let opened =
                self.machine.open_in_background(&path_of(name), Purpose::Write, self.array.member_timeout()).await;
            match opened.map_err(not_opened)? {
                Err(error) if is_held(&error) && clock.now() < self.recently_removed_until.get() => {
                    clock.sleep_until(clock.now() + REOPEN_INTERVAL).await;
                }
                opened => return opened.map_err(|error| not_opened(crate::machine::not_opened(&error))),
            }
        }
    }

    /// Refuses a file that is a member already. The server holds its lock, so opening it would fail with a misleading
    /// reason.
    fn check_absent(&self, name: &str) -> Result<(), ApiError> {
        let name = self.named(name);
        let status = self.array.status();
        let Some(member) = status.members.iter().find(|member| member.name == name) else { return Ok(()) };
        let advice = match member.state {
            "faulty" => "it is faulty: remove it first".to_owned(),
            state => format!("it is {}: to add it anew, fail and remove it first", state.replace('_', " ")),
        };
        Err(refused(409, Refusal::new("a member of this array already").of(&name).advice(advice)))
    }

    async fn add(&self, request: &AddRequest) -> Result<(), ApiError> {
        let giver = request.spare_of.as_deref().map(str::parse::<ArrayUuid>).transpose();
        let giver = giver.map_err(|reason| ApiError::new(400, format!("spare_of: {reason}")))?;
        let _turn = self.turn(format!("add of {}", request.member)).await?;
        if giver.is_some() {
            self.expect_release(); // by the giver's server
        }
        let candidate = self.open(&request.member).await?;
        let device_uuid = random().map_err(not_opened)?;
        let name = candidate.name.clone();
        let added = match giver {
            Some(ArrayUuid(giver)) if !request.force => self.array.add_spare_of(giver, candidate, device_uuid).await,
            _ => self.array.add(candidate, device_uuid, request.force).await,
        };
        added.map_err(|refusal| refused(409, refusal))?;
        let flag = |is_given, flag: DeviceFlags| if is_given { flag.0 } else { 0 };
        let flags =
            flag(request.write_mostly, DeviceFlags::WRITE_MOSTLY) | flag(request.failfast, DeviceFlags::FAIL_FAST);
        let flagged = self.array.change_flags(&name, DeviceFlags(flags), DeviceFlags::default()).await;
        flagged.map_err(|refusal| refused(409, refusal.after("it was added, without its flags")))
    }

    async fn re_add(&self, request: &MemberRequest) -> Result<(), ApiError> {
        let _turn = self.turn(format!("re-add of {}", request.member)).await?;
        let candidate = self.open(&request.member).await?;
        self.array.re_add(candidate).await.map_err(|refusal| refused(409, refusal))
    }

    async fn replace(&self, request: &ReplaceRequest) -> Result<(), ApiError> {
        let with = request.with.as_ref().map(|with| format!(" with {with}")).unwrap_or_default();
        let _turn = self.turn(format!("replace of {}{with}", request.member)).await?;
        let old = self.named(&request.member);
        let Some(with) = &request.with else {
            return self.replace_with_any_spare(&old).await.map_err(|refusal| refused(409, refusal));
        };
        let new = self.named(with);
        let status = self.array.status();
        let spare = status.members.iter().find(|member| member.state == "spare" && member.name == new);
        let replaced = match spare {
            Some(spare) => self.array.replace_with_spare(&old, &spare.name).await,
            None => {
                let candidate = self.open(with).await?;
                let device_uuid = random().map_err(not_opened)?;
                self.array.replace(&old, candidate, device_uuid, request.force).await
            }
        };
        replaced.map_err(|refusal| refused(409, refusal))
    }

    /// Replaces a member by the last spare that fits its slot, as md does.
    async fn replace_with_any_spare(&self, old: &str) -> Result<(), Refusal> {
        let mut refusal = Refusal::new("the array has no spare").of(old).advice("name the new member, or add a spare");
        for spare in self.array.status().members.iter().rev().filter(|member| member.state == "spare") {
            match self.array.replace_with_spare(old, &spare.name).await {
                Err(refused) if refused.changed.is_none() => refusal = refused,
                replaced => return replaced,
            }
        }
        Err(refusal)
    }

    async fn set(&self, wanted: &BTreeMap<String, String>) -> Result<(), ApiError> {
        let changes = prepare(self.machine, &self.array, wanted).map_err(|refusal| refused(400, refusal))?;
        let keys = || wanted.keys().map(|key| &**key);
        let _turn = match keys().all(is_quick) {
            true => None,
            false => Some(self.turn(format!("set {}", keys().collect::<Vec<_>>().join(" "))).await?),
        };
        let mut done = Vec::new();
        for (change, key) in changes.into_iter().zip(keys()) {
            change.await.map_err(|refusal| match done.is_empty() {
                true => refused(409, refusal),
                false => refused(409, refusal.after(format!("settings changed before: {}", done.join(", ")))),
            })?;
            done.push(key);
        }
        Ok(())
    }
}

fn not_opened(refusal: Refusal) -> ApiError {
    let failure = Failure::from(refusal);
    let error = ApiError::new(409, failure.reason());
    match failure.advice() {
        Some(advice) => error.advice(advice),
        None => error,
    }
}
