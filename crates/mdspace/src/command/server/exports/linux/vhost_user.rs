//! vhost-user-blk: the array as a virtual machine's disk.

use super::super::OpenExport;
use crate::command::server::socket_access::warn_of_closed_directory;
use crate::command::server::volume::Served;
use export::vhost_user::Server;
use futures_util::future::LocalBoxFuture;
use io::net::SocketAccess;
use std::path::{Path, PathBuf};

/// A vhost-user-blk server.
pub(super) struct VhostUserExport {
    server: Server,
    path: PathBuf,
}

impl VhostUserExport {
    pub(super) fn open(name: &str, volume: &Served, path: &Path, access: SocketAccess) -> std::io::Result<Self> {
        let path = std::path::absolute(path)?;
        warn_of_closed_directory(&path, access);
        let server = Server::start(&path, access, volume.clone(), name)?;
        Ok(Self { server, path })
    }
}

impl OpenExport for VhostUserExport {
    fn kind(&self) -> &'static str {
        "vhost-user"
    }

    fn address(&self) -> String {
        self.path.display().to_string()
    }

    fn clients(&self) -> usize {
        self.server.connections()
    }

    fn failed(&mut self) -> LocalBoxFuture<'_, std::io::Error> {
        Box::pin(self.server.ended())
    }

    /// Replies lie in memory that the client shares, so the server waits for no client.
    fn stop(self: Box<Self>, _grace: LocalBoxFuture<'static, ()>) -> LocalBoxFuture<'static, ()> {
        Box::pin(self.server.stop())
    }
}
