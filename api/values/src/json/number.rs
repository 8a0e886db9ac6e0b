use super::Value;

/// Converts a double without a fraction to an integer if a parser would read the text of the double as an
/// integer. Returns any other double unchanged.
pub fn plain_number(number: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53
    if number.fract() != 0.0 || number.abs() >= 1e19 || (number == 0.0 && number.is_sign_negative()) {
        return Value::Float(number);
    }
    if number.abs() < EXACT {
        return Value::Int(number as i64);
    }
    // The text of a larger double has the fewest digits that identify the double, followed by zeros. These
    // digits may denote a different integer than the double.
    number.to_string().parse().map_or(Value::Float(number), Value::Int)
}
