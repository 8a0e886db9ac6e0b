//! Helpers that the plugins for pods share: the containers of a pod, string maps, and sums of resources.

use std::collections::BTreeMap;

use quantity::Quantity;

use values::json::{Object, Value};
use values::object::at;

/// List of the containers that run before the main containers.
pub const INIT: &str = "initContainers";
/// List of the main containers.
pub const MAIN: &str = "containers";
/// List of the containers that are added to a running pod.
pub const EPHEMERAL: &str = "ephemeralContainers";

/// Returns the elements of a list in the specification of a pod.
pub fn list<'p>(pod: &'p Object, name: &str) -> &'p [Value] {
    pod.get("spec").and_then(|spec| spec.get(name)).and_then(Value::as_array).unwrap_or_default()
}

/// Returns the elements of such a list as mutable objects; the result is empty if the list is missing.
pub fn list_mut<'p>(pod: &'p mut Object, name: &'static str) -> impl Iterator<Item = &'p mut Object> {
    let spec = pod.get_mut("spec").and_then(Value::as_object_mut);
    let list = spec.and_then(|spec| spec.get_mut(name)).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Appends an item to a list of an object, and creates the list if it is missing.
pub fn append(object: &mut Object, list: &'static str, item: Value) {
    let slot = object.entry(list);
    match slot {
        Value::Array(items) => items.push(item),
        other => *other = Value::Array(vec![item]),
    }
}

/// Returns a string of the specification of a pod; empty when absent.
pub fn text<'p>(pod: &'p Object, name: &str) -> &'p str {
    pod.get("spec").map_or("", |spec| spec.str_at(&[name]))
}

/// Returns the pairs of a string map.
pub fn pairs(map: Option<&Value>) -> impl Iterator<Item = (&str, &str)> {
    let members = map.and_then(Value::as_object).into_iter().flat_map(Object::iter);
    members.map(|(key, value)| (key, value.as_str().unwrap_or_default()))
}

/// Returns an annotation of an object.
pub fn annotation<'o>(object: &'o Object, name: &str) -> Option<&'o str> {
    object.get("metadata")?.at(&["annotations", name])?.as_str()
}

/// Returns whether a resource belongs to a domain other than the system's domains.
pub fn is_extended(domain: &str, name: &str) -> bool {
    name.split_once('/').is_some_and(|(prefix, _)| !prefix.ends_with(domain))
        && !name.starts_with("requests.")
}

/// Amounts of resources by name.
pub type Amounts = BTreeMap<String, Quantity>;

/// Returns the amounts in a map of quantities. Decoding has already refused invalid quantities.
pub fn amounts(map: Option<&Value>) -> Amounts {
    let members = map.and_then(Value::as_object).into_iter().flat_map(Object::iter);
    members.filter_map(|(name, value)| Some((name.to_owned(), quantity(value)?))).collect()
}

/// Parses a quantity of an object.
pub fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Int(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

/// Adds the amounts of `more` to `to`.
pub fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = to.get(name).map_or(*amount, |have| have.plus(*amount));
        to.insert(name.clone(), sum);
    }
}

/// Raises each amount of `to` to at least that of `least`.
pub fn raise(to: &mut Amounts, least: &Amounts) {
    for (name, amount) in least {
        if to.get(name).is_none_or(|have| have < amount) {
            to.insert(name.clone(), *amount);
        }
    }
}

/// The kind of amounts of a container.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bound {
    /// The amounts that a container requests.
    Requests,
    /// The amounts that a container must not exceed.
    Limits,
}

impl Bound {
    /// Returns the name of the member with these amounts.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Requests => "requests",
            Bound::Limits => "limits",
        }
    }
}

/// Returns what the containers of a pod need together: the sum of those that run at the same time, but at
/// least what each init container needs together with the restartable ones before it (KEP 753).
pub fn of_containers(pod: &Object, bound: Bound) -> Amounts {
    let of = |container: &Value| amounts(container.at(&["resources", bound.name()]));
    let mut sum = Amounts::new();
    for container in list(pod, MAIN) {
        add(&mut sum, &of(container));
    }
    let (mut restartable, mut before) = (Amounts::new(), Amounts::new());
    for container in list(pod, INIT) {
        let mut this = of(container);
        if container.str_at(&["restartPolicy"]) == "Always" {
            add(&mut sum, &this);
            add(&mut restartable, &this);
            this = restartable.clone();
        } else {
            add(&mut this, &restartable);
        }
        raise(&mut before, &this);
    }
    raise(&mut sum, &before);
    sum
}

/// Returns what a pod needs without its overhead: the amounts set on the pod itself, else the sum of its
/// containers (KEP 2837).
pub fn of_pod_alone(pod: &Object, bound: Bound) -> Amounts {
    let mut all = of_containers(pod, bound);
    all.extend(amounts(at(pod, "spec.resources").and_then(|resources| resources.get(bound.name()))));
    all
}

/// Returns what a pod needs as a whole, including its overhead.
pub fn of_pod(pod: &Object, bound: Bound) -> Amounts {
    let mut all = of_pod_alone(pod, bound);
    for (name, overhead) in amounts(at(pod, "spec.overhead")) {
        // Overhead does not create a limit where none was set.
        match all.get(&name) {
            Some(have) => drop(all.insert(name, have.plus(overhead))),
            None if bound == Bound::Requests => drop(all.insert(name, overhead)),
            None => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::object;

    fn shown(amounts: &Amounts) -> String {
        let shown = amounts.iter().map(|(name, amount)| format!("{name}={}", amount.to_text()));
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn containers_add_up_and_those_before_them_are_a_least() {
        let container = |cpu: &str, more: &str| {
            format!(r#"{{"name":"c","resources":{{"requests":{{"cpu":"{cpu}"}}}}{more}}}"#)
        };
        let sidecar = r#","restartPolicy":"Always""#;
        for (init, main, more, want) in [
            ("".to_owned(), container("1", "") + "," + &container("500m", ""), "", "cpu=1500m"),
            (container("3", ""), container("1", ""), "", "cpu=3"),
            (container("1", sidecar), container("1", ""), "", "cpu=2"),
            (container("1", sidecar) + "," + &container("3", ""), container("1", ""), "", "cpu=4"),
            (
                "".to_owned(),
                container("1", ""),
                r#","overhead":{"cpu":"100m","memory":"1Mi"}"#,
                "cpu=1100m memory=1Mi",
            ),
            ("".to_owned(), container("1", ""), r#","resources":{"requests":{"cpu":"5"}}"#, "cpu=5"),
        ] {
            let pod =
                object(&format!(r#"{{"spec":{{"initContainers":[{init}],"containers":[{main}]{more}}}}}"#));
            assert_eq!(shown(&of_pod(&pod, Bound::Requests)), want, "{init} {main} {more}");
        }
    }
}
