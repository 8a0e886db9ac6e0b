//! CPU time and memory of a process, from /proc.

use std::time::Duration;

/// Returns the CPU time of the process so far, user and system, of its current threads.
pub fn cpu_time(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
    // A thread may end after it was listed and before it is read.
    let on_cpu_ns = |task: std::fs::DirEntry| -> Option<u64> {
        std::fs::read_to_string(task.path().join("schedstat")).ok()?.split_whitespace().next()?.parse().ok()
    };
    Duration::from_nanos(tasks.flatten().filter_map(on_cpu_ns).sum())
}

/// Gives the calling thread, and its future threads and processes, the lowest scheduling class, so that
/// others run whenever they need to.
pub fn yield_to_others() {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure lives through the call. The call cannot fail, because the thread lowers its own
    // priority.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) };
}

/// The cores of this process in two halves, as if servers and their clients were on different machines. With
/// one core both share it.
pub struct Halves {
    servers: Vec<usize>,
    clients: Vec<usize>,
}

impl Halves {
    /// Divides the cores of the calling thread, and restricts the thread to those of the clients from now on.
    pub fn divide() -> Halves {
        let mut servers = cores();
        let clients = match servers.len() {
            1 => servers.clone(),
            count => servers.split_off(count.div_ceil(2)),
        };
        run_on(&clients);
        Halves { servers, clients }
    }

    /// Runs a function that starts server processes, on the cores of the servers.
    pub fn on_servers<T>(&self, start: impl FnOnce() -> T) -> T {
        run_on(&self.servers);
        let started = start();
        run_on(&self.clients);
        started
    }
}

/// Returns the cores that the calling thread may use.
fn cores() -> Vec<usize> {
    // SAFETY: the set is plain data, for which zeros are the empty set, and lives through the call.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let result = libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        assert_eq!(result, 0, "cannot tell the cores: {}", std::io::Error::last_os_error());
        set
    };
    // SAFETY: the numbers are within the set.
    (0..libc::CPU_SETSIZE as usize).filter(|core| unsafe { libc::CPU_ISSET(*core, &set) }).collect()
}

/// Restricts the calling thread, and the threads and processes that it starts from now on, to these cores.
fn run_on(cores: &[usize]) {
    // SAFETY: the set is plain data, for which zeros are the empty set, and lives through the call.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for core in cores {
            libc::CPU_SET(*core, &mut set);
        }
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    assert_eq!(result, 0, "cannot choose cores: {}", std::io::Error::last_os_error());
}

/// Memory of a process in KiB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Resident memory, including mapped files.
    pub resident: u64,
    /// Resident anonymous memory: heap and stacks.
    pub anonymous: u64,
}

/// Returns the current resident memory of the process.
pub fn memory(pid: u32) -> Memory {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let member = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel says it");
        line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number of KiB")
    };
    Memory { resident: member("VmRSS:"), anonymous: member("RssAnon:") }
}
