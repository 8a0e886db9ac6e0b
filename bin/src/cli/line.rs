//! Parses the command line into flags, and reports an error in it in one line.
//!
//! `words ─► names with - for _ ─► values joined with their flags ─► flags without effect and empty values removed ─►
//! clap ─► Flags, or a command`
//!
//! Errors are those of kube-apiserver's flag library where it has the same error. This module does not depend on the meaning of
//! any flag.

use std::ffi::OsString;

use clap::builder::ValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use types::version::ServerVersion;
use values::naming::{self, Naming};

use crate::cli::args::Command;
use crate::config::Flags;
use crate::flags::words::{Shown, Words, named};
use crate::flags::{forms, suggestion, upstream};

/// Serves a Kubernetes-style API from its own store.
///
/// Without flags, the server stores its data in ./cluster-data, creates its certificates at the first start, listens on
/// https://127.0.0.1:6443, and writes a kubeconfig for its administrator into the data directory. A command works on a
/// store and does not start a server.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "cluster-apiserver",
    version,
    args_override_self = true,
    max_term_width = 110,
    after_help = "Run `cluster-apiserver --help` for all flags, and `cluster-apiserver help COMMAND` for those of a command.",
    after_long_help = upstream::help(),
    args_conflicts_with_subcommands = true
)]
pub struct CommandLine {
    #[command(flatten)]
    flags: Flags,
    #[command(subcommand)]
    command: Option<Command>,
}

/// A parsed command line.
#[derive(Clone, Debug)]
pub enum Invocation {
    /// Start the server with these flags. The pairs are all flags with their values as text.
    Serve(Box<Flags>, Vec<(String, String)>),
    /// Run a command on a store, without a server.
    Run(Command),
}

/// Returns the flags whose value is the name of a file.
#[cfg(test)]
pub fn naming_files() -> Vec<String> {
    let command = CommandLine::command();
    let names_file = |argument: &&clap::Arg| {
        argument.get_value_names().is_some_and(|names| names.iter().any(|name| name.as_str() == "FILE"))
    };
    let flags = command.get_arguments().filter(names_file);
    flags.filter_map(|flag| flag.get_long().map(str::to_owned)).collect()
}

#[cfg(test)]
impl Invocation {
    /// Returns the flags of a command line that starts the server.
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
    /// A requested text, such as the help.
    Print(String),
    /// An error in one line.
    Refuse(String),
}

/// Returns whether a command line begins with a command.
pub fn is_command(arguments: &[OsString]) -> bool {
    let first = arguments.get(1).map(|first| first.to_string_lossy());
    first.is_some_and(|first| first == "help" || Command::has_subcommand(&first))
}

/// Parses a command line, program name first.
///
/// # Errors
/// [`Stop`] if the process must end instead of serving.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation, Stop> {
    let arguments: Vec<OsString> = normalised_all(arguments);
    // The words after a command belong to the command.
    if is_command(&arguments) {
        return match parsed(&without_empty(arguments))?.command {
            Some(command) => Ok(Invocation::Run(command)),
            None => Err(Stop::Refuse("a command is missing: see --help".to_owned())),
        };
    }
    let words = Words::read(&CommandLine::command(), arguments).map_err(Stop::Refuse)?;
    if let Some(command) = words.others.first().filter(|word| Command::has_subcommand(word)) {
        return Err(Stop::Refuse(format!("the command {command} must come before its flags")));
    }
    let arguments = without_empty(upstream::settle(words.flags).map_err(Stop::Refuse)?);
    let mut flags = parsed(&arguments)?.flags;
    if let Some(asked) = words.help {
        return Err(text(&arguments, asked));
    }
    if words.others.iter().any(|word| !word.is_empty()) {
        return Err(Stop::Refuse(unexpected(&words.others, flags.store.naming)));
    }
    match words.version {
        Some(Shown::Name) => return Err(text(&arguments, "--version")),
        Some(Shown::Raw) => {
            let version = ServerVersion { build: crate::BUILD, ..ServerVersion::default() };
            return Err(Stop::Print(format!("{}\n", version.raw())));
        }
        None => flags.reported_version = words.reported_version,
    }
    Ok(Invocation::Serve(Box::new(flags), shown(&arguments)))
}

/// The flags that `-h` lists: the flags that a first installation sets. `--help` lists all flags.
const COMMON: [&str; 14] = [
    "data-dir",
    "naming",
    "bind-address",
    "secure-port",
    "tls-cert-file",
    "tls-private-key-file",
    "client-ca-file",
    "token-auth-file",
    "authorization-mode",
    "etcd-servers",
    "controllers",
    "history-retention",
    "log-format",
    "v",
];

/// Returns the command line with only the [`COMMON`] flags in the short help.
fn command() -> clap::Command {
    CommandLine::command().mut_args(|flag| {
        let is_common = flag.get_long().is_some_and(|name| COMMON.contains(&name));
        flag.hide_short_help(!is_common)
    })
}

/// Parses the arguments with clap.
fn parsed(arguments: &[OsString]) -> Result<CommandLine, Stop> {
    let matches = command().try_get_matches_from(arguments);
    matches.and_then(|matches| CommandLine::from_arg_matches(&matches)).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Stop::Print(error.to_string()),
        _ => Stop::Refuse(one_line(&error, arguments)),
    })
}

/// Returns the text that a flag requests.
fn text(arguments: &[OsString], flag: &str) -> Stop {
    let name = arguments.first().cloned().unwrap_or_default();
    parsed(&[name, flag.into()]).err().unwrap_or(Stop::Print(String::new()))
}

/// Removes flags whose value is the file name "" or an empty list of texts: that equals the absence of the flag.
fn without_empty(arguments: Vec<OsString>) -> Vec<OsString> {
    let command = CommandLine::command();
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

/// Returns all flags with their values, sorted by name, as `/flagz` shows them.
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

/// Returns an error of clap as one line, with the text of kube-apiserver's flag library where it has the same error.
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
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => {
            unexpected(&[subject.to_owned()], naming::ALL[0])
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

/// Returns the error for an unknown flag. If several letters were joined, clap names only the unknown letter.
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

/// Returns the flag of the server or of one of its commands whose spelling is closest to `name`.
fn similar_flag(name: &str) -> Option<String> {
    let server = CommandLine::command();
    let commands = std::iter::once(&server).chain(server.get_subcommands());
    let flags = commands.flat_map(|command| command.get_arguments().filter_map(clap::Arg::get_long));
    suggestion::nearest(name, flags).map(str::to_owned)
}

/// Returns the error for words that are not flags.
fn unexpected(words: &[String], naming: &Naming) -> String {
    let commands = CommandLine::command();
    let names = commands.get_subcommands().map(clap::Command::get_name);
    let first = words.iter().find(|word| !word.is_empty()).map(String::as_str).unwrap_or_default();
    match suggestion::nearest(first, names) {
        Some(command) => format!("unknown command {first:?}: did you mean {command:?}? See --help"),
        None => {
            let words: Vec<String> = words.iter().map(|word| go::quote(word)).collect();
            format!("{:?} does not take any arguments, got [{}]", naming.system("apiserver"), words.join(" "))
        }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
#[path = "line_test.rs"]
mod tests;
