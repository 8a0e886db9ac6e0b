//! The server binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    cluster_apiserver::run()
}
