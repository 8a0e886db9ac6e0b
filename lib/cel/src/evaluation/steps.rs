//! Steps: the work of an evaluation, counted so that it can be interrupted.
//!
//! Costs are part of the host's API and follow the reference, even if a call costs little compared with its
//! work. Steps count the real work: one for each visited element, compared value and charged operation, and
//! one for each block of text. Every `STEPS_PER_LOOK` steps the evaluation asks the host whether to
//! continue. A library loop that counts no steps could not be interrupted.

use std::cell::Cell;
use std::fmt;

use crate::error::{EvalError, EvalErrorKind};

/// Number of steps between two calls of the host: some tens of microseconds of work.
const STEPS_PER_LOOK: u64 = 1000;

/// Number of bytes of text that are read or written in about the time of one step.
const BYTES_PER_STEP: usize = 64;

/// The step counter of one evaluation.
pub struct Steps<'l> {
    interrupted: &'l (dyn Fn() -> bool + Sync),
    taken: Cell<u64>,
    /// Number of steps at which the host is called next.
    next_look: Cell<u64>,
}

impl<'l> Steps<'l> {
    /// Creates a counter at zero. The evaluation ends with an error soon after `interrupted` returns true.
    pub fn new(interrupted: &'l (dyn Fn() -> bool + Sync)) -> Self {
        Self { interrupted, taken: Cell::new(0), next_look: Cell::new(STEPS_PER_LOOK) }
    }

    /// Creates a counter that is never interrupted.
    pub fn unlimited() -> Steps<'static> {
        Steps::new(&|| false)
    }

    /// Returns the number of steps so far.
    pub fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// Counts one step.
    ///
    /// # Errors
    /// [`EvalErrorKind::Interrupted`] if the host ends the evaluation.
    #[inline]
    pub fn one(&self) -> Result<(), EvalError> {
        self.many(1)
    }

    /// Counts several steps.
    ///
    /// # Errors
    /// The same as for [`Steps::one`].
    #[inline]
    pub fn many(&self, steps: usize) -> Result<(), EvalError> {
        let taken = self.taken.get().saturating_add(steps as u64);
        self.taken.set(taken);
        if taken < self.next_look.get() { Ok(()) } else { self.look() }
    }

    /// Counts the steps of reading or writing text.
    ///
    /// # Errors
    /// The same as for [`Steps::one`].
    #[inline]
    pub fn text(&self, bytes: usize) -> Result<(), EvalError> {
        self.many(bytes / BYTES_PER_STEP)
    }

    /// Calls the host now, before long work that cannot be interrupted.
    ///
    /// # Errors
    /// The same as for [`Steps::one`].
    #[cold]
    pub fn look(&self) -> Result<(), EvalError> {
        self.next_look.set(self.taken.get().saturating_add(STEPS_PER_LOOK));
        if (self.interrupted)() { Err(interrupted()) } else { Ok(()) }
    }
}

impl fmt::Debug for Steps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Steps").field(&self.taken.get()).finish()
    }
}

/// Creates the error of an interrupted evaluation.
fn interrupted() -> EvalError {
    EvalError { kind: EvalErrorKind::Interrupted, ..EvalError::new("operation interrupted") }
}
