//! Names of the stages of the write path, and in tests a trace of the stages that a write passed.
//!
//! The path itself is in [`crate::writes::write`]. Admission, which is called by it, records its own two
//! stages.

/// A stage of the write path, in the order in which a write passes them. Callers can skip most of them.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Stage {
    /// The source produces the desired object from the newest version. Never skipped.
    Decode,
    /// Defaulting fills in fields that the client left out.
    Default,
    /// Mutating admission may change the object.
    Mutate,
    /// Privilege escalation check: a role or binding must not grant permissions that its writer lacks.
    Escalate,
    /// Comparison of the resourceVersion and the UID that the writer sent with the stored ones. Updates only.
    Compare,
    /// Ownership of changed fields goes to the writing field manager. If this stage is skipped, the object
    /// itself states who owns its fields.
    Own,
    /// Allocation of cluster IPs and node ports. Only for writes of the resource itself, not of subresources.
    Allocate,
    /// The strategy of the endpoint decides which fields may be written, and derives fields.
    Prepare,
    /// Validation by the rules of the kind.
    Validate,
    /// Check that the writer of an admission policy or its binding may read the objects used as parameters.
    /// Only for writes of the resource itself, not of subresources.
    Confirm,
    /// Validating admission may reject the object.
    Admit,
    /// Encoding of the bytes to store. A no-op write ends here. Never skipped.
    Encode,
    /// The conditional write to the store. A dry run skips this stage.
    Commit,
}

/// Trace of the stages that a write passed, for the test that prints them as a table. Only tests keep it.
#[cfg(not(test))]
pub(crate) mod trace {
    /// Records that a write passes a stage.
    #[inline]
    pub(crate) fn note(_: super::Stage) {}
}

/// Trace of the stages that a write passed, for the test that prints them as a table. The list is per thread:
/// the test runs the whole server on its own thread.
#[cfg(test)]
pub(crate) mod trace {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::Stage;

    thread_local! {
        static PASSED: RefCell<BTreeSet<Stage>> = const { RefCell::new(BTreeSet::new()) };
    }

    /// Records that a write passes `stage`.
    pub(crate) fn note(stage: Stage) {
        PASSED.with_borrow_mut(|passed| passed.insert(stage));
    }

    /// Returns the stages since the last call, in order.
    pub(crate) fn take() -> BTreeSet<Stage> {
        PASSED.take()
    }
}
