//! Planning of a checked expression: names become numbers, functions become pointers, constants are folded.
//!
//! The planner folds list and map literals with constant elements, conversions of constants, `in` with a
//! constant list, and patterns. The reference folds exactly these subexpressions; the costs agree, because a
//! folded subexpression costs nothing at run time. If a folded subexpression fails, planning fails.
//!
//! Macros use their arguments more than once. A node that occurs twice in one scope is planned once.

use std::sync::Arc;

use crate::ast::{CheckedAst, Name, NodeId, NodeKind, Reference};
use crate::environment::Environment;
use crate::error::EvalError;
use crate::evaluation::operators::{self, Order};
use crate::evaluation::plan::{
    Attribute, Base, Charge, Expression, ExpressionId, Field, Fold, FoldVariables, Key, Operation, Plan,
    PlannedCall, PlannedEntry, Qualifier, Slot, Step,
};
use crate::evaluation::steps::Steps;
use crate::evaluation::{dispatch, standard};
use crate::library::{Overload, regex};
use crate::number;
use crate::types::Type;
use crate::value::describe::kind_name;
use crate::value::map::is_key;
use crate::value::{OwnedMap, Text, Value};

type Planned = Result<ExpressionId, EvalError>;

/// Maximum nesting depth of values. Dropping and comparing a value recurse to its depth. A literal nests up
/// to the parser's limit, but a chain of loops can wrap each result in the literal of the next loop.
const VALUE_DEPTH_MAX: u32 = 1000;

/// Plans `checked`, which must have been checked against `environment`.
pub fn plan(checked: &CheckedAst, environment: &Environment) -> Result<Plan, EvalError> {
    let mut planner = Planner {
        checked,
        environment,
        expressions: Vec::new(),
        variables: Vec::new(),
        bindings: Vec::new(),
        scope: 0,
        scopes: 0,
        depths: Vec::new(),
        slot_depths: Vec::new(),
        planned: vec![None; checked.ast.nodes.len()],
    };
    let root = planner.plan(checked.ast.root)?;
    if planner.depths.iter().any(|depth| *depth > VALUE_DEPTH_MAX) {
        return Err(EvalError::new(format!("value nesting exceeds limit: {VALUE_DEPTH_MAX}")));
    }
    let slots = planner.slot_depths.len() as u32;
    Ok(Plan { expressions: planner.expressions, root, variables: planner.variables, slots })
}

struct Planner<'a> {
    checked: &'a CheckedAst,
    environment: &'a Environment,
    expressions: Vec<Expression>,
    variables: Vec<Name>,
    /// Variables of the loops around the current node, the innermost last.
    bindings: Vec<(Name, Slot)>,
    /// Identifier of the current `bindings`; 0 outside of loops.
    scope: u32,
    /// Number of scopes so far.
    scopes: u32,
    /// Bounds of the nesting depth of the values of `expressions`, not counting the depth of the host's data.
    depths: Vec<u32>,
    /// Bounds of the nesting depth of the loop variables.
    slot_depths: Vec<u32>,
    /// For nodes that are already planned: their scope and expression.
    planned: Vec<Option<(u32, ExpressionId)>>,
}

impl Planner<'_> {
    fn plan(&mut self, id: NodeId) -> Planned {
        if let Some((scope, planned)) = self.planned[id.index()]
            && scope == self.scope
        {
            return Ok(planned);
        }
        let planned = self.plan_node(id)?;
        self.planned[id.index()] = Some((self.scope, planned));
        Ok(planned)
    }

    fn plan_all(&mut self, ids: impl IntoIterator<Item = NodeId>) -> Result<Box<[ExpressionId]>, EvalError> {
        ids.into_iter().map(|id| self.plan(id)).collect()
    }

    fn add(&mut self, expression: Expression) -> ExpressionId {
        let depth = self.depth_of(&expression);
        self.expressions.push(expression);
        self.depths.push(depth);
        ExpressionId(self.expressions.len() as u32 - 1)
    }

    /// Returns the maximum nesting depth of an expression's value, from the depths of its operands.
    fn depth_of(&self, expression: &Expression) -> u32 {
        match expression {
            Expression::Constant(value) => value_depth(value),
            Expression::Attribute(attribute) => self.attribute_depth(attribute),
            Expression::Logic { .. } | Expression::Equality { .. } | Expression::Membership { .. } => 0,
            // The sum of two lists nests as deep as the deeper list; other operators create no lists.
            Expression::Call(PlannedCall { operation: Operation::Binary(_), args, .. }) => self.deepest(args),
            Expression::Call(PlannedCall { operation: Operation::Overloads { .. }, args, .. }) => {
                self.deepest(args) + 1
            }
            Expression::Call(_) => 0,
            Expression::List { elements, .. } => self.deepest(elements) + 1,
            Expression::Map { entries } => {
                entries
                    .iter()
                    .map(|entry| self.depth(entry.key).max(self.depth(entry.value)))
                    .max()
                    .unwrap_or(0)
                    + 1
            }
            Expression::Object { fields, .. } => {
                fields.iter().map(|field| self.depth(field.value)).max().unwrap_or(0) + 1
            }
            Expression::Fold(fold) => self.depth(fold.result),
            Expression::OptionalOr { left, right, .. } => self.deepest(&[*left, *right]),
        }
    }

    fn depth(&self, id: ExpressionId) -> u32 {
        self.depths[id.0 as usize]
    }

    fn deepest(&self, ids: &[ExpressionId]) -> u32 {
        ids.iter().map(|id| self.depth(*id)).max().unwrap_or(0)
    }

    fn attribute_depth(&self, attribute: &Attribute) -> u32 {
        let base = match &attribute.base {
            Base::Variable(_) => 0,
            Base::Slot(slot) => self.slot_depths[slot.0 as usize],
            Base::Expression(id) => self.depth(*id),
            Base::Conditional { then, otherwise, .. } => {
                self.attribute_depth(then).max(self.attribute_depth(otherwise))
            }
        };
        base + u32::from(attribute.path.iter().any(|qualifier| qualifier.optional))
    }

    /// Returns the nesting depth of an accumulator after a step.
    fn step_depth(&self, step: &Step) -> u32 {
        match step {
            Step::Append(list) => self.depth(*list),
            Step::Insert(key, value) => self.deepest(&[*key, *value]) + 1,
            Step::InsertAll(map) => self.depth(*map),
            Step::If(_, step) => self.step_depth(step),
            Step::Evaluate(value) => self.depth(*value),
        }
    }

    fn get(&self, id: ExpressionId) -> &Expression {
        &self.expressions[id.0 as usize]
    }

    fn constant(&self, id: ExpressionId) -> Option<&Value<'static>> {
        match self.get(id) {
            Expression::Constant(value) => Some(value),
            _ => None,
        }
    }

    fn constants(&self, ids: &[ExpressionId]) -> Option<Vec<Value<'static>>> {
        ids.iter().map(|id| self.constant(*id).cloned()).collect()
    }

    fn plan_node(&mut self, id: NodeId) -> Planned {
        match self.checked.reference(id) {
            Some(Reference::Constant(_, constant)) => {
                return Ok(self.add(Expression::Constant(constant.into())));
            }
            Some(Reference::Variable(name)) => return self.plan_variable(id, name),
            _ => {}
        }
        let checked = self.checked;
        match checked.ast.kind(id) {
            NodeKind::Literal(constant) => Ok(self.add(Expression::Constant(constant.into()))),
            NodeKind::Ident(name) => self.plan_variable(id, name),
            NodeKind::Select { operand, field, test_only } => {
                let operand = self.plan(*operand)?;
                let key = Key::Constant(Value::String(Text::Shared(field.clone())));
                Ok(self.qualify(operand, Qualifier { key, optional: false, presence: *test_only }))
            }
            NodeKind::Call { function, target, args } => {
                let args: Vec<NodeId> = target.iter().chain(args.iter()).copied().collect();
                self.plan_call(id, function, &args)
            }
            NodeKind::List { elements, optional } => self.plan_list(elements, optional),
            NodeKind::Map { entries } => {
                let mut planned = Vec::with_capacity(entries.len());
                for entry in entries {
                    let (key, value) = (self.plan(entry.key)?, self.plan(entry.value)?);
                    planned.push(PlannedEntry { key, value, optional: entry.optional });
                }
                self.plan_map(planned)
            }
            NodeKind::Struct { name, fields } => {
                let type_name = match checked.reference(id) {
                    Some(Reference::Struct(name)) => name.clone(),
                    _ => name.clone(),
                };
                let mut planned = Vec::with_capacity(fields.len());
                for field in fields {
                    let value = self.plan(field.value)?;
                    planned.push(Field { name: field.name.clone(), value, optional: field.optional });
                }
                Ok(self.add(Expression::Object { type_name, fields: planned.into() }))
            }
            NodeKind::Comprehension(_) => self.plan_fold(id),
        }
    }

    fn plan_variable(&mut self, id: NodeId, name: &Name) -> Planned {
        if matches!(self.checked.type_of(id), Type::Type(_)) {
            // Only names of types have a type as their value at planning time.
            let named = self.environment.named_type(name.trim_start_matches('.'));
            let named =
                named.ok_or_else(|| EvalError::new(format!("reference to undefined type: {name}")))?;
            let value = Value::Type(named.clone());
            return Ok(self.add(Expression::Constant(value)));
        }
        let base = self.resolve(name);
        Ok(self.add(Expression::Attribute(Attribute { base, path: Vec::new() })))
    }

    fn resolve(&mut self, name: &str) -> Base {
        let name = name.trim_start_matches('.');
        if let Some((_, slot)) = self.bindings.iter().rev().find(|(bound, _)| **bound == *name) {
            return Base::Slot(*slot);
        }
        let number = self.variables.iter().position(|known| **known == *name).unwrap_or_else(|| {
            self.variables.push(name.into());
            self.variables.len() - 1
        });
        Base::Variable(number as u32)
    }

    /// Returns the attribute of an expression. If the expression is not an attribute, the result is a new
    /// attribute that starts at its value.
    fn attribute(&self, id: ExpressionId) -> Attribute {
        match self.get(id) {
            Expression::Attribute(attribute) => attribute.clone(),
            _ => Attribute::starting_at(id),
        }
    }

    fn qualify(&mut self, operand: ExpressionId, qualifier: Qualifier) -> ExpressionId {
        let mut attribute = self.attribute(operand);
        attribute.push(qualifier);
        self.add(Expression::Attribute(attribute))
    }

    fn plan_list(&mut self, elements: &[NodeId], optional: &[u32]) -> Planned {
        let elements = self.plan_all(elements.iter().copied())?;
        if optional.is_empty()
            && let Some(values) = self.constants(&elements)
        {
            return Ok(self.add(Expression::Constant(Value::list(values))));
        }
        let optional =
            (0..elements.len()).map(|index| optional.binary_search(&(index as u32)).is_ok()).collect();
        Ok(self.add(Expression::List { elements, optional }))
    }

    fn plan_map(&mut self, entries: Vec<PlannedEntry>) -> Planned {
        let mut folded = OwnedMap::default();
        for entry in &entries {
            match (self.constant(entry.key), self.constant(entry.value)) {
                (Some(key), Some(value)) if !entry.optional => folded.set(key.clone(), value.clone()),
                _ => return Ok(self.add(Expression::Map { entries: entries.into() })),
            }
        }
        // The reference also computes the map here, and fails at a key that it cannot hash.
        if entries.iter().any(|entry| matches!(self.constant(entry.key), Some(Value::Bytes(_)))) {
            return Err(EvalError::unhashable_constant());
        }
        Ok(self.add(Expression::Constant(Value::map(folded))))
    }

    fn overloads(&self, id: NodeId) -> &[Arc<Overload>] {
        match self.checked.reference(id) {
            Some(Reference::Call(overloads)) => overloads,
            _ => &[],
        }
    }

    fn plan_call(&mut self, id: NodeId, function: &str, args: &[NodeId]) -> Planned {
        let args = self.plan_all(args.iter().copied())?;
        match (function, &*args) {
            ("_&&_", &[left, right]) => {
                return Ok(self.add(Expression::Logic { left, right, decisive: false }));
            }
            ("_||_", &[left, right]) => {
                return Ok(self.add(Expression::Logic { left, right, decisive: true }));
            }
            ("_?_:_", &[condition, then, otherwise]) => {
                let then = Box::new(self.attribute(then));
                let otherwise = Box::new(self.attribute(otherwise));
                let base = Base::Conditional { condition, then, otherwise };
                return Ok(self.add(Expression::Attribute(Attribute { base, path: Vec::new() })));
            }
            ("_[_]", &[operand, index]) => return self.plan_index(operand, index, false),
            ("_[?_]" | "_?._", &[operand, index]) => return self.plan_index(operand, index, true),
            ("_==_", &[left, right]) => {
                return Ok(self.add(Expression::Equality { left, right, negated: false }));
            }
            ("_!=_", &[left, right]) => {
                return Ok(self.add(Expression::Equality { left, right, negated: true }));
            }
            ("or", &[left, right]) if self.has_overload(id, "optional_or_optional") => {
                return Ok(self.add(Expression::OptionalOr { left, right, unwrap: false }));
            }
            ("orValue", &[left, right]) if self.has_overload(id, "optional_orValue_value") => {
                return Ok(self.add(Expression::OptionalOr { left, right, unwrap: true }));
            }
            ("@in" | "_in_", &[element, list]) if self.charge(id, function).is_list_search() => {
                if let Some(folded) = self.fold_membership(element, list) {
                    return Ok(folded);
                }
            }
            _ => {}
        }
        let charge = self.charge(id, function);
        let operation = self.operation(id, function, &args)?;
        if standard::is_conversion(function)
            && let Some(values) = self.constants(&args)
        {
            let value = match &operation {
                Operation::Direct(implementation) => {
                    implementation(&crate::library::Call { args: &values, steps: &Steps::unlimited() })?
                }
                Operation::Overloads { function, overloads } => {
                    dispatch::call(function, overloads, &values, &Steps::unlimited())?
                }
                _ => return Err(EvalError::no_such_overload()),
            };
            return Ok(self.add(Expression::Constant(value)));
        }
        Ok(self.add(Expression::Call(PlannedCall { operation, args, charge })))
    }

    fn has_overload(&self, id: NodeId, overload: &str) -> bool {
        self.overloads(id).iter().any(|candidate| candidate.id == overload)
    }

    fn operation(&self, id: NodeId, function: &str, args: &[ExpressionId]) -> Result<Operation, EvalError> {
        Ok(match (function, args.len()) {
            ("_+_", 2) => Operation::Binary(operators::add),
            ("_-_", 2) => Operation::Binary(operators::subtract),
            ("_*_", 2) => Operation::Binary(operators::multiply),
            ("_/_", 2) => Operation::Binary(operators::divide),
            ("_%_", 2) => Operation::Binary(operators::modulo),
            ("_<_", 2) => Operation::Order(Order::Less),
            ("_<=_", 2) => Operation::Order(Order::LessEquals),
            ("_>_", 2) => Operation::Order(Order::Greater),
            ("_>=_", 2) => Operation::Order(Order::GreaterEquals),
            ("-_", 1) => Operation::Unary(operators::negate),
            ("!_", 1) => Operation::Unary(operators::not),
            ("@in" | "_in_", 2) => Operation::In,
            ("@not_strictly_false" | "__not_strictly_false__", 1) => Operation::NotStrictlyFalse,
            ("size", 1) if self.is_standard(id) => Operation::Unary(standard::size),
            ("matches", 2) if self.is_standard(id) => Operation::Matches(match self.constant(args[1]) {
                Some(Value::String(text)) => Some(regex::compile(text)?),
                _ => None,
            }),
            ("find" | "findAll", 2 | 3) => {
                // A malformed pattern is an error of the program.
                if let Some(Value::String(pattern)) = self.constant(args[1]) {
                    regex::cached(pattern, &Steps::unlimited())?;
                }
                self.function(id, function)
            }
            _ => self.function(id, function),
        })
    }

    /// Returns whether the evaluator, not a library, computes the call.
    fn is_standard(&self, id: NodeId) -> bool {
        self.overloads(id).iter().all(|overload| overload.implementation.is_none())
    }

    fn function(&self, id: NodeId, function: &str) -> Operation {
        let standard = standard::implementation(function);
        if let Some(implementation) = standard
            && standard::checks_types_itself(function)
            && self.is_standard(id)
        {
            return Operation::Direct(implementation);
        }
        let computed =
            |overload: &Arc<Overload>| Some((overload.clone(), overload.implementation.or(standard)?));
        let overloads = self.overloads(id).iter().filter_map(computed).collect();
        Operation::Overloads { function: function.into(), overloads }
    }

    fn charge(&self, id: NodeId, function: &str) -> Charge {
        let overloads = self.overloads(id);
        let applies = |overload: &&Arc<Overload>| overloads.len() == 1 || !overload.actual_if_chosen;
        let rule = |overload: &Arc<Overload>| Some((overload.actual?, overload.actual_by_result));
        match overloads.iter().filter(applies).find_map(rule) {
            Some((rule, true)) => return Charge::ResultRule(rule),
            Some((rule, false)) => return Charge::Rule(rule),
            None => {}
        }
        // A call whose overload is chosen at run time costs 1, regardless of the choice.
        let [overload] = overloads else { return Charge::One };
        match overload.id {
            "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string" => {
                Charge::FirstSize
            }
            "in_list" => Charge::SecondElements,
            "add_string" | "add_bytes" => Charge::BothSizes,
            "matches_string" => Charge::Pattern,
            "contains_string" => Charge::Search,
            _ if matches!(function, "_<_" | "_<=_" | "_>_" | "_>=_")
                && matches!(&*overload.params, [Type::String | Type::Bytes, _]) =>
            {
                Charge::SmallerSize
            }
            _ => Charge::One,
        }
    }

    fn plan_index(&mut self, operand: ExpressionId, index: ExpressionId, optional: bool) -> Planned {
        let key = match self.get(index) {
            Expression::Constant(value) if is_key(value) => Key::Constant(value.clone()),
            Expression::Constant(value) => {
                return Err(EvalError::new(format!("invalid qualifier type: {}", kind_name(value))));
            }
            Expression::Attribute(attribute) => Key::Attribute(Box::new(attribute.clone())),
            _ => Key::Expression(index),
        };
        Ok(self.qualify(operand, Qualifier { key, optional, presence: false }))
    }

    /// Folds membership in a constant list of primitives to a lookup in a set. For each number, the set also
    /// has the equal numbers of the other numeric types.
    fn fold_membership(&mut self, element: ExpressionId, list: ExpressionId) -> Option<ExpressionId> {
        let Some(Value::List(list)) = self.constant(list) else { return None };
        if list.is_empty() {
            return Some(self.add(Expression::Constant(Value::Bool(false))));
        }
        let mut set = OwnedMap::default();
        for value in list.iter() {
            let mut put = |value: Option<Value<'static>>| {
                if let Some(value) = value {
                    set.set(value, Value::Null);
                }
            };
            match value {
                Value::Bool(_) | Value::String(_) => put(Some(value)),
                Value::Int(int) => {
                    put(Some(value));
                    put((int as f64 as i128 == i128::from(int)).then_some(Value::Double(int as f64)));
                    put(u64::try_from(int).ok().map(Value::Uint));
                }
                Value::Uint(uint) => {
                    put(Some(value));
                    put((uint as f64 as i128 == i128::from(uint)).then_some(Value::Double(uint as f64)));
                    put(i64::try_from(uint).ok().map(Value::Int));
                }
                Value::Double(double) => {
                    put(Some(value));
                    put(number::double_to_int_exact(double).map(Value::Int));
                    put(number::double_to_uint_exact(double).map(Value::Uint));
                }
                _ => return None,
            }
        }
        Some(self.add(Expression::Membership { element, set: Arc::new(set) }))
    }

    fn plan_fold(&mut self, id: NodeId) -> Planned {
        let checked = self.checked;
        let NodeKind::Comprehension(fold) = checked.ast.kind(id) else {
            return Err(EvalError::no_such_overload());
        };
        let range = self.plan(fold.range)?;
        let init = self.plan(fold.init)?;
        let accumulator = self.slot(self.depth(init));
        let outer = self.scope;
        let depth = self.bindings.len();

        let variables = match &fold.iter_var2 {
            None => {
                let element = self.slot(self.depth(range));
                self.bindings.push((fold.iter_var.clone(), element));
                FoldVariables::One(element)
            }
            Some(second) => {
                let (key, value) = (self.slot(self.depth(range)), self.slot(self.depth(range)));
                self.bindings.extend([(second.clone(), value), (fold.iter_var.clone(), key)]);
                FoldVariables::Two(key, value)
            }
        };
        // The accumulator shadows an element variable of the same name.
        self.bindings.push((fold.accu_var.clone(), accumulator));
        self.enter();
        let condition = self.plan(fold.condition)?;
        let step = self.plan_step(fold.step, &fold.accu_var)?;
        let grown = self.step_depth(&step).max(self.depth(init));
        self.slot_depths[accumulator.0 as usize] = grown;

        self.bindings.truncate(depth);
        self.bindings.push((fold.accu_var.clone(), accumulator));
        self.enter();
        let result = self.plan(fold.result)?;
        self.bindings.truncate(depth);
        self.scope = outer;
        let fold = Fold { range, variables, accumulator, init, condition, step, result };
        Ok(self.add(Expression::Fold(Box::new(fold))))
    }

    /// Allocates a slot for values that nest up to `depth` deep.
    fn slot(&mut self, depth: u32) -> Slot {
        self.slot_depths.push(depth);
        Slot(self.slot_depths.len() as u32 - 1)
    }

    fn enter(&mut self) {
        self.scopes += 1;
        self.scope = self.scopes;
    }

    /// Recognizes the steps that grow the accumulator in place.
    fn plan_step(&mut self, id: NodeId, accumulator: &Name) -> Result<Step, EvalError> {
        let checked = self.checked;
        let is_accumulator =
            |node: &NodeId| matches!(checked.ast.kind(*node), NodeKind::Ident(name) if name == accumulator);
        if let NodeKind::Call { function, target, args } = checked.ast.kind(id) {
            let args: Vec<NodeId> = target
                .iter()
                .filter(|_| &**function != "cel.@mapInsert")
                .chain(args.iter())
                .copied()
                .collect();
            match (&**function, &*args) {
                ("_?_:_", [condition, then, otherwise]) if is_accumulator(otherwise) => {
                    let step = self.plan_step(*then, accumulator)?;
                    if !matches!(step, Step::Evaluate(_)) {
                        return Ok(Step::If(self.plan(*condition)?, Box::new(step)));
                    }
                }
                ("_+_", [left, right])
                    if is_accumulator(left) && matches!(checked.ast.kind(*right), NodeKind::List { .. }) =>
                {
                    return Ok(Step::Append(self.plan(*right)?));
                }
                ("cel.@mapInsert", [map, key, value]) if is_accumulator(map) => {
                    return Ok(Step::Insert(self.plan(*key)?, self.plan(*value)?));
                }
                ("cel.@mapInsert", [map, entries]) if is_accumulator(map) => {
                    return Ok(Step::InsertAll(self.plan(*entries)?));
                }
                _ => {}
            }
        }
        Ok(Step::Evaluate(self.plan(id)?))
    }
}

impl Charge {
    fn is_list_search(self) -> bool {
        matches!(self, Self::SecondElements)
    }
}

/// Returns the nesting depth of a folded value. The recursion is bounded, because the literal was within the
/// parser's limit.
fn value_depth(value: &Value<'_>) -> u32 {
    match value {
        Value::List(list) => list.iter().map(|element| value_depth(&element)).max().unwrap_or(0) + 1,
        Value::Map(map) => {
            map.iter().map(|(key, value)| value_depth(&key).max(value_depth(&value))).max().unwrap_or(0) + 1
        }
        _ => 0,
    }
}
