//! The time of the newest complete backup of a data directory, in the file `last-backup`. The server writes
//! this file after it has sent a backup, and the command `backup` writes it after it has copied the files.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, io};

use api::state::backup::BackupRecord;

/// Name of the file, whose contents are the seconds since 1970 as a line of text.
const FILE: &str = "last-backup";

/// The record of the newest backup of a data directory.
pub struct LastBackup(PathBuf);

impl LastBackup {
    /// Returns the record in this data directory.
    pub fn in_data_dir(data_dir: &Path) -> LastBackup {
        LastBackup(data_dir.join(FILE))
    }

    /// Records the current time as the time of the newest backup.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Replace the file in one step, so that it never has only a part of a number.
        let next = self.0.with_extension("next");
        fs::write(&next, format!("{}\n", now.as_secs()))?;
        fs::rename(next, &self.0)
    }
}

impl BackupRecord for LastBackup {
    fn note(&self) {
        if let Err(error) = self.write() {
            tracing::warn!(file = %self.0.display(), %error, "time of the backup not recorded");
        }
    }

    fn seconds(&self) -> u64 {
        let text = fs::read_to_string(&self.0).ok();
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::scratch::Scratch;

    #[test]
    fn the_newest_backup_is_recorded_in_a_file() {
        let dir = Scratch::new();
        let record = LastBackup::in_data_dir(&dir.join(""));
        assert_eq!(record.seconds(), 0, "no backup yet");
        record.note();
        assert!(record.seconds() > 1_700_000_000);
        fs::write(dir.join(FILE), "half of a num").unwrap();
        assert_eq!(record.seconds(), 0);
        assert!(LastBackup::in_data_dir(&dir.join("absent")).write().is_err());
    }
}
