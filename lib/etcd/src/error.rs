//! Errors of calls, classified by what the caller may do next.

/// The reasons why a call has no valid response.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// No endpoint received the request, so it was not executed.
    #[error("etcd cannot be reached: {0}")]
    Unreachable(String),
    /// The request was sent, but its response was lost or late: **the request may or may not have been
    /// executed.**
    #[error("etcd did not answer: {0}")]
    Lost(String),
    /// An error response of etcd.
    #[error("{message}")]
    Answered {
        /// Status code of gRPC.
        code: Code,
        /// Error text, such as `etcdserver: mvcc: database space exceeded`.
        message: String,
    },
    /// The response violates the protocol, or exceeds the size limit.
    #[error("etcd's answer cannot be read: {0}")]
    Malformed(String),
    /// A different cluster than before answered.
    #[error("the endpoint belongs to the etcd cluster {found:x}, not to {expected:x}")]
    OtherCluster {
        /// Cluster that the client belongs to.
        expected: u64,
        /// Cluster that answered this call.
        found: u64,
    },
}

/// A gRPC status code.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Code(pub u32);

impl Code {
    /// The request was cancelled.
    pub const CANCELLED: Code = Code(1);
    /// The error has no specific code.
    pub const UNKNOWN: Code = Code(2);
    /// The deadline of the call passed.
    pub const DEADLINE_EXCEEDED: Code = Code(4);
    /// The requested entity does not exist.
    pub const NOT_FOUND: Code = Code(5);
    /// A limit is exceeded or the disk is full.
    pub const RESOURCE_EXHAUSTED: Code = Code(8);
    /// The requested revision is compacted or in the future.
    pub const OUT_OF_RANGE: Code = Code(11);
    /// An invariant of etcd is broken.
    pub const INTERNAL: Code = Code(13);
    /// The member has no leader or lost it, or the request timed out.
    pub const UNAVAILABLE: Code = Code(14);
}

impl Error {
    /// Creates the error of a request that no endpoint received.
    pub(crate) fn unreachable(cause: &dyn std::error::Error) -> Error {
        Error::Unreachable(with_causes(cause))
    }

    /// Creates the error of a request whose response was lost.
    pub(crate) fn lost(cause: &dyn std::error::Error) -> Error {
        Error::Lost(with_causes(cause))
    }

    /// Returns whether a request with this error may nevertheless have been executed.
    pub fn outcome_is_unknown(&self) -> bool {
        match self {
            Error::Unreachable(_) | Error::OtherCluster { .. } => false,
            Error::Lost(_) | Error::Malformed(_) => true,
            Error::Answered { code, .. } => matches!(
                *code,
                Code::CANCELLED
                    | Code::UNKNOWN
                    | Code::DEADLINE_EXCEEDED
                    | Code::INTERNAL
                    | Code::UNAVAILABLE
            ),
        }
    }

    /// Returns whether another member may be able to answer the call.
    pub(crate) fn is_of_the_member(&self) -> bool {
        match self {
            Error::Unreachable(_) | Error::Lost(_) => true,
            Error::Answered { code, .. } => matches!(*code, Code::UNAVAILABLE | Code::CANCELLED),
            Error::Malformed(_) | Error::OtherCluster { .. } => false,
        }
    }

    /// Returns whether the requested revision is compacted.
    pub fn is_compacted(&self) -> bool {
        matches!(self, Error::Answered { code: Code::OUT_OF_RANGE, message } if message.contains("compacted"))
    }

    /// Returns whether the requested revision is in the future.
    pub fn is_future(&self) -> bool {
        matches!(self, Error::Answered { code: Code::OUT_OF_RANGE, message } if message.contains("future"))
    }
}

/// Formats an error and its causes, because the text of the outermost error alone is too general.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_of_an_etcd_error_is_unknown_unless_etcd_refused_or_was_not_reached() {
        let answered = |code, message: &str| Error::Answered { code: Code(code), message: message.into() };
        for (error, is_unknown) in [
            (Error::Unreachable("refused".into()), false),
            (Error::Lost("closed".into()), true),
            (Error::OtherCluster { expected: 1, found: 2 }, false),
            (answered(14, "etcdserver: request timed out"), true),
            (answered(4, "context deadline exceeded"), true),
            (answered(8, "etcdserver: mvcc: database space exceeded"), false),
            (answered(3, "etcdserver: request is too large"), false),
            (answered(7, "etcdserver: permission denied"), false),
        ] {
            assert_eq!(error.outcome_is_unknown(), is_unknown, "{error}");
        }
        let compacted = "etcdserver: mvcc: required revision has been compacted";
        assert!(answered(11, compacted).is_compacted() && !answered(11, compacted).is_future());
    }
}
