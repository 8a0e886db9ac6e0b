use super::Value;

/// Returns a whole double as an integer, as a reader of its text would, and any other double as it is.
pub fn plain_number(number: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53
    if number.fract() != 0.0 || number.abs() >= 1e19 || (number == 0.0 && number.is_sign_negative()) {
        return Value::Float(number);
    }
    if number.abs() < EXACT {
        return Value::Int(number as i64);
    }
    // Larger ones are written in their shortest digits, filled up with zeros, which may be another integer.
    number.to_string().parse().map_or(Value::Float(number), Value::Int)
}
