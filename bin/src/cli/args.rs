//! The commands and their flags. A command with subcommands declares them in a file of its own.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;

use api::state::allocation::Ports;
use values::naming;

use crate::cli::certs::CertsCommand;
use crate::cli::completion::Completion;
use crate::cli::history::HistoryCommand;
use crate::cli::kubeconfig::KubeconfigCommand;
use crate::cli::man::Man;
pub use crate::cli::output::Format;
use crate::cli::output::parse_format;
use crate::cli::status::StatusFlags;
use crate::cli::testing::TestingCommand;
use crate::cli::token::TokenCommand;
use crate::config::etcd::EtcdClientFlags;
use crate::flags::duration;
use crate::flags::profile::{Profile, profile};

/// The commands that do not start the server.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Checks every record and the consistency of all files, and does not disturb a running server
    ///
    /// Exit code 0: no damage; 1: the check itself failed; 2: there is damage, and the report lists all of it. Memory
    /// use grows with the number of keys: about 120 MB for a million keys.
    Verify(Verify),
    /// Prints the log: revision, time, kind, size, expiry and key of every record
    Inspect(Inspect),
    /// Prints the size of a store, by live, retained and dead bytes and by resource
    Stats(Stats),
    /// Copies a store as of one revision, from a stopped or running server, or over the network with --kubeconfig
    ///
    /// The backup contains every write that was acknowledged before the backup began. The command replaces an
    /// earlier backup of the same store in one step, and does not copy segments again that the earlier backup
    /// has. Exit code 2: the backup is complete, but the store has damaged records, which the command copied
    /// without a change.
    Backup(Backup),
    /// Compacts a stopped store, and deletes the files that the store no longer needs
    ///
    /// A running server does both in the background. Without --revision and --keep, the command drops all
    /// history.
    Compact(Compact),
    /// Creates a new data directory from a backup
    ///
    /// The new store continues at a revision far above all earlier revisions, so that no client can mistake an old
    /// revision for a new revision. Exit code 2: the store was restored without the damaged records (--skip-damaged).
    Restore(Restore),
    /// Accepts that the unreadable records of a stopped store are lost, and lists them
    ///
    /// While a store has unreadable records, the controllers that delete objects because another object is absent do
    /// not run, because an unreadable record may be the absent object. After this command, these controllers run again
    /// from the next start of the server on. For example, the garbage collector deletes the dependents of a lost owner.
    /// If you have a backup, restore the backup instead. The command does not accept damage that is found later. A
    /// second run of the command changes nothing.
    AcceptLoss(AcceptLoss),
    /// Moves a store between a data directory and etcd, or out of an etcd snapshot, while no server writes to it
    ///
    /// The target must be empty, or must contain a part of the same move from an interrupted run, which the command
    /// then continues. Revisions in the target are larger than revisions in the source. At the end, the command
    /// compares the target with the source, resource by resource. To move a store while a server serves it, use the
    /// flag --live-migration of the server.
    Migrate(Migrate),
    /// Prints the state of a running server: health, load, memory, store, damage, certificates and objects
    ///
    /// The numbers come from /version, /readyz and /metrics, so the user needs permission to get these paths.
    Status(StatusFlags),
    /// Reads the history of objects on a running server, and brings earlier states back
    #[command(subcommand)]
    History(HistoryCommand),
    /// Creates and merges kubeconfigs
    #[command(subcommand)]
    Kubeconfig(KubeconfigCommand),
    /// Shows and renews the certificates that the server creates, and rotates its CA
    #[command(subcommand)]
    Certs(CertsCommand),
    /// Creates tokens of service accounts
    #[command(subcommand)]
    Token(TokenCommand),
    /// Makes the server usable in tests of controllers
    #[command(subcommand)]
    Testing(TestingCommand),
    /// Prints a script that completes commands and flags in a shell
    ///
    /// Load the script with: source <(cluster-apiserver completion bash), or write the script into the completion
    /// directory of the shell.
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

    /// Output format. Possible values: text, json, yaml.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = parse_format)]
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

    /// Print only records from this revision on.
    #[arg(long, value_name = "REVISION", value_parser = revision)]
    pub from: Option<u64>,

    /// Print only records up to this revision.
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

    /// Directory of the backup. The command creates the directory if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,

    /// Back up the running server in the current context of this kubeconfig, instead of --data-dir. The user
    /// in the kubeconfig needs permission to post to /backup.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data_dir", "with_pki"])]
    pub kubeconfig: Option<PathBuf>,

    /// URL of the server, instead of the URL in --kubeconfig.
    #[arg(long, value_name = "URL", requires = "kubeconfig")]
    pub server: Option<String>,

    /// Also copy the certificates, the keys and the administrator's kubeconfig. Not available over the
    /// network.
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

    /// Output format. Possible values: text, json, yaml.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = parse_format)]
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

    /// Leave out damaged records. Without this flag, the command fails if the backup has damaged records. The
    /// new store records the loss until accept-loss accepts it.
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

    /// Report the objects that would be moved, without changing anything.
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub etcd: EtcdClientFlags,

    /// Naming profile of the objects. The flag has no effect if the source or the target is a data directory
    /// that records the profile.
    #[arg(long, value_name = "PROFILE", default_value = naming::ALL[0].profile, value_parser = profile)]
    pub naming: Profile,

    /// Range of ports from which services get node ports.
    #[arg(long, value_name = "FIRST-LAST", default_value_t = Ports::DEFAULT, value_parser = Ports::parse)]
    pub service_node_port_range: Ports,

    /// How long objects that have a lease in etcd are kept in the data directory.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration::parse)]
    pub event_ttl: Duration,

    /// File that configures which values in source and target are encrypted, and with which keys
    /// (EncryptionConfiguration).
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,

    /// Output format. Possible values: text, json, yaml.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = parse_format)]
    pub output: Format,
}

fn time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "must be a time such as 2026-01-31T12:00:00Z".to_owned())
}

fn revision(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "must be a revision, which is a number".to_owned())
}
