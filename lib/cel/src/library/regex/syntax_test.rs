//! Tests patterns as RE2 reads them, and its error texts.

use super::*;

#[test]
fn patterns_mean_what_they_mean_in_re2() {
    for (pattern, text, want) in [
        (r"\d+", "x٣12", Some("12")),
        (r"\D+", "12é", Some("é")),
        (r"\w+", "éab_1", Some("ab_1")),
        (r"\s", "\u{b}", None),
        (r"\s", "\u{a0}", None),
        (r"[\s]", "\n", Some("\n")),
        (r"[^\d]", "1é", Some("é")),
        (r"\bé", "aé", Some("é")),
        (r"a\B", "ab", Some("a")),
        (r"(?i)STRASSE", "strasse", Some("strasse")),
        (r"(?s).", "\n", Some("\n")),
        (r"(?U)a+", "aaa", Some("a")),
        (r"(?P<n>a)(?<m>b)", "ab", Some("ab")),
        (r"(?P<n>a)(?P<n>b)", "ab", Some("ab")),
        (r"[+--]", ",", Some(",")),
        (r"[a-z--/]+", "b.", Some("b.")),
        (r"[^]a]", "]ab", Some("b")),
        (r"^*a{", "a{", Some("a{")),
        (r"\.\-\/\_", ".-/_", Some(".-/_")),
        (r"(?)a", "a", Some("a")),
        (r"\Qa.b\E+", "a.bb", Some("a.bb")),
        (r"\Q", "", Some("")),
        (r"[]a]+", "]a", Some("]a")),
        (r"[a-]+", "-a", Some("-a")),
        (r"[[:alpha:]-]+", "a-é", Some("a-")),
        (r"[a&&b]+", "&&", Some("&&")),
        (r"[[a]+", "[a", Some("[a")),
        (r"[a~~b]", "~", Some("~")),
        (r"a{,2}", "a{,2}", Some("a{,2}")),
        (r"a{02}", "a{02}", Some("a{02}")),
        (r"a{2}?", "aaa", Some("aa")),
        (r"a}", "a}", Some("a}")),
        (r"\x{e9}\xe9\351", "ééé", Some("ééé")),
        (r"\012", "\n", Some("\n")),
        (r"\pN\p{Greek}\P{^L}", "1αx", Some("1αx")),
        (r"\p{letter}\p{Any}\p{old italic}*", "aé", Some("aé")),
        (r"# x", "# x", Some("# x")),
        (r"^a$", "a", Some("a")),
        (r"(?m)^b$", "a\nb", Some("b")),
        (r"\x{D800}|a", "a", Some("a")),
        (r"[\x{D700}-\x{E000}]", "\u{e000}", Some("\u{e000}")),
        ("", "x", Some("")),
    ] {
        let regex = compile(pattern).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(regex.find(text).map(|found| found.as_str()), want, "{pattern}");
    }
}

#[test]
fn an_invalid_pattern_is_refused_with_the_reason() {
    for (pattern, want) in [
        ("(", "missing closing ): `(`"),
        ("a(b", "missing closing ): `a(b`"),
        ("a)", "unexpected ): `a)`"),
        ("[", "missing closing ]: `[`"),
        ("a[b", "missing closing ]: `[b`"),
        ("[]", "missing closing ]: `[]`"),
        ("*", "missing argument to repetition operator: `*`"),
        ("a|+?", "missing argument to repetition operator: `+?`"),
        ("(*)", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a*??", "invalid nested repetition operator: `*??`"),
        ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{2,1}", "invalid repeat count: `{2,1}`"),
        ("a{99999999999999999999}", "invalid repeat count: `{99999999999999999999}`"),
        ("((a{100}){100}){100}", "invalid repeat count: `{100}`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        (r"\pX", r"invalid character class range: `\pX`"),
        (r"\p{Foo}", r"invalid character class range: `\p{Foo}`"),
        (r"\p{Alphabetic}", r"invalid character class range: `\p{Alphabetic}`"),
        (r"\p{IsGreek}", r"invalid character class range: `\p{IsGreek}`"),
        (r"\p{L", r"invalid character class range: `\p{L`"),
        (r"\Z", r"invalid escape sequence: `\Z`"),
        (r"\C", r"invalid escape sequence: `\C`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        (r"\8", r"invalid escape sequence: `\8`"),
        (r"\xg", r"invalid escape sequence: `\xg`"),
        (r"\x{110000}", r"invalid escape sequence: `\x{110000`"),
        (r"\é", r"invalid escape sequence: `\é`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?i", "invalid or unsupported Perl syntax: `(?i`"),
        ("(?i-)", "invalid or unsupported Perl syntax: `(?i-)`"),
        ("(?<!a)", "invalid named capture: `(?<!a)`"),
        ("(?P<n!>a)", "invalid named capture: `(?P<n!>`"),
        ("(?P<", "invalid or unsupported Perl syntax: `(?P`"),
        ("(?<", "invalid or unsupported Perl syntax: `(?<`"),
        ("(?P<n", "invalid named capture: `(?P<n`"),
        ("(?i)?", "missing argument to repetition operator: `?`"),
        ("[[:[:alpha:]]", "invalid character class range: `[:[:alpha:]`"),
        ("[[:^^alpha:]]", "invalid character class range: `[:^^alpha:]`"),
    ] {
        assert!(check(pattern).is_err(), "{pattern}");
        let error = compile(pattern).map(|regex| regex.as_str().to_owned()).map_err(|error| error.message);
        assert_eq!(error, Err(format!("error parsing regexp: {want}").into()), "{pattern}");
    }
}

#[test]
fn hostile_patterns_stay_bounded() {
    let deep = format!("{}{}", "(".repeat(100_000), ")".repeat(100_000));
    let large = r"[\pL\pN]{1000}".repeat(100);
    for pattern in [deep, large, r"\pL".repeat(100_000), "{9}".repeat(100_000)] {
        assert!(compile(&pattern).is_err());
    }
    // The time is linear in the length.
    for pattern in ["[[:a]", "{", "{1,", r"\p{Old Italic}", r"\Q\E", "(?P<n>)", "(?i)"] {
        assert!(check(&pattern.repeat(100_000)).is_ok(), "{pattern}");
    }
    assert!(compile(&format!("{}{}", "(".repeat(900), ")".repeat(900))).is_ok());
}
