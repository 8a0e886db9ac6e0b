//! Evaluation of a plan.
//!
//! The evaluator walks the plan recursively. The depth of the recursion is the depth of the expression, which
//! the parser bounds. The evaluator adds up the cost and stops as soon as a limit is exceeded. Errors of the
//! language are results: `&&`, `||`, loops and `orValue` continue after such an error. All other errors end
//! the evaluation at once.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::{EvalError, EvalErrorKind};
use crate::evaluation::activation::{Activation, Limits};
use crate::evaluation::plan::{
    Attribute, Base, Charge, Expression, ExpressionId, Field, Key, Operation, Plan, PlannedCall,
    PlannedEntry, Qualifier, Slot,
};
use crate::evaluation::steps::Steps;
use crate::evaluation::{dispatch, operators, wellknown};
use crate::library::{self, regex};
use crate::number;
use crate::value::describe::{describe, kind_name};
use crate::value::map::is_key;
use crate::value::{Object, OwnedMap, OwnedObject, Value, equality};

/// The result of evaluating an expression.
pub type Outcome<'v> = Result<Value<'v>, EvalError>;

/// Cost of creating a list literal.
const LIST_COST: u64 = 10;
/// Cost of creating a map literal.
const MAP_COST: u64 = 30;
/// Cost of creating an object literal.
const OBJECT_COST: u64 = 40;

/// The state of one evaluation.
pub struct Evaluator<'e, 'v> {
    plan: &'e Plan,
    activation: &'e dyn Activation<'v>,
    limits: &'e Limits<'e>,
    /// Variables of the host that were read, by number.
    variables: SmallVec<[Option<Value<'v>>; 4]>,
    /// Variables of loops, by slot.
    pub(super) slots: SmallVec<[SlotState<'v>; 6]>,
    cost: u64,
    steps: Steps<'e>,
}

/// The content of a slot.
pub enum SlotState<'v> {
    /// The value of an element or of an accumulator.
    Value(Outcome<'v>),
    /// An accumulator that was not read yet, with the expression of its first value.
    Unread(ExpressionId),
    /// A list that grows in place.
    List(Vec<Value<'v>>),
    /// A map that grows in place.
    Map(OwnedMap<'v>),
}

impl<'e, 'v> Evaluator<'e, 'v> {
    pub fn new(plan: &'e Plan, activation: &'e dyn Activation<'v>, limits: &'e Limits<'e>) -> Self {
        let mut variables = SmallVec::new();
        variables.resize(plan.variables.len(), None);
        let slots = (0..plan.slots).map(|_| SlotState::Value(Ok(Value::Null))).collect();
        Self { plan, activation, limits, variables, slots, cost: 0, steps: Steps::new(limits.interrupted) }
    }

    /// Returns the cost so far.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns the counter of the steps.
    pub(super) fn steps(&self) -> &Steps<'e> {
        &self.steps
    }

    pub(super) fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.steps.one()?;
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limits.cost {
            let message = "operation cancelled: actual cost limit exceeded";
            return Err(EvalError { kind: EvalErrorKind::CostLimit, ..EvalError::new(message) });
        }
        Ok(())
    }

    pub fn evaluate(&mut self, id: ExpressionId) -> Outcome<'v> {
        let plan = self.plan;
        match &plan.expressions[id.0 as usize] {
            Expression::Constant(value) => Ok(value.clone()),
            Expression::Attribute(attribute) => self.attribute(attribute),
            Expression::Logic { left, right, decisive } => self.logic(*left, *right, *decisive),
            Expression::Equality { left, right, negated } => self.equality(*left, *right, *negated),
            Expression::Membership { element, set } => {
                let element = self.evaluate(*element)?;
                // The keys have a static lifetime, but the lookup needs the lifetime of the evaluation.
                let set: &OwnedMap<'v> = set;
                Ok(Value::Bool(set.get_exact(&element).is_some()))
            }
            Expression::Call(call) => self.call(call),
            Expression::List { elements, optional } => {
                let list = self.list(elements, optional);
                self.finish(list, LIST_COST)
            }
            Expression::Map { entries } => {
                let map = self.map(entries);
                self.finish(map, MAP_COST)
            }
            Expression::Object { type_name, fields } => {
                let object = self.fields(fields).and_then(|fields| {
                    let fields = OwnedObject { type_name: type_name.clone(), fields, is_lazy: false };
                    wellknown::convert(&fields)
                        .unwrap_or_else(|| Ok(Value::Object(Object::Shared(Arc::new(fields)))))
                });
                self.finish(object, OBJECT_COST)
            }
            Expression::Fold(fold) => self.fold(fold),
            Expression::OptionalOr { left, right, unwrap } => match self.evaluate(*left)? {
                Value::Optional(None) => self.evaluate(*right),
                Value::Optional(Some(value)) if *unwrap => Ok((*value).clone()),
                other => Ok(other),
            },
        }
    }

    /// Charges for a computed result, even if it is an error of the language.
    fn finish(&mut self, result: Outcome<'v>, cost: u64) -> Outcome<'v> {
        if !is_fatal(&result) {
            self.charge(cost)?;
        }
        result
    }

    fn logic(&mut self, left: ExpressionId, right: ExpressionId, decisive: bool) -> Outcome<'v> {
        let mut failure = None;
        for term in [left, right] {
            match self.evaluate(term) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => {
                    failure.get_or_insert_with(EvalError::no_such_overload);
                }
                Err(error) if error.kind == EvalErrorKind::Language => {
                    failure.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        failure.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn equality(&mut self, left: ExpressionId, right: ExpressionId, negated: bool) -> Outcome<'v> {
        let (left, right) = self.pair(left, right)?;
        // `==` of a library's own type costs 1 regardless of its size; `!=` has no such rule.
        let smaller = match (&left, &right) {
            (Ok(Value::Opaque(_)), _) if !negated => 1,
            (Ok(left), Ok(right)) => smaller_size(left, right),
            _ => size_or_one(&left).min(size_or_one(&right)),
        };
        self.charge(smaller.div_ceil(10))?;
        let (left, right) = (left?, right?);
        match equality::compare(&left, &right, &self.steps)? {
            Some(equal) => Ok(Value::Bool(equal != negated)),
            None if negated => Ok(Value::Bool(true)),
            None => Err(EvalError::no_such_overload()),
        }
    }

    /// Evaluates both operands; the right operand is evaluated even if the left operand is an error of the
    /// language.
    fn pair(
        &mut self,
        left: ExpressionId,
        right: ExpressionId,
    ) -> Result<(Outcome<'v>, Outcome<'v>), EvalError> {
        let left = settle(self.evaluate(left))?;
        let right = settle(self.evaluate(right))?;
        Ok((left, right))
    }

    fn call(&mut self, call: &PlannedCall) -> Outcome<'v> {
        match (&call.operation, &*call.args) {
            (Operation::NotStrictlyFalse, &[argument]) => {
                let result = match settle(self.evaluate(argument))? {
                    Ok(Value::Bool(value)) => value,
                    _ => true,
                };
                self.charge(1)?;
                Ok(Value::Bool(result))
            }
            (_, &[argument]) => {
                let argument = settle(self.evaluate(argument))?;
                match argument {
                    Ok(value) => self.charged(call, std::slice::from_ref(&value)),
                    Err(error) => self.charge_failed(call.charge, &[Err(error.clone())], error),
                }
            }
            // A `matches` with a constant pattern is planned as a call with any number of arguments.
            (Operation::Matches(Some(_)), args) => self.call_many(call, args),
            (_, &[left, right]) => {
                let (left, right) = self.pair(left, right)?;
                match (left, right) {
                    (Ok(left), Ok(right)) => self.charged(call, &[left, right]),
                    (left, right) => {
                        let error = left.as_ref().err().or(right.as_ref().err()).cloned();
                        let error = error.unwrap_or_else(EvalError::no_such_overload);
                        self.charge_failed(call.charge, &[left, right], error)
                    }
                }
            }
            (_, args) => self.call_many(call, args),
        }
    }

    /// Evaluates a call of `matches`, a call without arguments, or a call with three or more arguments. The
    /// first argument with an error ends the evaluation of the call. The call is then charged only if the
    /// error comes from the last argument.
    fn call_many(&mut self, call: &PlannedCall, args: &[ExpressionId]) -> Outcome<'v> {
        let mut values: SmallVec<[Value<'v>; 4]> = SmallVec::with_capacity(args.len());
        for (index, arg) in args.iter().enumerate() {
            match settle(self.evaluate(*arg))? {
                Ok(value) => values.push(value),
                Err(error) if index + 1 < args.len() => return Err(error),
                Err(error) => {
                    values.push(Value::Null);
                    self.charge(cost_of(call.charge, &values, &Value::Null))?;
                    return Err(error);
                }
            }
        }
        self.charged(call, &values)
    }

    /// Computes a call and charges it. If the cost depends only on the arguments, it is charged before the
    /// computation, so that a call beyond the budget takes no time.
    #[inline(never)] // keeps the frames of the recursive callers small, which bounds the stack
    fn charged(&mut self, call: &PlannedCall, args: &[Value<'v>]) -> Outcome<'v> {
        match call.charge {
            Charge::ResultRule(_) => {
                count_texts(&self.steps, args)?;
                let result = self.apply(&call.operation, args);
                let cost = cost_of(call.charge, args, result.as_ref().unwrap_or(&Value::Null));
                self.finish(result, cost)
            }
            charge => {
                self.charge(cost_of(charge, args, &Value::Null))?;
                count_texts(&self.steps, args)?;
                self.apply(&call.operation, args)
            }
        }
    }

    fn apply(&mut self, operation: &Operation, args: &[Value<'v>]) -> Outcome<'v> {
        match (operation, args) {
            (Operation::Unary(compute), [argument]) => compute(argument),
            (Operation::Binary(compute), [left, right]) => compute(left, right),
            (Operation::Order(order), [left, right]) => order.apply(left, right),
            (Operation::In, [element, container]) => operators::contains(container, element, &self.steps),
            (Operation::Matches(compiled), [Value::String(text), Value::String(pattern)]) => {
                regex::count(&self.steps, text, pattern)?;
                Ok(Value::Bool(match compiled {
                    Some(compiled) => compiled.is_match(text),
                    None => regex::cached(pattern, &self.steps)?.is_match(text),
                }))
            }
            // The error of a call with a constant pattern has no function name.
            (Operation::Matches(Some(_)), _) | (Operation::Matches(_), [Value::String(_), _]) => {
                Err(EvalError::no_such_overload())
            }
            (Operation::Matches(_), [other, _]) => Err(operators::unsupported(other, "matches")),
            (Operation::Direct(implementation), args) => {
                implementation(&library::Call { args, steps: &self.steps })
            }
            (Operation::Overloads { function, overloads }, args) => {
                dispatch::call(function, overloads, args, &self.steps)
            }
            _ => Err(EvalError::no_such_overload()),
        }
    }

    /// Charges a call that is not computed because some of its arguments are errors. An argument with an
    /// error counts as `null`.
    #[inline(never)] // see `charged`
    fn charge_failed(&mut self, charge: Charge, args: &[Outcome<'v>], error: EvalError) -> Outcome<'v> {
        let args: SmallVec<[Value<'v>; 3]> =
            args.iter().map(|arg| arg.as_ref().map_or(Value::Null, Value::clone)).collect();
        self.charge(cost_of(charge, &args, &Value::Null))?;
        Err(error)
    }

    fn list(&mut self, elements: &[ExpressionId], optional: &[bool]) -> Outcome<'v> {
        let mut values = Vec::with_capacity(elements.len());
        for (element, optional) in elements.iter().zip(optional) {
            let value = self.evaluate(*element)?;
            if !optional {
                values.push(value);
                continue;
            }
            match value {
                Value::Optional(value) => values.extend(value.map(|value| (*value).clone())),
                other => {
                    let other = describe(&other);
                    let message =
                        format!("cannot initialize optional list element from non-optional value {other}");
                    return Err(EvalError::new(message));
                }
            }
        }
        Ok(Value::list(values))
    }

    fn map(&mut self, entries: &[PlannedEntry]) -> Outcome<'v> {
        let mut map = OwnedMap::default();
        for entry in entries {
            let key = self.evaluate(entry.key)?;
            let value = self.evaluate(entry.value)?;
            if matches!(key, Value::Bytes(_)) {
                return Err(EvalError::unhashable());
            }
            if let Some(value) = present(entry.optional, &key, value)? {
                map.set(key, value);
            }
        }
        Ok(Value::map(map))
    }

    fn fields(&mut self, fields: &[Field]) -> Result<Vec<(crate::ast::Name, Value<'v>)>, EvalError> {
        let mut values = Vec::with_capacity(fields.len());
        for field in fields {
            let value = self.evaluate(field.value)?;
            let name = Value::string(field.name.clone());
            if let Some(value) = present(field.optional, &name, value)? {
                values.push((field.name.clone(), value));
            }
        }
        Ok(values)
    }

    fn attribute(&mut self, attribute: &Attribute) -> Outcome<'v> {
        let result = self.resolve(attribute);
        let (conditional, presence) = match &attribute.base {
            Base::Conditional { then, .. } => (true, ends_in_presence(then)),
            _ => (false, ends_in_presence(attribute)),
        };
        match (conditional, presence) {
            (false, false) => self.finish(result, 1),
            (true, true) => {
                self.cost = self.cost.saturating_sub(1);
                result
            }
            _ => result,
        }
    }

    /// Returns the value of an attribute, and charges the steps of its path.
    fn resolve(&mut self, attribute: &Attribute) -> Outcome<'v> {
        let value = match &attribute.base {
            Base::Variable(number) => self.variable(*number)?,
            Base::Slot(slot) => self.read(*slot)?,
            Base::Expression(id) => self.evaluate(*id)?,
            Base::Conditional { condition, then, otherwise } => {
                return match self.evaluate(*condition)? {
                    Value::Bool(true) => self.resolve(then),
                    Value::Bool(false) => self.resolve(otherwise),
                    _ => Err(EvalError::no_such_overload()),
                };
            }
        };
        if attribute.path.is_empty() { Ok(value) } else { self.follow(value, &attribute.path) }
    }

    fn variable(&mut self, number: u32) -> Outcome<'v> {
        let number = number as usize;
        if let Some(value) = &self.variables[number] {
            return Ok(value.clone());
        }
        let name = &self.plan.variables[number];
        let value = self.activation.variable(name);
        let value = value.ok_or_else(|| EvalError::new(format!("no such attribute(s): {name}")))?;
        // Keep only checked values: each use of a value that cannot be read is an error.
        let value = value.checked()?;
        self.variables[number] = Some(value.clone());
        Ok(value)
    }

    /// Returns the value of a loop variable. After an accumulator is read, it can no longer grow in place.
    fn read(&mut self, slot: Slot) -> Outcome<'v> {
        self.start(slot)?;
        let state = &mut self.slots[slot.0 as usize];
        let grown = match state {
            SlotState::Value(value) => return value.clone(),
            SlotState::List(values) => Value::list(std::mem::take(values)),
            SlotState::Map(map) => Value::map(std::mem::take(map)),
            SlotState::Unread(_) => return Err(EvalError::no_such_overload()),
        };
        *state = SlotState::Value(Ok(grown.clone()));
        Ok(grown)
    }

    /// Evaluates the first value of an accumulator that was not read yet.
    pub(super) fn start(&mut self, slot: Slot) -> Result<(), EvalError> {
        let SlotState::Unread(init) = self.slots[slot.0 as usize] else { return Ok(()) };
        let state = match settle(self.evaluate(init))? {
            Ok(Value::List(list)) if list.is_empty() => SlotState::List(Vec::new()),
            Ok(Value::Map(map)) if map.is_empty() => SlotState::Map(OwnedMap::default()),
            value => SlotState::Value(value),
        };
        self.slots[slot.0 as usize] = state;
        Ok(())
    }

    fn follow(&mut self, start: Value<'v>, path: &[Qualifier]) -> Outcome<'v> {
        let mut value = start;
        let mut optional = false;
        if let Value::Optional(inner) = &value {
            let Some(inner) = inner.clone() else { return Ok(Value::Optional(None)) };
            value = (*inner).clone();
            optional = true;
        }
        for qualifier in path {
            optional |= qualifier.optional;
            if !optional {
                let found = settle(self.select(&value, &qualifier.key))?;
                self.charge(1)?;
                let (key, found) = found?;
                value = match found {
                    _ if qualifier.presence => Value::Bool(found.is_some()),
                    Some(found) => found,
                    // The field is not set in the struct literal.
                    None if matches!(&value, Value::Object(Object::Shared(object)) if !object.is_lazy) => {
                        Value::Null
                    }
                    None => return Err(missing(&value, &key)),
                };
                continue;
            }
            let (_, found) = self.select(&value, &qualifier.key)?;
            let Some(found) = found else {
                return Ok(if qualifier.presence { Value::Bool(false) } else { Value::Optional(None) });
            };
            self.charge(1)?;
            if qualifier.presence {
                return Ok(Value::Bool(true));
            }
            value = found;
        }
        Ok(if optional { Value::some(value) } else { value })
    }

    /// Returns the key of one step, and the value under it.
    fn select<'k>(
        &mut self,
        value: &Value<'v>,
        key: &'k Key,
    ) -> Result<(Cow<'k, Value<'v>>, Option<Value<'v>>), EvalError>
    where
        'e: 'k,
    {
        let key = match key {
            Key::Constant(key) => Cow::Borrowed(key as &Value<'v>),
            Key::Attribute(attribute) => Cow::Owned(self.resolve(attribute)?),
            Key::Expression(id) => Cow::Owned(self.evaluate(*id)?),
        };
        if !is_key(&key) {
            return Err(EvalError::new(format!("invalid qualifier type: {}", kind_name(&key))));
        }
        let found = match value {
            Value::Map(map) => map.select(&key),
            Value::List(list) => usize::try_from(list_index(&key)?).ok().and_then(|index| list.get(index)),
            Value::Object(object) => match &*key {
                Value::String(field) => object.get(field)?,
                _ if object.is_lazy() => return Err(EvalError::no_such_overload()),
                _ => None,
            },
            _ => None,
        };
        Ok((key, found.map(Value::checked).transpose()?))
    }
}

/// Separates errors of the language, which are results, from errors that end the evaluation.
pub(super) fn settle<T>(result: Result<T, EvalError>) -> Result<Result<T, EvalError>, EvalError> {
    match result {
        Err(error) if error.kind != EvalErrorKind::Language => Err(error),
        result => Ok(result),
    }
}

fn is_fatal(result: &Outcome<'_>) -> bool {
    matches!(result, Err(error) if error.kind != EvalErrorKind::Language)
}

/// Counts the steps of reading all text arguments. Most functions read all their text arguments.
fn count_texts(steps: &Steps<'_>, args: &[Value<'_>]) -> Result<(), EvalError> {
    args.iter().try_for_each(|arg| match arg {
        Value::String(text) => steps.text(text.len()),
        Value::Bytes(bytes) => steps.text(bytes.len()),
        _ => Ok(()),
    })
}

/// Returns the cost of a call.
fn cost_of(charge: Charge, args: &[Value<'_>], result: &Value<'_>) -> u64 {
    let size = |index: usize| args.get(index).map_or(1, Value::cost_size);
    match charge {
        Charge::One => 1,
        Charge::FirstSize => size(0).div_ceil(10),
        Charge::SecondElements => size(1),
        Charge::SmallerSize => match args {
            [left, right] => smaller_size(left, right).div_ceil(10),
            _ => size(0).min(size(1)).div_ceil(10),
        },
        Charge::BothSizes => size(0).saturating_add(size(1)).div_ceil(10),
        Charge::Search => size(0).div_ceil(10).saturating_mul(size(1).div_ceil(10)),
        Charge::Pattern => size(0).saturating_add(1).div_ceil(10).saturating_mul(size(1).div_ceil(4)),
        Charge::Rule(rule) | Charge::ResultRule(rule) => rule(args, result),
    }
}

/// Returns the smaller of the sizes of two values. The characters of a text are counted only if this text can
/// have the smaller size. The comparison of a long text with a short text costs 1, so the time must be short
/// as well.
fn smaller_size(left: &Value<'_>, right: &Value<'_>) -> u64 {
    let (Value::String(left), Value::String(right)) = (left, right) else {
        return left.cost_size().min(right.cost_size());
    };
    let (shorter, longer) = if left.len() <= right.len() { (left, right) } else { (right, left) };
    let chars = shorter.chars().count();
    // A character has at most four bytes.
    let smaller = if longer.len() / 4 >= chars { chars } else { chars.min(longer.chars().count()) };
    smaller as u64
}

fn size_or_one(value: &Outcome<'_>) -> u64 {
    value.as_ref().map_or(1, Value::cost_size)
}

fn ends_in_presence(attribute: &Attribute) -> bool {
    match &attribute.base {
        Base::Conditional { then, .. } => ends_in_presence(then),
        _ => attribute.path.last().is_some_and(|qualifier| qualifier.presence),
    }
}

/// Returns the value of an entry; `None` for an optional entry without a value.
fn present<'v>(optional: bool, key: &Value<'v>, value: Value<'v>) -> Result<Option<Value<'v>>, EvalError> {
    match value {
        value if !optional => Ok(Some(value)),
        Value::Optional(value) => Ok(value.map(|value| (*value).clone())),
        other => {
            let (key, other) = (describe(key), describe(&other));
            let message = format!("cannot initialize optional entry '{key}' from non-optional value {other}");
            Err(EvalError::new(message))
        }
    }
}

/// Returns the list index for a key.
fn list_index(key: &Value<'_>) -> Result<i64, EvalError> {
    let index = match key {
        Value::Int(index) => Some(*index),
        Value::Uint(index) => i64::try_from(*index).ok(),
        Value::Double(index) => number::double_to_int_exact(*index),
        _ => return Err(EvalError::new(format!("unsupported index type '{}' in list", key.type_name()))),
    };
    index.ok_or_else(|| EvalError::new(format!("unsupported index value {} in list", describe(key))))
}

fn missing(value: &Value<'_>, key: &Value<'_>) -> EvalError {
    let key = describe(key);
    EvalError::new(match value {
        Value::List(_) => format!("index out of bounds: {key}"),
        _ => format!("no such key: {key}"),
    })
}
