//! Resource usage of this process, read from `/proc` (proc(5)).

use std::time::Duration;

use wire::metrics::Usage;

/// Returns the resource usage of this process, or `None` if there is no `/proc`.
pub fn usage() -> Option<Usage> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let ticks = rustix::param::clock_ticks_per_second();
    let mut usage = parse(&stat, ticks, rustix::param::page_size() as u64)?;
    usage.open_files = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    usage.max_files = max(&limits, "Max open files")?;
    usage.max_virtual_bytes = max(&limits, "Max address space").unwrap_or(u64::MAX);
    (usage.received_bytes, usage.sent_bytes) = network(&std::fs::read_to_string("/proc/self/net/dev").ok()?);
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        usage.tasks = runtime.metrics().num_alive_tasks() as u64;
    }
    Some(usage)
}

/// Returns the processor time and the resident memory of this process, or `None` if there is no `/proc`. This
/// function is cheaper than [`usage`].
pub fn spent() -> Option<(Duration, u64)> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let ticks = rustix::param::clock_ticks_per_second();
    let usage = parse(&stat, ticks, rustix::param::page_size() as u64)?;
    Some((usage.cpu, usage.resident_bytes))
}

/// Parses `/proc/self/stat`. The name of the program is in parentheses, and may contain any characters.
fn parse(stat: &str, ticks: u64, page_bytes: u64) -> Option<Usage> {
    let (_, after_name) = stat.rsplit_once(')')?;
    // The first field after the name has number 3 in the manual page.
    let field = |number: usize| after_name.split_ascii_whitespace().nth(number - 3)?.parse::<u64>().ok();
    let cpu = field(14)? + field(15)?;
    Some(Usage {
        cpu: Duration::from_secs_f64(cpu as f64 / ticks.max(1) as f64),
        threads: field(20)?,
        virtual_bytes: field(23)?,
        resident_bytes: field(24)? * page_bytes,
        ..Usage::default()
    })
}

/// Returns the soft limit with this name, or `None` if the limit is missing or unlimited.
fn max(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns the bytes that all network interfaces except the loopback received and sent. `devices` is the
/// content of `/proc/self/net/dev`.
fn network(devices: &str) -> (u64, u64) {
    let lines = devices.lines().filter_map(|line| line.split_once(':'));
    lines.filter(|(name, _)| name.trim() != "lo").fold((0, 0), |(received, sent), (_, numbers)| {
        let number = |at: usize| {
            numbers.split_ascii_whitespace().nth(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
        };
        (received + number(0), sent + number(8))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc_stat_are_counted_after_any_process_name() {
        let numbers: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        for name in ["server", "a) b (c", ""] {
            let stat = format!("1 ({name}) S {}", numbers.join(" "));
            let usage = parse(&stat, 100, 4096).unwrap();
            assert_eq!(usage.cpu, Duration::from_millis(290), "{name}");
            assert_eq!((usage.virtual_bytes, usage.resident_bytes), (23, 24 * 4096), "{name}");
        }
        for broken in ["", "1 (x)", "1 (x) S 4 5", "1 x S 4"] {
            assert_eq!(parse(broken, 100, 4096), None, "{broken}");
        }
    }

    #[test]
    fn the_soft_limit_of_open_files_is_read() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096                 files\n";
        assert_eq!(max(limits, "Max open files"), Some(1024));
        assert_eq!(max("Max address space unlimited", "Max address space"), None);
    }

    #[test]
    fn traffic_is_that_of_all_interfaces_except_loopback() {
        let devices = "Inter-| Receive\n face |bytes\n    lo: 5 1 0 0 0 0 0 0 5 1 0 0\n  eth0: 7 1 0 0 0 0 0 0 9 1 0 0\n";
        assert_eq!(network(devices), (7, 9));
    }
}
