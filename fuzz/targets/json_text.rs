//! JSON text: a parsed document can be written, and reading and writing it again changes neither the value
//! nor the text.

use values::json::{Value, parse, parse_reporting_duplicates, write_pretty};

use super::text;

/// Maximum number of duplicate members reported for one document.
const REPORTED_MAX: usize = 100;

/// Parses a document, writes it and parses it again: the value must stay the same. The text must stay the
/// same from the first writing on, compact or indented.
pub fn json_text(data: &[u8]) {
    let Ok(value) = parse(data) else {
        assert!(parse_reporting_duplicates(data).is_err(), "the two readers disagree");
        return;
    };
    let (same, duplicates) = parse_reporting_duplicates(data).expect("the two readers agree");
    assert_eq!(same, value);
    assert!(duplicates.len() <= REPORTED_MAX);

    let written = text(&value);
    let again = parse(&written).expect("what was written can be read");
    assert!(is_same(&value, &again), "{value:?} became {again:?}");
    assert_eq!(text(&again), written, "the written form is not stable");
    let mut pretty = Vec::new();
    write_pretty(&value, &mut pretty);
    assert_eq!(parse(&pretty).expect("what was indented can be read"), again);
}

/// Compares values, with numbers by value: a whole double is written without a fraction and read as an
/// integer.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Float(a), Value::Int(b)) => *a == *b as f64,
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().zip(b.iter()).all(|((a_name, a), (b_name, b))| a_name == b_name && is_same(a, b))
        }
        (a, b) => a == b,
    }
}
