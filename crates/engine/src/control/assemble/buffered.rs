//! Writes that an earlier server answered from memory, and that members may lack: they are found in the write buffer when
//! the array is assembled, and written once it runs.
//!
//! Their answer promised that they outlive that server. So an array is not assembled beside them: they are
//! written, or the caller drops them by `force`.

use crate::control::assemble::AssembleOptions;
use crate::control::assemble::agreement::Warnings;
use crate::control::offer::FindWriteBuffer;
use crate::control::state::Control;
use crate::device::context::DeviceContext;
use crate::device::write_buffer::{BufferedWrites, Found, FoundWrite, look};
use crate::seam::clock::Clock;
use crate::seam::durability::Durability;
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use format::superblock::{Superblock, Version};

/// Gives the array its write buffer, and returns what is to be written. `freshest` is the superblock on the members.
pub(super) fn take(
    find: Option<FindWriteBuffer>,
    freshest: &Superblock,
    context: &DeviceContext,
    warnings: &mut Warnings,
    options: &AssembleOptions,
) -> Result<Vec<FoundWrite>, Refusal> {
    // Other levels write through, and superblocks 0.90 cannot be vouched for.
    let has_buffer = freshest.level.has_parity() && freshest.version != Version::V0_90;
    let Some(find) = find.filter(|_| has_buffer) else { return Ok(Vec::new()) };
    let Some(mut memory) = find(freshest.set_uuid)? else { return Ok(Vec::new()) };
    let found = look((*memory).as_mut(), freshest);
    let dropped = match &found {
        Found::Nothing => None,
        Found::Writes(writes) => {
            let bytes: usize = writes.iter().map(|(_, data)| data.len()).sum();
            options.read_only.then(|| {
                let reason = format!("an earlier server answered {bytes} bytes of writes that members may lack");
                Refusal::new(reason)
                    .advice("serve the array for writing, which writes them; --force reads without them")
            })
        }
        Found::Void(bytes) => Some(
            Refusal::new(format!(
                "an earlier server answered {bytes} bytes of writes, and other software has written the members since"
            ))
            .advice(if options.read_only { "--force reads without them" } else { "--force drops them" }),
        ),
    };
    match dropped {
        Some(refusal) if !options.force => return Err(refusal.field("write buffer")),
        Some(refusal) => {
            let fate = if options.read_only { "left out" } else { "dropped" };
            warnings.texts.push(format!("{}; they are {fate}", refusal.reason));
        }
        None => {}
    }
    if options.read_only {
        return Ok(Vec::new());
    }
    if context.write_buffer.set(BufferedWrites::take(memory, freshest)).is_err() {
        unreachable!("an array is assembled once");
    }
    Ok(match found {
        Found::Writes(writes) => writes,
        Found::Nothing | Found::Void(_) => Vec::new(),
    })
}

impl<M: Member, C: Clock> Control<M, C> {
    /// Writes what was found.
    pub(super) async fn write_found(&self, found: Vec<FoundWrite>) -> Result<(), Refusal> {
        if found.is_empty() {
            return Ok(());
        }
        let bytes: usize = found.iter().map(|(_, data)| data.len()).sum();
        for (at, data) in found {
            let block = self.core.pool.copy_of(&data);
            let written = self.data.write(at, block, Durability::Ordinary).await;
            written.map_err(|error| {
                let reason = format!("an earlier server answered {bytes} bytes of writes, which cannot be written");
                Refusal::new(reason).field("write buffer").because(&error.reason)
            })?;
        }
        if let Some(buffer) = self.core.context.write_buffer.get() {
            buffer.free_all();
        }
        tracing::info!(target: crate::LOG_TARGET, "{bytes} bytes that an earlier server had answered are written");
        Ok(())
    }
}
