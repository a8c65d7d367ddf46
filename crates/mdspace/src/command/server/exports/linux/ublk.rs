//! ublk: the array as a block device of this machine.

use super::super::OpenExport;
use super::OTHER_BLOCK_DEVICES;
use crate::command::server::volume::Served;
use crate::command::text::failure::Failure;
use crate::command::text::output::tell;
use export::ublk::BlockDevice;
use futures_util::future::LocalBoxFuture;
use io::Backend;
use io::ublk::CONTROL;
use std::io::ErrorKind;

/// A block device.
pub(super) struct UblkExport(BlockDevice);

impl UblkExport {
    pub(super) async fn open(volume: &Served) -> Result<Self, Failure> {
        if io::current_backend() != Backend::IoUring {
            let advice = format!("allow io_uring (and start without --io threads); or {OTHER_BLOCK_DEVICES}");
            let reason = "--ublk: its driver takes commands from an io_uring alone, and this server runs on threads";
            return Err(Failure::refused(reason).advise(advice));
        }
        if !std::fs::exists(CONTROL).unwrap_or(true) {
            let reason = format!("--ublk: this kernel has no ublk driver ({CONTROL} is not there)");
            let advice = format!("load it with `modprobe ublk_drv` (Linux 6.5 or later); or {OTHER_BLOCK_DEVICES}");
            return Err(Failure::refused(reason).advise(advice));
        }
        let device = BlockDevice::start(volume.clone()).await.map_err(|error| {
            let failure = Failure::refused(format!("--ublk: {error}"));
            match error.kind() {
                ErrorKind::PermissionDenied => failure.advise(format!("run it as root; or {OTHER_BLOCK_DEVICES}")),
                _ => failure.advise(format!("docs/ublk.md lists what it needs; or {OTHER_BLOCK_DEVICES}")),
            }
        })?;
        Ok(Self(device))
    }
}

impl OpenExport for UblkExport {
    fn kind(&self) -> &'static str {
        "ublk"
    }

    fn address(&self) -> String {
        self.0.path()
    }

    /// The kernel's driver is the only client.
    fn clients(&self) -> usize {
        1
    }

    fn failed(&mut self) -> LocalBoxFuture<'_, std::io::Error> {
        Box::pin(self.0.failed())
    }

    fn stop(self: Box<Self>, grace: LocalBoxFuture<'static, ()>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let path = self.address();
            if let Err(error) = self.0.stop(grace).await {
                tell!("note: {path}: cannot be stopped: {error}; from now on it returns errors");
            }
        })
    }
}
