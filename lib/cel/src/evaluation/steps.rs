//! Steps: the work of one evaluation, counted so that it can be interrupted.
//!
//! Costs are part of the API of the host and follow the reference, also where a call costs nothing in proportion to what it
//! does. Steps count what is done: one for each element visited, each value compared and each charge, and one for some bytes of
//! text that are read. Every `STEPS_PER_LOOK` steps the evaluation asks the host whether it is to go on. A loop of the
//! library that does not count its steps could not be ended.

use std::cell::Cell;
use std::fmt;

use crate::error::{EvalError, EvalErrorKind};

/// Steps between two questions to the host: some tens of microseconds of work.
const STEPS_PER_LOOK: u64 = 1000;

/// Bytes of text that are read or written in about the time of one step.
const BYTES_PER_STEP: usize = 64;

/// The steps of one evaluation.
pub struct Steps<'l> {
    interrupted: &'l (dyn Fn() -> bool + Sync),
    taken: Cell<u64>,
    /// How many steps there are when the host is asked next.
    next_look: Cell<u64>,
}

impl<'l> Steps<'l> {
    /// No steps yet; an evaluation ends with an error soon after `interrupted` is true.
    pub fn new(interrupted: &'l (dyn Fn() -> bool + Sync)) -> Self {
        Self { interrupted, taken: Cell::new(0), next_look: Cell::new(STEPS_PER_LOOK) }
    }

    /// Steps that nothing interrupts.
    pub fn unlimited() -> Steps<'static> {
        Steps::new(&|| false)
    }

    /// How many were taken.
    pub fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// Counts one step.
    ///
    /// # Errors
    /// [`EvalErrorKind::Interrupted`] when the host ends the evaluation.
    #[inline]
    pub fn one(&self) -> Result<(), EvalError> {
        self.many(1)
    }

    /// Counts several steps.
    ///
    /// # Errors
    /// As for [`Steps::one`].
    #[inline]
    pub fn many(&self, steps: usize) -> Result<(), EvalError> {
        let taken = self.taken.get().saturating_add(steps as u64);
        self.taken.set(taken);
        if taken < self.next_look.get() { Ok(()) } else { self.look() }
    }

    /// Counts the reading or writing of text.
    ///
    /// # Errors
    /// As for [`Steps::one`].
    #[inline]
    pub fn text(&self, bytes: usize) -> Result<(), EvalError> {
        self.many(bytes / BYTES_PER_STEP)
    }

    /// Asks the host now: before work that takes long by itself and cannot be interrupted.
    ///
    /// # Errors
    /// As for [`Steps::one`].
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

/// The error of an evaluation that was interrupted.
fn interrupted() -> EvalError {
    EvalError { kind: EvalErrorKind::Interrupted, ..EvalError::new("operation interrupted") }
}
