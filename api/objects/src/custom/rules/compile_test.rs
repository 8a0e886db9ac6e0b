//! Tests of rules in definitions: types of `self`, errors and costs.

use super::*;
use values::json::Value;
use values::testing::object;

fn compiled(schema: &str, is_object: bool) -> Result<Vec<CompiledRule>, String> {
    let schema = Schema::read(&Value::Object(object(&schema.replace("{x}", "x-kubernetes-"))));
    Compiler.compile(&schema.validations, &schema, is_object, &StoredExpressions::default())
}

fn rule(schema: &str, text: &str) -> CompiledRule {
    let rest = schema.strip_suffix('}').unwrap();
    let schema = format!(r#"{rest},"{{x}}validations":[{{"rule":{text:?}}}]}}"#);
    compiled(&schema, false).unwrap().remove(0)
}

const SPEC: &str = r#"{"type":"object","required":["i"],"properties":{
    "i":{"type":"integer"},"s":{"type":"string","maxLength":10},"a-b":{"type":"integer"},"p":{"{x}int-or-string":true},
    "l":{"type":"array","maxItems":3,"items":{"type":"string","maxLength":5}},"when":{"type":"string","format":"date-time"},
    "any":{"{x}preserve-unknown-fields":true},"m":{"type":"object","additionalProperties":{"type":"boolean"}}}}"#;

#[test]
fn a_rule_can_use_only_the_fields_of_its_own_node() {
    for text in [
        "self.i > 0",
        "self.a__dash__b == self.i",
        "self.l.all(x, x.size() < 3)",
        "self.m.exists(k, self.m[k])",
        "self.when > timestamp('2020-01-01T00:00:00Z')",
        "type(self.p) == int || self.p.endsWith('%')",
        "self.i >= oldSelf.i",
    ] {
        assert_eq!(rule(SPEC, text).error, None, "{text}");
    }
    let refused = |text: &str| match rule(SPEC, text).error {
        Some(RuleError::Invalid(error)) => error,
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(
        refused("self.any == 1"),
        "compilation failed: ERROR: <input>:1:5: undefined field 'any'\n | self.any == 1\n | ....^"
    );
    assert_eq!(refused("self.i"), "cel expression must evaluate to a bool");
}

#[test]
fn cel_keywords_can_be_used_as_fields_only_in_escaped_form() {
    for word in ["in", "true", "false", "null"] {
        let spec = format!(r#"{{"type":"object","properties":{{"{word}":{{"type":"string"}}}}}}"#);
        assert_eq!(rule(&spec, &format!("self.__{word}__ == 'x'")).error, None, "{word}");
        assert!(rule(&spec, &format!("self.{word} == 'x'")).error.is_some(), "{word}");
    }
}

#[test]
fn costs_follow_the_sizes_that_the_schema_allows() {
    for (text, cost) in [("self.i > 0", 3), ("self.s.size() > 1", 4)] {
        assert_eq!(rule(SPEC, text).cost, cost, "{text}");
    }
    // The smallest object has two bytes of braces. The required member has four bytes for its name and a byte
    // for its value. A comma follows the object.
    assert_eq!(rule(SPEC, "self.i > 0").cardinality, 3 * 1024 * 1024 / (2 + 4 + 1 + 1 + 1));
}

#[test]
fn old_self_can_be_optional_and_message_expressions_must_be_strings() {
    let schema = |rule: &str| format!(r#"{{"type":"integer","{{x}}validations":[{rule}]}}"#);
    let one = |rule: &str| compiled(&schema(rule), false).unwrap().remove(0);
    assert!(one(r#"{"rule":"self > oldSelf"}"#).uses_old_self);
    assert!(!one(r#"{"rule":"self > 1"}"#).uses_old_self);
    assert_eq!(one(r#"{"rule":"oldSelf.hasValue()","optionalOldSelf":true}"#).error, None);
    assert!(one(r#"{"rule":"oldSelf.hasValue()"}"#).error.is_some());
    assert_eq!(
        one(r#"{"rule":"self > 1","messageExpression":"self"}"#).message,
        Some(MessageExpression::Refused("messageExpression must evaluate to a string".to_owned()))
    );
    assert!(matches!(
        one(r#"{"rule":"self > 1","messageExpression":"'is ' + string(self)"}"#).message,
        Some(MessageExpression::Cost(_))
    ));
    assert_eq!(one(r#"{"rule":" "}"#), CompiledRule::default());
}

#[test]
fn rules_on_values_without_a_type_are_refused() {
    let error = compiled(r#"{"{x}preserve-unknown-fields":true,"{x}validations":[{"rule":"true"}]}"#, false);
    assert_eq!(error.unwrap_err(), "unable to convert structural schema to CEL declarations");
    let root = r#"{"type":"object","{x}validations":[{"rule":"self.metadata.name.size() > 1"}]}"#;
    assert_eq!(compiled(root, true).unwrap()[0].error, None);
    assert!(compiled(root, false).unwrap()[0].error.is_some());
}
