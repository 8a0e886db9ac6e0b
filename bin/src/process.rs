//! What the kernel knows of this process, read from `/proc` (proc(5)).

use std::time::Duration;

use api::metrics::Usage;

/// What this process uses; `None` where there is no `/proc`.
pub fn usage() -> Option<Usage> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let ticks = rustix::param::clock_ticks_per_second();
    let mut usage = parse(&stat, ticks, rustix::param::page_size() as u64)?;
    usage.open_files = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    usage.max_files = max_files(&limits)?;
    Some(usage)
}

/// Reads `/proc/self/stat`. The name of the program is in parentheses, and may contain anything.
fn parse(stat: &str, ticks: u64, page_bytes: u64) -> Option<Usage> {
    let (_, after_name) = stat.rsplit_once(')')?;
    // The first field after the name is the third one of the page.
    let field = |number: usize| after_name.split_ascii_whitespace().nth(number - 3)?.parse::<u64>().ok();
    let cpu = field(14)? + field(15)?;
    Some(Usage {
        cpu: Duration::from_secs_f64(cpu as f64 / ticks.max(1) as f64),
        virtual_bytes: field(23)?,
        resident_bytes: field(24)? * page_bytes,
        ..Usage::default()
    })
}

fn max_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name_whatever_it_is() {
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
    fn the_soft_limit_of_files_counts() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096                 files\n";
        assert_eq!(max_files(limits), Some(1024));
        assert_eq!(max_files("Max open files unlimited"), None);
    }
}
