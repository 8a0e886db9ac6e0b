//! The files of the workspace, for tests that read the text of the project.

use std::fs;
use std::path::{Path, PathBuf};

/// Directories and files with text of the project, relative to the workspace.
pub const SOURCES: [&str; 14] = [
    "api",
    "auth",
    "benches",
    "bin",
    "docs",
    "engine",
    "fuzz",
    "lib",
    "tests",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
];

/// Returns the directory of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the workspace").to_owned()
}

/// Appends the files at and below `path` whose names have one of these endings.
pub fn files(path: &Path, endings: &[&str], into: &mut Vec<PathBuf>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a directory can be read") {
            files(&entry.expect("an entry can be read").path(), endings, into);
        }
    } else if path.extension().is_some_and(|ending| endings.iter().any(|known| ending == *known)) {
        into.push(path.to_owned());
    }
}
