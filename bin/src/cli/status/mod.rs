//! `status`: prints the state of a running server, once or repeatedly.
//!
//! ```text
//! /version ─────────┐
//! /readyz?verbose ──┼─► Observation ─┐
//! /metrics ─────────┘                ├─► Status ─► table, JSON or YAML
//!            the same, a pause later ┘    (rates are differences between the two)
//! ```

mod observation;
mod page;
mod text;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use self::observation::{Observation, observe};
use crate::cli::connect::{Connect, block_on};
use crate::cli::output::{self, Format, Outcome, parse_format};
use crate::flags::duration;

/// Pause between the two observations of a single report.
const PAUSE: Duration = Duration::from_secs(1);

/// Moves the cursor of a terminal to the top left corner and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The flags of the command `status`.
#[derive(Clone, Debug, Args)]
pub struct StatusFlags {
    #[command(flatten)]
    pub connect: Connect,

    /// Print the status again and again, until the command is interrupted.
    #[arg(long, short)]
    pub watch: bool,

    /// Pause between two reports with --watch.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse, requires = "watch")]
    pub interval: Duration,

    /// Output format. Possible values: text, json, yaml. With --watch, json prints one line for each report.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = parse_format)]
    pub output: Format,
}

/// The state of a running server. Numbers that the server does not report are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// URL of the server.
    server: String,
    /// Release of Kubernetes whose API the server serves.
    version: String,
    commit: String,
    /// Whether `/readyz` succeeds.
    ready: bool,
    /// Names of the checks of `/readyz` that fail.
    failing_checks: Vec<String>,
    /// Start of the process (RFC 3339).
    started: Option<String>,
    uptime_seconds: Option<u64>,
    store: StoreStatus,
    requests: RequestStatus,
    memory: MemoryStatus,
    /// Number of objects of each resource, the largest number first. Resources without objects are left out.
    objects: Vec<ObjectCount>,
    /// Certificates of the server, ordered by expiry. The earliest expiry is first.
    certificates: Vec<CertificateStatus>,
}

/// The state of the server's store.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct StoreStatus {
    /// The newest revision, and the newest revision that is known durable.
    revision: u64,
    synced_revision: u64,
    /// Oldest revision that can be read. The last compaction removed the history before this revision.
    compacted_revision: u64,
    /// Revision of the checkpoint from which the next start recovers; 0 if there is no checkpoint.
    checkpoint_revision: u64,
    keys: u64,
    /// Number of versions of keys in the index. Exactly `versions - keys` of these versions are history.
    versions: u64,
    segments: u64,
    /// Bytes of all records. The records are the newest states of existing keys, retained history, and dead records,
    /// which reclamation deletes.
    record_bytes: u64,
    live_bytes: u64,
    retained_bytes: u64,
    dead_bytes: u64,
    refuses_writes: bool,
    /// End of the newest complete backup (RFC 3339).
    last_backup: Option<String>,
    seconds_since_backup: Option<u64>,
    damage: DamageStatus,
}

/// The damage of the store.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct DamageStatus {
    unreadable_pages: u64,
    lost_revisions: u64,
    /// Lost revisions and damaged records that no `accept-loss` has accepted.
    unaccepted_lost_revisions: u64,
    unaccepted_damaged_records: u64,
    /// Whether the controllers that delete objects because another object is absent are disabled.
    removing_controllers_off: bool,
}

impl DamageStatus {
    fn is_some(&self) -> bool {
        *self != DamageStatus::default()
    }
}

/// The requests of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct RequestStatus {
    /// Requests and writes per second since the previous observation, without the requests of this command.
    per_second: f64,
    writes_per_second: f64,
    /// Requests since the start of the process.
    total: u64,
    in_flight: u64,
    watches: u64,
}

/// The memory and processor time of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct MemoryStatus {
    resident_bytes: Option<u64>,
    /// Memory that requests are charged for.
    charged_bytes: u64,
    /// Average number of processors that the process used since the previous observation.
    processors: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ObjectCount {
    /// Resource with its group: `deployments.apps`.
    resource: String,
    count: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct CertificateStatus {
    name: String,
    /// End of the validity (RFC 3339).
    expires: String,
    days_left: i64,
}

/// Runs the command and prints the reports.
pub fn run(flags: &StatusFlags, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let client = flags.connect.client()?;
    let clears = flags.watch && flags.output == Format::Text && io::stdout().is_terminal();
    block_on(async {
        let mut last = observe(&client).await?;
        // Pause before the first report as well, because rates need two observations.
        let mut pause = PAUSE;
        loop {
            tokio::time::sleep(pause).await;
            let now = observe(&client).await?;
            let status = Status::between(client.address(), &last, &now);
            if clears {
                out.write_all(CLEAR.as_bytes())?;
            }
            output::write(out, flags.output, &status, |out| text::write(&status, out))?;
            if flags.watch && flags.output == Format::Yaml {
                writeln!(out, "---")?;
            }
            out.flush()?;
            if !flags.watch {
                return Ok(Outcome::Fine);
            }
            (last, pause) = (now, flags.interval.max(Duration::from_millis(100)));
        }
    })
}

impl Status {
    fn between(server: &str, last: &Observation, now: &Observation) -> Status {
        Status { requests: now.requests_since(last), ..now.status(server, last) }
    }
}

#[cfg(test)]
#[path = "status_test.rs"]
mod tests;
