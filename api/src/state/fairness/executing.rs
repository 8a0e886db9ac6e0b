//! The requests of a level that run, for those who look at them; seats do not need to know them.
//!
//! A place in the list is taken for each request and used again: it grows with the requests that run at once.

use std::sync::Arc;
use std::time::Instant;

use auth::Attributes;
use parking_lot::Mutex;

/// The requests of a level that run.
#[derive(Debug, Default)]
pub(super) struct Executing(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    places: Vec<Option<Runner>>,
    free: Vec<usize>,
}

/// A request that runs.
#[derive(Clone, Debug)]
pub(super) struct Runner {
    /// Its flow schema.
    pub(super) schema: String,
    /// Its flow.
    pub(super) flow: String,
    /// What it asks for, as [`asked`] writes it.
    pub(super) asked: String,
    /// The queue that it came through; `None` in a level without queues.
    pub(super) queue: Option<usize>,
    /// Seats that it takes.
    pub(super) seats: u32,
    /// When it came.
    pub(super) arrived: Instant,
    /// When it had its seats.
    pub(super) began: Instant,
}

/// What a request asks for: user, verb, path, namespace, name, version, resource and subresource, with [`BETWEEN`] between
/// them.
pub(super) fn asked(attributes: &Attributes<'_>) -> String {
    let Attributes { user, verb, path, namespace, name, group, version, resource, subresource, .. } =
        *attributes;
    let slash = if group.is_empty() { "" } else { "/" };
    let to_name = [&*user.name, BETWEEN, verb, BETWEEN, path, BETWEEN, namespace, BETWEEN, name, BETWEEN];
    let parts = to_name.into_iter().chain([group, slash, version, BETWEEN, resource, BETWEEN, subresource]);
    let mut text = String::with_capacity(parts.clone().map(str::len).sum());
    text.extend(parts);
    text
}

/// Separator of these. A part that has it itself is shown as two.
pub(super) const BETWEEN: &str = "\0";

/// The place of a request, until this is dropped.
#[derive(Debug)]
pub(super) struct Listed {
    executing: Arc<Executing>,
    place: usize,
}

impl Executing {
    /// Lists a request.
    pub(super) fn list(self: &Arc<Self>, runner: Runner) -> Listed {
        let mut places = self.0.lock();
        let place = match places.free.pop() {
            Some(place) => {
                places.places[place] = Some(runner);
                place
            }
            None => {
                places.places.push(Some(runner));
                places.places.len() - 1
            }
        };
        Listed { executing: self.clone(), place }
    }

    /// Those that run now.
    pub(super) fn all(&self) -> Vec<Runner> {
        self.0.lock().places.iter().flatten().cloned().collect()
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut places = self.executing.0.lock();
        places.places[self.place] = None;
        places.free.push(self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_has_eight_parts() {
        let user = auth::User::new("joe", ["g"]);
        let path = Attributes::path(&user, "get", "/a");
        let scale = Attributes {
            group: "apps",
            version: "v1",
            resource: "deployments",
            subresource: "scale",
            namespace: "n",
            name: "d",
            ..path
        };
        for (attributes, want) in [
            (path, "joe|get|/a|||||"),
            (Attributes { version: "v1", resource: "pods", ..path }, "joe|get|/a|||v1|pods|"),
            (scale, "joe|get|/a|n|d|apps/v1|deployments|scale"),
        ] {
            assert_eq!(asked(&attributes).replace(BETWEEN, "|"), want);
        }
    }

    #[test]
    fn places_are_used_again() {
        let executing = Arc::new(Executing::default());
        let list = |flow: &str| {
            let now = Instant::now();
            let (schema, flow, asked) = (String::new(), flow.to_owned(), String::new());
            executing.list(Runner { schema, flow, asked, queue: None, seats: 1, arrived: now, began: now })
        };
        let flows = || executing.all().into_iter().map(|runner| runner.flow).collect::<Vec<_>>();
        let (first, _second) = (list("a"), list("b"));
        drop(first);
        assert_eq!(flows(), ["b"]);
        let _third = list("c");
        assert_eq!(flows(), ["c", "b"]);
        assert_eq!(executing.0.lock().places.len(), 2);
    }
}
