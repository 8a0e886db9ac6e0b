//! What is counted of configuration files that are read again while the server runs: those of authentication and of
//! authorization. A family begins with its first series.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest;
use parking_lot::Mutex;

use super::family::{Counters, Definition, Family, Gauges, labels_text};
use super::page::{Kind, Page, Stability};

const OUTCOMES: &[&str] = &["apiserver_id_hash", "status"];
const CONFIG: &[&str] = &["apiserver_id_hash", "hash"];

macro_rules! definitions {
    ($what:literal) => {
        [
            Definition {
                name: concat!(
                    "apiserver_",
                    $what,
                    "_config_controller_automatic_reload_last_timestamp_seconds"
                ),
                stability: Stability::Beta,
                help: concat!(
                    "Timestamp of the last automatic reload of ",
                    $what,
                    " configuration split by status and apiserver identity."
                ),
                labels: OUTCOMES,
            },
            Definition {
                name: concat!("apiserver_", $what, "_config_controller_automatic_reloads_total"),
                stability: Stability::Beta,
                help: concat!(
                    "Total number of automatic reloads of ",
                    $what,
                    " configuration split by status and apiserver identity."
                ),
                labels: OUTCOMES,
            },
            Definition {
                name: concat!("apiserver_", $what, "_config_controller_last_config_info"),
                stability: Stability::Alpha,
                help: concat!(
                    "Information about the last applied ",
                    $what,
                    " configuration with hash as label, split by apiserver identity."
                ),
                labels: CONFIG,
            },
        ]
    };
}

/// Reloads of one file.
#[derive(Debug)]
pub struct Reloads {
    /// The server, as the series name it.
    server: String,
    last: Gauges,
    count: Counters,
    config: Definition,
    /// Hash of the contents in use.
    used: Mutex<Option<String>>,
}

impl Reloads {
    /// Those of the file of authentication.
    pub fn of_authentication() -> Reloads {
        Reloads::new(definitions!("authentication"))
    }

    /// Those of the file of authorization.
    pub fn of_authorization() -> Reloads {
        Reloads::new(definitions!("authorization"))
    }

    fn new([last, count, config]: [Definition; 3]) -> Reloads {
        let server = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Reloads {
            server: hash(server.trim().as_bytes()),
            last: Gauges::new(last),
            count: Counters::new(count),
            config,
            used: Mutex::default(),
        }
    }

    /// The contents of the file are in use.
    pub fn succeeded(&self, contents: &[u8]) {
        self.ended("success");
        self.uses(contents);
    }

    /// The contents of the file cannot be used, or not yet.
    pub fn failed(&self) {
        self.ended("failure");
    }

    /// Says which contents are in use, from the start on.
    pub fn uses(&self, contents: &[u8]) {
        *self.used.lock() = Some(hash(contents));
    }

    fn ended(&self, status: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.count.count(&[&self.server, status]);
        self.last.set(&[&self.server, status], i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    }

    /// Writes the families.
    pub fn write(&self, page: &mut Page<'_>) {
        self.last.write(page);
        self.count.write(page);
        if let Some(used) = &*self.used.lock() {
            let labels = CONFIG.iter().copied().zip([self.server.as_str(), used]);
            page.family(&self.config, Kind::Gauge).number(&labels_text(labels), 1);
        }
    }
}

/// Names a text without showing it.
fn hash(text: &[u8]) -> String {
    let mut shown = "sha256:".to_owned();
    for byte in digest::digest(&digest::SHA256, text).as_ref() {
        let _ = write!(shown, "{byte:02x}");
    }
    shown
}
