//! Checks of a type-checked expression that need its constants: durations, timestamps, regular expressions,
//! and literals whose elements have different types.
//!
//! These checks find mistakes that would otherwise fail in every evaluation. Stored expressions are checked
//! as well.

use crate::ast::{CheckedAst, NodeId, NodeKind};
use crate::environment::Environment;
use crate::error::Issue;
use crate::library::CallCheck;
use crate::types::Type;

/// Returns the problems with the constants of an expression.
pub(super) fn validate(checked: &CheckedAst, environment: &Environment) -> Vec<Issue> {
    let mut validator = Validator { checked, issues: Vec::new() };
    validator.calls(environment.checks());
    validator.node(checked.ast.root, false);
    validator.issues
}

struct Validator<'c> {
    checked: &'c CheckedAst,
    issues: Vec<Issue>,
}

impl Validator<'_> {
    fn report(&mut self, id: NodeId, message: String) {
        let location = self.checked.ast.source.location(self.checked.ast.node(id).offset);
        self.issues.push(Issue { location, message });
    }

    /// Runs the checks that functions declare for their calls.
    fn calls(&mut self, checks: &[(&'static str, CallCheck)]) {
        let checked = self.checked;
        for (index, node) in checked.ast.nodes.iter().enumerate() {
            // Nodes to which only a macro call refers have no reference.
            let (NodeKind::Call { function, .. }, Some(_)) = (&node.kind, &checked.references[index]) else {
                continue;
            };
            for (_, check) in checks.iter().filter(|(name, _)| *name == &**function) {
                if let Some((id, message)) = check(checked, NodeId(index as u32)) {
                    self.report(id, message);
                }
            }
        }
    }

    /// Checks a node. If `exempt` is true, list and map literals in the node may mix types. Calls of
    /// `format` are exempt, because their arguments are a list.
    fn node(&mut self, id: NodeId, exempt: bool) {
        let ast = &self.checked.ast;
        match ast.kind(id) {
            NodeKind::Literal(_) | NodeKind::Ident(_) => {}
            NodeKind::Select { operand, .. } => self.node(*operand, exempt),
            NodeKind::Call { function, target, args } => {
                let exempt = exempt || &**function == "format";
                target.iter().chain(args).for_each(|&part| self.node(part, exempt));
            }
            NodeKind::List { elements, optional } => {
                if !exempt {
                    let is_optional = |index: usize| optional.binary_search(&(index as u32)).is_ok();
                    let types = elements.iter().enumerate().map(|(at, &element)| (element, is_optional(at)));
                    self.same_types(false, types);
                }
                elements.iter().for_each(|&element| self.node(element, exempt));
            }
            NodeKind::Map { entries } => {
                if !exempt {
                    self.same_types(true, entries.iter().map(|entry| (entry.key, false)));
                    self.same_types(true, entries.iter().map(|entry| (entry.value, entry.optional)));
                }
                for entry in entries {
                    self.node(entry.key, exempt);
                    self.node(entry.value, exempt);
                }
            }
            NodeKind::Struct { fields, .. } => fields.iter().for_each(|field| self.node(field.value, exempt)),
            NodeKind::Comprehension(parts) => {
                for part in [parts.range, parts.init, parts.condition, parts.step, parts.result] {
                    self.node(part, exempt);
                }
            }
        }
    }

    /// Reports elements whose type differs from the type of the first element. If `all` is false, only the
    /// first such element is reported.
    fn same_types(&mut self, all: bool, elements: impl Iterator<Item = (NodeId, bool)>) {
        let checked = self.checked;
        let mut first: Option<&Type> = None;
        for (id, optional) in elements {
            let r#type = match checked.type_of(id) {
                Type::Optional(value) if optional => value,
                other => other,
            };
            match first {
                None => first = Some(r#type),
                Some(first) if !first.is_exactly(r#type) => {
                    self.report(id, format!("expected type '{first}' but found '{type}'"));
                    if !all {
                        return;
                    }
                }
                Some(_) => {}
            }
        }
    }
}
