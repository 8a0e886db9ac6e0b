//! Role aggregation: cluster roles whose rules are the union of the rules of other cluster roles
//! (docs/api/controllers.md#role-aggregation).
//!
//! An aggregated role gets the rules of all roles that at least one of its selectors matches. The rules are
//! in the order of the role names, without duplicates, and replace the previous rules of the aggregated role.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;

/// A label selector. All requirements must be met. An empty selector matches everything.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LabelSelector {
    /// Required labels with their values.
    pub match_labels: Vec<(String, String)>,
    /// Additional requirements of the selector.
    pub match_expressions: Vec<Requirement>,
}

/// A single requirement of a label selector.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Requirement {
    /// Key of the label.
    pub key: String,
    /// Operator: `In`, `NotIn`, `Exists` or `DoesNotExist`. Any other operator matches nothing.
    pub operator: String,
    /// Values of the operators `In` and `NotIn`.
    pub values: Vec<String>,
}

impl LabelSelector {
    /// Returns whether `labels` meet all requirements.
    pub fn matches(&self, labels: &BTreeMap<&str, &str>) -> bool {
        let equal = |(key, value): &(String, String)| labels.get(key.as_str()) == Some(&value.as_str());
        self.match_labels.iter().all(equal)
            && self.match_expressions.iter().all(|requirement| requirement.holds(labels))
    }
}

impl Requirement {
    fn holds(&self, labels: &BTreeMap<&str, &str>) -> bool {
        let value = labels.get(self.key.as_str());
        let listed = value.is_some_and(|value| self.values.iter().any(|wanted| wanted == value));
        match self.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed, // an absent label is not in any set
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

/// A cluster role. `R` is the caller's type of a rule.
#[derive(Clone, Debug)]
pub struct Candidate<'c, R> {
    /// Name of the role.
    pub name: &'c str,
    /// Labels of the role.
    pub labels: BTreeMap<&'c str, &'c str>,
    /// Selectors of the roles that this role aggregates; `None` for a role that is not aggregated.
    pub selectors: Option<Vec<LabelSelector>>,
    /// Rules of the role.
    pub rules: Vec<R>,
}

/// Sets the rules of every aggregated role to the rules of all other roles that it selects, in the order of
/// the role names. Returns the positions of the roles that changed. An aggregated role may select other
/// aggregated roles, to any depth.
///
/// Selectors may form cycles, and most cycles have a stable result. Roles in a cycle without a stable result,
/// and all roles that depend on them, stay unchanged. Therefore writing the result never causes another
/// change.
pub fn settle<R: Clone + Eq + Hash>(roles: &mut [Candidate<'_, R>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..roles.len()).collect();
    order.sort_unstable_by_key(|&at| roles[at].name);
    let members_of = |at: usize| -> Option<(usize, Vec<usize>)> {
        let selectors = roles[at].selectors.as_ref()?;
        let is_member = |&other: &usize| {
            other != at && selectors.iter().any(|selector| selector.matches(&roles[other].labels))
        };
        Some((at, order.iter().copied().filter(is_member).collect()))
    };
    let aggregated: Vec<(usize, Vec<usize>)> = order.iter().copied().filter_map(members_of).collect();
    let before: Vec<Vec<R>> = aggregated.iter().map(|(at, _)| roles[*at].rules.clone()).collect();

    // Without cycles, the rules reach all roles after at most as many rounds as there are aggregated roles.
    // The additional round detects that nothing changes.
    let mut unsettled = Vec::new();
    for _ in 0..=aggregated.len() {
        unsettled.clear();
        for (at, members) in &aggregated {
            let mut seen = HashSet::new();
            let rules = members.iter().flat_map(|&member| &roles[member].rules);
            let rules: Vec<R> = rules.filter(|&rule| seen.insert(rule)).cloned().collect();
            if rules != roles[*at].rules {
                roles[*at].rules = rules;
                unsettled.push(*at);
            }
        }
        if unsettled.is_empty() {
            break;
        }
    }
    let mut changed = Vec::new();
    for ((at, _), before) in aggregated.iter().zip(before) {
        if unsettled.contains(at) {
            roles[*at].rules = before;
        } else if roles[*at].rules != before {
            changed.push(*at);
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aggregated_role_has_the_rules_of_all_matching_roles() {
        let to_view = LabelSelector {
            match_labels: vec![("to-view".to_owned(), "true".to_owned())],
            match_expressions: vec![],
        };
        let by = |operator: &str, values: &[&str]| LabelSelector {
            match_labels: vec![],
            match_expressions: vec![Requirement {
                key: "tier".to_owned(),
                operator: operator.to_owned(),
                values: values.iter().map(|&value| value.to_owned()).collect(),
            }],
        };
        let role = |name, labels: &[(&'static str, &'static str)], rules: &[&'static str]| Candidate {
            name,
            labels: labels.iter().copied().collect(),
            selectors: None,
            rules: rules.to_vec(),
        };
        for (selectors, rules) in [
            (vec![to_view.clone()], "r2 r3 r1"),
            (vec![], ""),
            (vec![LabelSelector::default()], "r2 r3 r4 r1"),
            (vec![by("In", &["y", "q"])], "r4"),
            (vec![by("NotIn", &["y"])], "r2 r3 r1"),
            (vec![by("Exists", &[])], "r2 r3 r4"),
            (vec![by("DoesNotExist", &[])], "r1 r2"),
            (vec![by("Gt", &["1"])], ""),
            (vec![by("In", &["y"]), to_view.clone()], "r2 r3 r4 r1"),
        ] {
            let mut roles = [
                role("z", &[("to-view", "true")], &["r1", "r2"]),
                role("a", &[("to-view", "true"), ("tier", "x")], &["r2", "r3", "r2"]),
                role("b", &[("to-view", "false"), ("tier", "y")], &["r4"]),
                Candidate {
                    selectors: Some(selectors.clone()),
                    ..role("view", &[("to-view", "true")], &["own"])
                },
            ];
            assert_eq!(settle(&mut roles), [3], "{selectors:?}");
            assert_eq!(roles[3].rules.join(" "), rules, "{selectors:?}");
            assert_eq!(settle(&mut roles), [0; 0], "{selectors:?}");
        }
    }

    #[test]
    fn aggregated_roles_in_chains_settle_at_once_and_cycles_terminate() {
        // The rows: roles as `name<selected label:own rules`, and the expected result. Each role has a label
        // with its own name.
        for (roles, want) in [
            ("admin<edit: edit<view: view<x: x:r", "admin:r edit:r view:r x:r"),
            ("a<b:y b<a:x", "a:x b:x"),
            ("a<b:y b<c:z c<a:w d<a:v e<x: x:r", "a:y b:z c:w d:v e:r x:r"),
            ("a:own b<a:own", "a:own b:own"),
        ] {
            let parse = |text: &'static str| {
                let (head, rules) = text.split_once(':').unwrap();
                let (name, selected) = head.split_once('<').map_or((head, None), |(n, s)| (n, Some(s)));
                let selectors = selected.map(|label| {
                    let match_labels = vec![("is".to_owned(), label.to_owned())];
                    vec![LabelSelector { match_labels, match_expressions: vec![] }]
                });
                let rules = if rules.is_empty() { vec![] } else { vec![rules] };
                Candidate { name, labels: [("is", name)].into(), selectors, rules }
            };
            let mut roles: Vec<_> = roles.split(' ').map(parse).collect();
            let before: Vec<_> = roles.iter().map(|role| role.rules.clone()).collect();
            let changed = settle(&mut roles);
            let got: Vec<String> =
                roles.iter().map(|role| format!("{}:{}", role.name, role.rules.join("+"))).collect();
            assert_eq!(got.join(" "), want);
            for (at, before) in before.iter().enumerate() {
                assert_eq!(changed.contains(&at), roles[at].rules != *before, "{want}");
            }
            assert_eq!(settle(&mut roles), [0; 0], "{want}");
        }
    }
}
