//! Has the arrays of a server answer writes from memory, as `serve --cache` says, and stops that when the memory goes.
//!
//! The memory is a file that outlives the server ([`crate::write_buffer`]).

use crate::command::opening::members::ArrayUuid;
use crate::command::text::output::tell;
use crate::machine::{Array, Machine};
use crate::write_buffer::Names;
use engine::{Clock, WriteBack};
use futures_util::future::{Either, join_all, select};
use io::RealClock;
use std::pin::pin;
use std::time::Duration;

/// How often a server looks whether the file of its write buffer is still there.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Answers writes of these arrays from memory, as the machine says. The future ends when the arrays have stopped.
pub(crate) fn begin(machine: &Machine, arrays: &[Array]) -> impl Future + use<> {
    let answers = machine.write_back.get();
    if answers.is_some() && arrays.iter().any(Array::is_cache_volatile) {
        tell!(
            "note: there is no memory for writes that outlives this process: if it is killed, answered writes are lost"
        );
    }
    let begun = |array: &Array| Some(io::spawn(write_back(machine.clock.clone(), array.clone(), answers?)));
    join_all(arrays.iter().filter_map(begun).collect::<Vec<_>>())
}

async fn write_back(clock: RealClock, array: Array, answers: WriteBack) {
    let writing = pin!(array.write_back(answers));
    let losing = pin!(memory_is_gone(&clock, &array));
    if let Either::Right(((), writing)) = select(writing, losing).await {
        writing.await;
    }
}

/// Ends when the file of the array's write buffer is gone; then no more writes are answered from memory. Until then the
/// file has a name for each member.
async fn memory_is_gone(clock: &RealClock, array: &Array) {
    let uuid = array.status().uuid.parse().map(|ArrayUuid(uuid)| uuid);
    let (Ok(uuid), false) = (uuid, array.is_cache_volatile()) else { return };
    let Some(mut names) = Names::of(uuid, std::iter::empty()) else { return };
    while names.keep(array.status().members.iter().map(|member| member.name.as_str())) {
        clock.sleep_until(clock.now() + LOOK_INTERVAL).await;
    }
    tracing::warn!("the file of the write buffer was removed: writes are answered when the members have them");
    if let Err(error) = array.write_through().await {
        tracing::error!("writes that were answered from memory cannot be written: {}", error.reason);
    }
}
