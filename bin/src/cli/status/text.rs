//! The status of a server as text for people.

use std::io::{self, Write};

use super::Status;
use crate::cli::output::{Align, table};
use crate::cli::report::{self, bytes};

/// Maximum number of resources in the text. JSON and YAML have all resources.
const RESOURCES_MAX: usize = 20;

/// If a certificate expires in fewer days, the text warns in capital letters.
const WARN_DAYS: i64 = 30;

/// Writes the status: a line for each topic, and a table of the objects.
pub fn write(status: &Status, out: &mut impl Write) -> io::Result<()> {
    let mut line = |name: &str, text: String| writeln!(out, "{name:<14}{text}");
    line("server", format!("{}  {}", status.server, status.version))?;
    line("health", health(status))?;
    if let (Some(seconds), Some(started)) = (status.uptime_seconds, &status.started) {
        line("up", format!("{}, since {started}", uptime(seconds)))?;
    }
    let (requests, store) = (&status.requests, &status.store);
    line(
        "requests",
        format!(
            "{:.1}/s, {:.1} writes/s, {} in flight",
            requests.per_second, requests.writes_per_second, requests.in_flight
        ),
    )?;
    line("watches", requests.watches.to_string())?;
    line("memory", memory(status))?;
    line("revision", format!("{}, on disk up to {}", store.revision, store.synced_revision))?;
    line("compaction", compaction(status))?;
    line(
        "store",
        format!(
            "{} in {}: {} live, {} retained, {} dead",
            bytes(store.record_bytes),
            report::count(store.segments, "segment", "segments"),
            bytes(store.live_bytes),
            bytes(store.retained_bytes),
            bytes(store.dead_bytes)
        ),
    )?;
    line("backup", backup(status))?;
    line("damage", damage(status))?;
    for (at, certificate) in status.certificates.iter().enumerate() {
        let name = if at == 0 { "certificates" } else { "" };
        line(name, certificate_line(&certificate.name, &certificate.expires, certificate.days_left))?;
    }
    objects(status, out)
}

fn objects(status: &Status, out: &mut impl Write) -> io::Result<()> {
    let total: u64 = status.objects.iter().map(|object| object.count).sum();
    writeln!(out)?;
    let mut rows = vec![["OBJECTS".to_owned(), "RESOURCE".to_owned()]];
    let listed = status.objects.iter().take(RESOURCES_MAX);
    rows.extend(listed.map(|object| [object.count.to_string(), object.resource.clone()]));
    let left = status.objects.len().saturating_sub(RESOURCES_MAX);
    if left > 0 {
        let count: u64 = status.objects.iter().skip(RESOURCES_MAX).map(|object| object.count).sum();
        rows.push([count.to_string(), format!("({left} more resources)")]);
    }
    rows.push([total.to_string(), "(total)".to_owned()]);
    table(out, [Align::Right, Align::Left], &rows)
}

fn health(status: &Status) -> String {
    match (status.ready, status.store.refuses_writes) {
        (true, false) => "ready".to_owned(),
        (true, true) => "READY, BUT THE STORE REFUSES WRITES: see the log of the server".to_owned(),
        (false, _) => format!("NOT READY: {}", status.failing_checks.join(", ")),
    }
}

fn compaction(status: &Status) -> String {
    let store = &status.store;
    let older = report::count(store.versions.saturating_sub(store.keys), "older state", "older states");
    match store.compacted_revision {
        0 => format!("none yet; {older} of objects kept"),
        revision => format!("removed the history before revision {revision}; {older} of objects kept"),
    }
}

fn backup(status: &Status) -> String {
    match (&status.store.last_backup, status.store.seconds_since_backup) {
        (Some(end), Some(seconds)) => format!("{} ago, at {end}", uptime(seconds)),
        _ => "none recorded".to_owned(),
    }
}

fn memory(status: &Status) -> String {
    let memory = &status.memory;
    let mut text = memory.resident_bytes.map_or_else(|| "unknown".to_owned(), bytes);
    text.push_str(&format!(", {} of it for requests", bytes(memory.charged_bytes)));
    if let Some(processors) = memory.processors {
        text.push_str(&format!(", {:.0} % of one processor", processors * 100.0));
    }
    text
}

fn damage(status: &Status) -> String {
    let damage = &status.store.damage;
    if !damage.is_some() {
        return "none".to_owned();
    }
    let mut parts = Vec::new();
    for (count, one, many) in [
        (damage.unreadable_pages, "unreadable page", "unreadable pages"),
        (damage.lost_revisions, "lost revision", "lost revisions"),
        (damage.unaccepted_lost_revisions, "unaccepted lost revision", "unaccepted lost revisions"),
        (damage.unaccepted_damaged_records, "unaccepted damaged record", "unaccepted damaged records"),
    ] {
        if count > 0 {
            parts.push(report::count(count, one, many));
        }
    }
    if damage.removing_controllers_off {
        parts.push("controllers that delete are off".to_owned());
    }
    format!("DAMAGED: {}; `cluster-apiserver verify` lists each damage", parts.join(", "))
}

fn certificate_line(name: &str, expires: &str, days: i64) -> String {
    let left = match days {
        ..0 => "EXPIRED".to_owned(),
        0..WARN_DAYS => format!("EXPIRES IN {}", report::count(days.unsigned_abs(), "DAY", "DAYS")),
        _ => report::count(days.unsigned_abs(), "day left", "days left"),
    };
    format!("{name:<24}{expires}  {left}")
}

/// Formats seconds as days, hours and minutes: `3d 4h 5m`, `12s`.
fn uptime(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, ..) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h {minutes}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_the_units_that_matter() {
        for (seconds, want) in
            [(0, "0s"), (59, "59s"), (61, "1m 1s"), (3_660, "1h 1m"), (273_900, "3d 4h 5m")]
        {
            assert_eq!(uptime(seconds), want);
        }
        for (days, want) in
            [(-1, "EXPIRED"), (0, "EXPIRES IN 0 DAYS"), (29, "EXPIRES IN 29 DAYS"), (30, "30 days left")]
        {
            assert!(certificate_line("ca", "2030", days).ends_with(want), "{days}");
        }
    }
}
