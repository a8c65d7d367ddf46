//! vhost-user-blk: the array as a virtual machine's disk.

use super::Way;
use crate::command::volume::Served;
use export::vhost_user::Server;
use futures_util::future::LocalBoxFuture;
use std::path::{Path, PathBuf};

/// A vhost-user-blk server.
pub(super) struct VhostUserWay {
    server: Server,
    path: PathBuf,
}

impl VhostUserWay {
    pub(super) fn open(name: &str, volume: &Served, path: &Path) -> std::io::Result<Self> {
        let path = std::path::absolute(path)?;
        let server = Server::start(&path, volume.clone(), name)?;
        Ok(Self { server, path })
    }
}

impl Way for VhostUserWay {
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

    /// A client takes an answer from memory that it shares, so there is nobody to wait for.
    fn stop(self: Box<Self>, _grace: LocalBoxFuture<'static, ()>) -> LocalBoxFuture<'static, ()> {
        Box::pin(self.server.stop())
    }
}
