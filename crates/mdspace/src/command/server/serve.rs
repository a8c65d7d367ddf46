//! `serve`: runs an array and its exports until a signal or the command `stop` ends it.
//!
//! The array belongs to one thread. The control socket has a thread of its own ([`crate::command::server::control`]); its
//! commands run concurrently on the array's thread ([`crate::command::server::commands`]). Some exports have threads, too
//! ([`crate::command::server::exports`]).
//!
//! The end always has the same order: no new requests, replies to the requests received, a flush, the clean mark, and
//! only then the message that the server has stopped.

use crate::command::opening::doubt::warn_of_doubtful_zeros;
use crate::command::opening::members::ArrayUuid;
use crate::command::opening::sockets::Sockets;
use crate::command::opening::target::Target;
use crate::command::server::activation::{self, Inherited};
use crate::command::server::arguments::{Clearing, ExportArguments, ServeArguments, WriteSize};
use crate::command::server::commands::Commands;
use crate::command::server::control::{Addresses, Backend, Control, ControlSource, Http, Reply, Request};
use crate::command::server::exports::{ExportStatus, Exports, NbdSource};
use crate::command::server::nbd_address::NbdAddress;
use crate::command::server::replies::{Answer, InnerServed, Io, Served, Stopped, json, status};
use crate::command::server::saved_scrub::SavedScrub;
use crate::command::server::smart::Smarts;
use crate::command::server::socket_access::warn_of_closed_directory;
use crate::command::server::volume::Exported;
use crate::command::server::write_back;
use crate::command::text::failure::Failure;
use crate::command::text::output::{print, tell};
use crate::command::text::wording::describe;
use crate::drive::Drives;
use crate::inside::check_writes as check_inner_writes;
use crate::machine::{Arena, Machine, Purpose, run_background};
use control::{ApiError, Command, ControlServer};
use engine::status::Status;
use engine::{ArrayError, BitmapClearing, BitmapPolicy, BitmapWrites};
use export::measure::{Gauges, Measured};
use futures_channel::mpsc;
use futures_util::future::{Either, LocalBoxFuture, join_all, join3, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use io::net::Listener;
use parity::Kernel;
use serde_json::Value;
use std::os::unix::net::UnixListener;
use std::pin::pin;
use std::rc::Rc;

/// Runs `mdspace serve`.
pub(crate) fn serve(arguments: &ServeArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let purpose = if arguments.read_only { Purpose::Read } else { Purpose::Write };
    let machine = Machine::start(kernel, Arena::Large)?;
    let machine = machine.with_maps(arguments.assemble.maps.read()?).over(arguments.assemble.overlay.directory())?;
    machine.write_back.set(arguments.cache.answers());
    machine.run(async {
        // Before any member is opened: what is refused here leaves the array alone.
        let inherited = Inherited::take()?;
        let http = Http::of(arguments.http, &arguments.http_protection, inherited.http)?;
        let inner = arguments.inner.as_deref();
        let target = machine.open_target(&arguments.assemble, inner, purpose, policy_of(arguments)).await?;
        check_writes(&target, purpose)?;
        let array = target.array().clone();
        array.set_stripe_size(arguments.stripe_size)?;
        for array in &target.arrays {
            // Before the first sweep begins.
            array.set_sync_speed(arguments.sync_speed(array.sync_speed()))?;
            warn_of_doubtful_zeros(array).await;
        }
        let writing_back = write_back::begin(&machine, &target.arrays);
        let status = array.status();
        let own_sockets = || {
            let uuid: ArrayUuid = status.uuid.parse().map_err(Failure::refused)?;
            Sockets::of_array(&status.name, uuid)
        };
        let nbd = nbd_sources(&arguments.nbd, inherited.nbd, own_sockets)?;
        let source = control_source(arguments, inherited.control, own_sockets)?;
        let control = Control { source, http, smartd_state: arguments.smartd_state.clone() };
        let server = ArrayServer::start(&machine, target, nbd, &arguments.exports, control).await?;
        print(&server.greeting(arguments.json))?;
        activation::ready(&server.headline());
        let served = server.run().await;
        writing_back.await; // it ends when the arrays have stopped
        served
    })
}

/// Refuses to open arrays for writing where what is inside of them takes no writes.
fn check_writes(target: &Target, purpose: Purpose) -> Result<(), Failure> {
    let Some(inner) = target.inner.as_ref().filter(|_| purpose == Purpose::Write) else { return Ok(()) };
    check_inner_writes(inner, target.arrays.len(), &target.volume)
        .map_err(|refusal| refusal.advice("add --read-only").into())
}

/// The sockets for NBD: the user's choice, the service manager's, or one of the user's own directory.
fn nbd_sources(
    chosen: &[NbdAddress],
    inherited: Option<(Listener, NbdAddress)>,
    own_sockets: impl Fn() -> Result<Sockets, Failure>,
) -> Result<Vec<NbdSource>, Failure> {
    match inherited {
        Some(_) if !chosen.is_empty() => {
            Err(Failure::refused("--nbd: the service manager passed a socket for NBD already"))
        }
        Some((listener, address)) => Ok(vec![NbdSource::Inherited(listener, address)]),
        None if chosen.is_empty() => Ok(vec![NbdSource::Address(NbdAddress::Unix(own_sockets()?.nbd))]),
        None => Ok(chosen.iter().cloned().map(NbdSource::Address).collect()),
    }
}

/// The control socket: the user's choice, the service manager's, or one of the user's own directory.
fn control_source(
    arguments: &ServeArguments,
    inherited: Option<UnixListener>,
    own_sockets: impl Fn() -> Result<Sockets, Failure>,
) -> Result<ControlSource, Failure> {
    let path = match (&arguments.control, inherited) {
        (Some(_), Some(_)) => {
            return Err(Failure::refused("--control: the service manager passed a control socket already"));
        }
        (None, Some(listener)) => return Ok(ControlSource::Inherited(listener)),
        (Some(path), None) => path.clone(),
        (None, None) => own_sockets()?.control,
    };
    let access = arguments.control_access.access()?;
    warn_of_closed_directory(&path, access);
    Ok(ControlSource::Path(path, access))
}

fn policy_of(arguments: &ServeArguments) -> BitmapPolicy {
    BitmapPolicy {
        writes: match arguments.bitmap_writes {
            WriteSize::Preferred => BitmapWrites::Preferred,
            WriteSize::Exact => BitmapWrites::Exact,
        },
        clearing: match arguments.bitmap_clearing {
            Clearing::Sparing => BitmapClearing::Sparing,
            Clearing::Eager => BitmapClearing::Eager,
        },
    }
}

/// What ends the server.
enum Ending {
    Signal,
    /// The command `stop`, which waits for a reply.
    Command(Reply),
    /// An export or the control thread failed.
    Failure(std::io::Error),
}

/// An array that is being served.
pub(crate) struct ArrayServer<'a> {
    commands: Commands<'a>,
    front: Front,
    /// Sweeps that are due, the clean mark while the array is idle, and the clearing of bitmap bits. All end when the
    /// array is stopped.
    background: io::JoinHandle<()>,
    control: ControlServer,
}

/// Everything from which requests, commands and signals arrive.
struct Front {
    exports: Exports,
    addresses: Addresses,
    saved: Rc<SavedScrub>,
    io: Io,
    drives: Drives,
    smarts: Smarts,
    target: Target,
    commands: mpsc::UnboundedReceiver<Request>,
    terminated: std::pin::Pin<Box<dyn Future<Output = std::io::Result<io::signal::Signal>>>>,
}

/// A command with its reply.
type Done = (Reply, Result<Answer, ApiError>);

/// A running command.
type Running<'a> = LocalBoxFuture<'a, Done>;

impl<'a> ArrayServer<'a> {
    /// Opens the exports and the control socket.
    pub(crate) async fn start(
        machine: &'a Machine,
        target: Target,
        nbd: Vec<NbdSource>,
        exports: &ExportArguments,
        control: Control,
    ) -> Result<Self, Failure> {
        let array = target.array().clone();
        // Signals first: a thread started earlier would receive them.
        let terminated = io::signal::terminated().map_err(|error| Failure::refused(format!("signals: {error}")))?;
        let gauges = Gauges::new();
        array.observe(Some(Rc::new(gauges.clone())));
        let saved = Rc::new(SavedScrub::of(&array, machine)?);
        let volume = Measured::new(Exported::of(&target), &gauges);
        let name = target.inner.clone().unwrap_or_else(|| array.status().name);
        let exports = Exports::open(&name, &volume, nbd, exports).await?;
        let (sender, commands) = mpsc::unbounded();
        let smarts = Smarts::watch(control.smartd_state.clone());
        let (control, addresses) = match control.start(Backend(sender)) {
            Ok(started) => started,
            Err(error) => {
                // Otherwise a block device would remain.
                exports.stop(&machine.clock).await;
                return Err(Failure::not_opened(&error));
            }
        };
        let background = io::spawn({
            let (array, saved, others) = (array.clone(), saved.clone(), target.arrays[1..].to_vec());
            saved.restore(&array);
            async move {
                let others = join_all(others.iter().map(run_background));
                join3(run_background(&array), saved.keep(&array), others).await;
            }
        });
        let io = Io::of(machine);
        tracing::info!(target: engine::LOG_TARGET, "{}", io.text());
        let (drives, terminated) = (machine.drives.clone(), Box::pin(terminated));
        let front = Front { exports, addresses, saved, io, drives, smarts, target, commands, terminated };
        let commands = Commands::new(machine, array, gauges);
        Ok(Self { commands, front, background, control })
    }

    /// The array, and how to connect; as JSON in one line.
    pub(crate) fn greeting(&self, as_json: bool) -> String {
        if as_json {
            return format!("{}\n", status(&self.commands.array, &self.front.served()));
        }
        let exports: String = self.front.exports.status().iter().map(ExportStatus::line).collect();
        let Addresses { http, control } = &self.front.addresses;
        let http = http.as_ref().map_or(String::new(), |url| format!("  {:<10} {url}/metrics\n", "HTTP"));
        let inner = InnerServed::of(&self.front.target).map_or(String::new(), |inner| inner.lines());
        format!("{}\n{inner}{exports}{http}  {:<10} {control}\n", self.headline(), "control")
    }

    /// The array in one line.
    fn headline(&self) -> String {
        let status = self.status();
        format!("serving {}", describe(&status.name, status.level, status.array_bytes, &status.state))
    }

    /// The array's status.
    pub(crate) fn status(&self) -> Status {
        self.commands.array.status()
    }

    /// The NBD URI.
    pub(crate) fn nbd(&self) -> String {
        self.front.exports.nbd()
    }

    /// The URL of HTTP, if it is on.
    pub(crate) fn http(&self) -> Option<&str> {
        self.front.addresses.http.as_deref()
    }

    /// Serves until a signal, the command `stop` or a failure ends it.
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let Self { commands, mut front, background, control } = self;
        let mut running = FuturesUnordered::new();
        let ending = front.until_ending(&commands, &mut running).await;
        activation::stopping();
        let (served, Front { exports, commands: waiting, target, .. }) = (front.served(), front);
        let stop = async {
            exports.stop(&commands.machine.clock).await;
            target.stop().await
        };
        let stopped = answering(&mut running, |answer| answer.body(&commands.array, &served), stop).await;
        background.await;
        // Commands that still wait for a file get the reply that the array is being stopped.
        drop((waiting, running));
        let Commands { array, .. } = commands;
        let status = array.status();
        drop(array);
        let result = finish(ending, &stopped, &status);
        control.stop();
        result
    }
}

impl Front {
    /// Carries commands out, concurrently, until something ends the server.
    async fn until_ending<'c>(
        &mut self,
        commands: &'c Commands<'_>,
        running: &mut FuturesUnordered<Running<'c>>,
    ) -> Ending {
        enum Event {
            Ending(Ending),
            Command(Request),
            Done(Done),
        }
        loop {
            let event = {
                let command = pin!(self.commands.next().fuse());
                let failed = pin!(self.exports.failed());
                let done = pin!(next(running));
                match select(self.terminated.as_mut(), select(command, select(failed, done))).await {
                    Either::Left(_) => Event::Ending(Ending::Signal),
                    Either::Right((Either::Left((Some(request), _)), _)) => Event::Command(request),
                    Either::Right((Either::Left((None, _)), _)) => {
                        Event::Ending(Ending::Failure(std::io::Error::other("the control thread ended")))
                    }
                    Either::Right((Either::Right((Either::Left((error, _)), _)), _)) => {
                        Event::Ending(Ending::Failure(error))
                    }
                    Either::Right((Either::Right((Either::Right((done, _)), _)), _)) => Event::Done(done),
                }
            };
            match event {
                Event::Ending(ending) => return ending,
                Event::Command(Request { command: Command::Stop, reply }) => return Ending::Command(reply),
                Event::Command(Request { command, reply }) => {
                    running.push(Box::pin(async move { (reply, commands.carry_out(command).await) }));
                }
                // A client that has gone does not need its reply.
                Event::Done((reply, done)) => {
                    drop(reply.send(done.map(|answer| answer.body(&commands.array, &self.served()))));
                }
            }
        }
    }

    fn served(&self) -> Served {
        Served {
            nbd: self.exports.nbd(),
            clients: self.exports.nbd_clients(),
            ways: self.exports.status(),
            http: self.addresses.http.clone(),
            io: self.io.clone(),
            pid: std::process::id(),
            inner: InnerServed::of(&self.target),
            last_scrub: self.saved.last(),
            drives: self.drives.clone(),
            smarts: self.smarts.clone(),
        }
    }
}

/// The next command that completes; pending while no command runs.
async fn next<F: Future>(running: &mut FuturesUnordered<F>) -> F::Output {
    match running.next().await {
        Some(done) => done,
        None => std::future::pending().await,
    }
}

/// Carries out `work`, and replies to the commands that complete meanwhile.
async fn answering<T>(
    running: &mut FuturesUnordered<Running<'_>>,
    body: impl Fn(Answer) -> Value,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    loop {
        match select(work.as_mut(), pin!(next(running))).await {
            Either::Left((done, _)) => return done,
            Either::Right(((reply, done), _)) => drop(reply.send(done.map(&body))),
        }
    }
}

/// Replies to the command that ended the server, and returns the server's own result.
fn finish(ending: Ending, stopped: &Result<(), ArrayError>, status: &Status) -> Result<(), Failure> {
    let result = stopped.clone().map_err(|error| {
        Failure::unwell(format!("the array could not be marked clean: {error}"))
            .advise("`mdspace examine` shows what is on each member")
    });
    match ending {
        Ending::Signal => {}
        Ending::Command(reply) => {
            let body = match stopped {
                Ok(()) => Ok(json(&Stopped { state: &status.state, pid: std::process::id() })),
                Err(error) => Err(ApiError::new(500, format!("the array could not be marked clean: {error}"))),
            };
            // A client that has gone does not need its reply.
            drop(reply.send(body));
        }
        Ending::Failure(error) => {
            return result.and(Err(Failure::unwell(format!("{error}"))));
        }
    }
    if result.is_ok() {
        tell!("stopped, {}", status.state);
    }
    result
}
