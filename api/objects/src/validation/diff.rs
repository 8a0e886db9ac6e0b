//! Unified differences of two structs, computed from the lines of their indented JSON. The reference server
//! appends such a difference to the error for a refused change.
//!
//! ```text
//! two trees ─► lines ─► matching runs, the longest first ─► hunks with three lines around each change
//! ```
//!
//! The matching is that of Python's `difflib` (Ratcliff and Obershelp), which the library of the reference
//! server also uses. The algorithm finds the longest common run of lines, and repeats the search before and
//! after this run. Lines that are frequent in a long text do not start a run. The cost is limited: texts of
//! more than [`LINES_MAX`] lines are compared only from both ends.

use std::fmt::Write;
use std::ops::Range;

use hashbrown::HashMap;

use values::json::{self, Indenter, Value};

/// Number of unchanged lines around a change.
const CONTEXT: usize = 3;

/// Minimum number of lines of a text in which frequent lines do not start a run.
const FREQUENT_FROM: usize = 200;

/// Maximum number of lines of the longer text for a search of runs. The search takes some milliseconds.
const LINES_MAX: usize = 4000;

/// A change that replaces lines of the old text by lines of the new text. Either range may be empty.
type Change = (Range<usize>, Range<usize>);

/// Returns the hunks of the difference from `old` to `new`, with a newline after each line. The result is
/// empty if both values are equal.
pub(super) fn unified(old: &Value, new: &Value) -> String {
    let (old, new) = (text(old), text(new));
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    hunks(&old, &new, &changes(&old, &new))
}

/// Returns the lines of a value, indented by one space per level.
fn text(value: &Value) -> String {
    let (mut compact, mut indented) = (Vec::new(), Vec::new());
    json::write(value, &mut compact);
    Indenter::default().push(&compact, &mut indented);
    let mut out = String::with_capacity(indented.len());
    for line in String::from_utf8_lossy(&indented).lines() {
        let content = line.trim_start_matches(' ');
        out.extend(std::iter::repeat_n(' ', (line.len() - content.len()) / 2));
        out.push_str(content);
        out.push('\n');
    }
    out
}

/// Returns the differences in order.
fn changes(old: &[&str], new: &[&str]) -> Vec<Change> {
    let mut runs = Vec::new();
    if old.len().max(new.len()) <= LINES_MAX {
        runs = matching(old, new);
    } else {
        let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
        let (old_rest, new_rest) = (&old[head..], &new[head..]);
        let tail = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(a, b)| a == b).count();
        runs.extend([(0, 0, head), (old.len() - tail, new.len() - tail, tail)]);
    }
    runs.push((old.len(), new.len(), 0));
    let (mut at_old, mut at_new) = (0, 0);
    let mut changes = Vec::new();
    for (in_old, in_new, length) in runs {
        if at_old < in_old || at_new < in_new {
            changes.push((at_old..in_old, at_new..in_new));
        }
        (at_old, at_new) = (in_old + length, in_new + length);
    }
    changes
}

/// Returns the matching runs in order. Each run has its start in the old text, its start in the new text, and
/// its length.
fn matching(old: &[&str], new: &[&str]) -> Vec<(usize, usize, usize)> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, line) in new.iter().enumerate() {
        places.entry(line).or_default().push(at);
    }
    if new.len() >= FREQUENT_FROM {
        let often = new.len() / 100 + 1;
        places.retain(|_, at| at.len() <= often);
    }
    let mut runs = Vec::new();
    let mut open = vec![(0..old.len(), 0..new.len())];
    while let Some((in_old, in_new)) = open.pop() {
        let (a, b, length) = longest(old, new, &places, in_old.clone(), in_new.clone());
        if length == 0 {
            continue;
        }
        runs.push((a, b, length));
        open.push((in_old.start..a, in_new.start..b));
        open.push((a + length..in_old.end, b + length..in_new.end));
    }
    runs.sort_unstable();
    runs
}

/// Returns the longest run in these ranges of both texts; the first run if several runs have the same maximum length.
fn longest(
    old: &[&str],
    new: &[&str],
    places: &HashMap<&str, Vec<usize>>,
    in_old: Range<usize>,
    in_new: Range<usize>,
) -> (usize, usize, usize) {
    let (mut a, mut b, mut length) = (in_old.start, in_new.start, 0);
    // Lengths of the runs that end at each line of the new text and at the previous line of the old text.
    let mut ends: HashMap<usize, usize> = HashMap::new();
    for at in in_old.clone() {
        let mut next = HashMap::new();
        let found = places.get(old[at]).map_or(&[][..], Vec::as_slice);
        for &place in found.iter().filter(|place| in_new.contains(*place)) {
            let run = 1 + place.checked_sub(1).and_then(|before| ends.get(&before)).copied().unwrap_or(0);
            next.insert(place, run);
            if run > length {
                (a, b, length) = (at + 1 - run, place + 1 - run, run);
            }
        }
        ends = next;
    }
    // Frequent lines do not start a run, but extend an adjacent run.
    while a > in_old.start && b > in_new.start && old[a - 1] == new[b - 1] {
        (a, b, length) = (a - 1, b - 1, length + 1);
    }
    while a + length < in_old.end && b + length < in_new.end && old[a + length] == new[b + length] {
        length += 1;
    }
    (a, b, length)
}

fn hunks(old: &[&str], new: &[&str], changes: &[Change]) -> String {
    let mut out = String::new();
    let mut rest = changes;
    while let [(first, first_new), ..] = rest {
        // Changes with overlapping context are in the same hunk.
        let shared =
            rest.windows(2).take_while(|pair| pair[1].0.start - pair[0].0.end <= 2 * CONTEXT).count() + 1;
        let (group, others) = rest.split_at(shared);
        rest = others;
        let Some((last, last_new)) = group.last() else { return out };
        let from = first.start.saturating_sub(CONTEXT);
        let from_new = first_new.start.saturating_sub(CONTEXT);
        let to = (last.end + CONTEXT).min(old.len());
        let to_new = (last_new.end + CONTEXT).min(new.len());
        let _ = writeln!(out, "@@ -{} +{} @@", range(from..to), range(from_new..to_new));
        let mut at = from;
        for (lines, new_lines) in group {
            push_lines(&mut out, ' ', &old[at..lines.start]);
            push_lines(&mut out, '-', &old[lines.clone()]);
            push_lines(&mut out, '+', &new[new_lines.clone()]);
            at = lines.end;
        }
        push_lines(&mut out, ' ', &old[at..to]);
    }
    out
}

fn push_lines(out: &mut String, sign: char, lines: &[&str]) {
    for line in lines {
        let _ = writeln!(out, "{sign}{line}");
    }
}

/// Formats a range of lines for the header of a hunk. Lines are counted from 1. An empty range has the number
/// of the previous line.
fn range(lines: Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => (lines.start + 1).to_string(),
        length => format!("{},{length}", lines.start + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_has_three_lines_around_each_change() {
        for (old, new, want) in [
            (r#"{"a":1}"#, r#"{"a":1}"#, ""),
            (
                r#"{"a":["x:{"],"b":null,"c":{},"d":[1,2],"e":1}"#,
                r#"{"a":["y:{"],"b":null,"c":{},"d":[1,2],"e":1}"#,
                "@@ -1,6 +1,6 @@\n {\n  \"a\": [\n-  \"x:{\"\n+  \"y:{\"\n  ],\n  \"b\": null,\n  \"c\": {},\n",
            ),
            ("[]", "[1]", "@@ -1 +1,3 @@\n-[]\n+[\n+ 1\n+]\n"),
            // Two changes with more unchanged lines between them than twice the context have separate hunks.
            (
                "[1,0,0,0,0,0,0,0,2]",
                "[3,0,0,0,0,0,0,0,4]",
                "@@ -1,5 +1,5 @@\n [\n- 1,\n+ 3,\n  0,\n  0,\n  0,\n@@ -7,5 +7,5 @@\n  0,\n  0,\n  0,\n- 2\n+ 4\n ]\n",
            ),
        ] {
            let tree = |text: &str| json::parse(text.as_bytes()).unwrap();
            assert_eq!(unified(&tree(old), &tree(new)), want, "{old} {new}");
        }
    }

    #[test]
    fn the_diff_of_long_texts_skips_equal_lines_at_both_ends() {
        let list = |middle: i64| {
            Value::Array(
                (0..LINES_MAX as i64).map(|at| Value::Int(if at == 9 { middle } else { at })).collect(),
            )
        };
        let want = "@@ -8,7 +8,7 @@\n  6,\n  7,\n  8,\n- 9,\n+ -1,\n  10,\n  11,\n  12,\n";
        assert_eq!(unified(&list(9), &list(-1)), want);
    }
}
