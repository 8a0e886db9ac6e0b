//! The planned form of an expression: what the evaluator walks.
//!
//! Names are resolved: variables are numbers, the variables of loops are slots, functions are pointers. Constant parts
//! are computed already. Expressions lie in one vector and refer to each other by [`ExpressionId`].

use std::sync::Arc;

use regex::Regex;

use crate::ast::Name;
use crate::cost::ActualRule;
use crate::error::EvalError;
use crate::evaluation::operators::Order;
use crate::library::{Implementation, Overload};
use crate::value::{OwnedMap, Value};

/// A plan, ready to evaluate.
#[derive(Debug)]
pub struct Plan {
    pub expressions: Vec<Expression>,
    pub root: ExpressionId,
    /// Names of the host's variables that the expression reads, by number.
    pub variables: Vec<Name>,
    /// Number of slots for the variables of loops.
    pub slots: u32,
}

/// The place of an expression in [`Plan::expressions`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ExpressionId(pub u32);

/// The place of a loop's variable in the evaluator's slots.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Slot(pub u32);

/// One step of an evaluation.
#[derive(Debug)]
pub enum Expression {
    /// A literal or a folded part.
    Constant(Value<'static>),
    /// A variable, selection, index or conditional.
    Attribute(Attribute),
    /// `left && right` when `decisive` is false, `left || right` when it is true: a side with that value decides, and
    /// makes up for an error of the other one.
    Logic { left: ExpressionId, right: ExpressionId, decisive: bool },
    /// `left == right`, `left != right`.
    Equality { left: ExpressionId, right: ExpressionId, negated: bool },
    /// `element in [constants]`: the list's elements as keys.
    Membership { element: ExpressionId, set: Arc<OwnedMap<'static>> },
    /// A call that costs something.
    Call(Call),
    /// `[a, ?b]`; `optional` runs parallel to `elements`.
    List { elements: Box<[ExpressionId]>, optional: Box<[bool]> },
    /// `{k: v, ?k: v}`.
    Map { entries: Box<[MapEntry]> },
    /// `Name{field: v, ?field: v}`.
    Object { type_name: Name, fields: Box<[Field]> },
    /// A loop.
    Fold(Box<Fold>),
    /// `left.or(right)`, or `left.orValue(right)` when `unwrap`.
    OptionalOr { left: ExpressionId, right: ExpressionId, unwrap: bool },
}

/// An entry of a map literal.
#[derive(Clone, Copy, Debug)]
pub struct MapEntry {
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

/// A value and the path into it. Each step of the path costs 1, the attribute as a whole 1.
#[derive(Clone, Debug)]
pub struct Attribute {
    pub base: Base,
    pub path: Vec<Qualifier>,
}

/// Where an attribute starts.
#[derive(Clone, Debug)]
pub enum Base {
    /// A variable of the host.
    Variable(u32),
    /// A variable of a loop.
    Slot(Slot),
    /// Any other expression.
    Expression(ExpressionId),
    /// `condition ? then : otherwise`. Branches that are attributes themselves cost nothing beyond their paths.
    Conditional { condition: ExpressionId, then: Box<Attribute>, otherwise: Box<Attribute> },
}

/// One step of a path.
#[derive(Clone, Debug)]
pub struct Qualifier {
    pub key: Key,
    /// The step was written with `?`: the attribute is an optional.
    pub optional: bool,
    /// The step of `has`: whether there is something, instead of what is there.
    pub presence: bool,
}

/// What a step selects by.
#[derive(Clone, Debug)]
pub enum Key {
    /// A field name or constant index.
    Constant(Value<'static>),
    /// An index that is an attribute: only its path costs.
    Attribute(Box<Attribute>),
    /// Any other index.
    Expression(ExpressionId),
}

/// A call of a function or operator.
#[derive(Debug)]
pub struct Call {
    pub operation: Operation,
    /// The receiver, if there is one, and the arguments.
    pub args: Box<[ExpressionId]>,
    pub charge: Charge,
}

/// What a call computes.
#[derive(Clone, Debug)]
pub enum Operation {
    /// `-a`, `!a` and functions of one argument that check its type themselves.
    Unary(for<'v> fn(&Value<'v>) -> Result<Value<'v>, EvalError>),
    /// `a + b` and its kin.
    Binary(for<'v> fn(&Value<'v>, &Value<'v>) -> Result<Value<'v>, EvalError>),
    /// `a < b` and its kin.
    Order(Order),
    /// `a in b`.
    In,
    /// Whether the argument is anything but false, errors included.
    NotStrictlyFalse,
    /// `text.matches(pattern)`; a constant pattern is compiled already.
    Matches(Option<Regex>),
    /// An implementation that checks the types of its arguments itself.
    Direct(Implementation),
    /// The first overload that takes the arguments' types.
    Overloads { function: Name, overloads: Box<[(Arc<Overload>, Implementation)]> },
}

/// What a call costs.
#[derive(Clone, Copy, Debug)]
pub enum Charge {
    /// 1.
    One,
    /// The size of the first argument, as text that is read once.
    FirstSize,
    /// The size of the second argument, each element counted.
    SecondElements,
    /// The smaller size of both arguments, as text that is read once.
    SmallerSize,
    /// The sizes of both arguments together, as text that is copied.
    BothSizes,
    /// The sizes of a text and of what is looked for in it, multiplied.
    Search,
    /// The sizes of a text and of a pattern, multiplied.
    Pattern,
    /// The rule of a library, about the arguments.
    Rule(ActualRule),
    /// The rule of a library that looks at the result.
    ResultRule(ActualRule),
}

/// A loop: `accumulator = init; for element in range { if !condition { break }; accumulator = step }; result`.
#[derive(Debug)]
pub struct Fold {
    pub range: ExpressionId,
    pub variables: FoldVariables,
    pub accumulator: Slot,
    /// Evaluated when the accumulator is first read.
    pub init: ExpressionId,
    pub condition: ExpressionId,
    pub step: Step,
    pub result: ExpressionId,
}

/// The variables a loop sets for each element.
#[derive(Clone, Copy, Debug)]
pub enum FoldVariables {
    /// The element of a list or the key of a map.
    One(Slot),
    /// The index and element of a list, or the key and value of a map.
    Two(Slot, Slot),
}

/// How a loop computes the next accumulator. The forms that the macros use grow it in place.
#[derive(Debug)]
pub enum Step {
    /// `accumulator + list`
    Append(ExpressionId),
    /// `cel.@mapInsert(accumulator, key, value)`
    Insert(ExpressionId, ExpressionId),
    /// `cel.@mapInsert(accumulator, map)`
    InsertAll(ExpressionId),
    /// `condition ? step : accumulator`
    If(ExpressionId, Box<Step>),
    /// Anything else.
    Evaluate(ExpressionId),
}

impl Attribute {
    /// The attribute of an expression that is not one.
    pub fn of(expression: ExpressionId) -> Self {
        Self { base: Base::Expression(expression), path: Vec::new() }
    }

    /// Adds a step; both branches of a conditional get it.
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
