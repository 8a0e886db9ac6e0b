//! Choice of the overloads that match a call.

use super::Checker;
use super::unify::Fresh;
use crate::ast::{NodeId, Reference};
use crate::types::Type;

impl Checker<'_> {
    /// Resolves a call whose arguments and target are checked. All matching overloads remain candidates,
    /// because `dyn` arguments leave the choice to run time. The type of the call is the result type of the
    /// candidates, or `dyn` if their result types differ.
    pub(super) fn resolve_call(
        &mut self,
        id: NodeId,
        function: &str,
        target: Option<NodeId>,
        args: &[NodeId],
    ) {
        if target.is_none() && matches!(function, "_&&_" | "_||_") {
            return self.resolve_logic(id, function, args);
        }
        let operands: Vec<Type> = target.iter().chain(args).map(|&arg| self.get(arg)).collect();
        let mut result: Option<Type> = None;
        let mut fitting = Vec::new();
        let environment = self.environment;
        for overload in environment.function(function) {
            if overload.member != target.is_some() || overload.params.len() != operands.len() {
                continue;
            }
            let mut fresh = Fresh::default();
            let bindings = &mut self.bindings;
            let params: Vec<Type> = overload
                .params
                .iter()
                .map(|param| fresh.instantiate(param, &mut |_| bindings.variable()))
                .collect();
            if !self.bindings.assign_all(&operands, &params) {
                continue;
            }
            fitting.push(overload.clone());
            let bindings = &mut self.bindings;
            let returned = fresh.instantiate(&overload.result, &mut |_| bindings.variable());
            let returned = self.bindings.resolve(&returned, false);
            result = Some(match result {
                None => returned,
                Some(known) if known.is_dynamic() || known.is_exactly(&returned) => known,
                Some(_) => Type::Dyn,
            });
        }
        match result {
            Some(result) => {
                self.set(id, result);
                self.references[id.index()] = Some(Reference::Call(fitting.into()));
            }
            None => {
                let operands: Vec<Type> = operands.iter().map(|t| self.bindings.resolve(t, true)).collect();
                let signature = signature(&operands, target.is_some());
                let message = format!("found no matching overload for '{function}' applied to '{signature}'");
                self.report(id, message);
                self.set(id, Type::Error);
            }
        }
    }

    fn resolve_logic(&mut self, id: NodeId, function: &str, args: &[NodeId]) {
        let mut fits = true;
        for &arg in args {
            let found = self.get(arg);
            if !self.bindings.assign(&found, &Type::Bool) {
                self.mismatch(arg, &Type::Bool, &found);
                fits = false;
            }
        }
        self.set(id, if fits { Type::Bool } else { Type::Error });
        if fits {
            self.references[id.index()] = Some(Reference::Call(self.environment.function(function).into()));
        }
    }
}

/// Formats argument types for messages: `(int, string)` or `int.(string)`.
fn signature(operands: &[Type], member: bool) -> String {
    let (target, args) = match operands {
        [target, args @ ..] if member => (format!("{target}."), args),
        args => (String::new(), args),
    };
    let args: Vec<String> = args.iter().map(Type::to_string).collect();
    format!("{target}({})", args.join(", "))
}
