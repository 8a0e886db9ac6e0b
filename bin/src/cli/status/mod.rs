//! `status`: prints what a running server reports about itself, once or repeatedly.
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
use crate::cli::output::{self, Format, Outcome, any_format};
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
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = any_format)]
    pub output: Format,
}

/// The state of a running server. Numbers that the server does not report are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// URL of the server.
    server: String,
    /// Release of Kubernetes whose API the server has.
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
    /// Number of objects by resource, without resources that have no objects; the largest first.
    objects: Vec<ObjectCount>,
    /// Certificates of the server, the one that expires first before the others.
    certificates: Vec<CertificateStatus>,
}

/// The state of the server's store.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct StoreStatus {
    /// Newest revision, and the newest one that is known to be on disk.
    revision: u64,
    synced_revision: u64,
    /// Oldest revision that can be read: the last compaction removed the history before it.
    compacted_revision: u64,
    /// Revision of the checkpoint that the next start begins with; 0 if there is no checkpoint.
    checkpoint_revision: u64,
    keys: u64,
    /// Versions of keys in the index; `versions - keys` of them are history.
    versions: u64,
    segments: u64,
    /// Bytes of all records; of the newest ones and of retained history; and of the rest, which reclamation frees.
    record_bytes: u64,
    readable_bytes: u64,
    dead_bytes: u64,
    refuses_writes: bool,
    damage: DamageStatus,
}

/// The damage of the store.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct DamageStatus {
    unreadable_pages: u64,
    lost_revisions: u64,
    /// Losses that no `accept-loss` has accepted.
    unaccepted_lost_revisions: u64,
    unaccepted_damaged_records: u64,
    /// Whether controllers that delete because an object is absent are off.
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
    /// Requests and writes per second since the previous observation, without those of this command.
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
    /// Processors in use since the previous observation: 1 means one processor all the time.
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
        // A pause before the first report, too: without it there would be no rates.
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
