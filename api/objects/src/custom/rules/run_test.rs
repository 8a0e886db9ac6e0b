//! Tests of rules on objects.

use super::*;
use crate::custom::resource;
use types::schema::decode::decode;
use types::schema::make::ResourceMaker;
use types::schema::table::Scope as ResourceScope;
use values::naming::KUBERNETES;
use values::testing::object;

/// Returns the errors and warnings for the field `v` of a spec, where `schema` is the schema of the field.
fn findings(schema: &str, new: &str, old: Option<&str>) -> String {
    let text = format!(
        r#"{{"type":"object","properties":{{"spec":{{"type":"object","properties":{{"v":{}}}}}}}}}"#,
        schema.replace("{x}", "x-kubernetes-")
    );
    let schema = Schema::read(&json::Value::Object(object(&text)));
    let made = resource::object("Thing", &schema).unwrap();
    let made = ResourceMaker::new("example.com", "v1", "things", ResourceScope::Namespaced, made).unwrap();
    let made = made.make(&KUBERNETES);
    let message = &made.table.message;
    let read = |value: &str| {
        let text = format!(r#"{{"kind":"Thing","apiVersion":"example.com/v1","spec":{{"v":{value}}}}}"#);
        decode(message, text.as_bytes()).unwrap().object
    };
    let rules = Rules::from_schema(&schema).unwrap();
    let Verdict { errors, warnings, .. } = rules.evaluate(message, &read(new), old.map(read).as_ref());
    let errors = errors.iter().map(ToString::to_string);
    errors.chain(warnings.iter().map(|warning| format!("warning {warning}"))).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_violated_rule_reports_its_own_message() {
    let integer = |rule: &str| format!(r#"{{"type":"integer","{{x}}validations":[{rule}]}}"#);
    for (rule, value, want) in [
        (r#"{"rule":"self > 1"}"#, "2", ""),
        (r#"{"rule":"self > 1"}"#, "1", "spec.v: Invalid value: 1: failed rule: self > 1"),
        (r#"{"rule":"self > 1","message":"too small"}"#, "1", "spec.v: Invalid value: 1: too small"),
        (
            r#"{"rule":"self > 1","messageExpression":"string(self) + ' is small'"}"#,
            "1",
            "spec.v: Invalid value: 1: 1 is small",
        ),
        (
            r#"{"rule":"self > 1","message":"m","messageExpression":"' '"}"#,
            "1",
            "spec.v: Invalid value: 1: m",
        ),
        (
            r#"{"rule":"self > 1","reason":"FieldValueRequired"}"#,
            "1",
            "spec.v: Required value: failed rule: self > 1",
        ),
        (r#"{"rule":"self > 1","reason":"FieldValueDuplicate"}"#, "1", "spec.v: Duplicate value: 1"),
        (
            r#"{"rule":"1 / self > 0"}"#,
            "0",
            r#"spec.v: Invalid value: "integer": division by zero evaluating rule: 1 / self > 0"#,
        ),
        (r#"{"rule":"self > oldSelf"}"#, "0", ""),
    ] {
        assert_eq!(findings(&integer(rule), value, None), want, "{rule}");
    }
}

#[test]
fn rules_are_evaluated_at_every_level_of_the_schema() {
    let schema = r#"{"type":"object","{x}validations":[{"rule":"self.a < self.b","fieldPath":".a"}],"properties":{
        "a":{"type":"integer"},"b":{"type":"integer"},
        "x-y":{"type":"string","{x}validations":[{"rule":"self.startsWith('x')"}]},
        "l":{"type":"array","items":{"type":"string","{x}validations":[{"rule":"self.size() < 3"}]}},
        "m":{"type":"object","additionalProperties":{"type":"integer","{x}validations":[{"rule":"self > 0"}]}},
        "s":{"type":"array","{x}list-type":"set","items":{"type":"string"},
            "{x}validations":[{"rule":"self == ['b','a']"}]},
        "t":{"type":"string","format":"date-time","{x}validations":[{"rule":"self.getFullYear() > 2000"}]}}}"#;
    for (value, want) in [
        (r#"{"a":1,"b":2,"x-y":"x","l":["a"],"m":{"k":1},"s":["a","b"],"t":"2024-01-02T03:04:05Z"}"#, ""),
        (r#"{"a":2,"b":1}"#, "spec.v.a: Invalid value: failed rule: self.a < self.b"),
        (r#"{"a":1}"#, r#"spec.v: Invalid value: "object": no such key: b evaluating rule: self.a < self.b"#),
        (
            r#"{"a":1,"b":2,"x-y":"y"}"#,
            r#"spec.v.x-y: Invalid value: "y": failed rule: self.startsWith('x')"#,
        ),
        (
            r#"{"a":1,"b":2,"l":["a","abc"]}"#,
            r#"spec.v.l[1]: Invalid value: "abc": failed rule: self.size() < 3"#,
        ),
        (r#"{"a":1,"b":2,"m":{"k.k":0}}"#, "spec.v.m[k.k]: Invalid value: 0: failed rule: self > 0"),
        (r#"{"a":1,"b":2,"s":["a"]}"#, "spec.v.s: Invalid value: failed rule: self == ['b','a']"),
    ] {
        assert_eq!(findings(schema, value, None), want, "{value}");
    }
}

#[test]
fn old_self_is_the_old_value_at_the_same_path() {
    let schema = r#"{"type":"object","properties":{
        "n":{"type":"integer","{x}validations":[{"rule":"self >= oldSelf"}]},
        "c":{"type":"integer","{x}validations":[{"rule":"self > 5"}]},
        "o":{"type":"integer","{x}validations":[{"rule":"oldSelf.hasValue() || self == 1","optionalOldSelf":true}]},
        "k":{"type":"array","{x}list-type":"map","{x}list-map-keys":["k"],"items":{"type":"object","properties":{
            "k":{"type":"string"},"n":{"type":"integer","{x}validations":[{"rule":"self >= oldSelf"}]}}}}}}"#;
    for (old, new, want) in [
        (r#"{"n":1}"#, r#"{"n":2}"#, ""),
        (r#"{"n":2}"#, r#"{"n":1}"#, "spec.v.n: Invalid value: 1: failed rule: self >= oldSelf"),
        ("{}", r#"{"n":1}"#, ""),
        (r#"{"c":1}"#, r#"{"c":1,"n":1}"#, "warning spec.v.c: Invalid value: 1: failed rule: self > 5"),
        (r#"{"c":1}"#, r#"{"c":2}"#, "spec.v.c: Invalid value: 2: failed rule: self > 5"),
        (r#"{"o":2}"#, r#"{"o":3}"#, ""),
        ("{}", r#"{"o":2}"#, "spec.v.o: Invalid value: 2: failed rule: oldSelf.hasValue() || self == 1"),
        (
            r#"{"k":[{"k":"a","n":1},{"k":"b","n":5}]}"#,
            r#"{"k":[{"k":"b","n":4},{"k":"a","n":2}]}"#,
            "spec.v.k[0].n: Invalid value: 4: failed rule: self >= oldSelf",
        ),
    ] {
        assert_eq!(findings(schema, new, Some(old)), want, "{old} {new}");
    }
}

#[test]
fn a_message_expression_can_use_old_self_if_a_rule_of_the_node_uses_it() {
    let message = r#""messageExpression":"'was ' + string(oldSelf)""#;
    let optional = r#""optionalOldSelf":true,"messageExpression":"'was ' + string(oldSelf.value())""#;
    for (rules, want) in [
        (format!(r#"{{"rule":"self > oldSelf",{message}}}"#), "was 2"),
        (format!(r#"{{"rule":"self > 5",{message}}}"#), "failed rule: self > 5"),
        (format!(r#"{{"rule":"self > 5",{message}}},{{"rule":"self <= oldSelf"}}"#), "was 2"),
        (format!(r#"{{"rule":"oldSelf.value() > 5",{optional}}}"#), "failed rule: oldSelf.value() > 5"),
    ] {
        let schema = format!(r#"{{"type":"integer","{{x}}validations":[{rules}]}}"#);
        let want = format!("spec.v: Invalid value: 1: {want}");
        assert_eq!(findings(&schema, "1", Some("2")), want, "{rules}");
    }
}

#[test]
fn violated_rules_of_an_unchanged_list_and_its_elements_are_warnings() {
    let list = |kind: &str| {
        format!(
            r#"{{"type":"array",{kind}"items":{{"type":"string","{{x}}validations":[{{"rule":"self.size() < 3",
            "message":"item"}}]}},"{{x}}validations":[{{"rule":"self.size() < 2","message":"list"}}]}}"#
        )
    };
    let warnings = r#"warning spec.v: Invalid value: list; warning spec.v[0]: Invalid value: "aaa": item"#;
    for kind in ["", r#""{x}list-type":"set","#, r#""{x}list-type":"atomic","#] {
        assert_eq!(findings(&list(kind), r#"["aaa","b"]"#, Some(r#"["aaa","b"]"#)), warnings, "{kind}");
        let errors = findings(&list(kind), r#"["aaa","c"]"#, Some(r#"["aaa","b"]"#));
        assert_eq!(errors, warnings.replace("warning ", ""), "{kind}");
    }
}

#[test]
fn an_evaluation_that_exceeds_its_cost_limit_skips_all_further_rules() {
    let schema = r#"{"type":"array","items":{"type":"integer"},"{x}validations":[
        {"rule":"self.all(a, self.all(b, self.all(c, a + b + c >= 0)))"},{"rule":"false"}]}"#;
    let many = format!("[{}]", vec!["1"; 120].join(","));
    let errors = findings(schema, &many, None);
    assert!(
        errors.contains("no further validation rules will be run due to call cost exceeds limit"),
        "{errors}"
    );
    assert!(!errors.contains("failed rule: false"), "{errors}");
}

#[test]
fn equality_in_rules_compares_fields_that_the_schema_does_not_declare() {
    let open = r#"{"type":"object","properties":{"a":{"type":"integer"}},"{x}preserve-unknown-fields":true,
        "{x}validations":[{"rule":"self == oldSelf"}]}"#;
    for (new, old, want) in [
        (r#"{"a":1,"z":[1]}"#, r#"{"a":1,"z":[1]}"#, ""),
        (r#"{"a":1,"z":[1]}"#, r#"{"a":1,"z":[2]}"#, "failed"),
        (r#"{"a":1,"z":[1]}"#, r#"{"a":2,"z":[1]}"#, "failed"),
        (r#"{"a":1,"z":[1]}"#, r#"{"a":1}"#, "failed"),
        // The objects have different unknown fields, but equality compares only the number of unknown fields.
        (r#"{"y":1}"#, r#"{"z":1}"#, ""),
    ] {
        let findings = findings(open, new, Some(old));
        assert_eq!(findings.contains("failed rule"), want == "failed", "{new} {old}: {findings}");
    }
}

#[test]
fn elements_of_a_doubled_duration_list_are_an_error_but_its_size_is_not() {
    let list = |kind: &str, rule: &str| {
        format!(
            r#"{{"type":"array","maxItems":5,{kind}"items":{{"type":"string","format":"duration"}},
                "{{x}}validations":[{{"rule":"{rule}"}}]}}"#
        )
    };
    let set = r#""{x}list-type":"set","#;
    let error = "invalid data, expected string, got time.Duration";
    for (kind, rule, want) in [
        ("", "(self + self).size() == 4", ""),
        ("", "(self + self).all(span, span > duration('1s'))", error),
        ("", "(self + [])[0] == duration('2s')", ""),
        (set, "(self + self).size() == 4", ""),
        (set, "self != self", ""),
    ] {
        let findings = findings(&list(kind, rule), r#"["2s","3s"]"#, None);
        assert_eq!(findings.is_empty(), want.is_empty(), "{rule}: {findings}");
        assert!(findings.contains(want), "{rule}: {findings}");
    }
}

#[test]
fn reserved_words_are_fields_in_plain_and_in_escaped_form() {
    const WORDS: [&str; 17] = [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "namespace",
        "package",
        "return",
        "var",
        "void",
        "while",
    ];
    for word in WORDS {
        for (rule, holds) in [
            (format!("self.{word} == 'x'"), true),
            (format!("has(self.{word}) && self.?{word}.hasValue()"), true),
            (format!("self.{word} == self.__{word}__"), true),
            (format!("self.{word} == 'y'"), false),
            (format!("self.{word} == oldSelf.{word}"), true),
        ] {
            let schema = format!(
                r#"{{"type":"object","properties":{{"{word}":{{"type":"string"}}}},
                "{{x}}validations":[{{"rule":"{rule}","message":"broken"}}]}}"#
            );
            let value = format!(r#"{{"{word}":"x"}}"#);
            let want = if holds { "" } else { "spec.v: Invalid value: broken" };
            let report = findings(&schema, &value, Some(&value));
            assert_eq!(report.trim_start_matches("warning "), want, "{rule}");
        }
    }
}

/// Returns a value of `count` members or elements, each made by `one`.
fn many(open: char, count: usize, one: impl Fn(usize) -> String, close: char) -> String {
    let parts: Vec<String> = (0..count).map(one).collect();
    format!("{open}{}{close}", parts.join(","))
}

/// Rules over maps, sets, keyed lists and objects, with the schemas of their values.
const GROWING: [(&str, &str, char); 9] = [
    (r#"{"type":"object","additionalProperties":{"type":"integer"}"#, "self == oldSelf", '{'),
    (r#"{"type":"object","additionalProperties":{"type":"integer"}"#, "self.all(k, k in oldSelf)", '{'),
    (
        r#"{"type":"object","additionalProperties":{"type":"integer"}"#,
        "self.all(k, self[k] == oldSelf[k])",
        '{',
    ),
    (r#"{"type":"object","additionalProperties":{"type":"integer"}"#, "self.all(k, v, oldSelf[k] == v)", '{'),
    (r#"{"type":"object","additionalProperties":{"type":"integer"}"#, "'%s'.format([self]).size() > 0", '{'),
    (
        r#"{"type":"object","{x}preserve-unknown-fields":true,"properties":{"k9":{"type":"integer"}}"#,
        "self == oldSelf && self.k9 == 9",
        '{',
    ),
    (
        r#"{"type":"array","{x}list-type":"set","items":{"type":"integer"}"#,
        "self == oldSelf && self + oldSelf == self",
        '[',
    ),
    (
        r#"{"type":"array","{x}list-type":"map","{x}list-map-keys":["k"],"items":{"type":"object","required":["k"],
           "properties":{"k":{"type":"integer"}}}"#,
        "self == oldSelf",
        'm',
    ),
    (
        r#"{"type":"array","items":{"type":"integer"}"#,
        "self == oldSelf && self.sum() == oldSelf.sum() && self.indexOf(-1) < 0",
        '[',
    ),
];

#[test]
fn the_time_of_rules_over_maps_and_lists_is_linear() {
    const MARGIN: f64 = 6.0;
    for (schema, rule, shape) in GROWING {
        let schema = format!(r#"{schema},"{{x}}validations":[{{"rule":"{rule}"}}]}}"#);
        // The smallest value has many members, so that constant time does not matter.
        let times = [1_000, 4_000, 16_000].map(|count| {
            let value = |count, reversed: bool| {
                let at = move |at: usize| if reversed { count - 1 - at } else { at };
                match shape {
                    '{' => many('{', count, |n| format!(r#""k{}":{}"#, at(n), at(n)), '}'),
                    'm' => many('[', count, |n| format!(r#"{{"k":{}}}"#, at(n)), ']'),
                    _ => many('[', count, |n| n.to_string(), ']'),
                }
            };
            let (new, old) = (value(count, false), value(count, true));
            let took = (0..2).map(|_| {
                let began = testkit::processor_time();
                assert_eq!(findings(&schema, &new, Some(&old)), "", "{rule} of {count}");
                (testkit::processor_time() - began).as_secs_f64().max(4e-3)
            });
            took.fold(f64::MAX, f64::min)
        });
        // Quadratic work takes 256 times as long.
        let growth = times[2] / times[0];
        assert!(growth < 16.0 * MARGIN, "{rule}: {times:?}");
    }
}

#[tokio::test]
async fn an_evaluation_ends_at_the_deadline_of_its_request() {
    use std::time::{Duration, Instant};
    use values::cancellation::{CancellationReason, CancellationToken, Cancelled, within};

    // The cost does not limit the work of this rule. The cost of a comparison does not include nested lists,
    // and the rule makes millions of comparisons.
    let schema = r#"{"type":"array","items":{"type":"array","items":{"type":"integer"}},
        "{x}validations":[{"rule":"self.all(x, self.indexOf([1]) < 0)"}]}"#;
    let value = many('[', 10_000, |_| "[]".to_owned(), ']');
    let token = CancellationToken::default();
    token.cancel_at(Instant::now() + Duration::from_millis(300));
    let ended = within(token, async { findings(schema, &value, None) }).await;
    assert_eq!(ended, Err(Cancelled(CancellationReason::Deadline)));
}
