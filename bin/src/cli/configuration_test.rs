//! Tests of `config check` and `config print`.

use std::ffi::OsString;
use std::fs;

use serde_json::Value;

use super::*;
use crate::cli::line::{self, Invocation};
use crate::host::files::scratch::Scratch;

const HEAD: &str = "apiVersion: apiserver.config.cluster.io/v1\nkind: ServerConfiguration\n";

/// Runs a command line that begins with `config`, and returns the outcome and the output.
fn run_line(arguments: &[&str]) -> (Outcome, String) {
    let words = std::iter::once("cluster-apiserver").chain(arguments.iter().copied()).map(OsString::from);
    let Ok(Invocation::Configure(command)) = line::parse(words) else { panic!("no command: {arguments:?}") };
    let mut out = Vec::new();
    let outcome = run(command, &mut out).unwrap();
    (outcome, String::from_utf8(out).unwrap())
}

/// Returns the errors of a configuration file.
fn errors_of(dir: &Scratch, text: &str) -> Vec<Value> {
    let path = dir.join("server.yaml");
    fs::write(&path, text).unwrap();
    let config = format!("--config={}", path.display());
    let data = format!("--data-dir={}", dir.join("data").display());
    let (_, out) = run_line(&["config", "check", &config, &data, "-o=json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    report["errors"].as_array().unwrap().clone()
}

/// Wrong configurations: the members after the head, then line, field and value of the error, and a part of
/// its accepted values.
const WRONG: &[(&str, u64, &str, &str, &str)] = &[
    ("secure-prot: 1", 3, "secure-prot", "", "secure-port"),
    ("port: 1", 3, "port", "", "secure-port"),
    ("data_dir: /a", 3, "data_dir", "", "data-dir"),
    ("config: other.yaml", 3, "config", "other.yaml", "the flag"),
    ("secure-port: 70000", 3, "secure-port", "70000", "1 to 65535"),
    ("secure-port: 0", 3, "secure-port", "0", "1 to 65535"),
    ("secure-port: seventy", 3, "secure-port", "seventy", "1 to 65535"),
    ("secure-port: [1, 2]", 3, "secure-port", "[1,2]", "1 to 65535"),
    ("secure-port:", 3, "secure-port", "null", "1 to 65535"),
    ("secure-port: 1\nsecure-port: 2", 4, "secure-port", "", "each name once"),
    ("# comment\n\nbind-address: localhost", 5, "bind-address", "localhost", "an IP address"),
    ("bind-address: {a: b}", 3, "bind-address", "{\"a\":\"b\"}", "an IP address"),
    ("naming: k8s", 3, "naming", "k8s", "cluster, kubernetes"),
    ("durability: maybe", 3, "durability", "maybe", "sync, relaxed"),
    ("history-retention: 5", 3, "history-retention", "5", "90s or 1h30m"),
    ("history-retention: -5m", 3, "history-retention", "-5m", "90s or 1h30m"),
    ("history-bytes-max: much", 3, "history-bytes-max", "much", "1Gi or 500M"),
    ("history-bytes-max: -1Gi", 3, "history-bytes-max", "-1Gi", "1Gi or 500M"),
    ("continue-ttl: 5", 3, "continue-ttl", "5", "90s or 1h30m"),
    ("event-ttl: soon", 3, "event-ttl", "soon", "90s or 1h30m"),
    ("shutdown-deadline: 1x", 3, "shutdown-deadline", "1x", "90s or 1h30m"),
    ("request-timeout: 0s", 3, "request-timeout", "0", "90s or 1h30m"),
    ("livez-grace-period: -1s", 3, "livez-grace-period", "-1s", "90s or 1h30m"),
    ("min-request-timeout: -1", 3, "min-request-timeout", "-1", "a whole number"),
    ("v: loud", 3, "v", "loud", "a whole number"),
    ("log-format: xml", 3, "log-format", "xml", "text, json"),
    ("allow-privileged: perhaps", 3, "allow-privileged", "perhaps", "true or false"),
    ("enable-garbage-collector: 7", 3, "enable-garbage-collector", "7", "true or false"),
    ("profiling: [true]", 3, "profiling", "[true]", "true or false"),
    ("authorization-mode: [Nope]", 3, "authorization-mode", "Nope", ""),
    ("authorization-mode: {RBAC: true}", 3, "authorization-mode", "{\"RBAC\":true}", ""),
    ("controllers: [nope]", 3, "controllers", "nope", "* runs all"),
    ("live-migration: sideways", 3, "live-migration", "sideways", "to-etcd, to-log"),
    ("feature-gates: {NoSuchGate: true}", 3, "feature-gates", "NoSuchGate=true", "feature gates"),
    ("feature-gates: {DryRun: perhaps}", 3, "feature-gates", "DryRun=perhaps", "feature gates"),
    ("runtime-config: {api/nope: true}", 3, "runtime-config", "api/nope=true", "PAIRS"),
    ("emulated-version: \"9.99\"", 3, "emulated-version", "9.99", "own release"),
    ("max-requests-inflight: -1", 3, "max-requests-inflight", "-1", "a whole number"),
    ("goaway-chance: 1", 3, "goaway-chance", "1", ""),
    ("cors-allowed-origins: [a]", 3, "cors-allowed-origins", "a", ""),
    ("strict-transport-security-directives: [a, b]", 3, "strict-transport-security-directives", "a", ""),
    ("service-cluster-ip-range: 10.0.0.0", 3, "service-cluster-ip-range", "10.0.0.0", "networks"),
    ("service-node-port-range: x", 3, "service-node-port-range", "x", ""),
    ("kubernetes-service-node-port: 40000", 3, "kubernetes-service-node-port", "40000", ""),
    ("advertise-address: here", 3, "advertise-address", "here", "an IP address"),
    ("enable-admission-plugins: [NoSuch]", 3, "enable-admission-plugins", "NoSuch", ""),
    ("tls-min-version: VersionTLS99", 3, "tls-min-version", "VersionTLS99", ""),
    ("tls-cipher-suites: [NOPE]", 3, "tls-cipher-suites", "NOPE", ""),
    ("tls-extra-names: [\"*bad*\"]", 3, "tls-extra-names", "*bad*", "names"),
    ("cluster-signing-duration: 1s", 3, "cluster-signing-duration", "1s", "90s or 1h30m"),
    ("client-ca-file: /nonexistent/ca", 3, "client-ca-file", "/nonexistent/ca", "the path of a file"),
    ("token-auth-file: /nonexistent/t", 3, "token-auth-file", "/nonexistent/t", "the path of a file"),
    ("audit-policy-file: /nonexistent/p", 3, "audit-policy-file", "/nonexistent/p", "the path of a file"),
    (
        "encryption-provider-config: /nonexistent/e",
        3,
        "encryption-provider-config",
        "/nonexistent/e",
        "a file",
    ),
    ("audit-log-maxsize: big", 3, "audit-log-maxsize", "big", "MEGABYTES"),
    ("storage-backend: etcd2", 3, "storage-backend", "etcd2", "No effect here"),
    ("watch-cache-sizes: \"a#b\"", 3, "watch-cache-sizes", "a#b", "No effect here"),
    ("naming: kubernetes\nmin-request-timeout: 1.5", 4, "min-request-timeout", "1.5", "a whole number"),
];

#[test]
fn each_configuration_error_names_its_position_and_the_accepted_values() {
    assert!(WRONG.len() >= 50);
    let dir = Scratch::new();
    let path = dir.join("server.yaml").display().to_string();
    let mut failed = Vec::new();
    for (members, line, field, value, accepted) in WRONG {
        let errors = errors_of(&dir, &format!("{HEAD}{members}\n"));
        let text = |error: &Value, name: &str| error[name].as_str().unwrap_or_default().to_owned();
        let fits = |error: &Value| {
            text(error, "file") == path
                && error["line"] == *line
                && text(error, "field") == *field
                && text(error, "value").contains(value)
                && !text(error, "message").is_empty()
                && !text(error, "accepted").is_empty()
                && text(error, "accepted").contains(accepted)
        };
        if !errors.iter().any(fits) {
            failed.push(format!("{members}: {errors:?}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_configuration_file_of_another_type_is_refused() {
    let dir = Scratch::new();
    for (text, line, field, accepted) in [
        ("", 1, "", "a mapping with apiVersion"),
        ("- a\n", 1, "", "a mapping with apiVersion"),
        ("kind: ServerConfiguration\n", 1, "apiVersion", API_VERSION),
        ("apiVersion: v1\nkind: ServerConfiguration\n", 1, "apiVersion", API_VERSION),
        ("apiVersion: apiserver.config.cluster.io/v1\nkind: Config\n", 2, "kind", KIND),
    ] {
        let errors = errors_of(&dir, text);
        let error =
            errors.iter().find(|error| error["field"] == field).unwrap_or_else(|| panic!("{errors:?}"));
        assert_eq!(error["line"], line, "{text}: {error}");
        assert!(error["accepted"].as_str().unwrap().contains(accepted), "{text}: {error}");
    }
    let errors = errors_of(&dir, &format!("{HEAD}a: 'b\n"));
    assert!(errors[0]["message"].as_str().unwrap().starts_with("the file is not YAML: "), "{errors:?}");
    let (outcome, out) = run_line(&["config", "check", "--config=/nonexistent.yaml", "-o", "json"]);
    assert!(outcome == Outcome::Failed && out.contains("the file cannot be read: "), "{out}");
}

#[test]
fn all_errors_are_reported_together() {
    let dir = Scratch::new();
    let errors = errors_of(&dir, &format!("{HEAD}secure-port: x\nnaming: y\nnope: z\ngoaway-chance: 1\n"));
    let fields: Vec<&str> = errors.iter().map(|error| error["field"].as_str().unwrap()).collect();
    // The file is read completely before a value is checked.
    assert_eq!(fields, ["nope"]);
    let errors = errors_of(&dir, &format!("{HEAD}secure-port: x\nnaming: y\n"));
    assert_eq!(errors.len(), 2, "{errors:?}");
    let errors = errors_of(&dir, &format!("{HEAD}max-requests-inflight: -1\ngoaway-chance: 1\n"));
    assert_eq!(errors.len(), 2, "{errors:?}");
}

#[test]
fn flags_override_the_file_and_config_print_shows_the_source() {
    let dir = Scratch::new();
    let path = dir.join("server.yaml");
    let members = "naming: kubernetes\nsecure-port: 7443\nauthorization-mode: [Node, RBAC]\nruntime-config: {api/beta: true}\n";
    fs::write(&path, format!("{HEAD}{members}")).unwrap();
    let config = format!("--config={}", path.display());
    let data = format!("--data-dir={}", dir.join("data").display());
    let (_, out) = run_line(&["config", "print", "--changed", &config, &data, "--secure-port=8443"]);
    for (text, origin) in [
        ("naming: kubernetes", format!("# {}:3", path.display())),
        ("secure-port: 8443", "# command line".to_owned()),
        ("authorization-mode: [\"Node\",\"RBAC\"]", format!("# {}:5", path.display())),
        ("runtime-config: [\"api/beta=true\"]", format!("# {}:6", path.display())),
    ] {
        let found =
            out.lines().find(|line| line.starts_with(text)).unwrap_or_else(|| panic!("{text}: {out}"));
        assert!(found.ends_with(&origin), "{found}");
    }
    assert!(!out.contains("# default"), "{out}");
    let (_, all) = run_line(&["config", "print", &config, &data]);
    assert!(
        all.lines().any(|line| line.starts_with("durability: sync ") && line.ends_with("# default")),
        "{all}"
    );

    // The output is a configuration file with the same meaning.
    let again = dir.join("again.yaml");
    fs::write(&again, &all).unwrap();
    let config = format!("--config={}", again.display());
    let (outcome, checked) = run_line(&["config", "check", &config]);
    assert_eq!((outcome, checked.as_str()), (Outcome::Fine, "the configuration is valid\n"));
    let (_, json) = run_line(&["config", "print", &config, "-o=json"]);
    let values: Value = serde_json::from_str(&json).unwrap();
    let port = values.as_array().unwrap().iter().find(|value| value["name"] == "secure-port").unwrap();
    assert_eq!((&port["value"], &port["source"]), (&Value::from(7443), &Value::from("file")));
}
