//! The commands and their flags.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;

use api::state::allocation::Ports;
use values::naming;

use crate::duration;
use crate::flags::Profile;

/// The offline commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Checks every record and the consistency of all files; does not disturb a running server
    ///
    /// Exit code 0: no damage; 2: damage, all of which is listed; 1: the check failed. Uses memory in proportion to
    /// the keys, about 120 MB for a million.
    Verify(Verify),
    /// Prints the log: revision, time, kind, size, expiry and key of every record
    Inspect(Inspect),
    /// Prints the size of a store and of each of its parts
    Stats(Stats),
    /// Copies a store as of one revision, from a stopped or running server, or over the network with --kubeconfig
    ///
    /// The backup contains every write acknowledged before it began. It replaces an earlier backup of the same store
    /// in one step and does not copy segments again that are already there. Exit code 2: the backup is complete, but
    /// the store has damaged records, which were copied as they are.
    Backup(Backup),
    /// Compacts a stopped store and deletes the files it no longer needs
    ///
    /// A running server does both in the background. Without --revision and --keep all history is dropped.
    Compact(Compact),
    /// Makes a new data directory from a backup
    ///
    /// The new store continues from a revision far above all earlier ones, so that no client can mistake an old
    /// revision for a new one. Exit code 2: restored, without the damaged records (--skip-damaged).
    Restore(Restore),
    /// Accepts that what a stopped store cannot read is lost, and prints what that is
    ///
    /// While a store has records that it cannot read, the server's controllers delete nothing because something is absent:
    /// it may be what cannot be read. After this command they do, from the next start on: dependents of a lost owner are
    /// deleted, for example. Restore a backup instead where there is one. Damage that is found later is not accepted.
    /// Accepting twice changes nothing.
    AcceptLoss(AcceptLoss),
    /// Moves a store between a data directory and etcd, or out of a snapshot of etcd; no server may write meanwhile
    ///
    /// The target must be empty, or half filled by the same move, which is then ended. Revisions go on above those of the source.
    /// What was written is compared with the source, resource by resource. A server moves its store while it serves it with
    /// --live-migration.
    Migrate(Migrate),
}

/// Flags of the commands that work on an existing store.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Data directory of the server, or a backup.
    #[arg(long, value_name = "DIR", default_value = "./cluster-data")]
    pub data_dir: PathBuf,

    /// Output format. One of: text, json.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = format)]
    pub output: Format,
}

/// Output format.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// Text for people.
    Text,
    /// JSON for programs.
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

    /// Only keys with this prefix, such as /core/pods/default/.
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

    /// Also print the stored values.
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

    /// Reads from the running server of this kubeconfig's current context instead of --data-dir. Its user needs
    /// permission to post to /backup.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data_dir", "with_pki"])]
    pub kubeconfig: Option<PathBuf>,

    /// Address of that server, instead of the one in the kubeconfig.
    #[arg(long, value_name = "URL", requires = "kubeconfig")]
    pub server: Option<String>,

    /// Also copies the certificates, keys and administrator's kubeconfig; not available over the network.
    #[arg(long)]
    pub with_pki: bool,
}

/// Flags of `compact`.
#[derive(Clone, Debug, Args)]
pub struct Compact {
    #[command(flatten)]
    pub common: Common,

    /// Drops history before this revision.
    #[arg(long, value_name = "REVISION", value_parser = revision, conflicts_with = "keep")]
    pub revision: Option<u64>,

    /// Drops history older than this, such as 5m or 24h.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub keep: Option<Duration>,
}

/// Flags of `restore`.
#[derive(Clone, Debug, Args)]
pub struct Restore {
    /// Data directory to create. The directory must be empty or must not exist.
    #[arg(long, value_name = "DIR", default_value = "./cluster-data")]
    pub data_dir: PathBuf,

    /// Output format. One of: text, json.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = format)]
    pub output: Format,

    /// The backup, or any data directory.
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,

    /// Restores the state at this revision instead of the newest.
    #[arg(long, value_name = "REVISION", value_parser = revision, conflicts_with = "time")]
    pub revision: Option<u64>,

    /// Restores the state at this time, such as 2026-01-31T12:00:00Z, instead of the newest.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub time: Option<Timestamp>,

    /// Leaves out damaged records instead of refusing to restore. The new store knows of the loss: accept-loss accepts it.
    #[arg(long)]
    pub skip_damaged: bool,
}

/// Flags of `accept-loss`.
#[derive(Clone, Debug, Args)]
pub struct AcceptLoss {
    #[command(flatten)]
    pub common: Common,
}

/// Flags of `migrate`.
#[derive(Clone, Debug, Args)]
pub struct Migrate {
    /// The source: endpoints of etcd (scheme://host:port, separated by commas), a data directory, or a file of
    /// "etcdctl snapshot save".
    #[arg(long, value_name = "URLS|DIR|FILE")]
    pub from: String,

    /// The target: endpoints of etcd, or a data directory.
    #[arg(long, value_name = "URLS|DIR")]
    pub to: String,

    /// Says what would be moved, and changes nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// Start of all keys in etcd and in a snapshot.
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    pub etcd_prefix: String,

    /// Authorities (PEM) that the certificates of etcd are verified against.
    #[arg(long, value_name = "FILE")]
    pub etcd_cafile: Option<PathBuf>,

    /// Client certificate (PEM) shown to etcd.
    #[arg(long, value_name = "FILE")]
    pub etcd_certfile: Option<PathBuf>,

    /// Private key (PEM) of --etcd-certfile.
    #[arg(long, value_name = "FILE")]
    pub etcd_keyfile: Option<PathBuf>,

    /// Naming profile of the objects, where no data directory says it.
    #[arg(long, value_name = "PROFILE", default_value = naming::ALL[0].profile, value_parser = crate::flags::profile)]
    pub naming: Profile,

    /// Ports of nodes that services share.
    #[arg(long, value_name = "FIRST-LAST", default_value_t = Ports::DEFAULT, value_parser = Ports::parse)]
    pub service_node_port_range: Ports,

    /// How long objects with a lease in etcd live in a data directory.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration::parse)]
    pub event_ttl: Duration,

    /// Which values are encrypted in source and target, and with which keys (EncryptionConfiguration).
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,

    /// Output format. One of: text, json.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = format)]
    pub output: Format,
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
