//! Tests of the set operations on field paths: a table for each operation, and laws on random sets.

use std::collections::BTreeSet;

use super::*;
use crate::field::display;
use testkit::Random;

/// Parses a set written as paths: `a.b` is member b of member a.
fn set(paths: &'static str) -> FieldSet<'static> {
    let paths: Vec<&str> = paths.split_whitespace().collect();
    FieldSet::of_fields(&paths)
}

fn paths(set: &FieldSet<'_>) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    set.for_each(&mut |path| {
        assert!(paths.insert(display(path)[1..].to_owned()));
    });
    assert_eq!(paths.len(), set.len());
    paths
}

fn paths_text(set: &FieldSet<'_>) -> String {
    paths(set).into_iter().collect::<Vec<_>>().join(" ")
}

#[test]
fn field_set_operations_work_path_by_path() {
    for (a, b, union, difference, recursive, intersection, within) in [
        ("a b", "b c", "a b c", "a", "a", "b", "b"),
        ("a.x a.y", "a.y a.z", "a.x a.y a.z", "a.x", "a.x", "a.y", "a.y"),
        // Membership does not include longer paths; only the recursive difference and `within` consider them.
        ("a a.x", "a", "a a.x", "a.x", "", "a", "a a.x"),
        ("a.x", "a", "a a.x", "a.x", "", "", "a.x"),
        ("a", "a.x", "a a.x", "a", "a", "", ""),
        ("a a.x a.y", "a.x", "a a.x a.y", "a a.y", "a a.y", "a.x", "a.x"),
        ("a", "", "a", "a", "a", "", ""),
        ("", "a", "a", "", "", "", ""),
    ] {
        let at = format!("{a} | {b}");
        assert_eq!(paths_text(&set(a).union(set(b))), union, "union {at}");
        assert_eq!(paths_text(&set(a).difference(&set(b))), difference, "difference {at}");
        assert_eq!(paths_text(&set(a).recursive_difference(&set(b))), recursive, "recursive difference {at}");
        assert_eq!(paths_text(&set(a).intersection(&set(b))), intersection, "intersection {at}");
        assert_eq!(paths_text(&set(a).within(&set(b))), within, "within {at}");
    }
}

#[test]
fn leaves_are_members_without_members_below() {
    for (all, leaves) in [("a a.x b", "a.x b"), ("a.x a.x.y", "a.x.y"), ("", ""), ("a", "a")] {
        assert_eq!(paths_text(&set(all).leaves()), leaves, "{all}");
    }
}

#[test]
fn iteration_visits_members_before_deeper_paths() {
    let mut order = Vec::new();
    set("b a.x c.y.z c a.w").for_each(&mut |path| order.push(display(path)));
    assert_eq!(order, [".b", ".c", ".a.w", ".a.x", ".c.y.z"]);
}

#[test]
fn the_laws_of_sets_hold_for_random_field_sets() {
    let mut random = Random(7);
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let mut make = || {
        let mut made = FieldSet::new();
        for _ in 0..random.index(12) {
            let path: Vec<Element<'_>> =
                (0..=random.index(3)).map(|_| Element::field(random.pick(&NAMES))).collect();
            made.insert(&path);
        }
        made
    };
    for _ in 0..3_000 {
        let (a, b, c) = (make(), make(), make());
        let model = |a: &FieldSet<'_>| paths(a);
        // Comparison with the model, a plain set of paths.
        assert_eq!(model(&a.clone().union(b.clone())), &model(&a) | &model(&b));
        assert_eq!(model(&a.clone().difference(&b)), &model(&a) - &model(&b));
        assert_eq!(model(&a.clone().intersection(&b)), &model(&a) & &model(&b));
        assert_eq!(a.intersects(&b), !a.clone().intersection(&b).is_empty());
        assert_eq!(a.is_subset(&b), model(&a).is_subset(&model(&b)));
        assert!(a.clone().intersection(&b).is_subset(&a) && a.is_subset(&a.clone().union(b.clone())));
        let below = |path: &String| {
            model(&b).iter().any(|other| path == other || path.starts_with(&format!("{other}.")))
        };
        let (inside, outside): (BTreeSet<_>, BTreeSet<_>) = model(&a).into_iter().partition(below);
        assert_eq!(model(&a.clone().within(&b)), inside);
        assert_eq!(model(&a.clone().recursive_difference(&b)), outside);
        // Equal sets have equal structure, however they were built.
        assert_eq!(a.clone().union(b.clone()), b.clone().union(a.clone()));
        assert_eq!(a.clone().union(b.clone()).union(c.clone()), a.clone().union(b.clone().union(c.clone())));
        assert_eq!(a.clone().difference(&b).union(a.clone().intersection(&b)), a);
        assert_eq!(
            a.clone().difference(&b).difference(&c),
            a.clone().difference(&b.clone().union(c.clone()))
        );
        assert_eq!(FieldSet::parse(&a.text()).unwrap(), a);
        assert_eq!(a.clone().into_owned(), a);
        for path in model(&a) {
            let path: Vec<Element<'_>> = path.split('.').map(Element::field).collect();
            assert!(a.has(&path));
        }
        assert!(model(&a.leaves()).is_subset(&model(&a)));
    }
}
