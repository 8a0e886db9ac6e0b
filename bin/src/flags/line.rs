//! From words to flags: the command line is parsed, and what is wrong with it is said in one line.
//!
//! `words ─► names written alike ─► flags without effect and empty paths left out ─► clap ─► Flags, or a command`
//!
//! Errors are in the words of kube-apiserver's flag library where it has any. Knows no flag by its meaning.

use std::ffi::OsString;

use api::values::naming::{self, Naming};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use super::{Flags, forms, suggestion, upstream};
use crate::cli::args::Command;

/// Serves a resource API from its own revision log.
///
/// Without flags it keeps its store in ./cluster-data, creates its certificates at the first start, listens on
/// https://127.0.0.1:6443, and writes a kubeconfig for its administrator into the data directory. With a command it
/// works on a store offline instead.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "cluster-apiserver",
    version,
    args_override_self = true,
    max_term_width = 110,
    after_help = upstream::help(),
    args_conflicts_with_subcommands = true
)]
pub(super) struct CommandLine {
    #[command(flatten)]
    flags: Flags,
    #[command(subcommand)]
    command: Option<Command>,
}

/// What the command line asks for.
#[derive(Clone, Debug)]
pub enum Invocation {
    /// Serve.
    Serve(Box<Flags>, Vec<(String, String)>),
    /// Run an offline command.
    Run(Command),
}

#[cfg(test)]
impl Invocation {
    /// The flags of a command line that asks to serve.
    pub fn flags(self) -> Flags {
        match self {
            Invocation::Serve(flags, _) => *flags,
            Invocation::Run(command) => panic!("a command: {command:?}"),
        }
    }
}

/// Why the command line has no flags to continue with.
#[derive(Debug, Eq, PartialEq)]
pub enum Stop {
    /// A text that was asked for, such as the help.
    Print(String),
    /// An error in one line.
    Refuse(String),
}

/// Parses a command line, program name first.
///
/// # Errors
/// [`Stop`] when the process should end instead of serving.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation, Stop> {
    let mut names_follow = true;
    let arguments = arguments.into_iter().enumerate().map(|(i, argument)| {
        names_follow &= argument != "--";
        if i > 0 && names_follow { normalised(argument) } else { argument }
    });
    let mut arguments: Vec<OsString> = arguments.collect();
    // The words after a command are its own.
    if arguments.get(1).is_some_and(|first| first.to_string_lossy().starts_with('-')) {
        arguments = upstream::settle(arguments).map_err(Stop::Refuse)?;
    }
    let arguments = without_empty_paths(arguments);
    let line = CommandLine::try_parse_from(&arguments).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Stop::Print(error.to_string()),
        _ => Stop::Refuse(one_line(&error, &arguments)),
    })?;
    Ok(match line.command {
        None => Invocation::Serve(Box::new(line.flags), shown(&arguments)),
        Some(command) => Invocation::Run(command),
    })
}

/// The arguments without flags that name the file "": that is what there is without them.
fn without_empty_paths(arguments: Vec<OsString>) -> Vec<OsString> {
    let command = CommandLine::command();
    let is_path = |name: &str| {
        let is_of = |argument: &&clap::Arg| {
            argument.get_long() == Some(name)
                || argument.get_all_aliases().is_some_and(|all| all.contains(&name))
        };
        let found = command.get_arguments().find(is_of);
        found.is_some_and(|argument| {
            argument.get_value_parser().type_id() == clap::builder::ValueParser::path_buf().type_id()
        })
    };
    let mut names_follow = true;
    let is_kept = |argument: &OsString| {
        names_follow &= argument != "--";
        let name = argument.to_str().and_then(|text| text.strip_prefix("--")?.strip_suffix('='));
        !names_follow || !name.is_some_and(is_path)
    };
    arguments.into_iter().filter(is_kept).collect()
}

/// All flags with their values, for people who ask the server; by name.
fn shown(arguments: &[OsString]) -> Vec<(String, String)> {
    let Ok(matches) = CommandLine::command().try_get_matches_from(arguments) else { return Vec::new() };
    let command = CommandLine::command();
    let flags = command.get_arguments().filter_map(|argument| {
        let name = argument.get_long()?;
        let values = matches.try_get_raw(argument.get_id().as_str()).ok().flatten();
        let values: Vec<_> = values.into_iter().flatten().map(|value| value.to_string_lossy()).collect();
        Some((name.to_owned(), values.join(",")))
    });
    let mut flags: Vec<_> = flags.filter(|(name, _)| !matches!(name.as_str(), "help" | "version")).collect();
    flags.sort();
    flags
}

/// `--a_b=c_d` → `--a-b=c_d`.
fn normalised(argument: OsString) -> OsString {
    let Some(flag) = argument.to_str().and_then(|text| text.strip_prefix("--")) else { return argument };
    let (name, value) = flag.find('=').map_or((flag, ""), |at| flag.split_at(at));
    if name.contains('_') { format!("--{}{value}", name.replace('_', "-")).into() } else { argument }
}

/// Clap's errors in the words of kube-apiserver's flag library where it has any.
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
        ErrorKind::ArgumentConflict if Command::has_subcommand(subject) => {
            format!("the command {subject} must come before its flags")
        }
        // Clap reports any word after flags as a conflicting command.
        ErrorKind::ArgumentConflict if subject.starts_with('-') => first_line(&error.to_string()),
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand | ErrorKind::ArgumentConflict => {
            unexpected(subject, arguments)
        }
        ErrorKind::MissingRequiredArgument => match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::Strings(flags)) => format!("flag is required: {}", flags.join(", ")),
            _ => "a flag is missing".to_owned(),
        },
        ErrorKind::InvalidValue if value.is_empty() => format!("flag needs an argument: {flag}"),
        ErrorKind::ValueValidation => match std::error::Error::source(error) {
            Some(cause) => forms::invalid(flag, value, &cause.to_string()),
            None => format!("invalid argument {value:?} for {flag:?} flag"),
        },
        ErrorKind::InvalidUtf8 => "arguments must be valid UTF-8".to_owned(),
        _ => first_line(&error.to_string()),
    };
    // A value may contain line breaks.
    line.replace(['\n', '\r'], " ")
}

/// What to say of a flag that is not known. Clap names the letter alone where several were written together.
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
        Some(_) => format!("unknown flag: {flag}"),
        None => {
            let letter = flag.trim_start_matches('-');
            let has_letter =
                |text: &str| !text.starts_with("--") && text.starts_with('-') && text.contains(letter);
            format!("unknown shorthand flag: '{letter}' in {}", written(&has_letter))
        }
    }
}

/// What to say of a word that is no flag.
fn unexpected(word: &str, arguments: &[OsString]) -> String {
    if matches!(word, "true" | "false") {
        return format!(
            "unexpected argument {word:?}: write the value of a flag after its name, --flag={word}"
        );
    }
    let commands = CommandLine::command();
    let names = commands.get_subcommands().map(clap::Command::get_name);
    match suggestion::nearest(word, names) {
        Some(command) => format!("unknown command {word:?}: did you mean {command:?}? See --help"),
        None => {
            let is_of = |naming: &&Naming| {
                arguments.iter().any(|argument| *argument == *format!("--naming={}", naming.profile))
            };
            let naming = naming::ALL.into_iter().find(is_of).unwrap_or(naming::ALL[0]);
            format!("{:?} does not take any arguments, got [{word:?}]", naming.system("apiserver"))
        }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
#[path = "line_test.rs"]
mod tests;
