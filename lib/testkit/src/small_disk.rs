//! A small file system in memory, for tests of full disks.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system in memory, unmounted when the value is dropped.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts a file system of `bytes` at a path, and creates the directory if necessary. Without the permission to mount,
    /// the function reports the check as skipped and returns `None`.
    ///
    /// # Panics
    /// The directory cannot be created.
    pub fn mount(path: &Path, bytes: usize) -> Option<SmallDisk> {
        std::fs::create_dir_all(path).expect("the parent directory is writable");
        let size = format!("size={bytes},mode=0700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path).output();
        let why = match mounted {
            Ok(output) if output.status.success() => return Some(SmallDisk(path.to_owned())),
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        crate::skip(&format!("a file system cannot be mounted here: {why}"));
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Unmount lazily, because the program under test may still be closing its files.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
