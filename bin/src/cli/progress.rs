//! A progress line on stderr, which overwrites itself. The line is shown only if stderr is a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Time between two updates.
const INTERVAL: Duration = Duration::from_millis(100);

/// A progress line for a single task.
pub struct Progress {
    what: &'static str,
    total: u64,
    begun: Instant,
    /// Time of the last update; `None` if stderr is not a terminal.
    drawn: Option<Instant>,
    visible: bool,
    /// Whether the total is a number of bytes.
    counts_bytes: bool,
}

impl Progress {
    /// Creates a line for work of `total` bytes. `what` is the name of the work.
    pub fn new(what: &'static str, total: u64) -> Progress {
        let begun = Instant::now();
        let drawn = io::stderr().is_terminal().then_some(begun);
        Progress { what, total, begun, drawn, visible: false, counts_bytes: true }
    }

    /// Creates a line for work of `total` steps. `what` is the name of the work.
    pub fn of_count(what: &'static str, total: u64) -> Progress {
        Progress { counts_bytes: false, ..Progress::new(what, total) }
    }

    /// Sets the line to `done` bytes or steps.
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
        let format_count =
            |count: u64| if self.counts_bytes { super::report::bytes(count) } else { count.to_string() };
        // Ignore errors, so that a closed terminal does not end the command.
        let _ = write!(
            io::stderr(),
            "\r\x1b[K{} {percent}% of {}, {}/s",
            self.what,
            format_count(self.total),
            format_count(rate as u64)
        );
    }

    /// Sets the line to `done` of `total` bytes.
    pub fn update_of(&mut self, done: u64, total: u64) {
        self.total = total;
        self.update(done);
    }

    /// Removes the line from the terminal, so that other output can follow.
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
