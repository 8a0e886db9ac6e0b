//! `kubeconfig merge`: adds a kubeconfig to the kubeconfig of the person who runs the command.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;

use super::document::Document;
use crate::cli::connect::DEFAULT_DATA_DIR;
use crate::cli::history::point::{Point, point};
use crate::cli::output;
use crate::cli::output::Outcome;
use crate::cli::output::{Format, parse_format};
use crate::cli::report;
use crate::host::files;
use crate::remote::kubeconfig::KUBECONFIG_FILE;

/// The flags of the command `kubeconfig merge`.
#[derive(Clone, Debug, Args)]
pub struct Merge {
    /// Kubeconfig to add. Default: admin.kubeconfig in --data-dir.
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    pub from: Option<PathBuf>,

    /// Data directory of the server.
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,

    /// Kubeconfig to change. Default: the first file in the environment variable KUBECONFIG, else ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub into: Option<PathBuf>,

    /// Clients with the added context read the state at this point, and cannot write. The point is a revision, a time,
    /// or a duration before now (10m).
    #[arg(long, value_name = "POINT", value_parser = point, allow_hyphen_values = true)]
    pub as_of: Option<Point>,

    /// Make the added context the current context. If the changed kubeconfig has no current context, the
    /// command always does this.
    #[arg(long)]
    pub switch: bool,

    /// Replace entries that have the same name and other contents.
    #[arg(long)]
    pub replace: bool,

    /// Output format. Possible values: text, json, yaml.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = parse_format)]
    pub output: Format,
}

#[derive(Serialize)]
struct Report {
    file: PathBuf,
    added: Vec<String>,
    replaced: Vec<String>,
    current_context: String,
}

/// Runs the command and prints the report.
pub fn run(flags: &Merge, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let from = flags.from.clone().unwrap_or_else(|| flags.data_dir.join(KUBECONFIG_FILE));
    let into = match &flags.into {
        Some(into) => into.clone(),
        None => own_file(std::env::var_os("KUBECONFIG"), std::env::var_os("HOME"))?,
    };
    let mut added = Document::read(&from)?.with_context(|| format!("{} does not exist", from.display()))?;
    added.resolve_paths(from.parent().unwrap_or(Path::new("")));
    added.current_cluster().with_context(|| from.display().to_string())?;
    if let Some(point) = &flags.as_of {
        added = added.at_point(&point.text())?;
    }
    if is_same(&from, &into) {
        bail!(
            "{} is the kubeconfig to add and the one to change: name another one with --into",
            from.display()
        );
    }
    let mut file = Document::read(&into)?.unwrap_or_else(Document::empty);
    let merged = file
        .merge(&added, flags.replace, flags.switch)
        .with_context(|| format!("cannot merge into {}", into.display()))?;
    if let Some(parent) = into.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        files::private_dir(parent)?;
    }
    // If the file is a symbolic link, replace the target of the link.
    files::write_private(
        &into.canonicalize().unwrap_or_else(|_| into.clone()),
        &output::yaml_of(file.value())?,
    )?;
    let report = Report {
        file: into,
        added: merged.added,
        replaced: merged.replaced,
        current_context: file.current_context().to_owned(),
    };
    output::write(out, flags.output, &report, |out| {
        writeln!(
            out,
            "{}: {} added, {} replaced; the current context is {:?}",
            report.file.display(),
            report::count(report.added.len() as u64, "entry", "entries"),
            report.replaced.len(),
            report.current_context
        )
    })?;
    Ok(Outcome::Fine)
}

/// Returns whether two paths name the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// Returns the path of the kubeconfig of the person who runs the command.
fn own_file(variable: Option<OsString>, home: Option<OsString>) -> anyhow::Result<PathBuf> {
    if let Some(list) = variable
        && let Some(path) = std::env::split_paths(&list).find(|path| !path.as_os_str().is_empty())
    {
        return Ok(path);
    }
    let home = home.filter(|home| !home.is_empty());
    let home = home.context("neither KUBECONFIG nor HOME is set: name the file with --into")?;
    Ok(PathBuf::from(home).join(".kube/config"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_kubeconfig_is_the_file_that_kubectl_uses() {
        let own = |variable: Option<&str>, home: Option<&str>| {
            own_file(variable.map(OsString::from), home.map(OsString::from)).ok()
        };
        assert_eq!(own(Some(":a:b"), Some("/h")), Some("a".into()));
        assert_eq!(own(Some(""), Some("/h")), Some("/h/.kube/config".into()));
        assert_eq!(own(None, None), None);
    }
}
