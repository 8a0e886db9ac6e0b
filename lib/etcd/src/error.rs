//! What can go wrong with a call, cut by what the caller may do next.

/// Why a call has no answer, or a bad one.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// No endpoint took the request: it was not carried out.
    #[error("etcd cannot be reached: {0}")]
    Unreachable(String),
    /// The request was sent, and its answer was lost or did not come in time: **it may have been carried out or not.**
    #[error("etcd did not answer: {0}")]
    Lost(String),
    /// The answer of etcd.
    #[error("{message}")]
    Answered {
        /// Its code.
        code: Code,
        /// Its text, such as `etcdserver: mvcc: database space exceeded`.
        message: String,
    },
    /// The answer is not one of the protocol, or larger than is taken.
    #[error("etcd's answer cannot be read: {0}")]
    Malformed(String),
    /// Another cluster answers than before.
    #[error("the endpoint belongs to the etcd cluster {found:x}, not to {expected:x}")]
    OtherCluster {
        /// The cluster that the client belongs to.
        expected: u64,
        /// The one that answered.
        found: u64,
    },
}

/// The code of an answer, by the numbers of gRPC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Code(pub u32);

impl Code {
    /// The request was cancelled.
    pub const CANCELLED: Code = Code(1);
    /// Something else.
    pub const UNKNOWN: Code = Code(2);
    /// The deadline passed.
    pub const DEADLINE_EXCEEDED: Code = Code(4);
    /// What was asked for is not there.
    pub const NOT_FOUND: Code = Code(5);
    /// A limit or a full disk.
    pub const RESOURCE_EXHAUSTED: Code = Code(8);
    /// Compacted, or in the future.
    pub const OUT_OF_RANGE: Code = Code(11);
    /// Broken invariant.
    pub const INTERNAL: Code = Code(13);
    /// No leader, a lost leader, a request that timed out.
    pub const UNAVAILABLE: Code = Code(14);
}

impl Error {
    /// A request that no endpoint took.
    pub(crate) fn unreachable(cause: &dyn std::error::Error) -> Error {
        Error::Unreachable(with_causes(cause))
    }

    /// A request whose answer was lost.
    pub(crate) fn lost(cause: &dyn std::error::Error) -> Error {
        Error::Lost(with_causes(cause))
    }

    /// Whether a request that fails so may have been carried out all the same.
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

    /// Whether another member may give the answer that this one did not.
    pub(crate) fn is_of_the_member(&self) -> bool {
        match self {
            Error::Unreachable(_) | Error::Lost(_) => true,
            Error::Answered { code, .. } => matches!(*code, Code::UNAVAILABLE | Code::CANCELLED),
            Error::Malformed(_) | Error::OtherCluster { .. } => false,
        }
    }

    /// Whether the wanted revision is compacted.
    pub fn is_compacted(&self) -> bool {
        matches!(self, Error::Answered { code: Code::OUT_OF_RANGE, message } if message.contains("compacted"))
    }

    /// Whether the wanted revision has not happened.
    pub fn is_future(&self) -> bool {
        matches!(self, Error::Answered { code: Code::OUT_OF_RANGE, message } if message.contains("future"))
    }
}

/// The text of an error and of what caused it: the outermost says little more than where it was met.
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
    fn only_answers_that_say_no_are_sure() {
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
