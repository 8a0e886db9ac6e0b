//! How far a command is, on one line of a terminal that is rewritten; nothing anywhere else.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Between two drawings: often enough to be seen moving.
const INTERVAL: Duration = Duration::from_millis(100);

/// The line.
pub struct Progress {
    what: &'static str,
    total: u64,
    begun: Instant,
    /// When it was drawn last; `None` where it is not drawn at all.
    drawn: Option<Instant>,
    visible: bool,
}

impl Progress {
    /// Of `total` bytes, to be called `what`.
    pub fn new(what: &'static str, total: u64) -> Progress {
        let begun = Instant::now();
        Progress { what, total, begun, drawn: io::stderr().is_terminal().then_some(begun), visible: false }
    }

    /// `done` of the bytes are done.
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
        // A terminal that is gone is no reason to stop.
        let _ = write!(
            io::stderr(),
            "\r\x1b[K{} {percent}% of {}, {}/s",
            self.what,
            super::report::bytes(self.total),
            super::report::bytes(rate as u64)
        );
    }

    /// `done` of `total` bytes are done.
    pub fn update_of(&mut self, done: u64, total: u64) {
        self.total = total;
        self.update(done);
    }

    /// Takes the line away, so that something else can be printed.
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
