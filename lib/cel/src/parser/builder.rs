//! Creation of nodes from the results of the grammar.
//!
//! The builder checks everything that the grammar cannot: reserved words, literals out of range, disabled
//! syntax, and the length of chains of operators, selections and indexes. The errors of the builder come
//! after the syntax errors of the same position.

use std::sync::Arc;

use hashbrown::HashMap;

use super::Syntax;
use super::literal;
use super::token::TokenKind;
use crate::ast::{Ast, Constant, MacroCall, MapEntry, Name, Node, NodeId, NodeKind, StructField};
use crate::error::Issue;
use crate::identifier::RESERVED;
use crate::source::{Location, Source};

/// Maximum number of operators, selections, indexes and member calls on a path from the root.
const HEIGHT_MAX: u16 = 250;

/// Maximum number of nodes of a tree. Only macros that copy their receiver (`optMap`) can exceed the limit:
/// each link of a chain of such macros doubles the tree. In a text without these macros,
/// [`super::CODE_POINTS_MAX`] also limits the number of nodes.
const NODES_MAX: usize = 200_000;

/// Offset of nodes without a position in the text.
const NOWHERE: u32 = u32::MAX;

/// A node under construction, with the height of its tree, which [`HEIGHT_MAX`] limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subtree {
    pub node: NodeId,
    height: u16,
}

impl Default for Subtree {
    fn default() -> Self {
        Self { node: NodeId(0), height: 0 }
    }
}

/// An entry of a map or struct literal.
#[derive(Debug)]
pub(super) struct Entry<K> {
    pub key: K,
    /// Offset of the question mark before the entry, if there is one.
    pub optional: Option<u32>,
    pub colon: u32,
    pub value: Subtree,
}

/// The name of a field as written in the text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WrittenName<'t> {
    /// Offset where the name should start.
    pub offset: u32,
    /// Kind and text of the token; `None` if there is no name.
    pub token: Option<(TokenKind, &'t str)>,
}

pub(super) struct Builder {
    pub(super) syntax: Syntax,
    source: Source,
    nodes: Vec<Node>,
    macro_calls: HashMap<NodeId, MacroCall>,
    issues: Vec<Issue>,
    too_deep: bool,
    too_large: bool,
}

impl Builder {
    pub fn new(source: &Source, syntax: Syntax) -> Self {
        Self {
            syntax,
            source: source.clone(),
            nodes: Vec::new(),
            macro_calls: HashMap::new(),
            issues: Vec::new(),
            too_deep: false,
            too_large: false,
        }
    }

    /// Returns the tree. The errors are the syntax errors, followed by the errors of the builder.
    pub fn finish(self, root: Subtree, mut issues: Vec<Issue>) -> Result<Ast, Vec<Issue>> {
        issues.extend(self.issues);
        for (exceeded, message) in [
            (self.too_deep, "max recursion depth exceeded".to_owned()),
            (self.too_large, format!("expression node count exceeds limit: {NODES_MAX}")),
        ] {
            if exceeded {
                issues.push(Issue { location: Location::NONE, message });
            }
        }
        if !issues.is_empty() {
            return Err(issues);
        }
        Ok(Ast { nodes: self.nodes, root: root.node, source: self.source, macro_calls: self.macro_calls })
    }

    pub(super) fn push(&mut self, kind: NodeKind, offset: u32) -> NodeId {
        if self.nodes.len() == NODES_MAX {
            self.too_large = true;
            return NodeId(0);
        }
        self.nodes.push(Node { kind, offset });
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Returns whether the tree has reached its maximum size. A macro must then copy no further nodes.
    pub(super) fn is_full(&self) -> bool {
        self.too_large
    }

    pub(super) fn kind(&self, node: NodeId) -> &NodeKind {
        &self.nodes[node.index()].kind
    }

    pub(super) fn offset(&self, node: NodeId) -> u32 {
        self.nodes[node.index()].offset
    }

    fn report(&mut self, offset: u32, message: impl Into<String>) {
        if self.too_large {
            return; // Some nodes are missing, so further reports would be about wrong nodes.
        }
        let location = if offset == NOWHERE { Location::NONE } else { self.source.location(offset) };
        self.issues.push(Issue { location, message: message.into() });
    }

    /// Returns the number of errors so far, for [`Self::global_call`].
    pub fn mark(&self) -> usize {
        self.issues.len()
    }

    fn leaf(&mut self, kind: NodeKind, offset: u32) -> Subtree {
        Subtree { node: self.push(kind, offset), height: 0 }
    }

    /// Creates a placeholder for an expression with an error at `offset`.
    pub fn unspecified(&mut self, offset: u32) -> Subtree {
        self.leaf(NodeKind::Literal(Constant::Null), offset)
    }

    /// Creates a placeholder for a missing expression.
    pub fn nowhere(&mut self) -> Subtree {
        self.unspecified(NOWHERE)
    }

    /// Creates a placeholder for a missing operand.
    pub fn error_literal(&mut self, offset: u32) -> Subtree {
        self.unspecified(offset)
    }

    /// Reports an error, and creates a placeholder for the expression that has it.
    fn error(&mut self, offset: u32, message: impl Into<String>) -> Subtree {
        self.report(offset, message);
        self.unspecified(offset)
    }

    /// Returns the height of an operator over `parts`; `None` if it exceeds the limit.
    fn level(&mut self, parts: &[Subtree]) -> Option<u16> {
        let height = parts.iter().map(|part| part.height).max().unwrap_or(0) + 1;
        self.too_deep |= height > HEIGHT_MAX;
        (height <= HEIGHT_MAX).then_some(height)
    }

    pub fn operator(&mut self, offset: u32, function: &str, parts: Vec<Subtree>) -> Subtree {
        let height = match parts.len() {
            1 => parts[0].height,
            _ => match self.level(&parts) {
                Some(height) => height,
                None => return self.nowhere(),
            },
        };
        let args = parts.iter().map(|part| part.node).collect();
        Subtree {
            node: self.push(NodeKind::Call { function: function.into(), target: None, args }, offset),
            height,
        }
    }

    /// Builds a balanced tree from a chain of one logical operator, so that its depth is the logarithm of its
    /// length.
    pub fn logic(&mut self, function: &str, terms: &[Subtree], ops: &[u32]) -> Subtree {
        if ops.is_empty() {
            return terms[0];
        }
        let height = terms.iter().map(|part| part.height).max().unwrap_or(0);
        let node = self.balanced(&function.into(), terms, ops);
        Subtree { node, height }
    }

    fn balanced(&mut self, function: &Name, terms: &[Subtree], ops: &[u32]) -> NodeId {
        let middle = ops.len() / 2;
        let left = match middle {
            0 => terms[0].node,
            _ => self.balanced(function, &terms[..=middle], &ops[..middle]),
        };
        let right = match ops.len() - middle {
            1 => terms[middle + 1].node,
            _ => self.balanced(function, &terms[middle + 1..], &ops[middle + 1..]),
        };
        self.push(
            NodeKind::Call { function: function.clone(), target: None, args: [left, right].into() },
            ops[middle],
        )
    }

    pub fn index(&mut self, offset: u32, operand: Subtree, index: Subtree, optional: bool) -> Subtree {
        if optional && !self.syntax.optionals {
            return self.error(offset, "unsupported syntax '[?'");
        }
        self.operator(offset, if optional { "_[?_]" } else { "_[_]" }, vec![operand, index])
    }

    /// Returns the text of a field name, and reports a name that is missing or quoted.
    pub fn field_name(&mut self, name: &WrittenName<'_>) -> Name {
        match name.token {
            Some((TokenKind::Identifier, text)) => return text.into(),
            Some(_) => self.report(name.offset, "unsupported syntax: '`'"),
            None => self.report(name.offset, "unsupported ident kind"),
        }
        "".into()
    }

    pub fn select(
        &mut self,
        offset: u32,
        operand: Subtree,
        name: WrittenName<'_>,
        optional: bool,
    ) -> Subtree {
        let field = self.field_name(&name);
        let Some(height) = self.level(&[operand]) else { return self.nowhere() };
        if !optional {
            let kind = NodeKind::Select { operand: operand.node, field, test_only: false };
            return Subtree { node: self.push(kind, offset), height };
        }
        if !self.syntax.optionals {
            return self.error(offset, "unsupported syntax '.?'");
        }
        let field = self.push(NodeKind::Literal(Constant::String(field)), name.offset);
        let args = [operand.node, field].into();
        Subtree {
            node: self.push(NodeKind::Call { function: "_?._".into(), target: None, args }, offset),
            height,
        }
    }

    pub fn member_call(&mut self, offset: u32, name: &str, target: Subtree, args: Vec<Subtree>) -> Subtree {
        let parts: Vec<Subtree> = std::iter::once(target).chain(args.iter().copied()).collect();
        let Some(height) = self.level(&parts) else { return self.nowhere() };
        Subtree { node: self.call(offset, name.into(), Some(target.node), &args), height }
    }

    /// Creates a call of a global function. `mark` is the result of [`Self::mark`] before the arguments were
    /// parsed.
    pub fn global_call(
        &mut self,
        start: u32,
        offset: u32,
        dot: bool,
        name: &str,
        args: Vec<Subtree>,
        mark: usize,
    ) -> Subtree {
        if RESERVED.contains(&name) {
            // As in the reference, errors in the arguments are dropped.
            self.issues.truncate(mark);
            return self.error(start, format!("reserved identifier: {name}"));
        }
        let height = args.iter().map(|part| part.height).max().unwrap_or(0);
        let name = if dot { format!(".{name}").into() } else { name.into() };
        Subtree { node: self.call(offset, name, None, &args), height }
    }

    /// Creates a call. A call of a macro is expanded.
    fn call(&mut self, offset: u32, function: Name, target: Option<NodeId>, args: &[Subtree]) -> NodeId {
        let args: Vec<NodeId> = args.iter().map(|part| part.node).collect();
        match self.expand(offset, &function, target, &args) {
            None => self.push(NodeKind::Call { function, target, args: args.into() }, offset),
            // A presence test needs no entry, because the unparser formats the node itself as `has(…)`.
            Some(Ok(node)) if matches!(self.kind(node), NodeKind::Select { .. }) => node,
            Some(Ok(node)) => {
                self.macro_calls.insert(node, MacroCall { function, target, args: args.into() });
                node
            }
            Some(Err((at, message))) => self.error(at, message).node,
        }
    }

    pub fn identifier(&mut self, start: u32, offset: u32, dot: bool, name: &str) -> Subtree {
        if RESERVED.contains(&name) {
            return self.error(start, format!("reserved identifier: {name}"));
        }
        let name = if dot { format!(".{name}").into() } else { name.into() };
        self.leaf(NodeKind::Ident(name), offset)
    }

    pub fn list(&mut self, offset: u32, elements: Vec<(Option<u32>, Subtree)>) -> Subtree {
        let mut optional = Vec::new();
        for (index, (question, _)) in elements.iter().enumerate() {
            match question {
                Some(question) if !self.syntax.optionals => self.report(*question, "unsupported syntax '?'"),
                Some(_) => optional.push(index as u32),
                None => {}
            }
        }
        let height = elements.iter().map(|(_, part)| part.height).max().unwrap_or(0);
        let elements = elements.iter().map(|(_, part)| part.node).collect();
        Subtree { node: self.push(NodeKind::List { elements, optional: optional.into() }, offset), height }
    }

    fn check_optional(&mut self, question: Option<u32>) -> bool {
        if let Some(offset) = question.filter(|_| !self.syntax.optionals) {
            self.report(offset, "unsupported syntax '?'");
        }
        question.is_some()
    }

    pub fn map(&mut self, offset: u32, entries: Vec<Entry<Subtree>>) -> Subtree {
        let mut height = 0;
        let mut result = Vec::with_capacity(entries.len());
        for entry in entries {
            height = height.max(entry.key.height).max(entry.value.height);
            let optional = self.check_optional(entry.optional);
            result.push(MapEntry {
                key: entry.key.node,
                value: entry.value.node,
                optional,
                offset: entry.colon,
            });
        }
        Subtree { node: self.push(NodeKind::Map { entries: result.into() }, offset), height }
    }

    pub fn struct_literal(&mut self, offset: u32, name: &str, fields: Vec<Entry<Name>>) -> Subtree {
        let mut height = 0;
        let mut result = Vec::with_capacity(fields.len());
        for field in fields {
            height = height.max(field.value.height);
            let optional = self.check_optional(field.optional);
            result.push(StructField {
                name: field.key,
                value: field.value.node,
                optional,
                offset: field.colon,
            });
        }
        Subtree {
            node: self.push(NodeKind::Struct { name: name.into(), fields: result.into() }, offset),
            height,
        }
    }

    pub fn literal(&mut self, offset: u32, kind: TokenKind, text: &str, negative: bool) -> Subtree {
        let constant = match kind {
            TokenKind::Int => literal::int(text, negative).map(Constant::Int).ok_or("invalid int literal"),
            TokenKind::Uint => literal::uint(text).map(Constant::Uint).ok_or("invalid uint literal"),
            TokenKind::Float => {
                literal::double(text, negative).map(Constant::Double).ok_or("invalid double literal")
            }
            TokenKind::String => literal::unescape(text, false)
                .map(|bytes| Constant::String(Arc::from(String::from_utf8_lossy(&bytes).as_ref()))),
            TokenKind::Bytes => {
                literal::unescape(&text[1..], true).map(|bytes| Constant::Bytes(bytes.into()))
            }
            TokenKind::True => Ok(Constant::Bool(true)),
            TokenKind::False => Ok(Constant::Bool(false)),
            _ => Ok(Constant::Null),
        };
        match constant {
            Ok(constant) => self.leaf(NodeKind::Literal(constant), offset),
            Err(message) => self.error(offset, message),
        }
    }
}
