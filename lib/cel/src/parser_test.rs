use super::*;
use crate::unparse::{outline, unparse};

const START: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, \
                     BYTES, IDENTIFIER}";

fn parsed(text: &str) -> Ast {
    parse(&Source::new(text), Syntax::ALL).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Returns the error messages as `line:column message`; columns count from 1.
fn messages(text: &str, syntax: Syntax) -> Vec<String> {
    let error = parse(&Source::new(text), syntax).expect_err(text);
    let message = |issue: &Issue| {
        let Location { line, column } = issue.location;
        format!("{line}:{} {}", column + 1, issue.message)
    };
    error.issues().iter().map(message).collect()
}

#[test]
fn expressions_are_written_back_with_the_fewest_parentheses() {
    for (text, written) in [
        ("(a + b) * c", "(a + b) * c"),
        ("(a * b) + c", "a * b + c"),
        ("a - (b - c)", "a - (b - c)"),
        ("(a && b) || c", "a && b || c"),
        ("a && (b || c)", "a && (b || c)"),
        ("(a ? b : c) ? d : e", "(a ? b : c) ? d : e"),
        ("!!a", "a"),
        ("---1", "-1"),
        ("-(1)", "-1"),
        ("'a\\'\\n'", "\"a'\\n\""),
        ("b'\\xff'", r#"b"\377""#),
        ("r'\\d'", r#""\\d""#),
        ("1e6", "1e+06.0"),
        ("0xFu", "15u"),
        ("a.?b[?c].d", "a.?b[?c].d"),
        ("[?a, b]", "[?a, b]"),
        ("{?a: b}", "{?a: b}"),
        ("T{f: 1, ?g: x}", "T{f: 1, ?g: x}"),
        ("has( a.b )", "has(a.b)"),
        ("l.all(x, x.exists(y, y))", "l.all(x, x.exists(y, y))"),
        ("(a + b).c", "(a + b).c"),
        ("[1,]", "[1]"),
        ("a // comment", "a"),
    ] {
        assert_eq!(unparse(&parsed(text)), written, "{text}");
    }
}

#[test]
fn macros_become_comprehensions() {
    for (text, shape) in [
        (
            "l.map(x, y)",
            "__comprehension__(\n// Variable\nx,\n// Target\nl,\n// Accumulator\n@result,\n// Init\n[],\n// LoopCondition\ntrue,\n// LoopStep\n_+_(\n@result,\n[\ny\n]\n),\n// Result\n@result)",
        ),
        ("has(a.b)", "a.b~test-only~"),
        (
            "o.optMap(x, y)",
            "_?_:_(\no.hasValue(),\noptional.of(\n__comprehension__(\n// Variable\n#unused,\n// Target\n[],\n// Accumulator\nx,\n// Init\no.value(),\n// LoopCondition\nfalse,\n// LoopStep\nx,\n// Result\ny)\n),\noptional.none()\n)",
        ),
    ] {
        let outline: Vec<String> =
            outline(&parsed(text)).lines().map(|line| line.trim().to_owned()).collect();
        assert_eq!(outline.join("\n"), shape, "{text}");
    }
}

#[test]
fn long_chains_of_logic_are_balanced() {
    let text = vec!["a"; 1000].join(" && ");
    let depth = outline(&parsed(&text)).lines().map(|line| line.len() - line.trim_start().len()).max();
    assert_eq!(depth, Some(20), "two spaces for each of the levels");
}

#[test]
fn syntax_errors_have_the_texts_of_the_reference() {
    let mismatched = format!("1:4 Syntax error: mismatched input '<EOF>' expecting {START}");
    for (text, expected) in [
        ("1 +", vec![mismatched.as_str()]),
        ("1 x", vec!["1:3 Syntax error: extraneous input 'x' expecting <EOF>"]),
        ("l[0", vec!["1:4 Syntax error: missing ']' at '<EOF>'"]),
        ("{'a' 1}", vec!["1:6 Syntax error: missing ':' at '1'"]),
        ("[1", vec!["1:3 Syntax error: mismatched input '<EOF>' expecting {']', ','}"]),
        ("-!true", vec!["1:2 Syntax error: no viable alternative at input '-!'"]),
        ("a.true", vec!["1:3 Syntax error: mismatched input 'true' expecting IDENTIFIER"]),
        ("x$", vec!["1:2 Syntax error: token recognition error at: '$'"]),
        ("a\n\tb", vec!["2:2 Syntax error: extraneous input 'b' expecting <EOF>"]),
        (
            "{'a', 'b'}",
            vec![
                "1:5 Syntax error: mismatched input ',' expecting ':'",
                "1:7 Syntax error: extraneous input ''b'' expecting '}'",
            ],
        ),
        (
            "v.?1",
            vec![
                "1:4 Syntax error: mismatched input '1' expecting {IDENTIFIER, ESC_IDENTIFIER}",
                "1:4 unsupported ident kind",
            ],
        ),
    ] {
        assert_eq!(messages(text, Syntax::ALL), expected, "{text}");
    }
}

#[test]
fn texts_that_the_grammar_accepts_may_still_be_refused() {
    let core = Syntax { optionals: false, two_variables: false, sort_by: false, bindings: false };
    for (text, expected) in [
        ("if", "1:1 reserved identifier: if"),
        ("if(a.`b`)", "1:1 reserved identifier: if"),
        ("9223372036854775808", "1:1 invalid int literal"),
        ("18446744073709551616u", "1:1 invalid uint literal"),
        ("1e999", "1:1 invalid double literal"),
        ("'\\UFFFFFFFF'", "1:1 invalid unicode code point"),
        ("b'\\u00e9'", "1:1 unable to unescape string"),
        ("a.`b`", "1:3 unsupported syntax: '`'"),
        ("a.?b", "1:2 unsupported syntax '.?'"),
        ("a[?b]", "1:2 unsupported syntax '[?'"),
        ("[?a]", "1:2 unsupported syntax '?'"),
        ("has(a)", "1:5 invalid argument to has() macro"),
        ("l.all(1, true)", "1:7 argument must be a simple name"),
        ("l.map(__result__, 1)", "1:7 iteration variable overwrites accumulator variable"),
    ] {
        assert_eq!(messages(text, core)[0], expected, "{text}");
    }
    assert_eq!(messages("l.all(e, e, true)", Syntax::ALL), ["1:10 duplicate variable name: e"]);
    let bound = "1:10 cel.bind() variable names must be simple identifiers";
    assert_eq!(messages("cel.bind(1, 2, 3)", Syntax::ALL), [bound]);
    for text in ["cel.bind(1, 2, 3)", "a.bind(1, 2, 3)"] {
        assert!(parse(&Source::new(text), core).is_ok(), "{text}");
    }
}

#[test]
fn depth_and_size_are_limited() {
    let nested = |open: &str, n: usize, close: &str| format!("{}1{}", open.repeat(n), close.repeat(n));
    let recursion = "-1:0 expression recursion limit exceeded: 250";
    let chain = "-1:0 max recursion depth exceeded";
    for (text, expected) in [
        (nested("(", 250, ")"), recursion),
        (nested("[", 100_000 / 2 - 1, "]"), recursion),
        ("true ? 1 : ".repeat(250) + "0", recursion),
        (nested("1 + ", 251, ""), chain),
        (format!("a{}", ".b".repeat(49_000)), chain),
        (format!("a{}", "[0]".repeat(251)), chain),
        ("a".repeat(100_001), "-1:0 expression code point size exceeds limit: size: 100001, limit 100000"),
    ] {
        assert_eq!(messages(&text, Syntax::ALL), [expected], "{}", &text[..20]);
    }
    parsed(&nested("(", 249, ")"));
    parsed(&nested("1 + ", 250, ""));
    parsed(&"a".repeat(100_000));
}

/// The recursion of the parser leaves room for the callers on a stack of 2 MiB, even without optimisation.
#[test]
fn parsing_the_deepest_expressions_uses_at_most_half_of_a_stack() {
    let nested =
        |open: &str, close: &str, count: usize| format!("{}x{}", open.repeat(count), close.repeat(count));
    for text in [
        nested("(", ")", 249),
        nested("(", ")", 5_000),
        nested("[", "]", 249),
        nested("{1: ", "}", 249),
        nested("-(", ")", 249),
        nested("f(", ")", 200),
        nested("true ? (", ") : 0", 124),
        nested("x + (", ")", 124),
    ] {
        let run = move || drop(parse(&Source::new(&*text), Syntax::ALL));
        std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
    }
}

#[test]
fn macros_that_double_the_tree_stop_at_the_node_limit() {
    let text = format!("x{}", ".optMap(a, a)".repeat(100));
    assert_eq!(messages(&text, Syntax::ALL), ["-1:0 expression node count exceeds limit: 200000"]);
}

#[test]
fn error_recovery_ends_after_thirty_errors() {
    let found = messages(&"(1 2 3)+".repeat(60), Syntax::ALL);
    assert!(
        found.last().is_some_and(|last| last.contains("error recovery attempt limit exceeded: 30")),
        "{found:?}"
    );
}

#[test]
fn error_markers_under_wide_characters_are_wide() {
    let error = parse(&Source::new("'é' 中"), Syntax::ALL).expect_err("a character that starts no token");
    let text = "ERROR: <input>:1:5: Syntax error: token recognition error at: '中'\n | 'é' 中\n | .．..＾";
    assert_eq!(error.to_string(), text);
}
