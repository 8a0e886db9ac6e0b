//! The syntax of RE2, as Go's `regexp` reads it, on top of the `regex` crate.
//!
//! The syntax of the crate is similar but different: in the crate, `\d`, `\w`, `\s` and `\b` follow Unicode,
//! classes may nest, `\1` is at most an octal escape, and so on. Therefore [`compile`] parses a pattern by
//! the rules of RE2, with RE2's error texts, and translates it to equivalent constructs of the crate. The
//! crate's limit on the size of the compiled form bounds the memory.
//!
//! `pattern ─► Translator (groups, repetitions, classes) ─► characters (escapes, named classes) ─► text for
//! the crate`

mod characters;
mod translator;

use regex::{Regex, RegexBuilder};

use self::translator::{NESTING_MAX, Translator};
use crate::error::EvalError;

/// Maximum number of Unicode classes in a compiled pattern. The crate allocates kilobytes for each class
/// before it knows the total size.
const UNICODE_CLASSES_MAX: usize = 2000;
/// Maximum size of a compiled pattern in bytes.
const COMPILED_BYTES_MAX: usize = 20 << 20;

/// An error in a pattern, and the substring that its message quotes.
#[derive(Debug, Eq, PartialEq)]
struct Fault<'p> {
    reason: &'static str,
    fragment: &'p str,
}

const MISSING_PAREN: &str = "missing closing )";
const MISSING_BRACKET: &str = "missing closing ]";
const UNEXPECTED_PAREN: &str = "unexpected )";
const MISSING_ARGUMENT: &str = "missing argument to repetition operator";
const NESTED_REPEAT: &str = "invalid nested repetition operator";
const REPEAT_SIZE: &str = "invalid repeat count";
const CLASS_RANGE: &str = "invalid character class range";
const ESCAPE: &str = "invalid escape sequence";
const NAMED_CAPTURE: &str = "invalid named capture";
const PERL: &str = "invalid or unsupported Perl syntax";
const TRAILING_BACKSLASH: &str = "trailing backslash at end of expression";
const TOO_DEEP: &str = "expression nests too deeply";
const TOO_LARGE: &str = "expression too large";
const INTERNAL: &str = "regexp/syntax: internal error";

/// Compiles a pattern.
///
/// # Errors
/// The error text of Go's `regexp/syntax`.
pub fn compile(pattern: &str) -> Result<Regex, EvalError> {
    compile_within(pattern, COMPILED_BYTES_MAX)
}

/// Compiles a pattern to a form of at most `bytes_max` bytes in memory.
///
/// # Errors
/// The errors of [`compile`]; a larger form is "too large".
pub fn compile_within(pattern: &str, bytes_max: usize) -> Result<Regex, EvalError> {
    let mut translator = Translator::new(pattern);
    translator.translate().map_err(failed)?;
    if translator.unicode_classes > UNICODE_CLASSES_MAX {
        return Err(failed(Fault { reason: TOO_LARGE, fragment: pattern }));
    }
    let mut builder = RegexBuilder::new(&translator.out);
    builder.size_limit(bytes_max).nest_limit(4 * NESTING_MAX as u32);
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => failed(Fault { reason: TOO_LARGE, fragment: pattern }),
        _ => failed(Fault { reason: INTERNAL, fragment: pattern }),
    })
}

/// Checks only the syntax of a pattern, in time that is linear in its length.
///
/// # Errors
/// The error text of Go's `regexp/syntax`.
pub fn check(pattern: &str) -> Result<(), EvalError> {
    Translator::new(pattern).translate().map_err(failed)
}

fn failed(Fault { reason, fragment }: Fault<'_>) -> EvalError {
    EvalError::new(format!("error parsing regexp: {reason}: `{fragment}`"))
}

/// The result of a parsing step.
type Step<'p, T = ()> = Result<T, Fault<'p>>;

#[cfg(test)]
#[path = "syntax_test.rs"]
mod tests;
