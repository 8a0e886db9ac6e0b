//! Selectors: the canonical form of a parsed selector parses to the same selector.

use std::collections::BTreeMap;

use types::schema::builtin;
use types::schema::table::ResourceTable;
use types::selector::{FieldSelector, FieldTerms, LabelSelector};
use values::naming::CLUSTER;

use super::check_refusal;
use crate::input::Input;

/// Parses a label selector, writes it and parses it again: both selectors must be equal and match the
/// same labels.
pub fn label_selector(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let selector = match LabelSelector::parse(text) {
        Ok(selector) => selector,
        Err(status) => return check_refusal(&status, &[400]),
    };
    let canonical = selector.to_string();
    let again = LabelSelector::parse(&canonical).expect("the canonical form parses");
    assert_eq!(again, selector, "{canonical}");
    assert_eq!(again.to_string(), canonical);
    assert!(selector.requirements().is_sorted_by_key(|requirement| requirement.key()));

    // Use labels that are likely to matter: the selected keys with the selected values.
    let mut labels: BTreeMap<&str, &str> = BTreeMap::new();
    for (at, requirement) in selector.requirements().iter().enumerate() {
        if data[at % data.len()] & 1 == 1 {
            labels.insert(requirement.key(), requirement.values().first().map_or("1", String::as_str));
        }
    }
    let holds = selector.requirements().iter().all(|one| one.matches(labels.get(one.key()).copied()));
    assert_eq!(selector.matches(|key| labels.get(key).copied()), holds && !selector.is_nothing());
}

/// Parses a field selector, writes it and parses it again: the terms must be the same. Also resolves the
/// selector for every resource.
pub fn field_selector(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let terms = match FieldTerms::parse(text) {
        Ok(terms) => terms,
        Err(status) => return check_refusal(&status, &[400]),
    };
    let canonical = terms.to_string();
    let again = FieldTerms::parse(&canonical).expect("the canonical form parses");
    // Terms are sorted by their text, so `a==b` and `a=a` change their order in canonical form.
    let sorted = |terms: &FieldTerms| {
        let mut terms = terms.terms().to_vec();
        terms.sort_by(|a, b| (&a.label, a.equals, &a.value).cmp(&(&b.label, b.equals, &b.value)));
        terms
    };
    assert_eq!(sorted(&again), sorted(&terms), "{canonical}");
    let settled = again.to_string();
    assert_eq!(FieldTerms::parse(&settled).expect("the canonical form parses").to_string(), settled);

    let table = some_resource(&mut Input::new(data));
    match FieldSelector::parse(text, table, table) {
        Ok(selector) => {
            assert_eq!(selector.is_everything(), terms.terms().is_empty());
            let slot =
                |at: usize| terms.terms().get(at % terms.terms().len().max(1)).map_or("", |term| &term.value);
            // The required name is a condition: an object with another name is never selected.
            if let Some(name) = selector.exact_name() {
                assert!(!selector.matches(&format!("{name}x"), "", slot));
            }
        }
        Err(status) => check_refusal(&status, &[400]),
    }
}

/// Returns one of the built-in resources.
pub(super) fn some_resource(input: &mut Input) -> &'static ResourceTable {
    let tables = || {
        builtin::groups(&CLUSTER)
            .iter()
            .flat_map(|group| group.versions)
            .flat_map(|version| version.resources)
    };
    tables().nth(input.below(tables().count())).expect("below the count")
}
