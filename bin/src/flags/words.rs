//! Splits a command line that starts the server into flags with their values, other words, and requests for help or the
//! version.
//!
//! `--a-b 1 -v 2 x --help` ─► flags `--a-b=1 -v=2`, other words `x`, help. As in the flag library of kube-apiserver, a
//! flag with a value takes the next word, even if that word looks like a flag, and flags may follow other words.

use std::ffi::OsString;

use clap::Arg;
use types::version;

use super::upstream;
use super::value_parsers::{boolean, invalid};

/// The words of a command line, sorted by their role.
#[derive(Debug, Default)]
pub struct Words {
    /// The program name and the flags, each flag with its value in one word.
    pub flags: Vec<OsString>,
    /// The words that are neither flags nor values.
    pub others: Vec<String>,
    /// The flag that requests help, if the command line has it.
    pub help: Option<&'static str>,
    /// The format of the requested version, if the command line requests it.
    pub version: Option<VersionFormat>,
    /// The version that the server reports instead of its own.
    pub reported_version: Option<String>,
}

/// The format in which a version is printed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum VersionFormat {
    /// The version number.
    Name,
    /// All details of the build.
    Raw,
}

impl Words {
    /// Splits a command line whose first word is the program name. `command` has the flags of the server.
    ///
    /// # Errors
    /// A flag has no value, or the value of the flag for help or the version is invalid. The error has one
    /// line.
    pub fn read(command: &clap::Command, arguments: Vec<OsString>) -> Result<Words, String> {
        let mut words = Words::default();
        let mut arguments = arguments.into_iter();
        words.flags.extend(arguments.next());
        while let Some(argument) = arguments.next() {
            let text = argument.to_string_lossy().into_owned();
            if text == "--" {
                words.others.extend(arguments.map(|other| other.to_string_lossy().into_owned()));
                break;
            }
            let Some(flag) = text.strip_prefix("--").filter(|flag| !flag.is_empty()) else {
                match &*text {
                    "-h" => words.help = Some("-h"),
                    "-v" => {
                        let value = arguments.next().ok_or("flag needs an argument: 'v' in -v")?;
                        words.flags.push(joined("-v".into(), &value));
                    }
                    other if other.len() > 1 && other.starts_with('-') => words.flags.push(argument),
                    _ => words.others.push(text),
                }
                continue;
            };
            let (name, value) =
                flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
            match (name, value) {
                ("help-all", None) => words.help = Some("--help-all"),
                ("help", value) => words.set_help(value)?,
                ("version", value) => words.set_version(value)?,
                (name, None) if takes_value(command, name) => {
                    let value = arguments.next();
                    words.flags.push(match value {
                        Some(value) => joined(argument, &value),
                        None => argument,
                    });
                }
                _ => words.flags.push(argument),
            }
        }
        Ok(words)
    }

    fn set_help(&mut self, value: Option<&str>) -> Result<(), String> {
        let value = value.unwrap_or("true");
        let is_requested = boolean(value).map_err(|why| invalid("-h, --help", value, &why))?;
        self.help = is_requested.then_some("--help");
        Ok(())
    }

    fn set_version(&mut self, value: Option<&str>) -> Result<(), String> {
        let value = value.unwrap_or("true");
        let wrong = |why: String| invalid("--version", value, &why);
        if value == "raw" {
            self.version = Some(VersionFormat::Raw);
        } else if value.starts_with('v') {
            version::check_reported(value).map_err(wrong)?;
            self.reported_version = Some(value.to_owned());
        } else {
            self.version = boolean(value).map_err(wrong)?.then_some(VersionFormat::Name);
        }
        Ok(())
    }
}

fn joined(mut flag: OsString, value: &OsString) -> OsString {
    flag.push("=");
    flag.push(value);
    flag
}

/// Returns whether a flag takes the next word as its value.
fn takes_value(command: &clap::Command, name: &str) -> bool {
    match named(command, name) {
        Some(flag) => flag.get_action().takes_values() && !flag.is_require_equals_set(),
        None => upstream::takes_value(name),
    }
}

/// Returns the flag whose name or alias is `name`.
pub fn named<'c>(command: &'c clap::Command, name: &str) -> Option<&'c Arg> {
    command.get_arguments().find(|flag| {
        flag.get_long() == Some(name) || flag.get_all_aliases().is_some_and(|all| all.contains(&name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::definition::command;

    #[test]
    fn a_command_line_is_split_into_flags_with_values_and_other_words() {
        for (line, flags, others) in [
            ("--secure-port 1 a", "--secure-port=1", "a"),
            ("--secure-port=1 a --v 2 -v 3 -v=4 b", "--secure-port=1 --v=2 -v=3 -v=4", "a b"),
            ("--storage-backend --v=1", "--storage-backend=--v=1", ""),
            ("--anonymous-auth false --watch-cache true", "--anonymous-auth --watch-cache", "false true"),
            ("- -x ---a --=1 --nosuch a", "-x ---a --=1 --nosuch", "- a"),
            ("--v=1 -- --v=2 a", "--v=1", "--v=2 a"),
            ("--secure-port", "--secure-port", ""),
        ] {
            let arguments = std::iter::once("x").chain(line.split_whitespace());
            let words = Words::read(&command(), arguments.map(OsString::from).collect()).unwrap();
            let got: Vec<_> = words.flags[1..].iter().map(|flag| flag.to_str().unwrap()).collect();
            assert_eq!((&*got.join(" "), &*words.others.join(" ")), (flags, others), "{line}");
        }
    }
}
