//! The commands: `command line → one of these → report on stdout, exit code`.
//!
//! Most commands work on a store or a data directory; `status` and `token` connect to a running server.
//! Reports go to stdout, as text or JSON; progress goes to stderr, only to a terminal; an error is one line
//! on stderr. Exit codes: 0 success, 1 failure, 2 success, but there is damage. `engine::offline` does the
//! actual work, without knowledge of resources or output formats.

mod accept_loss;
pub mod args;
mod backup;
mod certs;
#[cfg(test)]
mod commands_page_test;
mod compact;
mod completion;
pub mod configuration;
mod connect;
pub mod definition;
mod gathered;
mod help;
mod inspect;
mod kubeconfig;
pub mod line;
mod man;
mod migrate;
mod output;
#[cfg(test)]
mod page_test;
mod progress;
mod receive;
mod report;
mod restore;
mod stats;
mod status;
mod token;
mod verify;

use std::io::{self, Write};
use std::process::ExitCode;

use crate::cli::args::Command;
use crate::cli::configuration::ConfigCommand;
use crate::cli::output::Outcome;
use crate::host::failure::{one_line, refuse};
use crate::host::machine;

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
        Command::Status(flags) => status::run(&flags, &mut out),
        Command::Kubeconfig(command) => kubeconfig::run(&command, &mut out),
        Command::Certs(command) => certs::run(&command, &mut out),
        Command::Token(command) => token::run(&command, &mut out),
        Command::Completion(flags) => completion::run(&flags, definition::definition(), &mut out),
        Command::Man(flags) => man::run(&flags, definition::definition(), &mut out),
    };
    finish(result, &mut out)
}

/// Checks or prints a configuration, and returns the exit code of the process.
pub fn configure(command: ConfigCommand) -> ExitCode {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = configuration::run(command, &mut out);
    finish(result, &mut out)
}

fn finish(result: anyhow::Result<Outcome>, out: &mut impl Write) -> ExitCode {
    match result.and_then(|outcome| Ok(out.flush().map(|()| outcome)?)) {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Damaged) => ExitCode::from(2),
        Ok(Outcome::Failed) => ExitCode::FAILURE,
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
