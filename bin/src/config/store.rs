//! Flags of the store: the data directory, the naming profile, durability and history.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use values::naming;

use crate::flags::duration;
use crate::flags::problems::{FlagError, Problems};
use crate::flags::profile::{Profile, profile, profiles};
use crate::flags::value_parsers::bytes;
use crate::store::identity;

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Args)]
pub struct StoreFlags {
    /// Directory of the store and of the certificates that the server creates. The server creates the
    /// directory at its first start.
    #[arg(long, value_name = "DIR", default_value = "./cluster-data")]
    pub data_dir: PathBuf,

    #[arg(long, value_name = "PROFILE", default_value = naming::ALL[0].profile, value_parser = profile,
          help = format!("Naming profile of API groups, labels and media types; `kubernetes` uses the names of Kubernetes. \
              Cannot be changed once the store exists. Possible values: {}", profiles(", ")))]
    pub naming: Profile,

    /// When a write is acknowledged. With sync, the server acknowledges a write when the write is on disk.
    /// With relaxed, the server does not wait for the disk, so a crash can lose the last acknowledged writes.
    /// Possible values: sync, relaxed.
    #[arg(long, value_name = "WHEN", default_value = "sync", value_parser = durability)]
    pub durability: Durability,

    /// How long old revisions stay readable after a newer write replaced them. If the history exceeds
    /// --history-bytes-max, the oldest revisions are dropped earlier. Watches that resume, lists of old
    /// versions and /as-of/ read old revisions. 0 keeps only the newest state.
    #[arg(long, value_name = "DURATION", default_value = "24h0m0s", value_parser = duration::parse)]
    pub history_retention: Duration,

    /// Largest size of the history in bytes, such as 1Gi. The history consists of the versions that newer writes
    /// replaced. If the history is larger, the oldest versions are dropped. If a fourth of the disk is smaller than
    /// this value, a fourth of the disk is the limit. Each store of the server has this limit. 0 means no limit.
    #[arg(long, value_name = "SIZE", default_value = "1Gi", value_parser = bytes)]
    pub history_bytes_max: u64,
}

/// Settings of the store.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// Data directory of the store and the certificates.
    pub data_dir: PathBuf,
    /// The naming profile of the store.
    pub naming: Profile,
    /// When writes are acknowledged.
    pub durability: Durability,
    /// How long history stays readable.
    pub history_retention: Duration,
    /// Maximum bytes of history; `u64::MAX` means no limit.
    pub history_bytes_max: u64,
}

impl StoreFlags {
    /// Returns the settings. Adds an error if the directory cannot be used, or if its store has another naming profile.
    pub fn settings(&self, problems: &mut Problems) -> Option<StoreSettings> {
        Some(StoreSettings {
            data_dir: problems.take(self.data_dir())?,
            naming: self.naming,
            durability: self.durability,
            history_retention: self.history_retention,
            history_bytes_max: if self.history_bytes_max == 0 { u64::MAX } else { self.history_bytes_max },
        })
    }

    fn data_dir(&self) -> Result<PathBuf, FlagError> {
        let dir = &self.data_dir;
        let wrong = |text: String| FlagError::worded("data-dir", dir.display(), text);
        if dir.as_os_str().is_empty() {
            return Err(wrong("--data-dir must not be empty".to_owned()));
        }
        if dir.exists() && !dir.is_dir() {
            return Err(wrong(format!("--data-dir: {} is not a directory", dir.display())));
        }
        identity::check_early(dir, self.naming)
            .map_err(|why| FlagError::worded("naming", self.naming.profile, why))?;
        // The path must be absolute, so that paths in the log and in the kubeconfig are valid in any working
        // directory.
        std::path::absolute(dir).map_err(|error| wrong(format!("--data-dir: {error}")))
    }
}

/// The time at which a write is acknowledged, set by `--durability`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Durability {
    /// After the write is on disk.
    Sync,
    /// Before the write is on disk. A crash can lose the last acknowledged writes.
    Relaxed,
}

impl Durability {
    /// Returns the value of `--durability` that selects this setting.
    pub fn as_str(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Relaxed => "relaxed",
        }
    }
}

fn durability(text: &str) -> Result<Durability, String> {
    [Durability::Sync, Durability::Relaxed]
        .into_iter()
        .find(|durability| durability.as_str() == text)
        .ok_or_else(|| "must be sync or relaxed".to_owned())
}
