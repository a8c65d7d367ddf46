//! The exports that are Linux's own: vhost-user, FUSE and ublk, each a feature and a file. Other systems refuse them
//! (`elsewhere.rs`).

#[cfg(feature = "fuse")]
mod fuse;
#[cfg(feature = "ublk")]
mod ublk;
#[cfg(feature = "vhost-user")]
mod vhost_user;

use super::OpenExport;
use crate::command::server::arguments::ExportArguments;
use crate::command::server::volume::Served;
use crate::command::text::failure::Failure;

/// Advice: alternatives for a block device.
const OTHER_BLOCK_DEVICES: &str = "use --fuse and a loop device (docs/fuse.md), or --nbd and the kernel's nbd driver";

/// Refuses an export that is not there.
#[cfg(not(feature = "ublk"))]
pub(super) fn check(arguments: &ExportArguments) -> Result<(), Failure> {
    if arguments.ublk {
        return Err(Failure::refused("--ublk: this build does not include it")
            .advise(format!("build with `cargo build --features ublk`; or {OTHER_BLOCK_DEVICES}")));
    }
    Ok(())
}

/// Every export is there that has an option.
#[cfg(feature = "ublk")]
pub(super) fn check(_: &ExportArguments) -> Result<(), Failure> {
    Ok(())
}

/// Opens the exports in `arguments`, and adds them to `exports`.
#[cfg_attr(
    not(all(feature = "fuse", feature = "vhost-user", feature = "ublk")),
    allow(unused_variables, clippy::ptr_arg, reason = "some are for one export alone")
)]
pub(super) async fn open(
    name: &str,
    volume: &Served,
    arguments: &ExportArguments,
    exports: &mut Vec<Box<dyn OpenExport>>,
) -> Result<(), Failure> {
    #[cfg(any(feature = "fuse", feature = "vhost-user"))]
    let refused = |error: std::io::Error| Failure::not_opened(&error);
    #[cfg(feature = "vhost-user")]
    let access = arguments.access.access()?;
    #[cfg(feature = "vhost-user")]
    for path in &arguments.vhost_user {
        exports.push(Box::new(vhost_user::VhostUserExport::open(name, volume, path, access).map_err(refused)?));
    }
    #[cfg(feature = "fuse")]
    if let Some(mountpoint) = &arguments.fuse {
        exports.push(Box::new(fuse::FuseExport::open(volume, mountpoint).map_err(refused)?));
    }
    // Last: of all exports this is the only one that must be stopped if a later one is refused.
    #[cfg(feature = "ublk")]
    if arguments.ublk {
        exports.push(Box::new(ublk::UblkExport::open(volume).await?));
    }
    Ok(())
}
