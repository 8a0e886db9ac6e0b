//! `history show`: an object as it was at an earlier point.

use std::io::Write;

use anyhow::bail;
use clap::Args;

use super::point::{Point, point};
use super::target::{FoundObject, ObjectFlags};
use crate::cli::connect::block_on;
use crate::cli::output::{self, Format, Outcome, parse_format};
use serde_json::Value;

/// The flags of the command `history show`.
#[derive(Clone, Debug, Args)]
pub struct HistoryShow {
    #[command(flatten)]
    pub target: ObjectFlags,

    /// The point: a revision, a time, or a duration before now (10m).
    #[arg(long, value_name = "POINT", value_parser = point, allow_hyphen_values = true)]
    pub at: Point,

    /// Output format. Possible values: yaml, json, and text, which means yaml.
    #[arg(long, short, value_name = "FORMAT", default_value = "yaml", value_parser = parse_format)]
    pub output: Format,
}

/// Runs the command and prints the object.
pub fn run(flags: &HistoryShow, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let object = block_on(async {
        let found = flags.target.find(Some(&flags.at)).await?;
        match at(&found, &flags.at).await? {
            Some(object) => Ok(object),
            None => bail!("{} did not exist at {}", found.label, flags.at.text()),
        }
    })?;
    let format = if flags.output == Format::Json { Format::Json } else { Format::Yaml };
    output::write(out, format, &object, |_| Ok(()))?;
    Ok(Outcome::Fine)
}

/// Returns the object at a point, or `None` if the object did not exist at the point.
///
/// # Errors
/// The server cannot be reached, or refuses to read the point.
pub async fn at(found: &FoundObject, point: &Point) -> anyhow::Result<Option<Value>> {
    found.client.find(&format!("{}{}", point.prefix(), found.path)).await
}
