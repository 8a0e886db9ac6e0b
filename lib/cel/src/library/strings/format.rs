//! Formatting: `'%s has %d'.format([a, b])`. Parses the clauses of a format string, formats values, and
//! checks literal formats.
//!
//! Clauses are `%s %d %f %e %b %x %X %o`, with a precision as in `%.2f`. `%f` and `%e` format numbers as in
//! American English: groups of three digits, `∞`, and exponents as powers of ten.

use go::quote;

use crate::ast::{CheckedAst, NodeId, NodeKind};
use crate::error::EvalError;
use crate::evaluation::conversion;
use crate::evaluation::steps::Steps;
use crate::library::Call;
use crate::library::bounds::{RESULT_BYTES_MAX, result_too_large};
use crate::types::Type;
use crate::value::Value;

/// Maximum depth to which nested lists and maps are formatted.
const DEPTH_MAX: usize = 200;
/// Maximum number of decimals of a double; further decimals are all zero.
const DECIMALS_MAX: usize = 1_100;
/// Number of decimals of a clause without a precision.
const DECIMALS: usize = 6;

/// The format of one argument.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Clause {
    Text,
    Decimal,
    Fixed(Option<usize>),
    Scientific(Option<usize>),
    Binary,
    Hex { upper: bool },
    Octal,
}

/// A receiver of the segments of a format string.
trait Sink {
    /// The error about a refused argument.
    type Fault;

    /// Appends text outside of clauses.
    fn literal(&mut self, text: &str);

    /// Formats the argument with this index.
    fn argument(&mut self, index: usize, clause: Clause) -> Result<(), Self::Fault>;
}

/// The error of a format string.
enum Failure<F> {
    /// The format is malformed, or has more clauses than arguments.
    Format(String),
    /// An argument was refused.
    Argument(F),
}

/// Passes the segments of `format` to `sink`. Returns the number of arguments used.
fn interpolate<S: Sink>(format: &str, arg_count: usize, sink: &mut S) -> Result<usize, Failure<S::Fault>> {
    let mut rest = format;
    let mut used = 0;
    while let Some(at) = rest.find('%') {
        sink.literal(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(after) = after.strip_prefix('%') {
            sink.literal("%");
            rest = after;
            continue;
        }
        if used >= arg_count {
            return Err(Failure::Format(format!("index {used} out of range")));
        }
        if after.is_empty() {
            return Err(Failure::Format("unexpected end of string".to_owned()));
        }
        let (clause, after) = parse_clause(after)
            .map_err(|fault| Failure::Format(format!("could not parse formatting clause: {fault}")))?;
        sink.argument(used, clause).map_err(Failure::Argument)?;
        used += 1;
        rest = after;
    }
    sink.literal(rest);
    Ok(used)
}

/// Parses the clause at the start of `text`. Returns the clause and the text after it.
fn parse_clause(text: &str) -> Result<(Clause, &str), String> {
    let (precision, rest) = match text.strip_prefix('.') {
        None => (None, text),
        Some(after) => {
            let prologue = "error while parsing precision: ";
            let (digits, rest) = after.split_at(after.bytes().take_while(u8::is_ascii_digit).count());
            if rest.is_empty() {
                return Err(format!("{prologue}could not find end of precision specifier"));
            }
            let precision = digits.parse::<i64>().map_err(|_| {
                let reason = if digits.is_empty() { "invalid syntax" } else { "value out of range" };
                let number = quote(digits);
                format!("{prologue}error while converting precision to integer: strconv.Atoi: parsing {number}: {reason}")
            })?;
            (Some(usize::try_from(precision).unwrap_or(usize::MAX)), rest)
        }
    };
    let clause = match rest.as_bytes().first() {
        Some(b's') => Clause::Text,
        Some(b'd') => Clause::Decimal,
        Some(b'f') => Clause::Fixed(precision),
        Some(b'e') => Clause::Scientific(precision),
        Some(b'b') => Clause::Binary,
        Some(b'x') => Clause::Hex { upper: false },
        Some(b'X') => Clause::Hex { upper: true },
        Some(b'o') => Clause::Octal,
        // The reference prints the first byte of the character.
        other => {
            let clause = other.map_or(' ', |&byte| char::from(byte));
            return Err(format!("unrecognized formatting clause \"{clause}\""));
        }
    };
    Ok((clause, &rest[1..]))
}

impl Clause {
    /// Formats the error about an argument of a type that the clause does not accept.
    fn refusal(self, given: &str) -> String {
        let takes = match self {
            Self::Text => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, \
                 and timestamps"
            }
            Self::Decimal => "decimal clause can only be used on integers",
            Self::Fixed(_) => "fixed-point clause can only be used on doubles",
            Self::Scientific(_) => "scientific clause can only be used on doubles",
            Self::Binary => "only integers and bools can be formatted as binary",
            Self::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Self::Octal => "octal clause can only be used on integers",
        };
        format!("{takes}, was given {given}")
    }

    /// Returns whether the clause accepts arguments of a checked type; `dyn` is checked at run time.
    fn accepts(self, of: &Type) -> bool {
        let unwrapped;
        let of = match of {
            Type::Wrapper(primitive) => {
                unwrapped = primitive.unwrapped();
                &unwrapped
            }
            of => of,
        };
        let is_integer = matches!(of, Type::Int | Type::Uint);
        *of == Type::Dyn
            || match self {
                Self::Text => matches!(
                    of,
                    Type::List(_)
                        | Type::Map(_)
                        | Type::Int
                        | Type::Uint
                        | Type::Double
                        | Type::Bool
                        | Type::String
                        | Type::Timestamp
                        | Type::Bytes
                        | Type::Duration
                        | Type::Type(_)
                        | Type::Null
                ),
                Self::Decimal | Self::Octal => is_integer,
                // Text may be one of the special numbers NaN, Infinity, -Infinity.
                Self::Fixed(_) | Self::Scientific(_) => matches!(of, Type::Double | Type::String),
                Self::Binary => is_integer || *of == Type::Bool,
                Self::Hex { .. } => is_integer || matches!(of, Type::String | Type::Bytes),
            }
    }
}

/// Checks a call of `format` if the target is a string literal and the argument is a list literal. Returns
/// the node with a problem and the message; `None` for all other calls and for correct calls. `call` is the
/// node of the call.
pub fn check(checked: &CheckedAst, call: NodeId) -> Option<(NodeId, String)> {
    let NodeKind::Call { function, target: Some(target), args } = checked.ast.kind(call) else { return None };
    let ("format", NodeKind::Literal(crate::ast::Constant::String(format)), [list]) =
        (&**function, checked.ast.kind(*target), &**args)
    else {
        return None;
    };
    let NodeKind::List { elements, .. } = checked.ast.kind(*list) else { return None };
    match interpolate(format, elements.len(), &mut Checker { checked, args: elements }) {
        Ok(used) if used < elements.len() => Some((
            call,
            format!("too many arguments supplied to string.format (expected {used}, got {})", elements.len()),
        )),
        Ok(_) => None,
        Err(Failure::Format(message)) => Some((call, message)),
        Err(Failure::Argument((node, message))) => {
            Some((node, format!("error during formatting: {message}")))
        }
    }
}

/// A sink that checks the types of the arguments and writes nothing.
struct Checker<'a> {
    checked: &'a CheckedAst,
    args: &'a [NodeId],
}

impl Sink for Checker<'_> {
    type Fault = (NodeId, String);

    fn literal(&mut self, _: &str) {}

    fn argument(&mut self, index: usize, clause: Clause) -> Result<(), Self::Fault> {
        let mut rest = vec![self.args[index]];
        while let Some(node) = rest.pop() {
            let of = self.checked.type_of(node);
            if !clause.accepts(of) {
                return Err((node, clause.refusal(of.runtime_name())));
            }
            if clause == Clause::Text {
                // The elements of a literal are checked as well. The elements are pushed in reverse order, so
                // that the first element is popped first.
                match self.checked.ast.kind(node) {
                    NodeKind::List { elements, .. } => rest.extend(elements.iter().rev()),
                    NodeKind::Map { entries } => {
                        rest.extend(entries.iter().rev().flat_map(|entry| [entry.value, entry.key]));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Computes `text.format(args)` for a call.
pub(super) fn format<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let [Value::String(format), Value::List(args)] = call.args else {
        return Err(EvalError::no_such_overload());
    };
    let len = args.len();
    call.steps.text(format.len())?;
    let args = &|index| args.get(index).unwrap_or(Value::Null);
    let mut writer = Writer { out: String::new(), args, steps: call.steps };
    match interpolate(format, len, &mut writer) {
        Ok(_) => Ok(Value::string(writer.out)),
        Err(Failure::Format(message)) => Err(EvalError::new(message)),
        Err(Failure::Argument(error)) => Err(error),
    }
}

/// The reason why an argument was not formatted.
enum Refused {
    /// The clause does not accept the argument.
    By(String),
    /// The evaluation was interrupted.
    Interrupted(EvalError),
}

impl From<String> for Refused {
    fn from(fault: String) -> Self {
        Self::By(fault)
    }
}

impl From<EvalError> for Refused {
    fn from(error: EvalError) -> Self {
        Self::Interrupted(error)
    }
}

/// A sink that writes the formatted arguments.
struct Writer<'a, 'v> {
    out: String,
    args: &'a dyn Fn(usize) -> Value<'v>,
    steps: &'a Steps<'a>,
}

impl Sink for Writer<'_, '_> {
    type Fault = EvalError;

    fn literal(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn argument(&mut self, index: usize, clause: Clause) -> Result<(), EvalError> {
        let value = (self.args)(index);
        match &value {
            Value::String(text) => self.steps.text(text.len())?,
            Value::Bytes(bytes) => self.steps.text(bytes.len())?,
            _ => self.steps.one()?,
        }
        let written = match (clause, &value) {
            (Clause::Text, value) => text(value, &mut self.out, 0, self.steps),
            (clause, value) => {
                number(value, clause).map(|written| self.out.push_str(&written)).map_err(Refused::By)
            }
        };
        written.map_err(|fault| match fault {
            Refused::By(fault) => EvalError::new(format!("error during formatting: {fault}")),
            Refused::Interrupted(error) => error,
        })?;
        if self.out.len() > RESULT_BYTES_MAX {
            return Err(result_too_large());
        }
        Ok(())
    }
}

/// Formats a value for a clause other than `%s`.
fn number(value: &Value<'_>, clause: Clause) -> Result<String, String> {
    let refusal = || Err(clause.refusal(&value.type_name()));
    let double = match value {
        Value::Double(double) => Some(*double),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    };
    Ok(match (clause, value) {
        (Clause::Decimal, Value::Int(int)) => int.to_string(),
        (Clause::Decimal, Value::Uint(uint)) => uint.to_string(),
        (Clause::Binary, Value::Bool(bool)) => u8::from(*bool).to_string(),
        (Clause::Binary, Value::Int(int)) => format!("{}{:b}", sign(*int), int.unsigned_abs()),
        (Clause::Binary, Value::Uint(uint)) => format!("{uint:b}"),
        (Clause::Octal, Value::Int(int)) => format!("{}{:o}", sign(*int), int.unsigned_abs()),
        (Clause::Octal, Value::Uint(uint)) => format!("{uint:o}"),
        (Clause::Hex { upper }, value) => {
            let hex = match value {
                Value::Int(int) => format!("{}{:x}", sign(*int), int.unsigned_abs()),
                Value::Uint(uint) => format!("{uint:x}"),
                Value::String(text) => hex(text.as_bytes()),
                Value::Bytes(bytes) => hex(bytes),
                _ => return refusal(),
            };
            if upper { hex.to_ascii_uppercase() } else { hex }
        }
        (Clause::Fixed(precision), _) => match double {
            Some(double) => fixed(double, precision.unwrap_or(DECIMALS)),
            None => return refusal(),
        },
        (Clause::Scientific(precision), _) => match double {
            // The reference uses the precision as a width.
            Some(double) => padded(scientific(double), precision.unwrap_or(DECIMALS)),
            None => return refusal(),
        },
        _ => return refusal(),
    })
}

fn sign(int: i64) -> &'static str {
    if int < 0 { "-" } else { "" }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn not_finite(double: f64) -> Option<&'static str> {
    match double {
        _ if double.is_nan() => Some("NaN"),
        f64::INFINITY => Some("∞"),
        f64::NEG_INFINITY => Some("-∞"),
        _ => None,
    }
}

/// Formats a number with groups of three digits and a fixed number of decimals.
fn fixed(double: f64, decimals: usize) -> String {
    if let Some(text) = not_finite(double) {
        return text.to_owned();
    }
    let zeros = decimals.saturating_sub(DECIMALS_MAX).min(RESULT_BYTES_MAX);
    let digits = format!("{:.*}", decimals.min(DECIMALS_MAX), double.abs());
    let (whole, fraction) =
        digits.split_once('.').map_or((&*digits, None), |(whole, rest)| (whole, Some(rest)));
    // A negative zero has no sign.
    let mut out = String::from(if double < 0.0 { "-" } else { "" });
    for (index, digit) in whole.char_indices() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
        out.extend(std::iter::repeat_n('0', zeros));
    }
    out
}

/// Formats a number as `1.500000×10⁰⁰`.
fn scientific(double: f64) -> String {
    if let Some(text) = not_finite(double) {
        return text.to_owned();
    }
    let minus = if double < 0.0 { "-" } else { "" };
    let written = format!("{:.DECIMALS$e}", double.abs());
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(("", exponent), |digits| ("⁻", digits));
    let superscript = |digit: char| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(digit as usize - '0' as usize);
    let exponent: String = format!("{digits:0>2}").chars().filter_map(superscript).collect();
    format!("{minus}{mantissa}×10{sign}{exponent}")
}

fn padded(text: String, width: usize) -> String {
    let missing = width.saturating_sub(text.chars().count()).min(RESULT_BYTES_MAX);
    " ".repeat(missing) + &text
}

/// Formats a value for the clause `%s`.
fn text(value: &Value<'_>, out: &mut String, depth: usize, steps: &Steps<'_>) -> Result<(), Refused> {
    match value {
        Value::Null => out.push_str("null"),
        Value::Type(of) => out.push_str(of.runtime_name()),
        Value::List(_) | Value::Map(_) => literal(value, out, depth, steps)?,
        Value::Optional(_) | Value::Opaque(_) | Value::Object(_) => {
            return Err(Clause::Text.refusal(&value.type_name()).into());
        }
        value => out.push_str(&converted(value)?),
    }
    Ok(())
}

/// Returns the result of `string(value)`.
fn converted(value: &Value<'_>) -> Result<String, String> {
    let call = Call { args: std::slice::from_ref(value), steps: &Steps::unlimited() };
    match conversion::to_string(&call) {
        Ok(Value::String(text)) => Ok(text.to_string()),
        Ok(_) => Err(Clause::Text.refusal(&value.type_name())),
        Err(error) => Err(format!("could not convert argument {} to string", quote(&error.message))),
    }
}

/// Formats a value inside a list or map, in the notation of an expression.
fn literal(value: &Value<'_>, out: &mut String, depth: usize, steps: &Steps<'_>) -> Result<(), Refused> {
    steps.one()?;
    if depth > DEPTH_MAX || out.len() > RESULT_BYTES_MAX {
        return Err("value is too large".to_owned().into());
    }
    match value {
        Value::String(text) => out.push_str(&quote(text)),
        Value::Bytes(_) => out.push_str(&format!("b{}", quote(&converted(value)?))),
        Value::Timestamp(_) => out.push_str(&format!("timestamp({})", quote(&converted(value)?))),
        Value::Duration(_) => out.push_str(&format!("duration({})", quote(&converted(value)?))),
        Value::Double(double) if double.is_nan() => out.push_str("\"NaN\""),
        Value::Double(double) if double.is_infinite() => {
            out.push_str(if *double > 0.0 { "\"+Inf\"" } else { "\"-Inf\"" });
        }
        Value::Double(double) => out.push_str(&format!("{double:.DECIMALS$}")),
        Value::List(list) => {
            out.push('[');
            for (index, element) in list.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                literal(&element, out, depth + 1, steps)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            let mut entries = Vec::with_capacity(map.len());
            for (key, value) in map.iter() {
                let mut written = String::new();
                match &key {
                    Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_) => {
                        literal(&key, &mut written, depth + 1, steps)?;
                    }
                    key => {
                        let kind = key.type_name();
                        return Err(format!("no formatting function for map key of type {kind}").into());
                    }
                }
                entries.push((written, value));
            }
            entries.sort_by(|left, right| left.0.cmp(&right.0));
            out.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                out.push_str(key);
                out.push(':');
                literal(value, out, depth + 1, steps)?;
            }
            out.push('}');
        }
        Value::Optional(_) | Value::Opaque(_) | Value::Object(_) => {
            return Err(format!("no formatting function for {}", value.type_name()).into());
        }
        value => text(value, out, depth, steps)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(format: &str, args: Vec<Value<'_>>) -> String {
        let args = [Value::string(format), Value::list(args)];
        match super::format(&Call { args: &args, steps: &Steps::unlimited() }) {
            Ok(Value::String(text)) => text.to_string(),
            Ok(other) => panic!("{other:?}"),
            Err(error) => error.message.into_owned(),
        }
    }

    #[test]
    fn values_are_formatted_by_clause() {
        use Value::{Bool, Double, Int, Uint};
        let nested =
            || Value::list(vec![Int(1), Value::string("a\"b"), Value::Null, Double(0.5), Bool(true)]);
        for (format, arg, want) in [
            ("a%%b%s", Value::string("é"), "a%bé"),
            ("%s", nested(), r#"[1, "a\"b", null, 0.500000, true]"#),
            ("%s", Double(f64::INFINITY), "+Inf"),
            ("%d", Uint(7), "7"),
            ("%x", Int(-255), "-ff"),
            ("%X", Value::string("é\n"), "C3A90A"),
            ("%o", Int(8), "10"),
            ("%b", Int(-2), "-10"),
            ("%b", Bool(true), "1"),
            ("%f", Double(1234567.5), "1,234,567.500000"),
            ("%.0f", Double(-999.5), "-1,000"),
            ("%.2f", Double(0.125), "0.12"),
            ("%.1f", Double(-0.0), "0.0"),
            ("%.1f", Double(-0.01), "-0.0"),
            ("%e", Double(-0.0), "0.000000×10⁰⁰"),
            ("%e", Double(-12.5), "-1.250000×10⁰¹"),
            ("%.2f", Value::string("NaN"), "NaN"),
            ("%.2f", Double(f64::NEG_INFINITY), "-∞"),
            ("%e", Double(1e-7), "1.000000×10⁻⁰⁷"),
            ("%.3e", Double(1.5e100), "1.500000×10¹⁰⁰"),
            ("%.3e", Double(f64::INFINITY), "  ∞"),
            (
                "%d",
                Double(1.0),
                "error during formatting: decimal clause can only be used on integers, was given double",
            ),
            ("%s%s", Int(1), "index 1 out of range"),
            ("%", Int(1), "unexpected end of string"),
            ("%é", Int(1), "could not parse formatting clause: unrecognized formatting clause \"Ã\""),
            (
                "%.2",
                Int(1),
                "could not parse formatting clause: error while parsing precision: could not find end of precision \
                 specifier",
            ),
        ] {
            assert_eq!(formatted(format, vec![arg]), want, "{format}");
        }
    }

    #[test]
    fn huge_precisions_stay_bounded() {
        assert_eq!(formatted("%.1200f", vec![Value::Double(1.0)]).len(), 1202);
        let result = formatted("%.9999999999f%.9999999999f", vec![Value::Double(1.0), Value::Double(1.0)]);
        assert_eq!(result, "operation cancelled: result too large");
    }
}
