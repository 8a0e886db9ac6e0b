//! The function `jsonpatch.escapeKey`, for keys in the paths of JSON patches (RFC 6901).

use crate::cost::rules;
use crate::error::EvalError;
use crate::library::{Call, Function, Library, Overload};
use crate::types::Type;
use crate::value::Value;

/// Returns the declarations of the library.
pub fn library() -> Library {
    let escape = Overload::function("string_jsonpatch_escapeKey", [Type::String], Type::String)
        .computed_by(escape_key);
    let escape = escape.costing(rules::reads_text_into_as_much, rules::reads_text_actual);
    Library { functions: vec![Function::new("jsonpatch.escapeKey", [escape])], types: Vec::new() }
}

fn escape_key<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let [Value::String(key)] = call.args else { return Err(EvalError::no_such_overload()) };
    call.steps.text(key.len())?;
    Ok(Value::string(key.replace('~', "~0").replace('/', "~1")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::steps::Steps;

    #[test]
    fn tildes_and_slashes_are_escaped() {
        for (key, want) in [("a/b~c", "a~1b~0c"), ("~1", "~01"), ("é", "é")] {
            let escaped = escape_key(&Call { args: &[Value::string(key)], steps: &Steps::unlimited() });
            assert!(matches!(&escaped, Ok(Value::String(text)) if **text == *want), "{key}: {escaped:?}");
        }
    }
}
