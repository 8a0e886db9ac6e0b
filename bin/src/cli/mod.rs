//! The commands: `command line → command → report on stdout, exit code`.
//!
//! Most commands work on a store or a data directory. `status`, `history` and `token` connect to a running server. A
//! command prints its report to stdout as text, JSON or YAML, and an error as one line to stderr. If stderr is a
//! terminal, the command shows its progress there. Exit code 0 means success, 1 failure, and 2 success with damage.
//! Commands that read a store use `engine::offline`, which does not depend on resources or output formats.

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
mod flag_sources;
mod help;
mod history;
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
mod testing;
mod token;
mod verify;

pub use history::of_plugin;

use std::io::{self, Write};
use std::process::ExitCode;

use crate::cli::args::Command;
use crate::cli::configuration::ConfigCommand;
use crate::cli::output::Outcome;
use crate::host::failure::{one_line, refuse};
use crate::host::platform::limits;

/// Runs a command and returns the exit code of the process.
pub fn run(command: Command) -> ExitCode {
    // A command opens all files of a store at the beginning, because reclamation may delete files while the
    // command runs.
    limits::raise_open_files();
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
        Command::History(command) => history::run(&command, &mut out),
        Command::Kubeconfig(command) => kubeconfig::run(&command, &mut out),
        Command::Certs(command) => certs::run(&command, &mut out),
        Command::Token(command) => token::run(&command, &mut out),
        Command::Testing(command) => testing::run(&command, &mut out),
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
        // A closed pipe is not an error: the program that reads the pipe needs no more output.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Print the part of the report that was written before the error.
            let _ = out.flush();
            refuse(&one_line(&error))
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
