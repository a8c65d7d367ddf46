//! `serve` and `up`: an array and the ways into it, until somebody says stop.
//!
//! One thread owns the array, alone or with others that share its stripes ([`crate::command::crew`]). The control socket has another, which hands each
//! command over and waits for the answer ([`crate::command::commands`] carries them out, each beside the others); so may ways in ([`crate::command::ways`]). Whoever ends it (SIGINT, SIGTERM or
//! the `stop` command), the order is the same: no new requests, those that
//! were received are answered, everything is flushed, the array is marked
//! clean, and only then is the end announced.

use crate::command::activation::{self, Inherited};
use crate::command::arguments::{CacheMode, Clearing, ServeArguments, UpArguments, WayArguments, WriteSize};
use crate::command::commands::{Answer, Commands};
use crate::command::create::create;
use crate::command::crew::{Crew, Orders, deliver};
use crate::command::doubt::warn_of_doubtful_zeros;
use crate::command::failure::Failure;
use crate::command::members::{ArrayUuid, expand};
use crate::command::nbd_address::NbdAddress;
use crate::command::output::{print, tell};
use crate::command::own;
use crate::command::report::describe;
use crate::command::scrub;
use crate::command::size::Size;
use crate::command::sockets::{Sockets, UP_DIRECTORY};
use crate::command::volume::Exported;
use crate::command::ways::{NbdSource, WayStatus, Ways};
use crate::create::default_recipe;
use crate::machine::{Arena, Array, Machine, Purpose, keep_up};
use crate::names::name_of;
use engine::create::Recipe;
use engine::status::Status;
use engine::{ArrayError, BitmapClearing, BitmapPolicy, BitmapWrites, Refusal};
use export::control::{ApiError, Command, ControlBackend, ControlServer, Socket, Token};
use export::measure::{Gauges, Measured};
use format::geometry::Level;
use futures_channel::{mpsc, oneshot};
use futures_util::future::{Either, LocalBoxFuture, join, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use parity::Kernel;
use serde::Serialize;
use serde_json::Value;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;

/// Bits of a token file's mode by which it is known, or chosen, by others than its owner and group.
const OTHERS_READ_OR_WRITE: u32 = 0o026;

/// Members of `up`, and their size.
const UP_MEMBERS: usize = 4;
const UP_MEMBER_BYTES: u64 = 256 << 20;

/// Runs `mdspace serve`.
pub(crate) fn serve(arguments: &ServeArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let purpose = if arguments.read_only { Purpose::Read } else { Purpose::Write };
    let machine = Machine::start(kernel, Arena::Large)?;
    machine.run(async {
        let array = machine.assemble(&arguments.assemble, purpose, policy_of(arguments)).await?;
        array.set_stripe_size(arguments.stripe_size)?;
        warn_of_doubtful_zeros(&array).await;
        let keeper = (arguments.cache == CacheMode::Writeback).then(|| {
            let array = array.clone();
            io::spawn(async move { array.write_back().await })
        });
        let status = array.status();
        let own = || {
            let uuid: ArrayUuid = status.uuid.parse().map_err(Failure::refused)?;
            Sockets::of_array(&status.name, uuid)
        };
        let inherited = Inherited::take()?;
        let nbd = match (&arguments.nbd, inherited.nbd) {
            (Some(_), Some(_)) => return Err(Failure::refused("--nbd: a socket for NBD was handed over already")),
            (Some(address), None) => NbdSource::Address(address.clone()),
            (None, Some((listener, address))) => NbdSource::Inherited(listener, address),
            (None, None) => NbdSource::Address(NbdAddress::Unix(own()?.nbd)),
        };
        let path = match (&arguments.control, inherited.control) {
            (Some(_), Some(_)) => return Err(Failure::refused("--control: a control socket was handed over already")),
            (Some(path), None) => ControlSource::Path(path.clone()),
            (None, Some(listener)) => ControlSource::Inherited(listener),
            (None, None) => ControlSource::Path(own()?.control),
        };
        let control = Control { source: path, http: http(arguments, inherited.http)? };
        let orders = Orders {
            shards: arguments.shards,
            kernel,
            writeback: arguments.cache == CacheMode::Writeback,
            arena: Arena::Large,
        };
        let server = ArrayServer::start(&machine, array, nbd, &arguments.ways, control, Some(orders)).await?;
        print(&server.greeting(arguments.json))?;
        activation::ready(&server.headline());
        let served = server.run().await;
        if let Some(keeper) = keeper {
            keeper.await; // it ends when the array has stopped
        }
        served
    })
}

/// Where the control interface is reached.
enum ControlSource {
    Path(PathBuf),
    Inherited(UnixListener),
}

/// The control interface, and HTTP on TCP if that is asked for.
struct Control {
    source: ControlSource,
    http: Option<(TcpListener, Option<Token>)>,
}

/// The port for HTTP, and the token for changes.
fn http(
    arguments: &ServeArguments,
    inherited: Option<TcpListener>,
) -> Result<Option<(TcpListener, Option<Token>)>, Failure> {
    let listener = match (arguments.http, inherited) {
        (Some(_), Some(_)) => return Err(Failure::refused("--http: a socket for HTTP was handed over already")),
        (Some(address), None) => {
            let refused = |error: std::io::Error| Failure::refused(format!("--http: {address}: {error}"));
            TcpListener::bind(address).map_err(refused)?
        }
        (None, Some(listener)) => listener,
        (None, None) if arguments.http_token_file.is_some() => {
            return Err(
                Failure::refused("--http-token-file: there is no port that it is for").advise("give --http too")
            );
        }
        (None, None) => return Ok(None),
    };
    let token = |path: &PathBuf| {
        let refused = |reason: String| Failure::refused(format!("--http-token-file: {}: {reason}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
        if path.metadata().is_ok_and(|metadata| metadata.mode() & OTHERS_READ_OR_WRITE != 0) {
            let path = name_of(path);
            tracing::warn!("--http-token-file: {path}: other users can read or change it, and so change the array");
        }
        Token::new(text.trim_end()).map_err(refused)
    };
    Ok(Some((listener, arguments.http_token_file.as_ref().map(token).transpose()?)))
}

/// Where the control interface is reached: the port that the system chose, if it was to.
struct Called {
    http: Option<String>,
    control: String,
}

impl Control {
    /// Serves it.
    fn start(self, backend: Backend) -> std::io::Result<(ControlServer, Called)> {
        let mut others = Vec::new();
        let mut http = None;
        if let Some((listener, token)) = self.http {
            http = Some(format!("http://{}", listener.local_addr()?));
            others.push(Socket::Tcp(listener, token));
        }
        let (server, control) = match self.source {
            ControlSource::Path(path) => {
                let path = std::path::absolute(path)?;
                (ControlServer::start_with(&path, others, backend)?, path.display().to_string())
            }
            ControlSource::Inherited(listener) => {
                let address = listener.local_addr()?;
                let path = address.as_pathname().map_or("handed over".to_owned(), |path| path.display().to_string());
                others.push(Socket::Unix(listener));
                (ControlServer::start_on(others, backend)?, path)
            }
        };
        Ok((server, Called { http, control }))
    }
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

/// Runs `mdspace up`.
pub(crate) fn up(arguments: &UpArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let directory = Path::new(UP_DIRECTORY);
    let sockets = Sockets::of_up(directory);
    if directory.symlink_metadata().is_ok() {
        own::check_directory(directory)?;
    }
    if std::os::unix::net::UnixStream::connect(&sockets.control).is_ok() {
        return Err(Failure::refused(format!("{}: is being served already", directory.display()))
            .advise("`mdspace status` shows it, `mdspace stop` stops it"));
    }
    let machine = Machine::start(kernel, Arena::Large)?;
    machine.run(async {
        let members = members_of_up(&machine, directory).await?;
        let candidates = machine.open_all(&members, Purpose::Write)?;
        let array = machine.assemble_candidates(candidates, false, Purpose::Write).await?;
        let nbd = NbdSource::Address(NbdAddress::Unix(sockets.nbd));
        let control = Control { source: ControlSource::Path(sockets.control), http: None };
        let server = ArrayServer::start(&machine, array, nbd, &WayArguments::default(), control, None).await?;
        print(&server.greeting(arguments.json))?;
        if !arguments.json {
            print(&what_to_try(&server, &members))?;
        }
        server.run().await
    })
}

/// The members in `directory`, made when there is none.
async fn members_of_up(machine: &Machine, directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let pattern = directory.join("member*.img");
    if let Ok(members) = expand(&[pattern.into_os_string()]) {
        members.iter().try_for_each(|member| own::check_file(member))?;
        return Ok(members);
    }
    let failed = |error| Failure::refused(format!("{}: cannot create: {error}", directory.display()));
    let is_new = !directory.exists();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    own::check_directory(directory)?; // it may have been made meanwhile, by others
    let members: Vec<PathBuf> = (0..UP_MEMBERS).map(|index| directory.join(format!("member{index}.img"))).collect();
    let slots: Vec<_> = members.iter().cloned().map(Some).collect();
    let recipe = Recipe { name: "mdspace".to_owned(), ..default_recipe(Level::Raid5)? };
    if let Err(failure) = create(machine, recipe, &slots, &[], Some(Size(UP_MEMBER_BYTES)), None).await {
        if is_new {
            drop(std::fs::remove_dir(directory)); // as its members are; unless there is something in it since
        }
        return Err(failure);
    }
    Ok(members)
}

/// The next commands to type, for somebody who is here for the first time.
fn what_to_try(server: &ArrayServer<'_>, members: &[PathBuf]) -> String {
    let uri = &server.front.ways.nbd();
    let mdspace = std::env::args().next().unwrap_or_else(|| "mdspace".to_owned());
    let first = members.first().map(|path| name_of(path)).unwrap_or_default();
    let status = server.commands.array.status();
    let (change, outcome) = match status.left_out.first() {
        _ if status.missing.is_empty() => {
            (format!("fail {first}"), "A member is lost, and the data comes out the same.")
        }
        Some(lost) => (format!("add --force {}", lost.name), "The array lacks that member, which is recovered whole."),
        None => ("add FILE".to_owned(), "The array lacks a member; a file as long as the others becomes a new one."),
    };
    format!(
        "\nIn another terminal, in this directory:\n\
         \x20 nbdinfo '{uri}'\n\
         \x20 nbdcopy disk.img '{uri}'\n\
         \x20 {mdspace} status\n\
         \x20 {mdspace} {change}\n\
         \x20 nbdcopy '{uri}' copy.img\n\
         \x20 {mdspace} stop\n\
         {outcome} `up` goes on where it was stopped.\n"
    )
}

/// A status, and where it is served. Its fields are a stable interface (docs/json.md).
#[derive(Serialize)]
struct ServedStatus<'a> {
    #[serde(flatten)]
    array: Status,
    served: &'a Served,
}

#[derive(Serialize)]
struct Served {
    /// The NBD URI.
    nbd: String,
    /// NBD connections at present.
    clients: usize,
    /// All ways in that are open, NBD too.
    ways: Vec<WayStatus>,
    /// The URL of control, metrics and the page, where there is a port for them.
    http: Option<String>,
    /// The server's process.
    pid: u32,
}

/// Hands commands of the control thread to the array's.
struct Backend(mpsc::UnboundedSender<Asked>);

struct Asked {
    command: Command,
    answer: oneshot::Sender<Result<Value, ApiError>>,
}

impl ControlBackend for Backend {
    async fn call(&self, command: Command) -> Result<Value, ApiError> {
        let (answer, answered) = oneshot::channel();
        let stopping = || ApiError::new(503, "the array is being stopped");
        self.0.unbounded_send(Asked { command, answer }).map_err(|_| stopping())?;
        answered.await.unwrap_or_else(|oneshot::Canceled| Err(stopping()))
    }
}

/// Whoever wants the server to end.
enum Ending {
    Signal,
    Command(oneshot::Sender<Result<Value, ApiError>>),
    /// It cannot go on.
    Failure(std::io::Error),
}

/// An array that is being served.
struct ArrayServer<'a> {
    commands: Commands<'a>,
    front: Front,
    /// What has other shards work, where there are any.
    giving: Option<io::JoinHandle<()>>,
    /// Sweeps, where one is due, the clean mark whenever the array is idle, and bits
    /// of the bitmap cleared; all end by themselves when the array is stopped.
    background: io::JoinHandle<()>,
    control: ControlServer,
}

/// Where others reach it, and what they want.
struct Front {
    ways: Ways,
    called: Called,
    asked: mpsc::UnboundedReceiver<Asked>,
    terminated: std::pin::Pin<Box<dyn Future<Output = std::io::Result<io::signal::Signal>>>>,
}

/// A command that is being carried out, and where the answer goes.
type UnderWay<'a> = LocalBoxFuture<'a, (oneshot::Sender<Result<Value, ApiError>>, Result<Answer, ApiError>)>;

impl<'a> ArrayServer<'a> {
    /// Opens the ways in, and the control socket.
    async fn start(
        machine: &'a Machine,
        array: Array,
        nbd: NbdSource,
        ways: &WayArguments,
        control: Control,
        orders: Option<Orders>,
    ) -> Result<Self, Failure> {
        // Signals first: threads that exist before would take them.
        let terminated = io::signal::terminated().map_err(|error| Failure::refused(format!("signals: {error}")))?;
        let refused = |error: std::io::Error| Failure::refused(error.to_string());
        let gauges = Gauges::new();
        array.observe(Some(Rc::new(gauges.clone())));
        let kept = scrub::Kept::of(&array)?;
        let (exported, crew) = exported(&array, orders).await?;
        let (crew, giving) = crew.unzip();
        let hands = crew.as_ref().map_or(Vec::new(), Crew::hands);
        let ways = Ways::open(&array.status().name, &Measured::new(exported, &gauges), nbd, ways, hands).await?;
        let (sender, asked) = mpsc::unbounded();
        let (control, called) = match control.start(Backend(sender)) {
            Ok(started) => started,
            Err(error) => {
                // A block device would stay behind.
                ways.stop(&machine.clock).await;
                return Err(refused(error));
            }
        };
        let background = io::spawn({
            let array = array.clone();
            kept.restore(&array);
            async move {
                join(keep_up(&array), kept.keep(&array)).await;
            }
        });
        let front = Front { ways, called, asked, terminated: Box::pin(terminated) };
        let commands = Commands::new(machine, array, gauges, crew);
        Ok(Self { commands, front, giving, background, control })
    }

    /// What is served, and how to connect; as JSON in a line.
    fn greeting(&self, as_json: bool) -> String {
        if as_json {
            return format!("{}\n", status(&self.commands.array, &self.front.served()));
        }
        let ways: String = self.front.ways.status().iter().map(WayStatus::line).collect();
        let Called { http, control } = &self.front.called;
        let http = http.as_ref().map_or(String::new(), |url| format!("  {:<10} {url}/metrics\n", "HTTP"));
        format!("{}\n{ways}{http}  {:<10} {control}\n", self.headline(), "control")
    }

    /// What is served.
    fn headline(&self) -> String {
        let status = self.commands.array.status();
        format!("serving {}", describe(&status.name, status.level, status.array_bytes, &status.state))
    }

    /// Serves until the end.
    async fn run(self) -> Result<(), Failure> {
        let Self { commands, mut front, giving, background, control } = self;
        let mut under_way = FuturesUnordered::new();
        let ending = front.until_ending(&commands, &mut under_way).await;
        activation::stopping();
        let (served, Front { ways, asked, .. }) = (front.served(), front);
        let stop = async {
            ways.stop(&commands.machine.clock).await;
            commands.array.stop().await
        };
        let stopped = answering(&mut under_way, |answer| body(answer, &commands.array, &served), stop).await;
        background.await;
        if let Some(giving) = giving {
            giving.await;
        }
        // Those that still wait for a file are told that the array is being stopped.
        drop((asked, under_way));
        let Commands { array, crew, .. } = commands;
        if let Some(crew) = crew {
            crew.end();
        }
        let status = array.status();
        drop(array);
        let result = finish(ending, &stopped, &status);
        control.stop();
        result
    }
}

impl Front {
    /// Has commands carried out, each beside the others, until something ends it.
    async fn until_ending<'c>(
        &mut self,
        commands: &'c Commands<'_>,
        under_way: &mut FuturesUnordered<UnderWay<'c>>,
    ) -> Ending {
        enum Event {
            Ending(Ending),
            Asked(Asked),
            Done((oneshot::Sender<Result<Value, ApiError>>, Result<Answer, ApiError>)),
        }
        loop {
            let event = {
                let command = pin!(self.asked.next().fuse());
                let failed = pin!(self.ways.failed());
                let done = pin!(next(under_way));
                match select(self.terminated.as_mut(), select(command, select(failed, done))).await {
                    Either::Left(_) => Event::Ending(Ending::Signal),
                    Either::Right((Either::Left((Some(asked), _)), _)) => Event::Asked(asked),
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
                Event::Asked(Asked { command: Command::Stop, answer }) => return Ending::Command(answer),
                Event::Asked(Asked { command, answer }) => {
                    under_way.push(Box::pin(async move { (answer, commands.carry_out(command).await) }));
                }
                // A client that has gone does not need its answer.
                Event::Done((answer, done)) => {
                    drop(answer.send(done.map(|done| body(done, &commands.array, &self.served()))));
                }
            }
        }
    }

    fn served(&self) -> Served {
        Served {
            nbd: self.ways.nbd(),
            clients: self.ways.nbd_clients(),
            ways: self.ways.status(),
            http: self.called.http.clone(),
            pid: std::process::id(),
        }
    }
}

/// The next command that is done, with no end while there is none.
async fn next<F: Future>(under_way: &mut FuturesUnordered<F>) -> F::Output {
    match under_way.next().await {
        Some(done) => done,
        None => std::future::pending().await,
    }
}

/// Carries out `work`, and answers the commands that are done meanwhile.
async fn answering<T>(
    under_way: &mut FuturesUnordered<UnderWay<'_>>,
    body: impl Fn(Answer) -> Value,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    loop {
        match select(work.as_mut(), pin!(next(under_way))).await {
            Either::Left((done, _)) => return done,
            Either::Right(((answer, done), _)) => drop(answer.send(done.map(&body))),
        }
    }
}

fn body(answer: Answer, array: &Array, served: &Served) -> Value {
    match answer {
        Answer::Status => status(array, served),
        Answer::Body(body) => body,
    }
}

fn status(array: &Array, served: &Served) -> Value {
    json(&ServedStatus { array: array.status(), served })
}

/// What ways in have of the array; with the threads that share it, where there are several.
async fn exported(
    array: &Array,
    orders: Option<Orders>,
) -> Result<(Exported, Option<(Crew, io::JoinHandle<()>)>), Failure> {
    let Some(orders) = orders.filter(|orders| orders.shards.get() > 1) else {
        return Ok((Exported::Array(array.clone()), None));
    };
    let (crew, first, line) = Crew::start(array, &orders).await?;
    drop(io::spawn(deliver(first.clone(), line)));
    let giving = io::spawn({
        let first = first.clone();
        async move { first.give_licences().await }
    });
    Ok((Exported::Shard(first), Some((crew, giving))))
}

/// As `status` for what changed nothing.
pub(crate) fn refused(status: u16, refusal: Refusal) -> ApiError {
    let status = if refusal.changed.is_some() { 500 } else { status };
    let reason = refusal.reason_and_changes();
    let Refusal { member, field, advice, .. } = refusal;
    ApiError { member, field, advice, ..ApiError::new(status, reason) }
}

pub(crate) fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("our own types have string keys")
}

/// Tells whoever ended it how it ended.
fn finish(ending: Ending, stopped: &Result<(), ArrayError>, status: &Status) -> Result<(), Failure> {
    let result = stopped.clone().map_err(|error| {
        Failure::unwell(format!("the array could not be marked clean: {error}"))
            .advise("`mdspace examine` shows what is on each member")
    });
    match ending {
        Ending::Signal => {}
        Ending::Command(answer) => {
            let body = match stopped {
                Ok(()) => Ok(json(&StoppedBody { state: &status.state, pid: std::process::id() })),
                Err(error) => Err(ApiError::new(500, format!("the array could not be marked clean: {error}"))),
            };
            // A client that has gone does not need its answer.
            drop(answer.send(body));
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

/// The answer to `stop`.
#[derive(Serialize)]
struct StoppedBody<'a> {
    state: &'a str,
    pid: u32,
}
