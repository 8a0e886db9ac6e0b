//! The stages of the write path, by name, and in tests a trace of those that a write passed.
//!
//! The path itself is in [`crate::writes::write`]; admission, below it, notes its own two stages.

/// The stages of the write path that a caller can leave out, in the order in which a write passes them.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Stage {
    /// The source makes the wanted object from the newest state. Never left out.
    Decode,
    /// Values that the writer left open are filled in.
    Default,
    /// The mutating point of admission.
    Mutate,
    /// A role or a binding grants nothing that its writer does not hold.
    Escalate,
    /// The version and the identity that the writer saw are compared with the stored ones. Updates only.
    Compare,
    /// Changed fields are given to the writing manager. Left out, the object says who owns its fields.
    Own,
    /// Addresses and ports are handed out. Only writes of the resource itself.
    Allocate,
    /// The strategy of the endpoint: which parts may be written, and what the server derives.
    Prepare,
    /// The rules of the kind.
    Validate,
    /// The writer of a policy or of its binding may read the objects that it makes the parameters. Only writes of the
    /// resource itself.
    Confirm,
    /// The validating point of admission.
    Admit,
    /// The bytes to store; a write that changes nothing ends here. Never left out.
    Encode,
    /// The conditional write to the store. Left out by a dry run.
    Commit,
}

/// Which stages a write passed, for the test that shows them as a table. One list per thread: the test runs the whole
/// server on its own.
#[cfg(test)]
pub(crate) mod trace {
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
}
