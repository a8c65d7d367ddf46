//! FUSE: the array as a file in a directory.

use super::Way;
use crate::command::output::tell;
use crate::command::volume::Served;
use export::fuse::{FILE_NAME, Mounted};
use futures_util::future::LocalBoxFuture;
use std::path::{Path, PathBuf};

/// A mounted array.
pub(super) struct FuseWay {
    mounted: Mounted,
    path: PathBuf,
}

impl FuseWay {
    pub(super) fn open(volume: &Served, mountpoint: &Path) -> std::io::Result<Self> {
        let path = std::path::absolute(mountpoint)?.join(FILE_NAME);
        Ok(Self { mounted: Mounted::mount(mountpoint, volume.clone())?, path })
    }
}

impl Way for FuseWay {
    fn kind(&self) -> &'static str {
        "FUSE"
    }

    fn address(&self) -> String {
        self.path.display().to_string()
    }

    fn clients(&self) -> usize {
        self.mounted.opened()
    }

    /// Whoever unmounts it does not mean the other ways in.
    fn failed(&mut self) -> LocalBoxFuture<'_, std::io::Error> {
        Box::pin(std::future::pending())
    }

    fn stop(self: Box<Self>, grace: LocalBoxFuture<'static, ()>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            if let Err(error) = self.mounted.unmount(grace).await {
                tell!("note: {}: not unmounted: {error}; its users get errors from now on", self.path.display());
            }
        })
    }
}
