//! Which stages a write passed, for the test that shows them as a table. One list per thread: the test runs the whole
//! server on its own.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::Stage;

thread_local! {
    static PASSED: RefCell<BTreeSet<Stage>> = const { RefCell::new(BTreeSet::new()) };
}

/// Notes that a write passes `stage`.
pub(crate) fn note(stage: Stage) {
    PASSED.with_borrow_mut(|passed| passed.insert(stage));
}

/// The stages since the last call, in order.
pub(crate) fn take() -> BTreeSet<Stage> {
    PASSED.take()
}
