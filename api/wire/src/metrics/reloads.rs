//! Metrics of the configuration files that are reloaded while the server runs: the authentication file and
//! the authorization file. A family is written only if it has a series.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest;
use parking_lot::Mutex;

use super::definition::{Definition, Kind, Stability};
use super::family::{Counters, Family, Gauges, labels_text};
use super::page::Page;
use crate::platform;

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

/// Metrics of the reloads of one file.
#[derive(Debug)]
pub struct Reloads {
    /// Hash of the host name, which identifies the server in labels.
    server: String,
    last: Gauges,
    count: Counters,
    config: Definition,
    /// Hash of the file contents in use.
    used: Mutex<Option<String>>,
}

impl Reloads {
    /// Creates the metrics of the authentication file.
    pub fn of_authentication() -> Reloads {
        Reloads::new(definitions!("authentication"))
    }

    /// Creates the metrics of the authorization file.
    pub fn of_authorization() -> Reloads {
        Reloads::new(definitions!("authorization"))
    }

    fn new([last, count, config]: [Definition; 3]) -> Reloads {
        Reloads {
            server: hash(platform::host_name().as_bytes()),
            last: Gauges::new(last),
            count: Counters::new(count),
            config,
            used: Mutex::default(),
        }
    }

    /// Counts a successful reload: the contents of the file are in use.
    pub fn succeeded(&self, contents: &[u8]) {
        self.ended("success");
        self.uses(contents);
    }

    /// Counts a failed reload: the new contents of the file are invalid, or cannot be used yet.
    pub fn failed(&self) {
        self.ended("failure");
    }

    /// Sets the contents that are in use. The server also calls this function with the contents at its start.
    pub fn uses(&self, contents: &[u8]) {
        *self.used.lock() = Some(hash(contents));
    }

    fn ended(&self, status: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.count.count(&[&self.server, status]);
        self.last.set(&[&self.server, status], i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    }

    /// Writes the families of the file.
    pub fn write(&self, page: &mut Page<'_>) {
        self.last.write(page);
        self.count.write(page);
        if let Some(used) = &*self.used.lock() {
            let labels = CONFIG.iter().copied().zip([self.server.as_str(), used]);
            page.family(&self.config, Kind::Gauge).number(&labels_text(labels), 1);
        }
    }
}

/// Returns a hash that identifies a text without revealing it.
fn hash(text: &[u8]) -> String {
    let mut hexadecimal = "sha256:".to_owned();
    for byte in digest::digest(&digest::SHA256, text).as_ref() {
        let _ = write!(hexadecimal, "{byte:02x}");
    }
    hexadecimal
}
