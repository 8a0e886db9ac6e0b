//! The help of the binary on one screen: the commands in groups, and the most used flags of the server. `--help-all`
//! prints all flags in groups.

use std::fmt::Write;

use clap::{Arg, Command};

/// The commands in groups, in the order of the help.
pub const GROUPS: [(&str, &[&str]); 5] = [
    ("Run a server", &["serve", "config", "status", "history"]),
    ("Give access", &["kubeconfig", "token", "certs"]),
    (
        "Look after a store",
        &["stats", "verify", "inspect", "backup", "restore", "compact", "accept-loss", "migrate"],
    ),
    ("Test controllers", &["testing"]),
    ("Set up a shell", &["completion", "man", "help"]),
];

/// The flags that a first installation sets.
const COMMON: [&str; 15] = [
    "config",
    "data-dir",
    "naming",
    "bind-address",
    "secure-port",
    "tls-extra-names",
    "tls-cert-file",
    "tls-private-key-file",
    "client-ca-file",
    "authorization-mode",
    "audit-policy-file",
    "etcd-servers",
    "history-retention",
    "log-format",
    "v",
];

/// Longest line of the help.
const COLUMNS_MAX: usize = 110;

/// Returns the help of a command line with this definition.
pub fn short(definition: &Command) -> String {
    let mut text = format!(
        "{}\n\nUsage: cluster-apiserver [serve] [FLAGS]\n       cluster-apiserver COMMAND [FLAGS]\n\n",
        definition.get_about().map(ToString::to_string).unwrap_or_default()
    );
    for (title, names) in GROUPS {
        let names: Vec<String> = names.iter().map(|name| with_children(definition, name)).collect();
        let _ = writeln!(text, "{title:<20}{}", names.join(", "));
    }
    text.push_str("\nMost used flags of the server:\n");
    for name in COMMON {
        let flag = definition.get_arguments().find(|flag| flag.get_long() == Some(name));
        text.extend(flag.map(line));
    }
    text.push_str(
        "\n--help-all lists all flags, `help COMMAND` explains a command. Without a command and flags, the server stores its\n\
         data in ./cluster-data, listens on https://127.0.0.1:6443, and writes cluster-data/admin.kubeconfig.\n",
    );
    text
}

/// Returns the name of a command with the names of its subcommands: `token create`, `certs show|renew`.
fn with_children(definition: &Command, name: &str) -> String {
    let command = definition.get_subcommands().find(|command| command.get_name() == name);
    let children = command.into_iter().flat_map(Command::get_subcommands).map(Command::get_name);
    let children: Vec<&str> = children.filter(|name| *name != "help").collect();
    if children.is_empty() { name.to_owned() } else { format!("{name} {}", children.join("|")) }
}

/// Returns the line of a flag: its name, the first sentence of its description, and its default.
fn line(flag: &Arg) -> String {
    let value = flag.get_value_names().and_then(<[_]>::first).map(ToString::to_string).unwrap_or_default();
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    let sentence = help.split(". ").next().unwrap_or_default().trim_end_matches('.');
    let default: Vec<_> =
        flag.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    let default = if default.is_empty() { String::new() } else { format!(" [{}]", default.join(",")) };
    let name = format!("--{} {value}", flag.get_long().unwrap_or_default());
    let room = COLUMNS_MAX - 34 - default.chars().count();
    let sentence: String = if sentence.chars().count() > room {
        sentence.chars().take(room - 1).chain(['…']).collect()
    } else {
        sentence.to_owned()
    };
    format!("  {name:<32}{sentence}{default}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::definition::definition;

    #[test]
    fn the_help_fits_on_one_screen_and_names_every_command() {
        let definition = definition();
        let text = short(&definition);
        assert!(text.lines().count() <= 32, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        for command in definition.get_subcommands().map(Command::get_name) {
            assert!(GROUPS.iter().any(|(_, names)| names.contains(&command)), "{command} is in no group");
        }
        for flag in COMMON {
            assert!(text.contains(&format!("  --{flag} ")), "{flag} is missing in\n{text}");
        }
    }
}
