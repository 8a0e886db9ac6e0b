//! The types of earlier points that were requested last.
//!
//! Types are identified by the revisions of the definitions that they follow from, so requests at any points
//! between two changes of definitions share them.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::Revision;
use parking_lot::Mutex;

/// Maximum number of points whose types are kept. A kept entry has at most the size of the served types.
const KEPT_MAX: usize = 4;

/// The types of the points that were requested last, the most recent ones first.
#[derive(Debug)]
pub struct PastTypes<T>(Mutex<VecDeque<(Vec<Revision>, Arc<T>)>>);

impl<T> Default for PastTypes<T> {
    fn default() -> PastTypes<T> {
        PastTypes(Mutex::default())
    }
}

impl<T> PastTypes<T> {
    /// Returns the types that follow from definitions of these revisions. `make` makes them, unless they are
    /// kept from an earlier request.
    ///
    /// # Errors
    /// The error of `make`.
    pub fn get<E>(
        &self,
        definitions: Vec<Revision>,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        // The lock is held while the types are made, so that concurrent requests make them once.
        let mut kept = self.0.lock();
        let known = kept.iter().position(|(known, _)| *known == definitions);
        let found = match known.and_then(|at| kept.remove(at)) {
            Some(found) => found,
            None => (definitions, Arc::new(make()?)),
        };
        let types = found.1.clone();
        kept.push_front(found);
        kept.truncate(KEPT_MAX);
        Ok(types)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn types_of_the_points_requested_last_are_made_once() {
        let (past, made) = (PastTypes::default(), Cell::new(0));
        let get = |revision: u64| {
            let make = || {
                made.set(made.get() + 1);
                Ok::<_, Infallible>(revision)
            };
            let Ok(types) = past.get(vec![Revision::new(revision)], make);
            types
        };
        let first = get(1);
        for revision in [2, 1, 3, 4] {
            get(revision);
        }
        assert!(Arc::ptr_eq(&first, &get(1)));
        assert_eq!(made.get(), 4);
        // Four more points replace the first one.
        (5..9).for_each(|revision| drop(get(revision)));
        assert!(!Arc::ptr_eq(&first, &get(1)));
    }
}
