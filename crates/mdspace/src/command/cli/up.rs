//! `up`: creates a RAID-5 in `./mdspace-data`, or opens the one that is there, serves it, and prints what to do next.
//!
//! Each printed line works as it stands: it needs no program except this one and those found on `PATH`, and no file
//! except those that exist or that the line creates.

use crate::command::cli::arguments::UpArguments;
use crate::command::cli::create::create;
use crate::command::opening::members::expand;
use crate::command::opening::ownership;
use crate::command::opening::sockets::{Sockets, UP_DIRECTORY};
use crate::command::opening::target::Target;
use crate::command::server::arguments::ExportArguments;
use crate::command::server::control::{Control, ControlSource, Http};
use crate::command::server::exports::NbdSource;
use crate::command::server::nbd_address::NbdAddress;
use crate::command::server::serve::ArrayServer;
use crate::command::server::smart::STATE_PREFIX;
use crate::command::text::failure::Failure;
use crate::command::text::output::{print, tell};
use crate::command::text::size::Size;
use crate::create::{Devices, default_recipe};
use crate::machine::{Arena, Machine, Purpose};
use crate::names::name_of;
use engine::create::Recipe;
use engine::status::Status;
use format::geometry::Level;
use io::net::SocketAccess;
use parity::Kernel;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Number of members, and their size.
const MEMBERS: usize = 4;
const MEMBER_BYTES: u64 = 256 << 20;

/// NBD clients, each with a command that changes nothing in the array and needs no file.
const NBD_CLIENTS: [(&str, &str); 3] = [
    ("nbdinfo", "nbdinfo URI"),
    ("nbdcopy", "nbdcopy URI copy.img"),
    ("qemu-img", "qemu-img convert -f raw -O raw URI copy.raw"),
];

/// Runs `mdspace up`.
pub(crate) fn run(arguments: &UpArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let directory = Path::new(UP_DIRECTORY);
    let sockets = Sockets::of_up(directory);
    if directory.symlink_metadata().is_ok() {
        ownership::check_directory(directory).map_err(|error| not_own(directory, &error))?;
    }
    if UnixStream::connect(&sockets.control).is_ok() {
        return Err(Failure::refused(format!("{}: is being served already", directory.display()))
            .advise("`mdspace status` shows the array, `mdspace stop` stops it"));
    }
    let http = listen(arguments.http)?;
    let machine = Machine::start(kernel, Arena::Large)?;
    machine.run(async {
        let (members, is_new) = members_in(&machine, directory).await?;
        let candidates = machine.open_all(&members, Purpose::Write)?;
        let array = machine.assemble_candidates(candidates, false, Purpose::Write).await?;
        let nbd = NbdSource::Address(NbdAddress::Unix(sockets.nbd));
        let source = ControlSource::Path(sockets.control, SocketAccess::default());
        let control = Control { source, http, smartd_state: STATE_PREFIX.into() };
        let server =
            ArrayServer::start(&machine, Target::whole(array), vec![nbd], &ExportArguments::default(), control).await?;
        print(&server.greeting(arguments.json))?;
        if !arguments.json {
            print(&next_steps(&server, &members, is_new))?;
        }
        server.run().await
    })
}

/// The listener for the page. Without an address of the user's choice it is optional: a container may have no loopback
/// device.
fn listen(chosen: Option<SocketAddr>) -> Result<Option<Http>, Failure> {
    let http = Http::listen(chosen.unwrap_or(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)));
    if chosen.is_none()
        && let Err(failure) = &http
    {
        tell!("note: no page: {}", failure.reason());
        return Ok(None);
    }
    http.map(Some)
}

fn not_own(path: &Path, error: &std::io::Error) -> Failure {
    Failure::refused(format!("{}: {error}", name_of(path)))
        .advise("work in a directory that no other user can write to, such as one in your home")
}

/// The members in `directory`, and whether they are a new array, created because there were none.
async fn members_in(machine: &Machine, directory: &Path) -> Result<(Vec<PathBuf>, bool), Failure> {
    if let Ok(members) = expand(&[pattern(directory).into_os_string()]) {
        for member in &members {
            ownership::check_file(member).map_err(|error| not_own(member, &error))?;
        }
        return Ok((members, false));
    }
    let failed = |error| Failure::refused(format!("{}: cannot create: {error}", directory.display()));
    let is_new = !directory.exists();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    // Another user may have created it in the meantime.
    ownership::check_directory(directory).map_err(|error| not_own(directory, &error))?;
    let members: Vec<PathBuf> = (0..MEMBERS).map(|index| directory.join(format!("member{index}.img"))).collect();
    let slots: Vec<_> = members.iter().cloned().map(Some).collect();
    let recipe = Recipe { name: "mdspace".to_owned(), ..default_recipe(Level::Raid5)? };
    let devices = Devices { slots: &slots, spares: &[], journal: None };
    if let Err(failure) = create(machine, recipe, devices, Some(Size(MEMBER_BYTES)), None).await {
        if is_new {
            drop(std::fs::remove_dir(directory)); // `create` has removed its members; other files stay
        }
        return Err(failure);
    }
    Ok((members, true))
}

/// The glob of the members in `directory`.
fn pattern(directory: &Path) -> PathBuf {
    directory.join("member*.img")
}

/// The next commands for a new user. Only an array without data gets a line that writes.
fn next_steps(server: &ArrayServer<'_>, members: &[PathBuf], is_new: bool) -> String {
    let mdspace = std::env::args_os().next().map_or_else(|| "mdspace".to_owned(), |path| name_of(Path::new(&path)));
    let page = server.http().map(|url| format!("In a browser: {url}/\n")).unwrap_or_default();
    let uri = format!("'{}'", server.nbd());
    let clients = NBD_CLIENTS.iter().filter(|(program, _)| is_installed(program));
    let clients: String = clients.map(|(_, line)| format!("  {}\n", line.replace("URI", &uri))).collect();
    let (change, outcome) = change(&server.status(), members, &mdspace);
    let members = pattern(Path::new(UP_DIRECTORY)).display().to_string();
    let copy = match is_new {
        true => format!(
            "  echo 'hello, array' | {mdspace} write '{members}'\n  {mdspace} read '{members}' --length 13 | cat\n"
        ),
        false => format!("  {mdspace} read '{members}' --length 64 | od -c\n"),
    };
    format!(
        "\n{page}In another terminal, in this directory:\n\
         \x20 {mdspace} status\n\
         {clients}\
         {change}\
         \x20 {mdspace} stop\n\
         {outcome} When the array is stopped:\n\
         {copy}\
         `up` continues with the same array.\n"
    )
}

/// Commands that change which members the array has, and what they do.
fn change(status: &Status, members: &[PathBuf], mdspace: &str) -> (String, &'static str) {
    if status.missing.is_empty() {
        let first = members.first().map(|path| name_of(path)).unwrap_or_default();
        let lines = format!("  {mdspace} scrub\n  {mdspace} fail {first}\n");
        return (lines, "`fail` takes a member away, and the data stays the same.");
    }
    if let Some(lost) = status.left_out.first() {
        let line = format!("  {mdspace} add --force {}\n", lost.name);
        return (line, "The array lacks that member; `add` rebuilds it.");
    }
    let new = (0..).map(|index| Path::new(UP_DIRECTORY).join(format!("member{index}.img")));
    let new = new.into_iter().find(|path| !path.exists()).expect("a directory has room for names");
    let (new, bytes) = (name_of(&new), MEMBER_BYTES);
    let lines = format!("  truncate -s {bytes} {new}\n  {mdspace} add {new}\n");
    (lines, "The array lacks a member; the new file becomes one.")
}

/// Whether a shell finds `program` on `PATH`.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_executable =
        |path: &Path| path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&path).any(|directory| is_executable(&directory.join(program)))
}
