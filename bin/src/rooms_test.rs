//! Checks the direction of dependencies in this crate: a room (top-level module) imports only from the rooms
//! that `lib.rs` lists after it.
//!
//! The check reads the `crate::` paths in the sources and skips comments and tests.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The rooms (top-level modules) of the crate, in the order in which `lib.rs` lists them.
const ROOMS: [&str; 9] =
    ["cli", "assemble", "envtest", "config", "audit", "store", "remote", "flags", "host"];

#[test]
fn modules_import_only_from_lower_layers() {
    let src = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let mut upward = Vec::new();
    for (rank, room) in ROOMS.iter().enumerate() {
        let files = sources(&src.join(room));
        assert!(!files.is_empty(), "{room}");
        for file in files.iter().filter(|file| !file.to_string_lossy().ends_with("_test.rs")) {
            let text = std::fs::read_to_string(file).unwrap();
            let before = ROOMS[..rank].iter().filter(|before| rooms_in(&text).contains(**before));
            upward.extend(before.map(|before| format!("{} imports {before}", file.display())));
        }
    }
    assert_eq!(upward, Vec::<String>::new());
}

#[test]
fn paths_in_comments_and_tests_are_not_imports() {
    let text = "//! [`crate::cli`]\nuse crate::host::files;\nlet f = crate::store::x(); // crate::audit\n\
                #[cfg(test)]\nmod tests { use crate::config; }";
    assert_eq!(rooms_in(text), BTreeSet::from(["host", "store"]));
}

/// Returns the rooms in the paths of a source.
fn rooms_in(text: &str) -> BTreeSet<&str> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let room = |path: &'_ str| path.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(path.len());
    lines.flat_map(|line| line.split("crate::").skip(1)).map(|path| &path[..room(path)]).collect()
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found
}
