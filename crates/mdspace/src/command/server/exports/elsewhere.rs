//! The exports that are Linux's own, on another system: each is refused by its name.

use super::OpenExport;
use crate::command::server::arguments::ExportArguments;
use crate::command::server::volume::Served;
use crate::command::text::failure::Failure;

/// Refuses the exports that only Linux has.
pub(super) fn check(arguments: &ExportArguments) -> Result<(), Failure> {
    let wanted = [
        ("--ublk", arguments.ublk),
        #[cfg(feature = "fuse")]
        ("--fuse", arguments.fuse.is_some()),
        #[cfg(feature = "vhost-user")]
        ("--vhost-user", !arguments.vhost_user.is_empty()),
    ];
    match wanted.iter().find(|(_, is_wanted)| *is_wanted) {
        Some((option, _)) => Err(Failure::refused(format!("{option}: this export is Linux's own"))
            .advise("leave it out: --nbd serves the array on this system")),
        None => Ok(()),
    }
}

/// There is nothing else to open.
pub(super) async fn open(
    _name: &str,
    _: &Served,
    _: &ExportArguments,
    _: &mut Vec<Box<dyn OpenExport>>,
) -> Result<(), Failure> {
    Ok(())
}
