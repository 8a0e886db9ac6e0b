//! Tests of the grammar of label selectors and its errors (docs/api/selectors.md#label-selectors).

use super::*;
use testkit::Random;
use values::json::parse as tree;

fn canonical(text: &str) -> String {
    match LabelSelector::parse(text) {
        Ok(selector) => selector.to_string(),
        Err(status) => {
            assert_eq!(status.code, 400);
            format!("error: {}", status.message)
        }
    }
}

#[test]
fn label_selectors_are_written_in_their_canonical_form() {
    for (text, want) in [
        ("", ""),
        (" \t\r\n", ""),
        ("a", "a"),
        ("!a", "!a"),
        (" ! a ", "!a"),
        ("a=b", "a=b"),
        ("a = b", "a=b"),
        ("a==b", "a==b"),
        ("a != b", "a!=b"),
        ("a=", "a="),
        ("a=,b", "a=,b"),
        ("a!=", "a!="),
        ("a>5", "a>5"),
        ("a < 5", "a<5"),
        ("z=1,a=2,m", "a=2,m,z=1"),
        ("a in (c,b)", "a in (b,c)"),
        ("a in(b)", "a in (b)"),
        ("a notin (b, b ,c)", "a notin (b,c)"),
        ("a in ()", "a in ()"),
        ("a in (,b)", "a in (,b)"),
        ("a in (b,)", "a in (,b)"),
        ("a in (b,,c)", "a in (,b,c)"),
        ("a in (,)", "a in ()"),
        // Keywords are plain words where no operator is expected.
        ("in", "in"),
        ("in in (in,notin)", "in in (in,notin)"),
        ("notin=in", "notin=in"),
        ("example.com/role=web", "example.com/role=web"),
        ("a=1,a=2", "a=1,a=2"),
    ] {
        assert_eq!(canonical(text), want, "{text}");
        assert_eq!(canonical(want), want, "{text}: the canonical form is stable");
    }
}

#[test]
fn label_selector_errors_have_the_documented_texts() {
    let parse = "unable to parse requirement:";
    for (text, want) in [
        (",", "found ',', expected: !, identifier, or 'end of string'".to_owned()),
        ("a,", "found '', expected: identifier after ','".to_owned()),
        ("a,,b", "found ',', expected: identifier after ','".to_owned()),
        ("a=b c", "found 'c', expected: ',' or 'end of string'".to_owned()),
        ("!a in (b)", "found 'in', expected: ',' or 'end of string'".to_owned()),
        ("a=b=c", "found '=', expected: ',' or 'end of string'".to_owned()),
        ("!", format!("{parse} found '', expected: identifier")),
        ("!!a", format!("{parse} found '!', expected: identifier")),
        ("a b", format!("{parse} found 'b', expected: in, notin, =, ==, !=, gt, lt")),
        ("a IN (b)", format!("{parse} found 'IN', expected: in, notin, =, ==, !=, gt, lt")),
        ("a !b", format!("{parse} found '!', expected: in, notin, =, ==, !=, gt, lt")),
        ("a = (b)", format!("{parse} found '(', expected: identifier")),
        ("a===b", format!("{parse} found '=', expected: identifier")),
        ("a in b", format!("{parse} found 'b' expected: '('")),
        ("a in in (b)", format!("{parse} found 'in' expected: '('")),
        ("a in (", format!("{parse} found '', expected: ',', ')' or identifier")),
        ("a in (=", format!("{parse} found '=', expected: ',', ')' or identifier")),
        ("a in (b", format!("{parse} found '', expected: ',' or ')'")),
        ("a in (b c)", format!("{parse} found 'c', expected: ',' or ')'")),
        ("a in (b,", format!("{parse} found '', expected: ',', or identifier")),
        ("a in (b,=", format!("{parse} found '=', expected: ',', or identifier")),
        (
            "a>x",
            format!(
                "{parse} values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"
            ),
        ),
    ] {
        assert_eq!(canonical(text), format!("error: {want}"), "{text}");
    }
    for (text, start) in [
        ("a/b/c", "<nil>: Invalid value: \"a/b/c\": a valid label key must consist"),
        ("-a", "<nil>: Invalid value: \"-a\": name part must consist"),
        ("/a", "<nil>: Invalid value: \"/a\": prefix part must be non-empty"),
        (
            "A.com/",
            "<nil>: Invalid value: \"A.com/\": prefix part a lowercase RFC 1123 subdomain must consist",
        ),
        ("a=-", "values[0][a]: Invalid value: \"-\": a valid label must be"),
        ("a in (b,_)", "values[0][a]: Invalid value: \"_\": a valid label must be"),
        ("a<-5", "values[0][a]: Invalid value: \"-5\": a valid label must be"),
        (
            "a>-",
            "[values[0]: Invalid value: \"-\": for 'Gt', 'Lt' operators, the value must be an integer, values[0][a]: ",
        ),
    ] {
        let got = canonical(text);
        assert!(got.starts_with(&format!("error: {parse} {start}")), "{text}: {got}");
    }
    assert!(canonical("A.com/").contains("; name part must be non-empty; name part must consist"));
}

#[test]
fn label_selectors_match_labels() {
    let labels = [("app", "web"), ("n", "7"), ("empty", "")];
    let matches = |text: &str| {
        let selector = LabelSelector::parse(text).unwrap();
        selector.matches(|key| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value))
    };
    for (text, want) in [
        ("", true),
        ("app", true),
        ("x", false),
        ("!app", false),
        ("!x", true),
        ("app=web", true),
        ("app==web", true),
        ("app=db", false),
        ("x=web", false),
        ("x=", false),
        ("empty=", true),
        ("app!=web", false),
        ("app!=db", true),
        ("x!=db", true),
        ("app in (db,web,z)", true),
        ("app in (db)", false),
        ("x in (db)", false),
        ("app notin (db,web)", false),
        ("app notin (db)", true),
        ("x notin (db)", true),
        ("empty in (a,)", true),
        ("n>6", true),
        ("n>7", false),
        ("n<8", true),
        ("n<7", false),
        ("app>1", false),
        ("x<1", false),
        ("app=web,n=7", true),
        ("app=web,n=8", false),
        ("app=web,app=db", false),
    ] {
        assert_eq!(matches(text), want, "{text}");
    }
    assert!(!LabelSelector::nothing().matches(|_| Some("x")));
}

#[test]
fn a_label_selector_object_is_equivalent_to_its_text() {
    for (object, want) in [
        ("null", "nothing"),
        ("{}", ""),
        (r#"{"matchLabels":null,"matchExpressions":null}"#, ""),
        (r#"{"matchLabels":{"b":"2","a":"1"}}"#, "a=1,b=2"),
        (
            r#"{"matchLabels":{"m":"1"},"matchExpressions":[{"key":"a","operator":"In","values":["y","x"]},{"key":"z","operator":"Exists"},{"key":"b","operator":"DoesNotExist","values":[]},{"key":"c","operator":"NotIn","values":["q"]}]}"#,
            "a in (x,y),!b,c notin (q),m=1,z",
        ),
        (
            r#"{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]}"#,
            "error: \"Gt\" is not a valid label selector operator",
        ),
        (
            r#"{"matchExpressions":[{"key":"a","operator":"In","values":[]}]}"#,
            "error: values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            r#"{"matchExpressions":[{"key":"a","operator":"Exists","values":["x"]}]}"#,
            "error: values: Invalid value: [\"x\"]: values set must be empty for exists and does not exist",
        ),
        (r#"{"matchLabels":{"a":1}}"#, "error: the label selector has members of the wrong type"),
        (r#"{"matchExpressions":{}}"#, "error: the label selector has members of the wrong type"),
    ] {
        let got = match LabelSelector::from_object(Some(&tree(object.as_bytes()).unwrap())) {
            Ok(selector) if selector.is_nothing() => "nothing".to_owned(),
            Ok(selector) => selector.to_string(),
            Err(status) => format!("error: {}", status.message),
        };
        assert_eq!(got, want, "{object}");
    }
    assert!(LabelSelector::from_object(None).unwrap().is_nothing());
    assert!(LabelSelector::parse("").unwrap().is_everything());
}

#[test]
fn random_label_selectors_never_panic_and_survive_a_round_trip() {
    let mut random = Random(43);
    let pieces = [
        "a", "b", "in", "notin", " ", "=", "==", "!", "!=", "(", ")", ",", "<", ">", "1", "ä", "\0", "x/",
        "-",
    ];
    let mut read = 0;
    for _ in 0..100_000 {
        let text: String = (0..random.index(10)).map(|_| random.pick(&pieces)).collect();
        if let Ok(selector) = LabelSelector::parse(&text) {
            read += 1;
            let again = LabelSelector::parse(&selector.to_string()).unwrap();
            assert_eq!(again.to_string(), selector.to_string(), "{text}");
            selector.matches(|_| Some("1"));
        }
    }
    assert!(read > 1_000, "{read}");
}

#[test]
fn long_selectors_are_parsed_in_linear_time() {
    let begin = testkit::processor_time();
    let values: Vec<String> = (0..100_000).map(|n| format!("v{n}")).collect();
    let selector = LabelSelector::parse(&format!("a in ({})", values.join(","))).unwrap();
    assert!((0..100_000).all(|_| selector.matches(|_| Some("v99999"))));
    let bad: Vec<String> = (0..100_000).map(|n| format!("-{n}")).collect();
    let status = LabelSelector::parse(&format!("a in ({})", bad.join(","))).unwrap_err();
    assert!(status.message.len() < 100_000);
    let took = testkit::processor_time() - begin;
    assert!(took.as_secs() < 5, "{took:?}");
}
