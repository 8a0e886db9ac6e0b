//! `man`: writes manual pages, which are generated from the definition of the command line.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command};
use clap_mangen::Man as Page;
use serde::Serialize;

use crate::cli::output::{self, Format, Outcome, parse_format};

/// The flags of the command `man`.
#[derive(Clone, Debug, Args)]
pub struct Man {
    /// Directory to write the pages into, such as /usr/local/share/man/man1. The command creates the
    /// directory if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,

    /// Output format of the list of pages. Possible values: text, json, yaml.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = parse_format)]
    pub output: Format,
}

#[derive(Serialize)]
struct Report {
    files: Vec<PathBuf>,
}

/// Writes the pages of a command line with this definition, and prints their names.
pub fn run(flags: &Man, definition: Command, out: &mut impl Write) -> anyhow::Result<Outcome> {
    std::fs::create_dir_all(&flags.to)
        .with_context(|| format!("cannot create directory {}", flags.to.display()))?;
    let mut files = Vec::new();
    for (name, text) in pages(definition)? {
        let path = flags.to.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        files.push(path);
    }
    let report = Report { files };
    output::write(out, flags.output, &report, |out| {
        report.files.iter().try_for_each(|file| writeln!(out, "{}", file.display()))
    })?;
    Ok(Outcome::Fine)
}

/// Returns the pages of all commands, with their file names.
fn pages(definition: Command) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut root = definition.disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    add(&root, root.get_name(), &mut pages)?;
    Ok(pages)
}

/// Adds the page of a command and the pages of its subcommands. `name` is the full name of the command, with dashes
/// between the words.
fn add(command: &Command, name: &str, pages: &mut Vec<(String, Vec<u8>)>) -> anyhow::Result<()> {
    for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
        add(child, &format!("{name}-{}", child.get_name()), pages)?;
    }
    let page = Page::new(command.clone().display_name(name));
    let file = page.get_filename();
    let mut text = Vec::new();
    page.render(&mut text)?;
    pages.push((file, text));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_manual_page() {
        let pages = pages(crate::cli::definition::definition()).unwrap();
        let text = |name: &str| {
            let page = pages.iter().find(|(file, _)| file == name).unwrap_or_else(|| panic!("{name}"));
            String::from_utf8_lossy(&page.1).into_owned()
        };
        assert!(text("cluster-apiserver.1").contains("secure\\-port"));
        assert!(text("cluster-apiserver-certs-rotate-ca.1").contains("finish"));
        assert!(text("cluster-apiserver-backup.1").contains("kubeconfig"));
    }
}
