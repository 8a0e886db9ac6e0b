//! The process of the server: flags → config → assembly, or flags → an offline command. If a start fails, the process
//! writes a single record to standard error and exits with a code other than 0. The process checks all flags
//! before it changes a file.
//!
//! The binary only calls [`run`]. A build compiles this library at the same time as the crates below it; it would compile
//! the code of a binary after them.
//!
//! The top-level modules of this crate are called rooms. A room imports only from the rooms below it in this
//! table; `rooms_test.rs` checks this rule.
//!
//! | room | contents |
//! |---|---|
//! | `cli` | the command line, and the offline commands |
//! | `assemble` | the serving process: phases from a bound port to the exit |
//! | `envtest` | stand-ins for kube-apiserver, etcd and kubectl in a test control plane |
//! | `config` | the flags in groups, and the settings that are built from the flags |
//! | `audit` | the sinks of audit events |
//! | `store` | the store of a data directory: identity, location, copies of etcd, moves |
//! | `remote` | clients of other processes, kubeconfig files, webhooks |
//! | `flags` | parsers of flag values, and the errors of wrong flags |
//! | `host` | files, certificates, sockets, logging, memory, profiles, and the end of the process |

mod assemble;
mod audit;
mod cli;
mod config;
mod envtest;
mod flags;
mod host;
mod remote;
#[cfg(test)]
mod rooms_test;
mod store;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use api::state::debug::Debugging;
use futures_util::FutureExt;
use types::version::Build;
use wire::metrics::Metrics;

use crate::assemble::{After, Process, Run};
use crate::cli::configuration::{self, Configuration};
use crate::cli::line::{self, Invocation, Stop};
use crate::config::Config;
use crate::envtest::Program;
use crate::envtest::apiserver::Start;
use crate::flags::problems::FlagErrors;
use crate::host::failure::FailedStart;
use crate::host::process_end::ProcessEnd;
use crate::host::{allocator, authorities, failure, logging, memory_return, profiles, welcome};

/// A write allocates and frees hundreds of small values across threads;
/// docs/decisions/0007-mimalloc-without-huge-pages.md explains the choice of this allocator.
#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

/// Runs the command line of the process until the server or the command has ended, and returns the exit code of the
/// process (docs/reference/exit-codes.md).
pub fn run() -> ExitCode {
    let started = Instant::now();
    let arguments = match as_stand_in(cli::of_plugin(std::env::args_os().collect())) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let format = failure::format_of(&arguments);
    let is_command = line::is_command(&arguments);
    let configuration = match line::parse(arguments) {
        Ok(Invocation::Serve(configuration)) => configuration,
        Ok(Invocation::Run(command)) => return cli::run(command),
        Ok(Invocation::Configure(command)) => return cli::configure(command),
        Err(Stop::Print(text)) => return print(&text),
        Err(Stop::Refuse(line)) if is_command => return failure::refuse(&line),
        Err(Stop::Refuse(line)) => {
            failure::report(format, &FailedStart { error: &line, ..FailedStart::default() });
            return ExitCode::FAILURE;
        }
        Err(Stop::Faults(faults)) => {
            let error = &configuration::joined(&faults);
            failure::report(format, &FailedStart { error, ..FailedStart::default() });
            return ExitCode::FAILURE;
        }
    };
    match serve(&configuration, started) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let wrong = error.downcast_ref::<FlagErrors>();
            let flags = wrong.into_iter().flat_map(FlagErrors::all);
            let flags = flags.map(|error| (error.flag(), error.value())).collect();
            let text =
                wrong.map_or_else(|| failure::one_line(&error), |wrong| configuration.explained(wrong));
            failure::report(format, &FailedStart { error: &text, flags });
            // Errors that kube-apiserver calls fatal have a separate exit code.
            if wrong.is_some_and(FlagErrors::are_fatal) { ExitCode::from(255) } else { ExitCode::FAILURE }
        }
    }
}

/// Returns the command line of the server, if the process was started as the server or as kube-apiserver. Otherwise
/// runs the stand-in for etcd or kubectl, and returns the exit code of that program as the error.
fn as_stand_in(mut arguments: Vec<OsString>) -> Result<Vec<OsString>, ExitCode> {
    match envtest::program(&mut arguments) {
        None => Ok(arguments),
        Some(Program::Etcd) => Err(envtest::etcd::run(arguments)),
        Some(Program::Kubectl) => Err(envtest::kubectl::run(arguments)),
        Some(Program::ApiServer) => {
            let format = failure::format_of(&arguments);
            match envtest::apiserver::start(arguments, &cli::definition::command()) {
                Ok(Start::Continue(arguments)) => Ok(arguments),
                Ok(Start::Print(text)) => Err(print(&text)),
                Err(error) => {
                    failure::report(format, &FailedStart { error: &error, ..FailedStart::default() });
                    Err(ExitCode::FAILURE)
                }
            }
        }
    }
}

fn print(text: &str) -> ExitCode {
    // A closed pipe is not an error: the program that reads the pipe needs no more output.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// The commit and date that `build.rs` recorded.
const BUILD: Build = Build { commit: env!("GIT_COMMIT"), date: env!("BUILD_DATE") };

fn serve(configuration: &Configuration, started: Instant) -> anyhow::Result<()> {
    let config = Config::from_flags(&configuration.flags)?;
    let welcomes = welcome::is_due(&config.store.data_dir, config.logging.format);
    let config = Config { flags: configuration.flag_values(), welcomes, ..config };
    let metrics = Arc::new(Metrics::new(config.metrics.of_process(config.outgoing_calls.clone())));
    let set_level = logging::start(config.logging, metrics.clone());
    if config.exits_with_parent {
        envtest::exit_with_parent("cluster-apiserver").context("cannot watch the parent process")?;
    }
    let profiles = Arc::new(profiles::OwnProfiles);
    let debugging = Debugging { set_level: Some(set_level), profiles: Some(profiles) };
    if config.edge.edge.is_debugged || config.edge.debug_socket.is_some() {
        profiles::heap::start();
    }
    if let Err(error) = authorities::check() {
        let error = format!("{error:#}");
        tracing::warn!(
            error,
            "CA certificates of the system not read: connections to servers without a configured CA bundle fail"
        );
    }
    let ending = ProcessEnd::watch(config.requests.shutdown)?;
    let mut listener = None;
    loop {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("api")
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.spawn(memory_return::run().boxed());
        let process = Process { metrics: metrics.clone(), debugging: debugging.clone(), started };
        let run = Run::new(config.clone(), process, &ending);
        let result = runtime.block_on(run.finish(&mut listener));
        // Connections that were cut may have left tasks behind; stop these tasks.
        runtime.shutdown_background();
        logging::flush();
        match result? {
            After::End => return Ok(()),
            After::Again => {}
        }
    }
}
