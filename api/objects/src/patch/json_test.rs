//! Tests of JSON patch: the examples of RFC 6902, and the deviations of the reference server from the RFC

use super::super::{PatchKind, apply as patch};
use super::*;
use values::json::parse as tree;
use values::testing::text;

/// Returns the patched document, or the code of the failure.
fn run(original: &str, operations: &str) -> String {
    match patch(PatchKind::Json, None, tree(original.as_bytes()).unwrap(), operations.as_bytes(), false) {
        Ok(patched) => text(&patched.value),
        Err(status) => status.code.as_u16().to_string(),
    }
}

#[test]
fn the_examples_of_rfc_6902_appendix_a_hold() {
    for (section, original, operations, want) in [
        (
            "A.1",
            r#"{"foo":"bar"}"#,
            r#"[{"op":"add","path":"/baz","value":"qux"}]"#,
            r#"{"baz":"qux","foo":"bar"}"#,
        ),
        (
            "A.2",
            r#"{"foo":["bar","baz"]}"#,
            r#"[{"op":"add","path":"/foo/1","value":"qux"}]"#,
            r#"{"foo":["bar","qux","baz"]}"#,
        ),
        ("A.3", r#"{"baz":"qux","foo":"bar"}"#, r#"[{"op":"remove","path":"/baz"}]"#, r#"{"foo":"bar"}"#),
        (
            "A.4",
            r#"{"foo":["bar","qux","baz"]}"#,
            r#"[{"op":"remove","path":"/foo/1"}]"#,
            r#"{"foo":["bar","baz"]}"#,
        ),
        (
            "A.5",
            r#"{"baz":"qux","foo":"bar"}"#,
            r#"[{"op":"replace","path":"/baz","value":"boo"}]"#,
            r#"{"baz":"boo","foo":"bar"}"#,
        ),
        (
            "A.6",
            r#"{"foo":{"bar":"baz","waldo":"fred"},"qux":{"corge":"grault"}}"#,
            r#"[{"op":"move","from":"/foo/waldo","path":"/qux/thud"}]"#,
            r#"{"foo":{"bar":"baz"},"qux":{"corge":"grault","thud":"fred"}}"#,
        ),
        (
            "A.7",
            r#"{"foo":["all","grass","cows","eat"]}"#,
            r#"[{"op":"move","from":"/foo/1","path":"/foo/3"}]"#,
            r#"{"foo":["all","cows","eat","grass"]}"#,
        ),
        (
            "A.8",
            r#"{"baz":"qux","foo":["a",2,"c"]}"#,
            r#"[{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2}]"#,
            r#"{"baz":"qux","foo":["a",2,"c"]}"#,
        ),
        ("A.9", r#"{"baz":"qux"}"#, r#"[{"op":"test","path":"/baz","value":"bar"}]"#, "422"),
        (
            "A.10",
            r#"{"foo":"bar"}"#,
            r#"[{"op":"add","path":"/child","value":{"grandchild":{}}}]"#,
            r#"{"child":{"grandchild":{}},"foo":"bar"}"#,
        ),
        (
            "A.11",
            r#"{"foo":"bar"}"#,
            r#"[{"op":"add","path":"/baz","value":"qux","xyz":123}]"#,
            r#"{"baz":"qux","foo":"bar"}"#,
        ),
        ("A.12", r#"{"foo":"bar"}"#, r#"[{"op":"add","path":"/baz/bat","value":"qux"}]"#, "422"),
        ("A.13", r#"{"foo":"bar"}"#, r#"[{"op":"add","path":"/baz","value":"qux","op":"remove"}]"#, "422"),
        ("A.14", r#"{"/":9,"~1":10}"#, r#"[{"op":"test","path":"/~01","value":10}]"#, r#"{"/":9,"~1":10}"#),
        ("A.15", r#"{"/":9,"~1":10}"#, r#"[{"op":"test","path":"/~01","value":"10"}]"#, "422"),
        (
            "A.16",
            r#"{"foo":["bar"]}"#,
            r#"[{"op":"add","path":"/foo/-","value":["abc","def"]}]"#,
            r#"{"foo":["bar",["abc","def"]]}"#,
        ),
    ] {
        assert_eq!(run(original, operations), want, "{section}");
    }
}

#[test]
fn json_patch_follows_the_deviations_of_the_reference_server() {
    let list = r#"{"a":["x","y","z"],"b":{"n":null}}"#;
    for (why, operations, want) in [
        (
            "json-patch replace of a missing member",
            r#"[{"op":"replace","path":"/c","value":1}]"#,
            r#"{"a":["x","y","z"],"b":{"n":null},"c":1}"#,
        ),
        (
            "json-patch a path without leading slash",
            r#"[{"op":"add","path":"x/c","value":1}]"#,
            r#"{"a":["x","y","z"],"b":{"n":null},"c":1}"#,
        ),
        ("a path without any slash", r#"[{"op":"add","path":"c","value":1}]"#, "422"),
        (
            "json-patch add without value",
            r#"[{"op":"add","path":"/c"}]"#,
            r#"{"a":["x","y","z"],"b":{"n":null},"c":null}"#,
        ),
        (
            "json-patch - appends",
            r#"[{"op":"add","path":"/a/-","value":1}]"#,
            r#"{"a":["x","y","z",1],"b":{"n":null}}"#,
        ),
        ("json-patch - is for add only", r#"[{"op":"replace","path":"/a/-","value":1}]"#, "422"),
        (
            "json-patch negative index",
            r#"[{"op":"replace","path":"/a/-1","value":1}]"#,
            r#"{"a":["x","y",1],"b":{"n":null}}"#,
        ),
        (
            "json-patch negative index, remove",
            r#"[{"op":"remove","path":"/a/-3"}]"#,
            r#"{"a":["y","z"],"b":{"n":null}}"#,
        ),
        (
            "json-patch negative index, add counts the new one",
            r#"[{"op":"add","path":"/a/-1","value":1}]"#,
            r#"{"a":["x","y","z",1],"b":{"n":null}}"#,
        ),
        (
            "json-patch add at the very front",
            r#"[{"op":"add","path":"/a/-4","value":1}]"#,
            r#"{"a":[1,"x","y","z"],"b":{"n":null}}"#,
        ),
        ("json-patch negative index out of range", r#"[{"op":"remove","path":"/a/-4"}]"#, "422"),
        (
            "json-patch add at the length",
            r#"[{"op":"add","path":"/a/3","value":1}]"#,
            r#"{"a":["x","y","z",1],"b":{"n":null}}"#,
        ),
        ("json-patch add past the length", r#"[{"op":"add","path":"/a/4","value":1}]"#, "422"),
        (
            "json-patch leading zero",
            r#"[{"op":"remove","path":"/a/01"}]"#,
            r#"{"a":["x","z"],"b":{"n":null}}"#,
        ),
        ("json-patch not a number", r#"[{"op":"remove","path":"/a/x"}]"#, "422"),
        ("plus sign", r#"[{"op":"remove","path":"/a/+1"}]"#, r#"{"a":["x","z"],"b":{"n":null}}"#),
        ("minus zero", r#"[{"op":"remove","path":"/a/-0"}]"#, r#"{"a":["y","z"],"b":{"n":null}}"#),
        ("a sign alone", r#"[{"op":"remove","path":"/a/+"}]"#, "422"),
        ("index beyond any integer", r#"[{"op":"remove","path":"/a/99999999999999999999"}]"#, "422"),
        ("json-patch remove of a missing member", r#"[{"op":"remove","path":"/c"}]"#, "422"),
        ("json-patch replace needs the element", r#"[{"op":"replace","path":"/a/3","value":1}]"#, "422"),
        (
            "json-patch test of a missing member against null",
            r#"[{"op":"test","path":"/c","value":null},{"op":"test","path":"/b/n"}]"#,
            list,
        ),
        (
            "json-patch test of a missing member against a value",
            r#"[{"op":"test","path":"/c","value":0}]"#,
            "422",
        ),
        ("test of a missing element", r#"[{"op":"test","path":"/a/3","value":null}]"#, "422"),
        ("json-patch replace the document", r#"[{"op":"replace","path":"","value":{"z":1}}]"#, r#"{"z":1}"#),
        ("json-patch only replace makes a document", r#"[{"op":"add","path":"","value":[1]}]"#, "422"),
        ("a copy makes no document", r#"[{"op":"copy","from":"/b","path":""}]"#, "422"),
        ("nor does a move", r#"[{"op":"move","from":"/b","path":""}]"#, "422"),
        ("the document is a container", r#"[{"op":"replace","path":"","value":1}]"#, "422"),
        ("the document cannot go", r#"[{"op":"remove","path":""}]"#, "422"),
        (
            "json-patch test the document",
            r#"[{"op":"test","path":"","value":{"b":{"n":null},"a":["x","y","z"]}}]"#,
            list,
        ),
        ("move into oneself", r#"[{"op":"move","from":"/b","path":"/b/c"}]"#, "422"),
        ("move of a missing member", r#"[{"op":"move","from":"/c","path":"/d"}]"#, "422"),
        (
            "copy of a missing member is null",
            r#"[{"op":"copy","from":"/c","path":"/b"}]"#,
            r#"{"a":["x","y","z"],"b":null}"#,
        ),
        ("copy without from", r#"[{"op":"copy","path":"/b"}]"#, "422"),
        ("copy", r#"[{"op":"copy","from":"/a/0","path":"/b"}]"#, r#"{"a":["x","y","z"],"b":"x"}"#),
        ("through a scalar", r#"[{"op":"add","path":"/a/0/b","value":1}]"#, "422"),
        ("unknown operation", r#"[{"op":"frob","path":"/a"}]"#, "422"),
        ("no operation at all", "[null]", "422"),
        ("no operations", "[]", list),
        ("null", "null", list),
        ("an operation of numbers", r#"[{"op":1,"path":2}]"#, "422"),
    ] {
        assert_eq!(run(list, operations), want, "{why}");
    }
}

#[test]
fn the_test_operation_compares_scalars_by_their_text() {
    let document =
        r#"{"i":1,"f":1.0,"h":0.5,"big":9007199254740993,"s":"a<b","one":"1","o":{"a":1,"b":[{}],"c":null}}"#;
    for (path, value, same) in [
        ("/i", "1", true),
        ("/i", "1.0", false),
        ("/f", "1", true),
        ("/i", "1.5", false),
        ("/h", "0.5", true),
        ("/h", "5e-1", false),
        ("/big", "9007199254740993", true),
        ("/big", "9007199254740992.0", false),
        ("/i", "1e400", false),
        ("/i", "true", false),
        ("/i", r#""1""#, false),
        ("/one", r#""1""#, true),
        ("/one", r#""\u0031""#, false),
        ("/s", r#""a\u003cb""#, true),
        ("/s", r#""a<b""#, false),
        ("/o", r#"{"c":null, "b":[ {} ],"a":1}"#, true),
        ("/o", r#"{"a":1.0,"b":[{}],"c":null}"#, false),
        ("/o", r#"{"b":[{}],"a":1}"#, false),
        ("/o", r#"{"a":1,"b":[{}],"d":null}"#, false),
        ("/o", r#"{"a":1,"b":[[]],"c":null}"#, false),
    ] {
        let operations = format!(r#"[{{"op":"test","path":"{path}","value":{value}}}]"#);
        let got = run(document, &operations);
        // A number that does not fit a double is a parse error.
        let failed = ["422", "400"].contains(&got.as_str());
        assert_eq!(!failed, same, "{path} {value}");
    }
}

#[test]
fn the_test_operation_compares_strings_without_html_escapes() {
    let document = tree(br#"{"s":"a<b","i":1}"#).unwrap();
    for (value, passes) in [(r#"{"s":"a<b","i":1}"#, true), (r#"{"s":"a","i":1}"#, false)] {
        let operations = tree(format!(r#"[{{"op":"test","path":"","value":{value}}}]"#).as_bytes()).unwrap();
        assert_eq!(super::super::apply_operations(operations, document.clone()).is_ok(), passes, "{value}");
    }
}

#[test]
fn objects_on_the_path_of_an_operation_get_sorted_members() {
    let document = r#"{"z":1,"o":{"z":1,"l":[{"z":1,"a":2}],"p":{"z":1,"a":2}},"a":{"z":1,"a":2}}"#;
    for (operations, want) in [
        ("[]", r#"{"a":{"z":1,"a":2},"o":{"z":1,"l":[{"z":1,"a":2}],"p":{"z":1,"a":2}},"z":1}"#),
        (
            r#"[{"op":"add","path":"/o/l/00/b","value":{"z":1,"a":2}}]"#,
            r#"{"a":{"z":1,"a":2},"o":{"l":[{"a":2,"b":{"z":1,"a":2},"z":1}],"p":{"z":1,"a":2},"z":1},"z":1}"#,
        ),
        (
            r#"[{"op":"copy","from":"/a/a","path":"/o/p/a"}]"#,
            r#"{"a":{"a":2,"z":1},"o":{"l":[{"z":1,"a":2}],"p":{"a":2,"z":1},"z":1},"z":1}"#,
        ),
    ] {
        assert_eq!(run(document, operations), want, "{operations}");
    }
}

#[test]
fn a_body_that_is_not_a_list_of_operations_is_400() {
    for (body, strict, want) in [
        ("{}", false, "json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
        (
            "{}",
            true,
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        ("[5]", false, "json: cannot unmarshal number into Go value of type jsonpatch.Operation"),
        (
            "[5]",
            true,
            "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
        ),
        (
            r#"[{"op":["add"]}]"#,
            true,
            "error decoding patch: json: cannot unmarshal array into Go struct field jsonPatchOp.op of type string",
        ),
    ] {
        let status = patch(PatchKind::Json, None, Value::default(), body.as_bytes(), strict).unwrap_err();
        assert_eq!((status.code.as_u16(), status.message.as_str()), (400, want));
    }
    let status = patch(PatchKind::Json, None, Value::default(), b"[", true).unwrap_err();
    assert!(status.code == 400 && status.message.starts_with("error decoding patch: "), "{status}");
}

#[test]
fn unknown_members_of_patch_operations_are_reported() {
    let body = br#"[{"op":"add","path":"/a","value":{"x":1},"foo":1},{"op":"test","path":"/a","bar":1,"value":{"x":1}}]"#;
    let patched = patch(PatchKind::Json, None, tree(b"{}").unwrap(), body, true).unwrap();
    assert_eq!(
        patched.strict,
        [r#"json patch unknown field "[0].foo""#, r#"json patch unknown field "[1].bar""#]
    );
    let many = format!("[{}]", vec![r#"{"op":"add","path":"/a","x":1}"#; 200].join(","));
    let patched = patch(PatchKind::Json, None, tree(b"{}").unwrap(), many.as_bytes(), true).unwrap();
    assert_eq!(patched.strict.len(), 100);
}

#[test]
fn more_than_ten_thousand_operations_are_413() {
    let body = |count| format!("[{}]", vec![r#"{"op":"add","path":"/a/-","value":0}"#; count].join(","));
    let original = || tree(br#"{"a":[]}"#).unwrap();
    let patched = patch(PatchKind::Json, None, original(), body(10_000).as_bytes(), true).unwrap();
    assert_eq!(patched.value.get("a").unwrap().as_array().unwrap().len(), 10_000);
    let status = patch(PatchKind::Json, None, original(), body(10_001).as_bytes(), true).unwrap_err();
    assert_eq!(status.code, 413);
    assert_eq!(
        status.message,
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
}

#[test]
fn copies_are_limited_to_three_mebibytes() {
    let half = "x".repeat(1_500_000);
    let original = format!(r#"{{"a":"{half}"}}"#);
    let copy = |to: &str| format!(r#"{{"op":"copy","from":"/a","path":"/{to}"}}"#);
    assert!(run(&original, &format!("[{},{}]", copy("b"), copy("c"))).len() > 4_000_000);
    assert_eq!(run(&original, &format!("[{},{},{}]", copy("b"), copy("c"), copy("d"))), "422");
    // Repeatedly doubling the same value also fails, and takes little time.
    let doubling = vec![r#"{"op":"copy","from":"/a","path":"/a/-"}"#; 10_000].join(",");
    assert_eq!(run(r#"{"a":[1,2,3]}"#, &format!("[{doubling}]")), "422");
}

#[test]
fn a_patch_result_deeper_than_the_parser_accepts_is_refused() {
    // Moving one chain into another chain adds their depths.
    let chain = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for (depth, fits) in [(62, true), (63, true), (64, false), (100, false)] {
        let original = format!(r#"{{"a":{},"b":{}}}"#, chain(63), chain(depth));
        let inner = format!("/a{}/-", "/0".repeat(62));
        for verb in ["move", "copy"] {
            let operation = format!(r#"[{{"op":"{verb}","from":"/b","path":"{inner}"}}]"#);
            let got = run(&original, &operation);
            assert_eq!(got != "422", fits, "{verb} {depth}");
            assert!(!fits || tree(got.as_bytes()).is_ok(), "{verb} {depth}");
        }
        let operation = format!(r#"[{{"op":"add","path":"{inner}","value":{}}}]"#, chain(depth));
        assert_eq!(run(&original, &operation) != "422", fits, "add {depth}");
    }
}

#[test]
fn hostile_patches_are_refused_within_seconds() {
    let begin = testkit::processor_time();
    let list = format!(r#"{{"a":[{}]}}"#, vec!["0"; 1_000_000].join(","));
    let front = vec![r#"{"op":"add","path":"/a/0","value":0}"#; 10_000].join(",");
    assert_eq!(run(&list, &format!("[{front}]")), "413");
    let members: Vec<String> = (0..100_000).map(|n| format!(r#""key-{n:08}":0"#)).collect();
    let object = format!("{{{}}}", members.join(","));
    let last = vec![r#"{"op":"test","path":"/key-00099999","value":0}"#; 10_000].join(",");
    assert_eq!(run(&object, &format!("[{last}]")), "413");
    let mut shuffled = members.clone();
    shuffled.reverse();
    let test = format!(r#"[{{"op":"test","path":"","value":{{{}}}}}]"#, shuffled.join(","));
    assert_eq!(run(&object, &test), object);
    let deep = format!(r#"[{{"op":"add","path":"{}","value":0}}]"#, "/".repeat(1_000_000));
    assert_eq!(run(&object, &deep), "422");
    let took = testkit::processor_time() - begin;
    assert!(took.as_secs() < 20, "{took:?}");
}
