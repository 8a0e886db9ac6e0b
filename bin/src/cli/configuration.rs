//! `config check` and `config print`: check or print the configuration of a server without starting the server. The
//! configuration comes from its file, the environment and flags.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;
use values::yaml;

use crate::cli::flag_sources::{CONFIG, Origins};
use crate::cli::output::{self, Format, Outcome};
use crate::config::{Config, Flags};
use crate::flags::problems::{FlagError, FlagErrors};
use crate::flags::sources::{API_VERSION, Field, KIND, Origin, SourceError};

/// The action of the command `config`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// Reports all errors.
    Check,
    /// Prints all values, or only the values that are set.
    Print {
        /// Whether defaults are left out.
        only_set: bool,
    },
}

/// A configuration in which each single value is valid. Combinations of values are not checked yet.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The flags from all sources.
    pub flags: Box<Flags>,
    /// The names of all flags that have a value, with their values as texts.
    pub values: Vec<(String, Vec<String>)>,
    /// The sources of the flags.
    pub origins: Origins,
    /// The declarations of the flags.
    pub fields: Vec<Field>,
}

/// The command line of `config`, parsed.
#[derive(Clone, Debug)]
pub struct ConfigCommand {
    /// The action of the command.
    pub action: Action,
    /// The format of the output.
    pub format: Format,
    /// The configuration, or the errors of its single values.
    pub configuration: Result<Configuration, Vec<SourceError>>,
}

#[derive(Serialize)]
struct CheckReport {
    valid: bool,
    errors: Vec<ErrorReport>,
}

#[derive(Serialize)]
struct ErrorReport {
    /// Path of the file, if the error is in the file.
    file: Option<String>,
    line: Option<usize>,
    /// The location of the error as text: a line of the file, a variable, or the command line.
    origin: String,
    field: String,
    value: String,
    message: String,
    accepted: String,
}

#[derive(Serialize)]
struct ValueReport<'v> {
    name: &'v str,
    value: Value,
    /// Source of the value: default, file, environment or flag.
    source: &'static str,
    origin: String,
}

/// Runs the command and prints the report.
///
/// # Errors
/// The configuration is wrong. The error has one line for each problem.
pub fn run(command: ConfigCommand, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let ConfigCommand { action, format, configuration } = command;
    let checked = configuration.and_then(|configuration| match Config::from_flags(&configuration.flags) {
        Ok(_) => Ok(configuration),
        Err(errors) => Err(located(&errors, &configuration.origins, &configuration.fields)),
    });
    match (checked, action) {
        (Ok(configuration), Action::Print { only_set }) => print(&configuration, only_set, format, out)?,
        (Ok(_), Action::Check) => {
            let report = CheckReport { valid: true, errors: Vec::new() };
            output::write(out, format, &report, |out| writeln!(out, "the configuration is valid"))?;
        }
        (Err(errors), _) if format == Format::Text => anyhow::bail!(lines(&errors)),
        (Err(errors), _) => {
            let report = CheckReport { valid: false, errors: errors.iter().map(ErrorReport::from).collect() };
            output::write(out, format, &report, |_| Ok(()))?;
            return Ok(Outcome::Failed);
        }
    }
    Ok(Outcome::Fine)
}

/// Adds the source of each wrong flag to the errors of a configuration.
fn located(errors: &FlagErrors, origins: &Origins, fields: &[Field]) -> Vec<SourceError> {
    let located = |error: &FlagError| {
        SourceError::of_value(
            fields,
            error.flag(),
            error.value(),
            &origins.origin(error.flag()),
            &error.to_string(),
        )
    };
    errors.all().iter().map(located).collect()
}

/// Formats the errors, one on each line.
fn lines(errors: &[SourceError]) -> String {
    errors.iter().map(|error| error.to_string().replace(['\n', '\r'], " ")).collect::<Vec<_>>().join("\n")
}

impl Configuration {
    /// Returns the flags with their values as text, for `/flagz`.
    pub fn flag_values(&self) -> Vec<(String, String)> {
        self.values.iter().map(|(name, values)| (name.clone(), values.join(","))).collect()
    }

    /// Returns the text for wrong flags. If all wrong flags were given on the command line, the text has the
    /// messages of kube-apiserver. Otherwise each message names the source of the value.
    pub fn explained(&self, errors: &FlagErrors) -> String {
        let located = located(errors, &self.origins, &self.fields);
        let is_known = |error: &SourceError| matches!(error.origin, Origin::Default | Origin::CommandLine);
        if located.iter().all(is_known) { errors.to_string() } else { joined(&located) }
    }
}

/// Formats the errors on one line. If there are several errors, they are in brackets.
pub fn joined(errors: &[SourceError]) -> String {
    go::join_errors(lines(errors).lines().map(str::to_owned)).unwrap_or_default()
}

impl From<&SourceError> for ErrorReport {
    fn from(error: &SourceError) -> ErrorReport {
        let (file, line) = match &error.origin {
            Origin::File { path, line } => {
                (Some(path.display().to_string()), Some(*line).filter(|line| *line > 0))
            }
            _ => (None, None),
        };
        ErrorReport {
            file,
            line,
            origin: error.origin.to_string(),
            field: error.field.clone(),
            value: error.value.clone(),
            message: error.why.clone(),
            accepted: error.accepted.clone(),
        }
    }
}

fn print(
    configuration: &Configuration,
    only_set: bool,
    format: Format,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let mut reports = Vec::new();
    for (name, values) in &configuration.values {
        let origin = configuration.origins.origin(name);
        // A configuration file cannot contain the flag `--config`.
        if name == CONFIG || (only_set && origin == Origin::Default) || values.iter().all(String::is_empty) {
            continue;
        }
        let field = configuration.fields.iter().find(|field| field.name == *name);
        let value = field.map_or_else(|| values.join(",").into(), |field| field.member(values));
        let source = match origin {
            Origin::Default => "default",
            Origin::File { .. } => "file",
            Origin::Environment(_) => "environment",
            Origin::CommandLine => "flag",
        };
        reports.push(ValueReport { name, value, source, origin: origin.to_string() });
    }
    output::write(out, format, &reports, |out| write_text(&reports, out))
}

/// Writes the values as a configuration file, with their sources as comments.
fn write_text(reports: &[ValueReport<'_>], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "apiVersion: {API_VERSION}\nkind: {KIND}")?;
    for report in reports {
        let mut line = Vec::new();
        match &report.value {
            Value::Array(_) => {
                // Write a list as JSON, which is valid YAML and stays on one line.
                let list = serde_json::to_string(&report.value)?;
                write!(line, "{}: {list}", report.name)?;
            }
            value => {
                let text = serde_json::to_vec(value)?;
                let tree = values::json::parse(&text).map_err(|error| io::Error::other(error.to_string()))?;
                yaml::write_member(report.name, &tree, &mut line);
            }
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        // YAML continues a long text on further lines. A comment after such a text would be a part of the
        // text.
        if line.contains('\n') {
            writeln!(out, "# {}\n{line}", report.origin)?;
        } else {
            writeln!(out, "{line:<60}  # {}", report.origin)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "configuration_test.rs"]
mod tests;
