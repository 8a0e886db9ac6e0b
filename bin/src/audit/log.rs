//! The audit log: a file, or standard output, with a line for each event.

use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::anyhow;
use api::state::audit::{Encoder, Event, Sink};
use parking_lot::Mutex;

use super::Losses;
use super::batch::Queue;
use super::file::{RotatingFile, Rotation};
use super::mode::Mode;

/// Value of the label `plugin` in metrics.
pub const PLUGIN: &str = "log";

/// Settings of the audit log.
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// Path of the file; `-` is standard output.
    pub path: PathBuf,
    /// The mode in which events are written.
    pub mode: Mode,
    /// The encoder of events into lines.
    pub encoder: Encoder,
    /// The rotation of the file.
    pub rotation: Rotation,
}

impl LogSettings {
    /// Creates the file if it is missing.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn make(&self) -> anyhow::Result<()> {
        open(&self.path, self.rotation).map(drop)
    }

    /// Opens the log.
    ///
    /// # Errors
    /// The file cannot be opened, or the writer thread cannot start.
    pub fn open(&self, losses: Losses) -> anyhow::Result<Log> {
        let LogSettings { path, mode, encoder, rotation } = self;
        let mut target = open(path, *rotation)?;
        let out = match mode {
            Mode::Blocking | Mode::BlockingStrict => Out::Direct(Mutex::new(target)),
            Mode::Batch(batching) => {
                let write = move |lines: Vec<Vec<u8>>| {
                    if let Err(error) = target.write(&lines.concat()) {
                        losses.note(PLUGIN, lines.len(), &error);
                    }
                };
                Out::Queued(Queue::start(*batching, write)?)
            }
        };
        Ok(Log { encoder: *encoder, out })
    }
}

fn open(path: &Path, rotation: Rotation) -> anyhow::Result<Target> {
    if path == Path::new("-") {
        return Ok(Target::Stdout(io::stdout()));
    }
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        created.map_err(|error| creation_error(directory, &error))?;
    }
    let file = RotatingFile::open(path, rotation).map_err(|error| {
        let why = if path.is_dir() { "is a directory".to_owned() } else { reason(&error) };
        anyhow!("ensureLogFile: open {}: {why}", path.display())
    })?;
    Ok(Target::File(file))
}

/// Returns an error that says why a directory could not be created. Often the path of the directory, or of
/// one of its parents, is a file.
fn creation_error(directory: &Path, error: &io::Error) -> anyhow::Error {
    match directory.ancestors().find(|above| above.exists()) {
        Some(above) if !above.is_dir() => {
            anyhow!("ensureLogFile: mkdir {}: not a directory", above.display())
        }
        _ => anyhow!("ensureLogFile: mkdir {}: {}", directory.display(), reason(error)),
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "read-only file system".to_owned(),
        _ => error.to_string(),
    }
}

enum Target {
    File(RotatingFile),
    Stdout(io::Stdout),
}

impl Target {
    /// Writes whole lines.
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Target::File(file) => file.write(lines),
            Target::Stdout(stdout) => stdout.write_all(lines).and_then(|()| stdout.flush()),
        }
    }
}

/// An open audit log.
pub struct Log {
    encoder: Encoder,
    out: Out,
}

enum Out {
    /// The lock prevents lines of concurrent requests from mixing.
    Direct(Mutex<Target>),
    Queued(Queue),
}

impl Sink for Log {
    fn record(&self, event: &Event) -> io::Result<()> {
        let mut line = self.encoder.encode(event).map_err(io::Error::other)?;
        line.push(b'\n');
        match &self.out {
            Out::Direct(target) => target.lock().write(&line),
            Out::Queued(queue) => queue.push(line),
        }
    }

    fn waiting(&self) -> usize {
        match &self.out {
            Out::Direct(_) => 0,
            Out::Queued(queue) => queue.waiting(),
        }
    }

    fn close(&self, until: Instant) -> usize {
        match &self.out {
            Out::Direct(_) => 0,
            Out::Queued(queue) => queue.close(until),
        }
    }
}
