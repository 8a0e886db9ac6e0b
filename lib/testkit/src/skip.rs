use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Reports that the running test does not check everything, and why. The report goes to standard error, which
/// the test runner shows only for tests that fail. The report also goes, as one line, to the file that the
/// environment variable `SKIPPED_TESTS` names; `.ci/check` prints this file at its end.
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
    let Some(path) = std::env::var_os("SKIPPED_TESTS") else { return };
    let thread = std::thread::current();
    let line = format!("{}: {why}\n", thread.name().unwrap_or("a test"));
    let written = OpenOptions::new().create(true).append(true).open(path);
    if let Err(error) = written.and_then(|mut file| file.write_all(line.as_bytes())) {
        eprintln!("cannot record what was skipped: {error}");
    }
}

/// Returns a file or directory of the reference data, which is in a directory `shared` next to the repository or one
/// level further up. If the data is absent, this function reports that the test is skipped and returns `None`.
pub fn reference(path: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let found = ["../shared", "../../shared"].map(|folder| root.join(folder).join(path));
    let found = found.into_iter().find(|candidate| candidate.exists());
    if found.is_none() {
        skip(&format!("shared/{path} is absent"));
    }
    found
}
