//! Checks the reference page of the commands, `docs/reference/commands.md`. The page is generated from the definition
//! of the commands.
//!
//! `UPDATE_GOLDEN=1 cargo test --package cluster-apiserver the_documentation_of_commands` rewrites the page.

use std::fmt::Write;

use clap::{Arg, Command};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/commands.md");

const OPENING: &str = "\
# Commands

This page lists the commands of the binary and their flags. The page is for operators; [store commands](../guides/store-commands.md),
[backups](../guides/backups.md) and [users and certificates](../guides/certificates.md) show most of them at work.

```sh
cluster-apiserver completion bash >completion.bash
cluster-apiserver man --to=man1
```

Without a command the binary starts a server, like `serve`; [flags](../flags.md) lists the flags of the server. Reports go to standard
output. `--output=json` (`-o json`) prints a report for programs; members may be added to it, and none is renamed or removed. Progress
is shown on standard error, if that is a terminal. The command reports an error as one line on standard error, and ends with the
[exit code](exit-codes.md) 1. The page is generated from the definition of the command line, from which `completion` and `man` are
generated, too.
";

fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn name(flag: &Arg) -> String {
    let value = flag.get_value_names().and_then(<[_]>::first).map(|name| name.to_string());
    match (flag.get_long(), flag.get_short()) {
        (None, _) => format!("`{}`", value.unwrap_or_default()),
        (Some(long), short) => {
            let short = short.map(|short| format!(", `-{short}`")).unwrap_or_default();
            let value = value.filter(|_| flag.get_action().takes_values());
            format!("`--{long}{}`{short}", value.map(|value| format!("={value}")).unwrap_or_default())
        }
    }
}

/// Appends the section of a command, or the sections of its subcommands.
fn add(page: &mut String, command: &Command, path: &str) {
    let path = format!("{path}{}", command.get_name());
    if command.has_subcommands() {
        for child in command.get_subcommands() {
            add(page, child, &format!("{path} "));
        }
        return;
    }
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let _ = write!(page, "\n## {path}\n");
    for paragraph in about.split("\n\n").map(cell).filter(|paragraph| !paragraph.is_empty()) {
        let stop = if paragraph.ends_with(['.', ':']) { "" } else { "." };
        let _ = write!(page, "\n{paragraph}{stop}\n");
    }
    let flags: Vec<&Arg> = command.get_arguments().filter(|flag| !flag.is_hide_set()).collect();
    // The flags of the server are on another page, `docs/flags.md`.
    if flags.is_empty() || command.get_name() == "serve" {
        return;
    }
    page.push_str("\n| flag | default | meaning |\n|---|---|---|\n");
    for flag in flags {
        let default: Vec<_> =
            flag.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
        let is_shown = flag.get_action().takes_values() && !default.is_empty();
        let default = if is_shown { format!("`{}`", cell(&default.join(","))) } else { String::new() };
        let help = flag.get_long_help().or(flag.get_help()).map(ToString::to_string).unwrap_or_default();
        assert!(!help.is_empty(), "{path}: {flag}");
        let needed = if flag.is_required_set() { " Required." } else { "" };
        let stop = if needed.is_empty() || help.ends_with('.') { "" } else { "." };
        let _ = writeln!(page, "| {} | {default} | {}{stop}{needed} |", name(flag), cell(&help));
    }
}

fn page() -> String {
    let mut page = OPENING.to_owned();
    for command in crate::cli::definition::definition().get_subcommands() {
        add(&mut page, command, "");
    }
    page
}

#[test]
fn the_documentation_of_commands_is_up_to_date() {
    let page = page();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(PAGE, &page).expect("the page can be written");
    }
    let committed = std::fs::read_to_string(PAGE).expect("docs/reference/commands.md exists");
    for (committed, current) in committed.lines().zip(page.lines()) {
        assert_eq!(committed, current, "the page is out of date: run this test with UPDATE_GOLDEN=1");
    }
    assert_eq!(committed.len(), page.len(), "the page is out of date: run this test with UPDATE_GOLDEN=1");
}

#[test]
fn every_command_that_reports_prints_json() {
    fn check(command: &Command) {
        let children: Vec<_> = command.get_subcommands().collect();
        children.iter().for_each(|child| check(child));
        // The output of `completion` is always a script, so this command has no flag for the format.
        if !children.is_empty() || ["completion", "serve", "help"].contains(&command.get_name()) {
            return;
        }
        assert!(command.get_arguments().any(|flag| flag.get_short() == Some('o')), "{}", command.get_name());
    }
    check(&crate::cli::definition::definition());
}
