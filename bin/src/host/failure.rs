//! The record of a failed start. The server writes one record to standard error, in the format of the log.
//!
//! In text format, the record has the form that kube-apiserver uses and by which supervisors recognise a
//! failed start: severity, time, process, source location, `"command failed" err=…`. In JSON format, the
//! record is a line like the lines of the log, and its member `flags` has the wrong flags with their
//! values. Commands report errors with [`refuse`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use crate::host::logging::LogFormat;

/// Returns the format of the log that the command line selects. The other flags may be invalid.
pub fn format_of(arguments: &[OsString]) -> LogFormat {
    let mut arguments = arguments.iter().map(|argument| argument.to_string_lossy());
    let mut format = LogFormat::Text;
    while let Some(argument) = arguments.next() {
        let Some(flag) = argument.strip_prefix("--") else { continue };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None if is_format(flag) => (flag, arguments.next().unwrap_or_default().into_owned()),
            None => continue,
        };
        if is_format(name) {
            format = if value == "json" { LogFormat::Json } else { LogFormat::Text };
        }
    }
    format
}

fn is_format(name: &str) -> bool {
    matches!(name, "log-format" | "logging-format")
}

/// The reason why a start failed.
#[derive(Debug, Default)]
pub struct FailedStart<'f> {
    /// The error, on one line.
    pub error: &'f str,
    /// The wrong flags with their values, if the error is about flags.
    pub flags: Vec<(&'f str, &'f str)>,
}

/// Writes the record to standard error.
pub fn report(format: LogFormat, failure: &FailedStart<'_>) {
    let record = record(format, failure, jiff::Timestamp::now(), std::process::id());
    // Ignore a write error, because the process ends and has no other output.
    let _ = std::io::stderr().write_all(record.as_bytes());
}

fn record(format: LogFormat, failure: &FailedStart<'_>, now: jiff::Timestamp, process: u32) -> String {
    let error = failure.error.trim_end();
    match format {
        LogFormat::Text => {
            let now = now.strftime("%m%d %H:%M:%S%.6f");
            format!("E{now} {process:7} main.rs:1] \"command failed\" err={}\n", value(error))
        }
        LogFormat::Json => {
            let now = now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
            let mut fields = serde_json::json!({
                "timestamp": now,
                "level": "ERROR",
                "message": "command failed",
                "error": error,
                "target": "cluster_apiserver",
            });
            if !failure.flags.is_empty() {
                let flags: BTreeMap<&str, &str> = failure.flags.iter().copied().collect();
                fields["flags"] = serde_json::json!(flags);
            }
            format!("{fields}\n")
        }
    }
}

/// Formats a text as a value of a record. A single line is quoted, and several lines are indented.
fn value(text: &str) -> String {
    if !text.contains('\n') {
        return go::quote(text).to_string();
    }
    let lines: String = text.lines().map(|line| format!("\t{line}\n")).collect();
    format!("<\n{lines} >")
}

/// Joins an error and its causes. Leaves out a cause if the preceding text already ends with it.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.ends_with(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// Reports the error of a command on standard error. The error has several lines if the command collects
/// errors.
pub fn refuse(error: &str) -> ExitCode {
    let lines: String = error.trim_end().lines().map(|line| format!("error: {line}\n")).collect();
    let _ = std::io::stderr().write_all(lines.as_bytes());
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_several_lines_is_indented() {
        for (text, want) in
            [("a \"b\"", "\"a \\\"b\\\"\""), ("a\nb", "<\n\ta\n\tb\n >"), ("a\n\nb\n", "<\n\ta\n\t\n\tb\n >")]
        {
            assert_eq!(value(text), want, "{text:?}");
        }
    }

    #[test]
    fn a_startup_failure_is_recorded_in_the_configured_log_format() {
        for (line, is_json) in [
            ("--log-format=json --x", true),
            ("--x --logging-format json", true),
            ("--log-format=json --log-format=text", false),
            ("--log-format", false),
            ("", false),
            ("log-format=json", false),
        ] {
            let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            assert_eq!(format_of(&arguments) == LogFormat::Json, is_json, "{line}");
        }
        let failure = |error| FailedStart { error, flags: vec![("a", "1"), ("b", "")] };
        let now: jiff::Timestamp = "2026-01-02T03:04:05.000006Z".parse().unwrap();
        assert_eq!(
            record(LogFormat::Text, &failure("no \"room\""), now, 42),
            "E0102 03:04:05.000006      42 main.rs:1] \"command failed\" err=\"no \\\"room\\\"\"\n"
        );
        let json: serde_json::Value =
            serde_json::from_str(&record(LogFormat::Json, &failure("no \"room\"\nat all"), now, 42)).unwrap();
        assert_eq!(json["timestamp"], "2026-01-02T03:04:05.000006Z");
        assert_eq!((&json["flags"]["a"], &json["flags"]["b"]), (&"1".into(), &"".into()));
        assert_eq!((&json["level"], &json["error"]), (&"ERROR".into(), &"no \"room\"\nat all".into()));
    }

    #[test]
    fn a_repeated_cause_is_written_once() {
        let cause = || std::io::Error::other("no room");
        for (error, want) in [
            (anyhow::anyhow!("alone"), "alone"),
            (anyhow::Error::new(cause()).context("cannot write"), "cannot write: no room"),
            (anyhow::Error::new(cause()).context("cannot write: no room"), "cannot write: no room"),
        ] {
            assert_eq!(one_line(&error), want);
        }
    }
}
