//! Errors of compiling and of evaluating an expression.

use std::borrow::Cow;
use std::fmt;

use crate::ast::NodeId;
use crate::source::{Location, Source};

/// Why an evaluation has no value. Errors are values of the language: `true || error` is true.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EvalError {
    /// The reference's text.
    pub message: Cow<'static, str>,
    /// The node whose evaluation failed, when known.
    pub node: Option<NodeId>,
    /// What failed, where callers branch on it.
    pub kind: EvalErrorKind,
}

/// What kind of failure ended an evaluation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EvalErrorKind {
    /// An error of the language; `||`, `&&` and macros may absorb it.
    Language,
    /// The cost limit was exceeded: the evaluation stops at once.
    CostLimit,
    /// The deadline passed or the caller cancelled: the evaluation stops at once.
    Interrupted,
    /// A map was to have bytes as a key, which the reference cannot hash: the evaluation stops at once.
    Unhashable,
}

impl EvalError {
    /// An error of the language.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), node: None, kind: EvalErrorKind::Language }
    }

    /// No overload takes these arguments.
    pub fn no_such_overload() -> Self {
        Self::new("no such overload")
    }

    /// Bytes as the key of a map, met while the expression is evaluated.
    pub(crate) fn unhashable() -> Self {
        let message = "internal error: runtime error: hash of unhashable type types.Bytes";
        Self { kind: EvalErrorKind::Unhashable, ..Self::new(message) }
    }

    /// Bytes as the key of a map of constants, which is met when the program is made.
    pub(crate) fn unhashable_constant() -> Self {
        let message = "runtime error: hash of unhashable type types.Bytes";
        Self { kind: EvalErrorKind::Unhashable, ..Self::new(message) }
    }

    /// Whether the host ended the evaluation.
    pub fn is_interruption(&self) -> bool {
        self.kind == EvalErrorKind::Interrupted
    }

    /// The same error at `node`, unless it already has a place.
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

/// One problem found while parsing or checking.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Issue {
    /// Where it is.
    pub location: Location,
    /// What it is, without position and snippet.
    pub message: String,
}

/// Why an expression does not compile: the problems of the stage that failed, in order of position.
#[derive(Clone, Debug)]
pub struct CompileError {
    source: Source,
    issues: Vec<Issue>,
    truncated: usize,
}

/// Problems that are reported; the rest is counted.
const ISSUES_MAX: usize = 100;

/// Bytes of the longest line that is shown under a message.
const SNIPPET_MAX: usize = 16_384;

impl CompileError {
    /// Sorts `issues` by position, keeping those found first.
    pub fn new(source: Source, mut issues: Vec<Issue>) -> Self {
        let truncated = issues.len().saturating_sub(ISSUES_MAX);
        issues.truncate(ISSUES_MAX);
        issues.sort_by_key(|issue| issue.location);
        Self { source, issues, truncated }
    }

    /// The problems, in order of position.
    pub fn issues(&self) -> &[Issue] {
        &self.issues
    }
}

/// `ERROR: <input>:line:column: message`, the line, and a mark under the column, for every problem.
impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, issue) in self.issues.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            let Location { line, column } = issue.location;
            write!(f, "ERROR: <input>:{line}:{}: {}", column + 1, issue.message)?;
            let shown = |text: &&str| !self.source.text().is_empty() && text.len() <= SNIPPET_MAX;
            if let Some(text) = self.source.line(line).filter(shown) {
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
