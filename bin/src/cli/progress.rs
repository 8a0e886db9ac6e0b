//! A progress line on stderr that is rewritten in place; shown only on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Time between two updates.
const INTERVAL: Duration = Duration::from_millis(100);

/// A progress line for a single task.
pub struct Progress {
    what: &'static str,
    total: u64,
    begun: Instant,
    /// Time of the last update; `None` if nothing is drawn.
    drawn: Option<Instant>,
    visible: bool,
}

impl Progress {
    /// Creates a line for `total` bytes of work named `what`.
    pub fn new(what: &'static str, total: u64) -> Progress {
        let begun = Instant::now();
        Progress { what, total, begun, drawn: io::stderr().is_terminal().then_some(begun), visible: false }
    }

    /// Sets the line to `done` bytes.
    pub fn update(&mut self, done: u64) {
        if self.drawn.is_none_or(|drawn| drawn.elapsed() < INTERVAL) {
            return;
        }
        self.drawn = Some(Instant::now());
        self.visible = true;
        let rate = done as f64 / self.begun.elapsed().as_secs_f64();
        let percent = if self.total == 0 {
            100
        } else {
            (done.min(self.total) as u128 * 100 / self.total as u128) as u64
        };
        // A closed terminal does not end the command.
        let _ = write!(
            io::stderr(),
            "\r\x1b[K{} {percent}% of {}, {}/s",
            self.what,
            super::report::bytes(self.total),
            super::report::bytes(rate as u64)
        );
    }

    /// Sets the line to `done` of `total` bytes.
    pub fn update_of(&mut self, done: u64, total: u64) {
        self.total = total;
        self.update(done);
    }

    /// Clears the line before other output.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.visible) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
