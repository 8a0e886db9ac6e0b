//! Checks the existing pods of a namespace against a new level, and returns warnings for the writer of the
//! namespace.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hashbrown::HashSet;

use super::checks::{Pod, evaluate, reasons};
use super::level::LevelVersion;
use crate::writes::server::store::ObjectStorage;
use objects::store;
use objects::validation::StructView;
use types::schema::registry::Resource;
use values::json::Object;
use values::naming::Naming;
use values::object::meta;
use values::status::Status;

/// Maximum number of pods that the server checks for one write of a namespace.
const PODS_MAX: usize = 3000;
/// Maximum time for these checks.
const TIME_MAX: Duration = Duration::from_secs(1);
/// Number of pods that are checked before the task yields to other requests.
const PODS_PER_TURN: usize = 32;

/// Checks the pods of a namespace, and returns the warnings. The first pod of each controller is checked
/// before the others, because the pods of a controller usually have the same violations.
///
/// # Errors
/// Fails if a pod cannot be read.
pub async fn warnings(
    store: &ObjectStorage,
    naming: &Naming,
    pods: &Resource,
    namespace: &str,
    level: LevelVersion,
    is_exempt: impl Fn(&Object) -> bool + Send,
) -> Result<Vec<String>, Status> {
    let until = Instant::now() + TIME_MAX;
    let mut entries: Vec<_> = store.snapshot().prefix(&store::collection(pods, namespace)).collect();
    let count = entries.len();
    let mut found = Found::default();
    let mut controllers: HashSet<String> = HashSet::new();
    let mut checked = 0;
    for round in [Round::FirstOfController, Round::Others] {
        let mut others = Vec::new();
        for entry in entries {
            if checked == PODS_MAX || Instant::now() > until {
                return Ok(found.warnings(namespace, level, checked, count));
            }
            let pod = store::read(entry.clone())?.object(pods)?;
            if round == Round::FirstOfController
                && let Some(controller) = controller_of(&pod)
                && !controllers.insert(controller.to_owned())
            {
                others.push(entry);
                continue;
            }
            checked += 1;
            if !is_exempt(&pod) {
                found.add(
                    meta(&pod, "name"),
                    reasons(&evaluate(level, Pod::new(StructView::from_object(&pod), naming))),
                );
            }
            if checked % PODS_PER_TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
        entries = others;
    }
    Ok(found.warnings(namespace, level, checked, count))
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Round {
    FirstOfController,
    Others,
}

/// Returns the uid of the owner that controls a pod.
fn controller_of(pod: &Object) -> Option<&str> {
    let owners = StructView::from_object(pod).child("metadata").structs("ownerReferences");
    owners.into_iter().find(|owner| owner.is_true("controller")).map(|owner| owner.text("uid"))
}

/// The pods that violate the level. For each text of violations, this map has the first pod by name and the
/// number of pods.
#[derive(Default)]
struct Found(BTreeMap<String, (String, usize)>);

impl Found {
    fn add(&mut self, name: &str, violations: String) {
        if violations.is_empty() {
            return;
        }
        let (first, count) = self.0.entry(violations).or_insert_with(|| (name.to_owned(), 0));
        *count += 1;
        if name < first.as_str() {
            name.clone_into(first);
        }
    }

    fn warnings(self, namespace: &str, level: LevelVersion, checked: usize, count: usize) -> Vec<String> {
        let mut warnings = Vec::new();
        if checked < count {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {checked} of {count} existing pods"
            ));
        }
        if !self.0.is_empty() {
            warnings.push(format!(
                "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{level}\""
            ));
        }
        let mut of_pods: Vec<String> = self
            .0
            .into_iter()
            .map(|(violations, (first, count))| match count {
                1 => format!("{first}: {violations}"),
                2 => format!("{first} (and 1 other pod): {violations}"),
                _ => format!("{first} (and {} other pods): {violations}", count - 1),
            })
            .collect();
        of_pods.sort_unstable();
        warnings.extend(of_pods);
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writes::admission::pod_security::level::{Level, Version};

    #[test]
    fn existing_pods_with_the_same_violations_share_one_warning() {
        let mut found = Found::default();
        for (name, violations) in [("d", "a"), ("c", "b"), ("b", "b"), ("z", ""), ("e", "b")] {
            found.add(name, violations.to_owned());
        }
        let level = LevelVersion { level: Level::Baseline, version: Version::Minor(1) };
        assert_eq!(
            found.warnings("n", level, 5, 9),
            [
                "new PodSecurity enforce level only checked against the first 5 of 9 existing pods",
                "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:v1.1\"",
                "b (and 2 other pods): b",
                "d: a",
            ]
        );
        assert!(Found::default().warnings("n", level, 5, 5).is_empty());
    }
}
