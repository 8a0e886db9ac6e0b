//! Flags of metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use clap::Args;
use go::quote;
use values::json::Value;
use values::yaml;
use wire::metrics::Settings;
use wire::metrics::allowed::{Allowed, is_family};
use wire::metrics::families::Calls;

use crate::flags::problems::{FlagError, Problems, path_text};
use crate::host::files::{self, opening};
use crate::host::platform::process;

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Default, Args)]
pub struct MetricsFlags {
    /// Names of metrics that /metrics does not show, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub disabled_metrics: Vec<String>,

    /// Show metrics that are hidden because they are deprecated. The value must be the previous release.
    #[arg(long, value_name = "RELEASE")]
    pub show_hidden_metrics_for_version: Option<String>,

    /// Values that a label of a metric may have, as metric,label=value,value. All other values are shown as
    /// `unexpected`. Repeatable.
    #[arg(long, value_name = "PAIR", value_parser = pairs)]
    pub allow_metric_labels: Vec<Pairs>,

    /// YAML file with the same content as --allow-metric-labels, as metric,label: value,value.
    #[arg(long, value_name = "FILE")]
    pub allow_metric_labels_manifest: Option<PathBuf>,
}

/// Pairs of a key `family,label` and the values separated by commas.
pub type Pairs = Vec<(String, String)>;

/// Map from `family,label` to the allowed values of the label, separated by commas.
type Mapping = BTreeMap<String, String>;

/// Settings that select the published metrics.
#[derive(Clone, Debug)]
pub struct MetricsSettings {
    /// Families of metrics that are not published.
    pub disabled: BTreeSet<String>,
    /// Whether deprecated metrics that are hidden are published anyway.
    pub shows_hidden: bool,
    /// Labels that are restricted to some values.
    pub allowed: Arc<Allowed>,
}

impl MetricsSettings {
    /// Returns the settings of the metrics of this process. `outgoing` counts calls to other servers.
    pub fn of_process(&self, outgoing: Arc<Calls>) -> Settings {
        Settings {
            disabled: self.disabled.clone(),
            shows_hidden: self.shows_hidden,
            allowed: self.allowed.clone(),
            usage: process::usage,
            outgoing,
        }
    }
}

impl MetricsFlags {
    /// Returns the settings. Adds an error for each wrong flag and for a wrong manifest.
    pub fn settings(&self, problems: &mut Problems) -> Option<MetricsSettings> {
        problems.take(self.check_hidden());
        problems.take_for("disabled-metrics", self.disabled_metrics.join(","), self.check_disabled());
        let mapping = self.mapping();
        let keys = mapping.keys().cloned().collect::<Vec<_>>().join(";");
        let checked =
            problems.take_for("allow-metric-labels", &keys, check_keys(&mapping, "metrics.allowListMapping"));
        let path = path_text(self.allow_metric_labels_manifest.as_deref());
        let manifest = problems.take_for("allow-metric-labels-manifest", path, self.manifest())?;
        // If a key is wrong, its error is already reported, and `Allowed::parse` would report it again.
        checked?;
        let pairs = manifest.iter().chain(&mapping).map(|(key, values)| (key.as_str(), values.as_str()));
        let allowed = Allowed::parse(pairs).map_err(|key| {
            FlagError::must_be("allow-metric-labels", key, "a metric and a label, as metric,label=values")
        });
        Some(MetricsSettings {
            disabled: self.disabled_metrics.iter().cloned().collect(),
            shows_hidden: self.hidden_version().is_some(),
            allowed: Arc::new(problems.take(allowed)?),
        })
    }

    fn hidden_version(&self) -> Option<&str> {
        self.show_hidden_metrics_for_version.as_deref().filter(|version| !version.is_empty())
    }

    /// Checks the flag `--show-hidden-metrics-for-version`. A metric stays hidden for one release before it is removed,
    /// so only the previous release is accepted.
    fn check_hidden(&self) -> Result<(), FlagError> {
        let Some(version) = self.hidden_version() else { return Ok(()) };
        let minor: u32 = values::release::MINOR.parse().unwrap_or_default();
        let previous = format!("{}.{}", values::release::MAJOR, minor.saturating_sub(1));
        if version == previous {
            return Ok(());
        }
        let text = format!(
            "metrics.showHiddenMetricsForVersion: Invalid value: {}: must be omitted or have the value '{previous}'; only \
             the previous minor version is allowed",
            quote(version)
        );
        Err(FlagError::worded("show-hidden-metrics-for-version", version, text))
    }

    fn check_disabled(&self) -> anyhow::Result<()> {
        let Some(wrong) = self.disabled_metrics.iter().find(|name| !is_family(name)) else { return Ok(()) };
        let all: Vec<String> = self.disabled_metrics.iter().map(|name| quote(name)).collect();
        Err(anyhow!(
            "metrics.disabledMetrics: Invalid value: [{}]: must be fully qualified metric names matching \
             \"^[a-zA-Z_:][a-zA-Z0-9_:]*$\", got {}",
            all.join(","),
            quote(wrong)
        ))
    }

    /// Returns the pairs in the flag. If a key is repeated, the last pair counts.
    fn mapping(&self) -> Mapping {
        self.allow_metric_labels.iter().flatten().cloned().collect()
    }

    /// Returns the pairs in the manifest.
    fn manifest(&self) -> anyhow::Result<Mapping> {
        const FIELD: &str = "metrics.allowListMappingManifest";
        let Some(path) = &self.allow_metric_labels_manifest else { return Ok(Mapping::new()) };
        let mapping = read(path).and_then(|mapping| match check_keys(&mapping, FIELD) {
            Ok(()) => Ok(mapping),
            Err(why) => Err(anyhow!("invalid allow list mapping in manifest: [{why}]")),
        });
        mapping.map_err(|why| anyhow!("{FIELD}: Invalid value: {}: {why}", quote(&path.to_string_lossy())))
    }
}

/// Parses a value of the flag. The value is one pair, optionally in quotes, or a line of CSV (RFC 4180) with a pair in
/// each field.
fn pairs(text: &str) -> Result<Pairs, String> {
    let fields = match text.matches('=').count() {
        0 => vec![text.to_owned()],
        1 => vec![text.trim_matches('"').to_owned()],
        _ => fields(text),
    };
    let pair = |field: &String| {
        let pair = field.split_once('=').map(|(key, values)| (key.to_owned(), values.to_owned()));
        pair.ok_or_else(|| format!("{field} must be formatted as key=value"))
    };
    fields.iter().map(pair).collect()
}

/// Splits a line of CSV into its fields.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field) = (Vec::new(), String::new());
    let (mut is_quoted, mut letters) = (false, line.chars().peekable());
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.next_if_eq(&'"').is_none() => is_quoted = false,
            '"' if !is_quoted && field.is_empty() => is_quoted = true,
            ',' if !is_quoted => fields.push(std::mem::take(&mut field)),
            letter => field.push(letter),
        }
    }
    fields.push(field);
    fields
}

fn check_keys(mapping: &Mapping, field: &str) -> anyhow::Result<()> {
    let pairs = mapping.iter().map(|(key, values)| (key.as_str(), values.as_str()));
    if Allowed::parse(pairs).is_ok() {
        return Ok(());
    }
    let pairs_text: Vec<String> =
        mapping.iter().map(|(key, values)| format!("{}:{}", quote(key), quote(values))).collect();
    Err(anyhow!(
        "{field}: Invalid value: {{{}}}: must have keys with format `metricName,labelName` where metricName matches \
         \"[a-zA-Z_:][a-zA-Z0-9_:]*\" and labelName matches \"[a-zA-Z_][a-zA-Z0-9_]*\"",
        pairs_text.join(",")
    ))
}

/// Reads a manifest, which maps `family,label` to values.
fn read(path: &Path) -> anyhow::Result<Mapping> {
    let bytes = files::read(path)
        .map_err(|error| anyhow!("failed to read allow list manifest: {}", opening(path, &error)))?;
    parse(&bytes).map_err(|why| anyhow!("failed to parse allow list manifest: {why}"))
}

fn parse(bytes: &[u8]) -> Result<Mapping, String> {
    let document = yaml::parse(bytes).map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(bytes);
    let wrong = |lines: &[String]| format!("yaml: unmarshal errors:\n  {}", lines.join("\n  "));
    let members = match &document.value {
        Value::Null => return Ok(Mapping::new()),
        Value::Object(members) => members,
        other => {
            let line = content(&text, 0);
            return Err(wrong(&[format!(
                "line {line}: cannot unmarshal {} into map[string]string",
                tag(other)
            )]));
        }
    };
    let (mut mapping, mut lines) = (Mapping::new(), Vec::new());
    for (key, value) in members.iter() {
        let value = match value {
            Value::Null => String::new(),
            Value::String(text) => text.to_string(),
            Value::Bool(is) => is.to_string(),
            Value::Int(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Number(words) => words.to_string(),
            other => {
                let line = line_of(&text, key);
                lines.push(format!("line {line}: cannot unmarshal {} into string", tag(other)));
                continue;
            }
        };
        mapping.insert(key.to_owned(), value);
    }
    if lines.is_empty() { Ok(mapping) } else { Err(wrong(&lines)) }
}

/// Returns the YAML tag of a value, followed by the value if it is a scalar.
fn tag(value: &Value) -> String {
    match value {
        Value::Object(_) => "!!map".to_owned(),
        Value::Array(_) => "!!seq".to_owned(),
        Value::String(text) => format!("!!str `{text}`"),
        Value::Bool(is) => format!("!!bool `{is}`"),
        Value::Int(number) => format!("!!int `{number}`"),
        Value::Float(number) => format!("!!float `{number}`"),
        Value::Number(words) => format!("!!int `{words}`"),
        Value::Null => "!!null".to_owned(),
    }
}

/// Returns the number of the line on which the value of a member begins: the line of the key if the value follows
/// there, otherwise the next line with content.
fn line_of(text: &str, key: &str) -> usize {
    let marks = ['"', '\''];
    let found = text.lines().enumerate().find_map(|(at, line)| {
        let rest = line.trim_start_matches(marks).strip_prefix(key)?;
        Some((at, rest.trim_start_matches(marks).trim_start().strip_prefix(':')?))
    });
    match found {
        Some((at, rest)) if rest.trim().is_empty() => content(text, at + 1),
        Some((at, _)) => at + 1,
        None => 1,
    }
}

/// Returns the number of the first line at or after `start` that is neither empty nor a comment.
fn content(text: &str, start: usize) -> usize {
    let is_content = |line: &str| !matches!(line.trim(), "" | "---") && !line.trim_start().starts_with('#');
    let line = text.lines().enumerate().skip(start).find(|(_, line)| is_content(line));
    line.map_or(start, |(at, _)| at) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::scratch::Scratch;

    #[test]
    fn an_allow_list_flag_is_one_pair_or_a_line_of_csv() {
        let pair = |key: &str, values: &str| (key.to_owned(), values.to_owned());
        for (text, want) in [
            ("a,b=c,d", Ok(vec![pair("a,b", "c,d")])),
            ("\"a,b=c,d\"", Ok(vec![pair("a,b", "c,d")])),
            ("\"a,b=c,d\",\"e,f=\"\"g\"\"\"", Ok(vec![pair("a,b", "c,d"), pair("e,f", "\"g\"")])),
            ("a,b='c,d',e,f='g'", Err("a must be formatted as key=value")),
            ("a", Err("a must be formatted as key=value")),
        ] {
            assert_eq!(pairs(text), want.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn metrics_flags_have_the_errors_of_kube_apiserver() {
        let dir = Scratch::new();
        let none = String::new();
        let keys = "must have keys with format `metricName,labelName` where metricName matches \
                    \"[a-zA-Z_:][a-zA-Z0-9_:]*\" and labelName matches \"[a-zA-Z_][a-zA-Z0-9_]*\"";
        let unmarshal = "failed to parse allow list manifest: yaml: unmarshal errors:";
        for (disabled, manifest, want) in [
            ("a:b", Some("a,b: c,d\nc,d: 1"), none),
            (
                "a a-b",
                None,
                "metrics.disabledMetrics: Invalid value: [\"a\",\"a-b\"]: must be fully qualified metric names matching \
                 \"^[a-zA-Z_:][a-zA-Z0-9_:]*$\", got \"a-b\""
                    .to_owned(),
            ),
            (
                "",
                Some("a: ["),
                "failed to parse allow list manifest: yaml: line 1: did not find expected node content".to_owned(),
            ),
            (
                "",
                Some("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"),
                format!("{unmarshal}\n  line 3: cannot unmarshal !!map into string"),
            ),
            (
                "",
                Some("a,b:\n- c\n"),
                format!("{unmarshal}\n  line 2: cannot unmarshal !!seq into string"),
            ),
            (
                "",
                Some("- a\n"),
                format!("{unmarshal}\n  line 1: cannot unmarshal !!seq into map[string]string"),
            ),
            (
                "",
                Some("apiserver_request_total: get\n"),
                format!(
                    "invalid allow list mapping in manifest: [metrics.allowListMappingManifest: Invalid value: \
                     {{\"apiserver_request_total\":\"get\"}}: {keys}]"
                ),
            ),
        ] {
            let path = dir.join("manifest");
            if let Some(text) = manifest {
                std::fs::write(&path, text).unwrap();
            }
            let flags = MetricsFlags {
                disabled_metrics: disabled.split_whitespace().map(str::to_owned).collect(),
                allow_metric_labels_manifest: manifest.map(|_| path.clone()),
                ..MetricsFlags::default()
            };
            let mut problems = Problems::default();
            let settings = flags.settings(&mut problems);
            let got = problems.finish(settings).map_or_else(|errors| errors.to_string(), |_| String::new());
            let prefix =
                format!("metrics.allowListMappingManifest: Invalid value: {}: ", quote(&path.to_string_lossy()));
            assert_eq!(got.strip_prefix(&prefix).unwrap_or(&got), want, "{manifest:?}");
        }
        let missing =
            MetricsFlags { allow_metric_labels_manifest: Some(dir.join("none")), ..MetricsFlags::default() };
        let mut problems = Problems::default();
        missing.settings(&mut problems);
        let why = problems.finish(Some(())).unwrap_err().to_string();
        assert!(why.contains(": failed to read allow list manifest: open /"), "{why}");
    }
}
