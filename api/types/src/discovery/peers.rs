//! Groups of peers in the aggregated document, merged with the groups of this server
//! (docs/api/peers.md#discovery-of-all-types).
//!
//! The result follows the order of each server's list where possible; otherwise entries are sorted by name.
//! If several servers have the same group or version, the group or version is listed once, with the resources
//! of all these servers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use values::json::Value;

/// The three levels of the document.
const GROUPS: Level = Level { name: &["metadata", "name"], parts: Some(("versions", &VERSIONS)) };
const VERSIONS: Level = Level { name: &["version"], parts: Some(("resources", &RESOURCES)) };
const RESOURCES: Level = Level { name: &["resource"], parts: None };

/// A level of the document: the path of an entry's name, and the member that contains the entries of the next
/// level.
struct Level {
    name: &'static [&'static str],
    parts: Option<(&'static str, &'static Level)>,
}

/// Merges the groups of this server with the groups of each peer.
pub(super) fn merged(own: Vec<Value>, peers: &[Vec<Value>]) -> Vec<Value> {
    merge(&GROUPS, own, peers)
}

fn merge(level: &Level, own: Vec<Value>, others: &[Vec<Value>]) -> Vec<Value> {
    let name_of = |entry: &Value| entry.str_at(level.name).to_owned();
    let orders: Vec<Vec<String>> =
        std::iter::once(&own).chain(others).map(|list| list.iter().map(name_of).collect()).collect();
    let mut by_name: HashMap<String, Value> = own.into_iter().map(|entry| (name_of(&entry), entry)).collect();
    for entry in others.iter().flatten() {
        match by_name.get_mut(&name_of(entry)) {
            None => drop(by_name.insert(name_of(entry), entry.clone())),
            Some(known) => match level.parts {
                Some((member, parts)) => join(member, parts, known, entry),
                // If several servers describe a resource, the last description counts.
                None => *known = entry.clone(),
            },
        }
    }
    agreed(&orders).into_iter().filter_map(|name| by_name.remove(&name)).collect()
}

/// Adds the parts of `entry` to the parts of `known`.
fn join(member: &str, parts: &Level, known: &mut Value, entry: &Value) {
    let of_entry = entry.get(member).and_then(Value::as_array).unwrap_or_default().to_vec();
    if let Some(Value::Array(list)) = known.as_object_mut().and_then(|known| known.get_mut(member)) {
        *list = merge(parts, std::mem::take(list), &[of_entry]);
    }
}

/// Returns one order of all names. If one of the lists contains all names, the order of this list is used.
fn agreed(orders: &[Vec<String>]) -> Vec<String> {
    let all: BTreeSet<&String> = orders.iter().flatten().collect();
    if let Some(whole) = orders
        .iter()
        .find(|order| order.len() == all.len() && order.iter().collect::<BTreeSet<_>>().len() == all.len())
    {
        return whole.clone();
    }
    let mut next: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
    for pair in orders.iter().flat_map(|order| order.windows(2)) {
        next.entry(&pair[0]).or_default().insert(&pair[1]);
    }
    // Topological sort: the next name is the first by name among the names without remaining predecessors. If
    // the lists contradict each other, the next name is the first by name among all remaining names.
    let mut before: BTreeMap<&String, usize> = all.iter().map(|name| (*name, 0)).collect();
    for after in next.values().flatten() {
        *before.entry(after).or_default() += 1;
    }
    let mut ordered = Vec::with_capacity(all.len());
    while let Some(name) =
        before.iter().min_by_key(|(name, count)| (usize::from(**count > 0), **name)).map(|(name, _)| *name)
    {
        before.remove(name);
        for after in next.get(name).into_iter().flatten() {
            if let Some(count) = before.get_mut(after) {
                *count = count.saturating_sub(1);
            }
        }
        ordered.push(name.clone());
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json::{parse, write};

    #[test]
    fn the_agreed_order_contains_the_orders_of_all_peers() {
        let cases: [(&[&str], &str); 7] = [
            (&["a b c"], "a b c"),
            (&["b a", "a"], "b a"),
            (&["b a", "b c a"], "b c a"),
            (&["c a", "c b"], "c a b"),
            (&["x a", "b x"], "b x a"),
            (&["", "b a"], "b a"),
            (&["a b", "b a c"], "b a c"),
        ];
        for (orders, want) in cases {
            let orders: Vec<Vec<String>> =
                orders.iter().map(|order| order.split_whitespace().map(str::to_owned).collect()).collect();
            assert_eq!(agreed(&orders).join(" "), want, "{orders:?}");
        }
        // If the lists contradict each other, the result still has each name once.
        let orders = [vec!["a", "b", "d"], vec!["b", "a", "c"]];
        let orders = orders.map(|order| order.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(agreed(&orders).join(" "), "a b c d");
    }

    #[test]
    fn merged_discovery_contains_each_group_version_and_resource_once() {
        let groups = |text: &str| match parse(text.as_bytes()).unwrap() {
            Value::Array(list) => list,
            _ => panic!("no list"),
        };
        let own = r#"[{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[{"resource":"a","x":1}]}]},{"metadata":{"name":"h"},"versions":[{"version":"v1"}]}]"#;
        let peer = r#"[{"metadata":{"name":"f"},"versions":[]},{"metadata":{"name":"g"},"versions":[{"version":"v2","resources":[]},{"version":"v1","resources":[{"resource":"a","x":2},{"resource":"b"}]}]}]"#;
        let merged = merged(groups(own), &[groups(peer)]);
        let mut text = Vec::new();
        write(&Value::Array(merged), &mut text);
        let want = r#"[{"metadata":{"name":"f"},"versions":[]},{"metadata":{"name":"g"},"versions":[{"version":"v2","resources":[]},{"version":"v1","resources":[{"resource":"a","x":2},{"resource":"b"}]}]},{"metadata":{"name":"h"},"versions":[{"version":"v1"}]}]"#;
        assert_eq!(String::from_utf8(text).unwrap(), want);
    }
}
