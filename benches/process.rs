//! CPU time and memory of a process.

use std::time::Duration;

/// Returns the CPU time that the process has used so far. The time includes user and system time, and the
/// time of threads that have ended.
///
/// # Panics
/// Panics if the process has ended.
pub fn cpu_time(pid: u32) -> Duration {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls write one value, which lives through the call.
    unsafe {
        assert_eq!(libc::clock_getcpuclockid(pid.cast_signed(), &raw mut clock), 0, "the process lives");
        assert_eq!(libc::clock_gettime(clock, &raw mut time), 0, "the process lives");
    }
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned() as u32)
}

/// Gives the lowest scheduling class to the calling thread, and to the threads and processes that it starts
/// later. Other processes then run whenever they need the processor.
pub fn yield_to_others() {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure lives through the call. The call cannot fail, because the thread lowers its own
    // priority.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) };
}

/// The cores of this process, divided into two halves to simulate servers and clients on different machines.
/// If there is only one core, servers and clients share this core.
pub struct Halves {
    servers: Vec<usize>,
    clients: Vec<usize>,
}

impl Halves {
    /// Divides the cores of the calling thread, and restricts the thread to the cores of the clients from now
    /// on.
    pub fn divide() -> Halves {
        let mut servers = cores();
        let clients = match servers.len() {
            1 => servers.clone(),
            count => servers.split_off(count.div_ceil(2)),
        };
        run_on(&clients);
        Halves { servers, clients }
    }

    /// Runs `start` on the cores of the servers. Server processes that `start` creates stay on these cores.
    pub fn on_servers<T>(&self, start: impl FnOnce() -> T) -> T {
        run_on(&self.servers);
        let started = start();
        run_on(&self.clients);
        started
    }
}

/// Returns the cores that the calling thread may use.
fn cores() -> Vec<usize> {
    // SAFETY: the set is plain data, and zeros are a valid empty set. The set lives through the call.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let result = libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        assert_eq!(result, 0, "cannot tell the cores: {}", std::io::Error::last_os_error());
        set
    };
    // SAFETY: each number is less than the number of cores that the set can hold.
    (0..libc::CPU_SETSIZE as usize).filter(|core| unsafe { libc::CPU_ISSET(*core, &set) }).collect()
}

/// Restricts the calling thread, and the threads and processes that it starts from now on, to these cores.
fn run_on(cores: &[usize]) {
    // SAFETY: the set is plain data, and zeros are a valid empty set. The set lives through the call.
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
