//! Evaluation of a cell on one object.
//!
//! The object is a tree that contains only the parts that the table reads ([`super::reads`]), so evaluation
//! must access only paths that the cell has declared. Evaluation cannot fail: a cell is unset if the object
//! has an unexpected form.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::cell::{Cell, CellStep, Template, TemplatePart};
use super::row::{Output, Row, text_of};
use values::cancellation;
use values::json::Value;

/// The values at a path. Most paths have one value.
pub type Values<'r> = SmallVec<[&'r Value; 4]>;

impl<'r> Row<'r> {
    /// Evaluates `cell` on the object.
    pub fn evaluate(&self, cell: &'r Cell) -> Output<'r> {
        cancellation::step();
        match cell {
            Cell::Text(template) => match template.literal() {
                Some(text) => Output::text(text),
                None => Output::text(fill(template, self.object)),
            },
            Cell::Int(n) => Output::Int(*n),
            Cell::Bool(b) => Output::Bool(*b),
            Cell::Path(path) => match values(self.object, path).first() {
                Some(value) if !value.is_null() => Output::Value(value),
                _ => Output::Unset,
            },
            Cell::Each(path, template) => match values(self.object, path).first() {
                Some(value) if !value.is_null() => Output::text(fill(template, value)),
                _ => Output::Unset,
            },
            Cell::Condition { kind, member } => match self.condition(kind).and_then(|it| it.get(member)) {
                Some(value) => Output::Value(value),
                None => Output::Unset,
            },
            Cell::Ratio(part, whole) => {
                let number = |path| values(self.object, path).first().and_then(|v| v.as_i64()).unwrap_or(0);
                Output::text(format!("{}/{}", number(part), number(whole)))
            }
            Cell::Sum(cells) => Output::Int(
                cells.iter().fold(0, |sum, cell| sum.saturating_add(self.evaluate(cell).number())),
            ),
            Cell::FirstOf(cells) => {
                cells.iter().map(|cell| self.evaluate(cell)).find(Output::is_set).unwrap_or(Output::Unset)
            }
            Cell::If { given, then, otherwise } => {
                let holds = values(self.object, given).first().is_some_and(|value| is_truthy(value));
                self.evaluate(if holds { then } else { otherwise })
            }
            Cell::Call(function, arguments) => (function.run)(self, arguments),
        }
    }

    /// Returns the texts of `cell` in a list argument: one for each value of a path, or the single text of
    /// another cell.
    pub fn texts(&self, cell: &'r Cell) -> Vec<Cow<'r, str>> {
        match cell {
            Cell::Path(path) => elements(self.object, path).into_iter().map(text_of).collect(),
            Cell::Each(path, template) => elements(self.object, path)
                .into_iter()
                .map(|value| Cow::Owned(fill(template, value)))
                .collect(),
            other => vec![self.evaluate(other).into_text()],
        }
    }
}

/// Returns whether a value satisfies an `if`: the value is neither null nor false, and neither an empty text nor an
/// empty list.
fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    }
}

/// Returns the values at `path` below `root`, in order.
pub fn values<'r>(root: &'r Value, path: &[CellStep]) -> Values<'r> {
    let mut current = Values::from_elem(root, 1);
    for step in path {
        current = match step {
            CellStep::Member(name) => current.iter().filter_map(|value| value.get(name)).collect(),
            CellStep::Index(at) => current.iter().filter_map(|value| value.as_array()?.get(*at)).collect(),
            CellStep::Each => current.iter().filter_map(|value| value.as_array()).flatten().collect(),
        };
    }
    current
}

/// Returns the values at `path`. If the only value is a list, returns the elements of this list.
fn elements<'r>(root: &'r Value, path: &[CellStep]) -> Values<'r> {
    let found = values(root, path);
    match found.as_slice() {
        [Value::Array(items)] => items.iter().collect(),
        _ => found,
    }
}

/// Returns the text of `template`. The paths of placeholders start at `base`.
pub fn fill(template: &Template, base: &Value) -> String {
    let mut text = String::new();
    fill_parts(&template.0, base, &mut text);
    text
}

/// Appends the parts to `text`. Returns whether all placeholders had values.
fn fill_parts(parts: &[TemplatePart], base: &Value, text: &mut String) -> bool {
    let mut complete = true;
    for part in parts {
        match part {
            TemplatePart::Literal(literal) => text.push_str(literal),
            TemplatePart::Fill { path, lower } => {
                let found = values(base, path);
                let value = found.first().map_or(Cow::Borrowed(""), |value| text_of(value));
                complete &= !value.is_empty();
                if *lower {
                    text.push_str(&value.to_lowercase());
                } else {
                    text.push_str(&value);
                }
            }
            TemplatePart::Optional(parts) => {
                let before = text.len();
                if !fill_parts(parts, base, text) {
                    text.truncate(before);
                }
            }
        }
    }
    complete
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::reads::Reads;
    use super::*;

    #[test]
    fn cell_expressions_evaluate_as_documented() {
        let text =
            br#"{"metadata":{"name":"n","annotations":{"a.b/c":"x"}},"type":"T","data":{"k":"1","l":"2"},
            "spec":{"replicas":3,"on":true,"empty":"","ref":{"kind":"Pod","name":"p"},"half":{"kind":"Pod"},
              "list":[{"name":"a","port":1},{"name":"b","port":2}],"words":["x","y","z","w"]},
            "status":{"ready":1,"conditions":[{"type":"Ready","status":"False","reason":"R"}]}}"#;
        for (cell, want) in [
            ("metadata.name", "n"),
            ("type", "T"),
            ("spec.replicas", "3"),
            ("spec.nothing", ""),
            ("spec.nothing|\"<none>\"", "<none>"),
            ("spec.empty|\"<none>\"", "<none>"),
            ("spec.nothing|type|\"x\"", "T"),
            ("status.ready/spec.replicas", "1/3"),
            ("status.nothing/spec.replicas", "0/3"),
            ("spec.list[1].name", "b"),
            ("spec.ref \"{kind}/{name}\"", "Pod/p"),
            ("spec.ref \"{lower kind}[.{group}]/{name}\"", "pod/p"),
            ("spec.half \"{kind}[/{name}]\"|\"-\"", "Pod"),
            ("spec.nothing \"{kind}/{name}\"|\"-\"", "-"),
            ("\"{spec.ref.name} of {type}\"", "p of T"),
            ("len(data)", "2"),
            ("len(data)+len(spec.words)+len(nothing)", "6"),
            ("join(spec.list[].name,\",\")", "a,b"),
            ("join(spec.list \"{name}={port}\",\"; \")", "a=1; b=2"),
            ("join(spec.words,\",\")", "x,y,z,w"),
            ("top3(spec.words)", "x,y,z + 1 more..."),
            ("top3(spec.list \"{name}={port}\")", "a=1,b=2"),
            ("top3(spec.nothing)", "<unset>"),
            ("condition Ready .reason", "R"),
            ("condition Other .status|\"?\"", "?"),
            ("either(condition Ready .status,\"True\",\"yes\",\"no\")|\"none\"", "no"),
            ("either(condition Other .status,\"True\",\"yes\",\"no\")|\"none\"", "none"),
            ("\"A\" if spec.on else \"B\"", "A"),
            ("\"A\" if spec.empty set else \"B\"", "B"),
            ("\"A\" if spec.list nonempty else \"B\" if type else \"C\"", "A"),
            ("annotation(\"a.b/c\")|\"none\"", "x"),
            ("annotation(\"other\")|\"none\"", "none"),
            ("firstGiven(spec.empty,type)", ""),
            ("firstGiven(annotation(\"other\"),spec.nothing,type)", "T"),
        ] {
            let cell = Cell::parse(cell).unwrap_or_else(|error| panic!("{error}"));
            let mut reads = Reads::default();
            cell.add_reads(&mut reads);
            let object = reads.read(text).unwrap();
            let row = Row { object: &object, now: Timestamp::UNIX_EPOCH };
            assert_eq!(row.evaluate(&cell).into_text(), want, "{cell:?}");
        }
    }
}
