//! Type checking: resolves names, chooses overloads, and gives every node its type.
//!
//! Types are inferred bottom-up. Empty literals and calls of generic functions introduce type variables;
//! `unify` binds them when values meet parameters. A variable that is still free at the end becomes `dyn`. An
//! expression with an error has type [`Type::Error`], which is assignable to every type, so that each mistake
//! is reported once.

mod messages;
mod overload;
mod unify;
mod validate;

use crate::ast::{Ast, CheckedAst, Comprehension, Constant, Name, NodeId, NodeKind, Reference};
use crate::environment::Environment;
use crate::error::{CompileError, Issue};
use crate::types::Type;
use unify::Bindings;

/// Maximum number of components of a type. The type of an expression grows faster than its text only for
/// nested map literals over bound variables (`{a: a}`). A larger type becomes `dyn`.
const TYPE_PARTS_MAX: usize = 4096;

/// Checks a parsed expression.
///
/// # Errors
/// Returns all type errors. If the types are correct, returns an error for each constant that is invalid for
/// its function.
pub fn check(ast: Ast, environment: &Environment) -> Result<CheckedAst, CompileError> {
    let count = ast.nodes.len();
    let mut checker = Checker {
        environment,
        types: vec![None; count],
        references: vec![None; count],
        issues: Vec::new(),
        bindings: Bindings::default(),
        scope: Vec::new(),
        root: ast.root,
        ast,
    };
    checker.node(checker.root);
    let Checker { ast, types, references, mut issues, bindings, .. } = checker;
    let types = types.into_iter().map(|t| t.map_or(Type::Error, |t| bindings.resolve(&t, true))).collect();
    let checked = CheckedAst { ast, types, references };
    if issues.is_empty() {
        issues = validate::validate(&checked, environment);
    }
    if issues.is_empty() { Ok(checked) } else { Err(CompileError::new(checked.ast.source.clone(), issues)) }
}

struct Checker<'e> {
    environment: &'e Environment,
    ast: Ast,
    root: NodeId,
    types: Vec<Option<Type>>,
    references: Vec<Option<Reference>>,
    issues: Vec<Issue>,
    bindings: Bindings,
    /// Variables of the comprehensions around the current node, the innermost last.
    scope: Vec<(Name, Type)>,
}

/// The meaning of an identifier.
struct Named {
    name: Name,
    r#type: Type,
    constant: Option<Constant>,
}

impl Checker<'_> {
    fn report_at(&mut self, offset: u32, message: String) {
        let location = self.ast.source.location(offset);
        self.issues.push(Issue { location, message });
    }

    fn report(&mut self, id: NodeId, message: String) {
        self.report_at(self.ast.node(id).offset, message);
    }

    fn mismatch(&mut self, id: NodeId, expected: &Type, found: &Type) {
        self.report(id, format!("expected type '{expected}' but found '{found}'"));
    }

    fn undeclared(&mut self, id: NodeId, name: &str) {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"));
        self.set(id, Type::Error);
    }

    fn set(&mut self, id: NodeId, r#type: Type) {
        let r#type = if r#type.exceeds(TYPE_PARTS_MAX) { Type::Dyn } else { r#type };
        self.types[id.index()] = Some(r#type);
    }

    /// Returns the type of a checked node.
    fn get(&self, id: NodeId) -> Type {
        self.types[id.index()].clone().unwrap_or(Type::Error)
    }

    fn node(&mut self, id: NodeId) {
        match self.ast.kind(id).clone() {
            NodeKind::Literal(constant) => self.set(id, constant_type(&constant)),
            NodeKind::Ident(name) => match self.lookup(&name) {
                Some(named) => self.resolve_to(id, named),
                None => self.undeclared(id, &name),
            },
            NodeKind::Select { operand, field, test_only } => self.select(id, operand, &field, test_only),
            NodeKind::Call { function, target, args } => self.call(id, &function, target, &args),
            NodeKind::List { elements, optional } => self.list(id, &elements, &optional),
            NodeKind::Map { entries } => self.map(id, &entries),
            NodeKind::Struct { name, fields } => self.struct_literal(id, &name, &fields),
            NodeKind::Comprehension(parts) => self.comprehension(id, &parts),
        }
    }

    /// Returns the variable, type or constant with this name.
    fn lookup(&self, name: &str) -> Option<Named> {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some((name, r#type)) = self.scope.iter().rev().find(|(variable, _)| &**variable == name) {
            return Some(Named { name: name.clone(), r#type: r#type.clone(), constant: None });
        }
        let found = |r#type: Type| Named { name: name.into(), r#type, constant: None };
        if let Some(r#type) = self.environment.variable(name) {
            return Some(found(r#type.clone()));
        }
        if let Some(denoted) = self.environment.named_type(name) {
            let mut bindings = unify::Fresh::default();
            return Some(found(Type::type_of(
                bindings.instantiate(denoted, &mut |param| Type::Param(param.clone())),
            )));
        }
        if self.environment.provider().is_some_and(|provider| provider.has_type(name)) {
            return Some(found(Type::type_of(Type::object(name))));
        }
        if let Some(message) = messages::message(name) {
            return Some(found(Type::type_of(message)));
        }
        let constant = messages::enumeration(name).map(Constant::Int);
        let constant = self.environment.constant(name).cloned().or(constant)?;
        Some(Named { name: name.into(), r#type: constant_type(&constant), constant: Some(constant) })
    }

    /// Replaces a node by an identifier with the full name.
    fn resolve_to(&mut self, id: NodeId, named: Named) {
        let Named { name, r#type, constant } = named;
        self.set(id, r#type);
        self.ast.nodes[id.index()].kind = NodeKind::Ident(name.clone());
        self.references[id.index()] = Some(match constant {
            Some(constant) => Reference::Constant(name, constant),
            None => Reference::Variable(name),
        });
    }

    /// Returns the dotted name of a chain of selections.
    fn qualified_name(&self, id: NodeId) -> Option<String> {
        match self.ast.kind(id) {
            NodeKind::Ident(name) => Some(name.to_string()),
            NodeKind::Select { operand, field, test_only: false } => {
                let mut name = self.qualified_name(*operand)?;
                name.push('.');
                name.push_str(field);
                Some(name)
            }
            _ => None,
        }
    }

    fn select(&mut self, id: NodeId, operand: NodeId, field: &str, test_only: bool) {
        if let Some(named) = self.qualified_name(id).and_then(|name| self.lookup(&name)) {
            return self.resolve_to(id, named);
        }
        let field_type = self.field(id, operand, field, false);
        let r#type = if test_only { Type::Bool } else { self.bindings.resolve(&field_type, false) };
        self.set(id, r#type);
    }

    /// Returns the type of a field of `operand`. Selections of optionals are optional themselves.
    fn field(&mut self, id: NodeId, operand: NodeId, field: &str, optional: bool) -> Type {
        self.node(operand);
        let operand = self.bindings.resolve(&self.get(operand), false);
        let (target, is_optional) = match &operand {
            Type::Optional(value) => ((**value).clone(), true),
            other => (other.clone(), false),
        };
        let field_type = match &target {
            Type::Map(entry) => entry.1.clone(),
            Type::Object(name) => {
                self.object_field(self.ast.node(id).offset, name, field).unwrap_or(Type::Error)
            }
            Type::Param(_) => {
                self.bindings.assign(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Any | Type::Error => Type::Dyn,
            other => {
                self.report(id, format!("type '{other}' does not support field selection"));
                Type::Dyn
            }
        };
        if is_optional || optional { Type::optional(field_type) } else { field_type }
    }

    fn object_field(&mut self, offset: u32, object: &str, field: &str) -> Option<Type> {
        match self.environment.provider().filter(|provider| provider.has_type(object)) {
            None if messages::message(object).is_some() => {
                let found = messages::field(object, field);
                if found.is_none() {
                    self.report_at(offset, format!("undefined field '{field}'"));
                }
                found
            }
            None => {
                self.report_at(offset, format!("unexpected failed resolution of '{object}'"));
                None
            }
            Some(provider) => {
                let found = provider.field_type(object, field);
                if found.is_none() {
                    self.report_at(offset, format!("undefined field '{field}'"));
                }
                found
            }
        }
    }

    fn call(&mut self, id: NodeId, function: &str, target: Option<NodeId>, args: &[NodeId]) {
        if function == "_?._" {
            return self.optional_select(id, args);
        }
        args.iter().for_each(|&arg| self.node(arg));
        let Some(target) = target else {
            let name = function.strip_prefix('.').unwrap_or(function);
            if self.environment.function(name).is_empty() {
                return self.undeclared(id, function);
            }
            if name != function {
                self.rename_call(id, name, args);
            }
            return self.resolve_call(id, name, None, args);
        };
        // `a.b.c()` calls the function `a.b.c` if there is one.
        if let Some(qualified) = self.qualified_name(target) {
            let name = format!("{qualified}.{function}");
            let name = name.strip_prefix('.').unwrap_or(&name);
            if !self.environment.function(name).is_empty() {
                self.rename_call(id, name, args);
                return self.resolve_call(id, name, None, args);
            }
        }
        self.node(target);
        if self.environment.function(function).is_empty() {
            return self.undeclared(id, function);
        }
        self.resolve_call(id, function, Some(target), args);
    }

    fn rename_call(&mut self, id: NodeId, name: &str, args: &[NodeId]) {
        self.ast.nodes[id.index()].kind =
            NodeKind::Call { function: name.into(), target: None, args: args.into() };
    }

    fn optional_select(&mut self, id: NodeId, args: &[NodeId]) {
        let [operand, field] = args else { return self.set(id, Type::Error) };
        let NodeKind::Literal(Constant::String(name)) = self.ast.kind(*field).clone() else {
            return self.set(id, Type::Error);
        };
        let r#type = self.field(id, *operand, &name, true);
        self.set(*field, Type::String);
        self.set(id, self.bindings.resolve(&r#type, false));
        let overloads = self.environment.function("_?._").to_vec();
        self.references[id.index()] = Some(Reference::Call(overloads.into()));
    }

    /// Returns the type in an optional element (`?a`), and reports elements that are not optional.
    fn unwrap_optional(&mut self, value: NodeId) -> Type {
        match self.get(value) {
            Type::Optional(inner) => (*inner).clone(),
            other => {
                if !other.is_dynamic() {
                    self.mismatch(value, &Type::optional(other.clone()), &other);
                }
                other
            }
        }
    }

    /// Returns the common type of the previous elements and the current element. `validate` later refuses
    /// most mixtures of types.
    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        match previous {
            None => current,
            Some(previous) if !self.bindings.assign(&previous, &current) => Type::Dyn,
            Some(previous) if unify::is_equal_or_less_specific(&previous, &current) => previous,
            Some(_) => current,
        }
    }

    fn list(&mut self, id: NodeId, elements: &[NodeId], optional: &[u32]) {
        let mut joined = None;
        for (index, &element) in elements.iter().enumerate() {
            self.node(element);
            let is_optional = optional.binary_search(&(index as u32)).is_ok();
            let r#type = if is_optional { self.unwrap_optional(element) } else { self.get(element) };
            joined = Some(self.join(joined, r#type));
        }
        let element = joined.unwrap_or_else(|| self.bindings.variable());
        self.set(id, Type::list(element));
    }

    fn map(&mut self, id: NodeId, entries: &[crate::ast::MapEntry]) {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            self.node(entry.key);
            keys = Some(self.join(keys, self.get(entry.key)));
            self.node(entry.value);
            let value =
                if entry.optional { self.unwrap_optional(entry.value) } else { self.get(entry.value) };
            values = Some(self.join(values, value));
        }
        let key = keys.unwrap_or_else(|| self.bindings.variable());
        let value = values.unwrap_or_else(|| self.bindings.variable());
        self.set(id, Type::map(key, value));
    }

    fn struct_literal(&mut self, id: NodeId, name: &str, fields: &[crate::ast::StructField]) {
        let Some(named) = self.lookup(name) else { return self.undeclared(id, name) };
        let mut type_name = named.name.clone();
        let mut result = Type::Error;
        match &named.r#type {
            Type::Type(Some(of)) => match &**of {
                Type::Object(object) => {
                    type_name = object.clone();
                    result = (**of).clone();
                }
                other => match other.message_name() {
                    Some(message) => {
                        type_name = message.into();
                        result = other.clone();
                    }
                    None => self.report(id, format!("'{}' is not a message type", other.runtime_name())),
                },
            },
            Type::Error => {}
            other => {
                let declared = other.to_string();
                self.report(id, format!("'{declared}' is not a type"));
            }
        }
        if let NodeKind::Struct { name, .. } = &mut self.ast.nodes[id.index()].kind {
            *name = named.name.clone();
        }
        self.references[id.index()] = Some(Reference::Struct(named.name));
        self.set(id, result);
        for field in fields {
            self.node(field.value);
            let declared = self.object_field(field.offset, &type_name, &field.name).unwrap_or(Type::Error);
            let value =
                if field.optional { self.unwrap_optional(field.value) } else { self.get(field.value) };
            if !self.bindings.assign(&declared, &value) {
                let message = format!(
                    "expected type of field '{}' is '{declared}' but provided type is '{value}'",
                    field.name
                );
                self.report_at(field.offset, message);
            }
        }
    }

    fn comprehension(&mut self, id: NodeId, parts: &Comprehension) {
        self.node(parts.range);
        self.node(parts.init);
        let range = self.bindings.resolve(&self.get(parts.range), false);
        let accumulator = self.get(parts.init);
        let (first, second) = match &range {
            Type::List(element) if parts.iter_var2.is_some() => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Error),
            Type::Map(entry) => (entry.0.clone(), entry.1.clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.bindings.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(parts.range, message);
                (Type::Error, Type::Error)
            }
        };
        let outside = self.scope.len();
        self.scope.push((parts.accu_var.clone(), accumulator.clone()));
        self.scope.push((parts.iter_var.clone(), first));
        if let Some(name) = &parts.iter_var2 {
            self.scope.push((name.clone(), second));
        }
        for (part, expected) in [(parts.condition, Type::Bool), (parts.step, accumulator)] {
            self.node(part);
            let found = self.get(part);
            if !self.bindings.assign(&expected, &found) {
                self.mismatch(part, &expected, &found);
            }
        }
        self.scope.truncate(outside + 1);
        self.node(parts.result);
        self.scope.truncate(outside);
        self.set(id, self.bindings.resolve(&self.get(parts.result), false));
    }
}

/// Returns the type of a constant.
fn constant_type(constant: &Constant) -> Type {
    match constant {
        Constant::Null => Type::Null,
        Constant::Bool(_) => Type::Bool,
        Constant::Int(_) => Type::Int,
        Constant::Uint(_) => Type::Uint,
        Constant::Double(_) => Type::Double,
        Constant::String(_) => Type::String,
        Constant::Bytes(_) => Type::Bytes,
    }
}

#[cfg(test)]
#[path = "../checker_test.rs"]
mod tests;
