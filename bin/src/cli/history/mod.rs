//! `history`: reads the history of objects on a running server, and brings earlier states back
//! (docs/guides/history.md). If the executable is named `kubectl-history`, kubectl runs the same commands as a plugin.
//!
//! ```text
//! TYPE/NAME ─► discovery ─► path of the object ─┬─► GET  /history/<object>           log · who
//!                                               ├─► GET  /as-of/<point>/<object>     show · diff
//!                                               └─► POST /history/<object>/restore   restore
//! TYPE…     ─► discovery ─► lists of now and then ─► plan ─► restores, deletes       undo
//! ```

mod colour;
mod diff;
mod discovery;
mod log;
mod path;
pub mod point;
mod restore;
mod show;
mod target;
mod undo;
mod versions;
mod who;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use clap::Subcommand;

use crate::cli::output::Outcome;

/// Name of the executable when kubectl runs it as a plugin.
const PLUGIN: &str = "kubectl-history";

/// Field manager of the writes of these commands.
const MANAGER: &str = "cluster-apiserver-history";

/// The commands of `history`.
#[derive(Clone, Debug, Subcommand)]
pub enum HistoryCommand {
    /// Lists the versions of an object: when the object changed, who changed it, and which fields changed
    ///
    /// The newest version comes first. The command also works after the object was deleted. The user needs the verbs get
    /// and history on the object.
    Log(log::HistoryLog),
    /// Prints an object as it was at an earlier point
    Show(show::HistoryShow),
    /// Prints what changed in an object between two points, as a unified diff of YAML
    ///
    /// Without --from and --to, the command prints the newest change. The diff does not contain managed fields and the
    /// resource version.
    Diff(diff::HistoryDiff),
    /// Brings back the state that an object had at an earlier point, after printing the difference
    ///
    /// The server treats the restore like an update, or like a create if the object was deleted. So permissions,
    /// admission and validation apply. If the status is a subresource, the command does not restore the status.
    Restore(restore::HistoryRestore),
    /// Brings back everything that was created, changed or deleted since a point
    ///
    /// The command compares all objects, or the objects that the arguments select, with their states at the point. Then
    /// the command prints the plan, asks for a confirmation, and brings the states back: first namespaces and
    /// definitions, then owners before their dependents. At the end, the command deletes the objects that were created
    /// after the point. The command stops if the server refuses a step, and a new run continues with the remaining
    /// steps. If a controller manages an object for an owner that still exists, the command does not change the object.
    /// The command leaves out events, leases, endpoints and nodes if no argument names them. The command always leaves
    /// out resources that other servers serve.
    Undo(undo::Undo),
    /// Finds the change that gave a field its value: the user, the time, the old value and the new value
    Who(who::HistoryWho),
}

/// Runs the command and prints its report.
pub fn run(command: &HistoryCommand, out: &mut impl Write) -> anyhow::Result<Outcome> {
    match command {
        HistoryCommand::Log(flags) => log::run(flags, out),
        HistoryCommand::Show(flags) => show::run(flags, out),
        HistoryCommand::Diff(flags) => diff::run(flags, out),
        HistoryCommand::Restore(flags) => restore::run(flags, out),
        HistoryCommand::Undo(flags) => undo::run(flags, out),
        HistoryCommand::Who(flags) => who::run(flags, out),
    }
}

/// Inserts the command `history` into the command line, if the executable has the name of the kubectl plugin.
pub fn of_plugin(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let name = arguments.first().and_then(|program| Path::new(program).file_stem());
    if name.is_some_and(|name| name == PLUGIN) {
        arguments.insert(1, "history".into());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubectl_plugin_runs_the_history_command() {
        for (words, want) in [
            ("/usr/bin/kubectl-history log a/b", "/usr/bin/kubectl-history history log a/b"),
            ("kubectl-history", "kubectl-history history"),
            ("cluster-apiserver log", "cluster-apiserver log"),
            ("", ""),
        ] {
            let words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
            let got: Vec<_> =
                of_plugin(words).iter().map(|word| word.to_string_lossy().into_owned()).collect();
            assert_eq!(got.join(" "), want);
        }
    }
}
