//! Counters that wake a waiting task (eventfd), shared with other processes. Virtio devices and drivers notify each
//! other with them.
//!
//! The peer may have set its descriptor to non-blocking or not; both work, and neither can block this thread. Source:
//! eventfd(2).

use crate::descriptor::Descriptor;
use crate::transfer;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// One eventfd. Clones share it.
#[derive(Clone)]
pub struct Event(Rc<Descriptor>);

impl Event {
    /// Uses the eventfd `fd`.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub fn new(fd: OwnedFd) -> Self {
        Self(Descriptor::new(fd))
    }

    /// Waits until the counter is not 0, and resets it to 0. One task may wait at a time.
    ///
    /// # Errors
    /// When `fd` is no eventfd.
    pub async fn wait(&self) -> io::Result<()> {
        loop {
            let (read, _) = transfer::read_bytes(&self.0, vec![0; 8].into()).await;
            match read {
                Ok(8) => return Ok(()),
                Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    transfer::poll_readable(&self.0).await.0?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Adds 1, which wakes the peer. A full counter means that the peer was woken already.
    ///
    /// # Errors
    /// When `fd` is no eventfd.
    pub async fn signal(&self) -> io::Result<()> {
        let (written, _) = transfer::write_bytes(&self.0, 1_u64.to_ne_bytes().to_vec().into()).await;
        match written {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

/// A file or pipe that another process writes.
pub struct Inlet(Rc<Descriptor>);

impl Inlet {
    /// Watches the file of `fd`.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub fn new(fd: OwnedFd) -> Self {
        Self(Descriptor::new(fd))
    }

    /// Waits until there is data to read, or the writer has closed it.
    ///
    /// # Errors
    /// When the kernel cannot poll such a descriptor.
    pub async fn filled(&self) -> io::Result<()> {
        transfer::poll_readable(&self.0).await.0.map(drop)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backend, Choice, Executor, Options, spawn};
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn an_event_wakes_its_waiter_whether_its_descriptor_blocks_or_not() {
        let flags = [EventfdFlags::CLOEXEC, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK];
        for (backend, flags) in Backend::ALL.into_iter().flat_map(|backend| flags.map(|flags| (backend, flags))) {
            let options = Options { backend: Choice::Only(backend), ..Options::new(engine::Pool::new(4096)) };
            let executor = Executor::new(&options).expect("an executor");
            executor.block_on(async {
                let event = Event::new(eventfd(0, flags).expect("an eventfd"));
                let waiting = spawn({
                    let event = event.clone();
                    async move { event.wait().await }
                });
                crate::yield_now().await;
                event.signal().await.expect("room for 1");
                waiting.await.expect("it is an eventfd");
                event.signal().await.expect("room for 1");
                event.wait().await.expect("an earlier signal is not lost");
            });
        }
    }
}
