//! The stand-in for kubectl, which replaces its process by the first other kubectl in `PATH`.

use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::envtest::{named, report};

/// Exit code if there is no kubectl. Shells use this exit code for a missing command.
const NOT_FOUND: u8 = 127;

/// Replaces this process by the other kubectl. This function returns only if the replacement fails.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let own = std::env::current_exe().ok();
    let Some(other) = other_kubectl(&directories, own.as_deref()) else {
        report(format_args!(
            "kubectl: this is a stand-in, and there is no other kubectl in PATH: install kubectl"
        ));
        return ExitCode::from(NOT_FOUND);
    };
    let error = Command::new(&other).args(arguments.into_iter().skip(1)).exec();
    report(format_args!("kubectl: cannot start {}: {error}", other.display()));
    ExitCode::FAILURE
}

/// Returns the first executable `kubectl` that is neither a link to this binary, nor a copy of it. Also skips
/// the directory of the stand-in if this process was started as a stand-in, because a `kubectl` in that
/// directory may be a script that starts the stand-in.
fn other_kubectl(directories: &[PathBuf], own: Option<&Path>) -> Option<PathBuf> {
    // If the binary has its own name, the real kubectl may be in the same directory, for example in /usr/bin.
    let is_stand_in = |own: &&Path| own.file_name().is_some_and(|name| named(name).is_some());
    let own_dir = own.filter(is_stand_in).and_then(Path::parent).and_then(|dir| dir.canonicalize().ok());
    let own = own.and_then(|own| own.metadata().ok());
    let is_beside = |dir: &Path| own_dir.is_some() && dir.canonicalize().ok() == own_dir;
    let is_other = |path: &PathBuf| {
        let Ok(found) = path.metadata() else { return false };
        let is_own = own.as_ref().is_some_and(|own| {
            // A copy of this binary has another inode, but the same size.
            (own.dev(), own.ino()) == (found.dev(), found.ino()) || own.len() == found.len()
        });
        found.is_file() && found.permissions().mode() & 0o111 != 0 && !is_own
    };
    let others = directories.iter().filter(|directory| !is_beside(directory));
    others.map(|directory| directory.join("kubectl")).find(is_other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::scratch::Scratch;
    use std::fs;

    #[test]
    fn links_to_this_program_and_files_that_cannot_run_are_skipped() {
        let dir = Scratch::new();
        let file = |directory: &str, text: &str, mode: u32| {
            fs::create_dir_all(dir.join(directory)).unwrap();
            let path = dir.join(directory).join("kubectl");
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        file("own", "script", 0o755);
        let own = dir.join("own/kube-apiserver");
        fs::write(&own, "binary").unwrap();
        file("copy", "binary", 0o755);
        fs::create_dir(dir.join("link")).unwrap();
        fs::hard_link(&own, dir.join("link/kubectl")).unwrap();
        file("text", "no program", 0o644);
        let real = file("real", "another", 0o755);
        let directories = |names: &[&str]| names.iter().map(|name| dir.join(name)).collect::<Vec<_>>();
        for (names, want) in [
            (&["own", "copy", "link", "text", "none", "real"][..], Some(real)),
            (&["own", "copy"], None),
            (&[], None),
        ] {
            assert_eq!(other_kubectl(&directories(names), Some(&own)), want, "{names:?}");
        }
    }
}
