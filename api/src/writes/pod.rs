//! Helper functions that the plugins for pods share: the containers of a pod, string maps, and sums of
//! resources.

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

/// Returns the elements of a list in the specification of a pod as mutable objects. The result is empty if
/// the list is missing.
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

/// Returns a string in the specification of a pod; empty if the member is missing.
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

/// Returns whether the name of a resource has a domain outside the system's domain.
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

/// Raises each amount in `to` to at least the amount in `least`.
pub fn raise(to: &mut Amounts, least: &Amounts) {
    for (name, amount) in least {
        if to.get(name).is_none_or(|have| have < amount) {
            to.insert(name.clone(), *amount);
        }
    }
}

/// The kind of amounts of a container.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AmountKind {
    /// The amounts that a container requests.
    Requests,
    /// The amounts that a container must not exceed.
    Limits,
}

impl AmountKind {
    /// Returns the name of the member of `resources` that contains these amounts.
    pub fn name(self) -> &'static str {
        match self {
            AmountKind::Requests => "requests",
            AmountKind::Limits => "limits",
        }
    }
}

/// Returns the total amounts that the containers of a pod need (KEP 753). The total is the sum over the main and
/// restartable init containers. The total is at least the sum of any init container and the restartable init containers
/// before that container.
pub fn of_containers(pod: &Object, bound: AmountKind) -> Amounts {
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

/// Returns the amounts that a pod needs without its overhead: the amounts of its containers, which pod-level
/// amounts override (KEP 2837).
pub fn of_pod_alone(pod: &Object, bound: AmountKind) -> Amounts {
    let mut all = of_containers(pod, bound);
    all.extend(amounts(at(pod, "spec.resources").and_then(|resources| resources.get(bound.name()))));
    all
}

/// Returns the amounts that a pod needs, including its overhead.
pub fn of_pod(pod: &Object, bound: AmountKind) -> Amounts {
    let mut all = of_pod_alone(pod, bound);
    for (name, overhead) in amounts(at(pod, "spec.overhead")) {
        // Overhead does not create a limit for a resource without a limit.
        match all.get(&name) {
            Some(have) => drop(all.insert(name, have.plus(overhead))),
            None if bound == AmountKind::Requests => drop(all.insert(name, overhead)),
            None => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::object;

    fn amounts_text(amounts: &Amounts) -> String {
        let shown = amounts.iter().map(|(name, amount)| format!("{name}={}", amount.to_text()));
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn pod_requests_are_those_of_all_containers_but_at_least_those_of_each_init_container() {
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
            assert_eq!(amounts_text(&of_pod(&pod, AmountKind::Requests)), want, "{init} {main} {more}");
        }
    }
}
