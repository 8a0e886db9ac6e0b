//! Limit on retries of conditional writes that fail because the object changed in between.
//!
//! Every retry loop counts its rounds with [`Attempts`]. A round yields to other tasks, and the number of
//! rounds is limited. A loop whose condition can never become true therefore ends with an error instead of
//! occupying a thread for ever, even if no operation in it waits.

use std::time::Duration;

use tokio::time::Instant;

/// Maximum number of rounds. In each round at least one of the writers that compete for an object succeeds,
/// so the limit is also the number of competing writers that an object can have before the slowest writer is
/// refused.
const ATTEMPTS_MAX: u32 = 2_000;

/// Maximum time for all rounds together: the longest duration of a request unless the operator allows more.
const TOTAL_MAX: Duration = Duration::from_secs(60);

/// Counter of the remaining rounds of one conditional write.
#[derive(Debug)]
pub struct Attempts {
    left: u32,
    until: Instant,
}

/// The error after the last round: the object changed in every round.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the object changed in each of many attempts to write it")]
pub struct AttemptsExhausted;

impl Attempts {
    /// Creates the counter of a conditional write in its first round.
    #[expect(clippy::new_without_default, reason = "it reads the clock")]
    pub fn new() -> Attempts {
        Attempts { left: ATTEMPTS_MAX, until: Instant::now() + TOTAL_MAX }
    }

    /// Starts another round after other tasks had the chance to run.
    ///
    /// # Errors
    /// [`AttemptsExhausted`] if this was the last round.
    pub async fn again(&mut self) -> Result<(), AttemptsExhausted> {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 || Instant::now() >= self.until {
            return Err(AttemptsExhausted);
        }
        tokio::task::yield_now().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn retry_attempts_are_limited_in_number_and_yield_to_other_tasks() {
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
    async fn retry_attempts_are_limited_in_time() {
        let mut attempts = Attempts::new();
        assert_eq!(attempts.again().await, Ok(()));
        tokio::time::advance(TOTAL_MAX).await;
        assert_eq!(attempts.again().await, Err(AttemptsExhausted));
    }
}
