//! Resource quantities: `quantity('1.5Gi')`, arithmetic and order.

use std::sync::Arc;

use quantity::Quantity as Number;

use crate::cost::rules;
use crate::error::EvalError;
use crate::library::opaque::{self, opaque_type};
use crate::library::{Call, Function, Implementation, Library, Overload, Version};
use crate::types::Type;
use crate::value::Value;

const SINCE: Version = Version::new(1, 28);

/// Returns the type `kubernetes.Quantity`.
pub fn quantity_type() -> Type {
    Type::object("kubernetes.Quantity")
}

opaque_type!(Quantity, quantity_type);

/// A quantity, with its original text if the text is kept for output. Equality and order ignore the text.
#[derive(Clone, Debug)]
pub struct Quantity {
    number: Number,
    written: Option<Arc<str>>,
}

impl Quantity {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (number, is_kept) = Number::read(text)?;
        Ok(Self { number, written: is_kept.then(|| text.into()) })
    }

    /// Returns the original text if it is kept, otherwise the canonical text.
    pub fn to_text(&self) -> String {
        self.written.as_deref().map_or_else(|| self.number.to_text(), str::to_owned)
    }
}

impl From<Number> for Quantity {
    fn from(number: Number) -> Self {
        Self { number, written: None }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// Returns the declarations of the library.
pub fn library() -> Library {
    let reading = |name, id, result, implementation: Implementation| {
        let overload = Overload::function(id, [Type::String], result);
        let overload = Overload { since: SINCE, ..overload }.computed_by(implementation);
        Function::new(name, [overload.costing(rules::reads_text, rules::reads_text_actual)])
    };
    let nominal = |overload: Overload, implementation: Implementation| {
        let overload = Overload { since: SINCE, ..overload }.computed_by(implementation);
        overload.costing(rules::nominal, rules::nominal_actual)
    };
    let member = |id, params: &[Type], result, implementation: Implementation| {
        let params: Vec<_> = std::iter::once(quantity_type()).chain(params.iter().cloned()).collect();
        nominal(Overload::member(id, params, result), implementation)
    };
    let quantity = quantity_type;
    let sign = Overload::function("quantity_sign", [quantity()], Type::Int);
    Library {
        functions: vec![
            reading("quantity", "string_to_quantity", quantity(), read),
            reading("isQuantity", "is_quantity_string", Type::Bool, is_quantity),
            Function::new("sign", [nominal(sign, signum)]),
            Function::new(
                "add",
                [
                    member("quantity_add", &[quantity()], quantity(), add),
                    member("quantity_add_int", &[Type::Int], quantity(), add),
                ],
            ),
            Function::new(
                "sub",
                [
                    member("quantity_sub", &[quantity()], quantity(), sub),
                    member("quantity_sub_int", &[Type::Int], quantity(), sub),
                ],
            ),
            Function::new(
                "isLessThan",
                [member("quantity_is_less_than", &[quantity()], Type::Bool, is_less_than)],
            ),
            Function::new(
                "isGreaterThan",
                [member("quantity_is_greater_than", &[quantity()], Type::Bool, is_greater_than)],
            ),
            Function::new("compareTo", [member("quantity_compare_to", &[quantity()], Type::Int, compare_to)]),
            Function::new(
                "asApproximateFloat",
                [member("quantity_get_float", &[], Type::Double, as_approximate_float)],
            ),
            Function::new("asInteger", [member("quantity_get_int", &[], Type::Int, as_integer)]),
            Function::new("isInteger", [member("quantity_is_integer", &[], Type::Bool, is_integer)]),
        ],
        types: vec![(quantity(), SINCE)],
    }
}

fn read<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let [Value::String(text)] = call.args else { return Err(EvalError::no_such_overload()) };
    Quantity::parse(text).map(opaque::value).map_err(EvalError::new)
}

fn is_quantity<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let [Value::String(text)] = call.args else { return Err(EvalError::no_such_overload()) };
    Ok(Value::Bool(Quantity::parse(text).is_ok()))
}

fn receiver(call: &Call<'_, '_>) -> Result<Number, EvalError> {
    opaque::expect(call.args.first().unwrap_or(&Value::Null)).map(|quantity: &Quantity| quantity.number)
}

/// Returns the receiver and the operand, which is a quantity or an integer.
fn operands(call: &Call<'_, '_>) -> Result<(Number, Number), EvalError> {
    let right = match call.args.get(1) {
        Some(Value::Int(int)) => Number::whole(*int),
        other => opaque::expect::<Quantity>(other.unwrap_or(&Value::Null))?.number,
    };
    Ok((receiver(call)?, right))
}

fn signum<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(Value::Int(receiver(call)?.signum()))
}

fn add<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let (left, right) = operands(call)?;
    sum(left, right)
}

fn sub<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let (left, right) = operands(call)?;
    sum(left, right.negated())
}

fn sum<'v>(left: Number, right: Number) -> Result<Value<'v>, EvalError> {
    let sum = left.checked_plus(right).ok_or_else(|| EvalError::new(quantity::RANGE))?;
    Ok(opaque::value(Quantity::from(sum)))
}

fn is_less_than<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let (left, right) = operands(call)?;
    Ok(Value::Bool(left < right))
}

fn is_greater_than<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let (left, right) = operands(call)?;
    Ok(Value::Bool(left > right))
}

fn compare_to<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let (left, right) = operands(call)?;
    Ok(Value::Int(left.cmp(&right) as i64))
}

fn as_approximate_float<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(Value::Double(receiver(call)?.to_f64()))
}

fn as_integer<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let integer = receiver(call)?.to_integer();
    integer.map(Value::Int).ok_or_else(|| EvalError::new("cannot convert value to integer"))
}

fn is_integer<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(Value::Bool(receiver(call)?.to_integer().is_some()))
}
