//! Type variables and assignability.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::ast::Name;
use crate::types::Type;

/// The bindings of type variables. A failed attempt leaves the bindings unchanged.
#[derive(Default)]
pub(super) struct Bindings {
    bound: HashMap<Name, Type>,
    /// Previous bindings of the variables that the current attempt changed, so that the changes can be
    /// undone.
    log: Vec<(Name, Option<Type>)>,
    variables: usize,
}

/// The type variables that replace the parameters of one declaration.
#[derive(Default)]
pub(super) struct Fresh {
    variables: Vec<(Name, Type)>,
}

impl Fresh {
    /// Replaces the type parameters in `declared`. `make` creates the replacement when a parameter occurs for
    /// the first time.
    pub fn instantiate(&mut self, declared: &Type, make: &mut dyn FnMut(&Name) -> Type) -> Type {
        match declared {
            Type::Param(name) => match self.variables.iter().find(|(param, _)| param == name) {
                Some((_, variable)) => variable.clone(),
                None => {
                    let variable = make(name);
                    self.variables.push((name.clone(), variable.clone()));
                    variable
                }
            },
            Type::List(element) => Type::list(self.instantiate(element, make)),
            Type::Map(entry) => {
                let key = self.instantiate(&entry.0, make);
                Type::map(key, self.instantiate(&entry.1, make))
            }
            Type::Optional(value) => Type::optional(self.instantiate(value, make)),
            Type::Type(Some(of)) => Type::type_of(self.instantiate(of, make)),
            other => other.clone(),
        }
    }
}

impl Bindings {
    /// Creates a new type variable.
    pub fn variable(&mut self) -> Type {
        let name = format!("_var{}", self.variables);
        self.variables += 1;
        Type::Param(name.into())
    }

    /// Replaces the bound variables in a type. If `finally` is true, free variables become `dyn`.
    pub fn resolve(&self, r#type: &Type, finally: bool) -> Type {
        match r#type {
            Type::Param(name) => match self.bound.get(name) {
                Some(bound) => self.resolve(bound, finally),
                None if finally => Type::Dyn,
                None => r#type.clone(),
            },
            Type::List(element) => Type::List(self.resolve_part(element, finally)),
            Type::Map(entry) => {
                let (key, value) = (self.resolve(&entry.0, finally), self.resolve(&entry.1, finally));
                Type::map(key, value)
            }
            Type::Optional(value) => Type::Optional(self.resolve_part(value, finally)),
            Type::Type(Some(of)) => Type::Type(Some(self.resolve_part(of, finally))),
            other => other.clone(),
        }
    }

    fn resolve_part(&self, part: &Arc<Type>, finally: bool) -> Arc<Type> {
        Arc::new(self.resolve(part, finally))
    }

    /// Returns whether a value of type `from` can be used where `to` is expected, and binds variables of
    /// both.
    pub fn assign(&mut self, from: &Type, to: &Type) -> bool {
        self.attempt(|bindings| bindings.is_assignable(from, to))
    }

    /// Applies [`Self::assign`] to lists of the same length. If one pair fails, no variable is bound.
    pub fn assign_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        self.attempt(|bindings| from.iter().zip(to).all(|(from, to)| bindings.is_assignable(from, to)))
    }

    fn attempt(&mut self, attempt: impl FnOnce(&mut Self) -> bool) -> bool {
        self.log.clear();
        let fits = attempt(self);
        if !fits {
            while let Some((name, before)) = self.log.pop() {
                match before {
                    Some(before) => self.bound.insert(name, before),
                    None => self.bound.remove(&name),
                };
            }
        }
        fits
    }

    fn bind(&mut self, name: &Name, r#type: Type) {
        let before = self.bound.insert(name.clone(), r#type);
        self.log.push((name.clone(), before));
    }

    fn is_assignable(&mut self, from: &Type, to: &Type) -> bool {
        if let Type::Param(name) = to {
            match self.substitute(from, name) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Param(name) = from {
            return self.substitute(to, name).0;
        }
        let wild = |t: &Type| matches!(t, Type::Dyn | Type::Any | Type::Error);
        if wild(from) || wild(to) {
            return true;
        }
        match (from, to) {
            (Type::Null, other) | (other, Type::Null) => is_nullable(other),
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
                self.is_assignable(a, b)
            }
            (Type::Map(a), Type::Map(b)) => self.is_assignable(&a.0, &b.0) && self.is_assignable(&a.1, &b.1),
            (Type::Type(_), Type::Type(_)) => true,
            (a, b) => a.is_exactly(b),
        }
    }

    /// Binds the variable `name` to `r#type` if possible. Returns whether the variable can have this type,
    /// and whether it was bound before.
    fn substitute(&mut self, r#type: &Type, name: &Name) -> (bool, bool) {
        if matches!(r#type, Type::Param(other) if other == name) {
            return (true, true);
        }
        let variable = Type::Param(name.clone());
        if let Some(bound) = self.bound.get(name).cloned() {
            if r#type.is_exactly(&bound) {
                return (true, true);
            }
            if !self.is_assignable(r#type, &bound) {
                return (false, true);
            }
            let general = if is_equal_or_less_specific(r#type, &bound) { r#type.clone() } else { bound };
            if !self.occurs(&variable, &general) {
                self.bind(name, general);
            }
            return (true, true);
        }
        if self.occurs(&variable, r#type) {
            return (false, false);
        }
        self.bind(name, r#type.clone());
        (true, false)
    }

    /// Returns whether `variable` occurs in `within`. If the variable occurs, its binding would create an
    /// infinite type.
    fn occurs(&self, variable: &Type, within: &Type) -> bool {
        match within {
            Type::Param(name) => {
                variable == within || self.bound.get(name).is_some_and(|bound| self.occurs(variable, bound))
            }
            Type::List(part) | Type::Optional(part) | Type::Type(Some(part)) => self.occurs(variable, part),
            Type::Map(entry) => self.occurs(variable, &entry.0) || self.occurs(variable, &entry.1),
            _ => false,
        }
    }
}

/// Returns whether values of the type may be null.
fn is_nullable(r#type: &Type) -> bool {
    matches!(
        r#type,
        Type::Null
            | Type::Wrapper(_)
            | Type::Optional(_)
            | Type::Opaque(_)
            | Type::Object(_)
            | Type::Duration
            | Type::Timestamp
    )
}

/// Returns whether `a` equals `b` or is more general. The two types must unify.
pub(super) fn is_equal_or_less_specific(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Dyn | Type::Any | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Any | Type::Param(_)) => false,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
            is_equal_or_less_specific(a, b)
        }
        (Type::Map(a), Type::Map(b)) => {
            is_equal_or_less_specific(&a.0, &b.0) && is_equal_or_less_specific(&a.1, &b.1)
        }
        (Type::Type(_), Type::Type(_)) => true,
        (a, b) => a.is_exactly(b),
    }
}
