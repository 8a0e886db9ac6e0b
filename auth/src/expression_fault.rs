//! Errors about invalid expressions in configuration files, as field errors of kube-apiserver.

use go::quote;

/// The reason why an expression is invalid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ExpressionFault {
    /// The expression does not compile, or its result has the wrong type.
    #[error("{0}")]
    Text(String),
    /// The expression compiles, but the evaluation of a constant subexpression fails.
    #[error("program instantiation failed: {0}")]
    Program(String),
}

impl ExpressionFault {
    /// Formats the field error about the expression `text` at `path`.
    pub fn at(&self, path: &str, text: &str) -> String {
        match self {
            ExpressionFault::Text(why) => format!("{path}: Invalid value: {}: {why}", quote(text)),
            ExpressionFault::Program(_) => format!("{path}: Internal error: {self}"),
        }
    }
}

impl From<ExpressionFault> for String {
    fn from(fault: ExpressionFault) -> String {
        fault.to_string()
    }
}
