//! Signals: those that ask a server to stop, the one for a file over the size limit, and threads that receive none. It
//! never installs a handler that runs code. SIGHUP asks to stop, too, unless the process was started to ignore it, as by
//! nohup. Source: signal(7), pthread_sigmask(3).

use crate::descriptor::Descriptor;
use crate::system::signals;
use crate::transfer;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A signal that asks the process to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT, from the keyboard.
    Interrupt,
    /// SIGTERM, from a service manager.
    Terminate,
    /// SIGHUP: the terminal was closed.
    Hangup,
}

impl Signal {
    /// The signal with this number, one of those that ask to stop.
    pub(crate) fn of(number: libc::c_int) -> Self {
        match number {
            libc::SIGINT => Self::Interrupt,
            libc::SIGHUP => Self::Hangup,
            _ => Self::Terminate,
        }
    }
}

/// The signals that ask this process to stop.
pub(crate) fn asking() -> impl Iterator<Item = libc::c_int> {
    [libc::SIGINT, libc::SIGTERM].into_iter().chain((!is_ignored(libc::SIGHUP)).then_some(libc::SIGHUP))
}

/// Whether the process ignores the signal. Blocked, it would arrive all the same.
fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: a sigaction is plain data, which the call fills; it changes nothing, as no new one is given.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Completes when the process is asked to stop.
///
/// The first call blocks these signals for the calling thread, and for threads that it starts later. They stay blocked.
/// Threads that exist already must not receive the signals, so the first call belongs before their start. Child
/// processes inherit the block.
///
/// # Errors
/// When the system has no descriptors left.
///
/// # Panics
/// When the thread has no executor.
pub fn terminated() -> io::Result<impl Future<Output = io::Result<Signal>>> {
    let descriptor = Descriptor::new(signals::open()?);
    Ok(async move {
        // Polls before it reads. On Linux 6.1 a waiting read runs in a kernel thread, and was seen to stay there when
        // the signal arrived.
        loop {
            match signals::take(descriptor.as_fd())? {
                Some(signal) => return Ok(signal),
                None => transfer::poll_readable(&descriptor).await.0.map(drop)?,
            }
        }
    })
}

/// The signals that ask to stop, for a program without an executor: they are blocked, and a thread of its own waits for them.
pub struct Terminations {
    asking: libc::sigset_t,
}

impl Terminations {
    /// Blocks these signals, as [`terminated`] does.
    ///
    /// # Errors
    /// When the system refuses that.
    pub fn block() -> io::Result<Self> {
        Ok(Self { asking: block()? })
    }

    /// Waits until one of them arrives.
    ///
    /// # Errors
    /// When the system refuses that.
    pub fn wait(&self) -> io::Result<Signal> {
        let mut number = 0;
        // SAFETY: both pointers are to values of ours, valid during the call.
        match unsafe { libc::sigwait(&raw const self.asking, &raw mut number) } {
            0 => Ok(Signal::of(number)),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Lets these signals reach the process that `command` starts, although this one has blocked them.
pub fn deliver_to(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec the closure calls only functions that signal-safety(7) lists.
    unsafe { command.pre_exec(|| change(libc::SIG_UNBLOCK).map(drop)) }
}

/// Blocks the signals that ask to stop for the calling thread; returns the set of them.
pub(crate) fn block() -> io::Result<libc::sigset_t> {
    change(libc::SIG_BLOCK)
}

/// Blocks or unblocks them for the calling thread.
fn change(how: libc::c_int) -> io::Result<libc::sigset_t> {
    // SAFETY: a sigset_t is plain data, set up by sigemptyset before any use; the calls get pointers to it that are
    // valid while they run, and the signal numbers exist.
    unsafe {
        let mut set = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in asking() {
            libc::sigaddset(&raw mut set, signal);
        }
        match libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) {
            0 => Ok(set),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Makes a write beyond the limit on file size (`RLIMIT_FSIZE`) fail, where the system would otherwise kill the process
/// (SIGXFSZ). This applies to the whole process, so only a program's `main` should call it. Child processes inherit it.
pub fn ignore_file_size_limit_signal() {
    // SAFETY: SIG_IGN runs no code of ours, and the signal exists. It cannot fail for a signal that can be ignored.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Blocks every signal of the current thread, for threads that it makes meanwhile. A thread with signals blocked never runs
/// a handler of the program.
pub struct AllBlocked {
    before: libc::sigset_t,
    /// The mask is the thread's own, so the value stays on it.
    of_thread: PhantomData<*const ()>,
}

impl AllBlocked {
    /// Blocks all signals, until it is dropped.
    #[expect(clippy::new_without_default, reason = "it acts on the thread")]
    pub fn new() -> Self {
        // SAFETY: a sigset_t is plain data, set up by sigfillset before its use; the calls get pointers to it that are
        // valid while they run. They cannot fail with these arguments.
        unsafe {
            let (mut all, mut before) = (mem::zeroed(), mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self { before, of_thread: PhantomData }
        }
    }
}

impl Drop for AllBlocked {
    fn drop(&mut self) {
        // SAFETY: the mask that the thread had.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        }
    }
}
