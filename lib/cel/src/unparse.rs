//! Conversion of a syntax tree to text: as an expression, or as an outline with macros expanded.
//!
//! The expression form contains macro calls as they were written, all literals in one notation, and
//! parentheses only if precedence requires them.

use std::fmt::Write as _;

use crate::ast::{Ast, Constant, NodeId, NodeKind};
use crate::number;

/// Column after which `&&` and `||` begin a new line.
const WRAP_COLUMN: usize = 80;

/// Formats the tree as an expression.
pub fn unparse(ast: &Ast) -> String {
    let mut writer = Unparser { ast, out: String::new(), wrapped_at: 0 };
    writer.node(ast.root);
    writer.out
}

/// Returns the text and precedence of a binary operator; lower binds tighter.
fn binary_operator(function: &str) -> Option<(&'static str, u8)> {
    Some(match function {
        "_*_" => ("*", 3),
        "_/_" => ("/", 3),
        "_%_" => ("%", 3),
        "_+_" => ("+", 4),
        "_-_" => ("-", 4),
        "_==_" => ("==", 5),
        "_!=_" => ("!=", 5),
        "_<_" => ("<", 5),
        "_<=_" => ("<=", 5),
        "_>_" => (">", 5),
        "_>=_" => (">=", 5),
        "@in" => ("in", 5),
        "_&&_" => ("&&", 6),
        "_||_" => ("||", 7),
        _ => return None,
    })
}

/// Returns the precedence of the operator that a function implements; 0 for plain calls.
fn precedence(function: &str) -> u8 {
    match function {
        "_[_]" | "_[?_]" | "_?._" => 1,
        "!_" | "-_" => 2,
        "_?_:_" => 8,
        _ => binary_operator(function).map_or(0, |(_, precedence)| precedence),
    }
}

struct Unparser<'a> {
    ast: &'a Ast,
    out: String,
    wrapped_at: usize,
}

impl Unparser<'_> {
    fn node(&mut self, id: NodeId) {
        if let Some(call) = self.ast.macro_calls.get(&id) {
            return self.call(&call.function, call.target, &call.args);
        }
        match self.ast.kind(id) {
            NodeKind::Literal(constant) => self.literal(constant),
            NodeKind::Ident(name) => self.out.push_str(name),
            NodeKind::Select { operand, field, test_only: false } => self.select(*operand, ".", field),
            NodeKind::Select { operand, field, test_only: true } => {
                self.out.push_str("has(");
                self.node(*operand);
                let _ = write!(self.out, ".{field})");
            }
            NodeKind::Call { function, target, args } => self.operator_or_call(function, *target, args),
            NodeKind::List { elements, optional } => {
                self.out.push('[');
                for (index, element) in elements.iter().enumerate() {
                    self.separate(index);
                    if optional.binary_search(&(index as u32)).is_ok() {
                        self.out.push('?');
                    }
                    self.node(*element);
                }
                self.out.push(']');
            }
            NodeKind::Map { entries } => {
                self.out.push('{');
                for (index, entry) in entries.iter().enumerate() {
                    self.separate(index);
                    if entry.optional {
                        self.out.push('?');
                    }
                    self.node(entry.key);
                    self.out.push_str(": ");
                    self.node(entry.value);
                }
                self.out.push('}');
            }
            NodeKind::Struct { name, fields } => {
                self.out.push_str(name);
                self.out.push('{');
                for (index, field) in fields.iter().enumerate() {
                    self.separate(index);
                    if field.optional {
                        self.out.push('?');
                    }
                    let _ = write!(self.out, "{}: ", field.name);
                    self.node(field.value);
                }
                self.out.push('}');
            }
            // Only macros produce comprehensions, and macro calls are formatted as they were written.
            NodeKind::Comprehension(_) => {}
        }
    }

    fn separate(&mut self, index: usize) {
        if index > 0 {
            self.out.push_str(", ");
        }
    }

    fn literal(&mut self, constant: &Constant) {
        match constant {
            Constant::Bytes(bytes) => {
                self.out.push_str("b\"");
                for byte in bytes.iter() {
                    let _ = write!(self.out, "\\{byte:03o}");
                }
                self.out.push('"');
            }
            Constant::Double(value) => {
                let text = number::format_double(*value);
                self.out.push_str(&text);
                if !text.contains('.') {
                    self.out.push_str(".0");
                }
            }
            other => self.out.push_str(&literal_text(other)),
        }
    }

    fn operator_or_call(&mut self, function: &str, target: Option<NodeId>, args: &[NodeId]) {
        match (function, target, args) {
            ("_?_:_", None, &[condition, then, otherwise]) => {
                for (operand, before) in [(condition, ""), (then, " ? "), (otherwise, " : ")] {
                    self.out.push_str(before);
                    let nested = self.has_precedence(operand, 8) || self.arguments(operand) >= 2;
                    self.nested(operand, nested);
                }
            }
            ("_?._", None, &[operand, field]) => {
                if let NodeKind::Literal(Constant::String(field)) = self.ast.kind(field) {
                    self.select(operand, ".?", field);
                }
            }
            ("_[_]" | "_[?_]", None, &[operand, index]) => {
                let nested = self.is_operator(operand);
                self.nested(operand, nested);
                self.out.push_str(if function == "_[_]" { "[" } else { "[?" });
                self.node(index);
                self.out.push(']');
            }
            ("!_" | "-_", None, &[operand]) => {
                self.out.push_str(&function[..1]);
                let nested = self.arguments(operand) >= 2;
                self.nested(operand, nested);
            }
            (_, None, &[left, right]) => match binary_operator(function) {
                Some((operator, level)) => self.binary(operator, level, left, right),
                None => self.call(function, target, args),
            },
            _ => self.call(function, target, args),
        }
    }

    fn binary(&mut self, operator: &str, level: u8, left: NodeId, right: NodeId) {
        let logical = matches!(operator, "&&" | "||");
        let weaker =
            |operand| self.arguments(operand) >= 2 && self.precedence(operand).is_some_and(|p| p > level);
        let nest_left = weaker(left);
        let nest_right = weaker(right) || !logical && self.has_precedence(right, level);
        self.nested(left, nest_left);
        let width = self.out.len() - self.wrapped_at + operator.len() + 2;
        if logical && width >= WRAP_COLUMN {
            self.wrapped_at = self.out.len();
            let _ = writeln!(self.out, " {operator}");
        } else {
            let _ = write!(self.out, " {operator} ");
        }
        self.nested(right, nest_right);
    }

    fn call(&mut self, function: &str, target: Option<NodeId>, args: &[NodeId]) {
        if let Some(target) = target {
            let nested = self.is_operator(target);
            self.nested(target, nested);
            self.out.push('.');
        }
        self.out.push_str(function);
        self.out.push('(');
        for (index, arg) in args.iter().enumerate() {
            self.separate(index);
            self.node(*arg);
        }
        self.out.push(')');
    }

    fn select(&mut self, operand: NodeId, operator: &str, field: &str) {
        let nested = self.is_operator(operand);
        self.nested(operand, nested);
        self.out.push_str(operator);
        self.out.push_str(field);
    }

    fn nested(&mut self, id: NodeId, parentheses: bool) {
        if parentheses {
            self.out.push('(');
        }
        self.node(id);
        if parentheses {
            self.out.push(')');
        }
    }

    /// Returns the number of arguments of a call, 0 for other nodes.
    fn arguments(&self, id: NodeId) -> usize {
        match self.ast.kind(id) {
            NodeKind::Call { args, .. } => args.len(),
            _ => 0,
        }
    }

    fn precedence(&self, id: NodeId) -> Option<u8> {
        match self.ast.kind(id) {
            NodeKind::Call { function, .. } => Some(precedence(function)),
            _ => None,
        }
    }

    fn has_precedence(&self, id: NodeId, level: u8) -> bool {
        self.precedence(id) == Some(level)
    }

    /// Returns whether a node is a binary operator or a conditional.
    fn is_operator(&self, id: NodeId) -> bool {
        self.arguments(id) >= 2 && self.precedence(id).is_some_and(|level| level >= 3)
    }
}

/// Formats a literal, in the same way for both forms.
fn literal_text(constant: &Constant) -> String {
    match constant {
        Constant::Null => "null".to_owned(),
        Constant::Bool(value) => value.to_string(),
        Constant::Int(value) => value.to_string(),
        Constant::Uint(value) => format!("{value}u"),
        Constant::Double(value) => number::format_double(*value),
        Constant::String(text) => go::quote(text),
        Constant::Bytes(bytes) => format!("b{}", go::quote_bytes(bytes)),
    }
}

/// Formats the tree as an outline, with one node per line, indented by depth, and macros expanded.
pub fn outline(ast: &Ast) -> String {
    let mut writer = Outline { ast, out: String::new(), indent: 0 };
    writer.node(ast.root);
    writer.out
}

struct Outline<'a> {
    ast: &'a Ast,
    out: String,
    indent: usize,
}

impl Outline<'_> {
    fn line(&mut self) {
        self.out.push('\n');
        (0..self.indent).for_each(|_| self.out.push_str("  "));
    }

    /// Writes `parts` on separate lines between brackets, indented one level deeper.
    fn block<T>(&mut self, brackets: [&str; 2], parts: &[T], mut write: impl FnMut(&mut Self, usize, &T)) {
        self.out.push_str(brackets[0]);
        if !parts.is_empty() {
            self.indent += 1;
            for (index, part) in parts.iter().enumerate() {
                if index > 0 {
                    self.out.push(',');
                }
                self.line();
                write(self, index, part);
            }
            self.indent -= 1;
            self.line();
        }
        self.out.push_str(brackets[1]);
    }

    fn node(&mut self, id: NodeId) {
        match self.ast.kind(id) {
            NodeKind::Literal(constant) => self.out.push_str(&literal_text(constant)),
            NodeKind::Ident(name) => self.out.push_str(name),
            NodeKind::Select { operand, field, test_only } => {
                self.node(*operand);
                let _ = write!(self.out, ".{field}");
                if *test_only {
                    self.out.push_str("~test-only~");
                }
            }
            NodeKind::Call { function, target, args } => {
                if let Some(target) = target {
                    self.node(*target);
                    self.out.push('.');
                }
                self.out.push_str(function);
                self.block(["(", ")"], args, |w, _, arg| w.node(*arg));
            }
            NodeKind::List { elements, .. } => {
                self.block(["[", "]"], elements, |w, _, element| w.node(*element))
            }
            NodeKind::Map { entries } => self.block(["{", "}"], entries, |w, _, entry| {
                w.optional(entry.optional);
                w.node(entry.key);
                w.out.push(':');
                w.node(entry.value);
            }),
            NodeKind::Struct { name, fields } => {
                self.out.push_str(name);
                self.block(["{", "}"], fields, |w, _, field| {
                    w.optional(field.optional);
                    let _ = write!(w.out, "{}:", field.name);
                    w.node(field.value);
                });
            }
            NodeKind::Comprehension(parts) => {
                self.out.push_str("__comprehension__(");
                self.indent += 1;
                self.label("Variable");
                self.out.push_str(&parts.iter_var);
                self.comma_line();
                if let Some(second) = &parts.iter_var2 {
                    self.out.push_str(second);
                    self.comma_line();
                }
                self.out.push_str("// Target");
                self.line();
                self.node(parts.range);
                self.out.push(',');
                self.label("Accumulator");
                self.out.push_str(&parts.accu_var);
                for (name, part) in [
                    ("Init", parts.init),
                    ("LoopCondition", parts.condition),
                    ("LoopStep", parts.step),
                    ("Result", parts.result),
                ] {
                    self.out.push(',');
                    self.label(name);
                    self.node(part);
                }
                self.out.push(')');
                self.indent -= 1;
            }
        }
    }

    fn label(&mut self, name: &str) {
        self.line();
        let _ = write!(self.out, "// {name}");
        self.line();
    }

    fn comma_line(&mut self) {
        self.out.push(',');
        self.line();
    }

    fn optional(&mut self, optional: bool) {
        if optional {
            self.out.push('?');
        }
    }
}
