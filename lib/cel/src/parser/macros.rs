//! Macros: calls that the parser replaces by other expressions.
//!
//! | call | becomes |
//! |---|---|
//! | `has(a.b)` | a presence test |
//! | `all`, `exists`, `exists_one`, `map`, `filter` | a comprehension |
//! | with two variables: `all`, `exists`, `exists_one`, `existsOne` | a comprehension |
//! | with two variables: `transformList`, `transformMap`, `transformMapEntry` | a comprehension |
//! | `sortBy` | a comprehension that binds the list, around a sort by the mapped keys |
//! | `optMap`, `optFlatMap` | a conditional around a comprehension that binds one variable |
//! | `cel.bind` | a comprehension that binds one variable |
//!
//! Every node that a macro creates has the position of the call's parenthesis.

use super::Syntax;
use super::builder::Builder;
use crate::ast::{Comprehension, Constant, MapEntry, Name, NodeId, NodeKind, StructField};

/// Name of the accumulator, which no identifier can have.
const ACCUMULATOR: &str = "@result";
/// Name of the accumulator in earlier versions of the language; still refused as a variable.
const OLD_ACCUMULATOR: &str = "__result__";
/// Iteration variable of a comprehension that never iterates.
const UNUSED: &str = "#unused";
/// Name of the list that `sortBy` sorts.
const SORTED: &str = "@__sortBy_input__";
/// Function that adds an entry to the accumulated map.
const MAP_INSERT: &str = "cel.@mapInsert";

/// The offset and text of an error in a macro's arguments.
type MacroError = (u32, String);

impl Builder {
    /// Expands a macro call; `None` if the call is not a macro.
    pub(super) fn expand(
        &mut self,
        offset: u32,
        function: &str,
        target: Option<NodeId>,
        args: &[NodeId],
    ) -> Option<Result<NodeId, MacroError>> {
        let mut expansion = Expansion { builder: self, offset };
        let Syntax { two_variables: two, optionals, sort_by, bindings } = expansion.builder.syntax;
        Some(match (function, target, args.len()) {
            ("has", None, 1) => expansion.has(args[0]),
            ("all" | "exists" | "exists_one", Some(range), 2) => {
                expansion.variable(args[0], "argument must be a simple name").map(|var| {
                    let parts = expansion.quantifier(function, args[1]);
                    expansion.comprehension(range, var, None, parts)
                })
            }
            ("map", Some(range), 2 | 3) | ("filter", Some(range), 2) => {
                expansion.variable(args[0], "argument is not an identifier").map(|var| {
                    let (filter, value) = match (function, args) {
                        ("filter", args) => (Some(args[1]), args[0]),
                        (_, [_, filter, value]) => (Some(*filter), *value),
                        (_, args) => (None, args[1]),
                    };
                    let parts = expansion.collect_list(filter, value);
                    expansion.comprehension(range, var, None, parts)
                })
            }
            ("all" | "exists" | "exists_one" | "existsOne", Some(range), 3) if two => {
                expansion.two_variables(args).map(|(var, var2)| {
                    let parts = expansion.quantifier(function, args[2]);
                    expansion.comprehension(range, var, Some(var2), parts)
                })
            }
            ("transformList" | "transformMap" | "transformMapEntry", Some(range), 3 | 4) if two => {
                expansion.two_variables(args).map(|(var, var2)| {
                    let (filter, value) = match args {
                        [_, _, filter, value] => (Some(*filter), *value),
                        args => (None, args[2]),
                    };
                    let parts = match function {
                        "transformList" => expansion.collect_list(filter, value),
                        "transformMap" => expansion.collect_map(filter, Some(var.clone()), value),
                        _ => expansion.collect_map(filter, None, value),
                    };
                    expansion.comprehension(range, var, Some(var2), parts)
                })
            }
            ("optMap" | "optFlatMap", Some(target), 2) if optionals => {
                expansion.bind_optional(function, target, args[0], args[1])
            }
            ("sortBy", Some(range), 2) if sort_by => expansion.sort_by(range, args[0], args[1]),
            ("bind", Some(target), 3) if bindings && expansion.is_named(target, "cel") => {
                match expansion.builder.kind(args[0]) {
                    NodeKind::Ident(name) => {
                        let name = name.clone();
                        Ok(expansion.bind(name, args[1], args[2]))
                    }
                    _ => expansion.error(args[0], "cel.bind() variable names must be simple identifiers"),
                }
            }
            _ => return None,
        })
    }
}

/// The variable components of a comprehension.
struct Parts {
    init: NodeId,
    condition: NodeId,
    step: NodeId,
    result: NodeId,
}

struct Expansion<'b> {
    builder: &'b mut Builder,
    offset: u32,
}

impl Expansion<'_> {
    fn push(&mut self, kind: NodeKind) -> NodeId {
        self.builder.push(kind, self.offset)
    }

    fn literal(&mut self, constant: Constant) -> NodeId {
        self.push(NodeKind::Literal(constant))
    }

    fn ident(&mut self, name: &str) -> NodeId {
        self.push(NodeKind::Ident(name.into()))
    }

    fn accumulator(&mut self) -> NodeId {
        self.ident(ACCUMULATOR)
    }

    fn call<const N: usize>(&mut self, function: &str, args: [NodeId; N]) -> NodeId {
        self.push(NodeKind::Call { function: function.into(), target: None, args: args.into() })
    }

    fn member(&mut self, function: &str, target: NodeId) -> NodeId {
        self.push(NodeKind::Call { function: function.into(), target: Some(target), args: [].into() })
    }

    fn list<const N: usize>(&mut self, elements: [NodeId; N]) -> NodeId {
        self.push(NodeKind::List { elements: elements.into(), optional: [].into() })
    }

    fn error<T>(&self, at: NodeId, message: impl Into<String>) -> Result<T, MacroError> {
        Err((self.builder.offset(at), message.into()))
    }

    fn has(&mut self, arg: NodeId) -> Result<NodeId, MacroError> {
        match self.builder.kind(arg) {
            NodeKind::Select { operand, field, .. } => {
                let (operand, field) = (*operand, field.clone());
                Ok(self.push(NodeKind::Select { operand, field, test_only: true }))
            }
            _ => self.error(arg, "invalid argument to has() macro"),
        }
    }

    /// Returns whether a node is exactly this name.
    fn is_named(&self, node: NodeId, name: &str) -> bool {
        matches!(self.builder.kind(node), NodeKind::Ident(other) if &**other == name)
    }

    /// Returns the name of a variable that an argument introduces.
    fn variable(&self, arg: NodeId, not_a_name: &str) -> Result<Name, MacroError> {
        match self.builder.kind(arg) {
            NodeKind::Ident(name) if matches!(&**name, OLD_ACCUMULATOR | ACCUMULATOR) => {
                self.error(arg, "iteration variable overwrites accumulator variable")
            }
            NodeKind::Ident(name) => Ok(name.clone()),
            _ => self.error(arg, not_a_name),
        }
    }

    fn two_variables(&self, args: &[NodeId]) -> Result<(Name, Name), MacroError> {
        let not_a_name = "argument must be a simple name";
        let (first, second) = (self.variable(args[0], not_a_name)?, self.variable(args[1], not_a_name)?);
        if first == second {
            return self.error(args[1], format!("duplicate variable name: {first}"));
        }
        Ok((first, second))
    }

    fn comprehension(
        &mut self,
        range: NodeId,
        iter_var: Name,
        iter_var2: Option<Name>,
        parts: Parts,
    ) -> NodeId {
        let Parts { init, condition, step, result } = parts;
        let accu_var = ACCUMULATOR.into();
        self.push(NodeKind::Comprehension(Box::new(Comprehension {
            range,
            iter_var,
            iter_var2,
            accu_var,
            init,
            condition,
            step,
            result,
        })))
    }

    fn quantifier(&mut self, function: &str, predicate: NodeId) -> Parts {
        let accumulator = self.accumulator();
        match function {
            "all" => {
                let init = self.literal(Constant::Bool(true));
                let condition = self.call("@not_strictly_false", [accumulator]);
                let accumulator = self.accumulator();
                let step = self.call("_&&_", [accumulator, predicate]);
                Parts { init, condition, step, result: self.accumulator() }
            }
            "exists" => {
                let init = self.literal(Constant::Bool(false));
                let negated = self.call("!_", [accumulator]);
                let condition = self.call("@not_strictly_false", [negated]);
                let accumulator = self.accumulator();
                let step = self.call("_||_", [accumulator, predicate]);
                Parts { init, condition, step, result: self.accumulator() }
            }
            _ => {
                let init = self.literal(Constant::Int(0));
                let condition = self.literal(Constant::Bool(true));
                let one = self.literal(Constant::Int(1));
                let counted = self.call("_+_", [accumulator, one]);
                let step = self.conditional(Some(predicate), counted);
                let (accumulator, one) = (self.accumulator(), self.literal(Constant::Int(1)));
                Parts { init, condition, step, result: self.call("_==_", [accumulator, one]) }
            }
        }
    }

    /// Builds `filter ? step : accumulator`, or `step` without a filter.
    fn conditional(&mut self, filter: Option<NodeId>, step: NodeId) -> NodeId {
        match filter {
            None => step,
            Some(filter) => {
                let accumulator = self.accumulator();
                self.call("_?_:_", [filter, step, accumulator])
            }
        }
    }

    fn collect_list(&mut self, filter: Option<NodeId>, value: NodeId) -> Parts {
        let init = self.list([]);
        let condition = self.literal(Constant::Bool(true));
        let (accumulator, element) = (self.accumulator(), self.list([value]));
        let step = self.call("_+_", [accumulator, element]);
        let step = self.conditional(filter, step);
        Parts { init, condition, step, result: self.accumulator() }
    }

    /// Collects `value` under the key variable, or the entries of the map `value` if there is no key
    /// variable.
    fn collect_map(&mut self, filter: Option<NodeId>, key: Option<Name>, value: NodeId) -> Parts {
        let init = self.push(NodeKind::Map { entries: [].into() });
        let condition = self.literal(Constant::Bool(true));
        let accumulator = self.accumulator();
        let step = match key {
            Some(key) => {
                let key = self.ident(&key);
                self.call(MAP_INSERT, [accumulator, key, value])
            }
            None => self.call(MAP_INSERT, [accumulator, value]),
        };
        let step = self.conditional(filter, step);
        Parts { init, condition, step, result: self.accumulator() }
    }

    /// Builds `target.hasValue() ? optional.of(value with var = target.value()) : optional.none()`.
    fn bind_optional(
        &mut self,
        function: &str,
        target: NodeId,
        var: NodeId,
        value: NodeId,
    ) -> Result<NodeId, MacroError> {
        let NodeKind::Ident(name) = self.builder.kind(var) else {
            return self.error(var, format!("{function}() variable name must be a simple identifier"));
        };
        let name = name.clone();
        let has_value = self.member("hasValue", target);
        let copy = self.copy(target);
        let init = self.member("value", copy);
        let mut bound = self.bind(name, init, value);
        if function == "optMap" {
            bound = self.call("optional.of", [bound]);
        }
        let none = self.call("optional.none", []);
        Ok(self.call("_?_:_", [has_value, bound, none]))
    }

    /// Builds `result` with a variable `name` of value `init`, as a loop that never runs.
    fn bind(&mut self, name: Name, init: NodeId, result: NodeId) -> NodeId {
        let range = self.list([]);
        let condition = self.literal(Constant::Bool(false));
        let step = self.ident(&name);
        self.push(NodeKind::Comprehension(Box::new(Comprehension {
            range,
            iter_var: UNUSED.into(),
            iter_var2: None,
            accu_var: name,
            init,
            condition,
            step,
            result,
        })))
    }

    /// Builds `input.@sortByAssociatedKeys(input.map(var, key))`, with `input` bound to the list.
    fn sort_by(&mut self, range: NodeId, var: NodeId, key: NodeId) -> Result<NodeId, MacroError> {
        if matches!(
            self.builder.kind(range),
            NodeKind::Literal(_) | NodeKind::Map { .. } | NodeKind::Struct { .. }
        ) {
            let message =
                "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return self.error(range, message);
        }
        let name = self.variable(var, "argument is not an identifier")?;
        let input = self.ident(SORTED);
        let parts = self.collect_list(None, key);
        let keys = self.comprehension(input, name, None, parts);
        let input = self.ident(SORTED);
        let sorted = self.push(NodeKind::Call {
            function: "@sortByAssociatedKeys".into(),
            target: Some(input),
            args: [keys].into(),
        });
        Ok(self.bind(SORTED.into(), range, sorted))
    }

    /// Copies a tree, because each occurrence of a node is checked and planned separately.
    fn copy(&mut self, node: NodeId) -> NodeId {
        if self.builder.is_full() {
            return node;
        }
        let offset = self.builder.offset(node);
        let kind = match self.builder.kind(node).clone() {
            kind @ (NodeKind::Literal(_) | NodeKind::Ident(_)) => kind,
            NodeKind::Select { operand, field, test_only } => {
                NodeKind::Select { operand: self.copy(operand), field, test_only }
            }
            NodeKind::Call { function, target, args } => NodeKind::Call {
                function,
                target: target.map(|target| self.copy(target)),
                args: args.iter().map(|&arg| self.copy(arg)).collect(),
            },
            NodeKind::List { elements, optional } => NodeKind::List {
                elements: elements.iter().map(|&element| self.copy(element)).collect(),
                optional,
            },
            NodeKind::Map { entries } => NodeKind::Map {
                entries: entries
                    .iter()
                    .map(|entry| MapEntry {
                        key: self.copy(entry.key),
                        value: self.copy(entry.value),
                        ..*entry
                    })
                    .collect(),
            },
            NodeKind::Struct { name, fields } => NodeKind::Struct {
                name,
                fields: fields
                    .iter()
                    .map(|field| StructField { value: self.copy(field.value), ..field.clone() })
                    .collect(),
            },
            NodeKind::Comprehension(parts) => {
                let mut parts = *parts;
                for part in [
                    &mut parts.range,
                    &mut parts.init,
                    &mut parts.condition,
                    &mut parts.step,
                    &mut parts.result,
                ] {
                    *part = self.copy(*part);
                }
                NodeKind::Comprehension(Box::new(parts))
            }
        };
        self.builder.push(kind, offset)
    }
}
