//! Stand-ins for the programs of a test control plane (envtest): `kube-apiserver`, `etcd` and `kubectl`
//! (docs/guides/tests.md#envtest).
//!
//! ```text
//! test ─┬─► etcd            a listener that says "healthy" and where its data directory is
//!       ├─► kube-apiserver  this server, with its store in that directory
//!       └─► kubectl         the first other kubectl in PATH
//! ```
//!
//! The name of the executable selects the stand-in. This module only changes command lines and ends orphaned
//! processes. All other code behaves in the same way whether or not a test has started the server.

pub mod apiserver;
pub mod etcd;
pub mod kubectl;
mod line;
mod orphan;

use std::ffi::{OsStr, OsString};
use std::path::Path;

pub use self::orphan::exit_with_parent;

/// A program for which this binary has a stand-in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Program {
    /// `kube-apiserver`.
    ApiServer,
    /// `etcd`.
    Etcd,
    /// `kubectl`.
    Kubectl,
}

/// The programs and their names.
pub const PROGRAMS: [(&str, Program); 3] =
    [("kube-apiserver", Program::ApiServer), ("etcd", Program::Etcd), ("kubectl", Program::Kubectl)];

/// Returns the program that a command line starts, or `None` for the server under its own name.
///
/// The file name in the first word selects the program. `kube-apiserver etcd …` also starts etcd, for archives that
/// cannot have links. In this case the second word is removed. There is no conflict, because kube-apiserver itself
/// accepts only flags.
pub fn program(arguments: &mut Vec<OsString>) -> Option<Program> {
    let name = Path::new(arguments.first()?).file_name()?;
    let program = named(name)?;
    match arguments.get(1).and_then(|word| named(word)).filter(|_| program == Program::ApiServer) {
        Some(other) => {
            arguments.remove(1);
            Some(other)
        }
        None => Some(program),
    }
}

fn named(name: &OsStr) -> Option<Program> {
    PROGRAMS.iter().find(|(known, _)| *known == name).map(|(_, program)| *program)
}

/// Writes a line to standard error. Ignores errors, because the reader may have ended.
fn report(line: std::fmt::Arguments<'_>) {
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{line}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_selected_by_the_file_name_or_the_first_argument() {
        for (line, want, rest) in [
            ("/a/b/kube-apiserver --v=1", Some(Program::ApiServer), "/a/b/kube-apiserver --v=1"),
            ("etcd --name=a", Some(Program::Etcd), "etcd --name=a"),
            ("./kubectl get", Some(Program::Kubectl), "./kubectl get"),
            ("./kubectl etcd", Some(Program::Kubectl), "./kubectl etcd"),
            ("kube-apiserver etcd --name=a", Some(Program::Etcd), "kube-apiserver --name=a"),
            ("kube-apiserver kubectl etcd", Some(Program::Kubectl), "kube-apiserver etcd"),
            ("/kubectl/cluster-apiserver verify", None, "/kubectl/cluster-apiserver verify"),
            ("etcdctl", None, "etcdctl"),
        ] {
            let mut words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(program(&mut words), want, "{line}");
            assert_eq!(words.join(OsStr::new(" ")), rest, "{line}");
        }
        assert_eq!(program(&mut Vec::new()), None);
    }
}
