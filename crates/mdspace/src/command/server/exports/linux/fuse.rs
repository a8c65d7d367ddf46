//! FUSE: the array as a file in a directory.

use super::super::OpenExport;
use crate::command::server::volume::Served;
use crate::command::text::output::tell;
use export::fuse::{FILE_NAME, Mounted};
use futures_util::future::LocalBoxFuture;
use std::path::{Path, PathBuf};

/// A mounted array.
pub(super) struct FuseExport {
    mounted: Mounted,
    path: PathBuf,
}

impl FuseExport {
    pub(super) fn open(volume: &Served, mountpoint: &Path) -> std::io::Result<Self> {
        let path = std::path::absolute(mountpoint)?.join(FILE_NAME);
        Ok(Self { mounted: Mounted::mount(mountpoint, volume.clone())?, path })
    }
}

impl OpenExport for FuseExport {
    fn kind(&self) -> &'static str {
        "FUSE"
    }

    fn address(&self) -> String {
        self.path.display().to_string()
    }

    fn clients(&self) -> usize {
        self.mounted.opened()
    }

    /// A user who unmounts the file does not stop the other exports.
    fn failed(&mut self) -> LocalBoxFuture<'_, std::io::Error> {
        Box::pin(std::future::pending())
    }

    fn stop(self: Box<Self>, grace: LocalBoxFuture<'static, ()>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            if let Err(error) = self.mounted.unmount(grace).await {
                tell!("note: {}: cannot be unmounted: {error}; from now on it returns errors", self.path.display());
            }
        })
    }
}
