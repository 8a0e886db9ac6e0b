//! The definition of the command line: the flags of the server, and the commands. Help, completions, manual pages and
//! reference pages are generated from this definition.

use clap::{Arg, ArgAction, Args, CommandFactory, Parser, ValueHint};

use crate::cli::args::Command;
use crate::cli::flag_sources::CONFIG;
use crate::config::Flags;
use crate::flags::sources::Field;
use crate::flags::upstream;

/// Serves a Kubernetes-style API from its own store.
///
/// Without flags, the server stores its data in ./cluster-data, creates its certificates at the first start, listens on
/// https://127.0.0.1:6443, and writes a kubeconfig for its administrator into the data directory. The value of a flag
/// comes from the command line, else from an environment variable (CLUSTER_APISERVER_SECURE_PORT for --secure-port),
/// else from the file in --config.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "cluster-apiserver",
    version,
    args_override_self = true,
    max_term_width = 110,
    after_long_help = upstream::help(),
    args_conflicts_with_subcommands = true
)]
pub struct CommandLine {
    #[command(flatten)]
    pub flags: Flags,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Returns the definition of the command line, with the commands `serve` and `config`. `line.rs` parses these two
/// commands itself, because they take the flags of the server.
pub fn command() -> clap::Command {
    let serve = clap::Command::new("serve")
        .about("Starts the server; the default command")
        .long_about("Starts the server. This command is the default, so the word serve can be omitted. The command takes the flags of the server.");
    let output = || {
        let help = "Output format. Possible values: text, json, yaml";
        Arg::new("output").long("output").short('o').value_name("FORMAT").default_value("text").help(help)
    };
    let takes = "The command takes the flags of the server as well.";
    let check = clap::Command::new("check")
        .about("Checks the flags, the variables and all files that they name, without a start of the server")
        .long_about(format!(
            "Checks the flags, the environment variables, the configuration file, and all files that they name, without a \
             start of the server. Each error is a line with the file, the line number, the name, the value and the accepted values. {takes}"
        ))
        .args([config_flag(), output()]);
    let only_set = Arg::new("changed").long("changed").action(ArgAction::SetTrue);
    let print = clap::Command::new("print")
        .about("Prints the effective configuration, with the source of each value")
        .long_about(format!(
            "Prints the effective configuration as a configuration file, with the source of each value: default, line of the \
             file, environment variable, or command line. {takes}"
        ))
        .args([config_flag(), only_set.help("Leave out the values that have their defaults"), output()]);
    let config = clap::Command::new("config")
        .about("Checks or prints the configuration of a server, without a start")
        .subcommand_required(true)
        .subcommands([check, print]);
    CommandLine::command().arg(config_flag()).subcommands([serve, config])
}

fn config_flag() -> Arg {
    Arg::new(CONFIG)
        .long(CONFIG)
        .value_name("FILE")
        .help_heading("Configuration")
        .help("Configuration file (YAML, kind ServerConfiguration), whose members have the names of the flags. Environment variables and flags override the file")
}

/// Returns the definition for help, completions, manual pages and reference pages. In this definition, `serve` has the
/// flags of the server, and values that are file names can be completed.
pub fn definition() -> clap::Command {
    let command = command().mut_subcommand("serve", |serve| Flags::augment_args(serve).arg(config_flag()));
    with_hints(command)
}

fn with_hints(command: clap::Command) -> clap::Command {
    let hinted = |flag: Arg| {
        let hint = match flag.get_value_names().and_then(<[_]>::first).map(|name| name.as_str()) {
            Some("FILE") => ValueHint::FilePath,
            Some("DIR") => ValueHint::DirPath,
            _ => return flag,
        };
        flag.value_hint(hint)
    };
    command.mut_args(hinted).mut_subcommands(with_hints)
}

/// Returns the flags that a configuration file or a variable may set: the flags of the server, and the flags of
/// kube-apiserver that have no effect.
pub fn fields() -> Vec<Field> {
    let command = command();
    let declared = command.get_arguments().filter_map(|flag| {
        let kind = flag.get_value_names().and_then(<[_]>::first).map(ToString::to_string)?;
        Some(Field {
            name: flag.get_long()?.to_owned(),
            kind,
            is_repeatable: matches!(flag.get_action(), ArgAction::Append),
            help: flag.get_long_help().or(flag.get_help()).map(ToString::to_string).unwrap_or_default(),
        })
    });
    let without_effect = upstream::all_without_effect().map(|(name, why)| Field {
        name: name.to_owned(),
        kind: if upstream::takes_value(name) { "TEXT" } else { "BOOL" }.to_owned(),
        is_repeatable: false,
        help: format!("No effect here: {why}"),
    });
    declared.chain(without_effect).collect()
}

/// Returns the names of the flags whose value is a file name.
#[cfg(test)]
pub fn naming_files() -> Vec<String> {
    let command = command();
    let names_file = |argument: &&clap::Arg| {
        argument.get_value_names().is_some_and(|names| names.iter().any(|name| name.as_str() == "FILE"))
    };
    let flags = command.get_arguments().filter(names_file);
    flags.filter_map(|flag| flag.get_long().map(str::to_owned)).collect()
}
