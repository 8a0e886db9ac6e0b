//! Commands that look after a store: `command line → one of these → report on stdout, exit code`.
//!
//! What a command says goes to stdout, as text or JSON; progress goes to stderr and only to a terminal; an error is
//! one line on stderr. Exit codes: 0 done, 1 not done, 2 done but there is damage. The work itself is engine's
//! (`engine::offline`), which knows no resources and no formats of output.

pub mod args;
mod backup;
mod compact;
mod inspect;
mod progress;
mod receive;
mod report;
mod restore;
mod stats;
mod verify;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cli::args::Command;
use crate::{host, refuse};

/// How a command that did its work ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Outcome {
    /// All is well.
    Fine,
    /// It met damage and said so.
    Damaged,
}

/// Runs a command to its end.
pub fn run(command: Command) -> ExitCode {
    // A store's files are held open all at once, so that reclaim cannot take them away.
    host::raise_open_files();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = match command {
        Command::Verify(flags) => verify::run(&flags, &mut out),
        Command::Inspect(flags) => inspect::run(&flags, &mut out),
        Command::Stats(flags) => stats::run(&flags, &mut out),
        Command::Backup(flags) => backup::run(&flags, &mut out),
        Command::Compact(flags) => compact::run(&flags, &mut out),
        Command::Restore(flags) => restore::run(&flags, &mut out),
    };
    match result.and_then(|outcome| Ok(out.flush().map(|()| outcome)?)) {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Damaged) => ExitCode::from(2),
        // A reader that closed early has seen enough.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // What was said before it still counts.
            let _ = out.flush();
            refuse(&format!("{error:#}"))
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Where the store of a data directory is.
pub fn store_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("log")
}
