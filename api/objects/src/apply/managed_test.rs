//! Tests of managed fields: parsing, writing, order, limits.

use super::*;
use values::json::{parse, write};

fn value(text: &str) -> Value {
    parse(text.as_bytes()).unwrap()
}

fn entry(name: &str, operation: &str, version: &str, time: &str, fields: &str) -> String {
    let time = if time.is_empty() { String::new() } else { format!(r#""time":"2024-01-01T00:00:{time}Z","#) };
    let fields = fields.replace('"', "\\\"");
    format!(
        r#"{{"manager":"{name}","operation":"{operation}","apiVersion":"{version}",{time}"fieldsType":"FieldsV1","fieldsV1":"{fields}"}}"#
    )
}

fn written(managed: Managed<'_>) -> Vec<String> {
    let Some(Value::Array(items)) = managed.into_value() else { return Vec::new() };
    items
        .iter()
        .map(|item| {
            let mut out = Vec::new();
            write(item, &mut out);
            String::from_utf8(out).unwrap()
        })
        .collect()
}

#[test]
fn managed_fields_entries_are_sorted() {
    let entries = [
        entry("z", "Apply", "v1", "09", r#"{"f:a":{}}"#),
        entry("b", "Update", "v1", "", r#"{"f:a":{}}"#),
        entry("a", "Update", "v1", "05", r#"{"f:a":{}}"#),
        entry("a", "Update", "v2", "05", r#"{"f:a":{}}"#),
        entry("b", "Update", "v1beta1", "05", r#"{"f:a":{}}"#),
        entry("a", "Update", "v3", "06", r#"{"f:a":{}}"#),
    ];
    let mut shuffled = entries.to_vec();
    shuffled.reverse();
    shuffled.swap(0, 3);
    let items = value(&format!("[{}]", shuffled.join(",")));
    let Requested::These(managed) = Managed::requested(&items, &Managed::default()) else {
        panic!("readable")
    };
    assert_eq!(written(managed), entries);
}

#[test]
fn managed_fields_of_a_request_are_ignored_reset_or_replaced() {
    let good = entry("a", "Update", "v1", "01", r#"{"f:a":{}}"#);
    let bad = |from: &str, to: &str| format!("[{good},{}]", good.replace(from, to));
    for (given, want) in [
        ("null".to_owned(), "nothing"),
        ("[{}]".to_owned(), "reset"),
        ("[{},{}]".to_owned(), "nothing"),
        (format!("[{good}]"), "1"),
        // Two entries have the same manager: the later entry wins.
        (format!("[{good},{good}]"), "1"),
        (bad("Update", "Apply"), "2"),
        (bad("v1\"", "v2\""), "2"),
        // A malformed entry invalidates all entries.
        (bad("Update", "Patch"), "nothing"),
        (bad("\"v1\"", "\"\""), "nothing"),
        (bad("FieldsV1", "FieldsV2"), "nothing"),
        (bad("f:a", "fa"), "nothing"),
        (bad(r#"{\"f:a\":{}}"#, "[]"), "nothing"),
    ] {
        let items = value(&given);
        let got = match Managed::requested(&items, &Managed::default()) {
            Requested::Nothing => "nothing".to_owned(),
            Requested::Reset => "reset".to_owned(),
            Requested::These(managed) => managed.entries().len().to_string(),
        };
        assert_eq!(got, want, "{given}");
    }
}

#[test]
fn the_eleventh_updater_merges_the_two_oldest_entries_of_one_version() {
    // docs/api/apply.md#ownership-of-updates. The apply entry does not count towards the limit.
    let mut entries = vec![entry("applied", "Apply", "v1", "00", r#"{"f:z":{}}"#)];
    entries.push(entry("lonely", "Update", "v2", "01", r#"{"f:l":{}}"#));
    for at in 2..12 {
        entries.push(entry(
            &format!("m{at:02}"),
            "Update",
            "v1",
            &format!("{at:02}"),
            &format!(r#"{{"f:m{at}":{{}}}}"#),
        ));
    }
    let items = value(&format!("[{}]", entries.join(",")));
    let Requested::These(mut managed) = Managed::requested(&items, &Managed::default()) else {
        panic!("readable")
    };
    managed.cap();
    let after = written(managed);
    assert_eq!(after.len(), 11);
    assert_eq!(after[1], entries[1], "the only entry of its version is kept");
    assert_eq!(after[2], entry("ancient-changes", "Update", "v1", "03", r#"{"f:m2":{},"f:m3":{}}"#));
    assert_eq!(after[3], entries[4]);
    // The merged entry takes further entries.
    let mut entries = after;
    entries.push(entry("m12", "Update", "v1", "12", r#"{"f:m12":{}}"#));
    let items = value(&format!("[{}]", entries.join(",")));
    let Requested::These(mut managed) = Managed::requested(&items, &Managed::default()) else {
        panic!("readable")
    };
    managed.cap();
    let after = written(managed);
    assert_eq!(after.len(), 11);
    assert_eq!(
        after[2],
        entry("ancient-changes", "Update", "v1", "04", r#"{"f:m2":{},"f:m3":{},"f:m4":{}}"#)
    );
}

#[test]
fn is_same_but_for_times_ignores_only_the_times_of_entries() {
    let at = |time: &str| value(&format!("[{}]", entry("a", "Update", "v1", time, r#"{"f:a":{}}"#)));
    assert!(is_same_but_for_times(Some(&at("01")), Some(&at("02"))));
    assert!(is_same_but_for_times(None, None));
    assert!(!is_same_but_for_times(Some(&at("01")), None));
    let other = value(&format!("[{}]", entry("a", "Update", "v1", "01", r#"{"f:b":{}}"#)));
    assert!(!is_same_but_for_times(Some(&at("01")), Some(&other)));
}
