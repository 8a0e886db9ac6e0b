//! Parser of configurations in compact JSON, with member names borrowed from the schema.
//!
//! ```text
//! compact JSON ──Cursor──► members by their types ─► tree of exactly the given members, not validated
//!      └── anything unusual ─► None: the general JSON or YAML parser reads it and reports errors
//! ```
//!
//! A text is unusual if it has white space between tokens, control characters, repeated or undeclared names,
//! escapes in field names, numbers that are not 64-bit integers, or deep nesting.

use smallvec::SmallVec;

use super::typed::OwnershipType;
use types::schema::table::Message;
use values::cancellation;
use values::json::compact::JsonCursor;
use values::json::{Key, Object, Value};

/// Parses `text`, an object of type `message`. The result equals that of
/// [`json::parse`](values::json::parse). Returns `None` if the text is unusual.
pub fn read(message: &Message, text: &[u8]) -> Option<Object> {
    let mut cursor = JsonCursor::new(text)?;
    let object = fields(&mut cursor, message)?;
    cursor.is_at_end().then_some(object)
}

/// Parses the members of a struct.
fn fields(cursor: &mut JsonCursor<'_>, message: &Message) -> Option<Object> {
    let mut members: Vec<(Key, Value)> = Vec::new();
    let mut seen: SmallVec<[u64; 2]> = SmallVec::from_elem(0, message.fields.len().div_ceil(64));
    let mut more = cursor.enter(b'{', b'}')?;
    if more {
        members.reserve(8);
    }
    while more {
        let at = message.position(cursor.field_name()?)?;
        let (word, bit) = (at / 64, 1 << (at % 64));
        if seen[word] & bit != 0 {
            return None;
        }
        seen[word] |= bit;
        let field = &message.fields[at];
        members.push((field.name.clone(), value(cursor, OwnershipType::of_field(field))?));
        more = cursor.more(b'}')?;
    }
    Some(members.into_iter().collect())
}

/// Parses the members of a map.
fn members(cursor: &mut JsonCursor<'_>, of: OwnershipType<'_>) -> Option<Object> {
    let mut members: Vec<(Key, Value)> = Vec::new();
    let mut is_ascending = true;
    let mut more = cursor.enter(b'{', b'}')?;
    while more {
        let name = cursor.name()?;
        is_ascending &= members.last().is_none_or(|(last, _)| **last < *name);
        members.push((Key::Owned(name.into_owned()), value(cursor, of)?));
        more = cursor.more(b'}')?;
    }
    if !is_ascending {
        let mut names: Vec<&str> = members.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return None;
        }
    }
    Some(members.into_iter().collect())
}

fn items(cursor: &mut JsonCursor<'_>, of: OwnershipType<'_>) -> Option<Vec<Value>> {
    let mut items = Vec::new();
    let mut more = cursor.enter(b'[', b']')?;
    while more {
        items.push(value(cursor, of)?);
        more = cursor.more(b']')?;
    }
    Some(items)
}

/// Parses a value. The value need not have the expected type `of`, which is used only to look up the names of
/// members inside the value.
fn value(cursor: &mut JsonCursor<'_>, of: OwnershipType<'_>) -> Option<Value> {
    cancellation::step();
    Some(match cursor.peek() {
        b'"' => Value::String(cursor.string()?.into_owned()),
        b'{' => Value::Object(match of {
            OwnershipType::Struct { message, .. } => fields(cursor, message)?,
            OwnershipType::Map { value, .. } => members(cursor, OwnershipType::of_kind(value))?,
            _ => members(cursor, OwnershipType::Deduced)?,
        }),
        b'[' => Value::Array(match of {
            OwnershipType::List { item, .. } => items(cursor, OwnershipType::of_kind(item))?,
            _ => items(cursor, OwnershipType::Deduced)?,
        }),
        b'n' if cursor.word("null") => Value::Null,
        b't' if cursor.word("true") => Value::Bool(true),
        b'f' if cursor.word("false") => Value::Bool(false),
        _ => Value::Int(cursor.integer()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;
    use types::schema::builtin;
    use types::schema::generate;
    use values::json::{parse_reporting_duplicates, write};
    use values::naming::KUBERNETES;

    /// Parses a text with both parsers and returns whether this parser was sufficient.
    fn check(message: &Message, text: &[u8]) -> bool {
        let Some(object) = read(message, text) else { return false };
        let (value, duplicates) = parse_reporting_duplicates(text).unwrap();
        assert_eq!((Value::Object(object), duplicates), (value, Vec::new()));
        true
    }

    #[test]
    fn generated_objects_read_back_equal() {
        let (mut random, mut made, mut read) = (Random(3), 0, 0);
        for &message in builtin::messages(&KUBERNETES) {
            for at in 0..24 {
                let mut object = generate::object(&mut random, message, 0).into();
                for _ in 0..at % 3 {
                    generate::disturb(&mut random, &mut object);
                }
                let mut text = Vec::new();
                write(&object, &mut text);
                if at % 4 == 3 {
                    // Replaces the byte at a random position.
                    let position = random.index(text.len());
                    text[position] = random.index(256) as u8;
                }
                made += 1;
                read += usize::from(check(message, &text));
            }
        }
        assert!(read > made / 2 && read < made, "{read} of {made}");
    }

    #[test]
    fn the_fast_parser_leaves_unusual_texts_to_the_general_parser() {
        let message = builtin::message(&KUBERNETES, "api.core.v1.ConfigMap").unwrap();
        for (text, is_usual) in [
            (r#"{"metadata":{"name":"a","labels":{"b":"\u003cA\n","a":null}},"immutable":true}"#, true),
            ("{\"data\":{}}\n", true),
            (r#"{"metadata":{"generation":-12,"finalizers":["x",1,{}]}}"#, true),
            ("", false),
            ("[]", false),
            (r#"{"data":{}}}"#, false),
            (r#"{"data":{},}"#, false),
            (r#"{"data":{"a":"1",}}"#, false),
            (r#"{ "data":{}}"#, false),
            (r#"{"data" :{}}"#, false),
            (r#"{"dat\u0061":{}}"#, false),
            (r#"{"other":{}}"#, false),
            (r#"{"data":{},"data":{}}"#, false),
            (r#"{"data":{"b":"1","a":"2","b":"3"}}"#, false),
            (r#"{"data":{"a":1.0}}"#, false),
            (r#"{"data":{"a":-0}}"#, false),
            (r#"{"data":{"a":01}}"#, false),
            (r#"{"data":{"a":9223372036854775808}}"#, false),
            (r#"{"data":{"a":"\x"}}"#, false),
            (r#"{"data":{"a":"\ud800"}}"#, false),
            ("{\"data\":{\"a\":\"\t\"}}", false),
            (r#"{"data":{"a":nul}}"#, false),
        ] {
            assert_eq!(check(message, text.as_bytes()), is_usual, "{text}");
        }
        assert!(read(message, b"{\"data\":{\"a\":\"\xff\"}}").is_none());
        let deep = format!("{}{}", r#"{"data":"#, "[".repeat(100_000));
        assert!(read(message, deep.as_bytes()).is_none());
    }
}
