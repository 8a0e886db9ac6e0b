//! `testing install`: creates a directory with the programs that test control planes (envtest) start.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::output::{self, Format, Outcome, parse_format};
use crate::envtest::PROGRAMS;

/// The commands of `testing`.
#[derive(Clone, Debug, Subcommand)]
pub enum TestingCommand {
    /// Writes kube-apiserver, etcd and kubectl for test suites with envtest into a directory
    ///
    /// The three files are hard links to this binary, or symbolic links if DIR is on another file system. The command
    /// prints a line for the shell, which makes test suites use the files: eval "$(cluster-apiserver testing install
    /// DIR)". The file kube-apiserver runs this server, the file etcd runs a stand-in that only answers health checks,
    /// and the file kubectl runs the first other kubectl in PATH.
    Install(Install),
}

/// The flags of the command `testing install`.
#[derive(Clone, Debug, Args)]
pub struct Install {
    /// Directory of the programs. The command creates the directory if it does not exist.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    /// Replace existing files that are not this binary.
    #[arg(long)]
    pub force: bool,

    /// Output format. Possible values: text (a line for a shell), json, yaml.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = parse_format)]
    pub output: Format,
}

#[derive(Serialize)]
struct Report {
    directory: String,
    programs: Vec<&'static str>,
}

/// Runs the command and prints the directory.
pub fn run(command: &TestingCommand, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let TestingCommand::Install(flags) = command;
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    let dir = install(&own, flags)?;
    let report = Report {
        directory: dir.display().to_string(),
        programs: PROGRAMS.iter().map(|(name, _)| *name).collect(),
    };
    output::write(out, flags.output, &report, |out| {
        writeln!(out, "export KUBEBUILDER_ASSETS={}", quoted(&report.directory))
    })?;
    Ok(Outcome::Fine)
}

/// Creates the links to `own`, and returns the absolute path of the directory.
fn install(own: &Path, flags: &Install) -> anyhow::Result<PathBuf> {
    let dir = &flags.dir;
    let absolute = std::path::absolute(dir).with_context(|| format!("cannot use {}", dir.display()))?;
    fs::create_dir_all(&absolute)
        .with_context(|| format!("cannot create directory {}", absolute.display()))?;
    let paths: Vec<PathBuf> = PROGRAMS.iter().map(|(name, _)| absolute.join(name)).collect();
    // Check all files first, so that a refusal changes nothing.
    for path in &paths {
        if !flags.force && fs::symlink_metadata(path).is_ok() && !is_same(own, path) {
            bail!("{} exists and is another file: give --force to replace it", path.display());
        }
    }
    for path in &paths {
        link(own, path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(absolute)
}

/// Replaces `path` by a link to `own` in one step.
fn link(own: &Path, path: &Path) -> io::Result<()> {
    if is_same(own, path) {
        return Ok(());
    }
    let beside = path.with_extension("new");
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A hard link is better, because it still works after the binary is moved, but it needs the same file
    // system.
    fs::hard_link(own, &beside).or_else(|_| symlink(own, &beside))?;
    fs::rename(&beside, path)
}

/// Returns whether both paths lead to the same file.
fn is_same(own: &Path, path: &Path) -> bool {
    let id = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino())).ok();
    id(path).is_some_and(|found| Some(found) == id(own))
}

/// Quotes `text` so that a shell reads it as one word.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::scratch::Scratch;

    #[test]
    fn install_creates_three_links_and_does_not_touch_other_files() {
        let scratch = Scratch::new();
        let own = scratch.join("cluster-apiserver");
        fs::write(&own, "binary").unwrap();
        let flags = |force| Install { dir: scratch.join("a/b"), force, output: Format::Text };
        for _ in 0..2 {
            let dir = install(&own, &flags(false)).unwrap();
            assert!(PROGRAMS.iter().all(|(name, _)| is_same(&own, &dir.join(name))));
        }
        let etcd = scratch.join("a/b/etcd");
        fs::remove_file(&etcd).unwrap();
        fs::write(&etcd, "another").unwrap();
        let error = install(&own, &flags(false)).unwrap_err().to_string();
        assert!(error.contains("a/b/etcd") && error.contains("--force"), "{error}");
        assert_eq!(fs::read(&etcd).unwrap(), b"another");
        install(&own, &flags(true)).unwrap();
        assert!(is_same(&own, &etcd));
    }

    #[test]
    fn a_path_is_quoted_as_one_shell_word() {
        for (text, want) in [("/a/b-1.2", "/a/b-1.2"), ("/a b", "'/a b'"), ("/it's", r"'/it'\''s'")] {
            assert_eq!(quoted(text), want);
        }
    }
}
