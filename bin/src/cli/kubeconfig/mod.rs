//! `kubeconfig`: creates and merges kubeconfigs for the users of a server.
//!
//! ```text
//! admin.kubeconfig (address, CA) ─┬─► create ─► kubeconfig of a user, with a certificate that the server's CA signs
//!                                 └─► merge  ─► the kubeconfig of the person who runs the command
//! ```

mod create;
mod document;
mod merge;

use std::io::Write;

use clap::Subcommand;

use crate::cli::output::Outcome;

/// The commands of `kubeconfig`.
#[derive(Clone, Debug, Subcommand)]
pub enum KubeconfigCommand {
    /// Creates a kubeconfig for a user, with a client certificate that the server's own CA signs
    ///
    /// The command works in the data directory of the server, which may be running. The user has no permissions until a
    /// role binding names the user or one of the groups. A client certificate cannot be revoked, so its lifetime should
    /// be short.
    Create(create::Create),
    /// Adds the administrator's kubeconfig, or another kubeconfig, to your own
    ///
    /// Entries of other servers do not change, but comments in the file are lost.
    Merge(merge::Merge),
}

/// Runs the command and prints its report.
pub fn run(command: &KubeconfigCommand, out: &mut impl Write) -> anyhow::Result<Outcome> {
    match command {
        KubeconfigCommand::Create(flags) => create::run(flags, out),
        KubeconfigCommand::Merge(flags) => merge::run(flags, out),
    }
}
