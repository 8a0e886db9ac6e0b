//! What a process used, from /proc.

use std::time::Duration;

/// Ticks per second in /proc/<pid>/stat; the same on every Linux there is.
const TICKS_PER_SECOND: u64 = 100;

/// CPU time of the process so far, user and system, of all its threads. In steps of 10 ms.
pub fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process lives");
    // The name in parentheses may contain anything; what follows the last one is numbers.
    let (_, rest) = stat.rsplit_once(')').expect("stat has a name");
    let ticks: u64 =
        rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

/// Memory of a process in KiB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Resident, mapped files included.
    pub resident: u64,
    /// Resident and anonymous: heap and stacks.
    pub anonymous: u64,
}

/// Memory that the process has in RAM now.
pub fn memory(pid: u32) -> Memory {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let member = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel says it");
        line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number of KiB")
    };
    Memory { resident: member("VmRSS:"), anonymous: member("RssAnon:") }
}
