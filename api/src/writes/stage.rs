//! The stages of the write path, and a trace of the stages that a write passed. Only tests record the trace.
//!
//! [`crate::writes::write`] has the code of the stages. Admission records its own two stages in the trace.

/// The stages of the write path, in the order in which a write passes them. Callers can skip most stages.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Stage {
    /// The source makes the wanted object from the newest version. No caller skips this stage.
    Decode,
    /// Defaulting fills in fields that the client left out.
    Default,
    /// Mutating admission may change the object.
    Mutate,
    /// Privilege escalation check: a role or binding must not grant permissions that its writer does not
    /// have.
    Escalate,
    /// Comparison of the resourceVersion and the UID in the new object with the resourceVersion and the UID of the
    /// stored object. This stage is only for updates.
    Compare,
    /// The field manager of the writer becomes the owner of the changed fields. If this stage is skipped, the
    /// managed fields in the object are stored without changes.
    Own,
    /// Allocation of cluster IPs and node ports. This stage is only for writes of the resource itself, not of
    /// subresources.
    Allocate,
    /// The strategy of the endpoint resets the fields that the endpoint may not write, and sets derived
    /// fields.
    Prepare,
    /// Validation of the object by the rules of the kind.
    Validate,
    /// Check that the writer of an admission policy or binding may read the objects that are used as
    /// parameters. This stage is only for writes of the resource itself, not of subresources.
    Confirm,
    /// Validating admission may refuse the object.
    Admit,
    /// Encoding of the bytes to store. A no-op write ends here. No caller skips this stage.
    Encode,
    /// The conditional write to the store. A dry run skips this stage.
    Commit,
}

/// The trace of the stages that a write passed, for the test that prints a table of stages. Outside tests,
/// nothing is recorded.
#[cfg(not(test))]
pub(crate) mod trace {
    /// Records that a write passes a stage.
    #[inline]
    pub(crate) fn note(_: super::Stage) {}
}

/// The trace of the stages that a write passed, for the test that prints a table of stages. Each thread has
/// its own list, because the test runs the whole server on one thread.
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

    /// Returns the stages that were recorded since the previous call, in order.
    pub(crate) fn take() -> BTreeSet<Stage> {
        PASSED.take()
    }
}
