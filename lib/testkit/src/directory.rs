use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A new, empty directory that is removed when this value is dropped. If the environment variable
/// `KEEP_TEST_DIRS` is set, the directory is kept.
pub struct TempDir(PathBuf);

impl TempDir {
    /// Creates a directory in the system's directory for temporary files.
    ///
    /// # Panics
    /// The directory cannot be created.
    #[expect(clippy::new_without_default, reason = "a default value should not make a directory")]
    pub fn new() -> TempDir {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("cluster-test-{}-{number}", std::process::id()));
        // A process with the same identifier may have been killed before it could remove its directories.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the directory for temporary files is writable");
        TempDir(path)
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if std::env::var_os("KEEP_TEST_DIRS").is_none() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
