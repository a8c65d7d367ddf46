//! `mdspace web`: a page of all arrays that this user's servers serve, with the page of each below it.
//!
//! It opens no member. The list is that of `mdspace list`, and all other requests go to the control socket of their array:
//! [`export::control::Machine`].

use crate::command::clients::list::entry;
use crate::command::clients::served::ask_all;
use crate::command::opening::sockets::{control_sockets, harmless};
use crate::command::server::arguments::HttpProtection;
use crate::command::server::control::Http;
use crate::command::server::nbd_address::parse_address;
use crate::command::text::failure::Failure;
use crate::command::text::output::print;
use crate::in_memory::digest;
use clap::Args;
use export::control::Machine;
use io::signal::Terminations;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// `web`
#[derive(Debug, Args)]
#[command(after_help = "\
The list is at /, an array's page and routes below /arrays/NAME/, and the list as JSON at /v1/arrays. Arrays come and \
go while it runs.

Exit status: 0 after SIGINT or SIGTERM; 2 refused.")]
pub(crate) struct WebArguments {
    /// The address; where other machines reach it, only with --http-tls-certificates and --http-token-file
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address, default_value = "127.0.0.1:9186")]
    http: SocketAddr,

    #[command(flatten)]
    protection: HttpProtection,

    /// Also the server with this control socket; may be given several times
    #[arg(long, value_name = "PATH")]
    control: Vec<PathBuf>,
}

/// Runs `mdspace web`.
pub(crate) fn run(arguments: &WebArguments) -> Result<(), Failure> {
    let refused = |error: std::io::Error| Failure::refused(error.to_string());
    let terminations = Terminations::block().map_err(refused)?;
    let arrays = Arrays { further: arguments.control.clone(), listed: Mutex::default() };
    let (server, url) = Http::serve_machine(arguments.http, &arguments.protection, arrays)?;
    print(&format!("{url}/\n"))?;
    terminations.wait().map_err(refused)?;
    server.stop();
    Ok(())
}

/// The arrays that this user's servers serve.
struct Arrays {
    /// Control sockets elsewhere.
    further: Vec<PathBuf>,
    /// The last list, and when it was made. It is locked while the servers are asked: any number of browsers then costs
    /// each server one request at a time.
    listed: Mutex<Option<(Instant, Value)>>,
}

/// How long a list is shown to further browsers.
const FRESH: Duration = Duration::from_secs(1);

impl Arrays {
    /// The control sockets, each with its name in URLs.
    fn sockets(&self) -> Vec<(String, PathBuf)> {
        let mut sockets = control_sockets();
        let others: Vec<_> = self.further.iter().filter(|path| !sockets.contains(path)).cloned().collect();
        sockets.extend(others);
        names_in_url(sockets)
    }

    fn ask(&self) -> Value {
        let named = self.sockets();
        let entries = ask_all(named.iter().map(|(_, socket)| socket.clone()).collect()).into_iter().map(|served| {
            let mut entry = entry(&served);
            let name = named.iter().find(|(_, socket)| *socket == served.socket).map_or("", |(name, _)| name);
            entry["page"] = format!("arrays/{name}/").into();
            entry
        });
        entries.collect()
    }
}

impl Machine for Arrays {
    fn list(&self) -> Value {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, list)) = &*listed
            && at.elapsed() < FRESH
        {
            return list.clone();
        }
        let list = self.ask();
        *listed = Some((Instant::now(), list.clone()));
        list
    }

    fn socket(&self, name: &str) -> Option<PathBuf> {
        self.sockets().into_iter().find_map(|(own, socket)| (own == name).then_some(socket))
    }
}

/// Names sockets in URLs. Of those that would have one name, all but the first have a hash of their paths as well.
fn names_in_url(sockets: Vec<PathBuf>) -> Vec<(String, PathBuf)> {
    let mut named: Vec<(String, PathBuf)> = Vec::new();
    for socket in sockets {
        let mut name = name_in_url(&socket);
        if named.iter().any(|(other, _)| *other == name) {
            let [a, b, c, d, ..] = digest(&socket);
            name += &format!("-{:08x}", u32::from_be_bytes([a, b, c, d]));
        }
        named.push((name, socket));
    }
    named
}

/// The name of a control socket's array in URLs: its file name without the ending.
fn name_in_url(socket: &Path) -> String {
    let file = socket.file_name().unwrap_or_default().to_string_lossy();
    harmless(file.strip_suffix(".control.sock").or(file.strip_suffix(".sock")).unwrap_or(&file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_sockets_have_one_name_in_urls() {
        let sockets = ["a/control.sock", "b/control.sock", "c/control.sock", "a/other.sock"].map(PathBuf::from);
        let named = names_in_url(sockets.to_vec());
        assert_eq!((&*named[0].0, &*named[3].0), ("control", "other"));
        let names: std::collections::BTreeSet<&String> = named.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 4, "{names:?}");
        assert_eq!(names_in_url(named.iter().map(|(_, socket)| socket.clone()).collect()), named, "they stay");
    }

    #[test]
    fn an_array_is_named_in_urls_by_harmless_letters() {
        for (socket, expected) in [
            ("/run/mdspace/music-0011aabb.control.sock", "music-0011aabb"),
            ("mdspace-data/control.sock", "control"),
            ("/tmp/my array?", "my_array_"),
        ] {
            assert_eq!(name_in_url(Path::new(socket)), expected);
        }
    }
}
