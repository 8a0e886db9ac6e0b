//! The cell language: small expressions, parsed once, that compute a table cell from an object.
//!
//! ```text
//! expr     = choice [ "if" path [ "set" | "nonempty" ] "else" expr ]
//! choice   = sum { "|" sum }                     the first sum that is set; an empty text is unset
//! sum      = term { "+" term }                   the sum of numbers
//! term     = text | number | "true" | "false"
//!          | name "(" expr { "," expr } ")"      one of the functions in `functions`
//!          | "condition" Type "." member         a member of the condition with this type
//!          | path "/" path                       two numbers, written as `2/3`
//!          | path [ text ]                       the value at the path; a text is filled in from this value
//! path     = name { "." name | "[]" | "[0]" }    `[]` means each element
//! text     = '"' … '"'   with `{path}` filled in, `{lower path}` in lower case, and `[…]` omitted if one of the
//!            paths inside it is empty
//! ```
//!
//! A function name without dots is a call without arguments (`podStatusReason`). `cells` translates column
//! descriptions in prose into this language. This module contains no code for particular kinds.

use super::cell::{Cell, CellPath, CellStep, Function, Template, TemplatePart};
use super::{cluster, functions, network, pods, workloads};

/// Reason why a text is not a cell.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("cell `{text}`: {what} at byte {at}")]
pub struct CellError {
    /// The whole text that was parsed.
    pub text: String,
    /// Description of the error.
    pub what: &'static str,
    /// Offset of the error in bytes.
    pub at: usize,
}

/// Maximum nesting of expressions. Cells are part of the program; the limit turns a mistake into an error
/// instead of a stack overflow.
const DEPTH_MAX: usize = 32;

impl Cell {
    /// Parses `text` as an expression.
    ///
    /// # Errors
    /// The text is not in the language, or names a function that does not exist.
    pub fn parse(text: &str) -> Result<Cell, CellError> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let cell = parser.expr()?;
        parser.space();
        if parser.at < text.len() {
            return Err(parser.error("unexpected text"));
        }
        Ok(cell)
    }
}

/// Returns all functions of the language.
fn all_functions() -> impl Iterator<Item = &'static Function> {
    [functions::GENERAL, pods::FUNCTIONS, workloads::FUNCTIONS, network::FUNCTIONS, cluster::FUNCTIONS]
        .into_iter()
        .flatten()
}

/// Returns the function called `name`.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    all_functions().find(|function| function.name == name)
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn error(&self, what: &'static str) -> CellError {
        CellError { text: self.text.to_owned(), what, at: self.at }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Skips space, and consumes `token` if it comes next. Returns whether `token` was consumed.
    fn take(&mut self, token: &str) -> bool {
        self.space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    /// Skips space, and consumes `word` if it comes next as a whole word. Returns whether `word` was
    /// consumed.
    fn take_word(&mut self, word: &str) -> bool {
        self.space();
        let ends = |rest: &str| !rest.starts_with(is_name_char);
        let found = self.rest().strip_prefix(word).is_some_and(ends);
        if found {
            self.at += word.len();
        }
        found
    }

    fn expr(&mut self) -> Result<Cell, CellError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error("too deep"));
        }
        let then = self.choice()?;
        let cell = if self.take_word("if") {
            let given = self.path()?;
            let _ = self.take_word("set") || self.take_word("nonempty");
            if !self.take_word("else") {
                return Err(self.error("no `else`"));
            }
            Cell::If { given, then: Box::new(then), otherwise: Box::new(self.expr()?) }
        } else {
            then
        };
        self.depth -= 1;
        Ok(cell)
    }

    fn choice(&mut self) -> Result<Cell, CellError> {
        self.list("|", Self::sum, Cell::FirstOf)
    }

    fn sum(&mut self) -> Result<Cell, CellError> {
        self.list("+", Self::term, Cell::Sum)
    }

    /// Parses items separated by `separator`; a single item is not wrapped in a list.
    fn list(
        &mut self,
        separator: &str,
        one: impl Fn(&mut Self) -> Result<Cell, CellError>,
        several: impl Fn(Vec<Cell>) -> Cell,
    ) -> Result<Cell, CellError> {
        let first = one(self)?;
        if !self.take(separator) {
            return Ok(first);
        }
        let mut all = vec![first, one(self)?];
        while self.take(separator) {
            all.push(one(self)?);
        }
        Ok(several(all))
    }

    fn term(&mut self) -> Result<Cell, CellError> {
        self.space();
        if self.rest().starts_with('"') {
            return Ok(Cell::Text(self.template()?));
        }
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            let len = self.rest().find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest().len());
            let number = self.rest()[..len].parse().map_err(|_| self.error("number too large"))?;
            self.at += len;
            return Ok(Cell::Int(number));
        }
        if self.take_word("true") {
            return Ok(Cell::Bool(true));
        }
        if self.take_word("false") {
            return Ok(Cell::Bool(false));
        }
        if self.take_word("condition") {
            let kind = self.name()?.to_owned();
            if !self.take(".") {
                return Err(self.error("no member of the condition"));
            }
            return Ok(Cell::Condition { kind, member: self.name()?.to_owned() });
        }
        self.space();
        let start = self.at;
        let name = self.name()?;
        if let Some(function) = find(name) {
            if self.rest().starts_with('(') {
                return self.call(function);
            }
            if !self.rest().starts_with(['.', '[']) {
                return Ok(Cell::Call(function, Vec::new()));
            }
        } else if self.rest().starts_with('(') {
            return Err(self.error("no such function"));
        }
        self.at = start;
        let path = self.path()?;
        self.space();
        if self.rest().starts_with('"') {
            return Ok(Cell::Each(path, self.template()?));
        }
        if self.take("/") {
            return Ok(Cell::Ratio(path, self.path()?));
        }
        Ok(Cell::Path(path))
    }

    fn call(&mut self, function: &'static Function) -> Result<Cell, CellError> {
        self.at += 1; // the parenthesis
        let mut arguments = Vec::new();
        loop {
            arguments.push(self.expr()?);
            if self.take(")") {
                return Ok(Cell::Call(function, arguments));
            }
            if !self.take(",") {
                return Err(self.error("no `)`"));
            }
        }
    }

    fn name(&mut self) -> Result<&'t str, CellError> {
        self.space();
        let rest = self.rest();
        let len = rest.find(|c| !is_name_char(c)).unwrap_or(rest.len());
        if len == 0 {
            return Err(self.error("no name"));
        }
        self.at += len;
        Ok(&rest[..len])
    }

    fn path(&mut self) -> Result<CellPath, CellError> {
        let mut path = vec![CellStep::Member(self.name()?.to_owned())];
        loop {
            let rest = self.rest();
            if let Some(after) = rest.strip_prefix('.') {
                if !after.starts_with(is_name_char) {
                    return Err(self.error("no name after the dot"));
                }
                self.at += 1;
                path.push(CellStep::Member(self.name()?.to_owned()));
            } else if rest.starts_with("[]") {
                self.at += 2;
                path.push(CellStep::Each);
            } else if let Some(index) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                path.push(CellStep::Index(index.0.parse().map_err(|_| self.error("no index"))?));
                self.at += index.0.len() + 2;
            } else {
                return Ok(path);
            }
        }
    }

    fn template(&mut self) -> Result<Template, CellError> {
        self.at += 1; // the quote
        let parts = self.parts('"')?;
        Ok(Template(parts))
    }

    fn parts(&mut self, end: char) -> Result<Vec<TemplatePart>, CellError> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        loop {
            let Some(next) = self.rest().chars().next() else {
                return Err(self.error("text does not end"));
            };
            self.at += next.len_utf8();
            if (next == '{' || next == '[' || next == end) && !literal.is_empty() {
                parts.push(TemplatePart::Literal(std::mem::take(&mut literal)));
            }
            match next {
                _ if next == end => return Ok(parts),
                '{' => {
                    let lower = self.rest().starts_with("lower ");
                    if lower {
                        self.at += "lower ".len();
                    }
                    let path = self.path()?;
                    if !self.take("}") {
                        return Err(self.error("no `}`"));
                    }
                    parts.push(TemplatePart::Fill { path, lower });
                }
                '[' if end == '"' => parts.push(TemplatePart::Optional(self.parts(']')?)),
                other => literal.push(other),
            }
        }
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_names_are_unique() {
        let mut names: Vec<&str> = all_functions().map(|function| function.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn texts_outside_the_language_are_refused_with_the_offset() {
        for (text, what, at) in [
            ("", "no name", 0),
            ("a.", "no name after the dot", 1),
            ("a[x]", "no index", 1),
            ("nosuch(a)", "no such function", 6),
            ("len(a", "no `)`", 5),
            ("a | ", "no name", 4),
            ("\"abc", "text does not end", 4),
            ("\"{a\"", "no `}`", 3),
            ("a if b", "no `else`", 6),
            ("a b", "unexpected text", 2),
            ("99999999999999999999", "number too large", 0),
            ("condition Ready", "no member of the condition", 15),
        ] {
            let error = Cell::parse(text).unwrap_err();
            assert_eq!((error.what, error.at), (what, at), "{text}");
        }
        let deep = format!("{}a{}", "len(".repeat(100_000), ")".repeat(100_000));
        assert_eq!(Cell::parse(&deep).unwrap_err().what, "too deep");
    }
}
