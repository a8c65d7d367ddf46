//! `mdspace web`: a page of all arrays that this user's servers serve, with the page of each below it.
//!
//! It opens no member. The list is that of `mdspace list`, and requests for an array go to its control socket:
//! [`control::Machine`]. New arrays are created by a command of its own ([`crate::command::cli::web_create`]).

use crate::command::cli::web_create::Creating;
use crate::command::clients::list::entry;
use crate::command::clients::served::ask_all;
use crate::command::opening::sockets::{control_sockets, harmless, is_in_own_directory};
use crate::command::server::arguments::HttpProtection;
use crate::command::server::control::Http;
use crate::command::server::nbd_address::parse_address;
use crate::command::text::failure::Failure;
use crate::command::text::output::print;
use crate::in_memory::digest;
use clap::Args;
use control::{Creation, Machine};
use io::signal::Terminations;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// `web`
#[derive(Debug, Args)]
#[command(after_help = "\
The list is at /, an array's page and routes below /arrays/NAME/, and the list as JSON at /v1/arrays. Arrays come and \
go while it runs.

Exit status: 0 after SIGINT, SIGTERM or SIGHUP; 2 refused.")]
pub(crate) struct WebArguments {
    /// The address; where other machines reach it, only with --http-tls-certificates and --http-token-file
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address, default_value = "127.0.0.1:9186")]
    http: SocketAddr,

    #[command(flatten)]
    protection: HttpProtection,

    /// Create arrays of devices and files, for clients that send the token. As by `create` without --force, members that
    /// hold something known are refused
    #[arg(long, requires = "http_token_file")]
    allow_create: bool,

    /// Also the server with this control socket; may be given several times
    #[arg(long, value_name = "PATH")]
    control: Vec<PathBuf>,
}

/// Runs `mdspace web`.
pub(crate) fn run(arguments: &WebArguments) -> Result<(), Failure> {
    let refused = |error: std::io::Error| Failure::refused(error.to_string());
    let terminations = Terminations::block().map_err(refused)?;
    let creating = arguments.allow_create.then(Creating::default);
    let arrays = Arrays { further: arguments.control.clone(), listed: Mutex::default(), creating };
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
    /// The last list, and when the servers were first asked for it. It is locked while they are: any number of browsers
    /// costs each server one request at a time, whose answer is for all that came before it.
    listed: Mutex<Option<(Instant, Value)>>,
    creating: Option<Creating>,
}

impl Arrays {
    fn sockets(&self) -> Vec<PathBuf> {
        let mut sockets = control_sockets();
        for path in &self.further {
            if !sockets.contains(path) {
                sockets.push(path.clone());
            }
        }
        sockets
    }

    fn ask(&self) -> Value {
        let entries = ask_all(self.sockets()).into_iter().map(|served| {
            let mut entry = entry(&served);
            entry["page"] = format!("arrays/{}/", name_in_url(&served.socket)).into();
            entry
        });
        entries.collect()
    }
}

impl Machine for Arrays {
    fn list(&self) -> Value {
        let came = Instant::now();
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((asked, list)) = &*listed
            && *asked > came
        {
            return list.clone();
        }
        let asked = Instant::now();
        let list = self.ask();
        *listed = Some((asked, list.clone()));
        list
    }

    fn socket(&self, name: &str) -> Option<PathBuf> {
        self.sockets().into_iter().find(|socket| name_in_url(socket) == name)
    }

    fn creation(&self) -> Option<&dyn Creation> {
        self.creating.as_ref().map(|creating| creating as &dyn Creation)
    }
}

/// The name of a control socket's array in URLs: its file name without the ending. In the directory of this user's servers
/// that has digits of the uuid. Elsewhere a hash of the path follows. Nothing else decides it, so that a page never leads
/// to another array.
fn name_in_url(socket: &Path) -> String {
    let file = socket.file_name().unwrap_or_default().to_string_lossy();
    let name = harmless(file.strip_suffix(".control.sock").or(file.strip_suffix(".sock")).unwrap_or(&file));
    if is_in_own_directory(socket) {
        return name;
    }
    let [a, b, c, d, ..] = digest(&socket);
    format!("{name}-{:08x}", u32::from_be_bytes([a, b, c, d]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::opening::sockets::own_place;

    #[test]
    fn sockets_of_one_file_name_have_names_of_their_own_in_urls() {
        let names = ["a/control.sock", "b/control.sock", "/c/control.sock"].map(|path| name_in_url(Path::new(path)));
        assert!(names.iter().all(|name| name.starts_with("control-")), "{names:?}");
        assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2], "{names:?}");
    }

    #[test]
    fn an_array_is_named_in_urls_by_harmless_letters() {
        let name = name_in_url(Path::new("/tmp/my array?"));
        assert_eq!(name.rsplit_once('-').map(|(name, _)| name), Some("my_array_"));
        if let Some(own) = own_place("music-0011aabb.control.sock") {
            assert_eq!(name_in_url(&own), "music-0011aabb");
        }
    }
}
