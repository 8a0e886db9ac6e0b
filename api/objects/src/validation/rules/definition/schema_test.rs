//! Tests of rules in schemas: which rules are compiled, and how the results are used. All other tests of
//! schemas are in `validation/cases/definitions.txt`.

use super::*;
use crate::custom::definition::rules::{CompiledRule, MessageExpression, RuleError, StoredExpressions};
use values::naming::KUBERNETES;
use values::testing::object;

/// A compiler whose result is the text of the rule, such as `cost=5 old`.
struct Scripted;

impl RuleCompiler for Scripted {
    fn compile(
        &self,
        rules: &[SchemaRule],
        declared: &Schema,
        is_object: bool,
        stored: &StoredExpressions,
    ) -> Result<Vec<CompiledRule>, String> {
        if declared.title == "untyped" {
            return Err("no type".to_owned());
        }
        let outcome = |rule: &SchemaRule| {
            let mut compiled = CompiledRule { cardinality: 1000, ..CompiledRule::default() };
            for word in rule.rule.split(' ') {
                match word.split_once('=') {
                    Some(("cost", cost)) => compiled.cost = cost.parse().unwrap(),
                    Some(("message", cost)) => {
                        compiled.message = Some(MessageExpression::Cost(cost.parse().unwrap()));
                    }
                    Some((_, why)) => compiled.error = Some(RuleError::Invalid(why.to_owned())),
                    None if word == "old" => compiled.uses_old_self = true,
                    None if word == "object" && !is_object => {
                        compiled.error = Some(RuleError::Required("no object".to_owned()));
                    }
                    None if word == "stored" && !stored.rules.contains("stored") => {
                        compiled.message = Some(MessageExpression::Refused("not stored".to_owned()));
                    }
                    None => {}
                }
            }
            compiled
        };
        Ok(rules.iter().map(outcome).collect())
    }
}

fn schema_errors(schema: &str, change: impl FnOnce(&mut Options)) -> Vec<String> {
    let schema = schema.replace("rules", "x-kubernetes-validations");
    let schema = Schema::read(&object(&schema).into());
    let words = ExtensionNames::new(&KUBERNETES);
    let mut options = Options::of_new(Some(&Scripted));
    change(&mut options);
    let errors = errors(&schema, &FieldPath::ROOT.child("s"), &words, &options, true);
    errors
        .iter()
        .map(ToString::to_string)
        .map(|text| text.replace("x-kubernetes-validations", "rules"))
        .collect()
}

const ADVICE: &str = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, \
                      and strings are declared)";

#[test]
fn each_rule_of_a_schema_is_compiled_and_only_invalid_rules_are_errors() {
    for (schema, want) in [
        (r#"{"rules":[{"rule":"object"}]}"#, vec![]),
        (
            r#"{"properties":{"a":{"rules":[{"rule":"object"},{"rule":"x=bad"}]}}}"#,
            vec![
                "s.properties[a].rules[0].rule: Required value: no object",
                r#"s.properties[a].rules[1].rule: Invalid value: {"Rule":"x=bad","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: bad"#,
            ],
        ),
        (
            r#"{"properties":{"a":{"x-kubernetes-embedded-resource":true,"rules":[{"rule":"object"}]}}}"#,
            vec![],
        ),
        (r#"{"not":{"rules":[{"rule":"x=bad"}]},"allOf":[{"rules":[{"rule":"x=bad"}]}]}"#, vec![]),
        (
            r#"{"properties":{"a":{"title":"untyped","rules":[{"rule":"a"}]}}}"#,
            vec![
                "s.properties[a].rules: Internal error: internal error: failed to construct type information for rules rules: no type",
            ],
        ),
        (
            r#"{"rules":[{"rule":"x=bad"}],"properties":{"a":{"id":"i"},"b":{"rules":[{"rule":"object"}]}}}"#,
            vec![
                "s.properties[a].id: Forbidden: id is not supported",
                "s.properties[b].rules[0].rule: Required value: no object",
            ],
        ),
    ] {
        assert_eq!(schema_errors(schema, |_| {}), want, "{schema}");
    }
}

#[test]
fn old_self_is_available_only_below_elements_that_can_be_correlated() {
    let what = |path: &str, within: &str| {
        format!(
            "s.properties[l].items{path}.rules[0].rule: Invalid value: \"old\": oldSelf cannot be used on the \
             uncorrelatable portion of the schema within {within}"
        )
    };
    let rule = r#""rules":[{"rule":"old"}]"#;
    for (list, want) in [
        (format!(r#"{{"type":"array","items":{{{rule}}}}}"#), vec![what("", "s.properties[l]")]),
        (
            format!(r#"{{"type":"array","items":{{"items":{{{rule}}}}}}}"#),
            vec![what(".items", "s.properties[l]")],
        ),
        (
            r#"{"type":"array","items":{"rules":[{"rule":"a","optionalOldSelf":false}]}}"#.to_owned(),
            vec!["s.properties[l].items.rules[0].optionalOldSelf: Invalid value: false: may not be set if oldSelf is not used in rule".to_owned()],
        ),
        (
            format!(r#"{{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{{"type":"object","properties":{{"k":{{"type":"string","default":""}}}},{rule}}}}}"#),
            vec![],
        ),
    ] {
        assert_eq!(schema_errors(&format!(r#"{{"properties":{{"l":{list}}}}}"#), |_| {}), want, "{list}");
    }
}

#[test]
fn the_cost_of_a_rule_is_multiplied_by_its_cardinality() {
    let schema = r#"{"rules":[{"rule":"cost=10000001 message=10000001 stored"}],
        "properties":{"l":{"type":"array","maxItems":10,"items":{"rules":[{"rule":"cost=2000000"}]}},
            "m":{"type":"object","additionalProperties":{"rules":[{"rule":"cost=90000"}]}}}}"#;
    let each = |what: &str, factor: &str| {
        format!("Forbidden: estimated {what} cost exceeds budget by factor of {factor} {ADVICE}")
    };
    let contributed = "Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
    let total = [
        format!("s.properties[m].additionalProperties.rules[0].rule: {contributed}"),
        format!("s.properties[l].items.rules[0].rule: {contributed}"),
        format!("s.rules[0].rule: {contributed}"),
        format!(
            "s: Forbidden: rules estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of 1.200000x {ADVICE}"
        ),
    ];
    let mut want = vec![
        format!("s.properties[l].items.rules[0].rule: {}", each("rule", "2.0x")),
        format!("s.properties[m].additionalProperties.rules[0].rule: {}", each("rule", "9.0x")),
        format!("s.rules[0].rule: {}", each("rule", "1.000000x")),
    ];
    let refused = r#"s.rules[0].messageExpression: Invalid value: {"Rule":"cost=10000001 message=10000001 stored","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: not stored"#;
    want.push(refused.to_owned());
    want.extend(total.clone());
    assert_eq!(schema_errors(schema, |_| {}), want);
    // The schema is unchanged, so only the total cost is checked.
    let mut want = total.to_vec();
    want[3] = want[3].replace("1.200000x", "1.300000x");
    want.insert(3, format!("s.rules[0].messageExpression: {contributed}"));
    let kept = schema_errors(schema, |options| {
        options.keeps_costs = true;
        options.stored.rules.insert("stored".to_owned());
    });
    assert_eq!(kept, want);
}
