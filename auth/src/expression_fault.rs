//! Why a text of a configuration file is no expression, as a field error of kube-apiserver.

use go::quote;

/// What is wrong with an expression.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ExpressionFault {
    /// It does not compile, or not to the wanted type.
    #[error("{0}")]
    Text(String),
    /// It compiles, but a constant part of it fails.
    #[error("program instantiation failed: {0}")]
    Program(String),
}

impl ExpressionFault {
    /// The field error about the expression `text` at `path`.
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
