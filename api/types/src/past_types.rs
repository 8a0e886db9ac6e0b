//! A cache of the types that were served at earlier points in time. The cache keeps the most recently
//! requested points.
//!
//! An entry is identified by the revisions of the definitions that determine the types, so all points
//! between two changes of definitions share an entry.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::Revision;
use parking_lot::Mutex;

/// Maximum number of points whose types are kept. An entry takes at most as much memory as the served
/// types.
const KEPT_MAX: usize = 4;

/// The types of earlier points, with the most recently requested point first.
#[derive(Debug)]
pub struct PastTypes<T>(Mutex<VecDeque<(Vec<Revision>, Arc<T>)>>);

impl<T> Default for PastTypes<T> {
    fn default() -> PastTypes<T> {
        PastTypes(Mutex::default())
    }
}

impl<T> PastTypes<T> {
    /// Returns the types that result from definitions at these revisions. `make` is called only if the types
    /// are not in the cache.
    ///
    /// # Errors
    /// The error of `make`.
    pub fn get<E>(
        &self,
        definitions: Vec<Revision>,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        // The lock is held while `make` runs, so that concurrent requests build the types only once.
        let mut entries = self.0.lock();
        let known = entries.iter().position(|(known, _)| *known == definitions);
        let found = match known.and_then(|at| entries.remove(at)) {
            Some(found) => found,
            None => (definitions, Arc::new(make()?)),
        };
        let types = found.1.clone();
        entries.push_front(found);
        entries.truncate(KEPT_MAX);
        Ok(types)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn types_of_the_four_most_recent_points_are_made_once() {
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
        // Four more points replace the first point.
        (5..9).for_each(|revision| drop(get(revision)));
        assert!(!Arc::ptr_eq(&first, &get(1)));
    }
}
