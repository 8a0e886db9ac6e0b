//! The file of `--tracing-config-file`, which configures the collector of traces and the number of traced
//! requests.

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use auth::strict::{MemberType, Object};
use clap::Args;
use values::json::Value;
use values::naming::Naming;
use wire::config_type::ConfigType;
use wire::outgoing::Egress;

use crate::flags::problems::FlagError;
use crate::host::files::{self, opening};

/// Default endpoint: a collector on the same machine.
const ENDPOINT: &str = "localhost:4317";

/// Type of the file.
const FILE: ConfigType = ConfigType {
    names: &[("apiserver.config", &["v1", "v1beta1", "v1alpha1"], FORM.name)],
    scheme: "apiserver/pkg/server/options/tracing.go:49",
    form: &FORM,
    is_implied: true,
};

/// The members of the file.
const FORM: Object = Object {
    name: "TracingConfiguration",
    members: &[
        ("apiVersion", MemberType::Text),
        ("kind", MemberType::Text),
        ("endpoint", MemberType::Text),
        ("samplingRatePerMillion", MemberType::Int32),
    ],
};

/// The largest value of `samplingRatePerMillion`.
const MILLION: i64 = 1_000_000;

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Args)]
pub struct TracingFlags {
    /// Configuration of traces: how many requests are traced, and the OpenTelemetry collector to which traces
    /// are sent over gRPC (TracingConfiguration).
    #[arg(long, value_name = "FILE")]
    pub tracing_config_file: Option<PathBuf>,
}

/// Settings of the export of traces.
#[derive(Clone, Debug)]
pub struct TracingSettings {
    /// The contents of the configuration file.
    pub file: TracingFile,
    /// The egress through which the collector is reached.
    pub egress: Egress,
}

impl TracingFlags {
    /// Returns the settings, or `None` if requests are not traced.
    ///
    /// # Errors
    /// The file is missing or invalid.
    pub fn settings(
        &self,
        naming: &'static Naming,
        egress: &Egress,
    ) -> Result<Option<TracingSettings>, FlagError> {
        let Some(path) = &self.tracing_config_file else { return Ok(None) };
        let file = TracingFile::read(path, naming)
            .map_err(|why| FlagError::worded("tracing-config-file", path.display(), why))?;
        Ok(Some(TracingSettings { file, egress: egress.clone() }))
    }
}

/// A checked tracing configuration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TracingFile {
    /// Address of the collector, as `host:port`.
    pub endpoint: String,
    /// How many of a million requests are traced. If a trusted client sends a trace context, the context
    /// decides instead.
    pub per_million: u32,
}

impl TracingFile {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// The file is missing or invalid. The message equals the message of kube-apiserver, if kube-apiserver
    /// has a message for the problem.
    pub fn read(path: &Path, naming: &'static Naming) -> anyhow::Result<TracingFile> {
        let bytes = files::read(path).map_err(|error| {
            anyhow!(
                "failed to read tracing config: unable to read tracing configuration from {}: {}",
                go::quote(&path.to_string_lossy()),
                opening(path, &error)
            )
        })?;
        TracingFile::parse(&bytes, naming)
    }

    fn parse(bytes: &[u8], naming: &'static Naming) -> anyhow::Result<TracingFile> {
        let undecodable = |why: String| {
            anyhow!("failed to read tracing config: unable to decode tracing configuration data: {why}")
        };
        let document = FILE.read(bytes, naming).map_err(undecodable)?;
        let per_million = document.get("samplingRatePerMillion").and_then(Value::as_i64).unwrap_or(0);
        let endpoint = document.str_at(&["endpoint"]);
        let endpoint = if endpoint.is_empty() { ENDPOINT } else { endpoint };
        let problems =
            [check_chance(per_million), check_scheme(endpoint)].into_iter().filter_map(Result::err);
        if let Some(problems) = go::join_errors(problems) {
            bail!("{problems}");
        }
        let endpoint = host_and_port(endpoint)?.to_owned();
        Ok(TracingFile { endpoint, per_million: u32::try_from(per_million)? })
    }
}

fn check_chance(per_million: i64) -> anyhow::Result<()> {
    if per_million < 0 {
        bail!("tracing.samplingRatePerMillion: Invalid value: {per_million}: sampling rate must be positive");
    }
    if per_million > MILLION {
        bail!(
            "tracing.samplingRatePerMillion: Invalid value: {per_million}: sampling rate per million must be less than or \
             equal to one million"
        );
    }
    Ok(())
}

/// Checks that the scheme of an endpoint is a scheme of gRPC names.
fn check_scheme(endpoint: &str) -> anyhow::Result<()> {
    let scheme = endpoint.split_once("://").map_or("dns", |(scheme, _)| scheme);
    if !matches!(scheme, "dns" | "unix" | "unix-abstract") {
        bail!(
            "tracing.endpoint: Invalid value: {}: unsupported scheme: {scheme}.  Options are none, dns, unix, or \
             unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md",
            go::quote(endpoint)
        );
    }
    Ok(())
}

/// Returns the `host:port` of an endpoint. Sockets are not supported.
fn host_and_port(endpoint: &str) -> anyhow::Result<&str> {
    let address = endpoint.strip_prefix("dns:///").unwrap_or(endpoint);
    let has_port =
        address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if !has_port || address.contains('/') {
        bail!("tracing.endpoint: Invalid value: {}: must be a host and a port", go::quote(address));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracing_configuration_is_validated() {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n";
        let config = |text: &str| {
            let text = text.replace("HEAD ", head);
            TracingFile::parse(text.as_bytes(), &values::naming::KUBERNETES)
                .map(|config| format!("{} {}", config.endpoint, config.per_million))
                .map_err(|error| error.to_string())
        };
        for (text, want) in [
            ("HEAD ", Ok("localhost:4317 0")),
            ("HEAD endpoint: a.b:1\nsamplingRatePerMillion: 1000000", Ok("a.b:1 1000000")),
            ("HEAD samplingRatePerMillion: -1", Err("sampling rate must be positive")),
            ("HEAD samplingRatePerMillion: 1000001", Err("less than or equal to one million")),
            (
                "HEAD endpoint: http://a:1\nsamplingRatePerMillion: -1",
                Err(
                    "[tracing.samplingRatePerMillion: Invalid value: -1: sampling rate must be positive, tracing.endpoint: \
                     Invalid value: \"http://a:1\": unsupported scheme: http.  Options are none, dns, unix, or \
                     unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md]",
                ),
            ),
            ("HEAD endpoint: dns:///a:1", Ok("a:1 0")),
            ("HEAD endpoint: unix://a", Err("must be a host and a port")),
            ("HEAD endpoint: a", Err("must be a host and a port")),
            ("HEAD sampling: 1", Err("strict decoding error: unknown field \"sampling\"")),
            (
                "HEAD samplingRatePerMillion: x",
                Err(
                    "json: cannot unmarshal string into Go struct field TracingConfiguration.samplingRatePerMillion",
                ),
            ),
            ("", Ok("localhost:4317 0")),
            ("a: b", Err("strict decoding error: unknown field \"a\"")),
            ("- a", Err("couldn't get version/kind; json parse error: json: cannot unmarshal array into")),
            (
                "kind: ConfigMap\napiVersion: v1",
                Err("no kind \"ConfigMap\" is registered for version \"v1\""),
            ),
            ("{", Err("unable to decode tracing configuration data: ")),
        ] {
            match (config(text), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{text}"),
                (Err(got), Err(want)) => assert!(got.contains(want), "{text}: {got}"),
                (got, want) => panic!("{text}: {got:?}, not {want:?}"),
            }
        }
    }
}
