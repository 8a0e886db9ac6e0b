//! Records the commit that the program is built from, for `/version`.
//!
//! The environment variables `GIT_COMMIT` and `BUILD_DATE` have precedence. Without them, and without a git
//! checkout, both values stay empty, so that builds from an archive are reproducible. The date is the date of
//! the commit, for the same reason.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=GIT_COMMIT");
    println!("cargo::rerun-if-env-changed=BUILD_DATE");
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        // This file changes with every commit and checkout.
        println!("cargo::rerun-if-changed={log}");
    }
    let of_commit = |name: &str, arguments: &[&str]| {
        let value = std::env::var(name).ok().filter(|value| !value.is_empty()).or_else(|| git(arguments));
        println!("cargo::rustc-env={name}={}", value.unwrap_or_default());
    };
    of_commit("GIT_COMMIT", &["rev-parse", "HEAD"]);
    of_commit("BUILD_DATE", &["log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd"]);
}

/// Returns the output of a git command, or `None` outside a checkout.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").env("TZ", "UTC").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
}
