//! The bound on conditional writes that begin again when the object changed in between.
//!
//! Every loop of that kind counts its rounds with [`Attempts`]: a round yields to other tasks, and there is a last
//! one. A loop whose condition can never come true then ends with an error instead of occupying a thread for ever,
//! even where nothing in it waits.

use std::time::Duration;

use tokio::time::Instant;

/// Most rounds. Of all writers that compete for one object at least one succeeds in each round, so this is also the
/// number of competitors that one object can have before the slowest of them is refused.
const ATTEMPTS_MAX: u32 = 2_000;

/// Longest time for all rounds together: the longest a request may take unless the operator allows more.
const TOTAL_MAX: Duration = Duration::from_secs(60);

/// The rounds that one conditional write has left.
#[derive(Debug)]
pub struct Attempts {
    left: u32,
    until: Instant,
}

/// There is no round left: the object changed in every one so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the object changed in each of many attempts to write it")]
pub struct Exhausted;

impl Attempts {
    /// A conditional write in its first round.
    #[expect(clippy::new_without_default, reason = "it reads the clock")]
    pub fn new() -> Attempts {
        Attempts { left: ATTEMPTS_MAX, until: Instant::now() + TOTAL_MAX }
    }

    /// Begins another round, after other tasks had their turn.
    ///
    /// # Errors
    /// This was the last round.
    pub async fn again(&mut self) -> Result<(), Exhausted> {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 || Instant::now() >= self.until {
            return Err(Exhausted);
        }
        tokio::task::yield_now().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rounds_end_and_let_others_run() {
        let other = tokio::spawn(async {});
        let mut attempts = Attempts::new();
        let mut rounds = 1;
        while attempts.again().await.is_ok() {
            rounds += 1;
        }
        assert_eq!(rounds, ATTEMPTS_MAX);
        assert!(other.is_finished(), "a task on the same thread had its turn");
    }

    #[tokio::test(start_paused = true)]
    async fn time_ends_them_too() {
        let mut attempts = Attempts::new();
        assert_eq!(attempts.again().await, Ok(()));
        tokio::time::advance(TOTAL_MAX).await;
        assert_eq!(attempts.again().await, Err(Exhausted));
    }
}
