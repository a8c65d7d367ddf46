//! Wakers without allocation: a task's id is packed into the waker's pointer.
//!
//! Cloning and dropping a waker does nothing, and no count is kept, so wakers really are `Send` and `Sync`. A wake
//! looks for the current thread's executor. If the task is its own, the task becomes ready at once; otherwise the id
//! goes to the owner's inbox ([`crate::remote`]). A waker that outlives its task has no effect. Once in 2^24 reuses of
//! the task's slot it may wake another task, which every future must tolerate anyway. Source: the contract of
//! `std::task::RawWaker`.

use crate::executor::Core;
use crate::remote;
use std::task::{RawWaker, RawWakerVTable, Waker};

const _: () = assert!(usize::BITS == 64, "a task's id fills a pointer of 64 bits");

const INDEX_BITS: u32 = 24;
const GENERATION_BITS: u32 = 24;

/// The id of a task: 16 bits for the executor, 24 for the generation, 24 for the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskId(u64);

impl TaskId {
    /// Indices are smaller than this.
    pub(crate) const INDEX_END: u32 = 1 << INDEX_BITS;

    /// A task of executor 0; see [`TaskId::of`]. The generation is taken modulo 2^24.
    pub(crate) fn new(index: u32, generation: u32) -> Self {
        let generation = u64::from(generation) & ((1 << GENERATION_BITS) - 1);
        Self(u64::from(index) | generation << INDEX_BITS)
    }

    /// The same task with this executor id.
    pub(crate) fn of(self, executor: u16) -> Self {
        let task = self.0 & ((1 << (INDEX_BITS + GENERATION_BITS)) - 1);
        Self(task | u64::from(executor) << (INDEX_BITS + GENERATION_BITS))
    }

    pub(crate) fn index(self) -> u32 {
        self.0 as u32 & (Self::INDEX_END - 1)
    }

    pub(crate) fn executor(self) -> u16 {
        (self.0 >> (INDEX_BITS + GENERATION_BITS)) as u16
    }

    /// Whether index and generation are equal.
    pub(crate) fn same_task(self, other: TaskId) -> bool {
        self.of(0) == other.of(0)
    }

    pub(crate) fn waker(self) -> Waker {
        // SAFETY: the functions of the table treat the pointer as a number and are safe to call with any, from any
        // thread, any number of times.
        unsafe { Waker::from_raw(raw(self.0 as usize as *const ())) }
    }
}

fn raw(data: *const ()) -> RawWaker {
    static TABLE: RawWakerVTable = RawWakerVTable::new(raw, wake, wake, |_| {});
    RawWaker::new(data, &TABLE)
}

fn wake(data: *const ()) {
    let task = TaskId(data as usize as u64);
    let woken = Core::try_current(|core| {
        let own = core.executor_id() == task.executor();
        if own {
            core.wake(task);
        }
        own
    });
    if woken != Some(true) {
        remote::forward(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_yields_its_parts() {
        for (executor, generation, index) in [(0, 0, 0), (1, 2, 3), (u16::MAX, 0x1ff_ffff, TaskId::INDEX_END - 1)] {
            let task = TaskId::new(index, generation).of(executor);
            assert_eq!((task.executor(), task.index()), (executor, index));
            assert!(task.same_task(TaskId::new(index, generation)));
            assert!(!task.same_task(TaskId::new(index, generation + 1)));
        }
    }
}
