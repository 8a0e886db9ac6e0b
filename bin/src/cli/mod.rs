//! The offline commands: `command line → one of these → report on stdout, exit code`.
//!
//! Reports go to stdout, as text or JSON; progress goes to stderr, only to a terminal; an error is one line
//! on stderr. Exit codes: 0 success, 1 failure, 2 success, but there is damage. `engine::offline` does the
//! actual work, without knowledge of resources or output formats.

mod accept_loss;
pub mod args;
mod backup;
mod compact;
mod inspect;
pub mod line;
mod migrate;
#[cfg(test)]
mod page_test;
mod progress;
mod receive;
mod report;
mod restore;
mod stats;
mod verify;

use std::io::{self, Write};
use std::process::ExitCode;

use crate::cli::args::Command;
use crate::host::failure::{one_line, refuse};
use crate::host::machine;

/// The outcome of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Outcome {
    /// No damage.
    Fine,
    /// Damage was found and reported.
    Damaged,
}

/// Runs a command and returns the exit code of the process.
pub fn run(command: Command) -> ExitCode {
    // A command opens all files of a store at once, so that reclamation cannot delete them.
    machine::raise_open_files();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = match command {
        Command::Verify(flags) => verify::run(&flags, &mut out),
        Command::Inspect(flags) => inspect::run(&flags, &mut out),
        Command::Stats(flags) => stats::run(&flags, &mut out),
        Command::Backup(flags) => backup::run(&flags, &mut out),
        Command::Compact(flags) => compact::run(&flags, &mut out),
        Command::Restore(flags) => restore::run(&flags, &mut out),
        Command::AcceptLoss(flags) => accept_loss::run(&flags, &mut out),
        Command::Migrate(flags) => migrate::run(&flags, &mut out),
    };
    match result.and_then(|outcome| Ok(out.flush().map(|()| outcome)?)) {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Damaged) => ExitCode::from(2),
        // A closed pipe is not an error: the reader has enough.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // The report so far is still valid.
            let _ = out.flush();
            refuse(&one_line(&error))
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
