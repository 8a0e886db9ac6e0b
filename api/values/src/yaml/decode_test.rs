//! Tests of YAML decoding: document boundaries, values, and refused input.

use super::{YamlDocument, YamlError, parse};
use crate::json::{self, Value};

fn text(document: &YamlDocument) -> String {
    let mut out = Vec::new();
    json::write(&document.value, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn yaml_documents_parse_to_the_tree_of_the_equivalent_json() {
    for (yaml, want) in [
        ("", "null"),
        ("# nothing\n", "null"),
        ("---\n", "null"),
        ("a: 1\n---\n", r#"{"a":1}"#),
        ("---\n---\na: 1\n...\n", "null"),
        ("{\"kind\": \"Pod\", \"n\": [1, 2.5, null]}", r#"{"kind":"Pod","n":[1,2.5,null]}"#),
        ("a: yes\non: no\nb: \"yes\"\nc: 'on'", r#"{"a":true,"true":false,"b":"yes","c":"on"}"#),
        ("mode: 0644\nport: 1_000\n", r#"{"mode":420,"port":1000}"#),
        ("1: a\n2.5: b\ntrue: c\n.inf: d", r#"{"1":"a","2.5":"b","true":"c",".inf":"d"}"#),
        ("a:\n- b\n- c: d\n  e:\n  - f", r#"{"a":["b",{"c":"d","e":["f"]}]}"#),
        ("a: |\n  x\n  y\nb: >-\n  x\n  y\n", r#"{"a":"x\ny\n","b":"x y"}"#),
        ("a: &x {k: v}\nb: *x\n", r#"{"a":{"k":"v"},"b":{"k":"v"}}"#),
        ("&k key: 1\nother: *k\n", r#"{"key":1,"other":"key"}"#),
        ("a: &k name\n*k : 1\n", r#"{"a":"name","name":1}"#),
        ("b: &b {x: 1, w: 2}\nc: {<<: *b, w: 3}\n", r#"{"b":{"x":1,"w":2},"c":{"x":1,"w":3}}"#),
        ("b: &b {x: 1}\nc: {w: 3, <<: [*b, {x: 2, z: 4}]}", r#"{"b":{"x":1},"c":{"w":3,"x":1,"z":4}}"#),
        ("'<<': 1", r#"{"\u003c\u003c":1}"#),
        ("a: <<", r#"{"a":"\u003c\u003c"}"#),
        ("a: !!str 1\nb: !!int '2'\nc: !mine x", r#"{"a":"1","b":2,"c":"x"}"#),
        ("t: 2001-01-01T00:00:00Z", r#"{"t":"2001-01-01T00:00:00Z"}"#),
        ("\u{feff}a: 1", r#"{"a":1}"#),
        ("a: 1\na: 2\n", r#"{"a":2}"#),
        ("c: {w: 3, <<: {w: 1}}", r#"{"c":{"w":1}}"#), // a merge replaces members before it
        ("1: a\n1.0: b", r#"{"1":"b"}"#),
        ("", "null"),
    ] {
        let document = parse(yaml.as_bytes()).unwrap_or_else(|error| panic!("{yaml}: {error}"));
        assert_eq!(text(&document), want, "{yaml}");
    }
}

#[test]
fn duplicate_keys_are_reported_with_the_line_of_their_value() {
    let yaml = "a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\na: 4\n1: x\n1: y\ne: {<<: {f: 1}, f: 2}\nb:\n  c: 1\n\n";
    let document = parse(yaml.as_bytes()).unwrap();
    assert_eq!(
        document.duplicates,
        [
            "line 5: key \"c\" already set in map",
            "line 6: key \"a\" already set in map",
            "line 8: key 1 already set in map",
            "line 9: key \"f\" already set in map", // the merge has already set `f`
            "line 11: key \"b\" already set in map",
        ]
    );
    let sentence = document.strict_error().unwrap();
    assert_eq!(
        sentence.lines().take(2).collect::<Vec<_>>(),
        ["yaml: unmarshal errors:", "  line 5: key \"c\" already set in map"]
    );
    assert_eq!(super::warnings(&sentence).collect::<Vec<_>>(), document.duplicates);
    assert_eq!(super::warnings("unknown field \"x\"").collect::<Vec<_>>(), ["unknown field \"x\""]);
    assert_eq!(parse(b"a: 1").unwrap().strict_error(), None);
    let many = "a: 1\n".repeat(1000);
    assert_eq!(parse(many.as_bytes()).unwrap().duplicates.len(), 100);
}

#[test]
fn documents_without_a_json_equivalent_are_refused() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let bomb = {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let items = vec![format!("*a{}", level - 1); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        text
    };
    let deep_aliases = {
        let mut text = format!("a0: &a0 {}\n", deep(60));
        for level in 1..4 {
            text.push_str(&format!(
                "a{level}: &a{level} {}*a{}{}\n",
                "[".repeat(60),
                level - 1,
                "]".repeat(60)
            ));
        }
        text
    };
    let nested_anchors = format!("{}x{}", "[&a ".repeat(100), "]".repeat(100));
    assert!(parse(nested_anchors.as_bytes()).is_ok());
    assert!(parse(deep(128).as_bytes()).is_ok());
    for (yaml, want) in [
        ("a: .inf", "json: unsupported value: +Inf"),
        ("a: [.nan]", "json: unsupported value: NaN"),
        ("null: 1", "unsupported map key of type: %!s(<nil>), key: <nil>, value: 1"),
        ("18446744073709551615: 1", "unsupported map key of type: uint64, key: 0xffffffffffffffff, value: 1"),
        ("a: 1\n[x]: 1", "yaml: invalid map key: []interface {}{\"x\"}"),
        (
            "? {b: 1, a: [~, true, 1.5]}\n: c",
            "yaml: invalid map key: map[interface {}]interface {}{\"a\":[]interface {}{interface {}(nil), true, 1.5}, \"b\":1}",
        ),
        ("a: [.inf, !!int x]\n~: 1", "yaml: cannot decode !!str `x` as a !!int"),
        ("a: !!int x\nb: [", "yaml: line 2: did not find expected node content"),
        ("a: 1\nb: c\n \t\n\td: 1", "yaml: line 4: found a tab character that violates indentation"),
        ("a: &a [*a]", "yaml: anchor 'a' value contains itself"),
        ("<<: 1", "yaml: map merge requires map or sequence of maps as the value"),
        ("a: !!int x", "yaml: cannot decode !!str `x` as a !!int"),
        (&bomb, "yaml: document contains excessive aliasing"),
        (&deep(129), "yaml: exceeded max depth"),
        (&deep(100_000), "yaml: exceeded max depth of 10000"),
        (&deep_aliases, "yaml: exceeded max depth"),
    ] {
        assert_eq!(parse(yaml.as_bytes()).unwrap_err().to_string(), want, "{yaml:.60}");
    }
    for yaml in ["a: b: c", "a: [1", "a: *x", "a: \"", "a:\n  - b\n c: d", "*"] {
        let error = parse(yaml.as_bytes()).unwrap_err();
        assert!(matches!(error, YamlError::Syntax { .. }), "{yaml}: {error}");
    }
    assert_eq!(parse(b"\xff").unwrap_err().to_string(), "yaml: invalid leading UTF-8 octet");
}

#[test]
fn only_the_first_document_of_a_text_is_read() {
    for yaml in ["a: 1\n---\nb: 2\n", "---\na: 1\n---\n["] {
        let document = parse(yaml.as_bytes()).unwrap();
        assert_eq!(document.value.get("a"), Some(&Value::Int(1)), "{yaml:?}");
    }
}

#[test]
fn yaml_errors_have_the_line_numbers_of_the_reference_server() {
    for (yaml, want) in [
        ("a: [1\n", "yaml: line 1: did not find expected"),
        ("a: {\n", "yaml: line 1: did not find expected"),
        ("a: [1, 2\nb: }", "yaml: line 1: did not find expected ',' or ']'"),
        // An error on the first line has no line number.
        ("a: b: c", "yaml: mapping values are not allowed in this context"),
        ("x: 1\na: b: c", "yaml: line 2: mapping values are not allowed in this context"),
        ("a: @b", "yaml: found character that cannot start any token"),
        ("x: 1\na: @b", "yaml: line 2: found character that cannot start any token"),
        ("a: \"b", "yaml: found unexpected end of stream"),
        ("\ta: b", "yaml: found character that cannot start any token"),
        ("# x\n\n \ta: b", "yaml: line 3: found character that cannot start any token"),
        ("a: ]", "yaml: did not find expected node content"),
        ("a: {b: c}}", "yaml: did not find expected key"),
        ("x: 1\na: ]", "yaml: line 1: did not find expected node content"),
        // Errors about the meaning of a node have no line.
        ("é: 1\nk: *x-1_y", "yaml: unknown anchor 'x-1_y' referenced"),
        ("x: 1\ny: 2\na: [1, 2\nb: }", "yaml: line 3: did not find expected ',' or ']'"),
    ] {
        let error = parse(yaml.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(want), "{yaml:?}: {error}");
    }
}

/// Reads many layouts of the same few nodes, and compares with the results of the library of the reference
/// server (sigs.k8s.io/yaml): the JSON, the error of strict decoding, or the error.
#[test]
fn every_yaml_layout_is_parsed_as_by_the_reference_server() {
    for row in include_str!("layouts.jsonl").lines() {
        let row = json::parse(row.as_bytes()).unwrap();
        let want = (row.str_at(&["json"]), row.str_at(&["error"]), row.str_at(&["strict"]));
        let yaml = row.str_at(&["yaml"]);
        let (mut out, mut error, mut strict) = (Vec::new(), String::new(), None);
        match parse(yaml.as_bytes()) {
            Ok(document) => {
                json::write_sorted(&document.value, &mut out);
                strict = document.strict_error();
            }
            Err(refused) => error = refused.to_string(),
        }
        let out = String::from_utf8(out).unwrap();
        assert_eq!((&*out, &*error, strict.as_deref().unwrap_or_default()), want, "{yaml:?}");
    }
}

#[test]
fn a_yaml_alias_repeats_the_value_of_its_anchor() {
    // Duplicates are reported again for each alias, and merges examine each key.
    let yaml = "a: &m {k: 1, k: 2}\nb: *m\nc: {<<: *m, k: 3}\n";
    let document = parse(yaml.as_bytes()).unwrap();
    assert_eq!(text(&document), r#"{"a":{"k":2},"b":{"k":2},"c":{"k":3}}"#);
    let message = "key \"k\" already set in map";
    assert_eq!(
        document.duplicates,
        [
            format!("line 1: {message}"),
            format!("line 1: {message}"),
            format!("line 1: {message}"),
            format!("line 3: {message}")
        ]
    );
}

#[test]
fn hostile_yaml_is_parsed_or_refused_in_linear_time() {
    // Each text is refused or read after a number of steps proportional to its length; the test checks that
    // the function returns at all.
    let n = 200_000;
    for yaml in [
        "[".repeat(n),
        "? ".repeat(n),
        "[a: b,".repeat(n),
        format!("'{}'", "''".repeat(n)),
        format!("a: b{} c", "\n".repeat(n)),
        format!("a: >\n{}", " x\n".repeat(n)),
        format!("{}{}{}", "{<<: [".repeat(120), "{},".repeat(n), "]}".repeat(120)),
        format!("- &a x\n{}", "- *a\n".repeat(n)),
        format!("{}---\na", (0..n / 10).map(|at| format!("%TAG !a{at}! b\n")).collect::<String>()),
    ] {
        let _ = parse(yaml.as_bytes());
    }
}
