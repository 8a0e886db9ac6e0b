//! Calls a function when the parent process ends.
//!
//! This module does not use the kernel's signal for the end of the parent (`PR_SET_PDEATHSIG`). The kernel sends this
//! signal when the *thread* that started the process ends, but test runners start servers in threads that end early. A
//! descriptor of the parent process (`pidfd_open`) becomes readable only when the whole process has ended.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getpid, getppid, pidfd_open};

/// Pause between two checks of the parent, if the system cannot report the end of the parent.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// Calls `ended` when the parent of this process ends. The function calls `ended` at once if the parent has
/// already ended, and otherwise later in a separate thread. The function never calls `ended` if the parent is
/// in another process namespace.
///
/// # Errors
/// The system cannot start a thread.
pub fn when_parent_ends(ended: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let Some(parent) = getppid() else { return Ok(()) };
    let descriptor = pidfd_open(parent, PidfdFlags::empty()).ok();
    // Before the descriptor was opened, the parent may have ended, and another process may have got its number.
    if was_adopted(parent) || getppid() != Some(parent) {
        ended();
        return Ok(());
    }
    let watch = move || {
        wait_for_end(parent, descriptor);
        ended();
    };
    std::thread::Builder::new().name("parent".to_owned()).spawn(watch).map(drop)
}

/// Returns whether this process has another parent than the process that started it. A process inherits the session of
/// the process that starts it. So if the sessions of this process and its parent differ, and this process did not begin
/// a new session, the original parent has ended. The function does not detect a new parent in the same session, such as
/// the first process of a container.
fn was_adopted(parent: Pid) -> bool {
    let own = session(getpid());
    let begins_session = own == Some(getpid().as_raw_pid());
    !begins_session && session(parent) != own
}

/// Returns the number of the session of a process, or `None` if the process does not exist. The number is 0 if the
/// first process of the session is in another process namespace, for example if a command in a container was started
/// from outside the container. This function exists because `rustix::process::getsid` panics in this case.
fn session(process: Pid) -> Option<libc::pid_t> {
    // SAFETY: the parameter and the result of the call are numbers.
    let session = unsafe { libc::getsid(process.as_raw_pid()) };
    (session >= 0).then_some(session)
}

/// Waits until the parent has ended.
fn wait_for_end(parent: Pid, descriptor: Option<OwnedFd>) {
    if let Some(descriptor) = descriptor {
        let mut watched = [PollFd::new(&descriptor, PollFlags::IN)];
        loop {
            match poll(&mut watched, None) {
                Err(Errno::INTR) => {}
                Err(_) => break,
                Ok(_) => return,
            }
        }
    }
    while getppid() == Some(parent) {
        std::thread::sleep(LOOK_PAUSE);
    }
}
