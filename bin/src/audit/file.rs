//! An append-only file that is rotated when it has reached its maximum size.
//!
//! A rotated file is renamed to `NAME-2006-01-02T15-04-05.000EXTENSION`. A thread then compresses it, if
//! configured, and removes rotated files that are too many or too old.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;

/// Default size at which a file is rotated.
pub const BYTES_MAX: u64 = 100 << 20;

/// The conditions of a rotation, and the treatment of rotated files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotation {
    /// Maximum size of a file in bytes. A single write that is longer goes to a file of its own.
    pub bytes_max: u64,
    /// Maximum number of rotated files that are kept; 0 keeps all.
    pub backups_max: u64,
    /// How long rotated files are kept; zero keeps them forever.
    pub age_max: Duration,
    /// Whether rotated files are compressed.
    pub compresses: bool,
}

/// An open file that rotates itself.
pub struct RotatingFile {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    bytes: u64,
}

impl RotatingFile {
    /// Opens the file for appending. Creates the file with mode 0600 if the file is missing.
    pub fn open(path: &Path, rotation: Rotation) -> io::Result<RotatingFile> {
        let file = append_to(path)?;
        let bytes = file.metadata()?.len();
        Ok(RotatingFile { path: path.to_owned(), rotation, file, bytes })
    }

    /// Appends whole lines. If the lines do not fit into the current file, this function rotates the file
    /// first. If the rotation fails, the file continues to grow.
    pub fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let is_full = self.bytes + lines.len() as u64 > self.rotation.bytes_max;
        if self.bytes > 0
            && is_full
            && let Err(error) = self.rotate()
        {
            tracing::error!(path = %self.path.display(), %error, "cannot rotate the audit log");
        }
        self.file.write_all(lines)?;
        self.bytes += lines.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H-%M-%S%.3f").to_string();
        let backups = Backups::for_file(&self.path);
        let backup = backups.path(&now);
        // Two rotations within a millisecond would use the same name. Skip this rotation; the next write
        // tries again.
        if backup.exists() {
            return Ok(());
        }
        fs::rename(&self.path, backup)?;
        self.file = append_to(&self.path)?;
        self.bytes = 0;
        let rotation = self.rotation;
        std::thread::Builder::new().name("audit-rotation".to_owned()).spawn(move || {
            if let Err(error) = backups.tidy(rotation) {
                tracing::error!(%error, "cannot compress or delete rotated audit logs");
            }
        })?;
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// The names of the files that the rotation of a file creates.
struct Backups {
    directory: PathBuf,
    /// Text before and after the time in the name of a rotated file.
    prefix: String,
    extension: String,
}

impl Backups {
    fn for_file(path: &Path) -> Backups {
        let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let extension = path.extension().map(|it| format!(".{}", it.to_string_lossy())).unwrap_or_default();
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new(".")).to_owned();
        Backups { directory, prefix: format!("{}-", text(path.file_stem())), extension }
    }

    fn path(&self, time: &str) -> PathBuf {
        self.directory.join(format!("{}{time}{}", self.prefix, self.extension))
    }

    /// Returns whether `name` is the name of a rotated file.
    fn has(&self, name: &str) -> bool {
        let name = name.strip_suffix(".gz").unwrap_or(name);
        let time = name.strip_prefix(&self.prefix).and_then(|name| name.strip_suffix(&self.extension));
        time.is_some_and(|time| {
            time.len() == "2006-01-02T15-04-05.000".len() && time.starts_with(|c: char| c.is_ascii_digit())
        })
    }

    /// Removes files that are too many or too old, and compresses the rest.
    fn tidy(&self, rotation: Rotation) -> io::Result<()> {
        let mut names: Vec<String> = fs::read_dir(&self.directory)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| self.has(name))
            .collect();
        names.sort_unstable_by(|a, b| b.cmp(a)); // newest first: the times in names sort as texts
        for (index, name) in names.iter().enumerate() {
            let path = self.directory.join(name);
            let age = SystemTime::now().duration_since(fs::metadata(&path)?.modified()?).unwrap_or_default();
            let is_excess = rotation.backups_max > 0 && index as u64 >= rotation.backups_max;
            let is_old = !rotation.age_max.is_zero() && age > rotation.age_max;
            if is_excess || is_old {
                fs::remove_file(&path)?;
            } else if rotation.compresses && !name.ends_with(".gz") {
                compress(&path)?;
            }
        }
        Ok(())
    }
}

/// Replaces a file by a compressed file. The compressed file gets its final name only when it is complete.
fn compress(path: &Path) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    let mut partial = name.clone();
    partial.push(".partial");
    let options = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
    let mut encoder = GzEncoder::new(options, Compression::default());
    io::copy(&mut File::open(path)?, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    fs::rename(&partial, &name)?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::host::files::scratch::Scratch;

    const ROTATION: Rotation =
        Rotation { bytes_max: 10, backups_max: 2, age_max: Duration::ZERO, compresses: false };

    #[test]
    fn a_full_audit_file_is_rotated_without_losing_a_line() {
        let dir = Scratch::new();
        let path = dir.join("audit.log");
        let mut file = RotatingFile::open(&path, Rotation { backups_max: 0, ..ROTATION }).unwrap();
        for line in ["one\n", "two\n", "three\n", "a line that is too long\n", "five\n"] {
            file.write(line.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        let backups = Backups::for_file(&path);
        let mut names: Vec<_> = fs::read_dir(&*dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        let rotated: Vec<_> = names.iter().filter(|name| backups.has(name)).collect();
        let mut text = String::new();
        for name in rotated.iter().copied().chain([&"audit.log".to_owned()]) {
            text.push_str(&fs::read_to_string(dir.join(name)).unwrap());
        }
        assert_eq!(text, "one\ntwo\nthree\na line that is too long\nfive\n");
        assert_eq!(rotated.len(), 3, "{names:?}");
    }

    #[test]
    fn rotation_keeps_the_newest_backups_and_does_not_touch_other_files() {
        let dir = Scratch::new();
        let backups = Backups::for_file(&dir.join("audit.log"));
        let times = ["2026-01-01T00-00-00.000", "2026-01-02T00-00-00.000", "2026-01-03T00-00-00.000"];
        for time in times {
            fs::write(backups.path(time), time).unwrap();
        }
        fs::write(dir.join("audit-notes.log"), "mine").unwrap();
        backups.tidy(Rotation { compresses: true, ..ROTATION }).unwrap();
        let mut names: Vec<_> = fs::read_dir(&*dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        let kept = times[1..].iter().map(|time| format!("audit-{time}.log.gz"));
        assert_eq!(names, kept.chain(["audit-notes.log".to_owned()]).collect::<Vec<_>>());
        let mut text = String::new();
        let packed = File::open(dir.join(&names[0])).unwrap();
        flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
        assert_eq!(text, times[1]);
    }
}
