//! The server binary: flags → config → assembly, or flags → an offline command. An error is a single record
//! on standard error and exit code 1; invalid flags change nothing.

mod assemble;
mod audit;
mod cli;
mod config;
mod flags;
mod host;
mod remote;
mod store;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use api::state::debug::Debugging;
use types::version::Build;
use wire::metrics::{self, Metrics};

use crate::assemble::{After, Process};
use crate::config::Config;
use crate::flags::{Invocation, Stop};
use crate::host::ending::Ending;
use crate::host::{allocator, authorities, failure, logging, memory_return, process, profiles};

/// A write allocates and frees hundreds of small values across threads;
/// docs/decisions/0007-mimalloc-without-huge-pages.md explains the choice of this allocator.
#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

fn main() -> ExitCode {
    let started = Instant::now();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let format = failure::format_of(&arguments);
    let is_command = flags::is_command(&arguments);
    let (flags, shown) = match flags::parse(arguments) {
        Ok(Invocation::Serve(flags, shown)) => (*flags, shown),
        Ok(Invocation::Run(command)) => return cli::run(command),
        Err(Stop::Print(text)) => {
            // A closed pipe is not an error: the reader has enough.
            let _ = std::io::stdout().write_all(text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(Stop::Refuse(line)) if is_command => return refuse(&line),
        Err(Stop::Refuse(line)) => {
            failure::report(format, &line);
            return ExitCode::FAILURE;
        }
    };
    match serve(flags, shown, started) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            failure::report(format, &one_line(&error));
            // Errors that kube-apiserver calls fatal have a separate exit code.
            if is_fatal(&error) { ExitCode::from(255) } else { ExitCode::FAILURE }
        }
    }
}

/// Returns whether kube-apiserver exits at once because of an error.
fn is_fatal(error: &anyhow::Error) -> bool {
    error.is::<flags::NoReconciler>()
        || matches!(error.downcast_ref(), Some(api::writes::admission::Unusable::Unreadable(_)))
}

/// The commit and date that `build.rs` recorded.
const BUILD: Build = Build { commit: env!("GIT_COMMIT"), date: env!("BUILD_DATE") };

fn serve(flags: flags::Flags, shown: Vec<(String, String)>, started: Instant) -> anyhow::Result<()> {
    let config = Config { flags: shown, ..Config::from_flags(flags)? };
    let metrics = Arc::new(Metrics::new(metrics::Settings {
        disabled: config.disabled_metrics.clone(),
        shows_hidden: config.shows_hidden_metrics,
        allowed: config.allowed_labels.clone(),
        usage: process::usage,
        outgoing: config.outgoing_calls.clone(),
    }));
    let set_level = logging::start(config.log_format, config.verbosity, metrics.clone());
    let profiles = Arc::new(profiles::OwnProfiles);
    let debugging = Debugging { set_level: Some(set_level), profiles: Some(profiles) };
    if config.edge.is_debugged || config.debug_socket.is_some() {
        profiles::heap::start();
    }
    if let Err(error) = authorities::check() {
        let error = format!("{error:#}");
        tracing::warn!(
            error,
            "CA certificates of the system not read: connections to servers without a configured CA bundle fail"
        );
    }
    let ending = Ending::watch(config.shutdown_delay, config.shutdown_deadline)?;
    let mut kept = None;
    loop {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("api")
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.spawn(memory_return::run());
        let process = Process { metrics: metrics.clone(), debugging: debugging.clone(), started };
        let run = assemble::run(config.clone(), process, &ending, &mut kept);
        let result = runtime.block_on(run);
        // The remaining tasks belong to connections that were cut.
        runtime.shutdown_background();
        logging::flush();
        match result? {
            After::End => return Ok(()),
            After::Again => {}
        }
    }
}

/// Joins an error and its causes, without the causes that the preceding text already ends with.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.ends_with(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// Reports the error of an offline command.
fn refuse(line: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "error: {}", line.trim_end());
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let cause = || std::io::Error::other("no room");
        for (error, want) in [
            (anyhow::anyhow!("alone"), "alone"),
            (anyhow::Error::new(cause()).context("cannot write"), "cannot write: no room"),
            (anyhow::Error::new(cause()).context("cannot write: no room"), "cannot write: no room"),
        ] {
            assert_eq!(one_line(&error), want);
        }
    }
}
