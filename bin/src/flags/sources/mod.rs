//! The sources of the values of flags: a configuration file, environment variables, and the command line.
//!
//! ```text
//! file (--config) ─┐
//! CLUSTER_APISERVER_* ─┼─► FlagValues, one for each flag ─► the strongest source wins ─► one command line
//! command line ────┘        (a list is replaced as a whole)
//! ```

mod environment;
mod file;

use std::fmt;
use std::path::PathBuf;

use serde_json::Value;

pub use environment::{ENVTEST_MODE, read_environment};
pub use file::{API_VERSION, KIND, read_file};

/// The source of a value of a flag. The variants are ordered from the weakest to the strongest source.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Origin {
    /// The default of the flag.
    Default,
    /// A line of the configuration file. The first line is 1, and 0 means the whole file.
    File {
        /// Path of the file, as given.
        path: PathBuf,
        /// Line of the member.
        line: usize,
    },
    /// An environment variable with this name.
    Environment(String),
    /// The command line.
    CommandLine,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line: 0 } => write!(f, "{}", path.display()),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Environment(name) => write!(f, "environment variable {name}"),
            Origin::CommandLine => f.write_str("command line"),
        }
    }
}

/// The values that a source gives to a flag.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FlagValues {
    /// Name of the flag, without dashes.
    pub flag: String,
    /// Texts of the values, as on a command line. Only a repeatable flag has several values.
    pub values: Vec<String>,
    /// The source of the values.
    pub origin: Origin,
}

impl FlagValues {
    /// Returns the words of a command line with the same meaning.
    pub fn words(&self) -> impl Iterator<Item = String> {
        self.values.iter().map(|value| format!("--{}={value}", self.flag))
    }
}

/// An error in a source, with its location and a description of accepted values.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SourceError {
    /// The location of the error.
    pub origin: Origin,
    /// Name of the flag or of the member of the file; empty if the error has no field.
    pub field: String,
    /// The part of the value that is wrong; empty if the field itself is wrong.
    pub value: String,
    /// Reason why the value or the field is wrong.
    pub why: String,
    /// Description of the accepted values.
    pub accepted: String,
}

impl SourceError {
    /// Creates the error of a command line as a whole.
    pub fn of_line(why: String) -> SourceError {
        let (field, value, accepted) = (String::new(), String::new(), String::new());
        SourceError { origin: Origin::CommandLine, field, value, why, accepted }
    }

    /// Creates the error of a value of a flag. `why` is the message of the check. If the message repeats the name and
    /// the value, this part is removed.
    pub fn of_value(fields: &[Field], flag: &str, value: &str, origin: &Origin, why: &str) -> SourceError {
        let repeated = why.strip_prefix("invalid argument ").and_then(|rest| rest.split_once(" flag: "));
        SourceError {
            origin: origin.clone(),
            field: flag.to_owned(),
            value: value.to_owned(),
            why: repeated.map_or(why, |(_, cause)| cause).to_owned(),
            accepted: field_named(fields, flag).map(Field::accepted).unwrap_or_default(),
        }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        if !self.value.is_empty() {
            write!(f, "{} is not accepted: ", go::quote(&self.value))?;
        }
        f.write_str(&self.why)?;
        if !self.accepted.is_empty() {
            write!(f, "; accepted: {}", self.accepted)?;
        }
        Ok(())
    }
}

/// The properties of a flag that the sources need.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Field {
    /// Name of the flag, without dashes.
    pub name: String,
    /// Placeholder of the value, which also denotes the kind of the value: `FILE`, `DURATION`, `BOOL`,
    /// `NAMES`.
    pub kind: String,
    /// Whether the flag may be given several times.
    pub is_repeatable: bool,
    /// Description of the flag.
    pub help: String,
}

impl Field {
    /// Returns whether the value is a list. A value is a list if the flag is repeatable or if its placeholder
    /// is a plural.
    fn is_list(&self) -> bool {
        self.is_repeatable || self.kind.ends_with('S') && self.kind != "SECONDS"
    }

    /// Returns whether the value consists of pairs `name=value`.
    fn has_pairs(&self) -> bool {
        matches!(self.kind.as_str(), "GATES" | "PAIRS")
    }

    /// Converts texts of a command line into the value of a member of a configuration file.
    pub fn member(&self, values: &[String]) -> Value {
        let single = values.join(",");
        match self.kind.as_str() {
            _ if self.is_repeatable => values.into(),
            "BOOL" if single == "true" || single == "false" => (single == "true").into(),
            "LEVEL" | "NUMBER" | "SECONDS" | "PORT" => {
                single.parse::<i64>().map_or_else(|_| single.as_str().into(), Value::from)
            }
            _ if self.is_list() && single.contains(',') => single.split(',').collect(),
            _ => single.into(),
        }
    }

    /// Returns the description of accepted values.
    pub fn accepted(&self) -> String {
        if let Some((_, values)) = self.help.split_once("Possible values: ") {
            return format!("one of {}", values.split(". ").next().unwrap_or(values).trim_end_matches('.'));
        }
        let kind = match self.kind.as_str() {
            "BOOL" => "true or false",
            "CIDRS" => "networks such as 10.0.0.0/24, separated by a comma",
            "DIR" => "the path of a directory",
            "DURATION" => "a duration such as 90s or 1h30m",
            "FILE" => "the path of a file",
            "GATES" => "names of feature gates with true or false, such as {AllAlpha: true}",
            "IP" => "an IP address",
            "LEVEL" | "NUMBER" | "SECONDS" => "a whole number",
            "SIZE" => "a number of bytes such as 1Gi or 500M",
            "PORT" => "a port number from 1 to 65535, or free",
            kind => kind,
        };
        let purpose = self.help.split(". ").next().unwrap_or_default().trim_end_matches('.');
        if purpose.is_empty() { kind.to_owned() } else { format!("{kind} ({purpose})") }
    }
}

/// Returns the field with this name.
fn field_named<'f>(fields: &'f [Field], name: &str) -> Option<&'f Field> {
    fields.iter().find(|field| field.name == name)
}

/// Returns the error text for an unknown name, and the description of accepted names.
fn unknown(fields: &[Field], name: &str) -> (String, String) {
    let accepted =
        match crate::flags::suggestion::nearest(name, fields.iter().map(|field| field.name.as_str())) {
            Some(meant) => meant.to_owned(),
            None => "the names of the server's flags, without dashes in front".to_owned(),
        };
    ("there is no such flag".to_owned(), accepted)
}

#[cfg(test)]
#[path = "sources_test.rs"]
mod tests;
