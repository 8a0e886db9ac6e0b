//! The commands and their flags.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;

use crate::duration;

/// What can be done with a store besides serving it.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Checks every record and everything that must agree with it; a running server is not disturbed
    ///
    /// Exit code 0: all is well; 2: there is damage, all of which is listed; 1: it could not be checked. Takes memory for
    /// the keys, some 120 MB for a million, and none for what they hold.
    Verify(Verify),
    /// Prints the log: revision, time, kind, size, expiry and key of every record
    Inspect(Inspect),
    /// Says how much of what is in a store
    Stats(Stats),
    /// Copies a store as of one revision, also beside a running server or, with --kubeconfig, over the network
    ///
    /// Every write acknowledged before it began is in it. An earlier backup of the same store in that directory is
    /// replaced in one step, and segments it has already are not copied again. Exit code 2: made, but the store has
    /// damaged records, which were copied as they are.
    Backup(Backup),
    /// Forgets history of a stopped store and gives its space back
    ///
    /// A running server does both by itself, in the background. Without --revision and --keep nothing but the present
    /// is kept.
    Compact(Compact),
    /// Makes a new data directory from a backup
    ///
    /// The store goes on from a revision far above all old ones, so that no client can mistake old for new. Exit
    /// code 2: made, but without what is damaged (--skip-damaged).
    Restore(Restore),
}

/// What all commands take.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Data directory of the server, or a backup.
    #[arg(long, value_name = "DIR", default_value = "./cluster-data")]
    pub data_dir: PathBuf,

    /// Form of the output. One of: text, json.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = format)]
    pub output: Format,
}

/// Form of the output.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Flags of `verify`.
#[derive(Clone, Debug, Args)]
pub struct Verify {
    #[command(flatten)]
    pub common: Common,
}

/// Flags of `stats`.
#[derive(Clone, Debug, Args)]
pub struct Stats {
    #[command(flatten)]
    pub common: Common,
}

/// Flags of `inspect`.
#[derive(Clone, Debug, Args)]
pub struct Inspect {
    #[command(flatten)]
    pub common: Common,

    /// Only keys that begin with this, such as /core/pods/default/.
    #[arg(long, value_name = "KEY", conflicts_with = "key")]
    pub prefix: Option<String>,

    /// Only this key.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,

    /// Only this revision and later ones.
    #[arg(long, value_name = "REVISION", value_parser = revision)]
    pub from: Option<u64>,

    /// Only this revision and earlier ones.
    #[arg(long, value_name = "REVISION", value_parser = revision)]
    pub to: Option<u64>,

    /// Prints the stored values as well.
    #[arg(long)]
    pub values: bool,
}

/// Flags of `backup`.
#[derive(Clone, Debug, Args)]
pub struct Backup {
    #[command(flatten)]
    pub common: Common,

    /// Directory of the backup, made if absent.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,

    /// Asks the running server of this kubeconfig's current context, instead of reading --data-dir. Whom it names must
    /// be allowed to post to /backup.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data_dir", "with_pki"])]
    pub kubeconfig: Option<PathBuf>,

    /// Address of that server, instead of the one in the kubeconfig.
    #[arg(long, value_name = "URL", requires = "kubeconfig")]
    pub server: Option<String>,

    /// Copies the certificates, keys and the administrator's kubeconfig as well; not over the network.
    #[arg(long)]
    pub with_pki: bool,
}

/// Flags of `compact`.
#[derive(Clone, Debug, Args)]
pub struct Compact {
    #[command(flatten)]
    pub common: Common,

    /// Forgets what was before this revision.
    #[arg(long, value_name = "REVISION", value_parser = revision, conflicts_with = "keep")]
    pub revision: Option<u64>,

    /// Forgets what is older than this, such as 5m or 24h.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub keep: Option<Duration>,
}

/// Flags of `restore`.
#[derive(Clone, Debug, Args)]
pub struct Restore {
    #[command(flatten)]
    pub common: Common,

    /// The backup, or any data directory.
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,

    /// Restores the state at this revision instead of the newest.
    #[arg(long, value_name = "REVISION", value_parser = revision, conflicts_with = "time")]
    pub revision: Option<u64>,

    /// Restores the state at this time, such as 2026-01-31T12:00:00Z, instead of the newest.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub time: Option<Timestamp>,

    /// Leaves out what is damaged instead of refusing to restore.
    #[arg(long)]
    pub skip_damaged: bool,
}

fn format(text: &str) -> Result<Format, String> {
    match text {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        _ => Err("must be text or json".to_owned()),
    }
}

fn time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "not a time such as 2026-01-31T12:00:00Z".to_owned())
}

fn revision(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "not a revision".to_owned())
}
