//! Errors of the compilation and the evaluation of an expression.

use std::borrow::Cow;
use std::fmt;

use crate::node_id::NodeId;
use crate::source::{Location, Source};

/// The reason why an evaluation has no value. An error is a value of the language: `true || error` is true.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EvalError {
    /// Text of the error, as in the reference.
    pub message: Cow<'static, str>,
    /// Node whose evaluation failed, if known.
    pub node: Option<NodeId>,
    /// Kind of the error, for callers that need to distinguish them.
    pub kind: EvalErrorKind,
}

/// The kind of an evaluation error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EvalErrorKind {
    /// An error of the language, which `||`, `&&` and macros may absorb.
    Language,
    /// The cost limit is exceeded. The evaluation stops at once.
    CostLimit,
    /// The deadline has passed, or the caller cancelled. The evaluation stops at once.
    Interrupted,
    /// Bytes were used as a map key, which the reference cannot hash. The evaluation stops at once.
    Unhashable,
}

impl EvalError {
    /// Creates an error of the language.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), node: None, kind: EvalErrorKind::Language }
    }

    /// Creates the error about arguments that no overload accepts.
    pub fn no_such_overload() -> Self {
        Self::new("no such overload")
    }

    /// Creates the error about bytes as a map key, found during the evaluation.
    pub(crate) fn unhashable() -> Self {
        let message = "internal error: runtime error: hash of unhashable type types.Bytes";
        Self { kind: EvalErrorKind::Unhashable, ..Self::new(message) }
    }

    /// Creates the error about bytes as a key in a constant map, found when the program is created.
    pub(crate) fn unhashable_constant() -> Self {
        let message = "runtime error: hash of unhashable type types.Bytes";
        Self { kind: EvalErrorKind::Unhashable, ..Self::new(message) }
    }

    /// Returns whether the host ended the evaluation.
    pub fn is_interruption(&self) -> bool {
        self.kind == EvalErrorKind::Interrupted
    }

    /// Returns the error with `node` as its position, unless the error already has a position.
    pub fn at(mut self, node: NodeId) -> Self {
        self.node.get_or_insert(node);
        self
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for EvalError {}

/// A problem found while parsing or checking.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Issue {
    /// Position of the problem.
    pub location: Location,
    /// Text of the problem, without position and snippet.
    pub message: String,
}

/// The errors of an expression that does not compile: the problems of the phase that failed, ordered by
/// position.
#[derive(Clone, Debug)]
pub struct CompileError {
    source: Source,
    issues: Vec<Issue>,
    truncated: usize,
}

/// Maximum number of problems that are reported; further problems are only counted.
const ISSUES_MAX: usize = 100;

/// Maximum length, in bytes, of a line that is printed under a message.
const SNIPPET_MAX: usize = 16_384;

impl CompileError {
    /// Creates the error from `issues`. If there are too many issues, the issues that were found first are
    /// kept. The issues are then sorted by position.
    pub fn new(source: Source, mut issues: Vec<Issue>) -> Self {
        let truncated = issues.len().saturating_sub(ISSUES_MAX);
        issues.truncate(ISSUES_MAX);
        issues.sort_by_key(|issue| issue.location);
        Self { source, issues, truncated }
    }

    /// Returns the problems, ordered by position.
    pub fn issues(&self) -> &[Issue] {
        &self.issues
    }
}

/// Formats every problem as `ERROR: <input>:line:column: message`, followed by the line and a mark under the
/// column.
impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, issue) in self.issues.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            let Location { line, column } = issue.location;
            write!(f, "ERROR: <input>:{line}:{}: {}", column + 1, issue.message)?;
            let is_printable = |text: &&str| !self.source.text().is_empty() && text.len() <= SNIPPET_MAX;
            if let Some(text) = self.source.line(line).filter(is_printable) {
                write!(f, "\n | {}\n | ", text.replace('\t', " "))?;
                let mut chars = text.chars();
                for c in chars.by_ref().take(usize::try_from(column).unwrap_or(0)) {
                    f.write_str(if c.len_utf8() > 1 { "\u{ff0e}" } else { "." })?;
                }
                f.write_str(if chars.next().is_some_and(|c| c.len_utf8() > 1) { "\u{ff3e}" } else { "^" })?;
            }
        }
        if self.truncated > 0 {
            write!(f, "\n{} more errors were truncated", self.truncated)?;
        }
        Ok(())
    }
}

impl std::error::Error for CompileError {}
