//! Flags of the store: the data directory, the naming profile, durability and history.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use values::naming;

use crate::flags::duration;
use crate::flags::problems::{FlagError, Problems};
use crate::flags::profile::{Profile, profile, profiles};
use crate::store::identity;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Args)]
pub struct StoreFlags {
    /// Directory of the store and of the certificates that the server creates. Created at the first start.
    #[arg(long, value_name = "DIR", default_value = "./cluster-data")]
    pub data_dir: PathBuf,

    #[arg(long, value_name = "PROFILE", default_value = naming::ALL[0].profile, value_parser = profile,
          help = format!("Naming profile of API groups, labels and media types; `kubernetes` uses the names of Kubernetes. \
              Cannot be changed once the store exists. Possible values: {}", profiles(", ")))]
    pub naming: Profile,

    /// When a write is acknowledged. With sync, after it is on disk. With relaxed, before that, so that a
    /// crash can lose the last acknowledged writes. Possible values: sync, relaxed.
    #[arg(long, value_name = "WHEN", default_value = "sync", value_parser = durability)]
    pub durability: Durability,

    /// How long old revisions stay readable after a newer write replaced them. Lists in chunks and watches
    /// that resume read old revisions. 0 keeps only the newest state.
    #[arg(long, value_name = "DURATION", default_value = "5m0s", value_parser = duration::parse)]
    pub history_retention: Duration,
}

/// Settings of the store.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// Data directory of the store and the certificates.
    pub data_dir: PathBuf,
    /// The naming profile of the store.
    pub naming: Profile,
    /// The moment at which writes are acknowledged.
    pub durability: Durability,
    /// How long history stays readable.
    pub history_retention: Duration,
}

impl StoreFlags {
    /// Returns the settings. Adds an error if the directory cannot be used, or if its store has another profile.
    pub fn settings(&self, problems: &mut Problems) -> Option<StoreSettings> {
        Some(StoreSettings {
            data_dir: problems.take(self.data_dir())?,
            naming: self.naming,
            durability: self.durability,
            history_retention: self.history_retention,
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
        // An absolute path keeps paths in the log and the kubeconfig valid in any working directory.
        std::path::absolute(dir).map_err(|error| wrong(format!("--data-dir: {error}")))
    }
}

/// The time at which a write is acknowledged, set by `--durability`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Durability {
    /// After the write is on disk.
    Sync,
    /// Before the write is on disk: a crash can lose the last acknowledged writes.
    Relaxed,
}

impl Durability {
    /// Returns the value that `--durability` has for this setting.
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
