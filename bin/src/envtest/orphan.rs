//! Ends a process whose parent has ended, so that no servers stay behind when a test is killed.

use crate::envtest::report;
use crate::host::platform::parent::when_parent_ends;

/// Exit code of a process whose parent has ended.
const ORPHANED: i32 = 1;

/// Ends this process when its parent ends. If the parent is in another process namespace, this function does
/// nothing.
///
/// # Errors
/// The system cannot start a thread.
pub fn exit_with_parent(program: &'static str) -> std::io::Result<()> {
    when_parent_ends(move || {
        report(format_args!("{program}: the process that started this one has ended, exiting"));
        #[expect(clippy::disallowed_methods, reason = "threads that serve requests must not be waited for")]
        std::process::exit(ORPHANED);
    })
}
