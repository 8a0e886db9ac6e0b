//! The commands and their flags.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What can be done with a store besides serving it.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Checks every record and everything that must agree with it; a running server is not disturbed
    ///
    /// Exit code 0: all is well; 2: there is damage, all of which is listed; 1: it could not be checked.
    Verify(Verify),
    /// Prints the log: revision, time, kind, size, expiry and key of every record
    Inspect(Inspect),
    /// Says how much of what is in a store
    Stats(Stats),
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

fn format(text: &str) -> Result<Format, String> {
    match text {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        _ => Err("must be text or json".to_owned()),
    }
}

fn revision(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "not a revision".to_owned())
}
