//! `serve` and `up`: an array and the ways into it, until somebody says stop.
//!
//! One thread owns the array, alone or with others that share its stripes ([`crate::command::crew`]). The control socket has another, which hands each
//! command over and waits for the answer; so may ways in ([`crate::command::ways`]). Whoever ends it (SIGINT, SIGTERM or
//! the `stop` command), the order is the same: no new requests, those that
//! were received are answered, everything is flushed, the array is marked
//! clean, and only then is the end announced.

use crate::command::activation::{self, Inherited};
use crate::command::arguments::{CacheMode, Clearing, ServeArguments, UpArguments, WayArguments, WriteSize};
use crate::command::create::create;
use crate::command::crew::{Crew, Orders, deliver};
use crate::command::failure::Failure;
use crate::command::grow;
use crate::command::members::{ArrayUuid, expand};
use crate::command::metrics;
use crate::command::nbd_address::NbdAddress;
use crate::command::output::print;
use crate::command::output::tell;
use crate::command::report::describe;
use crate::command::scrub;
use crate::command::settings::prepare;
use crate::command::size::Size;
use crate::command::sockets::{Sockets, UP_DIRECTORY};
use crate::command::volume::Exported;
use crate::command::ways::{NbdSource, WayStatus, Ways};
use crate::create::default_recipe;
use crate::machine::{Arena, Array, Machine, Purpose, keep_up, random};
use engine::create::Recipe;
use engine::status::Status;
use engine::{ArrayError, BitmapClearing, BitmapPolicy, BitmapWrites, Candidate, Clock, Refusal};
use export::control::{
    AddRequest, ApiError, Command, ControlBackend, ControlServer, MemberRequest, ReplaceRequest, Socket, Token,
};
use export::measure::{Gauges, Measured, Measures};
use format::geometry::Level;
use futures_channel::{mpsc, oneshot};
use futures_util::future::{Either, join, select};
use futures_util::{FutureExt, StreamExt};
use io::AnyMember;
use parity::Kernel;
use serde::Serialize;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// How long a member that was let go may be open until its last transfers have ended, and how often is looked.
const LET_GO_PATIENCE: Duration = Duration::from_secs(5);
const LET_GO_INTERVAL: Duration = Duration::from_millis(10);

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
        return Ok(members);
    }
    let failed = |error| Failure::refused(format!("{}: cannot create: {error}", directory.display()));
    let is_new = !directory.exists();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
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
    let uri = &server.ways.nbd();
    let mdspace = std::env::args().next().unwrap_or_else(|| "mdspace".to_owned());
    let first = members.first().map(|path| path.display().to_string()).unwrap_or_default();
    let status = server.array.status();
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
struct ServedStatus {
    #[serde(flatten)]
    array: Status,
    served: Served,
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
    machine: &'a Machine,
    array: Array,
    /// What requests and members do, in figures.
    gauges: Gauges,
    /// The threads of other shards, where there are any, and what has them work.
    crew: Option<(Crew, io::JoinHandle<()>)>,
    ways: Ways,
    /// Sweeps, where one is due, the clean mark whenever the array is idle, and bits
    /// of the bitmap cleared; all end by themselves when the array is stopped.
    background: io::JoinHandle<()>,
    control: ControlServer,
    called: Called,
    asked: mpsc::UnboundedReceiver<Asked>,
    /// Files that were members until they were removed; they may be given again at once.
    let_go: RefCell<BTreeSet<PathBuf>>,
    terminated: std::pin::Pin<Box<dyn Future<Output = std::io::Result<io::signal::Signal>>>>,
}

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
        let hands = crew.as_ref().map_or(Vec::new(), |(crew, _)| crew.hands());
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
        let terminated = Box::pin(terminated);
        let let_go = RefCell::default();
        Ok(Self { machine, array, gauges, crew, ways, background, control, called, asked, let_go, terminated })
    }

    /// What is served, and how to connect; as JSON in a line.
    fn greeting(&self, as_json: bool) -> String {
        if as_json {
            return format!("{}\n", self.status());
        }
        let ways: String = self.ways.status().iter().map(WayStatus::line).collect();
        let Called { http, control } = &self.called;
        let http = http.as_ref().map_or(String::new(), |url| format!("  {:<10} {url}/metrics\n", "HTTP"));
        format!("{}\n{ways}{http}  {:<10} {control}\n", self.headline(), "control")
    }

    /// What is served.
    fn headline(&self) -> String {
        let status = self.array.status();
        format!("serving {}", describe(&status.name, status.level, status.array_bytes, &status.state))
    }

    /// Serves until the end.
    async fn run(mut self) -> Result<(), Failure> {
        let ending = self.until_ending().await;
        activation::stopping();
        let Self { machine, array, crew, ways, background, control, asked, .. } = self;
        ways.stop(&machine.clock).await;
        let stopped = array.stop().await;
        background.await;
        if let Some((crew, giving)) = crew {
            giving.await;
            crew.end();
        }
        let status = array.status();
        drop((asked, array));
        let result = finish(ending, &stopped, &status);
        control.stop();
        result
    }

    /// Carries out commands until something ends it.
    async fn until_ending(&mut self) -> Ending {
        loop {
            let asked = {
                let command = pin!(self.asked.next().fuse());
                let failed = pin!(self.ways.failed());
                let events = select(self.terminated.as_mut(), select(command, failed));
                match events.await {
                    Either::Left(_) => return Ending::Signal,
                    Either::Right((Either::Left((Some(asked), _)), _)) => asked,
                    Either::Right((Either::Left((None, _)), _)) => {
                        return Ending::Failure(std::io::Error::other("the control thread ended"));
                    }
                    Either::Right((Either::Right((error, _)), _)) => return Ending::Failure(error),
                }
            };
            let Asked { command, answer } = asked;
            let done = match command {
                Command::Measures => Ok(json(&self.measures().await)),
                Command::Metrics => Ok(metrics::text(self.array.status(), self.measures().await).into()),
                Command::Trace(request) => Ok(json(&self.gauges.traces(request.from))),
                Command::Stop => return Ending::Command(answer),
                Command::ScrubReport => scrub::served_report(&self.array),
                Command::Scrub(request) => scrub::command(&self.array, &request).await,
                command => self.carry_out(command).await.map(|()| self.status()),
            };
            // A client that has gone does not need its answer.
            drop(answer.send(done));
        }
    }

    /// Of all threads.
    async fn measures(&self) -> Measures {
        let own = self.gauges.measures();
        match &self.crew {
            None => own,
            Some((crew, _)) => crew.measures().await.iter().fold(own, |all, other| all.with(other)),
        }
    }

    /// Does what changes the array, or only tells how it is.
    async fn carry_out(&self, command: Command) -> Result<(), ApiError> {
        match command {
            Command::FailMember(request) => {
                let member = self.named(&request.member);
                self.change(&request, self.array.fail(&member)).await
            }
            Command::Set(wanted) => self.set(&wanted).await,
            Command::AddMember(request) => self.add(&request).await,
            Command::ReAddMember(request) => self.re_add(&request).await,
            Command::ReplaceMember(request) => self.replace(&request).await,
            Command::RemoveMember(member) => self.remove(&member).await,
            Command::Grow(request) => grow::command(&self.array, request).await,
            Command::Status | Command::Measures | Command::Metrics | Command::Trace(_) | Command::Stop => Ok(()),
            Command::Scrub(_) | Command::ScrubReport => Ok(()),
        }
    }

    /// The member's own name, where it is called by another path of the same file.
    fn named(&self, path: &str) -> String {
        let absolute = |name: &str| std::path::absolute(name).ok();
        let is_it = |name: &String| name == path || (path.contains('/') && absolute(name) == absolute(path));
        let name = self.array.status().members.into_iter().map(|member| member.name).find(is_it);
        name.unwrap_or_else(|| path.to_owned())
    }

    async fn change(
        &self,
        request: &MemberRequest,
        change: impl Future<Output = Result<(), Refusal>>,
    ) -> Result<(), ApiError> {
        let called = self.named(&request.member);
        let is_known = self
            .array
            .status()
            .members
            .iter()
            .any(|member| member.name == called || Path::new(&member.name).file_name() == Some(called.as_ref()));
        let status = if is_known { 409 } else { 404 };
        change.await.map_err(|refusal| refused(status, refusal))
    }

    async fn remove(&self, request: &MemberRequest) -> Result<(), ApiError> {
        let names = || self.array.status().members.into_iter().map(|member| member.name);
        let before: BTreeSet<String> = names().collect();
        self.change(request, self.array.remove(&self.named(&request.member))).await?;
        let after: BTreeSet<String> = names().collect();
        let gone = before.difference(&after).filter_map(|name| std::fs::canonicalize(name).ok());
        self.let_go.borrow_mut().extend(gone);
        Ok(())
    }

    /// Opens a file that is to join. It is held for a moment by who had it: as a member, or to be refused.
    async fn open(&self, name: &str) -> Result<Candidate<AnyMember>, ApiError> {
        let file = std::fs::canonicalize(name).unwrap_or_default();
        let deadline = self.machine.clock.now() + LET_GO_PATIENCE;
        loop {
            match self.machine.open(Path::new(name), Purpose::Write) {
                Err(_) if self.let_go.borrow().contains(&file) && self.machine.clock.now() < deadline => {
                    self.machine.clock.sleep_until(self.machine.clock.now() + LET_GO_INTERVAL).await;
                }
                opened => return opened.map_err(not_opened),
            }
        }
    }

    /// Of a file that has joined nobody waits to have it.
    fn note_joined(&self, name: &str) {
        self.let_go.borrow_mut().remove(&std::fs::canonicalize(name).unwrap_or_default());
    }

    async fn add(&self, request: &AddRequest) -> Result<(), ApiError> {
        let candidate = self.open(&request.member).await?;
        let device_uuid = random().map_err(not_opened)?;
        self.array.add(candidate, device_uuid, request.force).await.map_err(|refusal| refused(409, refusal))?;
        self.note_joined(&request.member);
        Ok(())
    }

    async fn re_add(&self, request: &MemberRequest) -> Result<(), ApiError> {
        let candidate = self.open(&request.member).await?;
        self.array.re_add(candidate).await.map_err(|refusal| refused(409, refusal))?;
        self.note_joined(&request.member);
        Ok(())
    }

    async fn replace(&self, request: &ReplaceRequest) -> Result<(), ApiError> {
        let (old, new) = (self.named(&request.member), self.named(&request.with));
        let status = self.array.status();
        let spare = status.members.iter().find(|member| member.state == "spare" && member.name == new);
        let replaced = match spare {
            Some(spare) => self.array.replace_with_spare(&old, &spare.name).await,
            None => {
                let candidate = self.open(&request.with).await?;
                let device_uuid = random().map_err(not_opened)?;
                self.array.replace(&old, candidate, device_uuid, request.force).await
            }
        };
        replaced.map_err(|refusal| refused(409, refusal))?;
        self.note_joined(&request.with);
        Ok(())
    }

    async fn set(&self, wanted: &BTreeMap<String, String>) -> Result<(), ApiError> {
        let changes = prepare(self.machine, &self.array, wanted).map_err(|refusal| refused(400, refusal))?;
        let mut done = Vec::new();
        for (change, key) in changes.into_iter().zip(wanted.keys()) {
            change.await.map_err(|refusal| match done.is_empty() {
                true => refused(409, refusal),
                false => refused(409, refusal.after(format!("set before it: {}", done.join(", ")))),
            })?;
            done.push(&**key);
        }
        Ok(())
    }

    fn status(&self) -> Value {
        let served = Served {
            nbd: self.ways.nbd(),
            clients: self.ways.nbd_clients(),
            ways: self.ways.status(),
            http: self.called.http.clone(),
            pid: std::process::id(),
        };
        json(&ServedStatus { array: self.array.status(), served })
    }
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

fn not_opened(refusal: Refusal) -> ApiError {
    let failure = Failure::from(refusal);
    let error = ApiError::new(409, failure.reason());
    match failure.advice() {
        Some(advice) => error.advice(advice),
        None => error,
    }
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
