//! Counters that wake whoever waits for them (eventfd), shared with other
//! processes: how a virtual machine and a device ring each other's bell.
//!
//! The other side may have made its end non-blocking or not; both work, and
//! neither can stop this thread.

use crate::descriptor::Descriptor;
use crate::transfer;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// One eventfd. Clones are the same.
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

    /// Waits until the counter is not 0, and sets it to 0. One at a time.
    ///
    /// # Errors
    /// When `fd` is nothing that counts.
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

    /// Adds 1, which wakes the other side. A counter that is full has done so already.
    ///
    /// # Errors
    /// When `fd` is nothing that counts.
    pub async fn signal(&self) -> io::Result<()> {
        let (written, _) = transfer::write_bytes(&self.0, 1_u64.to_ne_bytes().to_vec().into()).await;
        match written {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

/// A file or pipe that somebody else fills.
pub struct Inlet(Rc<Descriptor>);

impl Inlet {
    /// Watches what `fd` is of.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub fn new(fd: OwnedFd) -> Self {
        Self(Descriptor::new(fd))
    }

    /// Waits until there is something to read, or nothing will come any more.
    ///
    /// # Errors
    /// When the kernel cannot wait for such a descriptor.
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
    use crate::{Executor, Options, spawn};
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn an_event_wakes_its_waiter_whether_its_descriptor_blocks_or_not() {
        let executor = Executor::new(&Options::new(engine::Pool::new(4096))).expect("an executor");
        for flags in [EventfdFlags::CLOEXEC, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK] {
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
                event.wait().await.expect("what was signalled before is not lost");
            });
        }
    }
}
