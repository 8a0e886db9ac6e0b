//! The commands and their flags. Commands with subcommands declare theirs in their own files.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;

use api::state::allocation::Ports;
use values::naming;

use crate::cli::certs::CertsCommand;
use crate::cli::completion::Completion;
use crate::cli::kubeconfig::KubeconfigCommand;
use crate::cli::man::Man;
pub use crate::cli::output::Format;
use crate::cli::output::format;
use crate::cli::status::StatusFlags;
use crate::cli::token::TokenCommand;
use crate::flags::duration;
use crate::flags::profile::{Profile, profile};

/// The commands that do something else than starting the server.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Checks every record and the consistency of all files; does not disturb a running server
    ///
    /// Exit code 0: no damage; 2: damage, which is listed in full; 1: the check itself failed. Memory use grows with the number of
    /// keys: about 120 MB for a million keys.
    Verify(Verify),
    /// Prints the log: revision, time, kind, size, expiry and key of every record
    Inspect(Inspect),
    /// Prints the size of a store, by live, retained and dead bytes and by resource
    Stats(Stats),
    /// Copies a store as of one revision, from a stopped or running server, or over the network with --kubeconfig
    ///
    /// The backup contains every write that was acknowledged before the backup began. It replaces an earlier backup of the same
    /// store in one step, and does not copy segments again that the earlier backup has. Exit code 2: the backup is complete, but
    /// the store has damaged records, which were copied as they are.
    Backup(Backup),
    /// Compacts a stopped store and deletes the files it no longer needs
    ///
    /// A running server does both in the background. Without --revision and --keep, all history is dropped.
    Compact(Compact),
    /// Creates a new data directory from a backup
    ///
    /// The new store continues at a revision far above all earlier ones, so that no client can mistake an old revision for a new
    /// one. Exit code 2: restored without the damaged records (--skip-damaged).
    Restore(Restore),
    /// Accepts that the unreadable records of a stopped store are lost, and lists them
    ///
    /// While a store has unreadable records, controllers that delete objects because another object is absent are off: the absent
    /// object may be an unreadable record. After this command, they run again from the next start on, and delete the dependents
    /// of a lost owner, for example. If there is a backup, restore it instead. The command does not accept damage that is found
    /// later. Running it twice changes nothing.
    AcceptLoss(AcceptLoss),
    /// Moves a store between a data directory and etcd, or out of an etcd snapshot; no server may write meanwhile
    ///
    /// The target must be empty, or must have been filled in part by the same move, which then continues. New revisions are
    /// larger than those of the source. At the end, the command compares the target with the source, resource by resource. To
    /// move a store while a server serves it, use the flag --live-migration of the server.
    Migrate(Migrate),
    /// Prints the state of a running server: health, load, memory, store, damage, certificates and objects
    ///
    /// The numbers are those of /version, /readyz and /metrics; the user needs permission to get these paths.
    Status(StatusFlags),
    /// Creates and merges kubeconfigs
    #[command(subcommand)]
    Kubeconfig(KubeconfigCommand),
    /// Shows and renews the certificates that the server creates, and rotates its CA
    #[command(subcommand)]
    Certs(CertsCommand),
    /// Creates tokens of service accounts
    #[command(subcommand)]
    Token(TokenCommand),
    /// Prints a script that completes commands and flags in a shell
    ///
    /// Load it with: source <(cluster-apiserver completion bash), or write it into the directory of completions of the shell.
    Completion(Completion),
    /// Writes manual pages
    Man(Man),
}

/// The flags of all commands that work on an existing store.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Data directory of the server, or a backup.
    #[arg(long, value_name = "DIR", default_value = "./cluster-data")]
    pub data_dir: PathBuf,

    /// Output format. Possible values: text, json.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = format)]
    pub output: Format,
}

/// The flags of the command `verify`.
#[derive(Clone, Debug, Args)]
pub struct Verify {
    #[command(flatten)]
    pub common: Common,
}

/// The flags of the command `stats`.
#[derive(Clone, Debug, Args)]
pub struct Stats {
    #[command(flatten)]
    pub common: Common,
}

/// The flags of the command `inspect`.
#[derive(Clone, Debug, Args)]
pub struct Inspect {
    #[command(flatten)]
    pub common: Common,

    /// Print only keys with this prefix, such as /core/pods/default/.
    #[arg(long, value_name = "KEY", conflicts_with = "key")]
    pub prefix: Option<String>,

    /// Print only the records of this key.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,

    /// Print only this revision and later ones.
    #[arg(long, value_name = "REVISION", value_parser = revision)]
    pub from: Option<u64>,

    /// Print only this revision and earlier ones.
    #[arg(long, value_name = "REVISION", value_parser = revision)]
    pub to: Option<u64>,

    /// Also print the stored values.
    #[arg(long)]
    pub values: bool,
}

/// The flags of the command `backup`.
#[derive(Clone, Debug, Args)]
pub struct Backup {
    #[command(flatten)]
    pub common: Common,

    /// Directory of the backup. Created if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,

    /// Read from the running server of this kubeconfig's current context instead of --data-dir. Its user
    /// needs permission to post to /backup.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data_dir", "with_pki"])]
    pub kubeconfig: Option<PathBuf>,

    /// URL of the server, instead of the one in --kubeconfig.
    #[arg(long, value_name = "URL", requires = "kubeconfig")]
    pub server: Option<String>,

    /// Also copy the certificates, keys and administrator's kubeconfig. Not available over the network.
    #[arg(long)]
    pub with_pki: bool,
}

/// The flags of the command `compact`.
#[derive(Clone, Debug, Args)]
pub struct Compact {
    #[command(flatten)]
    pub common: Common,

    /// Drop history before this revision.
    #[arg(long, value_name = "REVISION", value_parser = revision, conflicts_with = "keep")]
    pub revision: Option<u64>,

    /// Drop history older than this, such as 5m or 24h.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub keep: Option<Duration>,
}

/// The flags of the command `restore`.
#[derive(Clone, Debug, Args)]
pub struct Restore {
    /// Data directory to create. The directory must be empty or must not exist.
    #[arg(long, value_name = "DIR", default_value = "./cluster-data")]
    pub data_dir: PathBuf,

    /// Output format. Possible values: text, json.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = format)]
    pub output: Format,

    /// Directory of the backup, or any data directory.
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,

    /// Restore the state at this revision instead of the newest state.
    #[arg(long, value_name = "REVISION", value_parser = revision, conflicts_with = "time")]
    pub revision: Option<u64>,

    /// Restore the state at this time, such as 2026-01-31T12:00:00Z, instead of the newest state.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub time: Option<Timestamp>,

    /// Leave out damaged records instead of refusing to restore. The new store remembers the loss until
    /// accept-loss accepts it.
    #[arg(long)]
    pub skip_damaged: bool,
}

/// The flags of the command `accept-loss`.
#[derive(Clone, Debug, Args)]
pub struct AcceptLoss {
    #[command(flatten)]
    pub common: Common,
}

/// The flags of the command `migrate`.
#[derive(Clone, Debug, Args)]
pub struct Migrate {
    /// Source: endpoints of etcd (scheme://host:port, separated by commas), a data directory, or a file
    /// written by "etcdctl snapshot save".
    #[arg(long, value_name = "URLS|DIR|FILE")]
    pub from: String,

    /// Target: endpoints of etcd, or a data directory.
    #[arg(long, value_name = "URLS|DIR")]
    pub to: String,

    /// Report what would be moved, without changing anything.
    #[arg(long)]
    pub dry_run: bool,

    /// Prefix of all keys in etcd or in the snapshot.
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    pub etcd_prefix: String,

    /// CA bundle (PEM) that the certificates of etcd are verified against.
    #[arg(long, value_name = "FILE")]
    pub etcd_cafile: Option<PathBuf>,

    /// Client certificate (PEM) to present to etcd.
    #[arg(long, value_name = "FILE")]
    pub etcd_certfile: Option<PathBuf>,

    /// Private key (PEM) of --etcd-certfile.
    #[arg(long, value_name = "FILE")]
    pub etcd_keyfile: Option<PathBuf>,

    /// Naming profile of the objects, if neither source nor target is a data directory that records it.
    #[arg(long, value_name = "PROFILE", default_value = naming::ALL[0].profile, value_parser = profile)]
    pub naming: Profile,

    /// Range of ports from which services get node ports.
    #[arg(long, value_name = "FIRST-LAST", default_value_t = Ports::DEFAULT, value_parser = Ports::parse)]
    pub service_node_port_range: Ports,

    /// How long objects that have a lease in etcd are kept in the data directory.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration::parse)]
    pub event_ttl: Duration,

    /// Configuration of encryption: which values in source and target are encrypted, and with which keys
    /// (EncryptionConfiguration).
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,

    /// Output format. Possible values: text, json.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = format)]
    pub output: Format,
}

fn time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "must be a time such as 2026-01-31T12:00:00Z".to_owned())
}

fn revision(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "must be a revision, which is a number".to_owned())
}
