//! The planned form of an expression, which the evaluator walks.
//!
//! Names are resolved: variables are numbers, loop variables are slots, functions are pointers. Constant
//! subexpressions are already computed. All expressions are in one vector and refer to each other by
//! [`ExpressionId`].

use std::sync::Arc;

use regex::Regex;

use crate::ast::Name;
use crate::cost::ActualRule;
use crate::error::EvalError;
use crate::evaluation::operators::Order;
use crate::library::{Implementation, Overload};
use crate::value::{OwnedMap, Value};

/// A plan that is ready for evaluation.
#[derive(Debug)]
pub struct Plan {
    pub expressions: Vec<Expression>,
    pub root: ExpressionId,
    /// Names of the host's variables that the expression reads, by number.
    pub variables: Vec<Name>,
    /// Number of slots for loop variables.
    pub slots: u32,
}

/// The index of an expression in [`Plan::expressions`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ExpressionId(pub u32);

/// The index of a loop variable in the evaluator's slots.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Slot(pub u32);

/// A planned expression, one node of the plan.
#[derive(Debug)]
pub enum Expression {
    /// A literal or a folded subexpression.
    Constant(Value<'static>),
    /// A variable, selection, index or conditional.
    Attribute(Attribute),
    /// `left && right` if `decisive` is false, `left || right` if it is true. An operand with the value
    /// `decisive` determines the result, and absorbs an error of the other operand.
    Logic { left: ExpressionId, right: ExpressionId, decisive: bool },
    /// A comparison `left == right`, or `left != right` if `negated`.
    Equality { left: ExpressionId, right: ExpressionId, negated: bool },
    /// `element in [constants]`, with the elements of the list as keys.
    Membership { element: ExpressionId, set: Arc<OwnedMap<'static>> },
    /// A call that has a cost.
    Call(PlannedCall),
    /// A list literal `[a, ?b]`; `optional` is parallel to `elements`.
    List { elements: Box<[ExpressionId]>, optional: Box<[bool]> },
    /// A map literal `{k: v, ?k: v}`.
    Map { entries: Box<[PlannedEntry]> },
    /// A struct literal `Name{field: v, ?field: v}`.
    Object { type_name: Name, fields: Box<[Field]> },
    /// A loop over a list or map.
    Fold(Box<Fold>),
    /// `left.or(right)`, or `left.orValue(right)` if `unwrap`.
    OptionalOr { left: ExpressionId, right: ExpressionId, unwrap: bool },
}

/// An entry of a map literal.
#[derive(Clone, Copy, Debug)]
pub struct PlannedEntry {
    pub key: ExpressionId,
    pub value: ExpressionId,
    pub optional: bool,
}

/// A field of a struct literal.
#[derive(Clone, Debug)]
pub struct Field {
    pub name: Name,
    pub value: ExpressionId,
    pub optional: bool,
}

/// A value and a path into the value. The attribute costs 1, and each step of its path costs 1.
#[derive(Clone, Debug)]
pub struct Attribute {
    pub base: Base,
    pub path: Vec<Qualifier>,
}

/// The start of an attribute.
#[derive(Clone, Debug)]
pub enum Base {
    /// A variable of the host.
    Variable(u32),
    /// A variable that a loop sets.
    Slot(Slot),
    /// Any other kind of expression.
    Expression(ExpressionId),
    /// `condition ? then : otherwise`. A branch that is itself an attribute costs only its path.
    Conditional { condition: ExpressionId, then: Box<Attribute>, otherwise: Box<Attribute> },
}

/// A step of a path.
#[derive(Clone, Debug)]
pub struct Qualifier {
    pub key: Key,
    /// Whether the step was written with `?`, so that the attribute is an optional.
    pub optional: bool,
    /// Whether the step belongs to `has`. The result of such a step is whether the value exists.
    pub presence: bool,
}

/// The key of a step.
#[derive(Clone, Debug)]
pub enum Key {
    /// A field name or a constant index.
    Constant(Value<'static>),
    /// An index that is an attribute; only the steps of its path cost.
    Attribute(Box<Attribute>),
    /// Any other index expression.
    Expression(ExpressionId),
}

/// A call of a function or operator.
#[derive(Debug)]
pub struct PlannedCall {
    pub operation: Operation,
    /// Arguments of the call; the receiver comes first, if there is one.
    pub args: Box<[ExpressionId]>,
    pub charge: Charge,
}

/// The operation of a call.
#[derive(Clone, Debug)]
pub enum Operation {
    /// `-a`, `!a` and functions of one argument that check its type themselves.
    Unary(for<'v> fn(&Value<'v>) -> Result<Value<'v>, EvalError>),
    /// `a + b` and the other arithmetic operators.
    Binary(for<'v> fn(&Value<'v>, &Value<'v>) -> Result<Value<'v>, EvalError>),
    /// `a < b` and the other ordering operators.
    Order(Order),
    /// The membership test `a in b`.
    In,
    /// A test that is true unless the argument is false; an error counts as true.
    NotStrictlyFalse,
    /// `text.matches(pattern)`; a constant pattern is already compiled.
    Matches(Option<Regex>),
    /// An implementation that checks the types of its arguments itself.
    Direct(Implementation),
    /// A choice at run time: the first overload that accepts the types of the arguments.
    Overloads { function: Name, overloads: Box<[(Arc<Overload>, Implementation)]> },
}

/// The rule for the cost of a call.
#[derive(Clone, Copy, Debug)]
pub enum Charge {
    /// The constant cost 1.
    One,
    /// The size of the first argument, as text that is read once.
    FirstSize,
    /// The size of the second argument, at 1 per element.
    SecondElements,
    /// The smaller size of the two arguments, as text that is read once.
    SmallerSize,
    /// The sum of the sizes of both arguments, as text that is copied.
    BothSizes,
    /// The product of the sizes of a text and of the text that is searched in it.
    Search,
    /// The product of the sizes of a text and of a pattern.
    Pattern,
    /// The cost follows a rule of a library. The rule reads only the arguments.
    Rule(ActualRule),
    /// The cost follows a rule of a library. The rule also reads the result.
    ResultRule(ActualRule),
}

/// A loop: `accumulator = init; for element in range { if !condition { break }; accumulator = step };
/// result`.
#[derive(Debug)]
pub struct Fold {
    pub range: ExpressionId,
    pub variables: FoldVariables,
    pub accumulator: Slot,
    /// First value of the accumulator, evaluated when the accumulator is first read.
    pub init: ExpressionId,
    pub condition: ExpressionId,
    pub step: Step,
    pub result: ExpressionId,
}

/// The variables that a loop sets for each element.
#[derive(Clone, Copy, Debug)]
pub enum FoldVariables {
    /// The element of a list, or the key of a map.
    One(Slot),
    /// The index and element of a list, or the key and value of a map.
    Two(Slot, Slot),
}

/// The computation of the next accumulator. The steps that macros use extend the accumulator in place.
#[derive(Debug)]
pub enum Step {
    /// An appended list: `accumulator + list`.
    Append(ExpressionId),
    /// A single inserted entry: `cel.@mapInsert(accumulator, key, value)`.
    Insert(ExpressionId, ExpressionId),
    /// Several inserted entries: `cel.@mapInsert(accumulator, map)`.
    InsertAll(ExpressionId),
    /// A conditional step: `condition ? step : accumulator`.
    If(ExpressionId, Box<Step>),
    /// Any other step expression.
    Evaluate(ExpressionId),
}

impl Attribute {
    /// Creates the attribute of an expression that is not an attribute itself.
    pub fn starting_at(expression: ExpressionId) -> Self {
        Self { base: Base::Expression(expression), path: Vec::new() }
    }

    /// Adds a step. In a conditional, both branches get the step.
    pub fn push(&mut self, qualifier: Qualifier) {
        match &mut self.base {
            Base::Conditional { then, otherwise, .. } => {
                then.push(qualifier.clone());
                otherwise.push(qualifier);
            }
            _ => self.path.push(qualifier),
        }
    }
}
