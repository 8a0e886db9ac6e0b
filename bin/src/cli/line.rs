//! Parses the command line into flags. An error in the command line is reported in one line.
//!
//! `words ─► names with - for _ ─► values joined with their flags ─► flags without effect and empty values removed ─►
//! clap ─► Flags, or a command`
//!
//! If kube-apiserver's flag library has the same error, the text of the error is the same. This module does not depend
//! on the meaning of any flag.

use std::ffi::OsString;

use clap::builder::ValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{FromArgMatches, Subcommand};
use types::version::ServerVersion;
use values::naming::{self, Naming};

use crate::cli::args::Command;
use crate::cli::configuration::{Action, ConfigCommand, Configuration};
use crate::cli::definition::{CommandLine, command, definition, fields};
use crate::cli::flag_sources::{Sources, wrong_words};
use crate::cli::help;
use crate::cli::output::{Format, parse_format};
use crate::flags::sources::SourceError;
use crate::flags::words::{VersionFormat, Words, named};
use crate::flags::{suggestion, upstream, value_parsers};

/// A parsed command line.
#[derive(Clone, Debug)]
pub enum Invocation {
    /// Start the server with this configuration.
    Serve(Configuration),
    /// Check or print a configuration.
    Configure(ConfigCommand),
    /// Run a command that does not start a server.
    Run(Command),
}

#[cfg(test)]
impl Invocation {
    /// Returns the flags of a command line that starts the server.
    pub fn flags(self) -> crate::config::Flags {
        match self {
            Invocation::Serve(configuration) => *configuration.flags,
            other => panic!("a command: {other:?}"),
        }
    }
}

/// The reason why the process must end without serving.
#[derive(Debug, Eq, PartialEq)]
pub enum Stop {
    /// Print a requested text, such as the help, and end.
    Print(String),
    /// Report an error of one line.
    Refuse(String),
    /// Report errors in the configuration file and in variables.
    Faults(Vec<SourceError>),
}

/// Returns whether a command line begins with a command other than `serve`.
pub fn is_command(arguments: &[OsString]) -> bool {
    let first = arguments.get(1).map(|first| first.to_string_lossy());
    first.is_some_and(|first| matches!(&*first, "help" | "config") || Command::has_subcommand(&first))
}

/// Parses a command line whose first word is the program name. Environment variables and a configuration file add
/// flags.
///
/// # Errors
/// The process must end without serving or running a command.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation, Stop> {
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    parse_with(arguments, std::env::vars_os().filter_map(text).collect())
}

fn parse_with(
    arguments: impl IntoIterator<Item = OsString>,
    variables: Vec<(String, String)>,
) -> Result<Invocation, Stop> {
    let mut arguments: Vec<OsString> = normalised_all(arguments);
    match arguments.get(1).and_then(|first| first.to_str()) {
        Some("config") => return configure(arguments, variables),
        Some("help") if arguments.len() == 2 => return Err(Stop::Print(help::short(&definition()))),
        Some("serve") => drop(arguments.remove(1)),
        // All words after a command belong to the command, so only clap parses them.
        _ if is_command(&arguments) => {
            return match parsed(&without_empty(arguments))?.command {
                Some(command) => Ok(Invocation::Run(command)),
                None => Err(Stop::Refuse("a command is missing: see --help".to_owned())),
            };
        }
        _ => {}
    }
    let words = Words::read(&command(), arguments).map_err(Stop::Refuse)?;
    if words.help.is_some() || words.version.is_some() {
        // Print help or the version even if the file or the variables have errors.
        return Err(help_or_version(words));
    }
    // kube-apiserver has no command `serve`. If the word `serve` follows a flag, it is an unexpected
    // argument.
    if let Some(command) =
        words.others.first().filter(|word| Command::has_subcommand(word) || *word == "config")
    {
        return Err(Stop::Refuse(format!("the command {command} must come before its flags")));
    }
    let mut configuration = configuration_of(&words, variables)?;
    if words.others.iter().any(|word| !word.is_empty()) {
        return Err(Stop::Refuse(unexpected(&words.others, configuration.flags.store.naming)));
    }
    configuration.flags.reported_version = words.reported_version;
    Ok(Invocation::Serve(configuration))
}

/// Gathers and parses the flags of all sources.
fn configuration_of(words: &Words, variables: Vec<(String, String)>) -> Result<Configuration, Stop> {
    let fields = fields();
    let sources = Sources { fields: &fields, variables, check: &refusal };
    let gathered = sources.gather(words.flags.clone()).map_err(Stop::Faults)?;
    let arguments = without_empty(upstream::settle(gathered.words).map_err(Stop::Refuse)?);
    let flags = Box::new(parsed(&arguments)?.flags);
    Ok(Configuration { flags, values: values_of(&arguments), origins: gathered.origins, fields })
}

/// Returns the help or the version, if the command line asks for it. Flags in the command line are checked
/// first.
fn help_or_version(words: Words) -> Stop {
    let settled = match upstream::settle(words.flags) {
        Ok(settled) => without_empty(settled),
        Err(why) => return Stop::Refuse(why),
    };
    let flags = match parsed(&settled) {
        Ok(line) => line.flags,
        Err(stop) => return stop,
    };
    match words.help {
        Some("--help-all") => return Stop::Print(command().render_long_help().to_string()),
        Some(_) => return Stop::Print(help::short(&definition())),
        None => {}
    }
    if words.others.iter().any(|word| !word.is_empty()) {
        return Stop::Refuse(unexpected(&words.others, flags.store.naming));
    }
    match words.version {
        Some(VersionFormat::Raw) => {
            let version = ServerVersion { build: crate::BUILD, ..ServerVersion::default() };
            Stop::Print(format!("{}\n", version.raw()))
        }
        _ => Stop::Print(format!("cluster-apiserver {}\n", env!("CARGO_PKG_VERSION"))),
    }
}

/// Parses the command `config`.
fn configure(mut arguments: Vec<OsString>, variables: Vec<(String, String)>) -> Result<Invocation, Stop> {
    let name = arguments.get(2).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let action = match name.as_str() {
        "check" => Action::Check,
        "print" => Action::Print { only_set: remove_switch(&mut arguments, "--changed") },
        // clap reports the error, or prints the help.
        _ => {
            return Err(parsed(&arguments)
                .err()
                .unwrap_or(Stop::Refuse("check or print is missing".to_owned())));
        }
    };
    let format = output_of(&mut arguments).map_err(Stop::Refuse)?;
    arguments.drain(1..3);
    let words = Words::read(&command(), arguments).map_err(Stop::Refuse)?;
    if words.help.is_some() {
        let question = ["", "help", "config", &name].map(OsString::from);
        return Err(parsed(&question).err().unwrap_or(Stop::Print(String::new())));
    }
    if let Some(other) = words.others.iter().find(|word| !word.is_empty()) {
        return Err(Stop::Refuse(format!("config {name} takes only flags, got {other:?}")));
    }
    let wrong = wrong_words(&words.flags, &fields(), &refusal);
    let configuration = match configuration_of(&words, variables) {
        Ok(configuration) if wrong.is_empty() => Ok(configuration),
        Err(Stop::Faults(more)) => Err([more, wrong].concat()),
        // Each flag is valid, but not their combination.
        Err(Stop::Refuse(why)) if wrong.is_empty() => Err(vec![SourceError::of_line(why)]),
        Err(stop @ Stop::Print(_)) => return Err(stop),
        Ok(_) | Err(Stop::Refuse(_)) => Err(wrong),
    };
    Ok(Invocation::Configure(ConfigCommand { action, format, configuration }))
}

/// Removes a switch from a command line. Returns whether the command line had the switch.
fn remove_switch(arguments: &mut Vec<OsString>, switch: &str) -> bool {
    let before = arguments.len();
    arguments.retain(|argument| argument != switch);
    arguments.len() < before
}

/// Removes the flag for the output format from a command line, and returns its value.
fn output_of(arguments: &mut Vec<OsString>) -> Result<Format, String> {
    let (mut format, mut kept) = (Format::Text, Vec::new());
    let mut rest = std::mem::take(arguments).into_iter();
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy().into_owned();
        let value = match text.strip_prefix("--output").or_else(|| text.strip_prefix("-o")) {
            Some("") => rest.next().map(|value| value.to_string_lossy().into_owned()).unwrap_or_default(),
            Some(value) if value.starts_with('=') || !text.starts_with("--") => {
                value.trim_start_matches('=').to_owned()
            }
            _ => {
                kept.push(argument);
                continue;
            }
        };
        format = parse_format(&value).map_err(|why| value_parsers::invalid("--output", &value, &why))?;
    }
    *arguments = kept;
    Ok(format)
}

/// Checks a command line, and returns the error. The callers use this function to check flags one by one.
fn refusal(words: &[OsString]) -> Option<String> {
    match upstream::settle(words.to_vec()) {
        Err(why) => Some(why),
        Ok(settled) => match parsed(&without_empty(settled)) {
            Err(Stop::Refuse(why)) => Some(why),
            _ => None,
        },
    }
}

/// Parses the arguments with clap.
fn parsed(arguments: &[OsString]) -> Result<CommandLine, Stop> {
    let matches = command().try_get_matches_from(arguments);
    matches.and_then(|matches| CommandLine::from_arg_matches(&matches)).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Stop::Print(error.to_string()),
        _ => Stop::Refuse(one_line(&error, arguments)),
    })
}

/// Removes flags whose value is an empty file name or an empty list of texts. Such a flag means the same as no flag.
fn without_empty(arguments: Vec<OsString>) -> Vec<OsString> {
    let command = command();
    let may_go = |name: &str| {
        named(&command, name).is_some_and(|argument| {
            let kind = argument.get_value_parser().type_id();
            let is_list = argument.get_value_delimiter().is_some();
            is_list && kind == ValueParser::string().type_id() || kind == ValueParser::path_buf().type_id()
        })
    };
    let is_kept = |argument: &OsString| {
        let name = argument.to_str().and_then(|text| text.strip_prefix("--")?.strip_suffix('='));
        !name.is_some_and(may_go)
    };
    arguments.into_iter().filter(is_kept).collect()
}

/// Returns all flags with their values as texts, sorted by name.
fn values_of(arguments: &[OsString]) -> Vec<(String, Vec<String>)> {
    let command = command();
    let Ok(matches) = command.clone().try_get_matches_from(arguments) else { return Vec::new() };
    let flags = command.get_arguments().filter_map(|argument| {
        let name = argument.get_long()?;
        let values = matches.try_get_raw(argument.get_id().as_str()).ok().flatten();
        let values = values.into_iter().flatten().map(|value| value.to_string_lossy().into_owned());
        Some((name.to_owned(), values.collect()))
    });
    let mut flags: Vec<_> = flags.filter(|(name, _)| !matches!(name.as_str(), "help" | "version")).collect();
    flags.sort();
    flags
}

/// Replaces `_` by `-` in the names of all flags before `--`.
fn normalised_all(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut names_follow = true;
    let arguments = arguments.into_iter().enumerate().map(|(i, argument)| {
        names_follow &= argument != "--";
        if i > 0 && names_follow { normalised(argument) } else { argument }
    });
    arguments.collect()
}

/// Replaces `_` by `-` in the name of a flag: `--a_b=c_d` → `--a-b=c_d`.
fn normalised(argument: OsString) -> OsString {
    let Some(flag) = argument.to_str().and_then(|text| text.strip_prefix("--")) else { return argument };
    let (name, value) = flag.find('=').map_or((flag, ""), |at| flag.split_at(at));
    if name.contains('_') { format!("--{}{value}", name.replace('_', "-")).into() } else { argument }
}

/// Formats an error of clap as one line. Uses the text of kube-apiserver's flag library if the library has
/// the same error.
fn one_line(error: &clap::Error, arguments: &[OsString]) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let subject =
        context(ContextKind::InvalidArg).or(context(ContextKind::InvalidSubcommand)).unwrap_or_default();
    // Clap appends the names of values: `--secure-port <PORT>`.
    let flag = subject.split([' ', '=', '[']).next().unwrap_or_default();
    let value = context(ContextKind::InvalidValue).unwrap_or_default();
    let line = match error.kind() {
        ErrorKind::UnknownArgument if flag.starts_with('-') => unknown(flag, arguments),
        ErrorKind::InvalidSubcommand if is_command(arguments) => unknown_child(subject, arguments),
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => {
            unexpected(&[subject.to_owned()], naming::ALL[0])
        }
        ErrorKind::MissingRequiredArgument => match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::Strings(flags)) => format!("flag is required: {}", flags.join(", ")),
            _ => "a flag is missing".to_owned(),
        },
        ErrorKind::InvalidValue if value.is_empty() => format!("flag needs an argument: {flag}"),
        ErrorKind::ValueValidation => match std::error::Error::source(error) {
            Some(cause) => value_parsers::invalid(flag, value, &cause.to_string()),
            None => format!("invalid argument {value:?} for {flag:?} flag"),
        },
        ErrorKind::InvalidUtf8 => "arguments must be valid UTF-8".to_owned(),
        _ => first_line(&error.to_string()),
    };
    // A value may contain line breaks.
    line.replace(['\n', '\r'], " ")
}

/// Returns the error for an unknown flag. If one word has several one-letter flags, clap reports only the
/// unknown letter.
fn unknown(flag: &str, arguments: &[OsString]) -> String {
    let written = |is_it: &dyn Fn(&str) -> bool| {
        let texts = arguments.iter().skip(1).map(|argument| argument.to_string_lossy());
        texts.into_iter().find(|text| is_it(text)).map_or_else(|| flag.to_owned(), |text| text.into_owned())
    };
    match flag.strip_prefix("--") {
        Some(name) if name.is_empty() || name.starts_with('-') => {
            format!(
                "bad flag syntax: {}",
                written(&|text| text.starts_with("---") || text.starts_with("--="))
            )
        }
        Some(name) => match similar_flag(name) {
            Some(meant) => format!("unknown flag: {flag} (did you mean --{meant}?)"),
            None => format!("unknown flag: {flag}"),
        },
        None => {
            let letter = flag.trim_start_matches('-');
            let has_letter =
                |text: &str| !text.starts_with("--") && text.starts_with('-') && text.contains(letter);
            format!("unknown shorthand flag: '{letter}' in {}", written(&has_letter))
        }
    }
}

/// Returns the flag of the server or of a command whose spelling is closest to `name`.
fn similar_flag(name: &str) -> Option<String> {
    fn names(command: &clap::Command, all: &mut Vec<String>) {
        all.extend(command.get_arguments().filter_map(clap::Arg::get_long).map(str::to_owned));
        command.get_subcommands().for_each(|child| names(child, all));
    }
    let mut all = Vec::new();
    names(&command(), &mut all);
    suggestion::nearest(name, all.iter().map(String::as_str)).map(str::to_owned)
}

/// Returns the error for words that are not flags.
fn unexpected(words: &[String], naming: &Naming) -> String {
    let first = words.iter().find(|word| !word.is_empty()).map(String::as_str).unwrap_or_default();
    let mistyped = if first == "serve" { None } else { unknown_command(first, &command()) };
    mistyped.unwrap_or_else(|| {
        let words: Vec<String> = words.iter().map(|word| go::quote(word)).collect();
        format!("{:?} does not take any arguments, got [{}]", naming.system("apiserver"), words.join(" "))
    })
}

/// Returns the error for an unknown subcommand of `parent`, if a subcommand has a similar name.
fn unknown_command(word: &str, parent: &clap::Command) -> Option<String> {
    let meant = suggestion::nearest(word, parent.get_subcommands().map(clap::Command::get_name))?;
    Some(format!("unknown command {word:?}: did you mean {meant:?}? See --help"))
}

/// Returns the error for an unknown subcommand, such as `certs shwo`.
fn unknown_child(word: &str, arguments: &[OsString]) -> String {
    let root = command();
    let mut parent = &root;
    for argument in arguments.iter().skip(1) {
        let Some(child) = argument.to_str().and_then(|name| parent.find_subcommand(name)) else { break };
        parent = child;
    }
    unknown_command(word, parent).unwrap_or_else(|| {
        let names: Vec<&str> = parent.get_subcommands().map(clap::Command::get_name).collect();
        format!("unknown command {word:?} of {}: must be one of {}", parent.get_name(), names.join(", "))
    })
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
#[path = "line_test.rs"]
mod tests;
