//! Parsing: from text to a syntax tree.
//!
//! ```text
//! text ─► lexer ─► tokens ─► grammar ─► builder ─► ast
//!                               │          └─ macros, literals, limits
//!                               └─ recovery: expected tokens, messages, where to continue
//! ```
//!
//! The grammar rules and the builder run together: each rule passes every result to the builder at once.
//! Every syntax error is reported, up to a limit, with the reference's text.

mod builder;
mod grammar;
mod lexer;
mod literal;
mod macros;
mod recovery;
mod token;

use crate::ast::Ast;
use crate::error::{CompileError, Issue};
use crate::source::{Location, Source};

/// Maximum length of an expression in code points.
pub const CODE_POINTS_MAX: usize = 100_000;

/// The enabled syntax beyond the core language.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Syntax {
    /// Optional syntax: `a.?b`, `a[?b]`, `[?a]`, `{?a: b}`, and the macros `optMap` and `optFlatMap`.
    pub optionals: bool,
    /// Macros with two variables: `all(i, v, …)`, `transformList(i, v, …)`.
    pub two_variables: bool,
    /// The macro `sortBy` on lists.
    pub sort_by: bool,
    /// The macro `cel.bind` for local variables.
    pub bindings: bool,
}

impl Syntax {
    /// All syntax extensions enabled.
    pub const ALL: Self = Self { optionals: true, two_variables: true, sort_by: true, bindings: true };
}

/// Parses an expression and expands its macros.
///
/// # Errors
/// All syntax errors, in order of position.
pub fn parse(source: &Source, syntax: Syntax) -> Result<Ast, CompileError> {
    let size = source.text().chars().count();
    let issues = if size > CODE_POINTS_MAX {
        let message =
            format!("expression code point size exceeds limit: size: {size}, limit {CODE_POINTS_MAX}");
        vec![Issue { location: Location::NONE, message }]
    } else {
        match grammar::parse(source, syntax) {
            Ok(ast) => return Ok(ast),
            Err(issues) => issues,
        }
    };
    Err(CompileError::new(source.clone(), issues))
}

#[cfg(test)]
#[path = "../parser_test.rs"]
mod tests;
