//! Calls of the operating system: only the module `platform` of each crate calls the system directly, without the
//! standard library. A port to another system therefore changes only these modules.

use std::fs;
use std::path::Path;

use crate::tree::{files, root};

/// Text that occurs only in code for one system or one family of systems.
const SPECIAL: [&str; 5] = ["/proc/", "libc::", "rustix::", "os::linux::", "cfg(target_os"];

/// The crates of the server. The other crates contain only tests and measurements.
const CRATES: [&str; 5] = ["api", "auth", "bin", "engine", "lib"];

/// Files outside the modules, each with its reason.
const EXCEPTIONS: [(&str, &str); 1] =
    [("lib/testkit/src/processor.rs", "measures tests; without the file of Linux the measurement is zero")];

/// Returns the lines of a source that name something specific to an operating system, without comments and tests.
fn special_lines(text: &str) -> Vec<&str> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let is_special = |line: &&str| {
        let line = line.split("// ").next().unwrap_or_default();
        !line.trim_start().starts_with("//") && SPECIAL.iter().any(|special| line.contains(special))
    };
    code.lines().filter(is_special).collect()
}

fn is_test(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with("_test.rs") || path.components().any(|part| part.as_os_str() == "tests")
}

fn is_platform(path: &Path) -> bool {
    path.with_extension("").components().any(|part| part.as_os_str() == "platform")
}

#[test]
fn only_platform_modules_call_the_system() {
    let root = root();
    let mut sources = Vec::new();
    CRATES.iter().for_each(|name| files(&root.join(name), &["rs"], &mut sources));
    let (mut wrong, mut modules) = (Vec::new(), 0);
    for source in sources {
        let path = source.strip_prefix(&root).expect("a source is in the workspace");
        let text = fs::read_to_string(&source).expect("a source is text");
        let is_exception = EXCEPTIONS.iter().any(|(exception, _)| Path::new(exception) == path);
        let lines = special_lines(&text);
        if is_platform(path) {
            modules += 1;
        } else if is_exception {
            assert!(!lines.is_empty(), "{} needs no exception any more", path.display());
        } else if !is_test(path) {
            wrong.extend(lines.iter().map(|line| format!("{}: {}", path.display(), line.trim())));
        }
    }
    assert!(modules > 5, "{modules} files of platform modules found");
    assert!(
        wrong.is_empty(),
        "these lines belong to the platform module of their crate:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn special_lines_are_found_outside_comments_and_tests() {
    let text = "//! Reads /proc/self/stat.\nuse std::fs; // not libc::read\nlet a = libc::read();\n    rustix::fs::flock(f);\n\
                #[cfg(test)]\nmod tests { use libc::getpid; }";
    assert_eq!(special_lines(text), ["let a = libc::read();", "    rustix::fs::flock(f);"]);
    assert!(is_platform(Path::new("a/src/platform.rs")) && is_platform(Path::new("a/src/platform/files.rs")));
    assert!(!is_platform(Path::new("a/src/platforms.rs")) && is_test(Path::new("a/src/files_test.rs")));
}
