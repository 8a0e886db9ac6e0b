//! Flags of metrics.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use api::wire::codec::yaml;
use api::wire::metrics::allowed::Allowed;
use clap::Args;

use crate::config::read;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Args)]
pub struct MetricsFlags {
    /// Families of metrics that are not shown, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub disabled_metrics: Vec<String>,

    /// Show metrics that are hidden because they are deprecated. Names the previous release.
    #[arg(long, value_name = "RELEASE")]
    pub show_hidden_metrics_for_version: Option<String>,

    /// Values that a label may have, as family,label=value,value; others are shown as one, unexpected. Repeatable.
    #[arg(long, value_name = "PAIR")]
    pub allow_metric_labels: Vec<String>,

    /// The same in a file: family,label: value,value (YAML).
    #[arg(long, value_name = "FILE")]
    pub allow_metric_labels_manifest: Option<PathBuf>,
}

impl MetricsFlags {
    /// The values that labels may have.
    ///
    /// # Errors
    /// A pair of another form, or a file that cannot be read.
    pub fn allowed(&self) -> anyhow::Result<Allowed> {
        const MANIFEST: &str = "--allow-metric-labels-manifest";
        let mut pairs = Vec::new();
        if let Some(path) = &self.allow_metric_labels_manifest {
            let bytes = read(MANIFEST, path)?;
            let document = yaml::parse(&bytes).with_context(|| format!("{MANIFEST} {}", path.display()))?;
            let members = document.value.as_object().cloned().unwrap_or_default();
            let texts = members
                .iter()
                .map(|(key, value)| (key.to_owned(), value.as_str().unwrap_or_default().to_owned()));
            pairs.extend(texts);
        }
        for given in &self.allow_metric_labels {
            let pair = given.split_once('=');
            let (key, values) = pair.ok_or_else(|| {
                let why = format!("{given} must be formatted as key=value");
                anyhow!(super::forms::invalid("--allow-metric-labels", given, &why))
            })?;
            pairs.push((key.trim_matches('"').to_owned(), values.trim_matches('"').to_owned()));
        }
        pairs.sort();
        Allowed::parse(pairs.iter().map(|(key, values)| (key.as_str(), values.as_str()))).map_err(|_| {
            let shown: Vec<String> = pairs
                .iter()
                .map(|(key, values)| format!("{}:{}", auth::go::quote(key), auth::go::quote(values)))
                .collect();
            anyhow!(
                "metrics.allowListMapping: Invalid value: {{{}}}: must have keys with format `metricName,labelName` where \
                 metricName matches \"[a-zA-Z_:][a-zA-Z0-9_:]*\" and labelName matches \"[a-zA-Z_][a-zA-Z0-9_]*\"",
                shown.join(",")
            )
        })
    }
}
