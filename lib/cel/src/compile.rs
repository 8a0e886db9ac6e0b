//! Compilation: the parser and the checker together, from text to a checked expression.

use crate::ast::CheckedAst;
use crate::checker::check;
use crate::environment::Environment;
use crate::error::CompileError;
use crate::parser::parse;
use crate::source::Source;

impl Environment {
    /// Parses and checks an expression.
    ///
    /// # Errors
    /// All syntax errors. If the syntax is correct, all type errors.
    pub fn compile(&self, text: &str) -> Result<CheckedAst, CompileError> {
        check(parse(&Source::new(text), self.syntax())?, self)
    }
}
