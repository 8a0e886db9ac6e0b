//! The runtime of the server: its threads, and in which order they run what is ready (docs/api/fairness.md#turns-of-connections).

use std::io;

use rustix::process::{getpriority_process, setpriority_process};
use tokio::runtime::{Builder, Runtime};

/// After how many turns of tasks a busy thread looks at its sockets. A turn of a long answer takes some 0.1 ms, so with the runtime's
/// own 61 a short request beside a flood of them was seen some milliseconds after it had come.
const TURNS_PER_LOOK: u32 = 4;

/// After how many turns a busy thread runs a task that another thread has made ready, such as a write whose record is on disk. Many
/// become ready at once then, and each waits for those before it; with more turns between them, the last waited for milliseconds.
const TURNS_PER_COMPLETION: u32 = 1;

/// How much nicer the threads that serve requests are than the rest of the process. Where they want all of a core, the thread that
/// commits and those of the kernel that write its records would wait for the end of a time slice, 3 to 4 ms, before and after each
/// sync. They take little, and all writes wait for them.
const NICER: i32 = 5;

/// Nicest (setpriority(2)).
const NICE_MAX: i32 = 19;

/// A runtime for all requests, with a thread for each core.
///
/// # Errors
/// The system gives no threads.
pub fn build() -> io::Result<Runtime> {
    // Threads inherit their niceness, and those of the runtime start each other.
    let nice = getpriority_process(None).ok().map(|nice| (nice + NICER).min(NICE_MAX));
    Builder::new_multi_thread()
        .thread_name("api")
        .event_interval(TURNS_PER_LOOK)
        .global_queue_interval(TURNS_PER_COMPLETION)
        .on_thread_start(move || be_nicer(nice))
        .enable_all()
        .build()
}

/// Lets other threads of the process come first: the calling thread, for good. On Linux a thread has a niceness of its own
/// (setpriority(2), "C library/kernel differences").
fn be_nicer(nice: Option<i32>) {
    if let Some(nice) = nice
        && cfg!(target_os = "linux")
    {
        // Where it may not, it stays as it is.
        let _ = setpriority_process(None, nice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "threads have no niceness of their own")]
    fn threads_of_the_runtime_are_nicer_than_the_others() {
        let own = || getpriority_process(None).unwrap();
        let runtime = build().unwrap();
        let before = own();
        let (task, blocking) = runtime.block_on(async {
            // The thread of the second one is started by the first.
            let task = tokio::spawn(async move { (own(), tokio::task::spawn_blocking(own).await.unwrap()) });
            task.await.unwrap()
        });
        let want = (before + NICER).min(NICE_MAX);
        assert_eq!((task, blocking, own()), (want, want, before));
    }
}
